"""The samplers against torch's: the same draws from the same generators, the same keys, errors and lengths."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.utils.data as theirs

import minidl as ours
from minidl.data.sampler import InfiniteConstantSampler
from tests.ids import plain


def generators(seed):
    """A generator argument, freshly made for each run: None, or one with this seed."""
    return None if seed is None else torch.Generator().manual_seed(seed)


def two_epochs(sampler):
    generator = getattr(sampler, "generator", None)
    keys = list(sampler), list(sampler), len(sampler)
    return keys, generator is not None and generator.get_state()  # where the draws left it


def test_the_base_class_passes_for_torchs(same):
    assert issubclass(ours.Sampler, theirs.Sampler)
    same(lambda data: iter(data.Sampler()), ours, theirs)
    same(lambda data: [*type("Mine", (data.Sampler,), {"__iter__": lambda self: iter("abc")})()], ours, theirs)
    with pytest.raises(TypeError, match="has no len"):
        len(ours.Sampler())


@pytest.mark.parametrize("n", [0, 1, 7])
def test_sequential_keys_are_torchs(same, n):
    same(lambda data: two_epochs(data.SequentialSampler(range(n))), ours, theirs)


@pytest.mark.parametrize("seed", [None, 5])
@pytest.mark.parametrize("replacement", [False, True])
@pytest.mark.parametrize("num_samples", [None, 1, 31, 32, 33, 64, 100])
@pytest.mark.parametrize("n", [0, 1, 10, 33])
def test_random_keys_are_torchs(same, n, num_samples, replacement, seed):
    def run(data):
        return two_epochs(data.RandomSampler(range(n), replacement, num_samples, generators(seed)))

    same(run, ours, theirs)


@pytest.mark.parametrize("replacement", [False, True])
def test_random_draws_no_earlier_than_torch(same, replacement):
    """How far the generator has moved after each key: a checkpoint may be taken between any two."""

    def run(data):
        generator = torch.Generator().manual_seed(1)
        sampler = data.RandomSampler(range(40), replacement, 90, generator)
        return [(key, generator.get_state()) for key in sampler]

    same(run, ours, theirs)


def test_random_takes_its_seed_at_the_first_key(same):
    def run(data):
        iterator = iter(data.RandomSampler(range(5)))
        before = torch.rand(())
        return before, next(iterator), torch.rand(()), list(iterator)

    same(run, ours, theirs)


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((range(3), 1), {}),
        ((range(3), None), {}),
        ((range(3),), {"num_samples": 0}),
        ((range(3),), {"num_samples": -1}),
        ((range(3),), {"num_samples": 2.0}),
        ((range(3),), {"num_samples": "2"}),
        ((range(3),), {"num_samples": True}),
        ((range(0),), {}),
        ((range(0), "yes"), {}),
        ((iter(()),), {}),
        ((), {}),
    ],
)
def test_arguments_of_random_are_judged_as_by_torch(same, args, kwargs):
    same(lambda data: data.RandomSampler(*args, **kwargs).num_samples, ours, theirs)


def test_random_follows_a_growing_dataset():
    source = [0, 1]
    sampler = ours.RandomSampler(source)
    source.append(2)
    assert (len(sampler), sampler.num_samples, sorted(sampler)) == (3, 3, [0, 1, 2])


@pytest.mark.parametrize("seed", [None, 5])
@pytest.mark.parametrize("indices", [[], [4], [9, 8, 7, 7], "abcd", torch.arange(5)], ids=plain)
def test_keys_of_a_random_subset_are_torchs(same, indices, seed):
    same(lambda data: two_epochs(data.SubsetRandomSampler(indices, generators(seed))), ours, theirs)


@pytest.mark.parametrize("seed", [None, 5])
@pytest.mark.parametrize("replacement", [False, True])
@pytest.mark.parametrize("num_samples", [1, 3, 5, 50])
@pytest.mark.parametrize(
    "weights",
    [[1, 2, 3, 4, 5], [0.1, 0.0, 0.9, 0.4, 0.4], torch.ones(5), [0, 0, 0], [1, -1], [float("nan")], [], [[1.0, 2.0]]],
    ids=plain,
)
def test_weighted_keys_are_torchs(same, weights, num_samples, replacement, seed):
    def run(data):
        sampler = data.WeightedRandomSampler(weights, num_samples, replacement, generators(seed))
        return two_epochs(sampler), sampler.weights

    same(run, ours, theirs)


@pytest.mark.parametrize(
    ("num_samples", "replacement"), [(0, True), (-3, True), (2.0, True), (True, True), ("2", True), (2, 1), (2, None)]
)
def test_arguments_of_weighted_are_judged_as_by_torch(same, num_samples, replacement):
    shown = same(lambda data: data.WeightedRandomSampler([1, 2], num_samples, replacement), ours, theirs)
    assert shown["error"][0] is ValueError


class ByItem:
    """Can be iterated over for its `__getitem__` alone."""

    def __getitem__(self, i):
        if i >= 5:
            raise IndexError
        return i * 10


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("batch_size", [1, 3, 5, 10, 11])
@pytest.mark.parametrize("source", [range(0), range(1), range(10), "abcde", torch.arange(4)], ids=plain)
def test_batches_of_keys_are_torchs(same, source, batch_size, drop_last):
    def run(data):
        sampler = data.BatchSampler(source, batch_size, drop_last)
        assert len(list(sampler)) == len(sampler)
        return list(sampler), list(sampler), len(sampler)

    same(run, ours, theirs)


@pytest.mark.parametrize("drop_last", [False, True])
def test_things_without_a_length_can_be_batched(same, drop_last):
    same(lambda data: list(data.BatchSampler(ByItem(), 2, drop_last)), ours, theirs)
    same(lambda data: list(data.BatchSampler((i for i in range(5)), 2, drop_last)), ours, theirs)
    same(lambda data: len(data.BatchSampler(iter(range(5)), 2, drop_last)), ours, theirs)
    same(lambda data: list(data.BatchSampler(5, 2, drop_last)), ours, theirs)


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("n", [0, 3, 4, 5])
def test_a_batch_asks_for_no_more_keys_than_in_torch(same, drop_last, n):
    def run(data):
        asked = []

        def source():
            for key in range(n):
                asked.append(key)
                yield key

        return [(keys, list(asked)) for keys in data.BatchSampler(source(), 2, drop_last)], asked

    same(run, ours, theirs)


def test_each_batch_is_a_new_list():
    batches = list(ours.BatchSampler(range(4), 2, False))
    batches[0].append(99)
    assert batches[1] == [2, 3]


@pytest.mark.parametrize(
    ("batch_size", "drop_last"),
    [(0, False), (-1, False), (2.0, False), (True, False), ("2", False), (None, False), (2, 0), (2, None), (2, "no")],
)
def test_arguments_of_batch_are_judged_as_by_torch(same, batch_size, drop_last):
    shown = same(lambda data: data.BatchSampler(range(4), batch_size, drop_last), ours, theirs)
    assert shown["error"][0] is ValueError


def test_the_endless_sampler_yields_none_for_ever():
    endless = InfiniteConstantSampler()
    assert list(itertools.islice(endless, 5)) == [None] * 5
    assert next(iter(ours.BatchSampler(endless, 3, False))) == [None] * 3
    with pytest.raises(TypeError, match="has no len"):
        len(endless)


@pytest.mark.parametrize(
    "make",
    [
        lambda data, n: {"sampler": data.SequentialSampler(range(n))},
        lambda data, n: {"sampler": data.RandomSampler(range(n)), "batch_size": 4},
        lambda data, n: {"sampler": data.SubsetRandomSampler([1, 3, 5]), "batch_size": 2},
        lambda data, n: {"batch_sampler": data.BatchSampler(data.RandomSampler(range(n), True, 9), 4, True)},
        lambda data, n: {"sampler": data.BatchSampler(data.SequentialSampler(range(n)), 4, False), "batch_size": None},
    ],
)
def test_samplers_work_in_torchs_loader(same, make):
    same(lambda data: list(theirs.DataLoader(torch.arange(10), **make(data, 10))), ours, theirs)
