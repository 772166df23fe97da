"""A worker: torch's own `_worker_loop` runs as it is, with its queues, its worker_init_fn and its fetcher wrapped."""

from __future__ import annotations

import inspect
import os
import re
import traceback
from collections.abc import Callable
from typing import Any

import torch.utils.data
from torch._utils import ExceptionWrapper

from minidl import events
from minidl.events import RESUME, STOP, describe, emit
from tracing.recording.torch_loader.common import Progress
from tracing.recording.torch_loader.fetcher import emitting_kinds
from tracing.recording.torch_loader.queues import IndexQueue, ResultQueue, content, emit_send_failures, label

STOPPED, PARENT_IS_DEAD, INTERRUPTED, FAILED = 0, 1, 2, 3  # why a worker left its loop: WORKER_END's value


def run(
    recorder: events.Recorder | None, epoch_id: int, worker_id: int, worker_loop: Callable[..., None], *args: Any
) -> None:
    """The worker's process: take over main's recorder, and give torch's loop parts that emit. Under spawn and
    forkserver all arguments are pickled; `args` are torch's own. `epoch_id` is the first epoch's."""
    events.install(recorder)
    events.number_loaders_from(os.getpid())
    parent = os.getppid()
    emit(events.WORKER_BEGIN, epoch_id, worker=worker_id, value=os.getpid())
    progress = Progress(epoch_id)
    bound = inspect.signature(worker_loop).bind(*args)
    own = bound.arguments
    own["index_queue"] = WorkersIndexQueue(own["index_queue"], progress, worker_id)
    emit_send_failures(own["data_queue"])
    own["data_queue"] = WorkersResultQueue(own["data_queue"], progress, worker_id)
    own["init_fn"] = emitting_init_fn(own["init_fn"], epoch_id)
    torch.utils.data._DatasetKind = emitting_kinds(progress, worker_id)  # type: ignore[misc]  # where the loop looks it up
    try:
        worker_loop(*bound.args, **bound.kwargs)
    except Exception:  # not the dataset's, which the loop passes on: main only learns that the worker has exited
        emit(events.WORKER_END, progress.epoch_id, worker=worker_id, value=FAILED, text=traceback.format_exc())
        raise
    end = STOPPED if progress.task == STOP else INTERRUPTED
    if end is INTERRUPTED and os.getppid() != parent:
        end = PARENT_IS_DEAD
        emit(events.PARENT_DIED, progress.epoch_id, worker=worker_id)
    emit(events.WORKER_END, progress.epoch_id, worker=worker_id, value=end)


class WorkersIndexQueue(IndexQueue):
    """The worker's end of index_queue."""

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if self.tap is None:  # for the first time
            emit(events.WORKER_READY, self.progress.epoch_id, worker=self.worker)
        message = super().get(block, timeout)
        self.progress.epoch_id, self.progress.task = self.epoch_id, label(message)  # what it works on next
        return message


class WorkersResultQueue(ResultQueue):
    """The worker's end of worker_result_queue."""

    def put(self, message: Any, block: bool = True, timeout: float | None = None) -> None:
        if self.progress.task == RESUME:
            emit(events.WORKER_RESUMED, self.progress.epoch_id, worker=self.worker)
        elif isinstance(error := content(message[1]), ExceptionWrapper):
            error.exc_msg = OURS.sub("", error.exc_msg)  # the traceback as torch alone would have made it
        super().put(message, block, timeout)


OURS = re.compile(rf'  File "{re.escape(os.path.dirname(__file__))}[^"]*", line \d+, in .*\n(?:    .*\n)*')


def emitting_init_fn(function: Callable[[int], None] | None, epoch_id: int) -> Callable[[int], None]:
    """worker_init_fn, which emits. torch calls it right after seeding, and ours even if the user has none."""

    def init_fn(worker_id: int) -> None:
        info = torch.utils.data.get_worker_info()
        emit(events.WORKER_SEEDED, epoch_id, worker=worker_id, value=info.seed if info else 0)
        if function is not None:
            emit(events.INIT_FN_BEGIN, epoch_id, worker=worker_id)
            try:
                function(worker_id)
            except Exception as error:
                emit(events.FETCH_FAILED, epoch_id, worker=worker_id, text=describe(error, as_repr=False))
                emit(events.INIT_FN_END, epoch_id, worker=worker_id)
                raise
            emit(events.INIT_FN_END, epoch_id, worker=worker_id)  # not after Ctrl-C: it has not returned

    return init_fn
