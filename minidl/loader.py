"""DataLoader: its options, which of them contradict each other, and which of the two iterators does the work.

torch: dataloader.py, class DataLoader
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

import torch
from torch.utils.data import IterableDataset, _DatasetKind

from minidl import events
from minidl import world as worlds
from minidl.data.collate import default_collate, default_convert
from minidl.data.sampler import BatchSampler, Sampler, sampler_of
from minidl.iterator import BaseIterator
from minidl.parallel import ParallelIterator
from minidl.serial import SerialIterator
from minidl.transport import transport_of

T_co = TypeVar("T_co", covariant=True)

# Attributes that the samplers were made from: changing one later would have no effect, or half of one.
FROZEN = {"batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"}


class DataLoader(Generic[T_co]):
    """Iterates over a dataset in batches, in worker processes if you like. A drop-in replacement for torch's.

    Args:
        dataset: map-style (`__getitem__`, `__len__`) or an `IterableDataset`.
        batch_size: samples per batch; None yields samples one by one, unbatched.
        shuffle: draw the keys in a new random order each epoch.
        sampler: an iterable of keys, instead of `shuffle`.
        batch_sampler: an iterable of lists of keys, instead of `batch_size`, `shuffle`, `sampler` and `drop_last`.
        num_workers: worker processes; 0 loads in the caller's thread.
        collate_fn: makes a batch from a list of samples; `default_collate` stacks tensors.
        pin_memory: True copies batches to memory that a GPU reads directly, where there is an accelerator;
            "host" lets the operating system lock the pages, on any machine.
        drop_last: leave out the last batch if it is not full.
        timeout: seconds to wait for a batch from the workers before a RuntimeError; 0 waits for ever.
        worker_init_fn: called in each worker with its worker_id, after seeding.
        multiprocessing_context: "fork", "spawn", "forkserver", or a context; None is the system's default.
        generator: draws the random order and the workers' base seed; None is torch's default generator.
        prefetch_factor: batches that each worker makes in advance (2 by default with workers).
        persistent_workers: keep the workers from one epoch to the next.
        pin_memory_device: deprecated; ignored with a warning.
        in_order: False yields batches as they arrive, in any order.
        transport: how batches come from the workers: "slots" in memory that is used again (see minidl.transport),
            "torch" as torch moves them. None: what the environment variable MINIDL_TRANSPORT says, or else slots
            where the system has what they need.

    Raises:
        ValueError, TypeError: arguments that contradict each other; the message says which.
        RuntimeError: transport="slots" on a system that has no memory without a name.
    """

    # Warns if there are more workers than cores that this process may use.
    check_worker_number_rationality: Any = torch.utils.data.DataLoader.check_worker_number_rationality

    __initialized = False  # torch's name for it, too: timm sets `_DataLoader__initialized` to change a sampler

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Sampler[Any] | Iterable[Any] | None = None,
        batch_sampler: Sampler[list[Any]] | Iterable[list[Any]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool | str = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        transport: str | None = None,
    ) -> None:
        check_worker_options(num_workers, timeout, prefetch_factor, persistent_workers)
        if num_workers > 0 and prefetch_factor is None:
            prefetch_factor = 2
        self.dataset = dataset
        self._dataset_kind = _DatasetKind.Iterable if isinstance(dataset, IterableDataset) else _DatasetKind.Map
        self.num_workers = num_workers
        self.prefetch_factor = prefetch_factor
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.in_order = in_order
        self.transport = transport_of(transport, worlds.current())
        self.generator = generator
        self.persistent_workers = persistent_workers

        check_sampling_options(dataset, batch_size, shuffle, sampler, batch_sampler, drop_last)
        if sampler is None:
            sampler = sampler_of(dataset, shuffle, generator)
        if batch_sampler is not None:
            batch_size = None  # the batch sampler decides
        elif batch_size is not None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        if collate_fn is None:
            collate_fn = default_collate if self._auto_collation else default_convert
        self.collate_fn = collate_fn

        self._IterableDataset_len_called: int | None = None  # what len(self) last returned for an iterable dataset
        self._iterator: BaseIterator | None = None  # of persistent workers
        self.__latest = 0, 0  # the process that began the latest epoch, and its epoch_id
        self.__initialized = True
        self.check_worker_number_rationality()

    def __setattr__(self, name: str, value: Any) -> None:
        if self.__initialized and name in FROZEN:
            raise ValueError(f"{name} attribute should not be set after {type(self).__name__} is initialized")
        if name == "multiprocessing_context":
            if value is not None and self.num_workers <= 0:
                what = "can only be used with multi-process loading (num_workers > 0)"
                raise ValueError(f"{name} {what}, but got num_workers={self.num_workers}")
            value = worlds.context_of(value)
        super().__setattr__(name, value)

    @property
    def _auto_collation(self) -> bool:
        return self.batch_sampler is not None

    @property
    def _index_sampler(self) -> Any:
        """What the keys of a task come from: lists of keys, or without batching single keys."""
        return self.batch_sampler if self._auto_collation else self.sampler

    def __iter__(self) -> Any:
        """A new iterator; with persistent workers the same one, reset. One that has failed is replaced, workers and
        all: an error concerns only the epoch in which it was raised."""
        # (Both can be changed between epochs; and a subclass may have an `_iterator` of its own.)
        iterator: Any = self._iterator if self.persistent_workers and self.num_workers > 0 else None
        is_ours = isinstance(iterator, ParallelIterator)  # a subclass may have put another around it
        if is_ours and (iterator._failure is not None or iterator._halfway):
            iterator._shutdown_workers()
        if iterator is None or (is_ours and (iterator._shutdown or iterator._owner_pid != worlds.current().pid())):
            iterator = self._get_iterator()
        else:
            iterator._reset(self)
        if self.persistent_workers and self.num_workers > 0:
            self._iterator = iterator
        return iterator

    def _get_iterator(self) -> BaseIterator:
        if self.num_workers == 0:
            return SerialIterator(self)
        self.check_worker_number_rationality()
        return ParallelIterator(self)

    def __len__(self) -> int:
        """Batches in an epoch: the sampler's length. For an iterable dataset, an estimate from its own `__len__`;
        the iterator warns if it yields more."""
        if not isinstance(self.dataset, IterableDataset):
            return len(self._index_sampler)
        length = self._IterableDataset_len_called = len(self.dataset)  # type: ignore[arg-type]
        if self.batch_size is None:
            return length
        return length // self.batch_size if self.drop_last else math.ceil(length / self.batch_size)

    # ---- for the trace

    def _new_epoch(self) -> int:
        """The epoch_id of the next pass. A loader that a worker inherited inside its dataset gets a new number."""
        pid, (owner, epoch_id) = worlds.current().pid(), self.__latest
        epoch_id = epoch_id + 1 if owner == pid else events.new_loader()
        self.__latest = pid, epoch_id
        return epoch_id


def check_worker_options(
    num_workers: int, timeout: float, prefetch_factor: int | None, persistent_workers: bool
) -> None:
    """ValueError if the options for the workers contradict each other."""
    if num_workers < 0:
        raise ValueError("num_workers option should be non-negative; use num_workers=0 to disable multiprocessing.")
    if timeout < 0:
        raise ValueError("timeout option should be non-negative")
    if num_workers == 0 and prefetch_factor is not None:
        raise ValueError(
            "prefetch_factor option could only be specified in multiprocessing."
            "let num_workers > 0 to enable multiprocessing, otherwise set prefetch_factor to None."
        )
    if prefetch_factor is not None and prefetch_factor < 0:
        raise ValueError("prefetch_factor option should be non-negative")
    if persistent_workers and num_workers == 0:
        raise ValueError("persistent_workers option needs num_workers > 0")


def check_sampling_options(
    dataset: Any, batch_size: int | None, shuffle: Any, sampler: Any, batch_sampler: Any, drop_last: bool
) -> None:
    """ValueError if the options for the keys contradict each other. An iterable dataset decides for itself what comes
    next, so it takes none of them; that is checked first."""
    if isinstance(dataset, IterableDataset):
        shuffles = None if shuffle in {False, None} else shuffle
        for name, value in ("shuffle", shuffles), ("sampler", sampler), ("batch_sampler", batch_sampler):
            if value is not None:
                raise ValueError(
                    f"DataLoader with IterableDataset: expected unspecified {name} option, but got {name}={value}"
                )
    if sampler is not None and shuffle:
        raise ValueError("sampler option is mutually exclusive with shuffle")
    if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
        raise ValueError("batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last")
    if batch_size is None and batch_sampler is None and drop_last:
        raise ValueError("batch_size=None option disables auto-batching and is mutually exclusive with drop_last")
