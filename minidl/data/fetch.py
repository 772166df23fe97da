"""How a dataset is asked for samples: one fetcher for each kind; and `load`, the work of one task.

A fetcher knows nothing of processes. A worker has one, made from its copy of the dataset; the single-process
iterator has one in main. Both make every batch by calling `load`.

    keys -> fetcher.fetch -> samples -> fetcher.collate_fn -> batch

Legend
    keys      [12, 13, 14, 15]   the content of a task; one key, 12, without automatic batching
    samples   [s12, s13, ...]    what the dataset made of them; one sample, s12, without automatic batching
    batch     {"x": Tensor}      what collate_fn made of the samples
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.utils.data

from minidl.events import COLLATE_BEGIN, COLLATE_END, FETCH_BEGIN, FETCH_END, FETCH_FAILED, NO_WORKER, describe, emit


class Fetcher:
    """What both kinds have in common.

    `auto_collation` is true where a task has a list of keys, so that samples are put together into a batch
    (`batch_size` or `batch_sampler` given), and false where it has one key. torch: `_BaseDatasetFetcher`
    """

    def __init__(self, dataset: Any, auto_collation: bool, collate_fn: Callable[[Any], Any], drop_last: bool) -> None:
        self.dataset = dataset
        self.auto_collation = auto_collation
        self.collate_fn = collate_fn
        self.drop_last = drop_last

    def fetch(self, keys: Any) -> Any:
        """The samples of `keys`, not yet collated: a list, or without automatic batching one sample."""
        raise NotImplementedError


class MapFetcher(Fetcher):
    """Asks a map-style dataset for the samples of its keys. torch: `_MapDatasetFetcher`"""

    def fetch(self, keys: Any) -> Any:
        if not self.auto_collation:
            return self.dataset[keys]
        # Looked up each time: a wrapper may pass the name on to whatever dataset it holds at the moment, and
        # a subclass may disable the method by setting it to None.
        get_all = getattr(self.dataset, "__getitems__", None)
        if get_all:
            return get_all(keys)
        return [self.dataset[key] for key in keys]


class IterableFetcher(Fetcher):
    """Takes the next samples off an iterable dataset; of the keys only their number matters.

    The stream is opened when the fetcher is made, so a new epoch needs a new fetcher.
    torch: `_IterableDatasetFetcher`
    """

    def __init__(self, dataset: Any, auto_collation: bool, collate_fn: Callable[[Any], Any], drop_last: bool) -> None:
        super().__init__(dataset, auto_collation, collate_fn, drop_last)
        self.dataset_iter = iter(dataset)
        self.ended = False  # a batch came out short: the stream is not asked again, it might raise or start over

    def fetch(self, keys: Any) -> Any:
        """As many samples as there are keys, or as many as are left.

        Raises:
            StopIteration: none is left, or too few for a whole batch and `drop_last` is set.
        """
        if self.ended:
            raise StopIteration
        if not self.auto_collation:
            return next(self.dataset_iter)
        samples = []
        for _ in keys:
            # next(), not a slice or a loop over the stream: these call iter() on it, and a dataset that is its own
            # iterator would start over with every batch.
            try:
                samples.append(next(self.dataset_iter))
            except StopIteration:
                self.ended = True
                break
        if not samples or (self.ended and self.drop_last):
            raise StopIteration
        return samples


def create_fetcher(dataset: Any, auto_collation: bool, collate_fn: Callable[[Any], Any], drop_last: bool) -> Fetcher:
    """The fetcher for this kind of dataset, torch's and minidl's own alike. torch: `create_fetcher`"""
    cls = IterableFetcher if isinstance(dataset, torch.utils.data.IterableDataset) else MapFetcher
    return cls(dataset, auto_collation, collate_fn, drop_last)


def load(fetcher: Fetcher, keys: Any, epoch_id: int, task_id: int, worker_id: int = NO_WORKER) -> Any:
    """Do one task: fetch its samples, collate them, return the batch. Each step is an event.

    What the dataset or collate_fn raises reaches the caller as it is. It is also the event FETCH_FAILED, unless it is
    the StopIteration that ends an iterable dataset.
    """
    try:
        emit(FETCH_BEGIN, epoch_id, task_id, worker_id)
        samples = fetcher.fetch(keys)
        emit(FETCH_END, epoch_id, task_id, worker_id)
        emit(COLLATE_BEGIN, epoch_id, task_id, worker_id)
        batch = fetcher.collate_fn(samples)
        emit(COLLATE_END, epoch_id, task_id, worker_id)
        return batch
    except BaseException as error:  # KeyboardInterrupt too: a step that has begun must be seen to end
        end_of_stream = isinstance(error, StopIteration) and isinstance(fetcher, IterableFetcher)
        if not end_of_stream:
            emit_failed(error, epoch_id, task_id, worker_id)
        raise


def emit_failed(error: BaseException, epoch_id: int, task_id: int, worker_id: int) -> None:
    """The event that a task failed. Separate for the worker, where a task can fail before it begins."""
    emit(FETCH_FAILED, epoch_id, task_id, worker_id, text=describe(error, as_repr=False))
