"""The iterator for num_workers > 0: hand out tasks, take in results, yield batches in the sampler's order.

    sampler -> index_queue[0] -> worker 0 -> worker_result_queue -> (pin thread -> data_queue) -> reorder -> yield
            -> index_queue[1] -> worker 1 -^

Legend
    _send_idx            7    the next task to be sent
    _rcvd_idx            4    the next task to be yielded (in order)
    _task_info           {4: TaskInfo(worker_id=0, keys=[8, 9]), 5: ...}   tasks in [_rcvd_idx, _send_idx) not yet
                              yielded; those whose batch has arrived early are the reorder buffer
    _tasks_outstanding   2    sent, with no result received yet; never more than prefetch_factor * num_workers.
                              Tasks that an exhausted worker skips stay counted, as in torch

Principles
1. One new task is sent for each batch yielded, not for each received, so that memory stays bounded.
2. The active workers get tasks in turn, so that the same seeds make the same batches on the same workers.
3. Every task is yielded, skipped because its worker's stream has ended, or lost: then every further next() raises.

torch: _MultiProcessingDataLoaderIter
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch._utils import ExceptionWrapper

from minidl import events, signals
from minidl import world as worlds
from minidl.deaths import check_health, fail_for_death, fail_for_lost_message, raise_deaths, worker_ended
from minidl.events import Queue, emit
from minidl.iterator import BaseIterator
from minidl.messages import Died, Failed, Result, Resume, Resumed, StreamEnd, Task
from minidl.queues import Consumer, Producer, ThreadQueue, Unreadable
from minidl.shutdown import shut_down, shut_down_at_exit, tell_to_stop
from minidl.startup import start_pin_thread, start_workers
from minidl.states import TaskInfo, WorkerState
from minidl.transport import Handles, Unpacker
from minidl.worker import Worker

if TYPE_CHECKING:
    from minidl.loader import DataLoader

STATUS_CHECK_INTERVAL = 5.0  # seconds; only the last line of defence, since every wait wakes on a death


class ParallelIterator(BaseIterator):
    """One or more passes over a DataLoader, with worker processes."""

    _shutdown = True  # until there is something to shut down

    def __init__(self, loader: DataLoader) -> None:
        super().__init__(loader)
        self._world = worlds.current(loader.multiprocessing_context)
        self._owner_pid = self._world.pid()  # a forked worker inherits this object, but must not shut it down
        self._prefetch_factor: int = loader.prefetch_factor  # type: ignore[assignment]
        for name in ("num_workers", "prefetch_factor"):  # they can be changed between epochs
            if getattr(self, f"_{name}") <= 0:
                raise AssertionError(f"{name} must be greater than 0 for MultiProcessingDataLoaderIter")
        self._in_order = loader.in_order
        self._workers: list[worlds.Process] = []
        self._workers_status = [WorkerState.ACTIVE] * self._num_workers
        self._index_queues: list[Producer] = []
        self._transports: list[Handles | Unpacker] = []
        self._pin_memory_thread: worlds.Thread | None = None
        self._workers_done_event = self._world.flag()
        self._pin_memory_thread_done_event = self._world.flag()
        self._ending_of: list[worlds.Waitable] = []  # for each worker: ready once its process has ended
        self._endings = self._world.waiter()  # waits for all of these
        self._joined: set[int] = set()  # the workers whose end main has waited for
        self._worker_result_queue = Consumer(
            self._world, Queue.RESULT, self._epoch_id, until=self._pin_memory_thread_done_event
        )
        self._data_queue: Consumer | ThreadQueue = self._worker_result_queue
        self._shutdown = False
        try:
            start_workers(self, loader)
            if self._pin_memory_device is not None:
                start_pin_thread(self)
            signals.watch(self._world, self)
            shut_down_at_exit(self._world, self)
            self._reset(loader, first_iter=True)
        except BaseException:
            self._shutdown_workers()
            raise

    def _reset(self, loader: DataLoader, first_iter: bool = False) -> None:
        """Begin an epoch: the first, or, with persistent workers, another one."""
        # First: if it raises, the workers are as they were. (In the first epoch a second time, as in torch.)
        self._sampler_iter = self._begin_sampler(loader)
        self._halfway = True  # as in next(): an epoch that failed to begin cannot go on
        previous = -1
        if not first_iter:
            previous, self._epoch_id = self._epoch_id, loader._new_epoch()
        self._begin_epoch(loader, previous)
        self._send_idx = self._rcvd_idx = 0
        self._task_info: dict[int, TaskInfo] = {}
        self._tasks_outstanding = 0
        self._next_worker = 0  # whose turn it is; every epoch begins with worker 0 (pytorch#73603)
        self._workers_num_tasks = [0] * self._num_workers  # for each worker: sent, and not received yet
        if not first_iter:
            self._resume_workers()
        self._prime()
        self._halfway = False

    def _worker_class(self, worker_id: int) -> Any:
        return Worker

    def _resume_workers(self) -> None:
        """The handshake: nothing of the new epoch is sent before every worker has left the old one behind. Whatever
        else arrives meanwhile belongs to the abandoned epoch, and is dropped."""
        for worker_id, status in enumerate(self._workers_status):
            if status is WorkerState.DEAD:  # it died after its last task of the epoch before
                fail_for_death(self, worker_id)
        self._workers_status = [WorkerState.ACTIVE] * self._num_workers  # from here on a death is noticed
        for index_queue in self._index_queues:
            index_queue.put(Resume(self._epoch_id))
        waiting_for = set(range(self._num_workers))
        self._in_use = True
        try:
            while waiting_for:
                message = self._get_data(self._timeout)
                if isinstance(message, Resumed) and message.epoch_id == self._epoch_id:
                    waiting_for.discard(message.worker_id)
                    self._transports[message.worker_id].reclaim()
                    emit(events.RESUME_ACKNOWLEDGED, self._epoch_id, worker=message.worker_id, value=len(waiting_for))
        finally:
            self._in_use = False
            self._halfway = True  # a wait has cleared it; but an epoch that failed to begin cannot go on

    # ---- hand out

    def _prime(self) -> None:
        """Give every worker `prefetch_factor` tasks, in turn; from then on each batch yielded leads to one more.
        torch: _reset"""
        for _ in range(self._prefetch_factor * self._num_workers):
            self._try_put_index()
        emit(events.PRIMED, self._epoch_id, value=self._send_idx)

    def _try_put_index(self) -> None:
        """Send one task, if the sampler has keys for one and a worker can take it. torch: _try_put_index"""
        max_tasks = self._prefetch_factor * self._num_workers
        assert self._tasks_outstanding < max_tasks, "more tasks outstanding than allowed"
        try:
            keys = self._next_keys()
        except StopIteration:
            return
        worker_id = self._choose_worker(max_tasks)
        if worker_id is None:
            emit(events.NO_CAPACITY, self._epoch_id, self._send_idx)
            return
        self._task_info[self._send_idx] = TaskInfo(worker_id, keys)
        self._workers_num_tasks[worker_id] += 1
        self._tasks_outstanding += 1
        emit(events.DISPATCHED, self._epoch_id, self._send_idx, worker_id, value=self._tasks_outstanding)
        slot, fresh = self._transports[worker_id].grant(self._epoch_id, self._send_idx)
        self._index_queues[worker_id].put(Task(self._epoch_id, self._send_idx, keys, slot, fresh))
        self._send_idx += 1

    def _choose_worker(self, max_tasks: int) -> int | None:
        """The next active worker in turn; without order, the next that has room. In order no worker can
        have too many, since its batches are waited for in turn."""
        active = self._workers_status.count(WorkerState.ACTIVE)
        for _ in range(self._num_workers):
            worker_id = self._next_worker
            self._next_worker = (self._next_worker + 1) % self._num_workers
            if self._workers_status[worker_id] is WorkerState.ACTIVE and (
                self._in_order or self._workers_num_tasks[worker_id] < max_tasks // active  # pytorch#105203
            ):
                return worker_id
        return None

    # ---- take in

    def _get_data(self, timeout: float) -> Any:
        """The next message from a worker. A death or a lost batch is raised, and so is a RuntimeError if nothing comes
        within `timeout` seconds (0: wait for ever). torch: _get_data, _try_get_data"""
        deadline = self._world.now() + timeout if timeout > 0 else None  # (nan is no limit, as in torch)
        while True:
            try:
                message = self._data_queue.take()
            except Unreadable as error:
                fail_for_lost_message(self, error)
            if message is None:
                self._wait(timeout, deadline)
                continue
            if isinstance(message, Failed):
                fail_for_lost_message(self, message.error)
            if isinstance(message, Died):
                worker_ended(self, message.worker_id)
            return message

    def _wait(self, timeout: float, deadline: float | None) -> None:
        """Wait for a message to take. Nothing is half done here: whatever is raised, by a signal handler or at the
        deadline, leaves everything as it was."""
        self._halfway, before = False, self._halfway
        left = STATUS_CHECK_INTERVAL if deadline is None else max(0.0, deadline - self._world.now())
        if not self._data_queue.wait(left):
            check_health(self)
            if deadline is not None:
                raise RuntimeError(f"DataLoader timed out after {timeout} seconds")
        self._halfway = before

    def _receive(self, timeout: float) -> int | None:
        """Take in one message. If it is a batch, store it and return its task's id."""
        result = self._get_data(timeout)
        if not isinstance(result, Result):
            return None  # a worker that was expected to end has ended
        self._tasks_outstanding -= 1
        emit(events.RECEIVED, self._epoch_id, result.task_id, result.worker_id, value=self._tasks_outstanding)
        if isinstance(result.data, StreamEnd):
            self._worker_exhausted(result.worker_id)
            return None
        self._workers_num_tasks[result.worker_id] -= 1
        info = self._task_info[result.task_id]
        info.data = result.data
        info.early = self._in_order and result.task_id != self._rcvd_idx
        if info.early:
            emit(events.STORED, self._epoch_id, result.task_id, result.worker_id, value=self._rcvd_idx)
        return result.task_id

    def _worker_exhausted(self, worker_id: int) -> None:
        """A worker's iterable dataset has ended; the others go on."""
        self._workers_status[worker_id] = WorkerState.EXHAUSTED
        emit(events.WORKER_EXHAUSTED, self._epoch_id, worker=worker_id)
        if not self._persistent_workers:
            tell_to_stop(self, worker_id)
        self._try_put_index()  # in place of the task that it did not fulfil

    # ---- yield

    def _next_data(self) -> tuple[int, Any]:
        """The next task's id and batch. torch: _next_data"""
        if self._shutdown and self._rcvd_idx < self._send_idx:  # by hand, in the middle of an epoch
            self._halfway = False
            raise AssertionError("Invalid iterator state: shutdown when fetching next data")
        task_id = self._next_task()
        info = self._task_info[task_id]
        try:
            batch = self._take(task_id)
        except Exception:
            if isinstance(info.data, ExceptionWrapper) and task_id not in self._task_info:
                self._halfway = False  # an error in the batch's place: the next next() goes on
            raise
        raise_deaths(self)  # last: a death that is not raised now is raised after the training step
        return task_id, batch

    def _next_task(self) -> int:
        """Wait until a task can be yielded: the next one in order, or any if order does not matter."""
        if self._world.pid() != self._owner_pid:
            self._halfway = False
            raise RuntimeError("inherited from another process, whose workers would lose batches to this iterator")
        while True:
            self._skip_unfulfilled()
            if self._rcvd_idx == self._send_idx:
                for transport in self._transports:
                    transport.rest()
                if not self._persistent_workers:
                    self._shutdown_workers()
                raise StopIteration
            # One that came early; or, without order, one whose next() failed because the sampler raised.
            for there in [self._rcvd_idx] if self._in_order else self._task_info:
                if self._task_info[there].arrived:
                    return there
            task_id = self._receive(self._timeout)
            if task_id is not None and not self._task_info[task_id].early:
                return task_id

    def _skip_unfulfilled(self) -> None:
        """Move `_rcvd_idx` past what will never come: tasks already yielded out of order, and tasks that are with
        a worker whose stream has ended."""
        while self._rcvd_idx < self._send_idx:
            info = self._task_info.get(self._rcvd_idx)
            if info is not None:
                if info.arrived or self._workers_status[info.worker_id] is WorkerState.ACTIVE:
                    return
                emit(events.TASK_SKIPPED, self._epoch_id, self._rcvd_idx, info.worker_id)
                del self._task_info[self._rcvd_idx]
            self._rcvd_idx += 1

    def _take(self, task_id: int) -> Any:
        """Refill, then hand out a batch, or raise the exception that came in its place. torch: _process_data"""
        self._try_put_index()  # first: if the sampler raises, the batch is still there for the next next()
        info = self._task_info.pop(task_id)
        if info.early:
            emit(events.RELEASED, self._epoch_id, task_id, info.worker_id)
        if task_id == self._rcvd_idx:
            self._rcvd_idx += 1
        if isinstance(info.data, ExceptionWrapper):
            try:
                info.data.reraise()
            except Exception as error:
                # torch's reraise leaves a cycle of exception and frame: this iterator, and so its workers, would
                # outlive a caller that drops it. What happened in the worker is in the message.
                raise error.with_traceback(None) from None
        return info.data

    # ---- the end

    def _shutdown_workers(self) -> None:
        shut_down(self)

    def __del__(self) -> None:
        self._shutdown_workers()
