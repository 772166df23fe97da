"""The datasets against torch's: the same calls, the same samples, errors and warnings."""

from __future__ import annotations

import types

import pytest
import torch
import torch.utils.data as theirs
from hypothesis import given, settings
from hypothesis import strategies as st

import minidl as ours
from tests.ids import plain
from tests.minidl.observing import attempt
from tests.minidl.programs import SizedMinidlStream, SizedTorchStream


class Squares(ours.Dataset[int]):
    def __init__(self, n: int) -> None:
        self.n = n

    def __getitem__(self, index: int) -> int:
        if not 0 <= index < self.n:
            raise IndexError(index)
        return index * index

    def __len__(self) -> int:
        return self.n


class BatchedSquares(Squares):
    """Notes what it was asked for, and can return too few samples."""

    def __init__(self, n: int, forget: int = 0) -> None:
        super().__init__(n)
        self.forget = forget
        self.asked: list[list[int]] = []

    def __getitems__(self, keys: list[int]) -> list[int]:
        self.asked.append(keys)
        return [self[key] for key in keys][self.forget :]


X, Y = torch.arange(12.0).view(4, 3), torch.arange(4)
STREAMS = [SizedMinidlStream(2), SizedTorchStream(3)]


def subset(data, **methods):
    """A subset of a class that overrides these methods."""
    return type("Mine", (data.Subset,), methods)([1, 2, 3], [0, 2])


def one(self, index):
    return "one"


def many(self, indices):
    return ["many" for _ in indices]


def parts_of(subsets):
    return [(type(part).__name__, list(part.indices), list(part.dataset)) for part in subsets]


GOOD = [Squares(0), Squares(3), Squares(4), BatchedSquares(3), [5, 6, 7], X]
BAD = [BatchedSquares(3, forget=1), *STREAMS, 3]
ASKED = [*range(-6, 9), [0, 2], [], "a", None, slice(1, 3), torch.tensor([1, 1]), torch.tensor(-1)]
KEYS = st.lists(st.integers(-1, 4), max_size=4)


def combined(trees):
    """Datasets of these: the name of a function of torch.utils.data, and what it is given."""
    kinds = {
        "ConcatDataset": [st.lists(trees, max_size=4)],
        "StackDataset": [st.lists(trees, max_size=3) | st.dictionaries(st.sampled_from("ab"), trees)],
        "Subset": [trees, KEYS],
    }
    return st.one_of(st.tuples(st.just(name), *arguments) for name, arguments in kinds.items())


def made(data, tree):
    if not isinstance(tree, tuple):
        return data.TensorDataset(tree, Y) if tree is X else tree
    name, parts, *others = tree
    if name == "Subset":
        return data.Subset(made(data, parts), *others)
    if isinstance(parts, dict):
        return data.StackDataset(**{key: made(data, part) for key, part in parts.items()})
    given = (made(data, part) for part in parts)  # an iterator will do
    return data.ConcatDataset(given) if name == "ConcatDataset" else data.StackDataset(*given)


@settings(max_examples=1_500)
@given(combined(st.recursive(st.sampled_from([*GOOD, *GOOD, *BAD]), combined, max_leaves=6)), KEYS)
def test_what_is_combined_has_torchs_samples(same, tree, keys):
    same(lambda data: len(made(data, tree)), ours, theirs)
    same(lambda data: made(data, tree).__getitems__(keys), ours, theirs)
    same(lambda data: [attempt(lambda index=index: made(data, tree)[index]) for index in ASKED], ours, theirs)


@pytest.mark.parametrize("index", ASKED, ids=plain)
def test_rows_of_tensors_are_torchs(same, index):
    same(lambda data: [data.TensorDataset(X, Y)[index], data.TensorDataset(X)[index]], ours, theirs)


LENGTHS = [
    *([3, 7], [10], [0, 10], [1], [1.0], [0.5, 0.5], [0.3, 0.3, 0.4], [0.33, 0.33, 0.34], [0.1] * 10, [0.05] * 20),
    *([1 / 3] * 3, [0.999, 0.001], [1, 0], [-0.5, 1.5], [1.5, -0.5], [3, 3], [0.5, 0.4], [], [12, -2], [5.0, 5.0]),
]


@pytest.mark.parametrize("lengths", LENGTHS, ids=plain)
@pytest.mark.parametrize("n", [10, 1, 7])
def test_a_random_split_is_torchs(same, lengths, n):
    same(lambda data: parts_of(data.random_split(range(n), lengths)), ours, theirs)
    same(lambda data: parts_of(data.random_split(range(n), lengths, torch.Generator().manual_seed(3))), ours, theirs)
    same(lambda data: parts_of(data.random_split(range(n), lengths, generator=None)), ours, theirs)


def whole_tensors(*shapes):
    return lambda data: (len(made := data.TensorDataset(*map(torch.zeros, shapes))), made.tensors)


ALIKE = {
    "a dataset without __getitem__": lambda data: data.Dataset()[0],
    "a dataset without __getitems__": lambda data: hasattr(data.Dataset(), "__getitems__"),
    "a dataset without __len__": lambda data: len(data.Dataset()),
    "no tensors": whole_tensors(),
    "a tensor": whole_tensors((3,)),
    "the last one unequal": whole_tensors((3,), (3, 1), (4,)),
    "a tensor of no dimension": whole_tensors(()),
    **{
        f"{name} of a chain of {kind}": lambda data, show=show, parts=parts: show(data.ChainDataset(parts))
        for name, show in {"batches": list, "length": len}.items()
        for kind, parts in {
            "two": STREAMS,
            "an empty one first": [SizedMinidlStream(0), *STREAMS],
            "a map-style one second": [STREAMS[0], Squares(2)],
            "a number": 5,
        }.items()
    },
    "a subset that changes only one": lambda data: subset(data, __getitem__=one),
    "a subset that changes both": lambda data: subset(data, __getitem__=one, __getitems__=many).__getitems__([0]),
    "a subset that changes many": lambda data: subset(data, __getitems__=many)[0],
}


@pytest.mark.parametrize("what", ALIKE)
def test_the_same_is_done_as_by_torchs(same, what):
    shown = same(ALIKE[what], ours, theirs)
    assert shown["error"][0] or what != "a subset that changes only one"
    files = [file for _, _, file in shown["warnings"]]
    assert files == [__file__] * (what == "concat's old attribute")  # the caller's line, not the property's


def test_base_classes_pass_for_torchs_own():
    assert issubclass(ours.Dataset, theirs.Dataset)
    assert issubclass(ours.IterableDataset, (ours.Dataset, theirs.IterableDataset))
    assert not issubclass(ours.Dataset, theirs.IterableDataset)
    for name in ("TensorDataset", "StackDataset", "ConcatDataset", "Subset"):
        assert not isinstance(getattr(ours, name), theirs.IterableDataset)
    assert issubclass(ours.ChainDataset, theirs.IterableDataset)


@pytest.mark.parametrize("name", ["Dataset", "IterableDataset", "Sampler", "ConcatDataset", "Subset", "DataLoader"])
def test_classes_can_be_subscripted(name):
    cls = getattr(ours, name)
    assert issubclass(types.new_class("Made", (cls[int],)), cls)


def test_datasets_can_be_added():
    both = Squares(2) + Squares(3)
    assert type(both) is ours.ConcatDataset
    assert [both[i] for i in range(5)] == [0, 1, 0, 1, 4]
    assert type(STREAMS[0] + STREAMS[1]) is ours.ChainDataset
    assert list(STREAMS[0] + STREAMS[1]) == [0, 1, 0, 1, 2]


def test_stack_dataset_asks_each_part_once_for_a_batch():
    first, second = BatchedSquares(5), BatchedSquares(5)
    ours.StackDataset(a=first, b=second).__getitems__([3, 1])
    assert first.asked == second.asked == [[3, 1]]


def test_subset_passes_a_batch_on():
    whole = BatchedSquares(9)
    assert ours.Subset(ours.Subset(whole, [8, 7, 6, 5]), [3, 0]).__getitems__([1, 0]) == [64, 25]
    assert whole.asked == [[8, 5]]
