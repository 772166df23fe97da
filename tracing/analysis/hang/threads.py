"""The threads of a trace after event k: their names, the last event of each, what is known of their processes.

Legend
    thread     ThreadId(Lane.WORKER, 0, 1)    of iterator 0, for worker 1
    loader     the LoaderState of an iterator
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from minidl.events import Kind, Queue
from tracing.analysis.hang.causes import Cause
from tracing.analysis.task_events import keys_of
from tracing.trace.event_index import Lane
from tracing.trace.process_liveness import ProcessStatus
from tracing.trace.stacks import Line
from tracing.trace.state import LoaderState, MainStatus, State
from tracing.trace.trace import Trace


class ThreadId(NamedTuple):
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
    thread: str = ""  # its name in Python; "" if it is not known
    line: Line | None = None  # of the program, if that was recorded: where it is ...
    also: tuple[int, ...] = ()  # ... and other lines of the same function, if it moves between them


class Threads:
    """All threads of the iterators that are alive in `state`."""

    def __init__(self, trace: Trace, state: State, processes: dict[int, ProcessStatus]) -> None:
        self.trace, self.state, self.processes = trace, state, processes
        self.loaders = {each.iterator: each for each in state.loaders}
        self._actors = trace.actors

    # ---- processes

    def pid(self, thread: ThreadId) -> int:
        """The pid of the thread's process; 0 if it is not known."""
        loader = self.loaders[thread.iterator]
        if thread.lane is Lane.WORKER or (thread.lane is Lane.FEEDER and thread.queue == Queue.RESULT):
            return loader.workers[thread.worker].pid
        return self._actors[loader.main.actor].pid if loader.main.actor >= 0 else 0

    def blocked_process(self, thread: ThreadId) -> Cause | None:
        """What keeps its whole process from doing anything, as far as is known."""
        how = self.processes.get(self.pid(thread))
        return (
            {ProcessStatus.STOPPED: Cause.STOPPED, ProcessStatus.GONE: Cause.DEAD}.get(how) if how is not None else None
        )

    # ---- names

    def owner(self, iterator: int) -> str:
        """The worker that iterates over it, if its loader is nested in a dataset: "worker 1"; otherwise ""."""
        pid = self.pid(ThreadId(Lane.MAIN, iterator))
        for number, loader in self.loaders.items():
            for worker in loader.workers:
                if number != iterator and pid and worker.pid == pid:
                    return self._worker_name(number, worker.worker)
        return ""

    def _worker_name(self, iterator: int, worker: int) -> str:
        owner = self.owner(iterator)
        return f"worker {worker} of {owner}" if owner else f"worker {worker}"

    def name(self, thread: ThreadId) -> str:
        """The thread: "worker 1 (pid 123)"; in a nested loader "worker 0 of worker 1 (pid 123)"."""
        main, worker = self.owner(thread.iterator), self._worker_name(thread.iterator, thread.worker)
        if thread.lane is Lane.MAIN:
            name = main or "main"
        elif thread.lane is Lane.PIN:
            name = f"the pin thread of {main}" if main else "the pin thread"
        elif thread.lane is Lane.WORKER:
            name = worker
        else:
            name = f"the feeder thread of {worker if thread.queue == Queue.RESULT else main or 'main'}"
        return f"{name} (pid {self.pid(thread)})"

    def batch(self, loader: LoaderState, task: int) -> str:
        """A batch with its keys: "batch 17, keys [68, 69]"."""
        keys = keys_of(self.trace, loader.loader, loader.epoch, task, self.state.k)
        shown = textwrap.shorten(str(keys), 40, placeholder=" ...]")
        return f"batch {task}" if keys is None else f"batch {task}, keys {shown}"

    # ---- events

    def last(self, thread: ThreadId, *kinds: Kind) -> int:
        """The position of the last event of a thread, or the last of these kinds; -1 if there is none. A feeder is
        identified by the queue that it sends to."""
        if thread.lane is Lane.FEEDER:
            kinds = kinds or (Kind.FEEDER_BEGIN, Kind.SEND_BEGIN, Kind.SENT, Kind.SEND_FAILED)
            return max(self.last_in_group(thread.iterator, kind, thread.queue, thread.worker) for kind in kinds)
        lane = self.trace.index.lane(thread.iterator, thread.lane, thread.worker)
        if not kinds:
            return lane.last(self.state.k)
        events = lane.array[: lane.count(self.state.k)]
        events = events[np.isin(self.trace.events["kind"][events], kinds)]
        return int(events[-1]) if len(events) else -1

    def last_in_group(self, iterator: int, kind: Kind, queue: int, worker: int) -> int:
        """The position of the last such event, -1 if there was none."""
        return self.trace.index.group(iterator, kind, queue, worker).last(self.state.k)

    def time(self, position: int) -> int:
        return int(self.trace.events["time"][position]) if position >= 0 else 0

    def task_of(self, position: int) -> int:
        return int(self.trace.events["task"][position])

    def worker_of(self, position: int) -> int:
        """The worker that an event concerns."""
        return int(self.trace.events["worker"][position])

    def link(self, thread: ThreadId, what: str, event: int = -1, since: int = -1, wakes: str = "") -> Link:
        """`event` is by default the thread's last one, and `since` its time."""
        event = event if event >= 0 else self.last(thread)
        if thread.lane is Lane.MAIN and self.owner(thread.iterator):
            what = f"in a loader of its own {what}"
        since = since if since >= 0 else self.time(event)
        own = self.last(thread)
        name = self._actors[int(self.trace.events["actor"][own])].thread if own >= 0 else "MainThread"
        return Link(self.name(thread), what, since, event, wakes, self.pid(thread), name)

    def nested(self, pid: int, since: int, outer: int) -> ThreadId | None:
        """The thread of this process that iterates over a loader other than `outer`, and has done something since then
        (ns)."""
        for number, loader in self.loaders.items():
            thread = ThreadId(Lane.MAIN, number)
            inside = loader.main.status not in (MainStatus.ENDED, MainStatus.CLOSED)
            if number != outer and inside and self.pid(thread) == pid and self.time(self.last(thread)) >= since:
                return thread
        return None
