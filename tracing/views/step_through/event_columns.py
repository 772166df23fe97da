"""The events of a trace as columns for the page: which thread did what, in words, and the line that emitted it.

Legend
    before, after   "puts ", " on data_queue"    an event in words; the batch goes between the two
    phrases         ["puts ", ...]               each text once; `before` and `after` are indices into it
    site            3                            the line that emitted it: see tracing.views.step_through.source_code
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from minidl.events import CLOCKED, Kind
from tracing.trace.event_words import KINDS, sentence, thread_name
from tracing.trace.kinds import ALARMING
from tracing.trace.trace import Trace
from tracing.trace.words import duration
from tracing.views.step_through.source_code import EmittingLines

ERRORS = ALARMING | {Kind.NO_CAPACITY}
MEANINGS = {  # of values that are codes
    Kind.ERROR_RAISED: {1: "again: an earlier error lost a task"},
    Kind.EPOCH_BEGIN: {-1: "of a new iterator"},
    Kind.PIN_JOINED: {0: "it did not end in time"},
    Kind.WORKER_END: {0: "it was stopped", 1: "main is dead", 2: "it was interrupted", 3: "an error"},
}
BEGUN_BY = {
    Kind.FETCH_END.value: Kind.FETCH_BEGIN,
    Kind.COLLATE_END.value: Kind.COLLATE_BEGIN,
    Kind.PIN_END.value: Kind.PIN_BEGIN,
}


class EventColumns:
    """Events `first` to `last`."""

    def __init__(self, trace: Trace, first: int, last: int) -> None:
        self.trace, self.replaced = trace, trace.about.get("replaced") or {}  # see tracing.recording.simulated_run
        self.departs = self.replaced.get("departs", -1)  # the event at which a run departs from another
        self.code = EmittingLines(self.replaced)
        self.events = trace.events[first : last + 1]
        self.first = first
        self.names = [thread_name(actor) for actor in trace.actors]
        self.iterators = [
            trace.index.iterator_of[loader << 32 | epoch]
            for loader, epoch in zip(self.events["loader"].tolist(), self.events["epoch"].tolist(), strict=True)
        ]
        self._phrases: dict[str, int] = {}

    def as_json(self) -> dict[str, Any]:
        """Name -> a list with an entry for each event."""
        events = self.events
        sentences = [sentence(event) for event in events]
        columns = {name: events[name].tolist() for name in ("kind", "actor", "task")}
        return columns | {
            "time": (events["time"] - self.trace.start).tolist(),
            "iterator": self.iterators,
            "before": [self._phrase(words.before) for words in sentences],
            "after": [-1 if words.batch is None else self._phrase(words.after) for words in sentences],
            "site": [self.code.site(KINDS[kind], queue) for kind, queue in events[["kind", "queue"]].tolist()],
            "phrases": list(self._phrases),
            "texts": {number: self.trace.text(event) for number, event in enumerate(events) if event["text"]},
            "values": {number: meaning for number, meaning in enumerate(self._meanings()) if meaning},
        }

    def marks(self) -> dict[str, list[int]]:
        """Positions of what a reader looks for: errors, batches that came early, beginnings of epochs."""
        kinds = {"errors": ERRORS, "early": {Kind.STORED}, "epochs": {Kind.EPOCH_BEGIN}}
        of = self.events["kind"].tolist()
        found = {name: [self.first + n for n, kind in enumerate(of) if kind in some] for name, some in kinds.items()}
        return found | {"departs": [self.departs] if self.first <= self.departs < self.first + len(of) else []}

    def _meanings(self) -> Iterator[str]:
        """Each event's value in words, and where a run departs from another, how."""
        for k, value in enumerate(self._values(), self.first):
            another = f"here minidl's own functions differ: {self.replaced['instead']}" if k == self.departs else ""
            yield "; ".join(filter(None, [value, another]))

    def _values(self) -> Iterator[str]:
        """Each event's value in words; for the end of work, the time it took, and how much of that was CPU time."""
        begun: dict[int, Any] = {}  # actor -> its last event with a CPU time
        for event in self.events:
            actor, kind = int(event["actor"]), int(event["kind"])
            if kind in BEGUN_BY and actor in begun and begun[actor]["kind"] == BEGUN_BY[kind]:
                wall, busy = (int(event[name]) - int(begun[actor][name]) for name in ("time", "value"))
                yield f"took {duration(wall)}, {duration(busy)} of it on the CPU"
            else:
                yield value_of(event)
            if kind < CLOCKED:
                begun[actor] = event

    def _phrase(self, words: str) -> int:
        return self._phrases.setdefault(words, len(self._phrases))

    def kinds(self) -> dict[int, str]:
        """Number -> name of the kinds that occur."""
        return {kind: KINDS[kind].name for kind in sorted(set(self.events["kind"].tolist()))}


def value_of(event: Any) -> str:
    """An event's `value` in words, "" if it needs none."""
    kind, value = KINDS[int(event["kind"])], int(event["value"])
    if not kind.value_is or kind < CLOCKED:
        return ""
    if kind in (Kind.WAIT, Kind.JOIN_BEGIN):
        return f"for at most {duration(value)}" if value else "without a limit"
    if kind in (Kind.SENT, Kind.ARRIVED):
        return f"{value:,} bytes"
    if kind in MEANINGS:
        return MEANINGS[kind].get(value, "")
    return f"{kind.value_is}: {value}"
