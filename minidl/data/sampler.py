"""Which keys, in which order: samplers.

A sampler is anything that can be iterated over and yields keys. It runs in the main process, one step ahead of
the workers, and a new iterator of it is made for every epoch. Every draw from a generator is torch's, in torch's
order, so that the same seed gives the same keys in both packages.

Legend
    key      12                 one sample's name; here usually an integer below len(data_source)
    keys     [12, 13, 14, 15]   what `BatchSampler` makes of the keys: the content of one task
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, TypeVar

import torch
import torch.utils.data

T_co = TypeVar("T_co", covariant=True)


class Sampler(torch.utils.data.Sampler[T_co]):
    """Base class. Subclasses define `__iter__()`; `__len__()` is needed only for the length of a loader.

    It inherits from torch's for the sake of code that asks `isinstance(sampler, torch.utils.data.Sampler)`.
    There is no default `__len__`, for the reason given in `dataset.py`.
    """

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError


class SequentialSampler(Sampler[int]):
    """0, 1, 2, ... up to the length of `data_source`."""

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """Keys of `data_source` in random order.

    Args:
        data_source: only its length matters.
        replacement: draw each key from all of them; otherwise no key repeats before all have been drawn.
        num_samples: how many keys to yield; the length of `data_source` if None.
        generator: where the randomness comes from. If None, each epoch makes its own, with a seed drawn from
            torch's default generator: one draw per epoch, however many keys are taken.

    Raises:
        TypeError: `replacement` is not a bool.
        ValueError: `num_samples` is not a positive int.
    """

    DRAW = 32  # keys drawn at a time with replacement: how far a shared generator has moved when an epoch is left early

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator
        if not isinstance(replacement, bool):
            raise TypeError(f"replacement should be a boolean value, but got replacement={replacement}")
        if not isinstance(self.num_samples, int) or self.num_samples <= 0:
            raise ValueError(f"num_samples should be a positive integer value, but got num_samples={self.num_samples}")

    @property
    def num_samples(self) -> int:
        """How many keys an epoch has. Not stored: a dataset may grow between epochs."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        n = len(self.data_source)
        generator = self.generator
        if generator is None:
            seed = int(torch.empty((), dtype=torch.int64).random_().item())
            generator = torch.Generator()
            generator.manual_seed(seed)

        if self.replacement:
            for _ in range(self.num_samples // self.DRAW):
                yield from torch.randint(n, (self.DRAW,), dtype=torch.int64, generator=generator).tolist()
            rest = self.num_samples % self.DRAW  # asked for again, as in torch: the dataset may have grown
            yield from torch.randint(n, (rest,), dtype=torch.int64, generator=generator).tolist()
        else:
            for _ in range(self.num_samples // n):
                yield from torch.randperm(n, generator=generator).tolist()
            # Drawn even if none of it is used: a shared generator must be left where torch leaves it.
            yield from torch.randperm(n, generator=generator).tolist()[: self.num_samples % n]

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """The given `indices` in random order, each once. `generator` as in torch.randperm."""

    def __init__(self, indices: Sequence[int], generator: torch.Generator | None = None) -> None:
        self.indices = indices
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        for i in torch.randperm(len(self.indices), generator=self.generator).tolist():
            yield self.indices[i]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """Keys 0 to len(weights) - 1, each in proportion to its weight.

    Args:
        weights: one non-negative number per key; they need not sum to 1. Kept as a float64 tensor.
        num_samples: how many keys to yield.
        replacement: whether a key can come more than once in an epoch.
        generator: as in torch.multinomial, which makes all the draws of an epoch at once.

    Raises:
        ValueError: `num_samples` is not a positive int, `replacement` not a bool, `weights` not 1-d.
    """

    def __init__(
        self,
        weights: Sequence[float] | torch.Tensor,
        num_samples: int,
        replacement: bool = True,
        generator: torch.Generator | None = None,
    ) -> None:
        if not _is_positive_int(num_samples):
            raise ValueError(f"num_samples should be a positive integer value, but got num_samples={num_samples}")
        if not isinstance(replacement, bool):
            raise ValueError(f"replacement should be a boolean value, but got replacement={replacement}")
        self.weights = torch.as_tensor(weights, dtype=torch.double)
        if self.weights.dim() != 1:
            shape = tuple(self.weights.shape)
            raise ValueError(f"weights should be a 1d sequence but given weights have shape {shape}")
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        draws = torch.multinomial(self.weights, self.num_samples, self.replacement, generator=self.generator)
        yield from draws.tolist()

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """The keys of another sampler, `batch_size` at a time: what one task asks for.

    Args:
        sampler: anything that can be iterated over; asked for no more keys than the batch at hand needs.
        batch_size: keys in each list.
        drop_last: leave out the last list if it is shorter than the others.

    Raises:
        ValueError: `batch_size` is not a positive int, or `drop_last` not a bool.
    """

    def __init__(self, sampler: Iterable[Any], batch_size: int, drop_last: bool) -> None:
        # No check that `sampler` is an Iterable: a class with nothing but `__getitem__` can be iterated over
        # too, and isinstance would not know.
        if not _is_positive_int(batch_size):
            raise ValueError(f"batch_size should be a positive integer value, but got batch_size={batch_size}")
        if not isinstance(drop_last, bool):
            raise ValueError(f"drop_last should be a boolean value, but got drop_last={drop_last}")
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        source = iter(self.sampler)
        if self.drop_last:
            sources = [source] * self.batch_size  # one and the same
            yield from map(list, zip(*sources, strict=False))
            return
        while keys := list(itertools.islice(source, self.batch_size)):
            yield keys

    def __len__(self) -> int:
        """How many lists an epoch has.

        Raises:
            TypeError: `sampler` has no length.
        """
        samples = len(self.sampler)  # type: ignore[arg-type]
        short = samples % self.batch_size > 0 and not self.drop_last
        return samples // self.batch_size + short


class InfiniteConstantSampler(Sampler[None]):
    """None, forever: stands in for the keys that an iterable dataset does not have.

    The loader draws from it as from any sampler, so that a task is a task whatever the kind of dataset: through
    a `BatchSampler` it yields `[None, None, None, None]`, whose length tells the fetcher how many samples to
    take. It never ends; the workers report when the stream does. torch: `_InfiniteConstantSampler`
    """

    def __iter__(self) -> Iterator[None]:
        return itertools.repeat(None)


def sampler_of(dataset: Any, shuffle: bool | None, generator: torch.Generator | None) -> Sampler[Any]:
    """What draws the keys if a DataLoader is given no sampler."""
    if isinstance(dataset, torch.utils.data.IterableDataset):
        # Endless, whatever the dataset's length: every worker goes through a copy of its own, and a sampler as long as
        # the dataset would cut them off.
        return InfiniteConstantSampler()
    return RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)


def _is_positive_int(value: object) -> bool:
    """A bool is an int to Python, but here a mistake: `BatchSampler(sampler, True, 4)`."""
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
