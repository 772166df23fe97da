"""Collation against torch's: every kind of sample, in main and in a worker, extensions and errors included."""

from __future__ import annotations

import array
import enum
import types
from collections import Counter, OrderedDict, UserDict, UserList, defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data._utils import collate as theirs

import minidl.data.collate as ours
from tests.ids import plain
from tests.minidl.batches import BATCHES, Point


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


class Frozen:
    """Immutable, built from its items."""

    def __init__(self, items):
        self.items_ = type(items)(items)

    def __getitem__(self, key):
        return self.items_[key]

    def __iter__(self):
        return iter(self.items_)

    def __len__(self):
        return len(self.items_)


class FrozenMapping(Frozen, Mapping):
    pass


class FrozenList(Frozen, Sequence):
    pass


class FrozenWithName(FrozenMapping):
    """Immutable, and not built from one mapping."""

    def __init__(self, name, items):
        super().__init__(items)
        self.name = name


class NoUpdate(UserDict):
    def __setitem__(self, key, value):
        if key in self:
            raise TypeError("cannot be set")
        super().__setitem__(key, value)


class OneAtATime(UserList):
    """Mutable item by item, not by slices."""

    def __setitem__(self, i, value):
        if isinstance(i, slice):
            raise ValueError("no slices")
        super().__setitem__(i, value)


class Colour(enum.IntEnum):
    RED = 1
    BLUE = 2


class Text(str):
    __slots__ = ()


@dataclass
class Own:
    """A type that collation knows nothing of."""

    value: int


class OwnTensor(torch.Tensor):
    pass


tensor = torch.tensor
LEAVES = {
    **{name: [make(), make()] for name, make in BATCHES.items() if name != "bytearray"},  # PLAIN has short ones
    "float32": [tensor([1.0, 2.0]), tensor([3.0, 4.0])],
    "empty batch dimension": [torch.empty(3, 0)] * 2,
    "views of one storage": list(torch.arange(6).view(3, 2)),
    "dtypes mixed upwards": [torch.ones(2), torch.ones(2, dtype=torch.int64)],
    "dtypes mixed downwards": [torch.ones(2, dtype=torch.int64), torch.ones(2)],
    "tensor subclass": [torch.ones(2).as_subclass(OwnTensor)] * 2,
    "second smaller": [torch.ones(2), torch.ones(3)],
    "other shape of same size": [torch.ones(2, 3), torch.ones(3, 2)],
    "tensor and number": [tensor([1.0]), 2.0],
    "jagged": None,  # see batch_of
    "int enum": [Colour.RED, Colour.BLUE],
    "str subclass": [Text("a"), Text("b")],
    "np 0-d array": [np.array(1.5), np.array(2.5)],
    "np array of float16": [np.ones((2, 2), np.float16)] * 2,
    "np arrays of unequal size": [np.arange(2), np.arange(3)],
    "np array of bytes": [np.array([b"a"])],
    "np array of attoseconds": [np.zeros(1, "<m8[as]")],  # torch takes its unit for a type
    "np array of times": [np.array(["2020-01-01"], dtype="M8[D]")],
    "generator expression": [(i for i in range(2))],
    "batch is a tensor": tensor([[1, 2], [3, 4]]),
}
NESTED = {
    "ordered dict": [OrderedDict(b=1, a=2)] * 2,
    "default dict": [defaultdict(int, a=1), defaultdict(int, a=2)],
    "default dict fills in": [{"a": 1, "b": 2}, defaultdict(int, a=2)],
    "counter": [Counter("aab"), Counter("abb")],
    "mapping proxy": [types.MappingProxyType({"a": 1})] * 2,
    "user dict": [UserDict(a=1), UserDict(a=2)],
    "dict with attribute": [Tagged({"a": 1}, "t"), Tagged({"a": 2}, "u")],
    "dict not to be copied": [NoCopy(a=1), NoCopy(a=2)],
    "frozen mapping": [FrozenMapping({"a": 1}), FrozenMapping({"a": 2})],
    "frozen mapping with name": [FrozenWithName("n", {"a": 1}), FrozenWithName("m", {"a": 2})],
    "mapping that cannot be set": [NoUpdate({"a": 1}), NoUpdate({"a": 2})],
    "list with attribute": [TaggedList([1, 2], "t"), TaggedList([3, 4], "u")],
    "user list": [UserList([1, 2]), UserList([3, 4])],
    "list not to be copied": [NoCopyList([1]), NoCopyList([2])],
    "deque": [deque([1, 2], maxlen=2), deque([3, 4], maxlen=2)],
    "frozen sequence": [FrozenList([1, 2]), FrozenList([3, 4])],
    "sequence set item by item": [OneAtATime([1, 2]), OneAtATime([3, 4])],
    "namedtuples of unequal length": [Point(1, 2), (1, 2, 3)],
    "array of str inside": [[np.array(["a"])]],
    "tensors of unequal shape inside": [{"a": torch.ones(2)}, {"a": torch.ones(3)}],
}
PLAIN = {  # ... whose names say nothing that they themselves do not
    "byte arrays": [[bytearray(b"ab"), bytearray(b"cd")], [bytearray(b"ab")]],
    "np text": [[np.str_("a"), np.str_("b")], [np.bytes_(b"a")], [np.datetime64("2020-01-01")]],
    "others": [[None, None], [{1}, {2}], [len], [], (1, 2), {0: 1.0, 1: 2.0}, 5],
    "ranges": [[range(3), range(3, 6)]],
    "arrays": [[array.array("i", [1, 2]), array.array("i", [3, 4])], [array.array("i", [1, 2])]],
}
SAMPLES = {**LEAVES, **NESTED}
SAMPLES |= {f"{name} {plain(batch)}": batch for name, batches in PLAIN.items() for batch in batches}


def batch_of(name):
    """A jagged one is made when it is needed: for the first, torch imports a third of all that it has."""
    if name == "jagged":
        return [torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)] * 2
    return SAMPLES[name]


CALLS = {
    "default_collate": lambda package, batch: package.default_collate(batch),
    "an empty table": lambda package, batch: package.collate(batch, collate_fn_map={}),
    "no table": lambda package, batch: package.collate(batch),
    "default_convert": lambda package, batch: package.default_convert(batch),
    "default_convert of a sample": lambda package, batch: package.default_convert(batch[0]),
}


INTEGERS = torch.ones(2, dtype=torch.int64)
PARTS = [1, 2**40, 2**80, True, 0.5, 1j, "a", b"a", None, Own(1), np.bool_(True), np.float32(1.5), np.ones(2), INTEGERS]


def nested(parts):
    lists = st.lists(parts, max_size=3)
    return lists | lists.map(tuple) | st.builds(Point, parts, parts) | st.dictionaries(st.sampled_from("abc"), parts)


VALUES = st.recursive(st.sampled_from([*PARTS, torch.ones(2), torch.ones(3)]), nested, max_leaves=6)


@given(st.lists(VALUES, max_size=3) | VALUES.map(lambda sample: [sample] * 2), st.sampled_from(sorted(CALLS)))
@settings(max_examples=500)
def test_whatever_is_nested_becomes_what_it_becomes_by_torchs(same, batch, call):
    same(lambda package: CALLS[call](package, batch), ours, theirs)


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("call", CALLS)
def test_each_batch_becomes_what_it_becomes_by_torchs(same, name, call):
    batch = batch_of(name)
    same(lambda package: CALLS[call](package, batch), ours, theirs)


# In a worker torch gives up on views of these bits (see below), and refuses quantized tensors, and a tensor beside a
# number, in other words than in main. minidl uses torch's words for main in both.
UNLIKE = "conjugate", "negative bit", "quantized", "tensor and number"


@pytest.mark.parametrize("name", [name for name in SAMPLES if name not in UNLIKE])
@pytest.mark.usefixtures("in_worker")
def test_default_collate_makes_what_torchs_makes_in_a_worker(same, name):
    batch = batch_of(name)
    same(lambda package: package.default_collate(batch), ours, theirs)


@pytest.mark.parametrize("data", [torch.ones(2), "text", b"bytes", 5, None, Own(1), {1}, np.array(["a"])], ids=plain)
def test_default_convert_hands_back_what_it_cannot_improve(data):
    assert ours.default_convert(data) is data


def test_samples_are_left_as_they_were():
    samples = [Tagged({"a": [1, 2]}, "t"), Tagged({"a": [3, 4]}, "u")]
    collated, converted = ours.default_collate(samples), ours.default_convert(samples[0])
    assert samples == [{"a": [1, 2]}, {"a": [3, 4]}]
    assert collated is not samples[0] and converted is not samples[0]
    assert (type(collated), collated.tag) == (Tagged, "t")


def test_a_memmap_is_collated_as_by_torch(same, tmp_path):
    mapped = np.memmap(tmp_path / "data", dtype=np.int16, mode="w+", shape=(3,))
    same(lambda package: package.default_collate([mapped, mapped]), ours, theirs)
    same(lambda package: package.default_convert([mapped, {"a": mapped}]), ours, theirs)


# ---- the table


def marked(mark):
    return lambda batch, *, collate_fn_map=None: (mark, list(batch), sorted(map(str, collate_fn_map)))


@pytest.mark.parametrize(
    ("table", "batch"),
    [
        ({Own: marked("own")}, [Own(1), Own(2)]),
        ({Own: marked("own")}, [{"a": Own(1)}, {"a": Own(2)}]),
        ({(Own, int): marked("pair")}, [[Own(1), 2], [Own(3), 4]]),
        ({(int, str): marked("pair")}, [1, 2]),
        ({dict: marked("dict"), OrderedDict: marked("ordered dict")}, [OrderedDict(a=1)]),
        ({dict: marked("dict"), Mapping: marked("mapping")}, [OrderedDict(a=1)]),
        ({Mapping: marked("mapping"), dict: marked("dict")}, [OrderedDict(a=1)]),
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


@pytest.mark.parametrize("table", [ours.default_collate_fn_map, theirs.default_collate_fn_map])
def test_default_table_can_be_extended(monkeypatch, table):
    with pytest.raises(TypeError, match=r"found <class .*Own'>"):
        ours.default_collate([{"a": Own(1)}])
    monkeypatch.setitem(table, Own, lambda batch, *, collate_fn_map=None: ["own", *batch])
    assert ours.default_collate([{"a": Own(1)}, {"a": Own(2)}]) == {"a": ["own", Own(1), Own(2)]}


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
@pytest.mark.parametrize("size", [2, 4])
def test_in_a_worker_a_sample_of_another_size_is_named(size):
    """As in main. (torch's workers: "Trying to resize storage that is not resizable", if it is smaller.)"""
    with pytest.raises(RuntimeError, match=rf"equal size, but got \[3\] at entry 0 and \[{size}\] at entry 1"):
        ours.default_collate([torch.ones(3), torch.ones(size)])


@pytest.mark.usefixtures("in_worker")
def test_in_a_worker_conjugate_views_work_where_torch_gives_up():
    batch = [tensor([1 + 2j]).conj()] * 2
    with pytest.raises(RuntimeError):
        theirs.default_collate(batch)
    made = ours.default_collate(batch)
    assert made.is_shared()
    assert made.tolist() == [[1 - 2j], [1 - 2j]]
