"""Exercise 3: BatchSampler.__iter__.

A sampler says which sample comes next, one key at a time. A task has the keys of a whole batch:
`BatchSampler` takes the keys of a sampler, `batch_size` at a time, and yields lists of them. Write
its `__iter__`. The loader iterates over it anew in every epoch, and asks for the next list whenever
it sends a task.

If the keys do not divide evenly, the last list is shorter, or, with `drop_last`, left out. Of the
sampler nothing is known but that it can be iterated over; it may have no end, so that no more keys
are taken than the list at hand needs. Main keeps each list until its batch is yielded.

Legend
    self.sampler     iter(self.sampler) yields keys: 12, 13, 14, ... A key can be anything, None too
    self.batch_size  4: keys in each list
    self.drop_last   False: a shorter last list is yielded; True: it is not

Check it with `python -m notebooks.exercises check 03`; `hint 03` helps.
It belongs to notebooks/02-datasets-samplers-fetchers.ipynb.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator


class BatchSampler:
    def __iter__(self) -> Iterator[list[int]]:
        raise NotImplementedError
