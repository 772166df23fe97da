"""Batches of every kind, and what can be said of one."""

from __future__ import annotations

import ctypes
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

Point = namedtuple("Point", ["x", "y"])


class Listed(list[Any]):
    """A list of a type of its own."""


class Mapped(dict[str, Any]):
    """A mapping of a type of its own."""


DTYPES = [value for value in vars(torch).values() if isinstance(value, torch.dtype)]


def of_dtype(dtype: torch.dtype) -> torch.Tensor | None:
    """None: this torch has the name only."""
    try:
        return torch.arange(48, dtype=torch.uint8).view(dtype)
    except (RuntimeError, TypeError):
        return None


def base() -> torch.Tensor:
    return torch.arange(24.0).view(4, 6)


def turned() -> torch.Tensor:
    return torch.complex(base(), base()).conj()


def shared_storage() -> Any:
    whole = torch.arange(24.0)
    return {"base": whole, "row": whole[6:12], "turned": whole.view(4, 6).t(), "again": whole, "two": whole.view(2, 12)}


def far_apart() -> Any:
    """Two views of each storage, in a small part of it: the later one first, the other way round; or in most of it."""
    orders = [(400, 410), (300, 303)], [(300, 303), (400, 410)], [(300, 900), (300, 700)]
    return [whole[first:end] for order in orders for whole in [torch.arange(1_000)] for first, end in order]


def read_only() -> Any:
    array = np.arange(9000)
    array.flags.writeable = False
    return array


class Region:
    """Named as a class of minidl.transport, whose methods build what travels."""

    class part(tuple):
        pass


BATCHES: dict[str, Callable[[], Any]] = {
    "a name of minidl's": lambda: Region.part([base()]),
    "every dtype": lambda: [tensor for dtype in DTYPES if (tensor := of_dtype(dtype)) is not None],
    "no dimension": lambda: torch.tensor(3.5),
    "no element": lambda: [torch.empty(0), torch.empty(3, 0, 2), base()[:0].t(), np.empty((0, 4))],
    "no element of many": lambda: torch.arange(2000.0).view(200, 10)[100:100, :1].expand(0, 5),
    "meta": lambda: torch.empty(0, 3, device="meta"),
    "shared storage": shared_storage,
    "far apart": far_apart,
    "one byte": lambda: torch.tensor([7], dtype=torch.uint8)[None],
    "views": lambda: [base()[1:3], base()[:, 2], base()[::2, ::3], base()[None], torch.arange(20000)[::2]],
    "expanded": lambda: [base().expand(3, 4, 6), torch.ones(1, 3).expand(4000, 3), torch.arange(8)[:2].expand(4, 2)],
    "transposed": lambda: torch.arange(20000.0).view(100, 200).t(),
    "channels last": lambda: torch.ones(2, 3, 8, 8).to(memory_format=torch.channels_last),
    "one channel last": lambda: torch.ones(2, 1, 8, 8).to(memory_format=torch.channels_last),
    "one row, or none, with strides": lambda: [torch.ones(1, 5).t(), torch.empty_strided((0, 5), (7, 3))],
    "strides of one": lambda: [torch.zeros(6).as_strided((1, 6), (99, 1)), torch.zeros(6).as_strided((6, 1), (1, 9))],
    "conjugate": turned,
    "negative bit": lambda: turned().imag,
    "requires grad": lambda: torch.ones(4, requires_grad=True),
    "parameter": lambda: torch.nn.Parameter(base()),
    "sparse": lambda: [torch.eye(4).to_sparse(), torch.eye(4).to_sparse_csr()],
    "nested tensor": lambda: torch.nested.nested_tensor([base()[0], base()[1, :3]]),
    "quantized": lambda: torch.quantize_per_tensor(base(), 0.1, 0, torch.qint8),
    "arrays": lambda: [np.arange(5)[::-1], np.asfortranarray(np.ones((3, 4))), np.array(["a", "bc"]), np.float32(2)],
    "channels first": lambda: np.arange(24.0).reshape(2, 3, 4).transpose(2, 0, 1),
    "byte order": lambda: [np.arange(9000, dtype=">f4"), np.zeros(7, dtype=[("a", ">i4"), ("b", "<f8")])],
    "read-only": read_only,
    "structured": lambda: np.zeros(7, dtype=[("a", "<i4"), ("b", "<f8", (2,))]),
    "objects": lambda: [np.array([{"a": 1}, None], dtype=object), np.datetime64("2020-01-01")],
    "masked": lambda: np.ma.masked_array(np.arange(4), [0, 1, 0, 1]),
    "nested": lambda: {"a": (1, [torch.ones(2)], Point(base(), None)), "b": b"bytes" * 9000, "c": "text"},
    "types of their own": lambda: Listed([base(), Mapped(a=base(), b=(1, base()))]),
    "bytearray": lambda: bytearray(50_000),
    "storage": lambda: [torch.arange(4.0).untyped_storage(), torch.tensor([7], dtype=torch.uint8).untyped_storage()],
    "shared memory": lambda: torch.arange(3).share_memory_(),
    "module": lambda: torch.nn.Linear(2, 2),
}


def described(thing: Any) -> Any:
    """What can be compared of a batch: types, values, and how they lie. What is equal is alike."""
    if isinstance(thing, torch.Tensor):
        strided = thing.layout is torch.strided and not thing.is_nested
        flags = thing.layout, thing.device, thing.requires_grad, thing.is_conj(), thing.is_neg(), thing.is_quantized
        if thing.is_nested:
            return "nested", flags, described(list(thing.unbind()))
        values = bytes_of(thing) if strided else repr(thing.detach().to_dense())
        return type(thing), thing.dtype, tuple(thing.shape), strided and thing.stride(), flags, values
    if isinstance(thing, torch.UntypedStorage):
        return bytes(thing)
    if isinstance(thing, np.ndarray):
        return type(thing), thing.dtype, thing.shape, thing.strides, thing.flags.writeable, repr(thing)
    if isinstance(thing, torch.nn.Module):
        return type(thing), described(thing.state_dict())
    if isinstance(thing, dict):
        return type(thing), [(key, described(value)) for key, value in thing.items()]
    if isinstance(thing, (list, tuple)):
        return type(thing), [described(value) for value in thing]
    return thing


def bytes_of(tensor: torch.Tensor) -> bytes:
    """Its elements. (Not every dtype can be copied.)"""
    whole = tensor.untyped_storage()
    storage = whole if tensor.nbytes == whole.nbytes() else tensor.detach().clone().untyped_storage()
    return ctypes.string_at(storage.data_ptr(), storage.nbytes())  # bytes(storage) takes 14 us for each of them
