"""Main: torch's two iterators, which say what they do.

Each method here says something and calls torch's. What has no method of its own is seen where it shows: the reorder
buffer is a dict, and so is `TaskInfo`, which tells of the tasks that are stored, taken and passed over.

Legend
    seat    Seat(epoch_id=...)    what the iterator and its queues share
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.multiprocessing
from torch.utils.data import _utils, dataloader
from torch.utils.data._utils.worker import _IterableDatasetStopIteration, _ResumeIteration

from minidl.events import (
    ASKED,
    EPOCH_BEGIN,
    EPOCH_END,
    ERROR_RAISED,
    KEYS_BEGIN,
    KEYS_DRAWN,
    LOADER,
    NO_CAPACITY,
    PIN_BEGIN,
    PIN_END,
    PIN_STOPPING,
    PRIMED,
    RECEIVED,
    RELEASED,
    RESUME_ACKNOWLEDGED,
    SAMPLER_END,
    SHUTDOWN_BEGIN,
    SHUTDOWN_END,
    STORED,
    TASK_LOST,
    TASK_SKIPPED,
    WORKER_DIED,
    WORKER_EXHAUSTED,
    YIELDED,
    emit,
)
from tracing.recording.torch_loader.attached import epochs_of
from tracing.recording.torch_loader.context import Context, Relay
from tracing.recording.torch_loader.queues import DataQueue, PinnedResults, ResultQueue, Seat
from tracing.recording.torch_loader.signals import put_deaths_off
from tracing.recording.torch_loader.worker import Fetcher

if TYPE_CHECKING:  # torch's own types know nothing of what is private
    from typing import Any as Base
    from typing import Any as ParallelBase
    from typing import Any as SerialBase
else:
    Base = dataloader._BaseDataLoaderIter
    SerialBase, ParallelBase = dataloader._SingleProcessDataLoaderIter, dataloader._MultiProcessingDataLoaderIter


def configuration(loader: Any) -> dict[str, Any]:
    """What LOADER tells, as minidl's loader does."""
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


class Telling(Base):
    """What both iterators say."""

    _seat: Seat
    _drawn = 0  # tasks in this epoch
    _pins_here = False  # this thread, as the last thing it does to a batch

    def _say_loader(self, loader: Any) -> None:
        self._epochs = epochs_of(loader)
        self._seat = Seat(self._epochs.next())
        emit(LOADER, self._seat.epoch_id, value=loader.num_workers, text=configuration(loader))

    def _next_index(self) -> Any:
        epoch_id, task = self._seat.epoch_id, self._drawn
        emit(KEYS_BEGIN, epoch_id, task)
        try:
            keys = super()._next_index()
        except StopIteration:
            emit(SAMPLER_END, epoch_id, value=task)
            raise
        emit(KEYS_DRAWN, epoch_id, task, text=keys)
        self._drawn = task + 1
        return keys

    def _next_data(self) -> Any:
        """One step. Here and not in `__next__`, whose warnings name the line that called it."""
        seat = self._seat
        emit(ASKED, seat.epoch_id)
        try:
            batch = super()._next_data()
        except StopIteration:
            emit(EPOCH_END, seat.epoch_id, value=self._num_yielded)
            raise
        except Exception as error:
            self._notice_deaths(str(error))
            emit(ERROR_RAISED, seat.epoch_id, text=repr(error))
            raise
        if self._pins_here:
            emit(PIN_END, seat.epoch_id, seat.task)
        emit(YIELDED, seat.epoch_id, seat.task, value=self._num_yielded + 1)
        return batch

    def _notice_deaths(self, text: str) -> None:
        """Without workers there are none."""


class Serial(Telling, SerialBase):
    """num_workers=0."""

    _dataset_fetcher: Any

    def __init__(self, loader: Any) -> None:
        self._say_loader(loader)
        super().__init__(loader)
        iterable = self._dataset_kind == dataloader._DatasetKind.Iterable
        self._dataset_fetcher = SerialFetcher(self._dataset_fetcher, iterable, self._seat)
        self._dataset_fetcher.pins = self._pins_here = bool(self._pin_memory)
        emit(EPOCH_BEGIN, self._seat.epoch_id, value=-1)

    def _next_index(self) -> Any:
        self._seat.task = self._drawn
        return super()._next_index()


class SerialFetcher(Fetcher):
    """What comes next in main is pinning, if anything."""

    pins = False

    def fetch(self, keys: Any) -> Any:
        batch = super().fetch(keys)
        if self.pins:
            emit(PIN_BEGIN, self.seat.epoch_id, self.seat.task)
        return batch


class Parallel(Telling, ParallelBase):
    """num_workers > 0."""

    _resuming = 0  # workers that have not acknowledged the new epoch
    _task_info = property(operator.attrgetter("_tasks"), lambda self, value: self._set_task_info(value))
    _data_queue = property(operator.attrgetter("_data"), lambda self, value: self._set_data_queue(value))

    def __init__(self, loader: Any) -> None:
        self._say_loader(loader)
        self._set_task_info({})
        self._died: set[int] = set()
        put_deaths_off()
        pins = loader.pin_memory and torch.accelerator.is_available()
        context = loader.multiprocessing_context or torch.multiprocessing
        super().__init__(Relay(loader, Context(context, self._seat, PinnedResults if pins else ResultQueue)))

    def _set_task_info(self, value: Any) -> None:
        self._tasks = TaskInfo(value, self._seat)

    def _set_data_queue(self, value: Any) -> None:
        """worker_result_queue, or with a pin thread a queue of its own."""
        results = self._worker_result_queue
        self._data = value if value is results else DataQueue(value, results)

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        seat, previous = self._seat, -1
        if not first_iter:
            previous, seat.epoch_id = seat.epoch_id, self._epochs.next()
            self._resuming = self._num_workers
        self._drawn = seat.outstanding = 0
        emit(EPOCH_BEGIN, seat.epoch_id, value=previous)
        super()._reset(loader, first_iter)
        emit(PRIMED, seat.epoch_id, value=self._send_idx)

    # ---- one step

    def _try_put_index(self) -> None:
        drawn, sent = self._drawn, self._send_idx
        super()._try_put_index()
        if self._drawn > drawn and self._send_idx == sent:
            emit(NO_CAPACITY, self._seat.epoch_id, sent)

    def _get_data(self) -> Any:
        idx, data = message = super()._get_data()
        seat, sender = self._seat, self._data.sender
        if self._resuming:
            if isinstance(idx, _ResumeIteration):  # else it is of the epoch before: it is dropped
                self._resuming -= 1
                emit(RESUME_ACKNOWLEDGED, seat.epoch_id, worker=sender, value=self._resuming)
            return message
        seat.outstanding -= 1
        emit(RECEIVED, seat.epoch_id, idx, sender, value=seat.outstanding)
        if isinstance(data, _IterableDatasetStopIteration):
            emit(WORKER_EXHAUSTED, seat.epoch_id, worker=data.worker_id)
        return message

    # ---- deaths

    def _mark_worker_as_unavailable(self, worker_id: int, shutdown: bool = False) -> None:
        if not shutdown and not self._workers[worker_id].is_alive():
            self._say_died(worker_id, None)
        super()._mark_worker_as_unavailable(worker_id, shutdown)

    def _notice_deaths(self, text: str) -> None:
        """An error was raised, maybe by the handler of SIGCHLD: torch says in it that a worker is dead."""
        for worker_id, available in enumerate(self._workers_status):
            if available and not self._workers[worker_id].is_alive():
                self._say_died(worker_id, text)

    def _say_died(self, worker_id: int, text: str | None) -> None:
        if worker_id not in self._died:
            self._died.add(worker_id)
            code = self._workers[worker_id].exitcode or 0
            emit(WORKER_DIED, self._seat.epoch_id, worker=worker_id, value=code, text=text)
            for task, info in self._tasks.items():
                if info == (worker_id,):
                    emit(TASK_LOST, self._seat.epoch_id, task, worker_id)

    # ---- the end

    def _shutdown_workers(self) -> None:
        # torch does nothing a second time, nor once the interpreter exits; the module may be gone by then.
        if getattr(self, "_shutdown", True) or getattr(_utils, "python_exit_status", True):
            super()._shutdown_workers()
            return
        epoch_id = self._seat.epoch_id
        emit(SHUTDOWN_BEGIN, epoch_id, value=len(self._tasks))
        if hasattr(self, "_pin_memory_thread"):
            emit(PIN_STOPPING, epoch_id)
        try:
            super()._shutdown_workers()
        finally:
            emit(SHUTDOWN_END, epoch_id)


def speaking(get_iterator: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """torch's `_get_iterator`, which finds our two iterators where torch's stand. (Not one of our own, so that its
    warnings name the lines that they always named.)"""
    classes: dict[str, type] = {}
    for ours, base in (Serial, SerialBase), (Parallel, ParallelBase):
        name = getattr(base, "__name__", "")
        ours.__name__ = ours.__qualname__ = name  # it stands in errors and profiles, too
        classes[name] = ours
    function: Any = get_iterator
    return types.FunctionType(function.__code__, {**function.__globals__, **classes}, function.__name__)


class TaskInfo(dict[int, Any]):
    """torch's `_task_info`: a task -> (worker_id,), and once its batch came early (worker_id, batch)."""

    def __init__(self, tasks: Any, seat: Seat) -> None:
        super().__init__(tasks)
        self._seat = seat

    def __setitem__(self, task: int, info: Any) -> None:
        if len(info) == 2:
            emit(STORED, self._seat.epoch_id, task, info[0], value=next(iter(self)))  # the first: sent in order
        dict.__setitem__(self, task, info)

    def pop(self, task: int) -> Any:  # type: ignore[override]
        info = dict.pop(self, task)
        self._seat.task = task
        if len(info) == 2:
            emit(RELEASED, self._seat.epoch_id, task, info[0])
        return info

    def __delitem__(self, task: int) -> None:
        emit(TASK_SKIPPED, self._seat.epoch_id, task, self[task][0])
        super().__delitem__(task)
