"""The chain of waits: from the thread that iterates, link by link, to the one that delivers nothing.

    main -> pin thread -> the feeder thread, or the worker, that has the batch -> its dataset

The state shows what each thread does. If it waits, another thread owes it something, and the chain goes on there. It
ends at a thread that waits for nothing a trace can show (a Cause), or where it has been before: a circle.

Legend
    thread     ThreadId(Lane.WORKER, 0, 1)    of iterator 0, for worker 1
    loader     the LoaderState of an iterator
"""

from __future__ import annotations

import textwrap
from typing import Any, NamedTuple

from minidl.events import RESUME, Kind, Queue
from tracing.analysis.hang.hang import Cause, Link
from tracing.trace.event_index import Lane
from tracing.trace.event_words import KINDS
from tracing.trace.process_liveness import ProcessStatus
from tracing.trace.state import OUTSIDE, LoaderState, MainStatus, PinStatus, State, WorkerStatus
from tracing.trace.task_events import keys_of, position_of
from tracing.trace.trace import Trace
from tracing.trace.words import QUEUE_NAMES


class ThreadId(NamedTuple):
    """A thread of an iterator."""

    lane: Lane
    iterator: int
    worker: int = -1
    queue: int = Queue.NONE  # that a feeder sends to


Next = ThreadId | Cause  # in the chain
Step = tuple[Link, Next]  # what a thread does, and the thread it waits for, or why it delivers nothing

BLOCKED = {ProcessStatus.STOPPED: Cause.STOPPED, ProcessStatus.GONE: Cause.DEAD}  # all threads of a process
MAKES = {  # the name of the status of main, a worker or the pin thread -> what it does itself
    "DRAWING": ("draws the keys of {}", Cause.CODE),
    "FETCHING": ("is in fetch of {}", Cause.CODE),
    "COLLATING": ("is in collate_fn with {}", Cause.CODE),
    "PINNING": ("pins {}", Cause.LOADER),
}
STARTS: dict[int, tuple[str, Cause]] = {  # the last event of a worker that starts -> what it does
    0: ("has been started and has not run its first line", Cause.START),  # no event yet
    Kind.WORKER_BEGIN: ("has started, and not seeded its random numbers yet", Cause.START),
    Kind.INIT_FN_BEGIN: ("is in worker_init_fn", Cause.INIT_FN),
}


class WaitChain:
    """The threads after event `state.k`, and which of them waits for which."""

    def __init__(self, trace: Trace, state: State, known: dict[int, ProcessStatus]) -> None:
        """`known`: the status of processes, where known."""
        self.trace, self.state, self.known = trace, state, known
        self.loaders = {each.iterator: each for each in state.loaders}

    def chain(self, start: ThreadId) -> tuple[list[Link], Cause]:
        """From a thread to what ultimately keeps it waiting."""
        look = {Lane.MAIN: self._main, Lane.WORKER: self._worker, Lane.PIN: self._pin, Lane.FEEDER: self._feeder}
        links: dict[ThreadId, Link] = {}
        thread: Next = start
        while isinstance(thread, ThreadId) and thread not in links:
            link, waits_for = look[thread.lane](thread, self.loaders[thread.iterator])
            links[thread] = link
            thread = BLOCKED.get(self.known.get(link.pid, ProcessStatus.LIVES)) or waits_for
        return list(links.values()), Cause.CIRCLE if isinstance(thread, ThreadId) else thread

    # ---- main

    def _main(self, thread: ThreadId, loader: LoaderState) -> Step:
        status, last = loader.main.status, self._last(thread)
        if status is MainStatus.WAITING:
            return self._main_waits(thread, loader)
        if status is MainStatus.RESUMING:
            return self._main_resumes(thread, loader)
        if status is MainStatus.SHUTTING_DOWN:
            return self._main_shuts_down(thread, KINDS[self._value(last, "kind")], self._value(last, "worker"))
        if status in OUTSIDE:
            what, had = "is not in the loader", self._last_of(thread.iterator, Kind.YIELDED)
            if status is MainStatus.TRAINING and had >= 0:
                what = f"has batch {self._value(had, 'task')} and has not asked for the next"
            ready = len(loader.reorder_buffer) + sum(map(len, [*loader.result_queues, loader.data_queue]))
            what += f" ({ready} finished batches wait for it)" if ready else ""
            return self._link(thread, what), Cause.TRAINING
        return self._works(thread, loader.send_idx if status is MainStatus.DRAWING else loader.rcvd_idx)

    def _main_waits(self, thread: ThreadId, loader: LoaderState) -> Step:
        pins = loader.pin_thread.status is not PinStatus.NONE
        task = self._next_task(loader)
        wanted = self._batch(loader, task) if task >= 0 else "a batch"
        if task >= 0 and not loader.config.get("in_order", True):
            wanted = f"any of {loader.tasks_outstanding} batches, the first of them {wanted}"
        link = self._link(thread, f"waits on {QUEUE_NAMES[Queue.DATA if pins else Queue.RESULT]} for {wanted}")
        asked = self._last_of(thread.iterator, Kind.ASKED)  # since then others may have come, and have been stored
        if asked > self._last_of(thread.iterator, Kind.YIELDED):
            link.since = self._value(asked, "time")
        return link, ThreadId(Lane.PIN, thread.iterator) if pins else self._owed(thread, loader)

    def _main_resumes(self, thread: ThreadId, loader: LoaderState) -> Step:
        """Persistent workers: a new epoch begins when all have acknowledged it."""
        begin = self._last_of(thread.iterator, Kind.EPOCH_BEGIN)
        for worker in range(loader.num_workers):
            if self._last_of(thread.iterator, Kind.RESUME_ACKNOWLEDGED, Queue.NONE, worker) < begin:
                what = f"waits for worker {worker} to acknowledge that epoch {loader.epoch} begins"
                return self._link(thread, what), ThreadId(Lane.WORKER, thread.iterator, worker)
        return self._works(thread)

    def _main_shuts_down(self, thread: ThreadId, kind: Kind, worker: int) -> Step:
        """`kind`: of main's last event."""
        if kind in (Kind.JOIN_BEGIN, Kind.WORKER_TERMINATED, Kind.WORKER_KILLED):
            what = f"shuts the loader down, and waits for worker {worker} to exit"
            return self._link(thread, what), ThreadId(Lane.WORKER, thread.iterator, worker)
        if kind is Kind.PIN_STOPPING:
            what = "shuts the loader down, and waits for the pin thread to end"
            return self._link(thread, what), ThreadId(Lane.PIN, thread.iterator)
        return self._link(thread, f"shuts the loader down (last step: {kind.name})"), Cause.LOADER

    def _works(self, thread: ThreadId, task: int = -1) -> Step:
        """It waits for no message."""
        status = self._state(thread).status
        if status.name in MAKES:
            words, cause = MAKES[status.name]
            return self._link(thread, words.format(self._batch(self.loaders[thread.iterator], task))), cause
        if self._value(self._last(thread), "kind") == Kind.ARRIVED:
            return self._link(thread, "unpickles a message"), Cause.LOADER
        return self._link(thread, f"is in the loader ({status.value})"), Cause.LOADER

    # ---- the pin thread, and the workers

    def _pin(self, thread: ThreadId, loader: LoaderState) -> Step:
        if loader.pin_thread.status is PinStatus.WAITING:
            what = f"waits on {QUEUE_NAMES[Queue.RESULT]}, where there is no whole message"
            return self._link(thread, what), self._owed(thread, loader)
        if loader.pin_thread.status is PinStatus.ENDED:
            return self._link(thread, "has ended"), Cause.ENDED
        return self._works(thread, loader.pin_thread.task)

    def _worker(self, thread: ThreadId, loader: LoaderState) -> Step:
        worker, last = loader.workers[thread.worker], self._last(thread)
        kind = self._value(last, "kind")
        if self._value(last, "task") == RESUME:
            return self._link(thread, "gets the dataset ready for a new epoch"), Cause.START
        if worker.status in (WorkerStatus.WAITING, WorkerStatus.IDLE, WorkerStatus.STREAM_ENDED):
            return self._worker_waits(thread, loader)
        if worker.status is WorkerStatus.STARTING:
            words, cause = STARTS.get(kind, ("gets the dataset ready", Cause.START))
            return self._link(thread, words), cause
        if worker.status in (WorkerStatus.DEAD, WorkerStatus.REAPED):
            kinds = (Kind.WORKER_DIED, Kind.WORKER_JOINED)
            seen = max(self._last_of(thread.iterator, each, Queue.NONE, thread.worker) for each in kinds)
            return self._link(thread, f"is dead: exit code {worker.exit_code}", seen), Cause.ENDED
        if worker.status is WorkerStatus.STOPPED:
            if len(loader.result_queues[thread.worker]) and kind == Kind.CLOSED:
                what = "has left its loop, and waits for its feeder thread to send the rest"
                return self._link(thread, what), thread._replace(lane=Lane.FEEDER, queue=Queue.RESULT)
            return self._link(thread, "has left its loop"), Cause.ENDED
        return self._works(thread, worker.task)

    def _worker_waits(self, thread: ThreadId, loader: LoaderState) -> Step:
        worker, queue = loader.workers[thread.worker], loader.index_queues[thread.worker]
        what = "has no more samples, and " * (worker.status is WorkerStatus.STREAM_ENDED)
        what += f"waits on {QUEUE_NAMES[Queue.INDEX]} {thread.worker}, "
        if not len(queue):
            return self._link(thread, what + "which is empty: nothing will be sent to it"), Cause.LOST
        feeder = thread._replace(lane=Lane.FEEDER, queue=Queue.INDEX)
        return self._link(thread, f"{what}where messages ({len(queue)}) should come from"), feeder

    # ---- messages

    def _next_task(self, loader: LoaderState) -> int:
        """The task whose batch is waited for: the first that is outstanding; -1 if there is none."""
        return next((task for task in loader.task_info if task not in loader.reorder_buffer), -1)

    def _owed(self, reader: ThreadId, loader: LoaderState) -> Next:
        """The thread that has the batch that a reader of the result queue waits for."""
        task = self._next_task(loader)
        if task < 0:
            return Cause.LOST
        worker = ThreadId(Lane.WORKER, reader.iterator, loader.task_info[task].worker)
        put = position_of(self.trace, loader.loader, loader.epoch, task, "result_put", self.state.k)
        return worker if put < 0 else worker._replace(lane=Lane.FEEDER, queue=Queue.RESULT)

    def _feeder(self, thread: ThreadId, loader: LoaderState) -> Step:
        """A message was put but has not arrived. The first in the queue holds up all others."""
        queue = (loader.index_queues if thread.queue == Queue.INDEX else loader.result_queues)[thread.worker]
        name = f"{QUEUE_NAMES[Queue(thread.queue)]} {thread.worker}"
        what = _message(queue.messages[0]) if len(queue) else "nothing"
        begun, sent, failed, put = (
            self._last_of(thread.iterator, kind, thread.queue, thread.worker)
            for kind in (Kind.SEND_BEGIN, Kind.SENT, Kind.SEND_FAILED, Kind.PUT)
        )
        if failed >= 0 and begun < 0:  # torch's feeders record nothing else
            what = f"could not send batch {self._value(failed, 'task')}: {self.trace.text(failed)}"
            return self._link(thread, what, event=failed), Cause.UNSENDABLE
        if queue.pipe:  # all but the last are in it already
            what = f"writes {_message(queue.pipe[-1])} ({self._value(sent, 'value'):,} bytes) to {name}"
            return self._link(thread, what, event=sent), self._reader(thread, loader)
        if queue.pickling:
            return self._link(thread, f"pickles {what} for {name}", event=begun), Cause.LOADER
        link = self._link(thread, f"has {what} to send on {name}", event=put)
        return link, Cause.UNSEEN if self._last(thread) < 0 else Cause.LOADER

    def _reader(self, feeder: ThreadId, loader: LoaderState) -> Next:
        """The thread that should read what a feeder writes; if it waits, it has not got a whole message."""
        if feeder.queue == Queue.INDEX:
            reader = feeder._replace(lane=Lane.WORKER, queue=Queue.NONE)
        else:
            pins = loader.pin_thread.status is not PinStatus.NONE
            reader = ThreadId(Lane.PIN if pins else Lane.MAIN, feeder.iterator)
        waits = (WorkerStatus.WAITING, PinStatus.WAITING, MainStatus.WAITING, MainStatus.RESUMING)
        return Cause.HALF_MESSAGE if self._state(reader).status in waits else reader

    # ---- processes and names

    def _state(self, thread: ThreadId) -> Any:
        """What the trace's state has of a thread that is no feeder: a MainState, a PinState or a WorkerState."""
        loader = self.loaders[thread.iterator]
        if thread.lane is Lane.WORKER:
            return loader.workers[thread.worker]
        return loader.pin_thread if thread.lane is Lane.PIN else loader.main

    def _pid(self, thread: ThreadId) -> int:
        """The pid of the thread's process; 0 if it is not known."""
        loader = self.loaders[thread.iterator]
        if thread.lane is Lane.WORKER or (thread.lane is Lane.FEEDER and thread.queue == Queue.RESULT):
            return loader.workers[thread.worker].pid
        return self.trace.actors[loader.main.actor].pid if loader.main.actor >= 0 else 0

    def _name(self, thread: ThreadId) -> str:
        """ "worker 1 (pid 123)"."""
        worker = f"worker {thread.worker}"
        feeder = f"the feeder thread of {'main' if thread.queue == Queue.INDEX else worker}"
        names = {Lane.MAIN: "main", Lane.PIN: "the pin thread", Lane.WORKER: worker, Lane.FEEDER: feeder}
        return f"{names[thread.lane]} (pid {self._pid(thread)})"

    def _batch(self, loader: LoaderState, task: int) -> str:
        """A batch with its keys: "batch 17, keys [68, 69]"."""
        keys = keys_of(self.trace, loader.loader, loader.epoch, task, self.state.k)
        shown = textwrap.shorten(str(keys), 40, placeholder=" ...]")
        return f"batch {task}" if keys is None else f"batch {task}, keys {shown}"

    # ---- events

    def _last(self, thread: ThreadId) -> int:
        """The position of the last event of a thread; -1 if there is none. A feeder is identified by the queue that it
        sends to."""
        if thread.lane is Lane.FEEDER:
            kinds = (Kind.FEEDER_BEGIN, Kind.SEND_BEGIN, Kind.SENT, Kind.SEND_FAILED)
            return max(self._last_of(thread.iterator, kind, thread.queue, thread.worker) for kind in kinds)
        return self.trace.index.lane(thread.iterator, thread.lane, thread.worker).last(self.state.k)

    def _last_of(self, iterator: int, kind: Kind, queue: int = Queue.NONE, worker: int = -1) -> int:
        """The position of the last such event, -1 if there was none."""
        return self.trace.index.group(iterator, kind, queue, worker).last(self.state.k)

    def _value(self, position: int, name: str) -> int:
        return int(self.trace.events[name][position]) if position >= 0 else 0

    def _link(self, thread: ThreadId, what: str, event: int = -1) -> Link:
        """`event` shows it: by default the thread's last one."""
        own = self._last(thread)
        event = event if event >= 0 else own
        since = self._value(event, "time") if thread.lane is Lane.FEEDER else self._state(thread).since
        name = self.trace.actors[self._value(own, "actor")].thread if own >= 0 else "MainThread"
        return Link(self._name(thread), what, since, event, self._pid(thread), name)


def _message(label: int | str) -> str:
    return f"batch {label}" if isinstance(label, int) else label
