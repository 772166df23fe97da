"""torch's fetcher and the user's collate_fn, wrapped so that they emit. They are in each worker, or in main if there
are none."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import inspect
import io
import itertools
import pickle
import random
from collections.abc import Iterator
from typing import Any

import numpy
import torch.utils.data

from minidl import events
from minidl.events import NO_WORKER, describe, emit
from tracing.recording.loader_text import where_raised
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
        return emit_fetches(fetcher, kind, progress, worker)

    return type(Kinds.__name__, (Kinds,), {"create_fetcher": staticmethod(create_fetcher)})


def emit_fetches(fetcher: Any, kind: int, progress: Progress, worker: int = NO_WORKER, pins: bool = False) -> Any:
    """Make a fetcher emit. It stays the same object: a loader may read and set its attributes, as torchdata's does."""
    cls = type(fetcher)
    iterable = kind == Kinds.Iterable
    fetcher.__class__ = type(cls.__name__, (TracedFetcher, cls), {})
    fetcher.iterable, fetcher.progress, fetcher.worker, fetcher.pins = iterable, progress, worker, pins
    fetcher.collate_fn = TracedCollate(fetcher.collate_fn, progress, worker, iterable, fetcher.dataset)
    return fetcher


MANY_COLUMNS, LARGE = 16, 1 << 24  # of a tensor in which padding is looked for; bytes of one in which it is not
FIRST, NUMBERS = 32, 1024  # of how many samples there is a digest, and at most of how many numbers of each tensor


class TracedFetcher(Behind):
    """torch's fetcher, with what `emit_fetches` has given it. `pins`: whether it is in main, and main pins next."""

    def fetch(self, keys: Any) -> Any:
        progress, worker = self.progress, self.worker
        emit(events.FETCH_BEGIN, progress.epoch_id, progress.task, worker)
        try:
            batch = super().fetch(keys)
        except BaseException as error:  # KeyboardInterrupt too: a step that has begun must end
            if not (self.iterable and isinstance(error, StopIteration)):
                # A StopIteration ends the epoch, and its place is told nowhere else.
                text = where_raised(error) if isinstance(error, StopIteration) else describe(error, as_repr=False)
                emit(events.FETCH_FAILED, progress.epoch_id, progress.task, worker, text=text)
            elif worker != NO_WORKER:
                emit(events.STREAM_END, progress.epoch_id, progress.task, worker)
            raise
        if self.pins:
            emit(events.PIN_BEGIN, progress.epoch_id, progress.task)
        return batch


class TracedCollate:
    """collate_fn. When it is called the samples are there, so the fetch has ended."""

    def __init__(self, function: Any, progress: Progress, worker: int, iterable: bool, of: Any) -> None:
        """`of`: the dataset, after worker_init_fn."""
        self.function, self.progress, self.worker, self.iterable = function, progress, worker, iterable
        self.noted = -1  # the last epoch in which a batch's contents were noted
        self.before: list[tuple[str, str, Any, Any]] = []  # ("drawn", "transform.rng", Generator(PCG64), its digest)
        with contextlib.suppress(Exception):  # these are the user's objects
            found = [*GLOBAL, *parts(of), *parts(type(of), depth=1), *parts(inspect.getmodule(of), depth=1)]
            self.before = [(what, name, each, mark) for name, each in found for what, mark in marks(each, iterable)]

    def __call__(self, samples: Any) -> Any:
        epoch_id, task, worker = self.progress.epoch_id, self.progress.task, self.worker
        emit(events.FETCH_END, epoch_id, task, worker)
        emit(events.COLLATE_BEGIN, epoch_id, task, worker)
        batch = self.function(samples)
        emit(events.COLLATE_END, epoch_id, task, worker, text=self._note(samples, batch))
        return batch

    def _note(self, samples: Any, batch: Any) -> dict[str, Any] | None:
        """Of the first batch of an epoch: what it is made of; of a stream in a worker, digests of its first samples; of
        a worker's first batch, what it has used, and its marks before and after."""
        if self.noted == self.progress.epoch_id:
            return None
        self.noted = self.progress.epoch_id
        noted: dict[str, Any] = dict.fromkeys(("tensors", "bytes", "objects"), 0)
        with contextlib.suppress(Exception):  # these are the user's objects: a sparse tensor has no size
            count_contents(batch, noted)
        with contextlib.suppress(Exception):  # without tensors there is no padding
            noted["padding"] = padding_of(batch)
        with contextlib.suppress(Exception):  # what cannot be pickled cannot be compared
            for what, name, each, was in self.before:
                if (now := marks(each, self.iterable)) != [(what, was)]:
                    noted.setdefault(what, {})[name] = f"{was} → {now[0][1]}"
            if self.iterable and self.worker != NO_WORKER:
                first = samples[:FIRST] if isinstance(samples, list) else [samples]
                noted["samples"] = [digest_of(each) for each in first]
        return noted


class NumbersPickler(pickle.Pickler):
    """Pickles a tensor or an array as some of its numbers, from all of its parts: a sample may be large. (And torch
    pickles the address of a tensor's memory, too, which differs by process.)"""

    def reducer_override(self, thing: Any) -> Any:
        if isinstance(thing, (torch.Tensor, numpy.ndarray)):
            return list, (thing.ravel()[:: 1 + thing.nbytes // NUMBERS].tolist(),)
        return NotImplemented


def digest_of(samples: Any) -> str:
    file = io.BytesIO()
    NumbersPickler(file).dump(samples)
    return hashlib.blake2b(file.getvalue(), digest_size=8).hexdigest()


GENERATORS = (random.Random, numpy.random.Generator, numpy.random.RandomState, torch.Generator)
GLOBAL = ("random", random._inst), ("numpy.random", numpy.random.mtrand._rand), ("torch", torch.default_generator)
CACHES = (functools._lru_cache_wrapper, dict, list, set)
DEPTH, WIDTH = 4, 32  # how far to look into an object, and at how many items of a list, or attributes
INHERITED: set[int] = set()  # ids of what main's datasets consist of: forked workers have the same objects


def marks(thing: Any, of_stream: bool) -> list[tuple[str, Any]]:
    """What shows that a batch has used something that workers copy or share, and how far it was: a random generator
    ("drawn"), a cache ("grown"; a stream has buffers, not caches), a file whose position others share ("read")."""
    if isinstance(thing, GENERATORS):
        return [("drawn", digest_of(thing))]
    if isinstance(thing, CACHES) and not of_stream:
        _, _, most, size = thing.cache_info() if isinstance(thing, CACHES[0]) else (0, 0, None, len(thing))
        return [("grown", size if most is None else 0)]  # a bounded one forgets: whether all fits is not known
    shared = isinstance(thing, io.IOBase) and id(thing) in INHERITED
    return [("read", getattr(thing, "buffer", thing).tell())] if shared else []


def parts(thing: Any, name: str = "", depth: int = DEPTH) -> Iterator[tuple[str, Any]]:
    """What an object consists of, by name: ("transform.rng", Generator(PCG64)). Not what is in modules that it has."""
    yield name, thing
    if depth and not (name and inspect.ismodule(thing)):
        inner = enumerate(thing) if isinstance(thing, (list, tuple)) else getattr(thing, "__dict__", {}).items()
        for key, part in list(itertools.islice(inner, WIDTH if name or depth == DEPTH else None)):
            if not str(key).startswith("__"):
                yield from parts(part, f"{name}.{key}".lstrip("."), depth - 1)


def leaves(value: Any, depth: int = 0) -> Iterator[Any]:
    """What is in the containers that torch knows, and in dataclasses."""
    if dataclasses.is_dataclass(value):
        value = vars(value)
    if depth < 8 and isinstance(value, (list, tuple, dict)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from leaves(each, depth + 1)
    else:
        yield value


def padding_of(batch: Any) -> float:
    """Of a batch's largest tensor, shape (rows, columns, ...): the share that one value fills at the ends of its rows,
    the value in which they end most often. 0 if it is too large to look at."""
    largest = max((each for each in leaves(batch) if isinstance(each, torch.Tensor)), key=lambda each: int(each.nbytes))
    if largest.ndim < 2 or largest.shape[1] < MANY_COLUMNS or largest.nbytes >= LARGE:
        return 0.0
    same = (largest == largest[:, -1].flatten().mode().values).unflatten(-1, (-1, 1)).flatten(2).all(2)
    return float(same.flip(1).cumprod(1).float().mean())


def count_contents(batch: Any, noted: dict[str, Any]) -> None:
    """Count the tensors of a batch, other objects, and the bytes of both as far as they are known."""
    for leaf in leaves(batch):
        noted["bytes"] += getattr(leaf, "nbytes", 0)
        if isinstance(leaf, torch.Tensor):
            noted["tensors"] += 1
        else:
            noted["objects"] += 1
