"""What both iterators have in common: seeds, the sampler's iterator, and one step of the iteration.

torch: _BaseDataLoaderIter
"""

from __future__ import annotations

import operator
import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import IterableDataset

from minidl import events
from minidl.events import describe, emit
from minidl.pinning import HOST

if TYPE_CHECKING:
    from minidl.loader import DataLoader


class BaseIterator:
    """One pass over a DataLoader; with persistent workers, one pass after another."""

    _failure: str | None = None  # why no more batches can come: every further next() raises this
    _in_use = False  # a thread waits for workers, and will notice deaths: SIGCHLD's handler need not raise in another
    _halfway = False  # next() is changing this object: if anything is raised meanwhile, it cannot go on

    def __init__(self, loader: DataLoader) -> None:
        self._epoch_id = loader._new_epoch()
        emit(events.LOADER, self._epoch_id, value=loader.num_workers, text=loader)
        self._dataset = loader.dataset
        self._iterable = isinstance(loader.dataset, IterableDataset)
        self._num_workers = operator.index(loader.num_workers)  # as in torch, a loader with 1.5 workers fails only here
        self._timeout = loader.timeout
        self._index_sampler = loader._index_sampler
        self._how_to_fetch = loader._auto_collation, loader.collate_fn, loader.drop_last
        self._pin_memory_device = pin_device(loader)
        # The order of the next two lines is torch's: a sampler that draws in its __iter__ must do so before the
        # base seed is drawn from the same generator, or no batch would equal torch's.
        self._sampler_iter = self._begin_sampler(loader)
        self._base_seed = self._draw_base_seed(loader)
        self._persistent_workers = loader.persistent_workers

    def __iter__(self) -> BaseIterator:
        return self

    def __len__(self) -> int:
        return len(self._index_sampler)

    def __getstate__(self) -> Any:
        raise NotImplementedError("{} cannot be pickled", type(self).__name__)

    def _begin_sampler(self, loader: DataLoader) -> Any:
        return iter(self._index_sampler)

    def _draw_base_seed(self, loader: DataLoader) -> int:
        return int(torch.empty((), dtype=torch.int64).random_(generator=loader.generator).item())

    def _begin_epoch(self, loader: DataLoader, previous_epoch_id: int = -1) -> None:
        self._num_yielded = 0
        self._num_drawn = 0
        self._IterableDataset_len_called = loader._IterableDataset_len_called
        emit(events.EPOCH_BEGIN, self._epoch_id, value=previous_epoch_id)

    def _next_keys(self) -> Any:
        """Draw the keys of one task; StopIteration at the sampler's end. torch: _next_index"""
        emit(events.KEYS_BEGIN, self._epoch_id, self._num_drawn)
        try:
            keys = next(self._sampler_iter)
        except StopIteration:
            emit(events.SAMPLER_END, self._epoch_id, value=self._num_drawn)
            raise
        except Exception as error:
            # What was drawn before still comes. But a generator that has raised is at its end, and so is the epoch: if
            # a signal handler raised in it, keys would silently be missing.
            self._halfway &= events.raised_by_handler(error)
            raise
        emit(events.KEYS_DRAWN, self._epoch_id, self._num_drawn, text=keys)
        self._num_drawn += 1
        return keys

    def _next_data(self) -> tuple[int, Any]:
        """The next task's id and its batch."""
        raise NotImplementedError

    def __next__(self) -> Any:
        if torch.autograd._profiler_enabled():  # entering a record_function costs more than a whole small batch
            with torch.autograd.profiler.record_function(f"enumerate(DataLoader)#{type(self).__name__}.__next__"):
                batch = self._next()
        else:
            batch = self._next()
        self._halfway = False  # last: Python runs no signal handler between this line and the return
        return batch

    def _next(self) -> Any:
        """One rule for what a signal handler raises (Ctrl-C, an alarm): while `next()` waits for a message nothing is
        lost, and the next `next()` goes on. Anywhere else the iterator has failed, and every further call says so."""
        emit(events.ASKED, self._epoch_id)
        if self._halfway and self._failure is None:
            self._failure = "next() was interrupted in the middle of a step: a batch is lost"
        known, self._in_use = self._failure, True
        try:
            if known is not None:
                raise RuntimeError(known)
            self._halfway = True
            task_id, batch = self._next_data()
            self._num_yielded += 1
            length = self._IterableDataset_len_called
            if length is not None and self._num_yielded > length:  # it was asked for: the dataset is iterable
                self._warn_of_too_many(length)
            emit(events.YIELDED, self._epoch_id, task_id, value=self._num_yielded)
            return batch
        except StopIteration:
            self._halfway = False
            emit(events.EPOCH_END, self._epoch_id, value=self._num_yielded)
            raise
        except Exception as error:
            emit(events.ERROR_RAISED, self._epoch_id, value=int(known is not None), text=describe(error))
            raise
        finally:
            self._in_use = False

    def _warn_of_too_many(self, length: int) -> None:
        try:
            text = (
                f"Length of IterableDataset {self._dataset} was reported to be {length}"
                f"(when accessing len(dataloader)), but {self._num_yielded} samples have been fetched. "
            )
            if self._num_workers > 0:
                text += (
                    "For multiprocessing data-loading, this could be caused by not properly configuring the "
                    "IterableDataset replica at each worker. Please see "
                    "https://pytorch.org/docs/stable/data.html#torch.utils.data.IterableDataset for examples."
                )
            warnings.warn(text, stacklevel=4)
        except Exception as error:  # it comes in the batch's place, and the next next() goes on
            self._halfway &= events.raised_by_handler(error)
            raise


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
    there = hasattr(torch, "accelerator") and torch.accelerator.is_available()  # (not before torch 2.6)
    found = torch.accelerator.current_accelerator() if there else None
    if found is not None and found.type != "mps":  # torch cannot pin for it: pytorch#86060
        return found.type
    why = "no accelerator is found, then" if found is None else "not supported on MPS now,"
    warnings.warn(f"'pin_memory' argument is set as true but {why} device pinned memory won't be used.", stacklevel=6)
    return None
