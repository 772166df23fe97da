"""torch's fetcher and the user's collate_fn, wrapped so that they emit. They are in each worker, or in main if there
are none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.utils.data

from minidl import events
from minidl.events import NO_WORKER, emit
from tracing.recording.torch_loader.progress import Progress
from tracing.recording.torch_loader.wrapper import Wrapper

Kinds: Any = torch.utils.data._DatasetKind


def emitting_kinds(progress: Progress, worker: int) -> Any:
    """torch's `_DatasetKind`, with fetchers that emit what they do."""

    def create_fetcher(kind: int, *args: Any) -> TracedFetcher:
        try:
            fetcher = Kinds.create_fetcher(kind, *args)
        except Exception as error:  # an iterable dataset could not be iterated
            emit(events.FETCH_FAILED, progress.epoch_id, worker=worker, text=describe(error))
            raise
        return TracedFetcher(fetcher, kind == Kinds.Iterable, progress, worker)

    return type(Kinds.__name__, (Kinds,), {"create_fetcher": staticmethod(create_fetcher)})


class TracedFetcher(Wrapper):
    """torch's fetcher."""

    def __init__(self, fetcher: Any, iterable: bool, progress: Progress, worker: int = NO_WORKER) -> None:
        super().__init__(fetcher)
        self.iterable, self.progress, self.worker = iterable, progress, worker
        fetcher.collate_fn = TracedCollate(fetcher.collate_fn, progress, worker)

    def fetch(self, keys: Any) -> Any:
        progress, worker = self.progress, self.worker
        emit(events.FETCH_BEGIN, progress.epoch_id, progress.task, worker)
        try:
            return self.wrapped.fetch(keys)
        except BaseException as error:  # KeyboardInterrupt too: a step that has begun must end
            if not (self.iterable and isinstance(error, StopIteration)):
                emit(events.FETCH_FAILED, progress.epoch_id, progress.task, worker, text=describe(error))
            elif worker != NO_WORKER:
                emit(events.STREAM_END, progress.epoch_id, progress.task, worker)
            raise


class TracedCollate:
    """collate_fn. When it is called the samples are there, so the fetch has ended."""

    def __init__(self, function: Callable[[Any], Any], progress: Progress, worker: int) -> None:
        self.function, self.progress, self.worker = function, progress, worker

    def __call__(self, samples: Any) -> Any:
        epoch_id, task, worker = self.progress.epoch_id, self.progress.task, self.worker
        emit(events.FETCH_END, epoch_id, task, worker)
        emit(events.COLLATE_BEGIN, epoch_id, task, worker)
        batch = self.function(samples)
        emit(events.COLLATE_END, epoch_id, task, worker)
        return batch


def describe(error: BaseException) -> str:
    """An exception in short. Never raises, or it would hide the error that it describes."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__
