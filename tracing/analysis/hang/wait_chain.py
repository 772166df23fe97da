"""Who waits for whom: from the thread that iterates, link by link, to what does not come.

    main -> pin thread -> the feeder thread, or the worker, that has the batch -> its dataset, or its own loader -> ...

The state says what each thread does. What it waits for another thread owes it, and so the way goes on there. It ends
at somebody who waits for nothing that a trace can show (a Cause), or where it has been before: a circle.
"""

from __future__ import annotations

from minidl.events import RESUME, Kind, Queue
from tracing.analysis.hang.causes import Cause
from tracing.analysis.hang.threads import Link, Seat, Seats
from tracing.trace.event_index import Lane
from tracing.trace.event_words import KINDS
from tracing.trace.process_status import Process
from tracing.trace.state import LoaderState, MainStatus, PinStatus, State, TaskStatus, WorkerState, WorkerStatus
from tracing.trace.trace import Trace
from tracing.trace.words import QUEUE_NAMES

Step = tuple[Link, "Seat | Cause"]  # what a thread does, and who owes it what it waits for

MAINS_WORK = {  # what main does itself
    MainStatus.FETCHING: ("is in fetch of {}", Cause.DATASET),
    MainStatus.COLLATING: ("is in collate_fn with {}", Cause.COLLATE),
    MainStatus.PINNING: ("pins {}", Cause.PINNING),
    MainStatus.DRAWING: ("draws the keys of {}", Cause.SAMPLER),
}
BEFORE_TASKS: dict[int, tuple[str, Cause]] = {  # a worker's last word -> what it does
    Kind.WORKER_BEGIN: ("runs, and has not seeded its random numbers yet", Cause.START),
    Kind.WORKER_SEEDED: ("gets the dataset ready", Cause.START),
    Kind.INIT_FN_BEGIN: ("is in worker_init_fn", Cause.INIT_FN),
    Kind.INIT_FN_END: ("gets the dataset ready", Cause.START),
}


class Waits:
    """The threads after event `state.k`, and who of them waits for whom."""

    def __init__(self, trace: Trace, state: State, processes: dict[int, Process], overdue: bool = False) -> None:
        """`processes` are those of which something is known; `overdue`: main's wait should have ended by itself."""
        self.seats = Seats(trace, state, processes)
        self.kind = trace.events["kind"]
        self.overdue = overdue

    def chain(self, start: Seat) -> tuple[list[Link], Cause]:
        """From a thread to what keeps it waiting in the end."""
        links: list[Link] = []
        seen: set[Seat] = set()
        seat: Seat | Cause = start
        while isinstance(seat, Seat):
            if seat in seen:
                return links, Cause.CIRCLE
            seen.add(seat)
            link, seat = self.step(seat)
            links.append(link)
        return links, seat

    def step(self, seat: Seat) -> Step:
        at = self.seats.at[seat.iterator]
        if seat.lane is Lane.WORKER:
            link, next_one = self._worker(seat, at, at.workers[seat.worker])
        elif seat.lane is Lane.FEEDER:
            link, next_one = self._feeder(seat, at)
        else:
            link, next_one = self._main(seat, at) if seat.lane is Lane.MAIN else self._pin(seat, at)
        return link, self.seats.unfit(seat) or next_one

    # ---- main

    def _main(self, seat: Seat, at: LoaderState) -> Step:
        status, main = at.main.status, at.main
        if status in MAINS_WORK:
            words, cause = MAINS_WORK[status]
            task = at.send_idx if status is MainStatus.DRAWING else at.rcvd_idx
            link = self.seats.link(seat, words.format(self.seats.batch(at, task)), since=main.since)
            return link, self.seats.nested(self.seats.pid(seat), main.since, seat.iterator) or cause
        if status is MainStatus.WAITING:
            return self._main_waits(seat, at)
        if status is MainStatus.RESUMING:
            return self._main_resumes(seat, at)
        if status is MainStatus.SHUTTING_DOWN:
            return self._main_shuts_down(seat, at)
        if status in (MainStatus.TRAINING, MainStatus.RAISED, MainStatus.ENDED):
            had = self.seats.last(seat, Kind.YIELDED)
            what = "is not in the loader" if had < 0 else f"has batch {self._task(had)} and has not asked for the next"
            ready = len(at.reorder_buffer) + sum(map(len, [*at.result_queues, at.data_queue]))
            what += f" ({ready} finished batches wait for it)" if ready else ""
            return self.seats.link(seat, what), Cause.TRAINING
        last = self.seats.last(seat)
        if self.kind[last] == Kind.ARRIVED:
            return self._unpickles(seat, at)
        if self.kind[last] == Kind.WORKER_STARTING:
            return self.seats.link(seat, f"starts worker {self._of(last)}"), Cause.LOADER
        return self.seats.link(seat, f"is in the loader ({status.value})"), Cause.LOADER

    def _main_waits(self, seat: Seat, at: LoaderState) -> Step:
        pins = at.pin_thread.status is not PinStatus.NONE
        queue = Queue.DATA if pins else Queue.RESULT
        what = f"waits on {QUEUE_NAMES[queue]} for {self._wanted(at)}"
        asked = self.seats.last(seat, Kind.ASKED)  # since then others may have come, and have been stored
        since = self.seats.time(asked) if asked > self.seats.last(seat, Kind.YIELDED) else at.main.since
        if pins:
            link = self.seats.link(seat, what, since=since, wakes="a message of the pin thread")
            next_one: Seat | Cause = Cause.NOT_TAKEN if len(at.data_queue) else Seat(Lane.PIN, seat.iterator)
        else:
            next_one = self._owed(seat, at)
            link = self.seats.link(seat, what, since=since, wakes=self._wakes(at))
        return link, Cause.INTERRUPTED if self.overdue else next_one

    def _main_resumes(self, seat: Seat, at: LoaderState) -> Step:
        """Persistent workers: a new epoch begins when all have acknowledged it."""
        begin = self.seats.last(seat, Kind.EPOCH_BEGIN)
        acknowledged = [
            self.seats.group(seat.iterator, Kind.RESUME_ACKNOWLEDGED, Queue.NONE, worker) > begin
            for worker in range(at.num_workers)
        ]
        if all(acknowledged):
            return self.seats.link(seat, "begins an epoch"), Cause.LOADER
        worker = acknowledged.index(False)
        what = f"waits for worker {worker} to acknowledge that epoch {at.epoch} begins"
        link = self.seats.link(seat, what, since=at.main.since, wakes=f"a message of worker {worker}, or its end")
        return link, Cause.INTERRUPTED if self.overdue else Seat(Lane.WORKER, seat.iterator, worker)

    def _main_shuts_down(self, seat: Seat, at: LoaderState) -> Step:
        last = self.seats.last(seat)
        kind, worker = KINDS[int(self.kind[last])], self._of(last)
        next_one: Seat | Cause = Cause.LOADER
        what = f"shuts the loader down (last step: {kind.name})"
        if kind in (Kind.JOIN_BEGIN, Kind.WORKER_TERMINATED, Kind.WORKER_KILLED):
            what = f"shuts the loader down, and waits for worker {worker} to exit"
            next_one = Seat(Lane.WORKER, seat.iterator, worker)
        elif kind is Kind.PIN_STOPPING:
            what, next_one = "shuts the loader down, and waits for the pin thread to end", Seat(Lane.PIN, seat.iterator)
        return self.seats.link(seat, what, since=at.main.since), next_one

    # ---- pin thread

    def _pin(self, seat: Seat, at: LoaderState) -> Step:
        pin = at.pin_thread
        if pin.status is PinStatus.WAITING:
            what = f"waits on {QUEUE_NAMES[Queue.RESULT]}, where no whole message is"
            return self.seats.link(seat, what, since=pin.since, wakes=self._wakes(at)), self._owed(seat, at)
        if pin.status is PinStatus.PINNING:
            return self.seats.link(seat, f"pins {self.seats.batch(at, pin.task)}", since=pin.since), Cause.PINNING
        if self.kind[self.seats.last(seat)] == Kind.ARRIVED:
            return self._unpickles(seat, at)
        ended = pin.status is PinStatus.ENDED
        what = "has ended" if ended else f"is in the loader ({pin.status.value})"
        return self.seats.link(seat, what), Cause.ENDED if ended else Cause.LOADER

    # ---- messages

    def _owed(self, reader: Seat, at: LoaderState) -> Seat | Cause:
        """Who has the batch that a reader of the result queue waits for."""
        task = self._next_task(at)
        if task < 0:
            return Cause.LOST
        worker = at.task_info[task].worker
        put = self.seats.hop(at, "result_put", task)
        if put < 0:
            return Seat(Lane.WORKER, reader.iterator, worker)
        return Seat(Lane.FEEDER, reader.iterator, worker, Queue.RESULT)

    def _next_task(self, at: LoaderState) -> int:
        """The task whose batch is waited for: in order the next, else the first that is outstanding. -1: there is
        none."""
        outstanding = [task for task, info in at.task_info.items() if info.status is not TaskStatus.STORED]
        return outstanding[0] if outstanding else -1

    def _wanted(self, at: LoaderState) -> str:
        task = self._next_task(at)
        if at.config.get("in_order", True) or task < 0:
            return self.seats.batch(at, task) if task >= 0 else "a batch"
        return f"any of {at.tasks_outstanding} batches, the first of them {self.seats.batch(at, task)}"

    def _wakes(self, at: LoaderState) -> str:
        task = self._next_task(at)
        return f"a message of worker {at.task_info[task].worker}, or its end" if task >= 0 else "a message"

    def _unpickles(self, seat: Seat, at: LoaderState) -> Step:
        """A tensor is asked for from the process that sent it: if that can't answer, it is to blame."""
        worker = self._of(self.seats.last(seat))
        if worker < 0:
            return self.seats.link(seat, "unpickles a message"), Cause.UNPICKLING
        sender = Seat(Lane.WORKER, seat.iterator, worker)
        unfit = seat.lane is not Lane.WORKER and self.seats.unfit(sender)
        link = self.seats.link(
            seat, f"unpickles a message of {'main' if seat.lane is Lane.WORKER else self.seats.name(sender)}"
        )
        return link, sender if unfit else Cause.UNPICKLING

    def _feeder(self, seat: Seat, at: LoaderState) -> Step:
        """Somebody waits for a message that has been put. The first in the queue keeps up all others."""
        name = f"{QUEUE_NAMES[Queue(seat.queue)]} {seat.worker}"
        queue = (at.index_queues if seat.queue == Queue.INDEX else at.result_queues)[seat.worker]
        message = queue.messages[0] if len(queue) else "nothing"
        what = f"batch {message}" if isinstance(message, int) else str(message)
        begun, sent, failed, put = (
            self.seats.group(seat.iterator, kind, seat.queue, seat.worker)
            for kind in (Kind.SEND_BEGIN, Kind.SENT, Kind.SEND_FAILED, Kind.PUT)
        )
        if failed >= 0 and sent < 0 and begun < 0:  # torch's feeders are heard of only then
            error = self.seats.trace.text(failed)
            return self.seats.link(
                seat, f"could not send batch {self._task(failed)}: {error}", failed
            ), Cause.UNSENDABLE
        if sent < 0 and begun < 0 and self.seats.last(seat, Kind.FEEDER_BEGIN) < 0:
            return self.seats.link(seat, f"has {what} to send on {name}", put), Cause.UNSEEN
        if queue.pipe:  # those before the last one are in it
            last, size = queue.pipe[-1], int(self.seats.trace.events["value"][sent])
            what = f"batch {last}" if isinstance(last, int) else str(last)
            link = self.seats.link(seat, f"writes {what} ({size:,} bytes) to {name}", sent)
            return link, self._reader(seat, at)
        if queue.pickling:
            return self.seats.link(seat, f"pickles {what} for {name}", begun), Cause.PICKLING
        return self.seats.link(seat, f"has {what} to send on {name}", put), Cause.LOADER

    def _reader(self, feeder: Seat, at: LoaderState) -> Seat | Cause:
        """Who should read what a feeder writes. One that waits for it has not got the whole."""
        if feeder.queue == Queue.INDEX:
            reader, waits = Seat(Lane.WORKER, feeder.iterator, feeder.worker), WorkerStatus.WAITING
            return Cause.HALF_MESSAGE if at.workers[feeder.worker].status is waits else reader
        if at.pin_thread.status is not PinStatus.NONE:
            waiting = at.pin_thread.status is PinStatus.WAITING
            return Cause.HALF_MESSAGE if waiting else Seat(Lane.PIN, feeder.iterator)
        waiting = at.main.status in (MainStatus.WAITING, MainStatus.RESUMING)
        return Cause.HALF_MESSAGE if waiting else Seat(Lane.MAIN, feeder.iterator)

    # ---- workers

    def _worker(self, seat: Seat, at: LoaderState, worker: WorkerState) -> Step:
        last, status = self.seats.last(seat), worker.status
        if last < 0:
            started = self.seats.group(seat.iterator, Kind.WORKER_STARTED, Queue.NONE, worker.worker)
            what = "has been started and has not run its first line"
            return self.seats.link(seat, what, started, worker.since), Cause.START
        if status in (WorkerStatus.FETCHING, WorkerStatus.COLLATING):
            collates = status is WorkerStatus.COLLATING
            what = f"is in {'collate_fn with' if collates else 'fetch of'} {self.seats.batch(at, worker.task)}"
            nested = self.seats.nested(worker.pid, worker.since, seat.iterator)
            link = self.seats.link(seat, what, since=worker.since)
            return link, nested or (Cause.COLLATE if collates else Cause.DATASET)
        if self.kind[last] == Kind.GOT and self._task(last) == RESUME:
            return self.seats.link(seat, "gets the dataset ready for a new epoch"), Cause.START
        if status in (WorkerStatus.WAITING, WorkerStatus.IDLE, WorkerStatus.STREAM_ENDED):
            return self._worker_waits(seat, at, worker)
        if int(self.kind[last]) in BEFORE_TASKS:
            words, cause = BEFORE_TASKS[int(self.kind[last])]
            return self.seats.link(seat, words, since=worker.since), cause
        if self.kind[last] == Kind.ARRIVED:
            return self._unpickles(seat, at)
        return self._worker_leaves(seat, at, worker)

    def _worker_waits(self, seat: Seat, at: LoaderState, worker: WorkerState) -> Step:
        queue, name = at.index_queues[worker.worker], f"{QUEUE_NAMES[Queue.INDEX]} {worker.worker}"
        if len(queue):
            what = f"waits on {name}, where {len(queue)} message{'s' * (len(queue) > 1)} should come from"
            next_one: Seat | Cause = Seat(Lane.FEEDER, seat.iterator, worker.worker, Queue.INDEX)
        else:
            what, next_one = f"waits on {name}, which is empty: nobody owes it anything", Cause.LOST
        if worker.status is WorkerStatus.STREAM_ENDED:
            what = f"has no more samples, and {what}"
        return self.seats.link(seat, what, since=worker.since, wakes="a message of main, or its end"), next_one

    def _worker_leaves(self, seat: Seat, at: LoaderState, worker: WorkerState) -> Step:
        status, code = worker.status, worker.exit_code
        if status in (WorkerStatus.DEAD, WorkerStatus.REAPED):
            died = self.seats.last(Seat(Lane.MAIN, seat.iterator), Kind.WORKER_DIED, Kind.WORKER_JOINED)
            return self.seats.link(seat, f"is dead: exit code {code}", died, worker.since), Cause.ENDED
        if status is WorkerStatus.STOPPED:
            feeder = Seat(Lane.FEEDER, seat.iterator, worker.worker, Queue.RESULT)
            sends = len(at.result_queues[worker.worker]) and self.kind[self.seats.last(seat)] == Kind.CLOSED
            what = "has left its loop" + (", and waits for its feeder thread to send the rest" if sends else "")
            return self.seats.link(seat, what, since=worker.since), feeder if sends else Cause.ENDED
        return self.seats.link(seat, f"is in the loader ({status.value})", since=worker.since), Cause.LOADER

    # ---- of an event

    def _task(self, position: int) -> int:
        return int(self.seats.trace.events["task"][position])

    def _of(self, position: int) -> int:
        """The worker that it concerns."""
        return int(self.seats.trace.events["worker"][position])
