"""The state of a loader the simple way: one event after the other, each changing what it says it changes.

Slow, and with nothing in common with tracing.trace.state_after_event but the vocabulary: what it finds is what
state(k) must find."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import tracing
from minidl.events import Kind, Queue
from tracing.trace.event_index import Lane
from tracing.trace.kinds import SHUTDOWN_STEPS
from tracing.trace.state import (
    LoaderState,
    MainState,
    MainStatus,
    PinState,
    PinStatus,
    QueueState,
    SlotState,
    SlotStatus,
    TaskState,
    TaskStatus,
    WorkerState,
    WorkerStatus,
)
from tracing.trace.state_after_event import LABELS
from tracing.trace.thread_activity import STATUS_AFTER, STATUSES

Event = SimpleNamespace  # its fields are those of the record; the text is decoded


def status_after(lane: Lane, event: Event) -> Any:
    return STATUSES[STATUS_AFTER[lane][event.kind]]


def become(thread: MainState | PinState | WorkerState, status: Any, time: int) -> None:
    if status is not thread.status:
        thread.status, thread.since = status, time


class Replay:
    """One iterator."""

    def __init__(self, number: int, event: Event) -> None:
        """`event`: its first one, LOADER; or of no loader."""
        workers = range(event.value)
        self.now = LoaderState(
            iterator=number,
            loader=event.loader,
            epoch=event.epoch,
            num_workers=len(workers),
            alive=True,
            send_idx=0,
            rcvd_idx=0,
            tasks_outstanding=0,
            yielded=0,
            index_queues=[QueueState() for _ in workers],
            workers=[WorkerState(worker, 0, WorkerStatus.STARTING, -1, 0) for worker in workers],
            result_queues=[QueueState() for _ in workers],
            pin_thread=PinState(PinStatus.NONE, -1, 0),
            data_queue=QueueState(),
            reorder_buffer=[],
            waits_for_task=-1,
            task_info={},
            main=MainState(MainStatus.STARTING, 0, -1, -1, -1),
            shutdown_step="",
            error=None,
            config=event.text or {},
        )
        self.pending = self.resuming = self.shutting_down = False
        self.ended: dict[int, bool] = {}  # worker whose stream has ended -> whether main has been sent word of it
        self.granted: dict[int, dict[tuple[int, int], int]] = defaultdict(dict)  # worker -> task, epoch -> slot

    # ---- one event

    def take(self, event: Event, role: str) -> None:
        self.move(event)
        self.slot(event)
        if event.kind == Kind.EPOCH_BEGIN:
            self.begin_epoch(event)
        if role == "worker":
            self.worker_says(event)
        elif role == "pin":
            become(self.now.pin_thread, status_after(Lane.PIN, event), event.time)
            self.now.pin_thread.task = max(-1, event.task)
        elif role == "main" and event.kind != Kind.SLOT_RETIRED:  # a fork is beside whatever main does
            self.main_says(event)
        self.count()

    def begin_epoch(self, event: Event) -> None:
        now = self.now
        now.epoch, self.resuming = event.epoch, event.value >= 0
        now.send_idx = now.tasks_outstanding = now.yielded = 0
        now.main.in_hand, self.pending, now.task_info = -1, False, {}
        for worker in now.workers:
            worker.done = 0

    def move(self, event: Event) -> None:
        if event.kind not in (Kind.PUT, Kind.SEND_BEGIN, Kind.SENT, Kind.GOT):
            return
        queues = {Queue.INDEX: self.now.index_queues, Queue.RESULT: self.now.result_queues}.get(event.queue)
        state = self.now.data_queue if queues is None else queues[event.worker]
        if event.kind == Kind.PUT:
            state.buffer.append(LABELS.get(event.task, event.task))
        elif event.kind == Kind.SEND_BEGIN:
            state.pickling = True
        elif event.kind == Kind.SENT:
            state.pickling = False
            state.pipe.append(state.buffer.pop(0))
        elif event.kind == Kind.GOT:
            (state.pipe or state.buffer).pop(0)  # data_queue has no pipe, and torch's feeders emit nothing

    def slot(self, event: Event) -> None:
        if event.worker < 0 or event.worker >= len(self.now.workers):
            return
        kind, slot, of = event.kind, event.value, (event.task, event.epoch)
        slots, granted = self.now.workers[event.worker].slots, self.granted[event.worker]
        if kind == Kind.SLOT_GRANTED and slot >= 0:
            slots[slot : slot + 1], granted[of] = [SlotState(SlotStatus.GRANTED, event.task)], slot
        elif kind == Kind.SLOT_FILLED and of in granted:
            slots[granted.pop(of)] = SlotState(SlotStatus.FILLED, event.task)
        elif kind == Kind.SLOT_LENT and slot >= 0:
            slots[slot] = SlotState(SlotStatus.LENT, event.task)
        elif kind == Kind.SLOT_FREE:
            slots[slot] = SlotState(SlotStatus.FREE, -1)
        elif kind == Kind.RESUME_ACKNOWLEDGED or (kind == Kind.GOT and event.queue == Queue.RESULT):
            for each in list(granted) if kind == Kind.RESUME_ACKNOWLEDGED else granted.keys() & {of}:
                slots[granted.pop(each)] = SlotState(SlotStatus.FREE, -1)

    def worker_says(self, event: Event) -> None:
        number, worker = event.worker, self.now.workers[event.worker]
        status = status_after(Lane.WORKER, event)
        worker.task = -1 if status is WorkerStatus.IDLE else max(-1, event.task)
        if event.kind == Kind.WORKER_BEGIN:
            worker.pid, worker.since = event.value, event.time
        elif event.kind == Kind.STREAM_END:
            self.ended[number] = False
        elif event.kind == Kind.WORKER_RESUMED:
            self.ended.pop(number, None)
        elif event.kind == Kind.PUT and event.queue == Queue.RESULT:
            worker.done += event.epoch == self.now.epoch and event.task >= 0
            if number in self.ended:
                self.ended[number] = True
        if self.ended.get(number) and status not in (WorkerStatus.STOPPED, WorkerStatus.RESUMING):
            status = WorkerStatus.STREAM_ENDED
        become(worker, status, event.time)

    def main_says(self, event: Event) -> None:
        kind, now = event.kind, self.now
        if kind == Kind.LOADER:
            now.main.since = event.time
        elif kind == Kind.WORKER_STARTING:
            now.workers[event.worker].since = event.time
        elif kind == Kind.WORKER_STARTED:
            now.workers[event.worker].pid = event.value
        elif kind in (Kind.WORKER_DIED, Kind.WORKER_JOINED):
            worker = now.workers[event.worker]
            become(worker, WorkerStatus.DEAD if kind == Kind.WORKER_DIED else WorkerStatus.REAPED, event.time)
            worker.exit_code, worker.task = event.value, -1
        elif kind == Kind.SHUTDOWN_BEGIN:
            self.shutting_down = True
        elif kind == Kind.SHUTDOWN_END:
            self.shutting_down = self.resuming = now.alive = False
        elif kind == Kind.KEYS_BEGIN:
            self.resuming = False
        else:
            self.book(event)
        if kind in SHUTDOWN_STEPS:
            now.shutdown_step = Kind(kind).name
        phase = MainStatus.SHUTTING_DOWN if self.shutting_down else MainStatus.RESUMING if self.resuming else None
        become(now.main, phase or status_after(Lane.MAIN, event), event.time)
        now.main.actor = event.actor

    def book(self, event: Event) -> None:
        kind, task, now, info = event.kind, event.task, self.now, self.now.task_info
        if kind == Kind.KEYS_DRAWN and now.num_workers == 0:
            now.send_idx, self.pending = now.send_idx + 1, True
        elif kind == Kind.DISPATCHED:
            now.send_idx, now.tasks_outstanding = now.send_idx + 1, now.tasks_outstanding + 1
            info[task] = TaskState(event.worker, TaskStatus.OUTSTANDING)
        elif kind == Kind.RECEIVED:
            now.tasks_outstanding -= 1
            now.main.in_hand, self.owner = task, info.pop(task).worker
        elif kind in (Kind.STORED, Kind.WORKER_EXHAUSTED):
            status = TaskStatus.STORED if kind == Kind.STORED else TaskStatus.STREAM_ENDED
            info[now.main.in_hand] = TaskState(self.owner, status)
            now.main.in_hand = -1
        elif kind == Kind.RELEASED:
            now.main.in_hand, _ = task, info.pop(task)
        elif kind == Kind.COLLATE_END:
            now.main.in_hand, self.pending = task, False
        elif kind == Kind.TASK_SKIPPED:
            del info[task]
        elif kind == Kind.TASK_LOST:
            info[task].status = TaskStatus.LOST
        elif kind in (Kind.YIELDED, Kind.ERROR_RAISED):
            now.yielded += kind == Kind.YIELDED
            now.main.in_hand, self.pending = -1, False
            now.error = event.text if kind == Kind.ERROR_RAISED else now.error

    def count(self) -> None:
        """What follows from the rest."""
        now = self.now
        now.task_info = dict(sorted(now.task_info.items()))
        now.rcvd_idx = next(iter(now.task_info), now.send_idx - self.pending)
        now.reorder_buffer = [task for task, info in now.task_info.items() if info.status is TaskStatus.STORED]
        now.waits_for_task = now.rcvd_idx if now.reorder_buffer else -1
        waits = now.main.status in (MainStatus.WAITING, MainStatus.TAKING)
        now.main.waits_for = now.rcvd_idx if waits else -1


def replay(trace: tracing.Trace) -> Iterator[dict[int, LoaderState]]:
    """After each event: what each iterator of the trace is, by its number."""
    numbers = {(each.loader, epoch): n for n, each in enumerate(trace.loaders) for epoch in each.epochs}
    iterators: dict[int, Replay] = {}
    for position, record in enumerate(trace.events):
        event = Event(**{name: int(record[name]) for name in trace.events.dtype.names or ()})
        event.text = trace.text(position)
        number, actor = numbers[event.loader, event.epoch], trace.actors[event.actor]
        foreign = actor.role != "feeder" and numbers.get((actor.loader, actor.epoch)) != number
        if number not in iterators:
            iterators[number] = Replay(number, event)
        iterators[number].take(event, "main" if foreign else actor.role)
        yield {number: each.now for number, each in iterators.items()}
