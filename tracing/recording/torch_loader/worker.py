"""A worker of torch's loader, around torch's own `_worker_loop`: its queues, its worker_init_fn and its fetcher are
wrapped, and the loop runs as it is."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch.utils.data
from torch._utils import ExceptionWrapper
from torch.utils.data._utils.worker import _ResumeIteration

from minidl import events
from minidl.events import (
    COLLATE_BEGIN,
    COLLATE_END,
    FETCH_BEGIN,
    FETCH_END,
    FETCH_FAILED,
    INIT_FN_BEGIN,
    INIT_FN_END,
    NO_WORKER,
    PARENT_DIED,
    STOP,
    STREAM_END,
    WORKER_BEGIN,
    WORKER_END,
    WORKER_READY,
    WORKER_RESUMED,
    WORKER_SEEDED,
    Queue,
    emit,
)
from tracing.recording.torch_loader.queues import Seat, TracedQueue, tell_of_send_failures

STOPPED, PARENT_IS_DEAD, INTERRUPTED = 0, 1, 2  # why a worker left its loop: WORKER_END's value
Kinds: Any = torch.utils.data._DatasetKind


@dataclass(frozen=True)
class Job:
    """What a worker is told beside torch's own arguments. Under spawn and forkserver it is pickled."""

    recorder: events.Recorder | None
    epoch_id: int  # the first epoch's
    worker_id: int
    surroundings: Callable[[], AbstractContextManager[None]]  # what torch's loop runs within: see attached.in_workers


def run(job: Job, worker_loop: Callable[..., None], args: tuple[Any, ...]) -> None:
    """The worker's process. Takes over main's recorder, and lends torch's loop ends of the queues that speak."""
    events.install(job.recorder)
    events.number_loaders_from(os.getpid())
    parent = os.getppid()
    emit(WORKER_BEGIN, job.epoch_id, worker=job.worker_id, value=os.getpid())
    seat = Seat(job.epoch_id)
    bound = inspect.signature(worker_loop).bind(*args)
    own = bound.arguments
    index_queue = WorkersIndexQueue(own["index_queue"], job.worker_id, seat)
    tell_of_send_failures(own["data_queue"], Queue.RESULT)
    own["index_queue"] = index_queue
    own["data_queue"] = WorkersResultQueue(own["data_queue"], job.worker_id, seat)
    own["init_fn"] = InitFn(own["init_fn"], job)
    torch.utils.data._DatasetKind = telling_kinds(seat, job.worker_id)  # type: ignore[misc]  # where the loop finds it
    with job.surroundings():
        worker_loop(*bound.args, **bound.kwargs)
    end = STOPPED if seat.task == STOP else INTERRUPTED
    if end is INTERRUPTED and os.getppid() != parent:
        end = PARENT_IS_DEAD
        emit(PARENT_DIED, seat.epoch_id, worker=job.worker_id)
    emit(WORKER_END, seat.epoch_id, worker=job.worker_id, value=end)


class WorkersIndexQueue(TracedQueue):
    """Its end of index_queue."""

    name = Queue.INDEX
    follows = True
    _ready = False

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if not self._ready:
            self._ready = True
            emit(WORKER_READY, self.seat.epoch_id, worker=self.worker)
        return super().get(block, timeout)


class WorkersResultQueue(TracedQueue):
    """Its end of worker_result_queue."""

    name = Queue.RESULT

    def put(self, message: Any, block: bool = True, timeout: float | None = None) -> None:
        idx, data = message
        if isinstance(idx, _ResumeIteration):
            emit(WORKER_RESUMED, self.seat.epoch_id, worker=self.worker)
        elif isinstance(data, ExceptionWrapper):
            data.exc_msg = without_frames_of_ours(data.exc_msg)
        super().put(message, block, timeout)


OURS = re.compile(rf'  File "{re.escape(str(Path(__file__).parent))}[^"]*", line \d+, in .*\n(?:    .*\n)*')


def without_frames_of_ours(text: str) -> str:
    """A traceback as torch would have made it."""
    return OURS.sub("", text)


class InitFn:
    """worker_init_fn. Called right after the seeding, also if the user has none."""

    def __init__(self, function: Callable[[int], None] | None, job: Job) -> None:
        self.function, self.job = function, job

    def __call__(self, worker_id: int) -> None:
        epoch_id = self.job.epoch_id
        info = torch.utils.data.get_worker_info()
        emit(WORKER_SEEDED, epoch_id, worker=worker_id, value=info.seed if info else 0)
        if self.function is not None:
            emit(INIT_FN_BEGIN, epoch_id, worker=worker_id)
            try:
                self.function(worker_id)
            except Exception as error:
                emit(FETCH_FAILED, epoch_id, worker=worker_id, text=describe(error))
                raise
            finally:
                emit(INIT_FN_END, epoch_id, worker=worker_id)


# ---- the fetcher, in a worker or in main


def telling_kinds(seat: Seat, worker: int) -> Any:
    """torch's `_DatasetKind`, whose fetchers say what they do."""

    def create_fetcher(kind: int, *args: Any) -> Fetcher:
        try:
            fetcher = Kinds.create_fetcher(kind, *args)
        except Exception as error:  # an iterable dataset could not be iterated
            emit(FETCH_FAILED, seat.epoch_id, worker=worker, text=describe(error))
            raise
        return Fetcher(fetcher, kind == Kinds.Iterable, seat, worker)

    return type(Kinds.__name__, (Kinds,), {"create_fetcher": staticmethod(create_fetcher)})


class Fetcher:
    """torch's fetcher. What it holds else is to be had here as well."""

    def __init__(self, fetcher: Any, iterable: bool, seat: Seat, worker: int = NO_WORKER) -> None:
        self.fetcher, self.iterable, self.seat, self.worker = fetcher, iterable, seat, worker
        fetcher.collate_fn = Collate(fetcher.collate_fn, seat, worker)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.fetcher, name)

    def fetch(self, keys: Any) -> Any:
        seat, worker = self.seat, self.worker
        emit(FETCH_BEGIN, seat.epoch_id, seat.task, worker)
        try:
            return self.fetcher.fetch(keys)
        except BaseException as error:  # KeyboardInterrupt too: a step that has begun must be seen to end
            if not (self.iterable and isinstance(error, StopIteration)):
                emit(FETCH_FAILED, seat.epoch_id, seat.task, worker, text=describe(error))
            elif worker != NO_WORKER:
                emit(STREAM_END, seat.epoch_id, seat.task, worker)
            raise


class Collate:
    """collate_fn: it begins when the samples are there."""

    def __init__(self, function: Callable[[Any], Any], seat: Seat, worker: int) -> None:
        self.function, self.seat, self.worker = function, seat, worker

    def __call__(self, samples: Any) -> Any:
        epoch_id, task, worker = self.seat.epoch_id, self.seat.task, self.worker
        emit(FETCH_END, epoch_id, task, worker)
        emit(COLLATE_BEGIN, epoch_id, task, worker)
        batch = self.function(samples)
        emit(COLLATE_END, epoch_id, task, worker)
        return batch


def describe(error: BaseException) -> str:
    """An exception in short. Never raises, or it would hide the error that it describes."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__
