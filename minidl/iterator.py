"""What both iterators have in common: seeds, the sampler's iterator, and one step of the iteration.

torch: _BaseDataLoaderIter
"""

from __future__ import annotations

import operator
import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import IterableDataset

from minidl.accelerator import accelerator
from minidl.checkpoint.draws import Draws
from minidl.checkpoint.position import Position
from minidl.events import (
    ASKED,
    EPOCH_BEGIN,
    EPOCH_END,
    ERROR_RAISED,
    GOES_ON,
    KEYS_BEGIN,
    KEYS_DRAWN,
    LOADER,
    SAMPLER_END,
    YIELDED,
    describe,
    emit,
)
from minidl.pinning import HOST

if TYPE_CHECKING:
    from minidl.checkpoint.saved import Saved
    from minidl.loader import DataLoader


class BaseIterator:
    """One pass over a DataLoader; with persistent workers, one pass after another."""

    _failure: str | None = None  # a task is lost: every further next() raises this

    def __init__(self, loader: DataLoader, saved: Saved | None = None) -> None:
        self._epoch_id = loader._new_epoch()
        emit(LOADER, self._epoch_id, value=loader.num_workers, text=loader._configuration())
        self._dataset = loader.dataset
        self._iterable = isinstance(loader.dataset, IterableDataset)
        self._auto_collation = loader._auto_collation
        self._drop_last = loader.drop_last
        self._num_workers = operator.index(loader.num_workers)  # as in torch, a loader with 1.5 workers fails only here
        self._timeout = loader.timeout
        self._index_sampler = Draws(loader)
        self._collate_fn = loader.collate_fn
        self._pin_memory_device = pin_device(loader)
        self._pin_memory = self._pin_memory_device is not None
        # The order of the next two lines is torch's: a sampler that draws in its __iter__ must do so before the
        # base seed is drawn from the same generator, or no batch would equal torch's.
        self._sampler_iter = iter(self._index_sampler)
        self._base_seed = int(torch.empty((), dtype=torch.int64).random_(generator=loader.generator).item())
        if saved is not None and saved.base_seed is not None:
            self._base_seed = saved.base_seed
        self._persistent_workers = loader.persistent_workers
        self._profile_name = f"enumerate(DataLoader)#{type(self).__name__}.__next__"

    def __iter__(self) -> BaseIterator:
        return self

    def __len__(self) -> int:
        return len(self._index_sampler)

    def __getstate__(self) -> Any:
        raise NotImplementedError("{} cannot be pickled", type(self).__name__)

    def _begin_epoch(self, loader: DataLoader, previous_epoch_id: int = -1) -> None:
        self._num_yielded = 0
        self._num_drawn = 0
        self._IterableDataset_len_called = loader._IterableDataset_len_called
        emit(EPOCH_BEGIN, self._epoch_id, value=previous_epoch_id)
        self._position = Position(loader, self._sampler_iter, self._epoch_id, self._base_seed)

    def _go_on(self, loader: DataLoader, saved: Saved) -> None:
        """Count from the place of a state, where the sampler is, and without workers the dataset: to bring them there
        may have taken random numbers. What is to be yielded again comes later: the batches since its snapshot."""
        saved.put_back_random(loader)
        self._position.begin(saved.begin)
        self._IterableDataset_len_called = self._position.length_called = saved.length_called
        in_flight = [keys for keys, _ in self._sampler_iter.pending]
        emit(GOES_ON, self._epoch_id, value=saved.steps + saved.since, text=in_flight)

    def _repeat(self, batches: int) -> None:
        """Yield to nobody what came after the snapshot; what failed then may fail again."""
        for _ in range(batches):
            try:
                next(self)
            except Exception:
                if self._failure is not None:
                    raise

    def _next_keys(self) -> Any:
        """Draw the keys of one task; StopIteration at the sampler's end. torch: _next_index"""
        emit(KEYS_BEGIN, self._epoch_id, self._num_drawn)
        mark = self._sampler_iter.mark()
        try:
            keys = next(self._sampler_iter)
        except StopIteration:
            emit(SAMPLER_END, self._epoch_id, value=self._num_drawn)
            raise
        emit(KEYS_DRAWN, self._epoch_id, self._num_drawn, text=keys)
        if not self._iterable:  # a stream's keys say nothing
            self._position.in_flight[self._num_drawn] = keys, mark
        self._num_drawn += 1
        return keys

    def _next_data(self) -> tuple[int, Any]:
        """The next task's id and its batch."""
        raise NotImplementedError

    def __next__(self) -> Any:
        before = self._num_yielded
        try:
            if torch.autograd._profiler_enabled():  # entering a record_function costs more than a whole small batch
                with torch.autograd.profiler.record_function(self._profile_name):
                    return self._next()
            return self._next()
        except KeyboardInterrupt as error:
            if self._num_workers and self._num_yielded > before:  # (Without workers what it interrupts is lost.)
                self._failure = f"next() was interrupted ({error!r}) with a batch in hand, which is lost"
            raise

    def _next(self) -> Any:
        emit(ASKED, self._epoch_id)
        known = self._failure
        try:
            task_id, batch = self._next_data()
        except StopIteration:
            self._position.finish()
            emit(EPOCH_END, self._epoch_id, value=self._num_yielded)
            raise
        except Exception as error:
            emit(ERROR_RAISED, self._epoch_id, value=int(known is not None), text=describe(error))
            raise
        self._num_yielded += 1  # at once: see __next__
        length = self._IterableDataset_len_called
        if length is not None and self._position.steps > length:  # it was asked for: the dataset is iterable
            self._warn_of_too_many(length)
        emit(YIELDED, self._epoch_id, task_id, value=self._num_yielded)
        return batch

    def _warn_of_too_many(self, length: int) -> None:
        text = (
            f"Length of IterableDataset {self._dataset} was reported to be {length}"
            f"(when accessing len(dataloader)), but {self._position.steps} samples have been fetched. "
        )
        if self._num_workers > 0:
            text += (
                "For multiprocessing data-loading, this could be caused by not properly configuring the "
                "IterableDataset replica at each worker. Please see "
                "https://pytorch.org/docs/stable/data.html#torch.utils.data.IterableDataset for examples."
            )
        warnings.warn(text, stacklevel=4)


def pin_device(loader: DataLoader) -> str | None:
    """What batches are pinned for: an accelerator's type, "host", or None if they are not."""
    if loader.pin_memory == HOST:
        return HOST
    if not loader.pin_memory:
        return None
    if loader.pin_memory_device:
        warnings.warn(
            "pin_memory_device is deprecated, the current accelerator will be used as the device,"
            f"ignore pin_memory_device='{loader.pin_memory_device}'.",
            stacklevel=6,
        )
    found = accelerator.current_accelerator() if accelerator.is_available() else None
    if found is not None and found.type != "mps":  # torch cannot pin for it: pytorch#86060
        return found.type
    why = "no accelerator is found, then" if found is None else "not supported on MPS now,"
    warnings.warn(f"'pin_memory' argument is set as true but {why} device pinned memory won't be used.", stacklevel=6)
    return None
