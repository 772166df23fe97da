"""Main: torch's two iterators, which emit what they do.

Each method here emits an event and calls the one behind it: `emitting` puts Serial or Parallel in front of the class
that the loader makes its iterators of. Some steps have no method in torch: it stores, takes and skips tasks by setting,
popping and deleting items of the dict `_task_info`. So that dict is replaced by one that emits: TaskInfo.

The class need not be torch's. It may inherit torch's, or be a rewrite of it, as torchdata's are.

Legend
    progress    Progress(epoch_id=...)    how far the iterator is; its queues share it
"""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch.multiprocessing
from torch.utils.data import _utils

from minidl import events
from minidl.events import NO_TASK, emit
from tracing.recording.torch_loader.common import Behind, Progress, next_epoch_of
from tracing.recording.torch_loader.fetcher import INHERITED, emit_fetches, parts
from tracing.recording.torch_loader.multiprocessing_context import TracedContext, in_context
from tracing.recording.torch_loader.queues import DataQueue, content, has_ended


@functools.cache
def emitting(cls: type, has_workers: bool) -> type | None:
    """A subclass of `cls`, a class of iterators, that emits. None if `cls` does not work as torch's do."""
    known: type[Serial | Parallel] = Parallel if has_workers else Serial
    methods = [each for base in cls.__mro__ for each in vars(base).values() if isinstance(each, FunctionType)]
    used = {name for method in methods for name in method.__code__.co_names}  # the attributes' among them
    if not used.issuperset(known.WORKS_BY):
        return None
    # Under its own name, which errors and profiles show.
    names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__}
    return type(cls)(cls.__name__, (known, cls), names)


def assigned(emitting: Callable[[Any, Any], Any]) -> Any:
    """Where torch assigns the attribute of this name, an object that emits takes the place of what it assigns."""
    name = f"_emitting{emitting.__name__}"

    def assign(iterator: Any, value: Any) -> None:
        setattr(iterator, name, emitting(iterator, value))

    return property(lambda iterator: getattr(iterator, name), assign)


_loaders = itertools.count()  # that have ended an epoch


def kept_in_a_cycle(iterator: Any, progress: Progress) -> bool | None:
    """Whether an itertools.cycle has this pass over the loader, its first: it will never ask for another."""
    first = not progress.epoch_id & 0xFFFFFFFF and next(_loaders) < 16  # (this looks at all of Python's objects)
    return (first and any(isinstance(each, itertools.cycle) for each in gc.get_referrers(iterator))) or None


class Emitting(Behind):
    """What both iterators emit."""

    _drawn = 0  # tasks in this epoch

    def _begin_to_emit(self, loader: Any) -> None:
        """Before `__init__`."""
        self._progress = Progress(next_epoch_of(loader))

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
            emit(events.EPOCH_END, progress.epoch_id, value=self._num_yielded, text=kept_in_a_cycle(self, progress))
            raise
        except Exception as error:
            self._notice_deaths(str(error))
            emit(events.ERROR_RAISED, progress.epoch_id, text=repr(error))
            raise
        if self._pin_memory and not self._num_workers:  # this thread has pinned, as the last thing it does to a batch
            emit(events.PIN_END, progress.epoch_id, progress.task)
        emit(events.YIELDED, progress.epoch_id, progress.task, value=self._num_yielded + 1)
        return batch

    def _notice_deaths(self, text: str | None) -> None:
        """Without workers there are none."""


class Serial(Emitting):
    """num_workers=0."""

    WORKS_BY = "_next_data", "_next_index", "_dataset_fetcher"

    @assigned
    def _dataset_fetcher(self, fetcher: Any) -> Any:
        """The last thing that torch makes before the first step."""
        emitting_fetcher = emit_fetches(fetcher, self._dataset_kind, self._progress, pins=self._pin_memory)
        emit(events.EPOCH_BEGIN, self._progress.epoch_id, value=-1)
        return emitting_fetcher

    def _next_index(self) -> Any:
        self._progress.task = self._drawn  # what follows, up to the yield, is work on this task
        return super()._next_index()


class Parallel(Emitting):
    """num_workers > 0."""

    WORKS_BY = (
        "_next_data", "_next_index", "_task_info", "_worker_result_queue", "_reset", "_get_data",
        "_mark_worker_as_unavailable", "_shutdown_workers",
    )  # fmt: skip
    _resuming = 0  # workers that have not acknowledged the new epoch

    def _begin_to_emit(self, loader: Any) -> None:
        super()._begin_to_emit(loader)
        self._died: set[int] = set()
        with contextlib.suppress(Exception):  # these are the user's objects
            INHERITED.update(id(each) for _, each in parts(loader.dataset) if loader.num_workers > 1)
        context = loader.multiprocessing_context or torch.multiprocessing
        self._seen_in_context = in_context(loader, TracedContext(context, self._progress))

    def __init__(self, loader: Any, *args: Any, **options: Any) -> None:
        super().__init__(self._seen_in_context, *args, **options)
        del self._seen_in_context

    @assigned
    def _task_info(self, tasks: dict[int, Any]) -> Any:
        return TaskInfo(tasks, self._progress)

    @assigned
    def _data_queue(self, queue: Any) -> Any:
        """With a pin thread it is a queue of its own, else worker_result_queue, which emits already."""
        results = self._worker_result_queue
        return queue if queue is results else DataQueue(queue, results)

    def _reset(self, loader: Any, first_iter: bool = False, *args: Any, **options: Any) -> None:
        progress, previous = self._progress, -1
        # Of attributes that are numbers or text, and of the lengths of containers, it can be seen whether the program
        # changes them. (NaN only by its text: it differs from itself.)
        own = getattr(self._dataset, "__dict__", {}).items()
        values = ((name, len(each) if isinstance(each, list | tuple | dict | set) else each) for name, each in own)
        now = {name: hash(repr(value)) for name, value in values if isinstance(value, int | float | str)}
        if first_iter:
            self._sent = now  # what the workers got
        else:
            previous, progress.epoch_id = progress.epoch_id, next_epoch_of(loader)
            self._resuming = self._num_workers
        self._drawn = progress.outstanding = 0
        changed = [name for name, value in now.items() if self._sent.get(name, value) != value]
        emit(events.EPOCH_BEGIN, progress.epoch_id, value=previous, text=changed or None)
        super()._reset(loader, first_iter, *args, **options)
        emit(events.PRIMED, progress.epoch_id, value=self._send_idx)

    # ---- one step

    def _get_data(self) -> Any:
        idx, data = message = super()._get_data()
        progress, sender = self._progress, self._data_queue.sender
        acknowledges = type(idx) is not int
        if acknowledges:
            self._resuming = max(0, self._resuming - 1)  # torchdata's do so at their first epoch, too
            emit(events.RESUME_ACKNOWLEDGED, progress.epoch_id, worker=sender, value=self._resuming)
        if self._resuming or acknowledges:  # while resuming, any other message is old: torch drops it
            return message
        progress.outstanding -= 1
        emit(events.RECEIVED, progress.epoch_id, idx, sender, value=progress.outstanding)
        ended = has_ended(data)
        if ended:
            emit(events.WORKER_EXHAUSTED, progress.epoch_id, worker=content(data).worker_id)
        progress.task = NO_TASK if ended else idx
        return message

    # ---- deaths

    def _mark_worker_as_unavailable(self, worker_id: int, shutdown: bool = False) -> None:
        if not shutdown:
            self._notice_deaths(None)  # for a dead one, too, torch calls this, and raises then
        super()._mark_worker_as_unavailable(worker_id, shutdown)

    def _notice_deaths(self, text: str | None) -> None:
        """`text`: of an error, perhaps raised by the handler of SIGCHLD, whose message is that a worker is dead; None:
        torch itself is looking."""
        for worker_id, process in enumerate(self._workers):
            if self._workers_status[worker_id] and worker_id not in self._died and not process.is_alive():
                self._died.add(worker_id)
                code = process.exitcode or 0
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
        # There is no `_task_info` yet if a worker could not be started.
        emit(events.SHUTDOWN_BEGIN, self._progress.epoch_id, value=len(getattr(self, "_task_info", ())))
        if hasattr(self, "_pin_memory_thread"):
            emit(events.PIN_STOPPING, self._progress.epoch_id)
        try:
            super()._shutdown_workers()
        finally:
            emit(events.SHUTDOWN_END, self._progress.epoch_id)


class TaskInfo(dict[int, Any]):
    """torch's `_task_info`: task -> (worker_id,), or (worker_id, batch) once its batch came early.

    What torch does to an item is a step of the task: it sets the second form to store the batch in the reorder buffer,
    pops the item to return the batch, and deletes it to skip a task whose worker's stream has ended. torchdata also
    deletes it to return a batch that it has just received, and stores the end of a stream.
    """

    def __init__(self, tasks: dict[int, Any], progress: Progress) -> None:
        super().__init__(tasks)
        self._progress = progress
        progress.task = NO_TASK  # an epoch begins

    def __setitem__(self, task: int, info: Any) -> None:
        if len(info) == 2 and not has_ended(info[1]):
            awaited = next(iter(self))  # the first one: tasks are sent in order
            emit(events.STORED, self._progress.epoch_id, task, info[0], value=awaited)
        super().__setitem__(task, info)

    def pop(self, task: int) -> Any:  # type: ignore[override]
        info = super().pop(task)
        self._progress.task = task  # in order or not: whose batch torch returns next
        if len(info) == 2:
            kind = events.TASK_SKIPPED if has_ended(info[1]) else events.RELEASED
            emit(kind, self._progress.epoch_id, task, info[0])
        return info

    def __delitem__(self, task: int) -> None:
        if task != self._progress.task:  # else it was just received, and is returned next
            emit(events.TASK_SKIPPED, self._progress.epoch_id, task, self[task][0])
        super().__delitem__(task)
