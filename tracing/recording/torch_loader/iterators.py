"""Main: torch's two iterators, which emit what they do.

Each method here emits an event and calls torch's. Some steps have no method in torch: it stores, takes and skips tasks
by setting, popping and deleting items of the dict `_task_info`. So that dict is replaced by one that emits: TaskInfo.

Legend
    progress    Progress(epoch_id=...)    how far the iterator is; its queues share it
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.multiprocessing
from torch.utils.data import _utils, dataloader
from torch.utils.data._utils.worker import _IterableDatasetStopIteration, _ResumeIteration

from minidl import events
from minidl.events import NO_TASK, emit
from tracing.recording.torch_loader.attached_loaders import epochs_of
from tracing.recording.torch_loader.delayed_sigchld import delay_sigchld
from tracing.recording.torch_loader.fetcher import TracedFetcher
from tracing.recording.torch_loader.multiprocessing_context import LoaderInContext, TracedContext
from tracing.recording.torch_loader.progress import Progress
from tracing.recording.torch_loader.queues import DataQueue, PinnedResults, ResultQueue

if TYPE_CHECKING:  # torch's types leave out what is private
    from typing import Any as Base
    from typing import Any as ParallelBase
    from typing import Any as SerialBase
else:
    Base = dataloader._BaseDataLoaderIter
    SerialBase, ParallelBase = dataloader._SingleProcessDataLoaderIter, dataloader._MultiProcessingDataLoaderIter


def configuration(loader: Any) -> dict[str, Any]:
    """The text of LOADER, as minidl's loader emits it."""
    context = loader.multiprocessing_context or torch.multiprocessing
    return {
        "package": "torch.utils.data",
        "dataset": type(loader.dataset).__name__,
        "sampler": type(loader._index_sampler).__name__,
        "batch_size": loader.batch_size,
        "num_workers": loader.num_workers,
        "prefetch_factor": loader.prefetch_factor,
        "in_order": getattr(loader, "in_order", True),  # since torch 2.6
        "pin_memory": loader.pin_memory,
        "persistent_workers": loader.persistent_workers,
        "drop_last": loader.drop_last,
        "timeout": loader.timeout,
        "start_method": context.get_start_method(),
    }


class Emitting(Base):
    """What both iterators emit."""

    _progress: Progress
    _drawn = 0  # tasks in this epoch
    _pins_here = False  # whether this thread pins, as the last thing it does to a batch

    def _emit_loader(self, loader: Any) -> None:
        self._epochs = epochs_of(loader)
        self._progress = Progress(self._epochs.next())
        emit(events.LOADER, self._progress.epoch_id, value=loader.num_workers, text=configuration(loader))

    def _next_index(self) -> Any:
        epoch_id, task = self._progress.epoch_id, self._drawn
        emit(events.KEYS_BEGIN, epoch_id, task)
        try:
            keys = super()._next_index()
        except StopIteration:
            emit(events.SAMPLER_END, epoch_id, value=task)
            raise
        emit(events.KEYS_DRAWN, epoch_id, task, text=keys)
        self._drawn = task + 1
        return keys

    def _next_data(self) -> Any:
        """One step. Here and not in `__next__`, whose warnings name the line that called it."""
        progress = self._progress
        emit(events.ASKED, progress.epoch_id)
        try:
            batch = super()._next_data()
        except StopIteration:
            emit(events.EPOCH_END, progress.epoch_id, value=self._num_yielded)
            raise
        except Exception as error:
            self._notice_deaths(str(error))
            emit(events.ERROR_RAISED, progress.epoch_id, text=repr(error))
            raise
        task = self._task_in_hand()
        if self._pins_here:
            emit(events.PIN_END, progress.epoch_id, task)
        emit(events.YIELDED, progress.epoch_id, task, value=self._num_yielded + 1)
        return batch

    def _task_in_hand(self) -> int:
        """The task whose batch `_next_data` returns."""
        raise NotImplementedError

    def _notice_deaths(self, text: str) -> None:
        """Without workers there are none."""


class Serial(Emitting, SerialBase):
    """num_workers=0."""

    _dataset_fetcher: Any

    def __init__(self, loader: Any) -> None:
        self._emit_loader(loader)
        super().__init__(loader)
        iterable = self._dataset_kind == dataloader._DatasetKind.Iterable
        self._dataset_fetcher = SerialFetcher(self._dataset_fetcher, iterable, self._progress)
        self._dataset_fetcher.pins = self._pins_here = bool(self._pin_memory)
        emit(events.EPOCH_BEGIN, self._progress.epoch_id, value=-1)

    def _next_index(self) -> Any:
        self._progress.task = self._drawn  # what follows, up to the yield, is work on this task
        return super()._next_index()

    def _task_in_hand(self) -> int:
        return self._progress.task


class SerialFetcher(TracedFetcher):
    """In main: pinning comes next, if at all."""

    pins = False

    def fetch(self, keys: Any) -> Any:
        batch = super().fetch(keys)
        if self.pins:
            emit(events.PIN_BEGIN, self.progress.epoch_id, self.progress.task)
        return batch


class Parallel(Emitting, ParallelBase):
    """num_workers > 0."""

    _resuming = 0  # workers that have not acknowledged the new epoch

    def __init__(self, loader: Any) -> None:
        self._emit_loader(loader)
        self._task_info = {}
        self._died: set[int] = set()
        delay_sigchld()
        pins = loader.pin_memory and torch.accelerator.is_available()
        context = loader.multiprocessing_context or torch.multiprocessing
        results = PinnedResults if pins else ResultQueue
        super().__init__(LoaderInContext(loader, TracedContext(context, self._progress, results)))

    # Where torch assigns these two attributes, an object that emits takes the place of what it assigns.

    @property
    def _task_info(self) -> TaskInfo:
        return self._emitting_task_info

    @_task_info.setter
    def _task_info(self, tasks: dict[int, Any]) -> None:
        self._emitting_task_info = TaskInfo(tasks, self._progress)

    @property
    def _data_queue(self) -> Any:
        return self._emitting_data_queue

    @_data_queue.setter
    def _data_queue(self, queue: Any) -> None:
        """With a pin thread it is a queue of its own, else worker_result_queue, which emits already."""
        results = self._worker_result_queue
        self._emitting_data_queue = queue if queue is results else DataQueue(queue, results)

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        progress, previous = self._progress, -1
        if not first_iter:
            previous, progress.epoch_id = progress.epoch_id, self._epochs.next()
            self._resuming = self._num_workers
        self._drawn = progress.outstanding = 0
        emit(events.EPOCH_BEGIN, progress.epoch_id, value=previous)
        super()._reset(loader, first_iter)
        emit(events.PRIMED, progress.epoch_id, value=self._send_idx)

    # ---- one step

    def _try_put_index(self) -> None:
        drawn, sent = self._drawn, self._send_idx
        super()._try_put_index()
        if self._drawn > drawn and self._send_idx == sent:
            emit(events.NO_CAPACITY, self._progress.epoch_id, sent)

    def _get_data(self) -> Any:
        idx, data = message = super()._get_data()
        progress, sender = self._progress, self._data_queue.sender
        if self._resuming:
            if isinstance(idx, _ResumeIteration):  # else it is a result of the epoch before: torch drops it
                self._resuming -= 1
                emit(events.RESUME_ACKNOWLEDGED, progress.epoch_id, worker=sender, value=self._resuming)
            return message
        progress.outstanding -= 1
        emit(events.RECEIVED, progress.epoch_id, idx, sender, value=progress.outstanding)
        if isinstance(data, _IterableDatasetStopIteration):
            emit(events.WORKER_EXHAUSTED, progress.epoch_id, worker=data.worker_id)
        return message

    def _task_in_hand(self) -> int:
        return self._task_info.taken  # in order or not, torch has popped the task that it returns the batch of

    # ---- deaths

    def _mark_worker_as_unavailable(self, worker_id: int, shutdown: bool = False) -> None:
        if not shutdown and not self._workers[worker_id].is_alive():
            self._emit_death(worker_id, None)
        super()._mark_worker_as_unavailable(worker_id, shutdown)

    def _notice_deaths(self, text: str) -> None:
        """An error was raised, perhaps by the handler of SIGCHLD, whose message is that a worker is dead."""
        for worker_id, available in enumerate(self._workers_status):
            if available and not self._workers[worker_id].is_alive():
                self._emit_death(worker_id, text)

    def _emit_death(self, worker_id: int, text: str | None) -> None:
        if worker_id not in self._died:
            self._died.add(worker_id)
            code = self._workers[worker_id].exitcode or 0
            emit(events.WORKER_DIED, self._progress.epoch_id, worker=worker_id, value=code, text=text)
            for task, info in self._task_info.items():
                if info == (worker_id,):
                    emit(events.TASK_LOST, self._progress.epoch_id, task, worker_id)

    # ---- the end

    def _shutdown_workers(self) -> None:
        # torch does nothing a second time, or while the interpreter exits; the module may be gone by then.
        if getattr(self, "_shutdown", True) or getattr(_utils, "python_exit_status", True):
            super()._shutdown_workers()
            return
        epoch_id = self._progress.epoch_id
        emit(events.SHUTDOWN_BEGIN, epoch_id, value=len(self._task_info))
        if hasattr(self, "_pin_memory_thread"):
            emit(events.PIN_STOPPING, epoch_id)
        try:
            super()._shutdown_workers()
        finally:
            emit(events.SHUTDOWN_END, epoch_id)


# torch's names, under which `_get_iterator` looks the two classes up, and which errors and profiles show.
OURS = {"_SingleProcessDataLoaderIter": Serial, "_MultiProcessingDataLoaderIter": Parallel}
for _name, _class in OURS.items():
    _class.__name__ = _class.__qualname__ = _name


def with_emitting_iterators(get_iterator: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """torch's `_get_iterator`, which finds our two iterators where it looks for torch's. (It stays torch's code: in a
    function of ours its warnings would name other lines.)"""
    function: Any = get_iterator
    return types.FunctionType(function.__code__, {**function.__globals__, **OURS}, function.__name__)


class TaskInfo(dict[int, Any]):
    """torch's `_task_info`: task -> (worker_id,), or (worker_id, batch) once its batch came early.

    What torch does to an item is a step of the task: it sets the second form to store the batch in the reorder buffer,
    pops the item to return the batch, and deletes it to skip a task whose worker's stream has ended.
    """

    def __init__(self, tasks: dict[int, Any], progress: Progress) -> None:
        super().__init__(tasks)
        self._progress = progress
        self.taken = NO_TASK  # the last task popped

    def __setitem__(self, task: int, info: Any) -> None:
        if len(info) == 2:
            awaited = next(iter(self))  # the first one: tasks are sent in order
            emit(events.STORED, self._progress.epoch_id, task, info[0], value=awaited)
        super().__setitem__(task, info)

    def pop(self, task: int) -> Any:  # type: ignore[override]
        info = super().pop(task)
        self.taken = task
        if len(info) == 2:
            emit(events.RELEASED, self._progress.epoch_id, task, info[0])
        return info

    def __delitem__(self, task: int) -> None:
        emit(events.TASK_SKIPPED, self._progress.epoch_id, task, self[task][0])
        super().__delitem__(task)
