"""Slices that nest: the tracks of a Perfetto trace, one for each thread of the operating system.

tracing.trace.thread_activity finds what a thread does at a moment, for one loader. Here the question is which calls
lie in which, over all loaders of a thread. A slice lasts from one event of a thread to a later one. There are two
sorts:

    span    FETCH_BEGIN ... FETCH_END      a start and its end; other slices may lie in it (a loader in a dataset, say)
    leaf    WAIT | whatever comes next     until the thread says anything else

Every bound is an event of this one thread, and spans are kept on a stack, so that slices can overlap only
by one lying in the other, whatever the trace lacks.

There are millions of them, so events and slices are plain tuples of numbers.

Legend
    event    (12, 5000, 29, 1 << 32)    its number among the thread's events, ns after the trace's start (strictly
                                        ascending along a thread), kind, and epoch_id as in tracing.trace.event_index
    slice    (12, 13, 6998)             the numbers of the events that begin it and end it, -1 for the latter if the
                                        trace ends before; when it ends, ns after the trace's start
    stack    [next batch, fetch 3]      spans that have begun and not ended, the innermost last
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import numpy as np

from minidl.events import Kind
from tracing.trace.kinds import TRAITS
from tracing.trace.trace import Trace

# A viewer counts in whole ns, and may truncate our µs instead of rounding them. So no two bounds of a
# track are closer than a GUARD, and every slice stays longer than zero, even where a clock stood still.
GUARD, STEP = 2, 32  # ns
MOST_GUARDS = 12  # STEP - MOST_GUARDS * GUARD is the least length of a slice
LAST = 1_000  # ns: least length of a thread's last slice

Event = tuple[int, int, int, int]
Slice = tuple[int, int, int]


# Kind that begins a span -> the kinds that end it. Its name is the slice of tracing.trace.kinds.
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
# What else has one lasts until the thread's next event. The get of a queue with a pipe lasts from ARRIVED to GOT; on
# data_queue, where there is no ARRIVED, from GOT on.
LEAVES = {kind for kind, traits in TRAITS.items() if traits.slice} - SPANS.keys()
_BOUNDS = set(SPANS).union(*SPANS.values())
_ARRIVED, _GOT = int(Kind.ARRIVED), int(Kind.GOT)  # plain numbers compare five times as fast


def slices_of(events: Iterable[Event], until: int) -> Iterator[Slice]:
    """The slices of one thread, in the order of their ends; of those that end together the innermost is first.
    What is open when nothing more is said ends at `until` (ns after the trace's start)."""
    stack: list[Event] = []
    leaf: list[Event] = []  # at most one
    for event in events:
        number, time, kind, epoch_id = event
        left = _still_open(stack, kind, epoch_id) if stack and kind in _BOUNDS else len(stack)
        ended = stack[left:] + leaf
        if ended:
            yield from _ending(ended, number, time)
            del stack[left:]
        leaf = [event] if kind in LEAVES and not (kind == _GOT and leaf and leaf[0][2] == _ARRIVED) else []
        if kind in SPANS:
            stack.append(event)
    yield from _ending(stack + leaf, -1, until)


def _still_open(stack: list[Event], kind: int, epoch_id: int) -> int:
    """How many spans are still open after an event. It ends the outermost one that it can end, and with it what lies
    in that. (So does what begins again without having ended: the trace lacks something.)"""
    for depth, (_, _, begun, of) in enumerate(stack):
        if of == epoch_id and (kind in SPANS[begun] or kind == begun):
            return depth
    return len(stack)


def _ending(ending: list[Event], last: int, time: int) -> list[Slice]:
    """Slices that end together are given room: the outer one ends a GUARD after what lies in it."""
    return [
        (ending[depth - 1][0], last, time - GUARD * (depth if depth < MOST_GUARDS else MOST_GUARDS))
        for depth in range(len(ending), 0, -1)
    ]


def times_of(trace: Trace, positions: np.ndarray) -> np.ndarray:
    """The times of one thread's events, as an Event has them: no two are closer than a STEP."""
    steps = STEP * np.arange(len(positions))
    return np.maximum.accumulate(trace.events["time"][positions] - trace.start - steps) + steps


def events_of(trace: Trace, positions: np.ndarray, times: np.ndarray, chunk: int = 1 << 13) -> Iterator[Event]:
    """The events at these positions, all of one thread; few at a time are held as Python objects."""
    for start in range(0, len(positions), chunk):
        part = trace.events[positions[start : start + chunk]]
        epoch_ids = part["loader"].astype(np.int64) << 32 | part["epoch"]
        columns = (times[start : start + chunk], part["kind"], epoch_ids)
        yield from zip(itertools.count(start), *(each.tolist() for each in columns))
