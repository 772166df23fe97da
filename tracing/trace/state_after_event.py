"""`trace.state(k)`: the loader's whole state after event k, from events alone.

No event is replayed. A queue is first in, first out, so its content follows from three counts: the messages put, sent
and got so far. What a thread does follows from its last events (tracing.trace.thread_activity). A task is where its
last hop left it. So a state deep in a long trace costs no more than one at its start.

What is in a queue (n_put: how many of its PUT events are at positions <= k, and so on)
    puts    0 1 2 3 4 5 6 7          n_put = 8
    sents   0 1 2 3 4                n_sent = 5      buffer = puts[5:8]
    gots    0 1 2                    n_got = 3       pipe = sents[3:5]
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from minidl.events import DIED, RESUME, STOP, WAKE, Kind, Queue
from tracing.trace.event_index import Epoch, Index, Lane
from tracing.trace.kinds import SHUTDOWN_STEPS
from tracing.trace.state import (
    Label,
    LoaderState,
    MainState,
    MainStatus,
    PinState,
    PinStatus,
    QueueState,
    SlotState,
    SlotStatus,
    State,
    TaskState,
    TaskStatus,
    WorkerState,
    WorkerStatus,
)
from tracing.trace.thread_activity import doing

if TYPE_CHECKING:
    from tracing.trace.trace import Trace

LABELS = {STOP: "STOP", RESUME: "RESUME", WAKE: "WAKE", DIED: "DIED"}


def label(task: int) -> Label:
    """What a message is, from the field `task` of its event."""
    return task if task >= 0 else LABELS.get(task, "?")


def states(trace: Trace, first: int, last: int) -> Iterator[State]:
    """The states after events `first` to `last`. A worker and its queues change only by events with its worker_id and
    where an epoch begins: otherwise they stay as before. Looking them up would take most of the time."""
    before: dict[int, LoaderState] = {}
    for k in range(first, last + 1):
        found = state(trace, k, before)
        before = {each.iterator: each for each in found.loaders}
        yield found


def state(trace: Trace, k: int, before: Mapping[int, LoaderState] | None = None) -> State:
    """The state after event `k`, 0 <= k < len(trace), or -1 for an empty trace. before: of iterators, by number, what
    they looked like after event k - 1, where that is known."""
    if k < 0:
        return State(-1, trace.start, [])
    index = trace.index
    alive = [each.number for each in index.iterators if _is_alive(index, each.number, k)]
    shown = [Snapshot(trace, number, k, (before or {}).get(number)).take() for number in alive]
    if not shown:
        last = max(index.iterators, key=lambda each: each.last(k), default=None)
        shown = [Snapshot(trace, last.number, k).take()] if last and last.last(k) >= 0 else []
    return State(k, int(trace.events["time"][k]), shown)


def _is_alive(index: Index, number: int, k: int) -> bool:
    """Whether an iterator has begun and is neither shut down nor, without workers, replaced by a later one."""
    iterator = index.iterators[number]
    last = iterator.last(k)
    if last < 0 or index.group(number, Kind.SHUTDOWN_END).last(k) >= 0:
        return False
    if iterator.num_workers > 0:
        return True
    if index.group(number, Kind.EPOCH_END).last(k) >= 0:
        return False
    # Without workers no event shows that an iterator was dropped half way. It counts as gone once the loader has made
    # another one, unless it has an event after that.
    later = (each for each in index.iterators[number + 1 :] if each.loader == iterator.loader)
    return not any(index.group(each.number, Kind.LOADER).last(k) > last for each in later)


# How far the tasks of an epoch have come: send_idx, rcvd_idx and task_info of a LoaderState.
TaskProgress = tuple[int, int, dict[int, TaskState]]


class Snapshot:
    """One iterator after event `k`."""

    def __init__(self, trace: Trace, number: int, k: int, before: LoaderState | None = None) -> None:
        self.trace, self.number, self.k, self.before = trace, number, k, before
        self.events, self.index = trace.events, trace.index
        self.iterator = self.index.iterators[number]
        self.begin = self.last(Kind.EPOCH_BEGIN)  # where the epoch begins, -1 before the first
        at = self.begin if self.begin >= 0 else self.iterator.first()
        self.loader, self.epoch = int(self.events["loader"][at]), int(self.events["epoch"][at])
        self.tasks = self.index.epochs.get(self.loader << 32 | self.epoch) or Epoch(self.loader, self.epoch)

    def take(self) -> LoaderState:
        workers = range(self.iterator.num_workers)
        send_idx, rcvd_idx, task_info = self.progress_of_workers() if workers else self.progress_of_main()
        stored = [task for task, info in task_info.items() if info.status is TaskStatus.STORED]
        failed = self.last(Kind.ERROR_RAISED)
        return LoaderState(
            iterator=self.number,
            loader=self.loader,
            epoch=self.epoch,
            num_workers=len(workers),
            alive=_is_alive(self.index, self.number, self.k),
            send_idx=send_idx,
            rcvd_idx=rcvd_idx,
            tasks_outstanding=self.happened(Kind.DISPATCHED) - self.happened(Kind.RECEIVED),
            yielded=self.happened(Kind.YIELDED),
            index_queues=self.of_workers(lambda worker: self.queue(Queue.INDEX, worker), "index_queues"),
            workers=self.of_workers(self.worker, "workers"),
            result_queues=self.of_workers(lambda worker: self.queue(Queue.RESULT, worker), "result_queues"),
            pin_thread=self.pin_thread(),
            data_queue=self.queue(Queue.DATA, -1),
            reorder_buffer=stored,
            waits_for_task=rcvd_idx if stored else -1,
            task_info=task_info,
            main=self.main(rcvd_idx),
            shutdown_step=self.shutdown_step(),
            error=None if failed < 0 else self.trace.text(failed),
            config=self.trace.config(self.number),
        )

    def of_workers(self, find: Callable[[int], Any], name: str) -> list[Any]:
        """What is found for each worker, or known from `before`."""
        known = None if self.before is None or self.begin == self.k else getattr(self.before, name)
        changed = int(self.events["worker"][self.k])
        workers = range(self.iterator.num_workers)
        return [find(each) if known is None or each == changed else known[each] for each in workers]

    # ---- where to look

    def last(self, kind: Kind, worker: int = -1) -> int:
        """The position of this iterator's last event of that kind, -1 if there was none."""
        return self.index.group(self.number, kind, Queue.NONE, worker).last(self.k)

    def happened(self, kind: Kind) -> int:
        """How many events of that kind there were in this epoch."""
        group = self.index.group(self.number, kind)
        return group.count(self.k) - group.count(self.begin)

    def value(self, position: int) -> int:
        """The field `value` of an event, 0 if there is none."""
        return int(self.events["value"][position]) if position >= 0 else 0

    def labels(self, positions: np.ndarray) -> list[Label]:
        return [label(task) for task in self.events["task"][positions].tolist()]

    # ---- queues

    def queue(self, queue: Queue, worker: int) -> QueueState:
        """First in, first out: see the picture at the top. Where no event shows what is sent (data_queue has no pipe,
        torch's feeder threads are not traced), everything that has not been taken is in the buffer."""
        puts, begun, sents, gots = (
            self.index.group(self.number, kind, queue, worker)
            for kind in (Kind.PUT, Kind.SEND_BEGIN, Kind.SENT, Kind.GOT)
        )
        n_put, n_sent, n_got = puts.count(self.k), sents.count(self.k), gots.count(self.k)
        if len(sents) == 0 and len(begun) == 0:
            n_sent = n_got
        return QueueState(
            buffer=self.labels(puts.array[n_sent:n_put]),
            pipe=self.labels(sents.array[n_got:n_sent]),
            pickling=begun.count(self.k) > n_sent,
        )

    # ---- tasks

    def progress_of_workers(self) -> TaskProgress:
        k, some = self.k, self.tasks.under_way(self.k)
        hops = self.tasks.hops("dispatched", "received", "stored", "released", "yielded", "skipped", "lost")
        dispatched, received, stored, released, yielded, skipped, lost = (hop[some] for hop in hops)
        left = (released <= k) | (yielded <= k) | (skipped <= k)
        task_info: dict[int, TaskState] = {}
        for at in np.flatnonzero((dispatched <= k) & ~left).tolist():
            if stored[at] <= k:
                status = TaskStatus.STORED
            elif lost[at] <= k:
                status = TaskStatus.LOST
            elif received[at] > k:
                status = TaskStatus.OUTSTANDING
            elif self.main_after(int(received[at])) == Kind.WORKER_EXHAUSTED:
                status = TaskStatus.STREAM_ENDED
            else:  # its batch is in main's hands, or an exception came in its place and was raised
                continue
            task_info[some.start + at] = TaskState(int(self.events["worker"][dispatched[at]]), status)
        send_idx = self.tasks.happened("dispatched", k)
        return send_idx, next(iter(task_info), send_idx), task_info

    def progress_of_main(self) -> TaskProgress:
        """Without workers main makes one batch at a time: every task before the last is over."""
        drawn, yielded = self.tasks.hops("keys_drawn", "yielded")
        send_idx = self.tasks.happened("keys_drawn", self.k)
        task = send_idx - 1
        if task < 0 or task == self.in_hand() or yielded[task] <= self.k or self.last(Kind.ERROR_RAISED) > drawn[task]:
            return send_idx, send_idx, {}
        return send_idx, task, {}

    def in_hand(self) -> int:
        """The task whose batch main has taken and not yet yielded, -1 if there is none. In between main draws and
        sends the next task. A batch that came early is stored at once, and the end of a stream is no batch."""
        taken_by = (Kind.RECEIVED, Kind.RELEASED) if self.iterator.num_workers else (Kind.COLLATE_END,)
        taken = max(self.last(kind) for kind in taken_by)
        over = max(self.last(kind) for kind in (Kind.YIELDED, Kind.ERROR_RAISED, Kind.EPOCH_BEGIN))
        if taken <= over or self.main_after(taken) in (Kind.STORED, Kind.WORKER_EXHAUSTED):
            return -1
        return int(self.events["task"][taken])

    def main_after(self, position: int) -> int:
        """The kind of main's next event, 0 if that comes after `k`."""
        lane = self.index.lane(self.number, Lane.MAIN)
        after = lane.count(position)
        return int(self.events["kind"][lane.array[after]]) if after < lane.count(self.k) else 0

    # ---- threads

    def worker(self, worker: int) -> WorkerState:
        now = doing(self.trace, self.iterator, Lane.WORKER, worker, self.k)
        started = max(self.last(kind, worker) for kind in (Kind.WORKER_STARTED, Kind.WORKER_BEGIN))
        state = WorkerState(worker, self.value(started), WorkerStatus.STARTING, -1, 0, None, self.results_put(worker))
        state.slots = list(self.slots(worker))
        if now is not None:
            state.status, state.task, state.since = WorkerStatus(now.status), now.task, now.since
            if state.status in (WorkerStatus.DEAD, WorkerStatus.REAPED):
                state.exit_code = self.value(now.event)
        return state

    def slots(self, worker: int) -> Iterator[SlotState]:
        """Slots are numbered in the order in which they are first granted."""
        for slot in itertools.count():
            granted, lent, free = (
                self.index.group(self.number, kind, Queue.NONE, worker, slot).last(self.k)
                for kind in (Kind.SLOT_GRANTED, Kind.SLOT_LENT, Kind.SLOT_FREE)
            )
            if granted < 0:
                return
            status = SlotStatus.LENT if lent > free else SlotStatus.FREE
            if granted > lent:
                status = self.granted_slot(worker, granted)
            batch = int(self.events["task"][max(granted, lent)])
            yield SlotState(status, -1 if status is SlotStatus.FREE else batch)

    def granted_slot(self, worker: int, granted: int) -> SlotStatus:
        """The status of a slot that has not been lent since it was granted. The batch may have needed none, or there
        was none: then the slot comes back with the task's result, or at the next epoch."""
        event = self.events[granted]
        tasks = self.index.epochs[int(event["loader"]) << 32 | int(event["epoch"])]
        filled, got = (int(hop[event["task"]]) for hop in tasks.hops("slot_filled", "result_got"))
        if min(filled, got) > self.k:
            resumed = self.last(Kind.RESUME_ACKNOWLEDGED, worker)
            return SlotStatus.FREE if resumed > granted else SlotStatus.GRANTED
        return SlotStatus.FREE if got < filled else SlotStatus.FILLED

    def results_put(self, worker: int) -> int:
        puts = self.index.group(self.number, Kind.PUT, Queue.RESULT, worker)
        if self.begin < 0 or self.events["value"][self.begin] < 0:
            return puts.count(self.k)
        # A resumed epoch begins among results of the last one. Its own follow the acknowledgement, itself a result.
        resumed = self.last(Kind.WORKER_RESUMED, worker)
        return max(0, puts.count(self.k) - puts.count(resumed) - 1) if resumed > self.begin else 0

    def pin_thread(self) -> PinState:
        now = doing(self.trace, self.iterator, Lane.PIN, -1, self.k)
        return PinState(PinStatus(now.status), now.task, now.since) if now else PinState(PinStatus.NONE, -1, 0)

    def main(self, rcvd_idx: int) -> MainState:
        now = doing(self.trace, self.iterator, Lane.MAIN, -1, self.k)
        if now is None:
            return MainState(MainStatus.STARTING, 0, -1, -1, -1)
        status = MainStatus(now.status)
        waits_for = rcvd_idx if status in (MainStatus.WAITING, MainStatus.TAKING) else -1
        return MainState(status, now.since, waits_for, self.in_hand(), int(self.events["actor"][now.event]))

    def shutdown_step(self) -> str:
        if self.last(Kind.SHUTDOWN_BEGIN) < 0:
            return ""
        workers = [-1, *range(self.iterator.num_workers)]
        steps = {self.last(kind, worker): kind for kind in SHUTDOWN_STEPS for worker in workers}
        return steps[max(steps)].name
