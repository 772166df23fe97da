"""The samplers against torch's: the same draws from the same generators, the same keys, errors and lengths."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.utils.data as theirs
from hypothesis import given, settings
from hypothesis import strategies as st

import minidl as ours
from minidl.data.sampler import InfiniteConstantSampler
from tests.minidl.observing import attempt

NAN = float("nan")
DROPS = [False, True]


class ByItem:
    """Can be iterated over for its `__getitem__` alone."""

    def __getitem__(self, i):
        if i >= 5:
            raise IndexError
        return i * 10


FLAGS = st.sampled_from([False, False, True, True, None, 1, "yes"])
COUNTS = st.integers(1, 5) | st.sampled_from([31, 32, 33, 100]) | st.sampled_from([None, 0, -1, 2.0, True, "2"])
SOURCES = (
    st.integers(0, 9).map(range)
    | st.sampled_from([range(33), range(64)])
    | st.sampled_from(["abcde", torch.arange(4), ByItem(), iter(()), 5])
)
WEIGHTS = st.lists(st.integers(0, 3) | st.floats(0, 1)) | st.sampled_from([torch.ones(5), [1, -1], [NAN], [[1.0, 2.0]]])
ARGUMENTS = {
    "SequentialSampler": st.tuples(SOURCES),
    "RandomSampler": st.tuples(SOURCES, FLAGS, COUNTS),
    "SubsetRandomSampler": st.tuples(st.lists(st.integers()) | SOURCES),
    "WeightedRandomSampler": st.tuples(WEIGHTS, COUNTS, FLAGS),
    "BatchSampler": st.tuples(SOURCES, COUNTS, FLAGS),
}


@pytest.mark.parametrize("name", ARGUMENTS)
@given(data=st.data(), seed=st.none() | st.integers(0, 9))
@settings(max_examples=100)
def test_keys_and_draws_are_torchs_and_so_is_what_is_refused(same, name, data, seed):
    args = data.draw(ARGUMENTS[name])

    def run(package):
        options = {} if seed is None or "Random" not in name else {"generator": torch.Generator().manual_seed(seed)}
        sampler = getattr(package, name)(*args, **options)
        keys = list(sampler), list(sampler)
        # Where the draws left the generator, too.
        left = [each.get_state() for each in options.values()]
        return keys, attempt(lambda: len(sampler)), vars(sampler).get("weights"), left

    same(run, ours, theirs)


@pytest.mark.parametrize("replacement", DROPS)
def test_random_draws_no_earlier_than_torch(same, replacement):
    """How far the generator has moved after each key: a checkpoint may be taken between any two."""

    def run(data):
        generator = torch.Generator().manual_seed(1)
        sampler = data.RandomSampler(range(40), replacement, 90, generator)
        return [(key, generator.get_state()) for key in sampler]

    same(run, ours, theirs)


def draws_around_the_first_key(data):
    iterator = iter(data.RandomSampler(range(5)))
    before = torch.rand(())
    return before, next(iterator), torch.rand(()), list(iterator)


def keys_asked_for(data, n, drop_last):
    """What a batch sampler has taken from its source by each of its batches, and by its end."""
    asked = []
    source = (asked.append(key) or key for key in range(n))
    return [(keys, list(asked)) for keys in data.BatchSampler(source, 2, drop_last)], asked


ALIKE = {
    "the base class has nothing to iterate over": lambda data: iter(data.Sampler()),
    "the base class has no length": lambda data: len(data.Sampler()),
    "a subclass": lambda data: [*type("Mine", (data.Sampler,), {"__iter__": lambda self: iter("abc")})()],
    "the seed is drawn at the first key": draws_around_the_first_key,
    **{
        f"no more than {n} keys are asked for, {drop_last}": lambda data, n=n, drop=drop_last: keys_asked_for(
            data, n, drop
        )
        for n in (0, 3, 4, 5)
        for drop_last in DROPS
    },
}


@pytest.mark.parametrize("run", ALIKE.values(), ids=ALIKE)
def test_the_same_is_done_as_by_torchs(same, run):
    same(run, ours, theirs)


def test_the_base_class_passes_for_torchs():
    assert issubclass(ours.Sampler, theirs.Sampler)


@pytest.mark.parametrize("replacement", DROPS)
def test_random_follows_a_growing_dataset(same, replacement):
    """Between its epochs, and in one."""

    def run(data):
        source = [0, 1]
        sampler = data.RandomSampler(source, replacement)
        source.append(2)
        before = len(sampler), sampler.num_samples
        return before, [(key, source.append(key)) for key in sampler]

    same(run, ours, theirs)


def test_each_batch_is_a_new_list():
    batches = list(ours.BatchSampler(range(4), 2, False))
    batches[0].append(99)
    assert batches[1] == [2, 3]


def test_the_endless_sampler_yields_none_for_ever():
    endless = InfiniteConstantSampler()
    assert list(itertools.islice(endless, 5)) == [None] * 5
    assert next(iter(ours.BatchSampler(endless, 3, False))) == [None] * 3
    with pytest.raises(TypeError, match="has no len"):
        len(endless)
