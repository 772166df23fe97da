"""Datasets that many tests load: one of map style, one of iterable style. What differs is given as functions.

Legend
    Samples(4)                           0, 1, 2, 3
    Samples(4, torch.tensor)             tensor(0), …: sample k is `make(k)`
    Samples(4, napping(0.01))            0, 1, 2, 3, and each takes 10 ms
    Samples(4, at={2: lock.acquire})     ... `at[2]()` is called before sample 2 is made: it waits, dies or fails
    Samples(4, at={2: failing(KeyError("no 2"))})

    Stream(Samples(4))                   the same, one after the other: each worker has all of them
    Stream(Samples(4), dealt)            ... dealt out: worker 0 of two has 0 and 2, worker 1 has 1 and 3
    Stream(Samples(8), dealt_in_pairs)   ... in pairs: worker 0 of two has 0, 1, 4 and 5
    Stream(Samples(9), first_of(3, 9))   ... worker 0 has the first 3, worker 1 and those after it the first 9
    Stream(range(4))                     what is iterated over may be anything with a length and samples

Everything has a name at module level, so that a spawned worker finds it.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch.utils.data


def same(key: Any) -> Any:
    return key


class Samples(torch.utils.data.Dataset[Any]):
    """Map style: `size` samples."""

    def __init__(
        self, size: int, make: Callable[[Any], Any] = same, at: Mapping[int, Callable[[], Any]] | None = None
    ) -> None:
        self.size, self.make, self.at = size, make, at or {}

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, key: Any) -> Any:
        if key in self.at:
            self.at[key]()
        return self.make(key)


def nap(seconds: float, key: Any) -> Any:
    time.sleep(seconds)
    return key


def napping(seconds: float) -> Callable[[Any], Any]:
    """Sample k is k, after a nap."""
    return functools.partial(nap, seconds)


def fail(error: BaseException, *_: Any) -> Any:
    raise error


def failing(error: BaseException) -> Callable[..., Any]:
    """For `at`, or as a collate_fn."""
    return functools.partial(fail, error)


# ---- iterable style: which keys worker 0, 1, … of how many workers has. In main: worker 0 of one.

Share = Callable[[int, int, int], Sequence[int]]


def whole(size: int, worker_id: int, workers: int) -> Sequence[int]:
    return range(size)


def dealt(size: int, worker_id: int, workers: int) -> Sequence[int]:
    return range(worker_id, size, workers)


def dealt_in_pairs(size: int, worker_id: int, workers: int) -> Sequence[int]:
    return [key for key in range(size) if key // 2 % workers == worker_id]


def first_keys(counts: tuple[int, ...], size: int, worker_id: int, workers: int) -> Sequence[int]:
    return range(min(size, counts[min(worker_id, len(counts) - 1)]))


def first_of(*counts: int) -> Share:
    return functools.partial(first_keys, counts)


class Stream(torch.utils.data.IterableDataset[Any]):
    """Iterable style: the samples of a map-style dataset, of which each worker yields its share."""

    def __init__(self, samples: Any, share: Share = whole) -> None:
        self.samples, self.share = samples, share

    def keys(self) -> Sequence[int]:
        """Of this worker's share."""
        info = torch.utils.data.get_worker_info()
        worker_id, workers = (info.id, info.num_workers) if info else (0, 1)
        return self.share(len(self.samples), worker_id, workers)

    def __iter__(self) -> Iterator[Any]:
        for key in self.keys():
            yield self.samples[key]
