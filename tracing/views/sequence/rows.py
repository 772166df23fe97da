"""What a sequence diagram shows: which threads, which messages between them, which notes beside them.

Legend
    arrow     main -> worker 0, 3, index_queue           a message, from its put to its got
    note      main, "hands 3 to the training loop"       what one thread did
    row       either; rows are in the order in which they begin
    column    "worker 0"                                 a thread
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from minidl.events import NO_TASK, Kind, Queue
from tracing.trace.event_index import NEVER, Lane
from tracing.trace.event_words import KINDS, Sentence, sentence
from tracing.trace.kinds import NOTED
from tracing.trace.state import Label
from tracing.trace.state_after_event import label
from tracing.trace.trace import Trace
from tracing.trace.words import QUEUE_NAMES, duration
from tracing.views.queue_contents import FOREVER, closed_at, fifo

MAIN, PIN = "main", "pin thread"
MOST_ROWS = 200
AT_ONCE = 50  # events for each row that may be shown: far more than have a row


class Phase(enum.Enum):
    """A part of an iterator's life."""

    ALL = "all of it"
    START_UP = "the start-up"  # up to the first batch yielded
    SHUTDOWN = "the shutdown"


class Delivery(enum.Enum):
    """What became of a message."""

    TAKEN = "taken"
    WAITING = "still there"  # in its queue when the trace ends
    LOST = "never taken"  # and its queue is gone
    BROKEN = "could not be read"  # half a message, whose sender was killed


@dataclass(frozen=True)
class Arrow:
    """A message on its way from one thread to another."""

    begin: int  # position of the event that sends it: its PUT
    end: int  # ... and of the one that takes it: its GOT; -1 if there is none
    source: str  # a column
    target: str  # a column
    label: Label
    where: str  # it is in between: "index_queue"
    delivery: Delivery

    @property
    def taken(self) -> bool:
        return self.delivery is Delivery.TAKEN


@dataclass(frozen=True)
class Note:
    """What a thread did."""

    begin: int  # position of its event
    column: str
    kind: Kind
    words: Sentence


@dataclass(frozen=True)
class Sequence:
    """A diagram: what is drawn, and what it is called."""

    trace: Trace
    title: str
    columns: list[str]
    rows: list[Arrow | Note]
    left_out: str  # one line: what is not shown, and how to get it; "" if nothing is missing

    def time(self, position: int) -> int:
        """Of an event, in ns after the first one of the trace."""
        return int(self.trace.events["time"][position]) - self.trace.start

    def delivery_in_words(self, arrow: Arrow) -> str:
        """Where a message was, and for how long; or what became of it."""
        if arrow.taken:
            return f"{duration(self.time(arrow.end) - self.time(arrow.begin))} in {arrow.where}"
        return f"{arrow.delivery.value}: {arrow.where}"


NOTED_ALONE = NOTED | {Kind.FETCH_BEGIN}  # without workers: with them, the arrow of its task is enough


def select(
    trace: Trace,
    *,
    phase: Phase = Phase.ALL,
    batches: tuple[int, int] | None = None,
    start: float | None = None,
    end: float | None = None,
    epoch: int | None = None,
    loader: int | None = None,
    most: int | None = MOST_ROWS,
) -> Sequence:
    """What to draw of a trace: one iterator, by default the first one of the loader with the most batches.

    phase: of that iterator's life. batches: (4, 8) selects what concerns batches 4 to 7 of `epoch`, by default the
    first. start, end: seconds after the trace's first event. loader: the number of a DataLoader. most:
    rows; None for all.

    Raises ValueError if there is nothing to draw: no such loader, epoch or batch, no shutdown, an empty window.
    """
    if len(trace) == 0:
        raise ValueError("nothing to draw: the trace has no events")
    if most is not None and most < 1:
        raise ValueError(f"nothing to draw: at most {most} rows")
    number = _iterator(trace, loader, epoch, start)
    first, last = _window(trace, number, phase, start, end)
    iterator = IteratorRows(trace, number)
    own = trace.index.iterators[number].epochs[0] if epoch is None else epoch
    if batches is not None:
        first, last = _where(trace, batches, own, first, last)
    until = last if most is None else min(last, first + AT_ONCE * most)
    while True:  # of a long trace only what is shown is looked at
        rows = list(iterator.rows(first, until))
        if epoch is not None or batches is not None:
            rows = [row for row in rows if trace.events["epoch"][row.begin] == own]
        if batches is not None:
            rows = [row for row in rows if batches[0] <= trace.events["task"][row.begin] < batches[1]]
        if until == last or most is None or len(rows) > most:
            break
        until = min(last, first + 4 * (until - first))
    if not rows:
        raise ValueError(f"nothing to draw: loader {trace.index.iterators[number].loader} has no events in this part")
    rows.sort(key=lambda row: row.begin)
    title = _title(trace, number, phase, batches)
    return Sequence(trace, title, iterator.columns, rows[:most], _left_out(trace, rows, most))


def _iterator(trace: Trace, loader: int | None, epoch: int | None, start: float | None) -> int:
    """The number of the first one that fits."""
    found = trace.index.iterators_of(loader)
    if epoch is not None:
        loader, found = found[0].loader, [each for each in found if epoch in each.epochs]
        if not found:
            raise ValueError(f"nothing to draw: loader {loader} has no epoch {epoch} in this trace")
    if start is not None:
        begin = trace.start + start * 1e9
        found = [each for each in found if trace.events["time"][each.last()] >= begin] or found
    return found[0].number


def _window(trace: Trace, number: int, phase: Phase, start: float | None, end: float | None) -> tuple[int, int]:
    """The positions of its first event and of its last one."""
    index, time = trace.index, trace.events["time"]
    first, last = 0, len(trace) - 1
    if phase is Phase.START_UP:
        yielded = index.group(number, Kind.YIELDED).array
        last = int(yielded[0]) if len(yielded) else last
    elif phase is Phase.SHUTDOWN:
        begun = index.group(number, Kind.SHUTDOWN_BEGIN).array
        if len(begun) == 0:
            raise ValueError(f"nothing to draw: loader {index.iterators[number].loader} does not start to shut down")
        first = int(begun[0])
    if start is not None:
        first = max(first, int(np.searchsorted(time, trace.start + round(start * 1e9), "left")))
    if end is not None:
        last = min(last, int(np.searchsorted(time, trace.start + round(end * 1e9), "right")) - 1)
    return first, last


def _where(trace: Trace, batches: tuple[int, int], epoch: int, first: int, last: int) -> tuple[int, int]:
    """The positions, from `first` to `last`, of the first and the last event that concerns these batches."""
    events = trace.events[first : last + 1]
    in_range = (events["task"] >= batches[0]) & (events["task"] < batches[1])
    found = first + np.flatnonzero(in_range & (events["epoch"] == epoch))
    if len(found) == 0:
        raise ValueError(f"nothing to draw: no batches {batches[0]} to {batches[1] - 1} of epoch {epoch} in this part")
    return int(found[0]), int(found[-1])


def _title(trace: Trace, number: int, phase: Phase, batches: tuple[int, int] | None) -> str:
    iterator = trace.index.iterators[number]
    words = [f"Loader {iterator.loader}"] if len({each.loader for each in trace.index.iterators}) > 1 else []
    words.append(f"epoch {iterator.epochs[0]}" + (f" to {iterator.epochs[-1]}" if len(iterator.epochs) > 1 else ""))
    words.append({0: "no workers", 1: "1 worker"}.get(iterator.num_workers, f"{iterator.num_workers} workers"))
    words += [phase.value] if phase is not Phase.ALL else []
    words += [f"batches {batches[0]} to {batches[1] - 1}"] if batches is not None else []
    title = ", ".join(words)
    return title[0].upper() + title[1:]


def _left_out(trace: Trace, rows: list[Arrow | Note], most: int | None) -> str:
    if most is None or most >= len(rows):
        return ""
    begin = (int(trace.events["time"][rows[most].begin]) - trace.start) // 10**6 / 1e3
    left_out = f"Left out: all from {begin:.3f} s on, of {trace.duration / 1e9:.3f} s."
    return f"{left_out} More rows: --most {2 * most}; a part: --from {begin:.3f}."


class IteratorRows:
    """All rows of one iterator."""

    def __init__(self, trace: Trace, number: int) -> None:
        self.trace, self.number, self.index = trace, number, trace.index
        self.iterator = trace.index.iterators[number]
        self.workers = range(self.iterator.num_workers)
        self.not_taken = Delivery.WAITING if closed_at(trace, self.iterator) == FOREVER else Delivery.LOST
        self.pinned = len(self.index.lane(number, Lane.PIN)) > 0
        self.columns = [MAIN, *([PIN] if self.pinned else []), *(f"worker {worker}" for worker in self.workers)]

    def rows(self, first: int, last: int) -> Iterator[Arrow | Note]:
        """Those that cover an event from position `first` to `last`."""
        self.first, self.until = first, last
        consumer = PIN if self.pinned else MAIN
        for worker in self.workers:
            name = f"worker {worker}"
            yield from self._arrows(Queue.INDEX, worker, MAIN, name)
            yield from self._arrows(Queue.RESULT, worker, name, consumer)
            yield from self._notes(Lane.WORKER, worker, name)
        yield from self._arrows(Queue.DATA, -1, PIN, MAIN)
        yield from self._notes(Lane.PIN, -1, PIN)
        yield from self._notes(Lane.MAIN, -1, MAIN)

    def _arrows(self, queue: Queue, worker: int, source: str, target: str) -> Iterator[Arrow]:
        begins, ends = fifo(self.trace, self.iterator, queue, worker)
        if self.iterator.last() < self.first:
            return  # what is there was not taken, and never will be
        seen, tasks = (ends >= self.first) & (begins <= self.until), self.trace.events["task"]
        for begin, end in zip(begins[seen].tolist(), ends[seen].tolist(), strict=True):
            taken, delivery = end != NEVER, self.not_taken
            if taken:
                delivery = Delivery.BROKEN if tasks[end] == NO_TASK else Delivery.TAKEN
            message = label(int(tasks[begin]))
            yield Arrow(begin, end if taken else -1, source, target, message, QUEUE_NAMES[queue], delivery)

    def _notes(self, lane: Lane, worker: int, column: str) -> Iterable[Note]:
        positions = self.index.lane(self.number, lane, worker).array
        positions = positions[slice(*positions.searchsorted((self.first, self.until + 1)))]
        noted = NOTED if self.workers else NOTED_ALONE
        for position in positions[np.isin(self.trace.events["kind"][positions], list(noted))].tolist():
            event = self.trace.events[position]
            kind = KINDS[int(event["kind"])]
            words = sentence(event, _error(self.trace, position) if kind is Kind.ERROR_RAISED else "")
            yield Note(position, column, kind, words)


def _error(trace: Trace, position: int) -> str:
    """What an ERROR_RAISED raises, in one line: `KeyError: ...`, without the traceback it may have brought."""
    if trace.events["value"][position]:
        return "the same error again"
    text = str(trace.text(position) or "an error").replace("\\n", "\n")
    line = " ".join(text.split("\n")[0].split())
    return re.sub(r"^(\w+)\((['\"])(.*?)(\2\))?$", r"\1: \3", line)
