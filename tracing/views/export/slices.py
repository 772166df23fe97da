"""Slices that nest: the tracks of a Perfetto trace, one for each thread of the operating system.

tracing.trace.thread_activity finds what a thread does at a moment, for one loader. Here the question is which calls
lie in which, over all loaders of a thread. A slice lasts from one event of a thread to a later one. There are two
sorts:

    span    FETCH_BEGIN ... FETCH_END      a begin and its end; other slices may lie in it (a loader in a dataset, say)
    leaf    WAIT | whatever comes next     until the thread says anything else

Every bound is an event of this one thread, and spans are kept on a stack, so that slices cannot overlap otherwise
than by one lying in the other, whatever the trace lacks.

Legend
    stack    [next batch, fetch 3]    spans that have begun and not ended, the innermost last
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from minidl.events import Kind
from tracing.trace.event_words import WORDS
from tracing.trace.state_after_event import label

if TYPE_CHECKING:
    from tracing.trace.trace import Trace

# A viewer counts in whole ns, and may cut off instead of rounding what it makes of our µs. So no two bounds of a
# track are closer than a GUARD, and every slice stays longer than zero, also where a clock stood still.
GUARD, STEP = 2, 32  # ns
MOST_GUARDS = 12  # STEP - MOST_GUARDS * GUARD is the least length of a slice
LAST = 1_000  # ns that a thread's last slice has at least


class Event(NamedTuple):
    """One event of a thread."""

    k: int  # its position
    time: int  # ns after the trace's start; strictly ascending along a thread
    flow: int  # number of the batch's flow that passes here, 0 for none
    kind: int
    loader: int
    epoch: int
    task: int
    worker: int
    queue: int
    value: int


class Slice(NamedTuple):
    """What a thread did for a time."""

    name: str
    first: Event  # begins it
    last: Event | None  # ends it; None: the trace ends before
    end: int  # ns after the trace's start


# Kind that begins a span -> the kinds that end it. Its name is the slice of tracing.trace.event_words.
SPANS: dict[int, set[int]] = {
    Kind.LOADER: {Kind.PRIMED, Kind.ASKED},
    Kind.EPOCH_BEGIN: {Kind.PRIMED, Kind.ASKED},
    Kind.WORKER_STARTING: {Kind.WORKER_STARTED, Kind.WORKER_STARTING, Kind.EPOCH_BEGIN},
    Kind.ASKED: {Kind.YIELDED, Kind.EPOCH_END, Kind.ERROR_RAISED},
    Kind.KEYS_BEGIN: {Kind.KEYS_DRAWN, Kind.SAMPLER_END},
    Kind.FETCH_BEGIN: {Kind.FETCH_END, Kind.FETCH_FAILED, Kind.STREAM_END},
    Kind.COLLATE_BEGIN: {Kind.COLLATE_END, Kind.FETCH_FAILED},
    Kind.PIN_BEGIN: {Kind.PIN_END, Kind.PIN_FAILED},
    Kind.WORKER_BEGIN: {Kind.WORKER_READY, Kind.FETCH_FAILED, Kind.WAIT, Kind.ARRIVED, Kind.GOT},
    Kind.INIT_FN_BEGIN: {Kind.INIT_FN_END, Kind.FETCH_FAILED},
    Kind.SHUTDOWN_BEGIN: {Kind.SHUTDOWN_END},
    Kind.PIN_STOPPING: {Kind.PIN_JOINED},
    Kind.JOIN_BEGIN: {Kind.WORKER_JOINED, Kind.WORKER_TERMINATED, Kind.WORKER_KILLED},
}
# What lasts until the thread's next event. The get of a queue with a pipe lasts from ARRIVED to GOT; on data_queue,
# where there is no ARRIVED, from GOT on.
LEAVES = {Kind.PUT, Kind.SEND_BEGIN, Kind.WAIT, Kind.ARRIVED, Kind.GOT, Kind.YIELDED}


class Track:
    """The slices of one thread. Give it the thread's events in order, then `finish`."""

    def __init__(self) -> None:
        self._stack: list[Event] = []
        self._leaf: Event | None = None

    def take(self, event: Event) -> Iterator[Slice]:
        """The slices that this event ends, the innermost first; then what it begins is begun."""
        left = self._stack_after(event)
        yield from self._close(left, event, event.time)
        del self._stack[left:]
        arrived = self._leaf is not None and self._leaf.kind == Kind.ARRIVED
        self._leaf = None
        if event.kind in SPANS:
            self._stack.append(event)
        elif event.kind in LEAVES and not (event.kind == Kind.GOT and arrived):
            self._leaf = event

    def finish(self, time: int) -> Iterator[Slice]:
        """What is open when nothing more is said: it ends at `time`."""
        yield from self._close(0, None, time)

    def _stack_after(self, event: Event) -> int:
        """How many spans are still open after an event. It ends the outermost one that it can end, and with it what
        lies in that. (So does what begins again without having ended: the trace lacks something.)"""
        for depth, begun in enumerate(self._stack):
            same = begun.loader == event.loader and begun.epoch == event.epoch
            if same and (event.kind in SPANS[begun.kind] or event.kind == begun.kind):
                return depth
        return len(self._stack)

    def _close(self, left: int, last: Event | None, time: int) -> Iterator[Slice]:
        """Slices that end together are given room: the outer one ends a GUARD after what lies in it."""
        ending = self._stack[left:] + ([self._leaf] if self._leaf is not None else [])
        for number in range(len(ending) - 1, -1, -1):
            first = ending[number]
            yield Slice(name_of(first, last), first, last, time - GUARD * min(1 + number, MOST_GUARDS))


def name_of(first: Event, last: Event | None) -> str:
    """In Perfetto slices whose names differ in numbers only have one colour."""
    message = last if first.kind == Kind.ARRIVED else first  # what it read is known only once it is unpickled
    batch = label(message.task) if message is not None else "?"
    return WORDS[first.kind].slice.format(batch=batch, worker=first.worker)


def events_of(trace: Trace, positions: np.ndarray, flow: np.ndarray, chunk: int = 1 << 13) -> Iterator[Event]:
    """The events at these positions, all of one thread; few at a time are held as Python objects.
    flow: of every event of the trace, see Event."""
    latest = -STEP
    for start in range(0, len(positions), chunk):
        at = positions[start : start + chunk]
        part = trace.events[at]
        steps = STEP * np.arange(1, len(at) + 1)
        times = np.maximum(part["time"] - trace.start, latest + steps)
        times = np.maximum.accumulate(times - steps) + steps
        latest = int(times[-1])
        columns = [part[name].tolist() for name in Event._fields[3:]]
        yield from map(Event._make, zip(at.tolist(), times.tolist(), flow[at].tolist(), *columns, strict=True))
