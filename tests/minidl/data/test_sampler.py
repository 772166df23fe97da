"""The samplers against torch's: the same draws from the same generators, the same keys, errors and lengths."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.utils.data as theirs

import minidl as ours
from minidl.data.sampler import InfiniteConstantSampler
from tests.ids import plain
from tests.minidl.observing import attempt

NAN = float("nan")
UNORDERED = [[1, 2, 3, 4, 5], [0.1, 0.0, 0.9, 0.4, 0.4], torch.ones(5), [0, 0, 0], [1, -1], [NAN], [], [[1.0, 2.0]]]
DROPS = [False, True]


class ByItem:
    """Can be iterated over for its `__getitem__` alone."""

    def __getitem__(self, i):
        if i >= 5:
            raise IndexError
        return i * 10


def every_sampler():
    """Class and arguments. Where the class takes a generator, it comes after them."""
    for n in [0, 1, 7]:
        yield "SequentialSampler", (range(n),)
    for n, replacement, num_samples in itertools.product([0, 1, 10, 33], DROPS, [None, 1, 31, 32, 33, 64, 100]):
        yield "RandomSampler", (range(n), replacement, num_samples)
    for indices in [], [4], [9, 8, 7, 7], "abcd", torch.arange(5):
        yield "SubsetRandomSampler", (indices,)
    for weights, num_samples, replacement in itertools.product(UNORDERED, [1, 3, 5, 50], DROPS):
        yield "WeightedRandomSampler", (weights, num_samples, replacement)
    sources = [range(0), range(1), range(10), "abcde", torch.arange(4), ByItem(), 5]
    for source, batch_size, drop_last in itertools.product(sources, [1, 2, 3, 5, 10, 11], DROPS):
        yield "BatchSampler", (source, batch_size, drop_last)


REFUSED = [
    *[("RandomSampler", (range(3), replacement)) for replacement in (1, None)],
    *[("RandomSampler", (range(3), False, num_samples)) for num_samples in (0, -1, 2.0, "2")],
    *[("RandomSampler", args) for args in [(range(0), "yes"), (iter(()),), ()]],
    *[("WeightedRandomSampler", ([1, 2], num_samples)) for num_samples in (0, -3, 2.0, True, "2")],
    *[("WeightedRandomSampler", ([1, 2], 2, replacement)) for replacement in (1, None)],
    *[("BatchSampler", (range(4), batch_size, False)) for batch_size in (0, -1, 2.0, True, "2", None)],
    *[("BatchSampler", (range(4), 2, drop_last)) for drop_last in (0, None, "no")],
]


@pytest.mark.parametrize("seed", [None, 5])
@pytest.mark.parametrize(("name", "args"), list(every_sampler()), ids=plain)
def test_keys_and_draws_are_torchs(same, name, args, seed):
    def run(data):
        options = {} if seed is None or "Random" not in name else {"generator": torch.Generator().manual_seed(seed)}
        sampler = getattr(data, name)(*args, **options)
        keys = list(sampler), list(sampler)
        # Where the draws left the generator, too.
        return (
            keys,
            attempt(lambda: len(sampler)),
            getattr(sampler, "weights", None),
            [each.get_state() for each in options.values()],
        )

    same(run, ours, theirs)


@pytest.mark.parametrize(("name", "args"), REFUSED, ids=plain)
def test_what_torch_refuses_is_refused(same, name, args):
    shown = same(lambda data: getattr(data, name)(*args).num_samples, ours, theirs)
    assert shown["error"][0] in (ValueError, TypeError)


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
    "num_samples is a bool": lambda data: data.RandomSampler(range(3), num_samples=True).num_samples,
    "nothing to draw from": lambda data: data.RandomSampler(range(0)).num_samples,
    "the seed is drawn at the first key": draws_around_the_first_key,
    "batches of what has no length": lambda data: len(data.BatchSampler(iter(range(5)), 2, False)),
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


def test_random_follows_a_growing_dataset():
    source = [0, 1]
    sampler = ours.RandomSampler(source)
    source.append(2)
    assert (len(sampler), sampler.num_samples, sorted(sampler)) == (3, 3, [0, 1, 2])


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
