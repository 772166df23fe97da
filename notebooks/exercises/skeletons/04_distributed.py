"""Exercise 4: DistributedSampler.__iter__.

When several processes train together, each has its own loader, and `DistributedSampler` gives it
its share of the keys. Write its `__iter__`, which returns an iterator over the keys of this rank.
The ranks do not communicate: each makes the same list of all keys, and takes every
`num_replicas`-th of them, starting at its own number.

With `shuffle`, draw the list with torch.randperm from a generator seeded with `seed + epoch`. Each
rank must have `num_samples` keys, so the list needs `total_size`: pad it with the keys that it
begins with (repeatedly, if there are more ranks than keys) or, with `drop_last`, cut it. If it has
another length after that, the dataset is not what it was when the sampler was made: raise an
AssertionError.

Legend
    len(self.dataset)  10
    self.num_replicas  4 processes that train together
    self.rank          1: which of them this is, from 0
    self.num_samples   3: the keys of each rank; 2 with drop_last
    self.total_size    12: num_samples * num_replicas
    self.shuffle       True: a permutation; False: 0, 1, 2, ...
    self.seed          0, the same on every rank
    self.epoch         0: the argument of the last set_epoch
    self.drop_last     False: pad to total_size; True: cut

Your methods, and helpers, are put into minidl's class. Its __init__ stays: make a field of your own
when you first need it.

Check it with `python -m notebooks.exercises check 04`; `hint 04` helps.
It goes with notebooks/02-datasets-samplers-fetchers.ipynb.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from minidl.data.sampler import T_co


class DistributedSampler:
    def __iter__(self) -> Iterator[T_co]:
        """The keys of this rank. All are drawn here, before the first is asked for.

        Raises:
            AssertionError: the dataset's length has changed since the sampler was made.
        """
        raise NotImplementedError
