"""The threads of a trace after event k: their names, what each said last, what is known of their processes.

Legend
    seat    Seat(Lane.WORKER, 0, 1)    a thread: of which iterator, and for which worker
    at      the LoaderState of an iterator
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from minidl.events import Kind, Queue
from tracing.analysis.hang.causes import Cause
from tracing.trace.event_index import HOP, Lane
from tracing.trace.process_status import Process
from tracing.trace.state import LoaderState, MainStatus, State
from tracing.trace.trace import Trace


class Seat(NamedTuple):
    """A thread of an iterator."""

    lane: Lane
    iterator: int
    worker: int = -1
    queue: int = 0  # of a feeder


@dataclass(frozen=True)
class Link:
    """What a thread does, or waits for."""

    who: str  # "worker 1 (pid 123)"
    what: str  # "is in fetch of batch 17, keys [68, 69]"
    since: int  # ns
    event: int  # position of the event that shows it
    wakes: str  # what would wake it: "a message of worker 1, or its end"; "" if it waits for no message
    pid: int


class Seats:
    """All threads of the iterators that are alive in `state`."""

    def __init__(self, trace: Trace, state: State, processes: dict[int, Process]) -> None:
        self.trace, self.state, self.processes = trace, state, processes
        self.at = {each.iterator: each for each in state.loaders}
        self._actors = trace.actors

    # ---- processes

    def pid(self, seat: Seat) -> int:
        """Of the process that the thread belongs to; 0 if it is not known."""
        at = self.at[seat.iterator]
        if seat.lane is Lane.WORKER or (seat.lane is Lane.FEEDER and seat.queue == Queue.RESULT):
            return at.workers[seat.worker].pid
        return self._actors[at.main.actor].pid if at.main.actor >= 0 else 0

    def unfit(self, seat: Seat) -> Cause | None:
        """What keeps the whole process from doing anything, as far as is known."""
        return {Process.STOPPED: Cause.STOPPED, Process.GONE: Cause.DEAD}.get(
            self.processes.get(self.pid(seat), Process.LIVES)
        )

    # ---- names

    def owner(self, iterator: int) -> str:
        """The worker that iterates over it, if its loader is nested in a dataset: "worker 1"; else ""."""
        pid = self.pid(Seat(Lane.MAIN, iterator))
        for number, at in self.at.items():
            for worker in at.workers:
                if number != iterator and pid and worker.pid == pid:
                    return self._worker(number, worker.worker)
        return ""

    def _worker(self, iterator: int, worker: int) -> str:
        owner = self.owner(iterator)
        return f"worker {worker} of {owner}" if owner else f"worker {worker}"

    def name(self, seat: Seat, pid: bool = True) -> str:
        """The thread: "worker 1 (pid 123)"; for one of a nested loader "worker 0 of worker 1 (pid 123)"."""
        main, worker = self.owner(seat.iterator), self._worker(seat.iterator, seat.worker)
        if seat.lane is Lane.MAIN:
            name = main or "main"
        elif seat.lane is Lane.PIN:
            name = f"the pin thread of {main}" if main else "the pin thread"
        elif seat.lane is Lane.WORKER:
            name = worker
        else:
            name = f"the feeder thread of {worker if seat.queue == Queue.RESULT else main or 'main'}"
        return f"{name} (pid {self.pid(seat)})" if pid else name

    def batch(self, at: LoaderState, task: int) -> str:
        """A batch with its keys: "batch 17, keys [68, 69]"."""
        drawn = self.hop(at, "keys_drawn", task)
        keys = self.trace.text(drawn) if drawn >= 0 else None
        return f"batch {task}" if keys is None else f"batch {task}, keys {short(keys)}"

    # ---- events

    def hop(self, at: LoaderState, name: str, task: int) -> int:
        """The position of a hop of a task of the current epoch; -1 if it has not come so far."""
        epoch = self.trace.index.epochs.get(at.loader << 32 | at.epoch)
        if epoch is None or not 0 <= task < epoch.length:
            return -1
        position = int(epoch.table[HOP[name], task])
        return position if position <= self.state.k else -1

    def last(self, seat: Seat, *kinds: Kind) -> int:
        """The position of the last that a thread said, or said of these kinds; -1 if nothing. A feeder is known by
        the queue that it sends to."""
        if seat.lane is Lane.FEEDER:
            kinds = kinds or (Kind.FEEDER_BEGIN, Kind.SEND_BEGIN, Kind.SENT, Kind.SEND_FAILED)
            return max(self.group(seat.iterator, kind, seat.queue, seat.worker) for kind in kinds)
        said = self.trace.index.lane(seat.iterator, seat.lane, seat.worker).array
        said = said[: said.searchsorted(self.state.k, "right")]
        if kinds:
            said = said[np.isin(self.trace.events["kind"][said], kinds)]
        return int(said[-1]) if len(said) else -1

    def group(self, iterator: int, kind: Kind, queue: int, worker: int) -> int:
        """The position of the last such event, -1 if there was none."""
        return self.trace.index.group(iterator, kind, queue, worker).last(self.state.k)

    def time(self, position: int) -> int:
        return int(self.trace.events["time"][position]) if position >= 0 else 0

    def link(self, seat: Seat, what: str, event: int = -1, since: int = -1, wakes: str = "") -> Link:
        """`event` is by default the thread's last one, and `since` its time."""
        event = event if event >= 0 else self.last(seat)
        if seat.lane is Lane.MAIN and self.owner(seat.iterator):
            what = f"in a loader of its own {what}"
        return Link(self.name(seat), what, since if since >= 0 else self.time(event), event, wakes, self.pid(seat))

    def nested(self, pid: int, since: int, but: int) -> Seat | None:
        """The thread that iterates over a loader of its own in what this process has been doing since then (ns)."""
        for number, at in self.at.items():
            seat = Seat(Lane.MAIN, number)
            inside = at.main.status not in (MainStatus.ENDED, MainStatus.CLOSED)
            if number != but and inside and self.pid(seat) == pid and self.time(self.last(seat)) >= since:
                return seat
        return None


def short(keys: Any) -> str:
    """Keys in one line."""
    return textwrap.shorten(str(keys), 40, placeholder=" ...]")
