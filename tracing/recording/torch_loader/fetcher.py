"""torch's fetcher and the user's collate_fn, wrapped so that they emit. They are in each worker, or in main if there
are none."""

from __future__ import annotations

import contextlib
import hashlib
import io
import pickle
from collections.abc import Callable
from typing import Any

import torch.utils.data

from minidl import events
from minidl.events import NO_WORKER, describe, emit
from tracing.recording.torch_loader.common import Behind, Progress

Kinds: Any = torch.utils.data._DatasetKind


def emitting_kinds(progress: Progress, worker: int) -> Any:
    """torch's `_DatasetKind`, with fetchers that emit what they do."""

    def create_fetcher(kind: int, *args: Any) -> Any:
        try:
            fetcher = Kinds.create_fetcher(kind, *args)
        except Exception as error:  # an iterable dataset could not be iterated
            emit(events.FETCH_FAILED, progress.epoch_id, worker=worker, text=describe(error, as_repr=False))
            raise
        return emit_fetches(fetcher, kind == Kinds.Iterable, progress, worker)

    return type(Kinds.__name__, (Kinds,), {"create_fetcher": staticmethod(create_fetcher)})


def emit_fetches(fetcher: Any, iterable: bool, progress: Progress, worker: int = NO_WORKER, pins: bool = False) -> Any:
    """Make a fetcher emit. It stays the same object: a loader may read and set its attributes, as torchdata's does."""
    cls = type(fetcher)
    fetcher.__class__ = type(cls.__name__, (TracedFetcher, cls), {})
    fetcher.iterable, fetcher.progress, fetcher.worker, fetcher.pins = iterable, progress, worker, pins
    fetcher.collate_fn = TracedCollate(fetcher.collate_fn, progress, worker, iterable)
    return fetcher


FIRST, NUMBERS = 4, 256  # the samples of a stream, and the numbers of each tensor, that a digest covers


class TracedFetcher(Behind):
    """torch's fetcher."""

    iterable: bool
    progress: Progress
    worker: int
    pins: bool  # whether it is in main, and main pins next

    def fetch(self, keys: Any) -> Any:
        progress, worker = self.progress, self.worker
        emit(events.FETCH_BEGIN, progress.epoch_id, progress.task, worker)
        try:
            batch = super().fetch(keys)
        except BaseException as error:  # KeyboardInterrupt too: a step that has begun must end
            if not (self.iterable and isinstance(error, StopIteration)):
                words = describe(error, as_repr=False)
                emit(events.FETCH_FAILED, progress.epoch_id, progress.task, worker, text=words)
            elif worker != NO_WORKER:
                emit(events.STREAM_END, progress.epoch_id, progress.task, worker)
            raise
        if self.pins:
            emit(events.PIN_BEGIN, progress.epoch_id, progress.task)
        return batch


class TracedCollate:
    """collate_fn. When it is called the samples are there, so the fetch has ended."""

    def __init__(self, function: Callable[[Any], Any], progress: Progress, worker: int, iterable: bool) -> None:
        self.function, self.progress, self.worker, self.iterable = function, progress, worker, iterable
        self.noted = -1  # the last epoch in which a batch's contents were noted

    def __call__(self, samples: Any) -> Any:
        epoch_id, task, worker = self.progress.epoch_id, self.progress.task, self.worker
        emit(events.FETCH_END, epoch_id, task, worker)
        emit(events.COLLATE_BEGIN, epoch_id, task, worker)
        batch = self.function(samples)
        emit(events.COLLATE_END, epoch_id, task, worker, text=self._note(samples, batch))
        return batch

    def _note(self, samples: Any, batch: Any) -> dict[str, Any] | None:
        """Of the first batch of an epoch: what it is made of, and a digest of its samples. Samples with keys, if all
        the same (zeros, to try a model), are not compared with those of other workers."""
        if self.noted == self.progress.epoch_id:
            return None
        self.noted = self.progress.epoch_id
        noted: dict[str, Any] = dict.fromkeys(("tensors", "bytes", "objects"), 0)
        count_contents(batch, noted)
        if self.worker != NO_WORKER:
            samples = samples[:FIRST] if isinstance(samples, list) else [samples]
            with contextlib.suppress(Exception):  # what cannot be pickled cannot be compared
                if self.iterable or len({digest_of(each) for each in samples}) > 1:
                    noted["first"] = digest_of(samples)
        return noted


class NumbersPickler(pickle.Pickler):
    """Pickles a tensor as its first numbers: torch pickles the address of its memory, too, which differs by process."""

    def reducer_override(self, thing: Any) -> Any:
        if isinstance(thing, torch.Tensor):
            return list, (thing.flatten()[:NUMBERS].tolist(),)
        return NotImplemented


def digest_of(samples: Any) -> str:
    file = io.BytesIO()
    NumbersPickler(file).dump(samples)
    return hashlib.blake2b(file.getvalue(), digest_size=8).hexdigest()


def count_contents(value: Any, noted: dict[str, Any], depth: int = 0) -> None:
    """Count the tensors of a batch, their bytes, and other objects, in the containers that torch knows."""
    if isinstance(value, torch.Tensor):
        noted["tensors"] += 1
        noted["bytes"] += value.nbytes
    elif depth < 8 and isinstance(value, (list, tuple, dict)):
        for each in value.values() if isinstance(value, dict) else value:
            count_contents(each, noted, depth + 1)
    else:
        noted["objects"] += 1
