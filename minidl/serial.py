"""The iterator for num_workers=0: everything in the caller's thread, one batch at a time.

torch: _SingleProcessDataLoaderIter
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from minidl.data.fetch import Fetcher, create_fetcher, load
from minidl.iterator import BaseIterator
from minidl.pinning import pin_batch

if TYPE_CHECKING:
    from minidl.loader import DataLoader


class SerialIterator(BaseIterator):
    """Draws keys, fetches, collates and pins when it is asked for a batch."""

    def __init__(self, loader: DataLoader) -> None:
        super().__init__(loader)
        if self._timeout != 0:
            raise AssertionError("_SingleProcessDataLoaderIter requires timeout == 0")
        self._fetcher = self._make_fetcher()
        self._begin_epoch(loader)

    def _make_fetcher(self) -> Fetcher:
        return create_fetcher(self._dataset, *self._how_to_fetch)

    def _next_data(self) -> tuple[int, Any]:
        task_id = self._num_drawn
        keys = self._next_keys()  # StopIteration: the sampler's end
        try:
            batch = load(self._fetcher, keys, self._epoch_id, task_id)  # StopIteration: the iterable dataset's
            if self._pin_memory_device is not None:
                batch = pin_batch(batch, self._pin_memory_device, self._epoch_id, task_id)
        except Exception:  # it comes in the batch's place, and the next next() goes on with the next keys
            self._halfway = False
            raise
        return task_id, batch
