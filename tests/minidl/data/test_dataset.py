"""The datasets against torch's: the same calls, the same samples, errors and warnings."""

from __future__ import annotations

import types

import pytest
import torch
import torch.utils.data as theirs

import minidl as ours
from tests.ids import plain


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


class OurStream(ours.IterableDataset[int]):
    def __init__(self, n: int) -> None:
        self.n = n

    def __iter__(self):
        return iter(range(self.n))

    def __len__(self) -> int:
        return self.n


class TheirStream(theirs.IterableDataset):
    def __init__(self, n: int) -> None:
        self.n = n

    def __iter__(self):
        return iter(range(self.n))

    def __len__(self) -> int:
        return self.n


# ---- the base classes


def test_base_classes_pass_for_torchs_own():
    assert issubclass(ours.Dataset, theirs.Dataset)
    assert issubclass(ours.IterableDataset, (ours.Dataset, theirs.IterableDataset))
    assert not issubclass(ours.Dataset, theirs.IterableDataset)
    for name in ("TensorDataset", "StackDataset", "ConcatDataset", "Subset"):
        assert not isinstance(getattr(ours, name), theirs.IterableDataset)
    assert issubclass(ours.ChainDataset, theirs.IterableDataset)


@pytest.mark.parametrize("name", ["Dataset", "IterableDataset", "Sampler", "ConcatDataset", "Subset"])
def test_classes_can_be_subscripted(name):
    cls = getattr(ours, name)
    assert issubclass(types.new_class("Made", (cls[int],)), cls)


def test_the_base_classes_leave_the_methods_to_their_subclasses(same):
    same(lambda data: data.Dataset()[0], ours, theirs)
    same(lambda data: type("S", (data.IterableDataset,), {})() and None, ours, theirs)
    for package in (ours, theirs):
        with pytest.raises(TypeError, match="has no len"):
            len(package.Dataset())
        assert not hasattr(package.Dataset(), "__getitems__")


def test_datasets_can_be_added():
    both = Squares(2) + Squares(3)
    assert type(both) is ours.ConcatDataset
    assert [both[i] for i in range(5)] == [0, 1, 0, 1, 4]
    assert type(OurStream(2) + TheirStream(1)) is ours.ChainDataset
    assert list(OurStream(2) + TheirStream(1)) == [0, 1, 0]


@pytest.mark.parametrize("kind", ["Dataset", "IterableDataset"])
def test_either_package_is_known_to_the_other(kind):
    stream = kind == "IterableDataset"
    mine, torchs = (OurStream(3), TheirStream(2)) if stream else (Squares(3), theirs.TensorDataset(torch.arange(2)))
    join = "ChainDataset" if stream else "ConcatDataset"
    for parts in ([mine, torchs], [torchs, mine]):
        by_minidl, by_torch = getattr(ours, join)(parts), getattr(theirs, join)(parts)
        assert len(by_minidl) == len(by_torch) == 5
        if stream:
            assert list(by_minidl) == list(by_torch)
        else:
            assert [by_minidl[i] for i in range(5)] == [by_torch[i] for i in range(5)]


# ---- TensorDataset


@pytest.mark.parametrize("index", [0, -1, 3, 4, -5, slice(1, 3), [0, 2], None, torch.tensor([1, 1]), "a"], ids=plain)
def test_a_tensor_dataset_is_torchs(same, index):
    x, y = torch.arange(12.0).view(4, 3), torch.arange(4)
    same(lambda data: data.TensorDataset(x, y)[index], ours, theirs)
    same(lambda data: data.TensorDataset(x)[index], ours, theirs)


@pytest.mark.parametrize("shapes", [[], [(3,)], [(3, 2), (3,)], [(3,), (2,)], [(3,), (3, 1), (4,)], [()]], ids=plain)
def test_a_tensor_dataset_refuses_unequal_sizes(same, shapes):
    tensors = [torch.zeros(shape) for shape in shapes]
    same(lambda data: (len(made := data.TensorDataset(*tensors)), made.tensors), ours, theirs)


# ---- StackDataset


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
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
        ((OurStream(3), Squares(3)), {}),
        ((3,), {}),
    ],
)
@pytest.mark.parametrize("keys", [[0], [2, 0, 0], [], [0, 3]], ids=plain)
def test_a_stack_dataset_is_torchs(same, args, kwargs, keys):
    def run(data):
        stack = data.StackDataset(*args, **kwargs)
        return len(stack), stack.__getitems__(keys), [stack[key] for key in keys], type(stack.datasets)

    same(run, ours, theirs)


def test_stack_dataset_asks_each_part_once_for_a_batch():
    first, second = BatchedSquares(5), BatchedSquares(5)
    ours.StackDataset(a=first, b=second).__getitems__([3, 1])
    assert first.asked == second.asked == [[3, 1]]


def test_stack_dataset_says_which_sizes_differ_inside_a_batch():
    with pytest.raises(ValueError, match=r"output size mismatch\. Expected 2, got 1"):
        ours.StackDataset(BatchedSquares(5, forget=1)).__getitems__([3, 1])


# ---- ConcatDataset


@pytest.mark.parametrize("lengths", [[3], [3, 2, 4], [0, 3], [3, 0, 0, 2], [2, 0], [0]], ids=plain)
def test_a_concat_dataset_is_torchs(same, lengths):
    parts = [Squares(n) for n in lengths]
    total = sum(lengths)
    for index in range(-total - 2, total + 2):
        same(lambda data, index=index: data.ConcatDataset(parts)[index], ours, theirs)
    same(lambda data: (len(made := data.ConcatDataset(iter(parts))), made.cumulative_sizes), ours, theirs)
    made = ours.ConcatDataset(parts)
    assert made.datasets == parts
    assert [made[i] for i in range(total)] == [part[i] for part in parts for i in range(len(part))]


@pytest.mark.parametrize("parts", [[], [OurStream(3)], [Squares(2), TheirStream(3)], [3], ()], ids=plain)
def test_a_concat_dataset_refuses_what_torchs_refuses(same, parts):
    assert same(lambda data: data.ConcatDataset(parts), ours, theirs)["error"][0] in (AssertionError, TypeError)


def test_concat_dataset_old_attribute_warns(same):
    shown = same(lambda data: data.ConcatDataset([[1, 2], [3]]).cummulative_sizes, ours, theirs)
    assert [category for category, _, _ in shown["warnings"]] == [FutureWarning]
    assert shown["warnings"][0][2] == __file__  # the caller's line, not the property's


# ---- ChainDataset


@pytest.mark.parametrize(
    "parts",
    [[], [OurStream(3)], [TheirStream(2), OurStream(2)], [OurStream(0), OurStream(2)], [OurStream(2), Squares(2)], 5],
    ids=["none", "one", "two", "empty first", "map-style second", "not iterable"],
)
def test_a_chain_dataset_is_torchs(same, parts):
    same(lambda data: list(iter(data.ChainDataset(parts))), ours, theirs)
    same(lambda data: len(data.ChainDataset(parts)), ours, theirs)


def test_chain_dataset_is_lazy():
    chain = ours.ChainDataset([OurStream(2), Squares(2)])
    stream = iter(chain)
    assert [next(stream), next(stream)] == [0, 1]
    with pytest.raises(AssertionError, match="only supports IterableDataset"):
        next(stream)


# ---- Subset and random_split


@pytest.mark.parametrize("whole", [Squares(6), BatchedSquares(6), torch.arange(6) * 10, list("abcdef")], ids=plain)
@pytest.mark.parametrize("index", [0, 2, -1, 3, [0, 1], [], "x"], ids=plain)
def test_a_subset_is_torchs(same, whole, index):
    same(lambda data: data.Subset(whole, [5, 0, 2])[index], ours, theirs)
    keys = index if isinstance(index, list) else [index]
    same(lambda data: data.Subset(whole, [5, 0, 2]).__getitems__(keys), ours, theirs)
    same(lambda data: len(data.Subset(whole, (5, 0, 2))), ours, theirs)


def test_subset_passes_a_batch_on():
    whole = BatchedSquares(9)
    assert ours.Subset(ours.Subset(whole, [8, 7, 6, 5]), [3, 0]).__getitems__([1, 0]) == [64, 25]
    assert whole.asked == [[8, 5]]


def test_subset_must_not_change_getitem_alone(same):
    def subclass(data, **methods):
        return type("Mine", (data.Subset,), methods)([1, 2, 3], [0, 2])

    def one(self, index):
        return "one"

    def many(self, indices):
        return ["many" for _ in indices]

    refused = same(lambda data: subclass(data, __getitem__=one), ours, theirs)
    assert refused["error"][0] is NotImplementedError
    same(lambda data: subclass(data, __getitem__=one, __getitems__=many).__getitems__([0]), ours, theirs)
    same(lambda data: subclass(data, __getitems__=many)[0], ours, theirs)


@pytest.mark.parametrize(
    "lengths",
    [
        [3, 7],
        [10],
        [0, 10],
        [1],
        [1.0],
        [0.5, 0.5],
        [0.3, 0.3, 0.4],
        [0.33, 0.33, 0.34],
        [0.1] * 10,
        [0.05] * 20,
        [1 / 3] * 3,
        [0.999, 0.001],
        [1, 0],
        [-0.5, 1.5],
        [1.5, -0.5],
        [3, 3],
        [0.5, 0.4],
        [],
        [12, -2],
        [5.0, 5.0],
    ],
    ids=plain,
)
@pytest.mark.parametrize("n", [10, 1, 7])
def test_a_random_split_is_torchs(same, lengths, n):
    def parts(subsets):
        return [(list(part.indices), list(part.dataset)) for part in subsets]

    same(lambda data: parts(data.random_split(range(n), lengths)), ours, theirs)
    same(lambda data: parts(data.random_split(range(n), lengths, torch.Generator().manual_seed(3))), ours, theirs)
    same(lambda data: parts(data.random_split(range(n), lengths, generator=None)), ours, theirs)


def test_random_split_covers_the_whole():
    parts = ours.random_split(Squares(10), [0.25, 0.25, 0.5])
    assert [type(part) for part in parts] == [ours.Subset] * 3
    assert [len(part) for part in parts] == [3, 2, 5]
    assert sorted(key for part in parts for key in part.indices) == list(range(10))


# ---- in torch's loader


@pytest.mark.parametrize(
    "make",
    [
        lambda data: data.TensorDataset(torch.arange(10), torch.arange(10.0)),
        lambda data: data.StackDataset(a=torch.arange(10), b=torch.arange(10.0)),
        lambda data: data.ConcatDataset([torch.arange(4), torch.arange(6)]),
        lambda data: data.Subset(torch.arange(10), [9, 1, 8, 2]),
        lambda data: data.ChainDataset([OurStream(3), TheirStream(4)]),
        lambda data: data.random_split(torch.arange(10), [0.7, 0.3])[0],
    ],
    ids=["tensor", "stack", "concat", "subset", "chain", "split"],
)
@pytest.mark.parametrize("batch_size", [3, None])
def test_datasets_work_in_torchs_loader(same, make, batch_size):
    same(lambda data: list(theirs.DataLoader(make(data), batch_size=batch_size)), ours, theirs)
