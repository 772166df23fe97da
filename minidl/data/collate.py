"""How samples become a batch: collation.

`default_collate` is used where a task has several samples, `default_convert` where it has one. Both go down
into mappings, namedtuples and other sequences and come back with the same structure. At the leaves,
`default_collate` looks the type up in a table that users can extend:

    [{"x": 1, "y": "a"}, {"x": 2, "y": "b"}]  ->  {"x": tensor([1, 2]), "y": ["a", "b"]}

Legend
    batch     [s12, s13, ...]   a list of samples, all with the same structure (here, before it is collated)
    elem      s12               the first sample; all have its structure
    column    [x12, x13, ...]   the values at one place in the structure, one from each sample
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

import numpy as np
import torch
import torch.utils.data

from minidl.transport import reserve

torchs: Any = torch.utils.data._utils.collate

default_collate_err_msg_format = (
    "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {}"
)


def default_collate(batch: Any) -> Any:
    """Put the samples of a batch together, leaf by leaf, with the batch as the new first dimension.

    =======================  ===================================================
    samples are              the batch is
    =======================  ===================================================
    tensors of shape s       a tensor of shape `(len(batch), *s)`, same dtype
    numpy arrays of shape s  a tensor of shape `(len(batch), *s)`, same dtype
    int, bool                an int64 or bool tensor of shape `(len(batch),)`
    float                    a float64 tensor of shape `(len(batch),)`
    numpy numbers and bools  a tensor of shape `(len(batch),)`, same dtype
    str, bytes               left as they are: the list of samples
    mappings, namedtuples    one of the same type, its values collated
    tuples                   a list, one collated column per place
    other sequences          one of the same type, one collated column per place
    =======================  ===================================================

    In a worker process the memory of large tensors is shared, so that they can go to main without a copy.

    Raises:
        TypeError: a sample holds anything else (None, sets, arrays of str or object, ...).
        RuntimeError: sequences of unequal length, tensors of unequal shape, sparse or nested tensors.
    """
    # What a program has put into torch's table, as torch's documentation says, holds here, too.
    added = {kind: each for kind, each in torchs.default_collate_fn_map.items() if each.__module__ != torchs.__name__}
    return collate(batch, collate_fn_map=default_collate_fn_map | added)


def collate(batch: Any, *, collate_fn_map: Mapping[Any, Callable[..., Any]] | None = None) -> Any:
    """Like `default_collate`, with a table of your own.

    Args:
        batch: the samples.
        collate_fn_map: {type, or tuple of types: function}. The first sample's exact type is looked for first; then
            the first entry, in the table's order, that the sample is an instance of. The function is called
            with the batch and with `collate_fn_map=`, which it needs for what is inside.
    """
    elem = batch[0]
    if collate_fn_map is not None:
        if type(elem) in collate_fn_map:
            return collate_fn_map[type(elem)](batch, collate_fn_map=collate_fn_map)
        for types, collate_fn in collate_fn_map.items():
            if isinstance(elem, types):
                return collate_fn(batch, collate_fn_map=collate_fn_map)

    if isinstance(elem, Mapping):
        columns = ((key, [sample[key] for sample in batch]) for key in elem)
        return mapping_like(elem, {key: collate(column, collate_fn_map=collate_fn_map) for key, column in columns})
    if _is_namedtuple(elem):
        return type(elem)(*(collate(column, collate_fn_map=collate_fn_map) for column in zip(*batch, strict=False)))
    if isinstance(elem, Sequence):
        if any(len(sample) != len(elem) for sample in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        values = [collate(column, collate_fn_map=collate_fn_map) for column in zip(*batch, strict=False)]
        return values if isinstance(elem, tuple) else sequence_like(elem, values)  # tuples always become lists
    raise TypeError(default_collate_err_msg_format.format(type(elem)))


def default_convert(data: Any) -> Any:
    """One sample on its own: numpy arrays and numbers become tensors, wherever they are in it.

    No dimension is added. Arrays of str or object, and whatever is not from numpy, stay as they are;
    tuples become lists.
    """
    kind = type(data)
    if isinstance(data, torch.Tensor):
        return data
    if kind.__module__ == "numpy" and kind is not np.str_:
        return data if kind is np.ndarray and _has_no_tensor(data) else torch.as_tensor(data)
    if isinstance(data, Mapping):
        return mapping_like(data, {key: default_convert(data[key]) for key in data})
    if _is_namedtuple(data):
        return kind(*(default_convert(value) for value in data))
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        values = [default_convert(value) for value in data]
        return values if isinstance(data, tuple) else sequence_like(data, values)
    return data


def _is_namedtuple(elem: Any) -> bool:
    return isinstance(elem, tuple) and hasattr(elem, "_fields")


def mapping_like(elem: Any, values: dict[Any, Any]) -> Any:
    """A mapping of elem's type that holds `values`, or the dict itself where the type does not allow it.

    A mutable one is copied and filled rather than rebuilt: it may carry attributes besides its items, and
    its class may want other arguments.
    """
    try:
        if not isinstance(elem, MutableMapping):
            return type(elem)(values)
        clone = copy.copy(elem)
        clone.update(values)
        return clone
    except TypeError:  # cannot be copied or updated, or is not made from one mapping
        return values


def sequence_like(elem: Any, values: list[Any]) -> Any:
    """A sequence of elem's type that holds `values`, or the list itself where the type does not allow it."""
    try:
        if not isinstance(elem, MutableSequence):
            return type(elem)(values)
        clone = copy.copy(elem)
        for i, value in enumerate(values):  # by item: not every mutable sequence takes slices
            clone[i] = value
        return clone
    except TypeError:  # cannot be copied or set (array.array), or is not made from one iterable (range)
        return values


def _has_no_tensor(array: np.ndarray[Any, Any]) -> bool:
    """True for arrays of str, bytes or object: no torch dtype holds these. torch: np_str_obj_array_pattern"""
    return re.search("[SaUO]", array.dtype.str) is not None


# The entries of the table. Each takes `collate_fn_map` because any entry may; most have no use for it.

_SPARSE_LAYOUTS = {torch.sparse_coo, torch.sparse_csr, torch.sparse_bsr, torch.sparse_csc, torch.sparse_bsc}


def collate_tensor_fn(batch: Any, *, collate_fn_map: Any = None) -> torch.Tensor:
    """Stack tensors of shape s to one of shape (len(batch), *s); in a worker, in shared memory."""
    elem = batch[0]
    kind = "nested" if elem.is_nested else "sparse" if elem.layout in _SPARSE_LAYOUTS else None
    if kind is not None:
        raise RuntimeError(
            f"Batches of {kind} tensors are not currently supported by the default collate_fn; "
            "please provide a custom collate_fn to handle them appropriately."
        )
    if torch.utils.data.get_worker_info() is None:
        return torch.stack(batch, 0)
    return torch.stack(batch, 0, out=_to_be_sent(elem, batch))


def stack_for_torch_too() -> None:
    """In a worker: torch's default_collate, which a collate_fn may call, stacks tensors where ours does. Left alone, it
    would make new shared memory for each, to be copied to the slot: a large batch takes twice the time."""
    torchs = torch.utils.data._utils.collate
    if torchs.default_collate_fn_map.get(torch.Tensor) is torchs.collate_tensor_fn:
        torchs.default_collate_fn_map[torch.Tensor] = collate_tensor_fn


def _to_be_sent(elem: torch.Tensor, batch: Sequence[torch.Tensor]) -> torch.Tensor:
    """An empty tensor with room for the batch, in memory that main will see. Made anywhere else, it would have to be
    copied there."""
    storage = reserve(len(batch) * elem.nbytes, elem.device)
    if storage is None:
        return elem.new_empty((len(batch), *elem.shape))
    return elem.new_empty(0).set_(storage).resize_(len(batch), *elem.shape)


def collate_numpy_array_fn(batch: Any, *, collate_fn_map: Any = None) -> Any:
    """Arrays are stacked as tensors that share their memory."""
    if _has_no_tensor(batch[0]):
        raise TypeError(default_collate_err_msg_format.format(batch[0].dtype))
    return collate([torch.as_tensor(array) for array in batch], collate_fn_map=collate_fn_map)


def collate_numpy_scalar_fn(batch: Any, *, collate_fn_map: Any = None) -> torch.Tensor:
    """A tensor of shape (len(batch),) and of the scalars' dtype."""
    return torch.as_tensor(batch)


def collate_float_fn(batch: Any, *, collate_fn_map: Any = None) -> torch.Tensor:
    """float64, because that is what a Python float is; torch.tensor alone would make it float32."""
    return torch.tensor(batch, dtype=torch.float64)


def collate_int_fn(batch: Any, *, collate_fn_map: Any = None) -> torch.Tensor:
    """int64, or bool: a bool is an int to Python."""
    return torch.tensor(batch)


def collate_str_fn(batch: Any, *, collate_fn_map: Any = None) -> Any:
    """Text stays as it is: it is not a sequence of letters here."""
    return batch


# Extend it with `default_collate_fn_map[MyType] = my_collate_fn`.
default_collate_fn_map: dict[type | tuple[type, ...], Callable[..., Any]] = {
    torch.Tensor: collate_tensor_fn,
    np.ndarray: collate_numpy_array_fn,  # np.memmap too
    # Before float: np.float64 is a float as well. Not np.str_ and np.bytes_, which are str and bytes.
    (np.bool_, np.number, np.object_): collate_numpy_scalar_fn,
    float: collate_float_fn,
    int: collate_int_fn,
    str: collate_str_fn,
    bytes: collate_str_fn,
}
