"""Stop in the middle, go on there: `DataLoader.state_dict()` and `load_state_dict()`. torch has no counterpart; the
loader can be read without it.

    position.py     where an iterator is in its epoch: what a state says
    saved.py        a state that was loaded, and what of it the next iterator can use
    draws.py        the sampler's place
    source.py       the dataset's place, in each worker
    telling.py      how main learns of it: with every batch
    randomness.py   the random generators of a process
"""
