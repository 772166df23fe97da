"""by place, not by key"""

from collections.abc import Mapping, Sequence

from minidl.data.collate import _is_namedtuple, default_collate_err_msg_format, mapping_like, sequence_like


def collate(batch, *, collate_fn_map=None):
    elem = batch[0]
    if collate_fn_map is not None:
        if type(elem) in collate_fn_map:
            return collate_fn_map[type(elem)](batch, collate_fn_map=collate_fn_map)
        for types, collate_fn in collate_fn_map.items():
            if isinstance(elem, types):
                return collate_fn(batch, collate_fn_map=collate_fn_map)
    if isinstance(elem, Mapping):
        columns = zip(*(sample.values() for sample in batch))
        values = (collate(column, collate_fn_map=collate_fn_map) for column in columns)
        return mapping_like(elem, dict(zip(elem, values)))
    if _is_namedtuple(elem):
        return type(elem)(*[collate(column, collate_fn_map=collate_fn_map) for column in zip(*batch)])
    if isinstance(elem, Sequence):
        if any(len(sample) != len(elem) for sample in batch):
            raise RuntimeError("samples of unequal length")
        values = [collate(column, collate_fn_map=collate_fn_map) for column in zip(*batch)]
        return values if isinstance(elem, tuple) else sequence_like(elem, values)
    raise TypeError(default_collate_err_msg_format.format(type(elem)))
