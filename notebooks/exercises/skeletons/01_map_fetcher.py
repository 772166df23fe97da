"""Exercise 1: the map fetcher's fetch.

A worker has a task: some keys. It asks its fetcher for their samples, and has them collated. Write
the fetcher for map-style datasets: `fetch(keys)` returns the samples of `keys`, not yet collated.

With automatic batching a task has a list of keys, and the samples are a list. Without it
(`batch_size=None`) a task has one key, and its sample is returned as it is. A dataset that has a
method `__getitems__` is asked for all the keys of a list at once; any other for one after the
other.

Legend
    keys                 [12, 13, 14, 15] with automatic batching; 12 without
    self.dataset         dataset[12] is a sample; dataset.__getitems__([12, 13]), where there is
                         one, a list of them
    self.auto_collation  True with automatic batching

Check it with `python -m notebooks.exercises check 01`; `hint 01` helps.
It belongs to notebooks/02-datasets-samplers-fetchers.ipynb.
"""

from __future__ import annotations

from typing import Any


class MapFetcher:
    def fetch(self, keys: Any) -> Any:
        raise NotImplementedError
