"""The datasets against torch's: the same calls, the same samples, errors and warnings."""

from __future__ import annotations

import itertools
import types

import pytest
import torch
import torch.utils.data as theirs

import minidl as ours
from tests.ids import plain
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
EMPTY = SizedMinidlStream(0)


def subset(data, **methods):
    """A subset of a class that overrides these methods."""
    return type("Mine", (data.Subset,), methods)([1, 2, 3], [0, 2])


def one(self, index):
    return "one"


def many(self, indices):
    return ["many" for _ in indices]


def parts_of(subsets):
    return [(type(part).__name__, list(part.indices), list(part.dataset)) for part in subsets]


def every_index():
    """What is asked of a dataset: its name, how to make it, and the index."""
    tensor_indices = [0, -1, 3, 4, -5, slice(1, 3), [0, 2], None, torch.tensor([1, 1]), "a"]
    for index in tensor_indices:
        yield "tensors", lambda data: data.TensorDataset(X, Y), index
        yield "tensor", lambda data: data.TensorDataset(X), index
    for lengths in [3], [3, 2, 4], [0, 3], [3, 0, 0, 2], [2, 0], [0]:
        parts = [Squares(n) for n in lengths]
        for index in range(-sum(lengths) - 2, sum(lengths) + 2):
            yield f"concat of {lengths}", lambda data, parts=parts: data.ConcatDataset(parts), index
    wholes = {"one by one": Squares(6), "batched": BatchedSquares(6), "tensor": X[:, 0], "list": list("abcdef")}
    for (name, whole), index in itertools.product(wholes.items(), [0, 2, -1, 3, [0, 1], [], "x"]):
        yield f"subset of {name}", lambda data, whole=whole: data.Subset(whole, [5, 0, 2]), index


@pytest.mark.parametrize(
    ("name", "make", "index"), [pytest.param(*each, id=plain(each[::2])) for each in every_index()]
)
def test_each_sample_is_torchs(same, name, make, index):
    same(lambda data: make(data)[index], ours, theirs)
    keys = index if isinstance(index, list) else [index]
    same(lambda data: make(data).__getitems__(keys), ours, theirs)


STACKS = [
    ((), {}),
    ((Squares(3),), {}),
    ((Squares(3), [5, 6, 7]), {}),
    ((), {"a": Squares(3), "b": [5, 6, 7]}),
    ((BatchedSquares(3), Squares(3)), {}),
    ((), {"a": BatchedSquares(3), "b": Squares(3)}),
    ((Squares(3), Squares(4)), {}),
    ((), {"a": Squares(3), "b": Squares(4)}),
    ((Squares(3),), {"b": Squares(3)}),
    ((BatchedSquares(3, forget=1), Squares(3)), {}),
    ((), {"a": Squares(3), "b": BatchedSquares(3, forget=1)}),
    ((STREAMS[0], Squares(3)), {}),
    ((3,), {}),
]


@pytest.mark.parametrize(("args", "kwargs"), STACKS)
@pytest.mark.parametrize("keys", [[0], [2, 0, 0], [], [0, 3]], ids=plain)
def test_a_stack_dataset_is_torchs(same, args, kwargs, keys):
    def run(data):
        stack = data.StackDataset(*args, **kwargs)
        return len(stack), stack.__getitems__(keys), [stack[key] for key in keys], type(stack.datasets)

    same(run, ours, theirs)


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
    "a stream": lambda data: type("S", (data.IterableDataset,), {})() and None,
    "no tensors": whole_tensors(),
    "a tensor": whole_tensors((3,)),
    "tensors": whole_tensors((3, 2), (3,)),
    "unequal tensors": whole_tensors((3,), (2,)),
    "the last one unequal": whole_tensors((3,), (3, 1), (4,)),
    "a tensor of no dimension": whole_tensors(()),
    "concat of an iterator": lambda data: (
        len(made := data.ConcatDataset(iter([Squares(3), Squares(0), Squares(2)]))),
        made.cumulative_sizes,
        made.datasets[0][2],
    ),
    "concat of both": lambda data: [
        *map(data.ConcatDataset([Squares(3), theirs.TensorDataset(Y)]).__getitem__, range(7))
    ],
    "concat asked with a tensor": lambda data: (
        index := torch.tensor(-1),
        data.ConcatDataset([Squares(3)])[index],
        data.ConcatDataset([Squares(5)])[index],
    ),
    "concat of streams": lambda data: data.ConcatDataset(STREAMS),
    "concat with a stream": lambda data: data.ConcatDataset([Squares(2), STREAMS[1]]),
    "concat of nothing": lambda data: data.ConcatDataset([]),
    "concat of an empty tuple": lambda data: data.ConcatDataset(()),
    "concat of a number": lambda data: data.ConcatDataset([3]),
    **{
        f"{name} of a chain of {kind}": lambda data, show=show, parts=parts: show(data.ChainDataset(parts))
        for name, show in {"batches": list, "length": len}.items()
        for kind, parts in {
            "none": [],
            "one": STREAMS[:1],
            "two": STREAMS,
            "two, the other way": STREAMS[::-1],
            "an empty one first": [EMPTY, *STREAMS],
            "a map-style one second": [STREAMS[0], Squares(2)],
            "a number": 5,
        }.items()
    },
    "the length of a subset": lambda data: len(data.Subset(Squares(6), (5, 0, 2))),
    "a subset that changes only one": lambda data: subset(data, __getitem__=one),
    "a subset that changes both": lambda data: subset(data, __getitem__=one, __getitems__=many).__getitems__([0]),
    "a subset that changes many": lambda data: subset(data, __getitems__=many)[0],
}
REFUSED = {"concat of streams", "concat with a stream", "concat of nothing", "a subset that changes only one"}


@pytest.mark.parametrize("what", ALIKE)
def test_the_same_is_done_as_by_torchs(same, what):
    shown = same(ALIKE[what], ours, theirs)
    assert shown["error"][0] or what not in REFUSED
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
