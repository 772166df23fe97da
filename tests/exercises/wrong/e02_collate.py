"""Exercise 2: wrong answers."""

from tests.exercises.wrong.edits import Wrong

WRONG = {
    "by_place": Wrong(
        "by position, not by key",
        (
            "((key, [sample[key] for sample in batch]) for key in elem)",
            "zip(elem, map(list, zip(*(sample.values() for sample in batch))))",
        ),
    ),
    "loses_namedtuple": Wrong("loses the namedtuple type", ("if _is_namedtuple(elem):", "if False:")),
    "loses_table": Wrong(
        "loses the table",
        ("collate(column, collate_fn_map=collate_fn_map) for key,", "collate(column) for key,"),
        ("type(elem)(*(collate(column, collate_fn_map=collate_fn_map)", "type(elem)(*(collate(column)"),
        ("values = [collate(column, collate_fn_map=collate_fn_map)", "values = [collate(column)"),
    ),
    "no_transposition": Wrong("no transposition", ("column in zip(*batch, strict=False)]", "column in batch]")),
    "table_last": Wrong(
        "the table comes last",
        ("if collate_fn_map is not None:", "if False:"),
        (
            "    raise TypeError(",
            "    for types, collate_fn in (collate_fn_map or {}).items():\n"
            "        if isinstance(elem, types):\n"
            "            return collate_fn(batch, collate_fn_map=collate_fn_map)\n"
            "    raise TypeError(",
        ),
    ),
    "truncates": Wrong(
        "truncates ragged samples", ("if any(len(sample) != len(elem) for sample in batch):", "if False:")
    ),
    "closest_class": Wrong(
        "another case",
        (
            "in collate_fn_map.items():",
            "in sorted(collate_fn_map.items(), key=lambda each: -len(getattr(each[0], '__mro__', ()))):",
        ),
    ),
    "needs_a_table": Wrong("another case", ("if collate_fn_map is not None:", "if True:")),
    "no_table_for_a_subclass": Wrong(
        "the table is not passed on",
        ("return collate_fn(batch, collate_fn_map=collate_fn_map)", "return collate_fn(batch)"),
    ),
    "in_place": Wrong(
        "changes its samples",
        (
            "return mapping_like(elem, {",
            "if isinstance(elem, dict):\n            elem.update({key: collate(column, collate_fn_map=collate_fn_map) "
            "for key, column in columns})\n            return elem\n        return mapping_like(elem, {",
        ),
    ),
}
