"""Programs that run in torch's loader and in minidl's: datasets, ways to sample them, functions to give them.

Everything here has a name at module level, so that spawn and forkserver can pickle it. `parts` is minidl or
torch.utils.data: whose classes are used.
"""

from __future__ import annotations

import random
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

import numpy as np
import torch
import torch.utils.data

import minidl
from tests.samples import Samples

TORCH: ModuleType = torch.utils.data

Point = namedtuple("Point", ["x", "label"])


# ---- datasets


class Squares:
    """Map-style without a base class: nested samples of several types."""

    def __init__(self, size: int = 23) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, key: int) -> Any:
        return {
            "x": torch.arange(3, dtype=torch.float64) * key,
            "point": Point(np.float32(key), (key, f"sample {key}")),
            "image": np.full((2, 2), key, dtype=np.int16),
            "scale": key / 3,
        }


class Whole(Squares):
    """Fetches a batch at once. `__getitem__` is for batch_size=None."""

    def __getitem__(self, key: int) -> Any:
        return torch.tensor([key]), "one"

    def __getitems__(self, keys: list[int]) -> Any:
        return [(torch.tensor([key, len(keys)]), "many") for key in keys]


def noise(key: int) -> Any:
    """A random transform that draws from all three generators."""
    return key, torch.rand(2), torch.from_numpy(np.random.rand(2)), random.random()


def informed(key: int) -> Any:
    """What both packages' get_worker_info() return, and how many threads torch may use."""
    known = [describe_worker(package.get_worker_info()) for package in (TORCH, minidl)]
    return [*known, key, torch.get_num_threads()]


def describe_worker(info: Any) -> str:
    if info is None:
        return "main"
    return f"worker {info.id} of {info.num_workers}, seed {info.seed}, {type(info.dataset).__name__}"


class Faulty(Squares):
    """Some keys raise, each something else: an error, or what this type makes."""

    def __init__(self, errors: Mapping[int, BaseException | type[BaseException]]) -> None:
        super().__init__(23)
        self.errors = errors

    def __getitem__(self, key: int) -> Any:
        if key in self.errors:
            raise self.errors[key]
        return key


class Needy(Exception):
    """Cannot be made from a message alone."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{code}: {reason}")


class WithMessage(Exception):
    """Takes its text by keyword, which torch's ExceptionWrapper knows of."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.message = message


class Unspeakable(Exception):
    """An error that itself fails, as one does whose text is made of something that is gone."""

    def __init__(self, *_: Any) -> None:
        pass

    def __str__(self) -> str:
        raise LookupError("no words")

    __repr__ = __str__


class Unprintable(Exception):
    def __str__(self) -> str:
        if not self.args:
            raise RuntimeError("no text")
        return super().__str__()


ODD_ERRORS = [
    KeyError(("a", 1)),
    OSError(5, "io", "name"),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
    WithMessage("hello", code=3),
    Unprintable,
    StopIteration(5),
    ValueError(ValueError("inner")),
    UserWarning("raised"),
]


def streams(parts: ModuleType) -> Any:
    """The base class of an iterable dataset in either package, as a name that pickles."""
    return MinidlStream if parts is minidl else TorchStream


class StreamCode:
    """What both streams do: `size` samples, or a share of them for each worker, made by `make`."""

    def __init__(
        self, size: int = 11, share: bool = False, make: Callable[[int], Any] = int, error_at: int | None = None
    ) -> None:
        self.size, self.share, self.make, self.error_at = size, share, make, error_at

    def __iter__(self) -> Iterator[Any]:
        info = TORCH.get_worker_info()
        first, end = 0, self.size
        if self.share and info is not None:  # worker 0 has most of them, the last one next to none
            first, end = (self.size >> info.id + 1, self.size >> info.id) if info.id else (self.size >> 1, self.size)
        for key in range(first, end):
            if key == self.error_at:
                raise ValueError(f"no sample {key}")
            yield self.make(key)

    def __repr__(self) -> str:
        return f"a stream of {self.size}"  # the same in both packages: it is part of a warning


class TorchStream(StreamCode, TORCH.IterableDataset):
    pass


class MinidlStream(StreamCode, minidl.IterableDataset):
    pass


class Sized:
    """A stream with a length. torch multiplies that by the workers if it is not shared."""

    length = 11

    def __len__(self) -> int:
        return self.length


class SizedTorchStream(Sized, TorchStream):
    pass


class SizedMinidlStream(Sized, MinidlStream):
    pass


class ShortTorchStream(Sized, TorchStream):
    length = 2


class ShortMinidlStream(Sized, MinidlStream):
    length = 2


class BadStream(TorchStream):
    def __iter__(self) -> Iterator[Any]:
        raise ValueError("this stream cannot be opened")


def pair(key: int) -> Any:
    return {"key": key, "x": torch.full((2,), key)}


DATASETS: dict[str, Callable[[ModuleType], Any]] = {
    "squares": lambda parts: Squares(),
    "whole": lambda parts: Whole(),
    "noise": lambda parts: Samples(17, noise),
    "informed": lambda parts: Samples(9, informed),
    "list": lambda parts: [(key, f"{key}", [float(key)]) for key in range(13)],
    "tensors": lambda parts: parts.TensorDataset(torch.arange(22).reshape(11, 2), torch.arange(11.0)),
    "stack": lambda parts: parts.StackDataset(a=Squares(12), b=parts.TensorDataset(torch.arange(12))),
    "concat": lambda parts: parts.ConcatDataset([Squares(5), Squares(0), Squares(9)]),
    "subset": lambda parts: parts.Subset(Samples(30, noise), [4, 4, 28, 0, 9, 15, 2]),
    "split": lambda parts: parts.random_split(Squares(20), [0.6, 0.4])[0],
    "stream": lambda parts: streams(parts)(),
    "shared": lambda parts: streams(parts)(19, share=True, make=pair),
    "noisy stream": lambda parts: streams(parts)(13, share=True, make=noise),
    "empty stream": lambda parts: streams(parts)(0),
    "sized": lambda parts: (SizedMinidlStream if parts is minidl else SizedTorchStream)(share=True),
    "short": lambda parts: (ShortMinidlStream if parts is minidl else ShortTorchStream)(),
    "chain": lambda parts: parts.ChainDataset([streams(parts)(4), streams(parts)(5, make=float)]),
    # ... and some that fail
    "broken stream": lambda parts: streams(parts)(error_at=6),
    "unopened stream": lambda parts: BadStream(),
    "value error": lambda parts: Faulty({5: ValueError("no 5"), 14: RuntimeError("no 14")}),
    "key error": lambda parts: Faulty({2: KeyError("missing\nkey")}),
    "needy error": lambda parts: Faulty({9: Needy(4, "too much")}),
    "stop iteration": lambda parts: Faulty({10: StopIteration("not here")}),
    "missing file": lambda parts: Faulty({0: FileNotFoundError(2, "No such file", "sample-0")}),
    "odd errors": lambda parts: Faulty(dict(enumerate(ODD_ERRORS))),
    "mixed shapes": lambda parts: [torch.zeros(1 + (key == 7)) for key in range(12)],
    "no collation": lambda parts: [object] * 3,
    "empty": lambda parts: Squares(0),
    "unsized": lambda parts: iter(()),
}


# ---- samplers


class Backwards:
    """A sampler that is no Sampler."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __iter__(self) -> Iterator[int]:
        yield from range(self.size - 1, -1, -1)

    def __len__(self) -> int:
        return self.size


class Dropout(Backwards):
    """Raises half way."""

    def __iter__(self) -> Iterator[int]:
        yield from range(self.size // 2)
        raise ValueError("out of keys")


def weights(size: int) -> torch.Tensor:
    return torch.arange(1.0, size + 1)


Sampling = Callable[[ModuleType, Any, "torch.Generator | None"], dict[str, Any]]


def options(**given: Any) -> Sampling:
    return lambda parts, data, gen: given


def by(batch_size: int | None, make: Callable[..., Any], **given: Any) -> Sampling:
    """With the sampler that `make` makes."""
    return lambda parts, data, gen: {"sampler": make(parts, data, gen), "batch_size": batch_size, **given}


def shard(number: int, rank: int, **given: Any) -> Callable[..., Any]:
    return lambda parts, data, gen: parts.DistributedSampler(data, num_replicas=number, rank=rank, **given)


SAMPLINGS: dict[str, Sampling] = {
    "by 4": options(batch_size=4),
    "by 4, drop": options(batch_size=4, drop_last=True),
    "by 1": options(),
    "by 50": options(batch_size=50),
    "unbatched": options(batch_size=None),
    "shuffled": options(batch_size=4, shuffle=True),
    "shuffled, drop": options(batch_size=3, shuffle=True, drop_last=True),
    "shuffled, unbatched": options(batch_size=None, shuffle=True),
    "sequential": by(5, lambda parts, data, gen: parts.SequentialSampler(data)),
    "random": by(4, lambda parts, data, gen: parts.RandomSampler(data)),
    "replacement": by(8, lambda parts, data, gen: parts.RandomSampler(data, True, 35, gen)),
    "more than all": by(7, lambda parts, data, gen: parts.RandomSampler(data, False, 2 * len(data) + 3, gen)),
    "weighted": by(4, lambda parts, data, gen: parts.WeightedRandomSampler(weights(len(data)), 18, True, gen)),
    "weighted, unbatched": by(
        None, lambda parts, data, gen: parts.WeightedRandomSampler(weights(len(data)), 6, False, gen)
    ),
    "subset": by(3, lambda parts, data, gen: parts.SubsetRandomSampler([0, 3, 5, 6], gen)),
    "distributed": by(2, shard(3, 1, seed=5)),
    "distributed, drop": by(2, shard(3, 2, drop_last=True), drop_last=True),
    "distributed, in turn": by(None, shard(2, 0, shuffle=False)),
    "batch sampler": lambda parts, data, gen: {
        "batch_sampler": parts.BatchSampler(parts.RandomSampler(data, generator=gen), 5, True)
    },
    "lists": options(batch_sampler=[[0], [3, 1, 2], [0, 0], [6, 5]]),
    "backwards": by(4, lambda parts, data, gen: Backwards(len(data))),
    # ... and some that fail
    "an empty list": options(batch_sampler=[[0, 1], [], [2]]),
    "out of range": options(batch_sampler=[[0, 1], [2, 1000], [3]]),
    "raising": by(None, lambda parts, data, gen: Dropout(len(data))),
    "generator as sampler": by(2, lambda parts, data, gen: (key for key in range(5))),
    "not iterable": options(sampler=5),
}


# ---- collate functions and worker_init_fns


def keep(samples: Any) -> Any:
    return samples


def count(samples: Any) -> Any:
    return Point(torch.tensor([len(samples)]), {"first": samples[0]})


def refuse(samples: Any) -> Any:
    raise TypeError("cannot collate")


class Tagged(list):
    """A batch type of the user's own."""


def tag(samples: Any) -> Any:
    return Tagged(samples)


def seed_by_worker(worker_id: int) -> None:
    np.random.seed(worker_id)
    torch.rand(worker_id + 1)
    info = TORCH.get_worker_info()
    info.dataset.tag = worker_id


def fail_in_worker(worker_id: int) -> None:
    raise ValueError(f"worker {worker_id} does not start")
