"""Exercise 3: BatchSampler.__iter__.

A sampler yields one key at a time. A task has the keys of a whole batch, so `BatchSampler` takes
keys from a sampler, `batch_size` at a time, and yields them as lists. Write its `__iter__`. The
loader iterates over it anew in every epoch, and asks for the next list whenever it sends a task.

If the keys do not divide evenly, the last list is shorter; with `drop_last` it is dropped. All you
know about the sampler is that you can iterate over it. It may never end, so take no more keys than
the current list needs. Main keeps each list until its batch is yielded.

Legend
    self.sampler     iter(self.sampler) yields keys: 12, 13, 14, ... A key can be anything, even
                     None
    self.batch_size  4: keys in each list
    self.drop_last   False: a shorter last list is yielded; True: it is not

Your methods, and helpers, are put into minidl's class. Its __init__ stays: make a field of your own
when you first need it.

Check it with `python -m notebooks.exercises check 03`; `hint 03` helps.
It goes with notebooks/02-datasets-samplers-fetchers.ipynb.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator


class BatchSampler:
    def __iter__(self) -> Iterator[list[int]]:
        raise NotImplementedError
