"""Exercise 2: samples to a batch."""

from __future__ import annotations

import copy
from collections import UserList, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from minidl.data.collate import default_collate_fn_map
from notebooks.exercises.answers import Answer
from notebooks.exercises.attempts import Attempt, attempt, first_finding, short, with_real_processes
from notebooks.exercises.exercise import Exercise, Finding


class Point(NamedTuple):
    x: Any
    y: Any


class Celsius(float):
    """A subclass of a type in the table."""

    def __repr__(self) -> str:
        return f"Celsius({float(self)})"


class Row(UserList):
    """A sequence of another type."""

    def __repr__(self) -> str:
        return f"Row({self.data})"


def noted(name: str) -> Any:
    """A table entry that returns its name, and the types in the table that it was given."""
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
    """Calls the answer, and compares what comes back."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.changed: Finding | None = None  # the first call that has changed its samples

    def tried(self, batch: Any, table: Any = default_collate_fn_map) -> Attempt:
        given = "" if table is default_collate_fn_map else f", collate_fn_map={_names(table)}"
        call = f"collate({batch}{given})"  # not short(): it would sort the keys of mappings
        own = copy.deepcopy(batch)
        tried = attempt(self.answer, call, lambda: self.answer.function()(own, collate_fn_map=table))
        if self.changed is None and repr(own) != repr(batch):
            got, cause = f"the samples are now {short(own)}", CAUSES["changes its samples"]
            self.changed = replace(tried, got=got).finding("changes its samples", "the samples as they were", cause)
        return tried

    def findings(self, batch: Any, wanted: Any, mistake: str, cause: str, table: Any = default_collate_fn_map) -> Any:
        """A finding if `batch` does not become `wanted`."""
        tried = self.tried(batch, table)
        if not same(tried.value, wanted):
            if isinstance(tried.error, RecursionError) and isinstance(batch[0], tuple):
                mistake, cause = _named("goes down for ever")
            yield tried.finding(mistake, short(wanted), cause)


def _names(table: Any) -> str:
    return "{" + ", ".join(f"{each.__name__}: ..." for each in table) + "}"


CAUSES = {
    "goes down for ever": "`collate` calls itself with samples as large as those it was given. For three samples of "
    "two values each, it should call itself twice with three values: once per column.",
    "changes its samples": "The samples are the dataset's, which may keep them for the next epoch: make a new "
    "container for the batch.",
    "leaves": "Samples that are not containers are collated by the table: call `collate_fn_map[type(elem)]` with the "
    "batch.",
    "the table comes last": "Look in the table first: its `str` entry keeps text whole. To Python, a `str` is also a "
    "sequence of letters.",
    "a subclass comes first": "An entry for the sample's exact type comes before one for a base class. To "
    "`isinstance` a bool is an int, but there is an entry for bool. Look up the type before you go through the "
    "table.",
    "no entry for a subclass": "If there is no entry for the exact type, use the first entry that the sample is an "
    "instance of: `isinstance(elem, types)`.",
    "the table is not passed on": "A function from the table may need to collate what is inside. Call it with the "
    "batch and with `collate_fn_map=`, the table that you were given.",
    "no transposition": "Each sample was collated on its own, so its unrelated values became one tensor. Collate "
    "columns instead: the first values of all samples, then the second values.",
    "a tuple": "Tuples become lists, as in torch: one collated column per position.",
    "sequences": "If the samples are sequences, collate all first values, then all second values, and so on. Return "
    "a list of the results.",
    "loses the table": "`collate` calls itself without the table it was given, or with another one: pass "
    "`collate_fn_map` on.",
    "truncates ragged samples": "One sample has fewer values than another, and a value is silently lost: `zip` stops "
    "at the shortest sample. Compare the lengths first.",
    "another exception": "For samples of unequal length raise a RuntimeError, as for tensors of unequal shape: then "
    "code that catches it need not know how the samples were nested.",
    "loses the namedtuple type": "A namedtuple is a tuple whose positions have names, and a training loop may read "
    "`batch.x`. Return one of the same type, and check for it before you check for other tuples.",
    "by position, not by key": "The values of mappings belong together by key. The second sample has its keys in a "
    "different order, so values of different keys were mixed.",
    "mappings": "If the samples are mappings, collate, for each key of the first one, the values of all samples.",
    "loses the mapping's type": "The batch must be a mapping of the samples' type. `mapping_like(elem, values)` "
    "makes one, even of a defaultdict, which cannot be built from a dict alone.",
    "loses the sequence's type": "The batch must be a sequence of the samples' type, unless that is a tuple: "
    "`sequence_like(elem, values)` makes one.",
    "no TypeError": "A sample that is not in the table, and not a mapping or a sequence, cannot be collated: raise a "
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
    mistake = (
        "the table is not passed on"
        if made.tried([Celsius(1)], table).value == ("float", [])
        else ("no entry for a subclass")
    )
    yield from made.findings([Celsius(1)], ("float", ["float", "int"]), *_named(mistake), table)


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
        mistake = "loses the table"  # empty tuples need no lookup in the table
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
    yield from made.findings(batch, wanted_dict, *_named("by position, not by key" if crossed else "mappings"))
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
        found = first_finding(finding for check in checks for finding in check(made))
    return (
        made.changed
        or found
        or with_real_processes(
            answer, _program, [[[0, 1, 2], [0, -1, -2], ["0", "1", "2"]], [[3, 4], [-3, -4], ["3", "4"]]]
        )
    )


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
    A worker makes a batch of a task's samples: numbers become tensors, and the containers around them stay. Write
    `collate(batch, collate_fn_map=table)`, which works its way down into the samples. They all have the same structure,
    so look at the first one, `elem`. If the table has a function for `elem`, by its exact type or else by `isinstance`,
    call that function with the batch and with `collate_fn_map=`, and return its result.

    If `elem` is a container that is not in the table, collate it column by column: the values of all samples at one
    position, or under one key. Mappings, namedtuples and sequences keep their type: [Point(1, 2), Point(3, 4)] becomes
    Point(tensor([1, 3]), tensor([2, 4])). Only plain tuples become lists. For sequences of unequal length raise a
    RuntimeError, for anything else a TypeError. Do not change the samples: they are the dataset's.
    """,
    legend={
        "batch": '[{"x": 1, "y": "a"}, {"x": 2, "y": "b"}] becomes {"x": tensor([1, 2]), "y": ["a", "b"]}',
        "collate_fn_map": "{int: collate_int_fn, (np.bool_, np.number): collate_numpy_scalar_fn, ...}, or None: no "
        "table",
        "mapping_like": "mapping_like(elem, {...}): a mapping of elem's type with these items",
        "sequence_like": "sequence_like(elem, [...]): a sequence of elem's type with these values",
        "_is_namedtuple": "_is_namedtuple(elem): True for Point(1, 2), False for (1, 2)",
        "default_collate_err_msg_format": "the TypeError's text: .format(type(elem))",
    },
    hints=(
        "Write down by hand what [(1, 2), (3, 4), (5, 6)] becomes. Which numbers share a tensor? What turns one list "
        "into the other?",
        "The order of the checks matters: the table first (a str is a sequence too), and namedtuples before "
        "sequences. `zip(*batch)` gives the columns of tuples and lists, but it silently stops at the shortest "
        "sample.",
        "elem = batch[0]. If type(elem) is in the table, or else elem is an instance of one of its keys: call the "
        "function. A Mapping: pass {key: collate([sample[key] for sample in batch], ...) for key in elem} to "
        "mapping_like. A namedtuple: type(elem)(*columns). A Sequence: RuntimeError if any len(sample) differs; "
        "otherwise the list of collated columns, as it is for a tuple, else passed to sequence_like. Finally "
        "TypeError. All calls of collate pass collate_fn_map on.",
    ),
    grade=grade,
    notebook="03-collation-and-shared-memory.ipynb",
    forbidden=("default_collate", "default_convert", "_utils"),
)
