"""state(k) is what a simple, slow replay of the first k events finds, at every k of many traces.

The replay takes one event after the other, each changing what it says it changes, and has nothing in common with
tracing.trace.state_after_event but the vocabulary."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tracing
from minidl.events import Kind, Queue
from tests.minidl.observing import Config
from tests.minidl.programs import TORCH
from tests.tracing.attached import load
from tests.tracing.loads import LOADS, Recorded
from tracing.trace.event_index import Lane
from tracing.trace.kinds import SHUTDOWN_STEPS
from tracing.trace.state import (
    LoaderState,
    MainStatus,
    PinStatus,
    SlotState,
    SlotStatus,
    State,
    TaskState,
    TaskStatus,
    WorkerStatus,
)
from tracing.trace.state_after_event import label
from tracing.trace.thread_activity import STATUS_AFTER, STATUSES, Activity, activity

Event = SimpleNamespace  # its fields are those of the record; the text is decoded
SENT_OR_TAKEN = (Kind.PUT, Kind.SEND_BEGIN, Kind.SENT, Kind.GOT)
PHASES = {Kind.SHUTDOWN_BEGIN: MainStatus.SHUTTING_DOWN, Kind.SHUTDOWN_END: None}  # whatever main does meanwhile


def status_after(lane: Lane, event: Event) -> Any:
    return STATUSES[STATUS_AFTER[lane][event.kind]]


def become(thread: Any, status: Any, time: int) -> None:
    if status is not thread.status:
        thread.status, thread.since = status, time


class Replay:
    """One iterator."""

    def __init__(self, first: LoaderState) -> None:
        """`first`: after its first event, LOADER, which says what it is; nothing has happened yet."""
        self.now = copy.deepcopy(first)
        self.pending, self.phase = False, None
        self.ended: dict[int, bool] = {}  # worker whose stream has ended -> whether main has been sent word of it
        self.granted: dict[tuple[int, int, int], int] = {}  # worker, epoch, task -> slot

    def take(self, event: Event, role: str) -> None:
        now = self.now
        if event.kind in SENT_OR_TAKEN:
            self.move(event)
        if event.worker in range(now.num_workers):
            self.slot(event, now.workers[event.worker].slots)
        if role == "worker":
            self.worker_says(event)
        elif role == "pin":
            become(now.pin_thread, status_after(Lane.PIN, event), event.time)
            now.pin_thread.task = max(-1, event.task)
        elif role == "main":
            self.main_says(event)
        # The rest follows from what was changed:
        now.task_info = dict(sorted(now.task_info.items()))
        now.rcvd_idx = next(iter(now.task_info), now.send_idx - self.pending)
        now.reorder_buffer = [task for task, info in now.task_info.items() if info.status is TaskStatus.STORED]
        now.waits_for_task = now.rcvd_idx if now.reorder_buffer else -1
        now.main.waits_for = now.rcvd_idx if now.main.status in (MainStatus.WAITING, MainStatus.TAKING) else -1

    def move(self, event: Event) -> None:
        queues = {Queue.INDEX: self.now.index_queues, Queue.RESULT: self.now.result_queues}.get(event.queue)
        state = self.now.data_queue if queues is None else queues[event.worker]
        if event.kind == Kind.PUT:
            state.buffer.append(label(event.task))
        elif event.kind == Kind.GOT:
            (state.pipe or state.buffer).pop(0)  # data_queue has no pipe, and torch's feeders emit nothing
        elif event.kind == Kind.SEND_BEGIN:
            state.pickling = True
        else:
            state.pickling = False
            state.pipe.append(state.buffer.pop(0))

    def slot(self, event: Event, slots: list[SlotState]) -> None:
        kind, slot, of = event.kind, event.value, (event.worker, event.epoch, event.task)
        if kind == Kind.SLOT_GRANTED and slot >= 0:
            # The pin thread gives a slot back before it says that it got the message.
            again = [each for each, had in self.granted.items() if (each[0], had) == (event.worker, slot)]
            for each in again:
                del self.granted[each]
            slots[slot : slot + 1], self.granted[of] = [SlotState(SlotStatus.GRANTED, event.task)], slot
        elif kind == Kind.SLOT_FILLED and of in self.granted:
            slots[self.granted.pop(of)] = SlotState(SlotStatus.FILLED, event.task)
        elif kind == Kind.SLOT_LENT and slot >= 0:
            slots[slot] = SlotState(SlotStatus.LENT, event.task)
        elif kind == Kind.SLOT_FREE:
            slots[slot] = SlotState(SlotStatus.FREE, -1)
        elif kind == Kind.RESUME_ACKNOWLEDGED or (kind == Kind.GOT and event.queue == Queue.RESULT):
            for each in list(self.granted):
                if each == of or (kind == Kind.RESUME_ACKNOWLEDGED and each[0] == event.worker):
                    slots[self.granted.pop(each)] = SlotState(SlotStatus.FREE, -1)

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
            self.ended.update(dict.fromkeys(self.ended.keys() & {number}, True))
        if self.ended.get(number) and status not in (WorkerStatus.STOPPED, WorkerStatus.RESUMING):
            status = WorkerStatus.STREAM_ENDED
        become(worker, status, event.time)

    def main_says(self, event: Event) -> None:
        kind, now = event.kind, self.now
        if kind == Kind.EPOCH_BEGIN:
            now.epoch, self.phase = event.epoch, MainStatus.RESUMING if event.value >= 0 else None
            now.send_idx = now.tasks_outstanding = now.yielded = 0
            now.main.in_hand, self.pending, now.task_info = -1, False, {}
            for worker in now.workers:
                worker.done = 0
        elif kind == Kind.KEYS_BEGIN and self.phase is MainStatus.RESUMING:
            self.phase = None
        elif kind in (Kind.WORKER_STARTING, Kind.WORKER_STARTED, Kind.WORKER_DIED, Kind.WORKER_JOINED):
            worker = now.workers[event.worker]
            if kind == Kind.WORKER_STARTING:
                worker.since = event.time
            elif kind == Kind.WORKER_STARTED:
                worker.pid = event.value
            else:
                become(worker, WorkerStatus.DEAD if kind == Kind.WORKER_DIED else WorkerStatus.REAPED, event.time)
                worker.exit_code, worker.task = event.value, -1
        else:
            self.book(event)
        self.phase = PHASES.get(kind, self.phase)
        now.alive &= kind != Kind.SHUTDOWN_END
        now.shutdown_step = Kind(kind).name if kind in SHUTDOWN_STEPS else now.shutdown_step
        become(now.main, self.phase or status_after(Lane.MAIN, event), event.time)
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


def replay(trace: tracing.Trace) -> Iterator[dict[int, LoaderState]]:
    """After each event: what each iterator of the trace is, by its number."""
    numbers = {(each.loader, epoch): n for n, each in enumerate(trace.loaders) for epoch in each.epochs}
    actors, iterators = trace.actors, dict[int, Replay]()
    for position, record in enumerate(trace.events):
        event = Event(**{name: int(record[name]) for name in trace.events.dtype.names or ()})
        event.text = trace.text(position)
        number, actor = numbers[event.loader, event.epoch], actors[event.actor]
        foreign = actor.role != "feeder" and numbers.get((actor.loader, actor.epoch)) != number
        if number not in iterators:
            (first,) = (each for each in trace.state(position).loaders if each.iterator == number)
            iterators[number] = Replay(first)
        else:
            iterators[number].take(event, "main" if foreign else actor.role)
        yield {number: each.now for number, each in iterators.items()}


# ---- the states of real loads


def checked(trace: tracing.Trace) -> list[State]:
    """Its states, each of which is as it must be."""
    assert len(trace) > 50
    states = [trace.state(k) for k in range(len(trace))]
    for k, (expected, found) in enumerate(zip(replay(trace), states, strict=True)):
        assert (found.k, found.time) == (k, trace.events["time"][k])
        assert found.loaders
        for loader in found.loaders:
            if loader.num_workers == 0:  # whether one without workers is alive: see the test below
                expected[loader.iterator].alive = loader.alive
            assert loader == expected[loader.iterator], f"after event {k}"
        shown = {loader.iterator for loader in found.loaders}
        assert shown >= {number for number, each in expected.items() if each.alive and each.num_workers}
    return states


def test_every_state_is_what_the_slow_replay_finds(recorded: Recorded) -> None:
    """And every status is seen somewhere."""
    seen = set()
    for name in LOADS:
        for loader in (loader for state in checked(recorded(name)) for loader in state.loaders):
            seen |= {loader.main.status, loader.pin_thread.status}
            seen |= {worker.status for worker in loader.workers}
            seen |= {task.status for task in loader.task_info.values()}
    assert seen == {*WorkerStatus, *PinStatus, *MainStatus, *TaskStatus}


def test_what_torchs_feeders_do_not_show_is_in_the_buffer_until_it_is_taken(tmp_path: Path) -> None:
    trace, _ = load(Config("noise", "by 1", 2, epochs=2, options={"persistent_workers": True}), TORCH, tmp_path)
    for loader in (loader for state in checked(trace) for loader in state.loaders):
        queues = [*loader.index_queues, *loader.result_queues]
        assert not any(queue.pipe for queue in queues)
    assert not any(map(len, queues))
    way = [trace.tasks[hop] for hop in ("index_put", "index_arrived", "result_put", "result_arrived", "result_got")]
    assert (np.diff(way, axis=0) > 0).all()


def test_a_serial_iterator_that_was_dropped_is_gone_once_another_begins(recorded: Recorded) -> None:
    trace = recorded("serial")
    assert [loader.iterator for loader in trace.state().loaders] == [3]
    together = [k for k in range(len(trace)) if len(trace.state(k).loaders) == 2]
    assert together  # zip(loader, loader): each has events after the other began


def test_positions_count_from_both_ends(recorded: Recorded) -> None:
    trace = recorded("pinned")
    assert trace.state() == trace.state(len(trace) - 1) and trace.state(-len(trace)) == trace.state(0)
    with pytest.raises(IndexError, match=rf"event {len(trace)} of {len(trace)}"):
        trace.state(len(trace))


# ---- what each thread does: spans without gaps, the same in every window


@pytest.mark.parametrize("name", LOADS)
def test_a_window_shows_what_the_whole_trace_shows(recorded: Recorded, name: str) -> None:
    trace = recorded(name)
    lanes = {(each.loader, Lane(lane), worker) for each in trace.index.iterators for _, lane, worker in each.lanes}
    for loader, lane, worker in lanes:
        if lane is Lane.FEEDER:  # feeders have no statuses
            continue
        iterators = trace.index.iterators_of(loader)
        whole = activity(trace, iterators, lane, worker)
        assert (whole.begin[1:] == whole.end[:-1]).all() and (whole.first[1:] == whole.last[:-1]).all()
        for first, k in ((0, len(trace) // 2), (len(trace) // 3, len(trace) // 2), (len(trace) // 2, len(trace) - 1)):
            begun = max(0, int((whole.first <= first).sum()) - 1)
            expected = whole.where(np.arange(begun, (whole.first <= k).sum()))
            expected.last[-1:], expected.end[-1:] = k, trace.events["time"][k]
            assert columns(activity(trace, iterators, lane, worker, first, k)) == columns(expected)


def columns(found: Activity) -> dict[str, list[int]]:
    return {each.name: getattr(found, each.name).tolist() for each in fields(found)}
