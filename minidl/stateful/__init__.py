"""Stop in the middle, go on there: `StatefulDataLoader`, by torchdata's name. The plain loader knows nothing of it.

    tasks     0 1 2 3 | 4 5 6 7   | 8 ...         after four batches, with two workers and prefetch_factor=2
              yielded | in flight | not drawn

The workers are ahead of the training loop: they may have made 4 and 5 already. Where their datasets are now is of no
use to a run that must begin with batch 4. So each worker sends its dataset's place along with a batch, and main keeps
the place when the caller has the *batch*. What is in flight belongs to nobody's past: its keys are saved, and they come
first. The sampler's place is the one that it has now, in front of 8.

    loader.py       StatefulDataLoader, and the two iterators, which keep the progress or begin where another was
    progress.py     how far an epoch has come: what a state says, and how it is read
    sampler.py      the sampler's place, and the random generators
    dataset.py      the dataset's place: its worker tells it with each batch

What it costs: a dataset, its iterator and a sampler that have a `state_dict()` are asked for it after every batch, and
what they return is copied. For others it is a checksum of the keys, and some bytes beside each batch.
"""

from minidl.stateful.loader import StatefulDataLoader

__all__ = ["StatefulDataLoader"]
