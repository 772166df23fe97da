"""What is loaded: datasets, and ways to put them together.

A dataset is one of two kinds, and the fetchers in `fetch.py` treat each in its own way:

    map-style   `Dataset`          dataset[key] is a sample; keys come from a sampler
    iterable    `IterableDataset`  iter(dataset) yields samples; there are no keys to choose

Neither base class has a default `__len__`. A stream may not know its length, and every default does harm: one
that raises NotImplementedError breaks `list(dataset)`, which asks for the length first and accepts only
a TypeError as "I have none".

Legend
    key      12           names one sample; any type that the dataset understands (torch: index)
    keys     [12, 13]     the keys of one task
    sample   (x, y)       what the dataset makes of one key; any type
"""

from __future__ import annotations

import bisect
import itertools
import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

import torch
import torch.utils.data

T_co = TypeVar("T_co", covariant=True)


class Dataset(torch.utils.data.Dataset[T_co]):
    """A map from keys to samples. Subclasses define `__getitem__(key)` and, for most samplers, `__len__()`.

    A subclass may add `__getitems__(keys)`, which returns the samples of a whole batch as a list; the fetcher
    then calls it once instead of calling `__getitem__` for every key. The base class must not have one: the
    fetcher looks for the name.

    The two base classes inherit from torch's. torch's loader tells the kinds apart by `isinstance`, and so
    does other code, so this is what lets a dataset of either package work in both loaders.
    """

    def __getitem__(self, index: Any) -> T_co:
        raise NotImplementedError("Subclasses of Dataset should implement __getitem__.")

    def __add__(self, other: torch.utils.data.Dataset[T_co]) -> ConcatDataset[T_co]:  # type: ignore[override]
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T_co], torch.utils.data.IterableDataset[T_co]):
    """A stream of samples. Subclasses define `__iter__()`, and `__len__()` if they know it.

    Each worker process has a copy of the dataset and iterates over all of it. To share the work instead,
    let `__iter__` ask `torch.utils.data.get_worker_info()` which worker it runs in.
    """

    def __add__(self, other: torch.utils.data.Dataset[T_co]) -> ChainDataset:  # type: ignore[override]
        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple[torch.Tensor, ...]]):
    """Sample i is the tuple of the i-th rows of the tensors.

    Args:
        tensors: any shapes and dtypes, the same size in dimension 0.

    Raises:
        AssertionError: the sizes in dimension 0 differ.
    """

    def __init__(self, *tensors: torch.Tensor) -> None:
        if any(tensor.size(0) != tensors[0].size(0) for tensor in tensors):
            raise AssertionError("Size mismatch between tensors")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[torch.Tensor, ...]:
        return tuple(tensor[index] for tensor in self.tensors)

    def __len__(self) -> int:
        return self.tensors[0].size(0)


class StackDataset(Dataset[Any]):
    """Several datasets side by side: sample i holds the i-th sample of each.

    `StackDataset(images, labels)` yields tuples, `StackDataset(image=images, label=labels)` dicts.

    Raises:
        ValueError: no dataset, positional and named ones mixed, or lengths that differ.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if args and kwargs:
            raise ValueError(
                "Supported either ``tuple``- (via ``args``) or"
                "``dict``- (via ``kwargs``) like input/output, but both types are given."
            )
        self.datasets = args or kwargs
        if not self.datasets:
            raise ValueError("At least one dataset should be passed")
        lengths = [len(part) for part in self._parts()]
        if any(length != lengths[0] for length in lengths):
            raise ValueError("Size mismatch between datasets")
        self._length = lengths[0]

    def __getitem__(self, index: Any) -> tuple[Any, ...] | dict[str, Any]:
        return self._sample([part[index] for part in self._parts()])

    def __getitems__(self, indices: list[Any]) -> list[Any]:
        """The samples of a batch; each dataset is asked once for all of its own, if it supports that."""
        columns = [_samples_of(part, indices) for part in self._parts()]
        return [self._sample(row) for row in zip(*columns, strict=True)]

    def __len__(self) -> int:
        return self._length

    def _parts(self) -> Iterable[Any]:
        return self.datasets.values() if isinstance(self.datasets, dict) else self.datasets

    def _sample(self, values: Iterable[Any]) -> tuple[Any, ...] | dict[str, Any]:
        if isinstance(self.datasets, dict):
            return dict(zip(self.datasets, values, strict=True))
        return tuple(values)


def _samples_of(dataset: Any, keys: list[Any]) -> list[Any]:
    """The samples of `keys`, by one `__getitems__` where the dataset has it.

    Raises:
        ValueError: `__getitems__` returned more or fewer samples than asked for.
    """
    if not callable(getattr(dataset, "__getitems__", None)):
        return [dataset[key] for key in keys]
    samples = dataset.__getitems__(keys)
    if len(samples) != len(keys):
        raise ValueError(f"Nested dataset's output size mismatch. Expected {len(keys)}, got {len(samples)}")
    return samples


class ConcatDataset(Dataset[T_co]):
    """Map-style datasets end to end: the keys of the second continue where those of the first stop.

    Raises:
        AssertionError: no dataset at all, or an iterable one.
    """

    @staticmethod
    def cumsum(sequence: Iterable[Any]) -> list[int]:
        """How many samples there are up to the end of each dataset."""
        return list(itertools.accumulate(len(dataset) for dataset in sequence))

    def __init__(self, datasets: Iterable[Any]) -> None:
        super().__init__()
        self.datasets = list(datasets)
        if not self.datasets:
            raise AssertionError("datasets should not be an empty iterable")
        if any(isinstance(dataset, torch.utils.data.IterableDataset) for dataset in self.datasets):
            raise AssertionError("ConcatDataset does not support IterableDataset")
        self.cumulative_sizes = self.cumsum(self.datasets)  # [3, 5, 9] for datasets of 3, 2 and 4 samples

    def __getitem__(self, idx: int) -> T_co:
        if idx < 0:
            if -idx > len(self):
                raise ValueError("absolute value of index should not exceed dataset length")
            idx = len(self) + idx  # not in place: it may be the caller's tensor
        # bisect_right, not bisect_left: with sizes [3, 5, 9] index 3 is the first of the second dataset, and
        # an empty dataset, which repeats the size before it, is passed over.
        which = bisect.bisect_right(self.cumulative_sizes, idx)
        before = self.cumulative_sizes[which - 1] if which > 0 else 0
        return self.datasets[which][idx - before]

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]


class ChainDataset(IterableDataset[Any]):
    """Iterable datasets one after the other. None is opened before the one before it has ended.

    Raises:
        AssertionError: a dataset that is not iterable, when its turn comes.
    """

    def __init__(self, datasets: Iterable[Any]) -> None:
        super().__init__()
        self.datasets = datasets

    def __iter__(self) -> Iterator[Any]:
        for dataset in self._checked():
            yield from dataset

    def __len__(self) -> int:
        return sum(len(dataset) for dataset in self._checked())

    def _checked(self) -> Iterator[Any]:
        for dataset in self.datasets:
            if not isinstance(dataset, torch.utils.data.IterableDataset):
                raise AssertionError("ChainDataset only supports IterableDataset")
            yield dataset


class Subset(Dataset[T_co]):
    """The samples of `dataset` that `indices` lists: sample i is `dataset[indices[i]]`.

    Raises:
        NotImplementedError: a subclass changed `__getitem__` alone. The fetcher prefers `__getitems__`, and
            would silently bypass the change.
    """

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = indices
        cls = type(self)
        if cls.__getitem__ is not Subset.__getitem__ and cls.__getitems__ is Subset.__getitems__:
            raise NotImplementedError(
                f"{cls.__name__} overrides __getitem__ but not __getitems__. "
                "When subclassing Subset and overriding __getitem__, you must also override "
                "__getitems__ to ensure DataLoader works correctly with your custom logic. "
                "A simple implementation:\n\n"
                "def __getitems__(self, indices):\n"
                "    return [self.__getitem__(idx) for idx in indices]"
            )

    def __getitem__(self, idx: Any) -> T_co:
        if isinstance(idx, list):  # a dataset that understands a list of keys gets one
            return self.dataset[[self.indices[i] for i in idx]]
        return self.dataset[self.indices[idx]]

    def __getitems__(self, indices: list[int]) -> list[T_co]:
        if callable(getattr(self.dataset, "__getitems__", None)):
            return self.dataset.__getitems__([self.indices[i] for i in indices])
        return [self.dataset[self.indices[i]] for i in indices]

    def __len__(self) -> int:
        return len(self.indices)


def random_split(
    dataset: Any, lengths: Sequence[int | float], generator: torch.Generator | None = torch.default_generator
) -> list[Subset[Any]]:
    """Split `dataset` at random into subsets that do not overlap and together make up the whole.

    Args:
        dataset: map-style, with a length.
        lengths: the number of samples of each subset; or, if they sum to 1, the fraction of each.
        generator: drawn from once, for one permutation of the whole dataset.

    Raises:
        ValueError: a fraction outside [0, 1], or lengths that do not add up to the dataset's.
    """
    # Rounding may leave a sum of fractions just below 1, never more than 1.
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        lengths = _lengths_from_fractions(len(dataset), lengths)
        for i, length in enumerate(lengths):
            if length == 0:
                message = f"Length of split at index {i} is 0. This might result in an empty dataset."
                warnings.warn(message, stacklevel=2)
    total: Any = sum(lengths)
    if total != len(dataset):
        raise ValueError("Sum of input lengths does not equal the length of the input dataset!")

    keys = torch.randperm(total, generator=generator).tolist()
    ends: Any = itertools.accumulate(lengths)
    return [Subset(dataset, keys[end - length : end]) for end, length in zip(ends, lengths, strict=True)]


def _lengths_from_fractions(total: int, fractions: Sequence[float]) -> list[int]:
    """Each fraction of `total`, rounded down; what rounding left over goes to the first subsets, one each."""
    for i, fraction in enumerate(fractions):
        if not 0 <= fraction <= 1:
            raise ValueError(f"Fraction at index {i} is not between 0 and 1")
    lengths = [math.floor(total * fraction) for fraction in fractions]
    for i in range(total - sum(lengths)):
        lengths[i % len(lengths)] += 1
    return lengths
