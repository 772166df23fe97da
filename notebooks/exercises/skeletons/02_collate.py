"""Exercise 2: collation of nested samples.

A worker has the samples of a task, and makes a batch of them: numbers become a tensor, and what
they are nested in stays. Write `collate(batch, collate_fn_map=table)`, which goes down into the
samples. All have the same structure, so the first one, `elem`, says what to do. The table says what
becomes of the leaves: if it has a function for `elem`, by its very type or else because it is an
instance, that is called with the batch and with `collate_fn_map=`, and makes the result.

Of containers that the table does not know, `collate` collates one column after the other: the
values that all samples have at one place, or under one key. Mappings, namedtuples and sequences
come back as they were: [Point(1, 2), Point(3, 4)] becomes Point(tensor([1, 3]), tensor([2, 4])).
Only plain tuples become lists. Sequences of unequal length are a RuntimeError; anything else is a
TypeError.

Legend
    batch                           [{"x": 1, "y": "a"}, {"x": 2, "y": "b"}] becomes {"x":
                                    tensor([1, 2]), "y": ["a", "b"]}
    collate_fn_map                  {int: collate_int_fn, (np.bool_, np.number):
                                    collate_numpy_scalar_fn, ...}, or None: no table
    mapping_like                    mapping_like(elem, {...}): a mapping of elem's type with these
                                    items
    sequence_like                   sequence_like(elem, [...]): a sequence of elem's type with these
                                    values
    _is_namedtuple                  _is_namedtuple(elem): True of Point(1, 2), False of (1, 2)
    default_collate_err_msg_format  the TypeError's text: .format(type(elem))

Check it with `python -m notebooks.exercises check 02`; `hint 02` helps.
It belongs to notebooks/03-collation-and-shared-memory.ipynb.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from minidl.data.collate import _is_namedtuple, default_collate_err_msg_format, mapping_like, sequence_like


def collate(batch: Any, *, collate_fn_map: Mapping[Any, Callable[..., Any]] | None = None) -> Any:
    """Like `default_collate`, with a table of your own.

    Args:
        batch: the samples.
        collate_fn_map: {type, or tuple of types: function}. The first sample's exact type is looked for first; then
            the first entry, in the table's order, that the sample is an instance of. The function is called
            with the batch and with `collate_fn_map=`, which it needs for what is inside.
    """
    raise NotImplementedError
