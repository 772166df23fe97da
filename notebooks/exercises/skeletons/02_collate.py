"""Exercise 2: collation of nested samples.

A worker makes a batch of a task's samples: numbers become tensors, and the containers around them
stay. Write `collate(batch, collate_fn_map=table)`, which works its way down into the samples. They
all have the same structure, so look at the first one, `elem`. If the table has a function for
`elem`, by its exact type or else by `isinstance`, call that function with the batch and with
`collate_fn_map=`, and return its result.

If `elem` is a container that is not in the table, collate it column by column: the values of all
samples at one position, or under one key. Mappings, namedtuples and sequences keep their type:
[Point(1, 2), Point(3, 4)] becomes Point(tensor([1, 3]), tensor([2, 4])). Only plain tuples become
lists. For sequences of unequal length raise a RuntimeError, for anything else a TypeError. Do not
change the samples: they are the dataset's.

Legend
    batch                           [{"x": 1, "y": "a"}, {"x": 2, "y": "b"}] becomes {"x":
                                    tensor([1, 2]), "y": ["a", "b"]}
    collate_fn_map                  {int: collate_int_fn, (np.bool_, np.number):
                                    collate_numpy_scalar_fn, ...}, or None: no table
    mapping_like                    mapping_like(elem, {...}): a mapping of elem's type with these
                                    items
    sequence_like                   sequence_like(elem, [...]): a sequence of elem's type with these
                                    values
    _is_namedtuple                  _is_namedtuple(elem): True for Point(1, 2), False for (1, 2)
    default_collate_err_msg_format  the TypeError's text: .format(type(elem))

Check it with `python -m notebooks.exercises check 02`; `hint 02` helps.
It goes with notebooks/03-collation-and-shared-memory.ipynb.
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
