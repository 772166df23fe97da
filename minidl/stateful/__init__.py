"""Resuming in mid-epoch: `StatefulDataLoader`, by torchdata's name. The plain loader knows nothing of it.

    tasks     0 1 2 3 | 4 5 6 7   | 8 ...         after four batches, with two workers and prefetch_factor=2
              yielded | in flight | not drawn

The workers are ahead of the training loop: they may have made 4 and 5 already. Where their datasets are now is of no
use to a run that must begin with batch 4. So each worker sends its dataset's place along with a batch, and main keeps
the place once the caller has the *batch*. The keys of what is in flight are saved, and come first after resuming. The
sampler's place is where it is now, before 8.

    loader.py       StatefulDataLoader, and the two iterators, which record progress and can begin at a saved place
    progress.py     how far an epoch has come: what a state says, and how it is read
    sampler.py      the sampler's place, and the random generators
    dataset.py      the dataset's place: its worker sends it with each batch

What it costs: a dataset, its iterator and a sampler that have a `state_dict()` are asked for it after every batch, and
what they return is copied. For others it is a checksum of the keys, and some bytes beside each batch.
"""

from minidl.stateful.loader import StatefulDataLoader

__all__ = ["StatefulDataLoader"]
