"""Exercise 2: samples to a batch."""

from __future__ import annotations

from collections import UserList, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from minidl.data.collate import default_collate_fn_map
from notebooks.exercises.answers import Answer
from notebooks.exercises.exercise import Exercise, Finding
from notebooks.exercises.probes import Attempt, attempt, first, real, short


class Point(NamedTuple):
    x: Any
    y: Any


class Celsius(float):
    """A subclass of what is in the table."""

    def __repr__(self) -> str:
        return f"Celsius({float(self)})"


class Row(UserList):
    """A sequence of another type."""

    def __repr__(self) -> str:
        return f"Row({self.data})"


def noted(name: str) -> Any:
    """An entry of a table: returns its name, and what the table that it was given has in it."""
    return lambda batch, *, collate_fn_map=None: (name, sorted(each.__name__ for each in collate_fn_map or ()))


def same(value: Any, wanted: Any) -> bool:
    """Equal, with equal types all the way down; tensors with equal dtypes."""
    if type(value) is not type(wanted):
        return False
    if isinstance(wanted, torch.Tensor):
        return value.dtype == wanted.dtype and torch.equal(value, wanted)
    if isinstance(wanted, Mapping):
        return set(value) == set(wanted) and all(same(value[key], wanted[key]) for key in wanted)
    if isinstance(wanted, Sequence) and not isinstance(wanted, str):
        return len(value) == len(wanted) and all(map(same, value, wanted))
    return bool(value == wanted)


def numbers(*values: int) -> torch.Tensor:
    return torch.tensor(values)


class Collated:
    """Calls of the answer, and what should come back."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer

    def tried(self, batch: Any, table: Any = default_collate_fn_map) -> Attempt:
        given = "" if table is default_collate_fn_map else f", collate_fn_map={_names(table)}"
        call = f"collate({batch}{given})"  # not short(): it would sort the keys of mappings
        return attempt(self.answer, call, lambda: self.answer.function()(batch, collate_fn_map=table))

    def findings(self, batch: Any, wanted: Any, mistake: str, cause: str, table: Any = default_collate_fn_map) -> Any:
        """At most one: what is wrong when this batch does not become that."""
        tried = self.tried(batch, table)
        if not same(tried.value, wanted):
            if isinstance(tried.error, RecursionError) and isinstance(batch[0], tuple):
                mistake, cause = _named("goes down for ever")
            yield tried.finding(mistake, short(wanted), cause)


def _names(table: Any) -> str:
    return "{" + ", ".join(f"{each.__name__}: ..." for each in table) + "}"


CAUSES = {
    "goes down for ever": "`collate` calls itself with samples that are no smaller than its own. For three samples of "
    "two values each it should be called twice, with three values: one call a column.",
    "leaves": "Samples that are in no container are for the table: `collate_fn_map[type(elem)]` is called with the "
    "batch.",
    "the table comes last": "The table comes first: its `str` entry keeps text whole. To Python a `str` is a sequence "
    "too, of letters.",
    "a subclass comes first": "An entry for the sample's very type counts more than one that it is merely an instance "
    "of: a bool is an int to `isinstance`, but there is an entry for bool. Look the type up before you go through the "
    "table.",
    "no entry for a subclass": "Where there is no entry for the very type, take the first that the sample is an "
    "instance of: `isinstance(elem, types)`.",
    "the table is not passed on": "A function from the table may have to collate what is inside. It is called with the "
    "batch and with `collate_fn_map=`, the table that you were given yourself.",
    "no transposition": "Each sample was collated on its own: its values, which have nothing to do with each other, "
    "became a tensor. What belongs together is a column: the first values of all samples, then the second ones.",
    "a tuple": "Tuples become lists (in torch, too): one collated column for each place.",
    "sequences": "Samples that are sequences: collate the first values of all, the second ones, ...; a list of the "
    "results.",
    "loses the table": "`collate` calls itself without the table it was given, or with another: pass `collate_fn_map` "
    "on.",
    "truncates ragged samples": "One sample has fewer values than another. A value is lost, and nobody is told: `zip` "
    "ends with the shortest, and an index goes only as far as the sample that was counted. Compare the lengths first.",
    "another exception": "Samples of unequal length are a RuntimeError, as for tensors of unequal shape: who catches "
    "it need not know how the samples were nested.",
    "loses the namedtuple type": "A namedtuple is a tuple, but one whose places have names, and a training loop says "
    "`batch.x`. Make one of the same type, and look for it before you look for other tuples.",
    "by place, not by key": "The values of a mapping belong together by key. The second sample has its keys in another "
    "order, so that values of different keys were put together.",
    "mappings": "Samples that are mappings: for each key of the first one, collate the values of all under it.",
    "loses the mapping's type": "The batch is a mapping of the samples' type: `mapping_like(elem, values)` makes one, "
    "of a defaultdict too, whose type does not take a dict as its argument.",
    "loses the sequence's type": "The batch is a sequence of the samples' type, unless that is a tuple: "
    "`sequence_like(elem, values)` makes one.",
    "no TypeError": "What is neither in the table nor a mapping nor a sequence cannot be collated: say so with a "
    "TypeError.",
}


def _in_the_table(made: Collated) -> Iterator[Finding]:
    yield from made.findings([3, 1, 2], numbers(3, 1, 2), "leaves", CAUSES["leaves"])
    yield from made.findings(["ab", "cd"], ["ab", "cd"], *_named("the table comes last"))
    table = {int: noted("int"), bool: noted("bool")}
    tried = made.tried([True, False], table)
    if isinstance(tried.value, tuple) and tried.value[:1] == ("int",):
        yield tried.finding("a subclass comes first", "the entry for bool is called", CAUSES["a subclass comes first"])
    yield from made.findings([True, False], ("bool", ["bool", "int"]), *_named("the table is not passed on"), table)
    table = {int: noted("int"), float: noted("float")}
    yield from made.findings([Celsius(1)], ("float", ["float", "int"]), *_named("no entry for a subclass"), table)


def _named(mistake: str) -> tuple[str, str]:
    return mistake, CAUSES[mistake]


def _columns(made: Collated) -> Iterator[Finding]:
    batch, wanted = [(1, 2), (3, 4), (5, 6)], [numbers(1, 3, 5), numbers(2, 4, 6)]
    tried = made.tried(batch)
    rows = [numbers(1, 2), numbers(3, 4), numbers(5, 6)]
    mistake = "sequences"
    if isinstance(tried.value, (list, tuple)) and same(list(tried.value), rows):
        mistake = "no transposition"
    elif same(tried.value, tuple(wanted)):
        mistake = "a tuple"
    elif isinstance(tried.error, TypeError) and made.tried([(), ()]).error is None:
        mistake = "loses the table"  # nothing was in these tuples that it had to be looked up for
    yield from made.findings(batch, wanted, *_named(mistake))
    entry = ("int", ["int"])
    yield from made.findings([(1, [2]), (3, [4])], [entry, [entry]], *_named("loses the table"), {int: noted("int")})
    yield from made.findings(
        [Row([1, 2]), Row([3, 4])], Row([numbers(1, 3), numbers(2, 4)]), *_named("loses the sequence's type")
    )


def _ragged(made: Collated) -> Iterator[Finding]:
    for batch in ([[1, 2], [3, 4, 5]], [(1, 2, 3), (4, 5)]):
        tried = made.tried(batch)
        if tried.error is None:
            yield tried.finding("truncates ragged samples", "RuntimeError", CAUSES["truncates ragged samples"])
        elif type(tried.error) is not RuntimeError:
            yield tried.finding("another exception", "RuntimeError", CAUSES["another exception"])


def _with_names(made: Collated) -> Iterator[Finding]:
    points = [Point(1, 2), Point(3, 4), Point(5, 6)]
    wanted = Point(numbers(1, 3, 5), numbers(2, 4, 6))
    yield from made.findings(points, wanted, *_named("loses the namedtuple type"))
    batch, wanted_dict = [{"x": 1, "y": 2}, {"y": 4, "x": 3}], {"x": numbers(1, 3), "y": numbers(2, 4)}
    tried = made.tried(batch)
    crossed = same(tried.value, {"x": numbers(1, 4), "y": numbers(2, 3)})
    yield from made.findings(batch, wanted_dict, *_named("by place, not by key" if crossed else "mappings"))
    yield from made.findings(
        [defaultdict(int, x=1), defaultdict(int, x=3)],
        defaultdict(int, x=numbers(1, 3)),
        *_named("loses the mapping's type"),
    )


def _else(made: Collated) -> Iterator[Finding]:
    batch = [{"at": Point((1, 2), [True])}, {"at": Point((3, 4), [False])}]
    wanted = {"at": Point([numbers(1, 3), numbers(2, 4)], [torch.tensor([True, False])])}
    yield from made.findings(batch, wanted, "nested samples", "Containers in containers: `collate` calls itself.")
    tried = made.tried([None, None])
    if not isinstance(tried.error, TypeError):
        yield tried.finding("no TypeError", "TypeError", CAUSES["no TypeError"])


def grade(answer: Answer) -> Finding | None:
    made = Collated(answer)
    checks = (_in_the_table, _columns, _ragged, _with_names, _else)
    with answer.at_work():
        found = first(finding for check in checks for finding in check(made))
    return found or real(answer, _program, [[[0, 1, 2], [0, -1, -2], ["0", "1", "2"]], [[3, 4], [-3, -4], ["3", "4"]]])


class Nested:
    """Map style: sample 3 is {"at": Point(3, [-3]), "name": "3"}."""

    def __len__(self) -> int:
        return 5

    def __getitem__(self, key: int) -> dict[str, Any]:
        return {"at": Point(key, [-key]), "name": str(key)}


def _program() -> list[Any]:
    import minidl

    batches = list(minidl.DataLoader(Nested(), batch_size=3, num_workers=2))
    return [[each["at"].x.tolist(), each["at"].y[0].tolist(), list(each["name"])] for each in batches]


EXERCISE = Exercise(
    number=2,
    name="collate",
    title="collation of nested samples",
    references=("minidl.data.collate:collate",),
    task="""
    A worker has the samples of a task, and makes a batch of them: numbers become a tensor, and what they are nested
    in stays. Write `collate(batch, collate_fn_map=table)`, which goes down into the samples. All have the same
    structure, so the first one, `elem`, says what to do. The table says what becomes of the leaves: if it has a
    function for `elem`, by its very type or else because it is an instance, that is called with the batch and with
    `collate_fn_map=`, and makes the result.

    Of containers that the table does not know, `collate` collates one column after the other: the values that all
    samples have at one place, or under one key. Mappings, namedtuples and sequences come back as they were:
    [Point(1, 2), Point(3, 4)] becomes Point(tensor([1, 3]), tensor([2, 4])). Only plain tuples become lists.
    Sequences of unequal length are a RuntimeError; anything else is a TypeError.
    """,
    legend={
        "batch": '[{"x": 1, "y": "a"}, {"x": 2, "y": "b"}] becomes {"x": tensor([1, 2]), "y": ["a", "b"]}',
        "collate_fn_map": "{int: collate_int_fn, (np.bool_, np.number): collate_numpy_scalar_fn, ...}, or None: no "
        "table",
        "mapping_like": "mapping_like(elem, {...}): a mapping of elem's type with these items",
        "sequence_like": "sequence_like(elem, [...]): a sequence of elem's type with these values",
        "_is_namedtuple": "_is_namedtuple(elem): True of Point(1, 2), False of (1, 2)",
        "default_collate_err_msg_format": "the TypeError's text: .format(type(elem))",
    },
    hints=(
        "Write down by hand what becomes of [(1, 2), (3, 4), (5, 6)]: which numbers meet in a tensor? What turns the "
        "one list into the other?",
        "The order of the questions matters: the table before everything (a str is a sequence too), namedtuples before "
        "sequences. `zip(*batch)` has the columns of tuples and lists, and it ends with the shortest sample without a "
        "word.",
        "elem = batch[0]. If type(elem) is in the table, or else elem is an instance of one of its keys: call the "
        "function. A Mapping: {key: collate([sample[key] for sample in batch], ...) for key in elem}, given to "
        "mapping_like. A namedtuple: type(elem)(*columns). A Sequence: if any len(sample) differs, RuntimeError; else "
        "the list of collated columns, for a tuple as it is, and otherwise given to sequence_like. Then: TypeError. "
        "All calls of collate pass collate_fn_map on.",
    ),
    grade=grade,
    notebook="03-collation-and-shared-memory.ipynb",
    forbidden=("default_collate", "default_convert", "_utils"),
)
