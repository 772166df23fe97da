"""Who waits for whom: from the thread that iterates, link by link, to the one that delivers nothing.

    main -> pin thread -> the feeder thread, or the worker, that has the batch -> its dataset, or its own loader -> ...

The state shows what each thread does. If it waits, another thread owes it something, and the chain goes on there. It
ends at a thread that waits for nothing a trace can show (a Cause), or where it has been before: a circle.
"""

from __future__ import annotations

from collections.abc import Callable

from minidl.events import RESUME, Kind, Queue
from tracing.analysis.hang.causes import Cause
from tracing.analysis.hang.threads import Link, ThreadId, Threads
from tracing.analysis.task_events import position_of
from tracing.trace.event_index import Lane
from tracing.trace.event_words import KINDS
from tracing.trace.process_liveness import ProcessStatus
from tracing.trace.state import (
    OUTSIDE,
    LoaderState,
    MainStatus,
    PinStatus,
    State,
    TaskStatus,
    WorkerState,
    WorkerStatus,
)
from tracing.trace.trace import Trace
from tracing.trace.words import QUEUE_NAMES

Next = ThreadId | Cause  # in the chain
Step = tuple[Link, Next]  # what a thread does, and the thread it waits for, or why it delivers nothing

MAINS_WORK = {  # what main does itself
    MainStatus.FETCHING: ("is in fetch of {}", Cause.DATASET),
    MainStatus.COLLATING: ("is in collate_fn with {}", Cause.COLLATE),
    MainStatus.PINNING: ("pins {}", Cause.PINNING),
    MainStatus.DRAWING: ("draws the keys of {}", Cause.SAMPLER),
}
BEFORE_TASKS: dict[int, tuple[str, Cause]] = {  # a worker's last event -> what it does
    Kind.WORKER_BEGIN: ("has started, and not seeded its random numbers yet", Cause.START),
    Kind.WORKER_SEEDED: ("gets the dataset ready", Cause.START),
    Kind.INIT_FN_BEGIN: ("is in worker_init_fn", Cause.INIT_FN),
    Kind.INIT_FN_END: ("gets the dataset ready", Cause.START),
}


class WaitChain(Threads):
    """The threads after event `state.k`, and which of them waits for which."""

    def __init__(
        self,
        trace: Trace,
        state: State,
        processes: dict[int, ProcessStatus],
        is_silent: Callable[[int], bool] = lambda pid: False,
        overdue: bool = False,
    ) -> None:
        """`processes` are those of which something is known; `is_silent`: whether one (its pid) gave no sign of life;
        `overdue`: main's wait should have ended by itself."""
        super().__init__(trace, state, processes)
        self.kind = trace.events["kind"]
        self.is_silent = is_silent
        self.overdue = overdue

    def chain(self, start: ThreadId) -> tuple[list[Link], Cause]:
        """From a thread to what keeps it waiting in the end."""
        links: list[Link] = []
        seen: set[ThreadId] = set()
        thread: Next = start
        while isinstance(thread, ThreadId):
            if thread in seen:
                return links, Cause.CIRCLE
            seen.add(thread)
            link, thread = self.step(thread)
            links.append(link)
        return links, thread

    def step(self, thread: ThreadId) -> Step:
        loader = self.loaders[thread.iterator]
        if thread.lane is Lane.WORKER:
            link, waits_for = self._worker(thread, loader, loader.workers[thread.worker])
        elif thread.lane is Lane.FEEDER:
            link, waits_for = self._feeder(thread, loader)
        else:
            link, waits_for = self._main(thread, loader) if thread.lane is Lane.MAIN else self._pin(thread, loader)
        return link, self.blocked_process(thread) or waits_for

    # ---- main

    def _main(self, thread: ThreadId, loader: LoaderState) -> Step:
        status, main = loader.main.status, loader.main
        if status in MAINS_WORK:
            words, cause = MAINS_WORK[status]
            task = loader.send_idx if status is MainStatus.DRAWING else loader.rcvd_idx
            link = self.link(thread, words.format(self.batch(loader, task)), since=main.since)
            return link, self.nested(self.pid(thread), main.since, thread.iterator) or cause
        if status is MainStatus.WAITING:
            return self._main_waits(thread, loader)
        if status is MainStatus.RESUMING:
            return self._main_resumes(thread, loader)
        if status is MainStatus.SHUTTING_DOWN:
            return self._main_shuts_down(thread, loader)
        if status in OUTSIDE:
            what = "is not in the loader"
            if status is MainStatus.TRAINING and (had := self.last(thread, Kind.YIELDED)) >= 0:
                what = f"has batch {self.task_of(had)} and has not asked for the next"
            ready = len(loader.reorder_buffer) + sum(map(len, [*loader.result_queues, loader.data_queue]))
            what += f" ({ready} finished batches wait for it)" if ready else ""
            return self.link(thread, what), Cause.TRAINING
        last = self.last(thread)
        if self.kind[last] == Kind.ARRIVED:
            return self._unpickles(thread, loader)
        if self.kind[last] == Kind.WORKER_STARTING:
            return self.link(thread, f"starts worker {self.worker_of(last)}"), Cause.LOADER
        return self.link(thread, f"is in the loader ({status.value})"), Cause.LOADER

    def _main_waits(self, thread: ThreadId, loader: LoaderState) -> Step:
        pins = loader.pin_thread.status is not PinStatus.NONE
        queue = Queue.DATA if pins else Queue.RESULT
        what = f"waits on {QUEUE_NAMES[queue]} for {self._wanted(loader)}"
        asked = self.last(thread, Kind.ASKED)  # since then others may have come, and have been stored
        since = self.time(asked) if asked > self.last(thread, Kind.YIELDED) else loader.main.since
        wakes = "a message of the pin thread" if pins else self._wakes(loader)
        link = self.link(thread, what, since=since, wakes=wakes)
        if self.overdue:
            return link, Cause.INTERRUPTED
        if not pins:
            return link, self._owed(thread, loader)
        return link, Cause.NOT_TAKEN if len(loader.data_queue) else ThreadId(Lane.PIN, thread.iterator)

    def _main_resumes(self, thread: ThreadId, loader: LoaderState) -> Step:
        """Persistent workers: a new epoch begins when all have acknowledged it."""
        begin = self.last(thread, Kind.EPOCH_BEGIN)
        acknowledged = [
            self.last_in_group(thread.iterator, Kind.RESUME_ACKNOWLEDGED, Queue.NONE, worker) > begin
            for worker in range(loader.num_workers)
        ]
        if all(acknowledged):
            return self.link(thread, "begins an epoch"), Cause.LOADER
        worker = acknowledged.index(False)
        what = f"waits for worker {worker} to acknowledge that epoch {loader.epoch} begins"
        link = self.link(thread, what, since=loader.main.since, wakes=f"a message of worker {worker}, or its end")
        return link, Cause.INTERRUPTED if self.overdue else ThreadId(Lane.WORKER, thread.iterator, worker)

    def _main_shuts_down(self, thread: ThreadId, loader: LoaderState) -> Step:
        last = self.last(thread)
        kind, worker = KINDS[int(self.kind[last])], self.worker_of(last)
        waits_for: Next = Cause.LOADER
        what = f"shuts the loader down (last step: {kind.name})"
        if kind in (Kind.JOIN_BEGIN, Kind.WORKER_TERMINATED, Kind.WORKER_KILLED):
            what = f"shuts the loader down, and waits for worker {worker} to exit"
            waits_for = ThreadId(Lane.WORKER, thread.iterator, worker)
        elif kind is Kind.PIN_STOPPING:
            what = "shuts the loader down, and waits for the pin thread to end"
            waits_for = ThreadId(Lane.PIN, thread.iterator)
        return self.link(thread, what, since=loader.main.since), waits_for

    # ---- pin thread

    def _pin(self, thread: ThreadId, loader: LoaderState) -> Step:
        pin = loader.pin_thread
        if pin.status is PinStatus.WAITING:
            what = f"waits on {QUEUE_NAMES[Queue.RESULT]}, where there is no whole message"
            return self.link(thread, what, since=pin.since, wakes=self._wakes(loader)), self._owed(thread, loader)
        if pin.status is PinStatus.PINNING:
            return self.link(thread, f"pins {self.batch(loader, pin.task)}", since=pin.since), Cause.PINNING
        if self.kind[self.last(thread)] == Kind.ARRIVED:
            return self._unpickles(thread, loader)
        ended = pin.status is PinStatus.ENDED
        what = "has ended" if ended else f"is in the loader ({pin.status.value})"
        return self.link(thread, what), Cause.ENDED if ended else Cause.LOADER

    # ---- messages

    def _owed(self, reader: ThreadId, loader: LoaderState) -> Next:
        """The thread that has the batch that a reader of the result queue waits for."""
        task = self._next_task(loader)
        if task < 0:
            return Cause.LOST
        worker = loader.task_info[task].worker
        if position_of(self.trace, loader.loader, loader.epoch, task, "result_put", self.state.k) < 0:
            return ThreadId(Lane.WORKER, reader.iterator, worker)
        return ThreadId(Lane.FEEDER, reader.iterator, worker, Queue.RESULT)

    def _next_task(self, loader: LoaderState) -> int:
        """The task whose batch is waited for: the first that is outstanding; -1 if there is none."""
        outstanding = [task for task, info in loader.task_info.items() if info.status is not TaskStatus.STORED]
        return outstanding[0] if outstanding else -1

    def _wanted(self, loader: LoaderState) -> str:
        task = self._next_task(loader)
        if loader.config.get("in_order", True) or task < 0:
            return self.batch(loader, task) if task >= 0 else "a batch"
        return f"any of {loader.tasks_outstanding} batches, the first of them {self.batch(loader, task)}"

    def _wakes(self, loader: LoaderState) -> str:
        task = self._next_task(loader)
        return f"a message of worker {loader.task_info[task].worker}, or its end" if task >= 0 else "a message"

    def _unpickles(self, thread: ThreadId, loader: LoaderState) -> Step:
        """Unpickling asks the process that sent a tensor for it: if that cannot answer, it is to blame."""
        worker = self.worker_of(self.last(thread))
        if worker < 0:
            return self.link(thread, "unpickles a message"), Cause.UNPICKLING
        if thread.lane is Lane.WORKER:
            return self.link(thread, "unpickles a message of main"), Cause.UNPICKLING
        sender = ThreadId(Lane.WORKER, thread.iterator, worker)
        link = self.link(thread, f"unpickles a message of {self.name(sender)}")
        blocked = self.blocked_process(sender) or self.is_silent(self.pid(sender))
        return link, sender if blocked else Cause.UNPICKLING

    def _feeder(self, thread: ThreadId, loader: LoaderState) -> Step:
        """A message that has been put is waited for. The first in the queue holds up all others."""
        name = f"{QUEUE_NAMES[Queue(thread.queue)]} {thread.worker}"
        queue = (loader.index_queues if thread.queue == Queue.INDEX else loader.result_queues)[thread.worker]
        message = queue.messages[0] if len(queue) else "nothing"
        what = f"batch {message}" if isinstance(message, int) else str(message)
        begun, sent, failed, put = (
            self.last_in_group(thread.iterator, kind, thread.queue, thread.worker)
            for kind in (Kind.SEND_BEGIN, Kind.SENT, Kind.SEND_FAILED, Kind.PUT)
        )
        if failed >= 0 and sent < 0 and begun < 0:  # torch's feeders record nothing else
            error = self.trace.text(failed)
            return self.link(thread, f"could not send batch {self.task_of(failed)}: {error}", failed), Cause.UNSENDABLE
        link = self.link(thread, f"has {what} to send on {name}", put)
        worker = ThreadId(Lane.WORKER, thread.iterator, thread.worker)
        in_user_code = loader.workers[thread.worker].status in (WorkerStatus.FETCHING, WorkerStatus.COLLATING)
        if thread.queue == Queue.RESULT and not queue.pipe and in_user_code and self.is_silent(self.pid(worker)):
            return link, worker  # which keeps Python's lock
        if sent < 0 and begun < 0 and self.last(thread, Kind.FEEDER_BEGIN) < 0:
            return link, Cause.UNSEEN
        if queue.pipe:  # those before the last one are in it
            last, size = queue.pipe[-1], int(self.trace.events["value"][sent])
            what = f"batch {last}" if isinstance(last, int) else str(last)
            link = self.link(thread, f"writes {what} ({size:,} bytes) to {name}", sent)
            return link, self._reader(thread, loader)
        if queue.pickling:
            return self.link(thread, f"pickles {what} for {name}", begun), Cause.PICKLING
        return link, Cause.LOADER

    def _reader(self, feeder: ThreadId, loader: LoaderState) -> Next:
        """The thread that should read what a feeder writes; if it waits, it has not got a whole message."""
        if feeder.queue == Queue.INDEX:
            reader = ThreadId(Lane.WORKER, feeder.iterator, feeder.worker)
            waits = loader.workers[feeder.worker].status is WorkerStatus.WAITING
        elif loader.pin_thread.status is not PinStatus.NONE:
            reader, waits = ThreadId(Lane.PIN, feeder.iterator), loader.pin_thread.status is PinStatus.WAITING
        else:
            reader = ThreadId(Lane.MAIN, feeder.iterator)
            waits = loader.main.status in (MainStatus.WAITING, MainStatus.RESUMING)
        return Cause.HALF_MESSAGE if waits else reader

    # ---- workers

    def _worker(self, thread: ThreadId, loader: LoaderState, worker: WorkerState) -> Step:
        last, status = self.last(thread), worker.status
        if last < 0:
            started = self.last_in_group(thread.iterator, Kind.WORKER_STARTED, Queue.NONE, worker.worker)
            what = "has been started and has not run its first line"
            return self.link(thread, what, started, worker.since), Cause.START
        if status in (WorkerStatus.FETCHING, WorkerStatus.COLLATING):
            collates = status is WorkerStatus.COLLATING
            what = f"is in {'collate_fn with' if collates else 'fetch of'} {self.batch(loader, worker.task)}"
            nested = self.nested(worker.pid, worker.since, thread.iterator)
            link = self.link(thread, what, since=worker.since)
            return link, nested or (Cause.COLLATE if collates else Cause.DATASET)
        if self.kind[last] == Kind.GOT and self.task_of(last) == RESUME:
            return self.link(thread, "gets the dataset ready for a new epoch"), Cause.START
        if status in (WorkerStatus.WAITING, WorkerStatus.IDLE, WorkerStatus.STREAM_ENDED):
            return self._worker_waits(thread, loader, worker)
        if int(self.kind[last]) in BEFORE_TASKS:
            words, cause = BEFORE_TASKS[int(self.kind[last])]
            return self.link(thread, words, since=worker.since), cause
        if self.kind[last] == Kind.ARRIVED:
            return self._unpickles(thread, loader)
        return self._worker_leaves(thread, loader, worker)

    def _worker_waits(self, thread: ThreadId, loader: LoaderState, worker: WorkerState) -> Step:
        queue, name = loader.index_queues[worker.worker], f"{QUEUE_NAMES[Queue.INDEX]} {worker.worker}"
        if len(queue):
            what = f"waits on {name}, where {len(queue)} message{'s' * (len(queue) > 1)} should come from"
            waits_for: Next = ThreadId(Lane.FEEDER, thread.iterator, worker.worker, Queue.INDEX)
        else:
            what, waits_for = f"waits on {name}, which is empty: nothing will be sent to it", Cause.LOST
        if worker.status is WorkerStatus.STREAM_ENDED:
            what = f"has no more samples, and {what}"
        return self.link(thread, what, since=worker.since, wakes="a message of main, or its end"), waits_for

    def _worker_leaves(self, thread: ThreadId, loader: LoaderState, worker: WorkerState) -> Step:
        status, code = worker.status, worker.exit_code
        if status in (WorkerStatus.DEAD, WorkerStatus.REAPED):
            died = self.last(ThreadId(Lane.MAIN, thread.iterator), Kind.WORKER_DIED, Kind.WORKER_JOINED)
            return self.link(thread, f"is dead: exit code {code}", died, worker.since), Cause.ENDED
        if status is WorkerStatus.STOPPED:
            feeder = ThreadId(Lane.FEEDER, thread.iterator, worker.worker, Queue.RESULT)
            sends = len(loader.result_queues[worker.worker]) and self.kind[self.last(thread)] == Kind.CLOSED
            what = "has left its loop" + (", and waits for its feeder thread to send the rest" if sends else "")
            return self.link(thread, what, since=worker.since), feeder if sends else Cause.ENDED
        return self.link(thread, f"is in the loader ({status.value})", since=worker.since), Cause.LOADER
