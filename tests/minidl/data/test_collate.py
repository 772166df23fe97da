"""Collation against torch's: every kind of sample, in main and in a worker, extensions and errors included."""

from __future__ import annotations

import array
import collections
import enum
import itertools
import types
import warnings
from collections import UserDict, UserList, deque, namedtuple
from collections.abc import Mapping, MutableMapping, MutableSequence, Sequence

import numpy as np
import pytest
import torch
import torch.utils.data as torch_data
from torch.utils.data._utils import collate as theirs

import minidl.data.collate as ours
from tests.ids import plain

Point = namedtuple("Point", ["x", "y"])


class Tagged(dict):
    """A dict whose class wants an argument of its own, and which carries an attribute."""

    def __init__(self, items, tag):
        super().__init__(items)
        self.tag = tag


class TaggedList(list):
    def __init__(self, items, tag):
        super().__init__(items)
        self.tag = tag


class NoCopy(UserDict):
    def __copy__(self):
        raise TypeError("cannot be copied")


class NoCopyList(UserList):
    def __copy__(self):
        raise TypeError("cannot be copied")


class Frozen(Mapping):
    """Immutable, built from one mapping."""

    def __init__(self, items):
        self.items_ = dict(items)

    def __getitem__(self, key):
        return self.items_[key]

    def __iter__(self):
        return iter(self.items_)

    def __len__(self):
        return len(self.items_)


class FrozenWithName(Frozen):
    """Immutable, and not built from one mapping."""

    def __init__(self, name, items):
        super().__init__(items)
        self.name = name


class NoUpdate(Frozen, MutableMapping):
    def __setitem__(self, key, value):
        raise TypeError("cannot be set")

    def __delitem__(self, key):
        raise TypeError("cannot be deleted")


class FrozenList(Sequence):
    def __init__(self, items):
        self.items_ = list(items)

    def __getitem__(self, i):
        return self.items_[i]

    def __len__(self):
        return len(self.items_)


class OneAtATime(FrozenList, MutableSequence):
    """Mutable item by item, not by slices."""

    def __setitem__(self, i, value):
        if isinstance(i, slice):
            raise ValueError("no slices")
        self.items_[i] = value

    def __delitem__(self, i):
        raise NotImplementedError

    def insert(self, i, value):
        raise NotImplementedError

    def __copy__(self):
        return type(self)(self.items_)


class Colour(enum.IntEnum):
    RED = 1
    BLUE = 2


class Text(str):
    __slots__ = ()


class Own:
    """A type that collation knows nothing of."""

    def __init__(self, value):
        self.value = value

    def __repr__(self):
        return f"Own({self.value})"


class OwnDict(dict):
    pass


class OwnTensor(torch.Tensor):
    pass


tensor = torch.tensor
LEAVES = {
    "float32": [tensor([1.0, 2.0]), tensor([3.0, 4.0])],
    "0-d": [tensor(1), tensor(2)],
    "one": [tensor([[1, 2]])],
    "bool": [tensor([True]), tensor([False])],
    "float16": [torch.ones(2, 3, dtype=torch.float16)] * 3,
    "complex": [tensor([1 + 2j])] * 2,
    "empty": [torch.empty(0), torch.empty(0)],
    "empty batch dimension": [torch.empty(3, 0)] * 2,
    "strided": [torch.arange(6).view(2, 3).t(), torch.arange(6).view(2, 3).t()],
    "channels last": [torch.rand(2, 3, 4, 4).to(memory_format=torch.channels_last)] * 2,
    "views of one storage": list(torch.arange(6).view(3, 2)),
    "storage larger than view": [torch.arange(100)[3:5], torch.arange(100)[7:9]],
    "dtypes mixed upwards": [torch.ones(2), torch.ones(2, dtype=torch.int64)],
    "dtypes mixed downwards": [torch.ones(2, dtype=torch.int64), torch.ones(2)],
    "needs grad": [torch.ones(2, requires_grad=True)] * 2,
    "parameter": [torch.nn.Parameter(torch.ones(2))] * 2,
    "tensor subclass": [torch.ones(2).as_subclass(OwnTensor)] * 2,
    "meta": [torch.ones(2, device="meta").new_zeros(0)] * 2,
    "second smaller": [torch.ones(2), torch.ones(3)],
    "other shape of same size": [torch.ones(2, 3), torch.ones(3, 2)],
    "tensor and number": [tensor([1.0]), 2.0],
    "int": [1, 2, 3],
    "large int": [2**40, -1],
    "too large int": [2**80],
    "float": [0.1, 0.2],
    "float then int": [0.5, 2],
    "int then float": [2, 0.5],
    "bool number": [True, False],
    "bool and int": [True, 3],
    "complex number": [1j],
    "int enum": [Colour.RED, Colour.BLUE],
    "str": ["a", "bc"],
    "str subclass": [Text("a"), Text("b")],
    "bytes": [b"a", b"bc"],
    "bytearray": [bytearray(b"ab"), bytearray(b"cd")],
    "bytearray alone": [bytearray(b"ab")],
    "str and int": ["a", 1],
    "int and str": [1, "a"],
    "np float32": [np.float32(1.5), np.float32(2.5)],
    "np float64": [np.float64(0.1)],
    "np int8": [np.int8(1), np.int8(2)],
    "np bool": [np.bool_(True), np.bool_(False)],
    "np str": [np.str_("a"), np.str_("b")],
    "np bytes": [np.bytes_(b"a")],
    "np datetime": [np.datetime64("2020-01-01")],
    "np array": [np.arange(3), np.arange(3) * 2],
    "np 0-d array": [np.array(1.5), np.array(2.5)],
    "np array of float16": [np.ones((2, 2), np.float16)] * 2,
    "np arrays of unequal size": [np.arange(2), np.arange(3)],
    "np array of str": [np.array(["a", "b"])],
    "np array of bytes": [np.array([b"a"])],
    "np array of object": [np.array([None, 1], dtype=object)],
    "np record": [np.zeros(2, dtype=[("a", "i4")])],
    "np array of times": [np.array(["2020-01-01"], dtype="M8[D]")],
    "np negative strides": [np.arange(3)[::-1]],
    "none": [None, None],
    "set": [{1}, {2}],
    "own": [Own(1), Own(2)],
    "function": [len],
    "generator expression": [(i for i in range(2))],
    "no samples": [],
    "batch is a tuple": (1, 2),
    "batch is a tensor": tensor([[1, 2], [3, 4]]),
    "batch is a dict": {0: 1.0, 1: 2.0},
    "batch has no items": 5,
}
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch calls these kinds of tensor a prototype or a beta
    LEAVES |= {
        "sparse coo": [torch.eye(2).to_sparse()] * 2,
        "sparse csr": [torch.eye(2).to_sparse_csr()] * 2,
        "nested": [torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])] * 2,
        "jagged": [torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)] * 2,
    }
NESTED = {
    "dict": [{"a": 1, "b": [1.0, 2.0]}, {"a": 2, "b": [3.0, 4.0]}],
    "key missing in second": [{"a": 1, "b": 2}, {"a": 1}],
    "key only in second": [{"a": 1}, {"a": 1, "b": 2}],
    "keys in another order": [{"a": 1, "b": 2}, {"b": 3, "a": 4}],
    "empty dict": [{}, {}],
    "ordered dict": [collections.OrderedDict(b=1, a=2)] * 2,
    "default dict": [collections.defaultdict(int, a=1), collections.defaultdict(int, a=2)],
    "default dict fills in": [{"a": 1, "b": 2}, collections.defaultdict(int, a=2)],
    "counter": [collections.Counter("aab"), collections.Counter("abb")],
    "mapping proxy": [types.MappingProxyType({"a": 1})] * 2,
    "user dict": [UserDict(a=1), UserDict(a=2)],
    "dict with attribute": [Tagged({"a": 1}, "t"), Tagged({"a": 2}, "u")],
    "dict not to be copied": [NoCopy(a=1), NoCopy(a=2)],
    "frozen mapping": [Frozen({"a": 1}), Frozen({"a": 2})],
    "frozen mapping with name": [FrozenWithName("n", {"a": 1}), FrozenWithName("m", {"a": 2})],
    "mapping that cannot be set": [NoUpdate({"a": 1}), NoUpdate({"a": 2})],
    "dict and list": [{"a": 1}, [1]],
    "list": [[1, 2.0, "x"], [3, 4.0, "y"]],
    "tuple": [(1, 2.0, "x"), (3, 4.0, "y")],
    "empty list": [[], []],
    "empty tuple": [(), ()],
    "ragged list": [[1, 2], [3]],
    "ragged tuple": [(1, 2), (3, 4, 5)],
    "list and number": [[1, 2], 3],
    "list and tuple": [[1, 2], (3, 4)],
    "list and str": [[1, 2], "ab"],
    "list with attribute": [TaggedList([1, 2], "t"), TaggedList([3, 4], "u")],
    "user list": [UserList([1, 2]), UserList([3, 4])],
    "list not to be copied": [NoCopyList([1]), NoCopyList([2])],
    "deque": [deque([1, 2], maxlen=2), deque([3, 4], maxlen=2)],
    "range": [range(3), range(3, 6)],
    "array": [array.array("i", [1, 2]), array.array("i", [3, 4])],
    "array alone": [array.array("i", [1, 2])],
    "frozen sequence": [FrozenList([1, 2]), FrozenList([3, 4])],
    "sequence set item by item": [OneAtATime([1, 2]), OneAtATime([3, 4])],
    "namedtuple": [Point(1, "a"), Point(2, "b")],
    "namedtuples of unequal length": [Point(1, 2), (1, 2, 3)],
    "deep": [{"a": [(Point(1, np.ones(2)), {"b": [tensor([i])]})]} for i in range(3)],
    "none inside": [{"a": [1, None]}] * 2,
    "own inside": [(1, Own(2))] * 2,
    "array of str inside": [[np.array(["a"])]],
    "tensors of unequal shape inside": [{"a": torch.ones(2)}, {"a": torch.ones(3)}],
}
SAMPLES = {**LEAVES, **NESTED}
each_batch = pytest.mark.parametrize("batch", SAMPLES.values(), ids=SAMPLES)


@each_batch
def test_default_collate_makes_what_torchs_makes(same, batch):
    same(lambda package: package.default_collate(batch), ours, theirs)


@each_batch
@pytest.mark.usefixtures("in_worker")
def test_default_collate_makes_what_torchs_makes_in_a_worker(same, batch):
    same(lambda package: package.default_collate(batch), ours, theirs)


@each_batch
def test_collate_without_a_table_makes_what_torchs_makes(same, batch):
    same(lambda package: package.collate(batch, collate_fn_map={}), ours, theirs)
    same(lambda package: package.collate(batch), ours, theirs)


@each_batch
def test_default_convert_makes_what_torchs_makes(same, batch):
    same(lambda package: package.default_convert(batch), ours, theirs)
    if isinstance(batch, list) and batch:
        same(lambda package: package.default_convert(batch[0]), ours, theirs)


@pytest.mark.parametrize("data", [torch.ones(2), "text", b"bytes", 5, None, Own(1), {1}, np.array(["a"])], ids=plain)
def test_default_convert_hands_back_what_it_cannot_improve(data):
    assert ours.default_convert(data) is data


def test_samples_are_left_as_they_were():
    samples = [Tagged({"a": [1, 2]}, "t"), Tagged({"a": [3, 4]}, "u")]
    collated, converted = ours.default_collate(samples), ours.default_convert(samples[0])
    assert samples == [{"a": [1, 2]}, {"a": [3, 4]}]
    assert collated is not samples[0]
    assert converted is not samples[0]
    assert (type(collated), collated.tag) == (Tagged, "t")


def test_a_memmap_is_collated_as_by_torch(same, tmp_path):
    mapped = np.memmap(tmp_path / "data", dtype=np.int16, mode="w+", shape=(3,))
    same(lambda package: package.default_collate([mapped, mapped]), ours, theirs)
    same(lambda package: package.default_convert([mapped, {"a": mapped}]), ours, theirs)


@pytest.mark.parametrize(
    ("sample", "dtype"),
    [
        (1, torch.int64),
        (True, torch.bool),
        (1.0, torch.float64),
        (np.int8(1), torch.int8),
        (np.float32(1), torch.float32),
        (np.zeros(2, np.uint8), torch.uint8),
        (torch.ones(2, dtype=torch.bfloat16), torch.bfloat16),
    ],
    ids=plain,
)
def test_each_type_of_sample_gets_its_dtype(sample, dtype):
    assert ours.default_collate([sample, sample]).dtype == dtype


# ---- the table


def double(batch, *, collate_fn_map=None):
    return ["double", *(sample.value * 2 for sample in batch)]


def marked(mark):
    return lambda batch, *, collate_fn_map=None: (mark, list(batch), sorted(map(str, collate_fn_map)))


@pytest.mark.parametrize(
    ("table", "batch"),
    [
        ({Own: marked("own")}, [Own(1), Own(2)]),
        ({Own: marked("own")}, [{"a": Own(1)}, {"a": Own(2)}]),
        ({(Own, int): marked("pair")}, [[Own(1), 2], [Own(3), 4]]),
        ({(int, str): marked("pair")}, [1, 2]),
        ({dict: marked("dict"), OwnDict: marked("own dict")}, [OwnDict(a=1)]),
        ({dict: marked("dict"), Mapping: marked("mapping")}, [OwnDict(a=1)]),
        ({Mapping: marked("mapping"), dict: marked("dict")}, [OwnDict(a=1)]),
        ({object: marked("object"), int: marked("int")}, [1]),
        ({object: marked("object")}, [[1, 2]]),
        ({tuple: marked("tuple")}, [Point(1, 2)]),
        ({int: marked("int")}, [True]),
        ({int: marked("int")}, ["a"]),
        ({torch.Tensor: marked("tensor")}, [{"a": torch.ones(1)}]),
    ],
)
def test_collate_with_your_own_table_makes_what_torchs_makes(same, table, batch):
    same(lambda package: package.collate(batch, collate_fn_map=table), ours, theirs)


def test_default_table_has_torchs_types_in_torchs_order():
    assert list(ours.default_collate_fn_map) == list(theirs.default_collate_fn_map)
    names = [function.__name__ for function in theirs.default_collate_fn_map.values()]
    assert [function.__name__ for function in ours.default_collate_fn_map.values()] == names
    assert ours.default_collate_err_msg_format == theirs.default_collate_err_msg_format


def test_default_table_can_be_extended(monkeypatch):
    with pytest.raises(TypeError, match=r"found <class .*Own'>"):
        ours.default_collate([{"a": Own(1)}])
    monkeypatch.setitem(ours.default_collate_fn_map, Own, double)
    assert ours.default_collate([{"a": Own(1)}, {"a": Own(2)}]) == {"a": ["double", 2, 4]}


@pytest.mark.parametrize("package", [ours, theirs])
def test_either_packages_functions_serve_in_the_others_table(package):
    other = theirs if package is ours else ours
    batch = [{"a": torch.ones(2), "b": np.ones(2), "c": 1.0}] * 2
    made = package.collate(batch, collate_fn_map=other.default_collate_fn_map)
    assert {key: (value.dtype, value.tolist()) for key, value in made.items()} == {
        "a": (torch.float32, [[1, 1], [1, 1]]),
        "b": (torch.float64, [[1, 1], [1, 1]]),
        "c": (torch.float64, [1, 1]),
    }


# ---- shared memory


@pytest.mark.usefixtures("in_worker")
@pytest.mark.parametrize("batch", [[torch.ones(2, 3)] * 4, [np.ones((2, 3), np.float32)] * 4], ids=["torch", "numpy"])
def test_in_a_worker_tensors_are_stacked_into_shared_memory(batch):
    made = ours.default_collate(batch)
    assert made.is_shared()
    assert made.untyped_storage().nbytes() == 4 * 2 * 3 * 4  # no more than the batch needs


def test_in_main_tensors_are_not_stacked_into_shared_memory():
    assert not ours.default_collate([torch.ones(2)] * 2).is_shared()


@pytest.mark.usefixtures("in_worker")
def test_in_a_worker_a_smaller_sample_is_named():
    """torch's own words first, which do not name the cause; then the cause."""
    batch = [torch.ones(3), torch.ones(2)]
    with pytest.raises(RuntimeError) as from_torch:
        theirs.default_collate(batch)
    with pytest.raises(RuntimeError) as from_minidl:
        ours.default_collate(batch)
    assert str(from_minidl.value).startswith(str(from_torch.value))
    assert "different shapes, [(2,), (3,)]" in str(from_minidl.value)


@pytest.mark.usefixtures("in_worker")
def test_in_a_worker_conjugate_views_work_where_torch_gives_up():
    batch = [tensor([1 + 2j]).conj()] * 2
    with pytest.raises(RuntimeError):
        theirs.default_collate(batch)
    made = ours.default_collate(batch)
    assert made.is_shared()
    assert made.tolist() == [[1 - 2j], [1 - 2j]]


def collate_and_look(batch):
    """The batch, and whether it was in shared memory before the queue had it in hand."""
    made = ours.default_collate(batch)
    return made, made.is_shared(), torch_data.get_worker_info().id


@pytest.mark.timeout(60)
def test_a_worker_of_torchs_loader_collates_into_shared_memory():
    loader = torch_data.DataLoader(torch.arange(8.0), 2, num_workers=2, collate_fn=collate_and_look, timeout=50)
    seen = [(batch.tolist(), shared, worker) for batch, shared, worker in loader]
    assert seen == [([2.0 * i, 2.0 * i + 1], True, i % 2) for i in range(4)]


@pytest.mark.parametrize("batch_size", [2, None])
def test_collation_works_in_torchs_loader(same, batch_size):
    samples = [{"x": np.full(2, i), "y": (i, str(i))} for i in range(5)]
    name = "default_collate" if batch_size else "default_convert"
    same(
        lambda package: list(torch_data.DataLoader(samples, batch_size, collate_fn=getattr(package, name))),
        ours,
        theirs,
    )


def test_samples_of_all_kinds_side_by_side_do_not_mix():
    """Every pair of kinds side by side in one structure, value by value."""
    rng = np.random.default_rng(0)
    kinds = [lambda: tensor(rng.random(3)), lambda: rng.random(3), lambda: float(rng.random()), lambda: "text"]
    for first, second in itertools.product(kinds, repeat=2):
        batch = [(first(), {"k": second()}) for _ in range(5)]
        left, right = ours.default_collate(batch)
        for i, (a, b) in enumerate(batch):
            assert np.array_equal(np.asarray(left[i]), np.asarray(a))
            assert np.array_equal(np.asarray(right["k"][i]), np.asarray(b["k"]))
