"""The state of a loader the simple way: one event after the other, each changing what it says it changes.

Slow, and with nothing in common with tracing.trace.state_after_event but the vocabulary: what it finds is what
state(k) must find."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import tracing
from minidl.events import Kind, Queue
from tracing.trace.event_index import Lane
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
from tracing.trace.thread_activity import SHUTDOWN_STEPS, STATUS_AFTER, STATUSES


class Thread:
    """What a thread does, and since when."""

    def __init__(self, lane: Lane, first: Any) -> None:
        self.lane, self.status = lane, first
        self.since, self.task, self.actor, self.kind = 0, -1, -1, 0

    def says(self, kind: int, event: Any) -> None:
        status = STATUSES[STATUS_AFTER[self.lane][kind]]
        if status is not self.status or self.kind == 0:
            self.status, self.since = status, int(event["time"])
        self.task, self.actor, self.kind = max(-1, int(event["task"])), int(event["actor"]), kind


class Replay:
    """One iterator."""

    def __init__(self, number: int) -> None:
        self.number, self.loader, self.num_workers = number, 0, 0
        self.main = Thread(Lane.MAIN, MainStatus.STARTING)
        self.pin = Thread(Lane.PIN, PinStatus.NONE)
        self.workers: dict[int, Thread] = defaultdict(lambda: Thread(Lane.WORKER, None))
        self.asked_for: dict[int, int] = {}  # worker -> time
        self.pids: dict[int, int] = {}
        self.ended: dict[int, int] = {}  # worker whose stream has ended -> when it told main, 0 before
        self.final: dict[int, tuple[WorkerStatus, int, int]] = {}  # worker -> dead or reaped, since, exit code
        self.queues: dict[tuple[int, int], QueueState] = defaultdict(QueueState)
        self.closed = self.shutting_down = False
        self.began_shutdown, self.step, self.error, self.config = 0, "", None, {}
        self.slots: dict[int, dict[int, SlotState]] = defaultdict(dict)  # worker -> slot -> what it is
        self.own_memory: dict[int, int] = defaultdict(int)
        self.begin_epoch(0, 0, -1)

    def begin_epoch(self, epoch: int, time: int, previous: int) -> None:
        self.epoch, self.began, self.resuming = epoch, time, previous >= 0
        self.sent = self.outstanding = self.yielded = 0
        self.hand, self.pending = -1, False
        self.info: dict[int, TaskState] = {}
        self.done: dict[int, int] = defaultdict(int)

    # ---- one event

    def take(self, event: Any, role: str, text: Any) -> None:
        kind, task, worker = int(event["kind"]), int(event["task"]), int(event["worker"])
        time, value = int(event["time"]), int(event["value"])
        self.loader = int(event["loader"])
        self.move(kind, int(event["queue"]), worker, LABELS.get(task, task))
        if kind == Kind.EPOCH_BEGIN:
            self.begin_epoch(int(event["epoch"]), time, value)
        self.slot(kind, int(event["queue"]), value, worker, task, int(event["epoch"]), time)
        if kind == Kind.SLOT_RETIRED:
            return  # a fork is beside whatever main does
        if role == "worker":
            self.worker_says(kind, worker, time, event)
        elif role == "pin":
            self.pin.says(kind, event)
        elif role == "main":
            self.main_says(kind, task, worker, time, value, text, int(event["epoch"]))
            self.main.says(kind, event)

    def move(self, kind: int, queue: int, worker: int, label: Any) -> None:
        state = self.queues[queue, -1 if queue == Queue.DATA else worker]
        if kind == Kind.PUT:
            state.buffer.append(label)
        elif kind == Kind.SEND_BEGIN:
            state.pickling = True
        elif kind == Kind.SENT:
            state.pickling = False
            state.pipe.append(state.buffer.pop(0))
        elif kind == Kind.GOT:
            (state.buffer if queue == Queue.DATA else state.pipe).pop(0)

    def slot(self, kind: int, queue: int, value: int, worker: int, task: int, epoch: int, time: int) -> None:
        slots, is_granted = self.slots[worker], SlotStatus.GRANTED
        granted = [each for each in slots.values() if each.status is is_granted]
        mine = [each for each in granted if (each.task, each.epoch) == (task, epoch)]
        if kind == Kind.SLOT_GRANTED and value >= 0:
            slots[value] = SlotState(value, is_granted, task, epoch, time, False)
        elif kind == Kind.SLOT_FILLED and mine:
            mine[0].status, mine[0].since = SlotStatus.FILLED, time
        elif kind == Kind.SLOT_LENT and value >= 0:
            slots[value] = SlotState(value, SlotStatus.LENT, task, epoch, time, False)
        elif kind == Kind.SLOT_LENT:
            self.own_memory[worker] += 1
        elif kind == Kind.SLOT_RETIRED:
            slots[value].retired = True
        elif kind == Kind.SLOT_FREE:
            slots[value] = SlotState(value, SlotStatus.FREE, -1, -1, time, slots[value].retired)
        elif kind == Kind.RESUME_ACKNOWLEDGED or (kind == Kind.GOT and queue == Queue.RESULT):
            for each in granted if kind == Kind.RESUME_ACKNOWLEDGED else mine:
                slots[each.slot] = SlotState(each.slot, SlotStatus.FREE, -1, -1, time, False)

    def worker_says(self, kind: int, worker: int, time: int, event: Any) -> None:
        if kind == Kind.WORKER_BEGIN:
            self.pids[worker] = int(event["value"])
        elif kind == Kind.STREAM_END:
            self.ended[worker] = 0
        elif kind == Kind.WORKER_RESUMED:
            self.ended.pop(worker, None)
        elif kind == Kind.PUT and event["queue"] == Queue.RESULT:
            if worker in self.ended:
                self.ended[worker] = time
            if event["epoch"] == self.epoch and event["task"] >= 0:
                self.done[worker] += 1
        self.workers[worker].says(kind, event)

    def main_says(self, kind: int, task: int, worker: int, time: int, value: int, text: Any, epoch: int) -> None:
        if kind == Kind.LOADER:
            self.num_workers, self.config, self.epoch = value, text, epoch
        elif kind == Kind.WORKER_STARTING:
            self.asked_for[worker] = time
        elif kind == Kind.WORKER_STARTED:
            self.pids[worker] = value
        elif kind in (Kind.WORKER_DIED, Kind.WORKER_JOINED):
            status = WorkerStatus.DEAD if kind == Kind.WORKER_DIED else WorkerStatus.REAPED
            self.final[worker] = status, time, value
        elif kind == Kind.SHUTDOWN_BEGIN:
            self.shutting_down, self.began_shutdown = True, time
        elif kind == Kind.SHUTDOWN_END:
            self.shutting_down, self.resuming, self.closed = False, False, True
        elif kind == Kind.KEYS_BEGIN:
            self.resuming = False
        else:
            self.book(kind, task, worker, text)
        if kind in SHUTDOWN_STEPS:
            self.step = Kind.__members__[next(step.name for step in SHUTDOWN_STEPS if step == kind)].name

    def book(self, kind: int, task: int, worker: int, text: Any) -> None:
        if kind == Kind.KEYS_DRAWN and self.num_workers == 0:
            self.sent, self.pending = self.sent + 1, True
        elif kind == Kind.DISPATCHED:
            self.sent, self.outstanding = self.sent + 1, self.outstanding + 1
            self.info[task] = TaskState(worker, TaskStatus.OUTSTANDING)
        elif kind == Kind.RECEIVED:
            self.outstanding -= 1
            self.hand, self.owner = task, self.info.pop(task).worker
        elif kind in (Kind.STORED, Kind.WORKER_EXHAUSTED):
            status = TaskStatus.STORED if kind == Kind.STORED else TaskStatus.STREAM_ENDED
            self.info[self.hand] = TaskState(self.owner, status)
            self.hand = -1
        elif kind == Kind.RELEASED:
            self.hand, _ = task, self.info.pop(task)
        elif kind == Kind.COLLATE_END:
            self.hand, self.pending = task, False
        elif kind == Kind.TASK_SKIPPED:
            del self.info[task]
        elif kind == Kind.TASK_LOST:
            self.info[task].status = TaskStatus.LOST
        elif kind in (Kind.YIELDED, Kind.ERROR_RAISED):
            self.yielded += kind == Kind.YIELDED
            self.hand, self.pending = -1, False
            self.error = text if kind == Kind.ERROR_RAISED else self.error

    # ---- what it is now

    def worker_state(self, worker: int) -> WorkerState:
        thread = self.workers[worker]
        status, since, task, code = thread.status, thread.since, thread.task, None
        if status is None:
            status, since = WorkerStatus.STARTING, self.asked_for.get(worker, 0)
        elif self.ended.get(worker) and status not in (WorkerStatus.STOPPED, WorkerStatus.RESUMING):
            status, since = WorkerStatus.STREAM_ENDED, self.ended[worker]
        if thread.status is WorkerStatus.IDLE:
            task = -1
        if worker in self.final:
            status, since, code = self.final[worker]
            task = -1
        done, slots = self.done[worker], [self.slots[worker][slot] for slot in sorted(self.slots[worker])]
        pid, own_memory = self.pids.get(worker, 0), self.own_memory[worker]
        return WorkerState(worker, pid, status, task, since, code, done, slots, own_memory)

    def main_state(self, rcvd_idx: int) -> MainState:
        status, since = self.main.status, self.main.since
        if self.shutting_down:
            status, since = MainStatus.SHUTTING_DOWN, self.began_shutdown
        elif self.resuming:
            status, since = MainStatus.RESUMING, self.began
        waits = status in (MainStatus.WAITING, MainStatus.TAKING)
        return MainState(status, since, rcvd_idx if waits else -1, self.hand, self.main.actor)

    def state(self) -> LoaderState:
        self.info = dict(sorted(self.info.items()))
        rcvd_idx = next(iter(self.info), self.sent - self.pending)
        stored = [task for task, info in self.info.items() if info.status is TaskStatus.STORED]
        workers = range(self.num_workers)
        return LoaderState(
            iterator=self.number,
            loader=self.loader,
            epoch=self.epoch,
            num_workers=self.num_workers,
            alive=not self.closed,
            send_idx=self.sent,
            rcvd_idx=rcvd_idx,
            tasks_outstanding=self.outstanding,
            yielded=self.yielded,
            index_queues=[self.queues[Queue.INDEX, worker] for worker in workers],
            workers=[self.worker_state(worker) for worker in workers],
            result_queues=[self.queues[Queue.RESULT, worker] for worker in workers],
            pin_thread=PinState(self.pin.status, self.pin.task, self.pin.since),
            data_queue=self.queues[Queue.DATA, -1],
            reorder_buffer=stored,
            waits_for_task=rcvd_idx if stored else -1,
            task_info=self.info,
            main=self.main_state(rcvd_idx),
            shutdown_step=self.step,
            error=self.error,
            config=self.config,
        )


def replay(trace: tracing.Trace) -> Iterator[dict[int, LoaderState]]:
    """After each event: what each iterator of the trace is, by its number."""
    numbers = {(each.loader, epoch): n for n, each in enumerate(trace.loaders) for epoch in each.epochs}
    iterators: dict[int, Replay] = {}
    for position, event in enumerate(trace.events):
        number = numbers[int(event["loader"]), int(event["epoch"])]
        actor = trace.actors[event["actor"]]
        foreign = actor.role != "feeder" and numbers.get((actor.loader, actor.epoch)) != number
        iterator = iterators.setdefault(number, Replay(number))
        iterator.take(event, "main" if foreign else actor.role, trace.text(position))
        yield {number: each.state() for number, each in iterators.items()}
