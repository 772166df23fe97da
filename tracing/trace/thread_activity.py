"""What each thread does, from each of its events to the next: its status after an event is in tracing.trace.kinds;
all other rules are here and nowhere else.

`trace.state(k)`, main's time in the report, the timeline and the live view all read `activity()`, so they cannot
disagree.

Legend
    span     12.1 to 14.9 ms, FETCHING, task 3    from one event of a thread to its next, it does one thing
    status   WorkerStatus.FETCHING                what that is; in arrays a number, its index in STATUSES
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from minidl.events import Kind, Queue
from tracing.trace.event_index import Iterator, Lane
from tracing.trace.intervals import Intervals
from tracing.trace.kinds import TRAITS
from tracing.trace.positions import NOWHERE, Positions
from tracing.trace.state import MainStatus, PinStatus, WorkerStatus

if TYPE_CHECKING:
    from tracing.trace.trace import Trace

STATUSES: tuple[enum.Enum, ...] = (*MainStatus, *PinStatus, *WorkerStatus)
NUMBER = {status: number for number, status in enumerate(STATUSES)}


def _by_kind(lane: str) -> np.ndarray:
    """[kind] -> number of the status that an event gives a thread of this lane."""
    return np.array([NUMBER[getattr(TRAITS[kind], lane)] for kind in range(256)])


STATUS_AFTER = {Lane.MAIN: _by_kind("main"), Lane.PIN: _by_kind("pin"), Lane.WORKER: _by_kind("worker")}


# ---- spans


@dataclass
class Activity(Intervals):
    """What one thread does: each span begins where the one before it ends."""

    status: np.ndarray  # index into STATUSES
    task: np.ndarray  # the task it works on, -1 for none

    def is_any(self, *statuses: enum.Enum) -> np.ndarray:
        """Whether each span has one of these statuses."""
        return _any_of(*statuses)[self.status]


def _any_of(*statuses: enum.Enum) -> np.ndarray:
    """[number of a status] -> whether it is one of these."""
    return np.array([status in statuses for status in STATUSES])


def activity(
    trace: Trace, iterators: Sequence[Iterator], lane: Lane, worker: int = -1, first: int = 0, k: int | None = None
) -> Activity:
    """What a thread does in these iterators of one loader, from the span that contains event `first` to event `k`, by
    default the last of the trace. The cost is in proportion to the spans returned."""
    k = len(trace) - 1 if k is None else k
    parts = [_statuses(trace, each, lane, worker, first, k) for each in iterators]
    at, status = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(at, kind="stable")[max(0, int((at <= first).sum()) - 1) :]
    at, status = at[order], status[order]
    time, last = trace.events["time"], np.append(at, k)[1:]
    return Activity(time[at], time[last], at, last, status, _tasks(trace, lane, at))


def _tasks(trace: Trace, lane: Lane, at: np.ndarray) -> np.ndarray:
    """The task that a thread works on after each of its events: none once a worker has put the result, or sent it."""
    tasks = np.maximum(trace.events["task"][at], -1)
    if lane is Lane.WORKER:
        kinds = trace.events["kind"][at]
        tasks[(kinds == Kind.PUT) | (kinds == Kind.SENT)] = -1  # np.isin would take a fifth of the time of a state
    return tasks


_AFTER_THE_STREAM = _any_of(WorkerStatus.RESUMING, WorkerStatus.STOPPED, WorkerStatus.DEAD, WorkerStatus.REAPED)


def _statuses(
    trace: Trace, iterator: Iterator, lane: Lane, worker: int, first: int, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Where each span of one iterator begins (the position of an event), and its status. Both follow from events up
    to there."""
    index, number, events = trace.index, iterator.number, trace.events

    def group(kind: Kind, queue: Queue = Queue.NONE) -> Positions:
        return index.group(number, kind, queue, worker)

    parts = [index.lane(number, lane, worker)]
    if lane is Lane.WORKER:  # main's events mark when its process begins, and when it is gone
        parts = [group(Kind.WORKER_STARTING), *parts, group(Kind.WORKER_DIED), group(Kind.WORKER_JOINED)]
    pieces = [part.range(first, k) for part in parts if len(part)]
    at = np.concatenate(pieces or [NOWHERE.array])
    at = at[max(0, int(at.searchsorted(first, "right")) - 1) :] if len(pieces) > 1 else at
    status = STATUS_AFTER[lane][events["kind"][at]]
    if lane is Lane.MAIN and (len(iterator.epochs) > 1 or len(group(Kind.SHUTDOWN_BEGIN))):
        epoch, closed = group(Kind.EPOCH_BEGIN).last_of_each(at), group(Kind.SHUTDOWN_END).last_of_each(at)
        resumed = (epoch > closed) & (events["value"][epoch] >= 0)
        status[resumed & (group(Kind.KEYS_BEGIN).last_of_each(at) < epoch)] = NUMBER[MainStatus.RESUMING]
        status[group(Kind.SHUTDOWN_BEGIN).last_of_each(at) > closed] = NUMBER[MainStatus.SHUTTING_DOWN]
    elif lane is Lane.WORKER and len(stream_ends := group(Kind.STREAM_END)):
        # Once main knows that its stream has ended, a worker only takes messages that it will do nothing with.
        ended, reported = stream_ends.last_of_each(at), group(Kind.PUT, Queue.RESULT).last_of_each(at)
        over = (group(Kind.WORKER_RESUMED).last_of_each(at) < ended) & (ended < reported)
        status[over & ~_AFTER_THE_STREAM[status]] = NUMBER[WorkerStatus.STREAM_ENDED]
    return at, status


@dataclass
class Doing:
    """What a thread does at one moment."""

    status: enum.Enum
    task: int  # -1: none
    since: int  # when it took on this status (ns)
    event: int  # position of its last event


def doing(trace: Trace, iterator: Iterator, lane: Lane, worker: int, k: int) -> Doing | None:
    """What a thread does after event `k`; None if it has not begun. Looks back no further than it must."""
    own = trace.index.lane(iterator.number, lane, worker)
    count, look_back = own.count(k), 4
    while True:
        first = int(own.array[max(0, count - look_back)]) if count else 0
        at, status = _statuses(trace, iterator, lane, worker, first, k)
        changes = np.flatnonzero(status[:-1] != status[1:])
        if len(changes) or look_back >= count:
            break
        look_back *= 8
    if len(at) == 0:
        return None
    begin = at[changes[-1] + 1 if len(changes) else 0]
    task = int(_tasks(trace, lane, at[-1:])[0])
    return Doing(STATUSES[status[-1]], task, int(trace.events["time"][begin]), int(at[-1]))


# ---- main's time


class MainTime(enum.IntEnum):
    """What main's time goes to. The values index an array of sums."""

    OUTSIDE = 0  # before, between and after the epochs: not the loader's concern
    STARTUP = 1  # from the beginning of an epoch to its first batch, less DRAWING and LOADING
    TRAINING = 2  # not in the loader: the training step
    WAITING = 3  # waits for a message
    DRAWING = 4  # asks the sampler for keys
    TAKING = 5  # unpickles a batch
    LOADING = 6  # without workers: fetches, collates, pins itself
    HANDLING = 7  # the loader's own bookkeeping
    SHUTDOWN = 8
    ELSEWHERE = 9  # during an epoch of this loader: in other loaders and their steps, or before the first next()


_BY_STATUS = {
    MainStatus.TRAINING: MainTime.TRAINING,
    MainStatus.WAITING: MainTime.WAITING,
    MainStatus.DRAWING: MainTime.DRAWING,
    MainStatus.TAKING: MainTime.TAKING,
    MainStatus.FETCHING: MainTime.LOADING,
    MainStatus.COLLATING: MainTime.LOADING,
    MainStatus.PINNING: MainTime.LOADING,
    MainStatus.RAISED: MainTime.OUTSIDE,
}
# A status that begins a phase of the epoch. Until the next one, the phase decides: only in the phase TRAINING, from
# the first batch to the epoch's end, does each status count by itself.
_PHASE_FROM = {
    MainStatus.STARTING: MainTime.STARTUP,
    MainStatus.RESUMING: MainTime.STARTUP,
    MainStatus.TRAINING: MainTime.TRAINING,
    MainStatus.ENDED: MainTime.OUTSIDE,
    MainStatus.SHUTTING_DOWN: MainTime.SHUTDOWN,
    MainStatus.CLOSED: MainTime.OUTSIDE,
}
_TIME_OF = np.array([_BY_STATUS.get(status, MainTime.HANDLING) for status in MainStatus])
_PHASE_OF = np.array([_PHASE_FROM.get(status, -1) for status in MainStatus])


def main_time(trace: Trace, main: Activity) -> np.ndarray:
    """The MainTime of each of main's spans in one iterator, shape (n,), as if there were no other:
    tracing.trace.main_split has the others."""
    found = _TIME_OF[main.status]
    found[trace.events["kind"][main.first] == Kind.GOT] = MainTime.HANDLING  # what was unpickled is there
    phase = _phase(main.status, main.task)
    # Drawing keys, and loading without workers, count as such even while an epoch starts.
    early = (phase == MainTime.STARTUP) & ((found == MainTime.DRAWING) | (found == MainTime.LOADING))
    return np.where((phase == MainTime.TRAINING) | early, found, phase)


def _phase(status: np.ndarray, task: np.ndarray) -> np.ndarray:
    """The MainTime of the phase of the epoch that each span is in."""
    marks = _PHASE_OF[status]
    marks[(marks == MainTime.TRAINING) & (task < 0)] = -1  # primed, and no batch yielded yet
    since = np.maximum.accumulate(np.where(marks >= 0, np.arange(len(marks)), 0))
    return np.maximum(marks[since], MainTime.OUTSIDE)
