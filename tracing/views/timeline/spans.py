"""Who does what when: numbers for the timeline.

Nothing here decides what a thread's status is: it is looked up in the tables of tracing.trace.statuses, so that the
picture and `trace.state(k)` cannot disagree.

Legend
    span        worker 0, 12.1 to 14.9 ms, FETCHING, task 3     a thread does one thing for a while
    look        FETCH                                           how a span is drawn; several statuses share one
    batch       epoch << 32 | task                              which batch, in an array of int64; negative: none
    All times are in ns on the clock of the events.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from minidl.events import Kind, Queue
from tracing.trace.event_index import Iterator, Lane
from tracing.trace.intervals import spent
from tracing.trace.state import MainStatus, PinStatus, WorkerStatus
from tracing.trace.statuses import MAIN_STATUS, PIN_STATUS, WORKER_STATUS

if TYPE_CHECKING:
    from tracing.trace.trace import Trace

NO_BATCH = -1


class Look(enum.IntEnum):
    """How a span is drawn: several statuses that need not be told apart in a picture share one."""

    NOTHING = 0  # the thread does not run, or (main) is somewhere else
    WAITING = 1
    BUSY = 2  # at work on other things than a batch: takes and passes on messages, draws keys
    SETUP = 3  # start-up and shutdown
    FETCH = 4
    COLLATE = 5
    PIN = 6
    TRAINING = 7


LOOK: dict[enum.Enum, Look] = {
    WorkerStatus.STARTING: Look.SETUP,
    WorkerStatus.IDLE: Look.BUSY,
    WorkerStatus.WAITING: Look.WAITING,
    WorkerStatus.TAKING: Look.BUSY,
    WorkerStatus.FETCHING: Look.FETCH,
    WorkerStatus.COLLATING: Look.COLLATE,
    WorkerStatus.SENDING: Look.BUSY,
    WorkerStatus.RESUMING: Look.BUSY,
    WorkerStatus.STREAM_ENDED: Look.WAITING,
    WorkerStatus.STOPPED: Look.NOTHING,
    WorkerStatus.DEAD: Look.NOTHING,
    WorkerStatus.REAPED: Look.NOTHING,
    PinStatus.NONE: Look.NOTHING,
    PinStatus.STARTING: Look.SETUP,
    PinStatus.WAITING: Look.WAITING,
    PinStatus.TAKING: Look.BUSY,
    PinStatus.PINNING: Look.PIN,
    PinStatus.PASSING_ON: Look.BUSY,
    PinStatus.ENDED: Look.NOTHING,
    MainStatus.STARTING: Look.SETUP,
    MainStatus.RESUMING: Look.WAITING,
    MainStatus.TRAINING: Look.TRAINING,
    MainStatus.DRAWING: Look.BUSY,
    MainStatus.DISPATCHING: Look.BUSY,
    MainStatus.WAITING: Look.WAITING,
    MainStatus.TAKING: Look.BUSY,
    MainStatus.HANDLING: Look.BUSY,
    MainStatus.FETCHING: Look.FETCH,
    MainStatus.COLLATING: Look.COLLATE,
    MainStatus.PINNING: Look.PIN,
    MainStatus.RAISED: Look.NOTHING,
    MainStatus.ENDED: Look.NOTHING,
    MainStatus.SHUTTING_DOWN: Look.SETUP,
    MainStatus.CLOSED: Look.NOTHING,
}
STATUSES = tuple(LOOK)  # a span's status is an index into this
CODE = {status: code for code, status in enumerate(STATUSES)}
LOOK_OF = np.array([LOOK[status] for status in STATUSES])  # the look of each code

BY_LANE: dict[Lane, tuple[Mapping[int, enum.Enum], enum.Enum]] = {  # the status after an event, and after any other
    Lane.MAIN: (MAIN_STATUS, MainStatus.HANDLING),
    Lane.PIN: (PIN_STATUS, PinStatus.WAITING),
    Lane.WORKER: (WORKER_STATUS, WorkerStatus.IDLE),
}


# ---- spans


@dataclass
class Spans:
    """What one thread does: span i lasts from begin[i] to end[i], and the next one begins then."""

    name: str
    begin: np.ndarray
    end: np.ndarray
    status: np.ndarray  # index into STATUSES
    batch: np.ndarray  # the batch it works on, negative if none

    @property
    def look(self) -> np.ndarray:
        return LOOK_OF[self.status]

    def within(self, begin: int, end: int) -> Spans:
        """Those that are seen between two times, cut at the edges; neighbours that look the same made one."""
        seen = (self.end > begin) & (self.begin < end)
        first, last, status, batch = self.begin[seen], self.end[seen], self.status[seen], self.batch[seen]
        look = LOOK_OF[status]
        shown = np.where(look >= Look.FETCH, batch, NO_BATCH)  # the others do not take a batch's colour
        new = np.ones(len(first), bool)
        new[1:] = (look[1:] != look[:-1]) | (shown[1:] != shown[:-1])
        heads = np.flatnonzero(new)
        tails = np.append(heads[1:], len(first)) - 1 if len(heads) else heads
        cut = np.maximum(first[heads], begin), np.minimum(last[tails], end)
        return Spans(self.name, *cut, status[heads], shown[heads])

    def shares(self, edges: np.ndarray) -> np.ndarray:
        """The share of each bin's time that has each look. edges: (n + 1,) ns. Returns (len(Look), n), 0 to 1."""
        of_looks = [self.look == look for look in Look]
        return np.diff([spent(self.begin[of_look], self.end[of_look], edges) for of_look in of_looks]) / np.diff(edges)

    def share(self, status: enum.Enum, begin: int, end: int) -> float:
        """The share of the time between two (ns) that has this status, 0 to 1."""
        alike = self.status == CODE[status]
        first, last = spent(self.begin[alike], self.end[alike], np.array([begin, end]))
        return float(last - first) / (end - begin)


def spans(trace: Trace, iterators: list[Iterator], lane: Lane, worker: int, until: int) -> Spans:
    """What a thread did in these iterators of one loader; the last thing it did lasts `until` (ns)."""
    positions, statuses = zip(*(_statuses(trace, each, lane, worker) for each in iterators), strict=True)
    at, status = np.concatenate(positions), np.concatenate(statuses)
    order = np.argsort(at, kind="stable")
    events, status = trace.events[at[order]], status[order]
    begin = events["time"]
    end = np.append(begin[1:], max(until, int(begin[-1]))) if len(begin) else begin
    name = {Lane.MAIN: "main", Lane.PIN: "pin thread", Lane.WORKER: f"worker {worker}"}[lane]
    return Spans(name, begin, end, status, batch_of(events))


def batch_of(events: np.ndarray) -> np.ndarray:
    """The batch that each event (EVENT_DTYPE) concerns; a negative `task`, which is none, stays as it is."""
    return np.where(events["task"] >= 0, events["epoch"].astype(np.int64) << 32 | events["task"], events["task"])


def _statuses(trace: Trace, iterator: Iterator, lane: Lane, worker: int) -> tuple[np.ndarray, np.ndarray]:
    """(positions of the events after which a thread does something, what it does then); see tracing.trace.state_at."""
    index = trace.index
    at = index.lane(iterator.number, lane, worker).array
    table, otherwise = BY_LANE[lane]
    codes = np.full(256, CODE[otherwise])
    codes[list(table)] = [CODE[status] for status in table.values()]
    status = codes[trace.events["kind"][at]]

    def last(kind: Kind) -> int:
        return index.group(iterator.number, kind, Queue.NONE, worker).last(len(trace))

    if lane is Lane.MAIN:
        for first, end in _resumes(trace, iterator):
            status[(at >= first) & (at < end)] = CODE[MainStatus.RESUMING]
        if last(Kind.SHUTDOWN_BEGIN) >= 0:
            shutdown = (at >= last(Kind.SHUTDOWN_BEGIN)) & (at < _closed(trace, iterator))
            status[shutdown] = CODE[MainStatus.SHUTTING_DOWN]
    elif lane is Lane.WORKER:
        for first, end in _streams_ended(trace, iterator, worker):
            status[(at >= first) & (at < end)] = CODE[WorkerStatus.STREAM_ENDED]
        # Its beginning and its end are told by main.
        for kind, final in (Kind.WORKER_DIED, WorkerStatus.DEAD), (Kind.WORKER_JOINED, WorkerStatus.REAPED):
            if last(kind) >= 0:
                before = at < last(kind)
                at = np.append(at[before], last(kind))
                status = np.append(status[before], CODE[final])
        if last(Kind.WORKER_STARTING) >= 0:
            at = np.append(last(Kind.WORKER_STARTING), at)
            status = np.append(CODE[WorkerStatus.STARTING], status)
    return at, status


def _closed(trace: Trace, iterator: Iterator) -> int:
    """The position of its SHUTDOWN_END; the trace's length if there is none."""
    closed = trace.index.group(iterator.number, Kind.SHUTDOWN_END).last(len(trace))
    return closed if closed >= 0 else len(trace)


def _resumes(trace: Trace, iterator: Iterator) -> Iterable[tuple[int, int]]:
    """From the begin of each epoch that a persistent iterator goes on with, to the first task of it."""
    drawn = trace.index.group(iterator.number, Kind.KEYS_BEGIN).array
    for begin in trace.index.group(iterator.number, Kind.EPOCH_BEGIN).array:
        if trace.events["value"][begin] >= 0:
            after = drawn[drawn > begin]
            yield begin, after[0] if len(after) else len(trace)


def _streams_ended(trace: Trace, iterator: Iterator, worker: int) -> Iterable[tuple[int, int]]:
    """From where a worker has told of its stream's end, to where it resumes or leaves its loop."""
    index, number = trace.index, iterator.number
    told = index.group(number, Kind.PUT, Queue.RESULT, worker).array
    leaves = np.sort(
        np.concatenate(
            [index.group(number, kind, Queue.NONE, worker).array for kind in (Kind.WORKER_RESUMED, Kind.WORKER_END)]
        )
    )
    for ended in index.group(number, Kind.STREAM_END, Queue.NONE, worker).array:
        first, end = told[told > ended], leaves[leaves > ended]
        yield first[0] if len(first) else len(trace), end[0] if len(end) else len(trace)
