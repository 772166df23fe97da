"""How the timeline shows what each thread does: the spans of tracing.trace.thread_activity, each with its look.

Legend
    span        worker 0, 12.1 to 14.9 ms, FETCHING, task 3     a thread does one thing for a while
    look        FETCH                                           how a span is drawn; several statuses share one
    batch       epoch << 32 | task                              which batch, in an array of int64; negative: none
    All times are in ns on the clock of the events.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np

from minidl.events import Kind
from tracing.trace.event_index import Iterator, Lane
from tracing.trace.intervals import spent
from tracing.trace.state import MainStatus, PinStatus, WorkerStatus
from tracing.trace.thread_activity import NUMBER, STATUSES, activity
from tracing.trace.trace import Trace
from tracing.views.queue_contents import batch_of

NO_BATCH = -1


class Look(enum.IntEnum):
    """How a span is drawn: several statuses that need not be told apart in a picture share one."""

    NOTHING = 0  # the thread does not run, or (main) is somewhere else
    WAITING = 1
    BUSY = 2  # at work on things other than a batch: takes and passes on messages, draws keys
    SETUP = 3  # starts, or shuts down
    FETCH = 4
    COLLATE = 5
    PIN = 6
    TRAINING = 7


STATUSES_OF: dict[Look, tuple[enum.Enum, ...]] = {
    Look.NOTHING: (
        WorkerStatus.STOPPED, WorkerStatus.DEAD, WorkerStatus.REAPED, PinStatus.NONE, PinStatus.ENDED,
        MainStatus.RAISED, MainStatus.ENDED, MainStatus.CLOSED,
    ),
    Look.WAITING: (
        WorkerStatus.WAITING, WorkerStatus.STREAM_ENDED, PinStatus.WAITING, MainStatus.RESUMING, MainStatus.WAITING,
    ),
    Look.BUSY: (
        WorkerStatus.IDLE, WorkerStatus.TAKING, WorkerStatus.SENDING, WorkerStatus.RESUMING, PinStatus.TAKING,
        PinStatus.PASSING_ON, MainStatus.DRAWING, MainStatus.DISPATCHING, MainStatus.TAKING, MainStatus.HANDLING,
    ),
    Look.SETUP: (WorkerStatus.STARTING, PinStatus.STARTING, MainStatus.STARTING, MainStatus.SHUTTING_DOWN),
    Look.FETCH: (WorkerStatus.FETCHING, MainStatus.FETCHING),
    Look.COLLATE: (WorkerStatus.COLLATING, MainStatus.COLLATING),
    Look.PIN: (PinStatus.PINNING, MainStatus.PINNING),
    Look.TRAINING: (MainStatus.TRAINING,),
}  # fmt: skip
LOOK = {status: look for look, statuses in STATUSES_OF.items() for status in statuses}
GONE = {Lane.MAIN: MainStatus.CLOSED, Lane.PIN: PinStatus.ENDED, Lane.WORKER: WorkerStatus.DEAD}
LOOK_OF = np.array([LOOK[status] for status in STATUSES])  # [number of a status] -> its look


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
        """Those that are seen between two times, cut at the edges; neighbours that look the same are merged."""
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

    def ended_at(self, time: int, status: enum.Enum) -> Spans:
        """The same, but what the thread does at this time ends then: the rest of that span has this status."""
        inside = np.flatnonzero((self.begin <= time) & (time < self.end))
        begin = np.insert(self.begin, inside + 1, time)
        end = np.insert(self.end, inside, time)
        gone = np.insert(self.status, inside + 1, NUMBER[status])
        return Spans(self.name, begin, end, gone, np.insert(self.batch, inside + 1, NO_BATCH))

    def shares(self, edges: np.ndarray) -> np.ndarray:
        """The share of each bin's time that has each look. edges: (n + 1,) ns. Returns (len(Look), n), 0 to 1."""
        of_looks = [self.look == look for look in Look]
        return np.diff([spent(self.begin[of_look], self.end[of_look], edges) for of_look in of_looks]) / np.diff(edges)


def spans(trace: Trace, iterators: list[Iterator], lane: Lane, worker: int, until: int) -> Spans:
    """What a thread did in these iterators of one loader; its last span lasts `until` (ns)."""
    did = activity(trace, iterators, lane, worker)
    did.end[-1:] = max(until, int(did.begin[-1])) if len(did.begin) else until
    name = {Lane.MAIN: "main", Lane.PIN: "pin thread", Lane.WORKER: f"worker {worker}"}[lane]
    found = Spans(name, did.begin, did.end, did.status, batch_of(trace.events["epoch"][did.first], did.task))
    for time in killed_at(trace, iterators, lane, worker):
        found = found.ended_at(time, GONE[lane])
    return found


def killed_at(trace: Trace, iterators: list[Iterator], lane: Lane, worker: int = -1) -> list[int]:
    """When the process of a thread was killed in a simulated run (ns): no event shows that."""
    killed = {int(pid): int(time) for pid, time in trace.about.get("killed", {}).items()}
    pids = {actor.pid for actor in trace.actors if actor.role == "main"}
    if lane is Lane.WORKER:
        numbers = [each.number for each in iterators]
        started = [trace.index.group(number, Kind.WORKER_STARTED, worker=worker).array for number in numbers]
        pids = {int(pid) for positions in started for pid in trace.events["value"][positions]}
    return sorted(killed[pid] for pid in pids & killed.keys())
