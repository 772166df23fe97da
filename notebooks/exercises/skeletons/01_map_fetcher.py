"""Exercise 1: the map fetcher's fetch.

A worker has a task: some keys. It asks its fetcher for their samples, then collates them. Write the
fetcher for map-style datasets: `fetch(keys)` returns the samples of `keys`, not yet collated.

With automatic batching a task has a list of keys, and `fetch` returns a list of samples. Without it
(`batch_size=None`) a task has one key, and `fetch` returns its sample as it is. If the dataset has
a method `__getitems__`, call it once with the whole list of keys; otherwise ask for the keys one by
one. Whatever the dataset raises goes on to the caller as it is; so does a StopIteration, which must
not cut the list short.

Legend
    keys                 [12, 13, 14, 15] with automatic batching; 12 without. It is the sampler's:
                         do not change the list
    self.dataset         dataset[12] is a sample; dataset.__getitems__([12, 13]), if there is such a
                         method and not just None of that name, is a list of samples
    self.auto_collation  True with automatic batching

Your methods, and helpers, are put into minidl's class. Its __init__ stays: make a field of your own
when you first need it.

Check it with `python -m notebooks.exercises check 01`; `hint 01` helps.
It goes with notebooks/02-datasets-samplers-fetchers.ipynb.
"""

from __future__ import annotations

from typing import Any


class MapFetcher:
    def fetch(self, keys: Any) -> Any:
        raise NotImplementedError
