"""`tracing.check(trace)`: do the protocol's laws hold in this trace? minidl.laws states them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from minidl.events import LOADER, Kind
from minidl.laws import LAWS, Event, judge
from tracing.trace.trace import Trace

LOOKED_AT = sorted({LOADER, Kind.EPOCH_BEGIN, *(kind for law in LAWS for kind in law.calls)})  # by some law


@dataclass(frozen=True)
class Violation:
    """A law that does not hold."""

    name: str  # of the law: "first in first out"
    sentence: str  # what should hold
    what: str  # found: "INDEX 1: GOT task 3 out of turn"
    events: list[int]  # positions of the events that show it, ascending
    rank: str = ""  # "rank 1": in whose trace, where a run has several

    def __str__(self) -> str:
        of_rank = f"{self.rank}: " if self.rank else ""
        return f"{of_rank}{self.name}: {self.what} (events {', '.join(map(str, self.events))})"


def check(trace: Trace) -> list[Violation]:
    """The laws that each iterator violates; empty when all hold.

    Where a file was full or damaged, only the events up to there are judged: what is missing after that proves nothing.
    """
    return [Violation(law.name, law.sentence, what, events) for law, what, events in judge(events_of(trace))]


def events_of(trace: Trace) -> Iterator[tuple[int, Event]]:
    """The positions and events of a trace, without those that no law looks at: about a quarter."""
    positions = np.flatnonzero(np.isin(trace.events["kind"][: trace.complete], LOOKED_AT))
    for at in np.array_split(positions, 1 + len(positions) // 10_000):
        events = trace.events[at]
        epoch_ids = (events["loader"].astype(np.int64) << 32 | events["epoch"]).tolist()
        times, actors, kinds, *others = (
            events[name].tolist() for name in ("time", "actor", "kind", "task", "worker", "queue", "value", "text")
        )
        rows = zip(times, actors, kinds, epoch_ids, *others, strict=True)
        for position, row in zip(at.tolist(), rows, strict=True):
            event = tuple.__new__(Event, row)  # as Event._make does, in half the time
            if event.kind == LOADER:
                event = event._replace(text=trace.config(trace.index.iterator_of[event.epoch_id]))
            yield position, event
