"""The iterator for num_workers=0: everything in the caller's thread, one batch at a time.

torch: _SingleProcessDataLoaderIter
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from minidl.checkpoint.source import Source, keys_of
from minidl.data.fetch import create_fetcher, load
from minidl.iterator import BaseIterator
from minidl.pinning import pin_batch

if TYPE_CHECKING:
    from minidl.checkpoint.saved import Saved
    from minidl.loader import DataLoader


class SerialIterator(BaseIterator):
    """Draws keys, fetches, collates and pins when it is asked for a batch."""

    def __init__(self, loader: DataLoader, saved: Saved | None = None) -> None:
        super().__init__(loader, saved)
        if self._timeout != 0:
            raise AssertionError("_SingleProcessDataLoaderIter requires timeout == 0")
        make = functools.partial(create_fetcher, self._dataset, self._auto_collation, self._collate_fn, self._drop_last)
        goes_on = saved is not None and not saved.finished
        if saved is not None and goes_on:
            self._sampler_iter.go_on(saved.sampler, saved.ours)
        self._source = Source(self._dataset, make, keys_of(loader), saved.places[0] if saved else None)
        self._begin_epoch(loader)
        self._position.source = self._source
        if saved is not None and goes_on:
            self._go_on(loader, saved)
        self._repeat(saved.since if saved else 0)

    def _next_data(self) -> tuple[int, Any]:
        task_id = self._num_drawn
        keys = self._next_keys()  # StopIteration: the sampler's end
        try:
            self._source.batches += 1
            batch = load(self._source.fetcher, keys, self._epoch_id, task_id)  # StopIteration: the iterable dataset's
            if self._pin_memory_device is not None:
                batch = pin_batch(batch, self._pin_memory_device, self._epoch_id, task_id)
        except Exception:
            self._source.failed.append(self._source.batches)
            self._position.passed(task_id, yielded=False)
            raise
        self._position.passed(task_id, yielded=True)
        return task_id, batch
