"""Calls of the functions of exercises 1 to 4 and 9: what comes of each, with the types of containers, or is raised.

An answer must do what minidl's function does. Only kinds of exceptions are compared, never their texts.
"""

from __future__ import annotations

import functools
import itertools
import random
from collections import OrderedDict, UserDict, UserList, defaultdict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

import minidl
from minidl.data import collate
from minidl.data.fetch import IterableFetcher, MapFetcher
from minidl.data.sampler import BatchSampler
from notebooks.exercises.programs import Program

Calls = Iterator[tuple[str, Callable[[], Any]]]


def outcome_of(call: Callable[[], Any]) -> str:
    """What comes of a call."""
    try:
        value = call()
        return value if isinstance(value, str) else typed(value)
    except Exception as error:
        if isinstance(error, (NameError, AttributeError, ImportError)) and error.args[:1] != ("it cannot be read",):
            raise  # a slip: it is reported with its line
        return f"raises {type(error).__name__}"


def typed(value: Any) -> str:
    """A value, with the types of all that is not a plain list or number."""
    if isinstance(value, torch.Tensor):
        return f"tensor({value.tolist()})"
    if isinstance(value, list) and type(value) is list:
        return f"[{', '.join(map(typed, value))}]"
    if isinstance(value, (list, tuple, UserList)):
        return f"{type(value).__name__}({', '.join(map(typed, value))})"
    if isinstance(value, (dict, UserDict)):
        items = ", ".join(f"{key}: {typed(value[key])}" for key in sorted(value))
        return f"{{{items}}}" if type(value) is dict else f"{type(value).__name__}({items})"
    return repr(value)


# ---- exercise 1


class Asked:
    """A dataset that counts how it was asked; each sample is a new one."""

    def __init__(self) -> None:
        self.asked = 0

    def __len__(self) -> int:
        return 8

    def __getitem__(self, key: Any) -> Any:
        self.asked += 1
        if key == 99:
            raise IndexError("there is no sample 99")
        if key == 98:
            raise StopIteration  # as from next() on a file that has ended
        return None if key == 7 else f"sample {key}"


class AtOnce(Asked):
    def __getitems__(self, keys: Any) -> list[Any]:
        return [f"all at once, of a {type(keys).__name__}", *keys]


class Disabled(AtOnce):
    __getitems__ = None  # type: ignore[assignment]


class FailsAtOnce(Asked):
    """It fetches no two samples at once."""

    def __init__(self, error: type[Exception]) -> None:
        super().__init__()
        self.error = error

    def __getitems__(self, keys: Any) -> list[Any]:
        raise self.error("it cannot be read")


def fetched(dataset: Callable[[], Any], keys: Any, batching: bool = True) -> Any:
    return MapFetcher(dataset(), batching, list, False).fetch(keys)


def keys_afterwards(dataset: Callable[[], Any]) -> list[Any]:
    keys = [2, 0, 1]
    MapFetcher(dataset(), True, list, False).fetch(keys)
    return keys


def _fetches() -> Calls:
    yield "fetch(3), without automatic batching", functools.partial(fetched, Asked, 3, False)
    yield "fetch([3, 1, 2])", functools.partial(fetched, Asked, [3, 1, 2])
    yield "fetch([3, 1]) of a dataset with __getitems__", functools.partial(fetched, AtOnce, [3, 1])
    yield "fetch([3, 1]) where __getitems__ is None", functools.partial(fetched, Disabled, [3, 1])
    for kind, also in ((Asked, ""), (AtOnce, " of a dataset with __getitems__")):
        for keys in ([5], [5, 5], [0, 2], ["a", (1, 2)], [6, 7, 8]):
            yield f"fetch({keys}){also}", functools.partial(fetched, kind, keys)
        for key in (12, 0, "", [3, 4], (3, 4), None):
            yield f"fetch({key!r}){also}, without automatic batching", functools.partial(fetched, kind, key, False)
        yield f"keys = [2, 0, 1]; fetch(keys){also}; keys", functools.partial(keys_afterwards, kind)
    for key, error in ((99, "IndexError"), (98, "StopIteration")):
        call = f"fetch([8, {key}, 10]), where sample {key} raises {error}"
        yield call, functools.partial(fetched, Asked, [8, key, 10])
    for raised in (AttributeError, TypeError, NotImplementedError, StopIteration):
        call = f"fetch([0, 2]) of a dataset whose __getitems__ raises {raised.__name__}"
        yield call, functools.partial(fetched, functools.partial(FailsAtOnce, raised), [0, 2])


# ---- exercise 2


class Rows(list[Any]):
    pass


class Record(dict[str, Any]):
    pass


class Frozen(UserDict[str, Any]):
    pass


class Row(UserList[Any]):
    """A sequence that is no list."""

    def __repr__(self) -> str:
        return f"Row({self.data})"


class Point(NamedTuple):
    x: Any
    y: Any


class Grade(int):
    def __repr__(self) -> str:
        return f"Grade({int(self)})"


class School(Grade):
    def __repr__(self) -> str:
        return f"School({int(self)})"


def named(name: str) -> Any:
    """A table's function that returns its name, and which types are in the table that it was given."""
    return lambda batch, *, collate_fn_map=None: f"{name} of {typed(list(batch))}, {_types(collate_fn_map)}"


def _types(table: Any) -> str:
    return f"table of {', '.join(map(_name, table))}" if table else "no table"


def _name(kind: Any) -> str:
    return f"({', '.join(each.__name__ for each in kind)})" if isinstance(kind, tuple) else str(kind.__name__)


def nothing(batch: Any, *, collate_fn_map: Any = None) -> None:
    return None


def refuses(batch: Any, *, collate_fn_map: Any = None) -> Any:
    raise ValueError("these cannot be put together")


def collated(batch: list[Any], table: Any) -> str:
    """What it becomes; and the samples, if they are not what they were."""
    before = typed(batch)
    found = typed(collate.collate(batch, collate_fn_map=table))
    return found if typed(batch) == before else f"{found}, and the samples are now {typed(batch)}"


def _collations() -> Calls:
    default = collate.default_collate_fn_map
    ragged: list[list[Any]] = [[[1, 2], [3, 4, 5]], [(1, 2, 3), (4, 5)], [[], [1]], [[[1], [2]], [[3]]]]
    nested: list[Any] = [{"at": Point((1, 2), [True])}, {"at": Point((3, 4), [False])}]
    batches: list[Any] = [
        *([3, 1, 2], ["ab", "cd"], [(1, 2), (3, 4), (5, 6)], [Row([1, 2]), Row([3, 4])], *ragged),
        *([Point(1, 2), Point(3, 4), Point(5, 6)], [{"x": 1, "y": 2}, {"y": 4, "x": 3}]),
        *([defaultdict(int, x=1), defaultdict(int, x=3)], nested),
        [OrderedDict(a=1), OrderedDict(a=2)],
        *([None, None], [np.float32(1.5), np.float32(2)], [torch.tensor([1, 2]), torch.tensor([3, 4])], [b"a", b"b"]),
    ]
    for batch in batches:
        yield f"collate({batch})", functools.partial(collated, batch, default)
    cases: tuple[tuple[tuple[Any, ...], list[Any]], ...] = (
        ((int, bool), [True, False]),
        ((int, float), [Grade(1), Grade(2)]),
        ((int,), [(1, [2]), (3, [4])]),
        ((int,), [Rows([1, 2]), Rows([3, 4])]),
        ((int,), [Record(a=1, b=2), Record(b=3, a=4)]),
        ((int,), [Frozen(a=1), Frozen(a=2)]),
        ((int,), [Point(1, Rows([2])), Point(3, Rows([4]))]),
        ((int,), [{"a": [1, 2]}, {"a": [3]}]),
        ((int,), [(), ()]),
        ((int,), [{1, 2}, {3, 4}]),
        ((int, dict), [Record(a=1), Record(a=2)]),
        ((int, list), [Rows([1]), Rows([2])]),
        ((int, tuple), [Point(1, 2), Point(3, 4)]),
        ((int, Record), [Record(a=1), Record(a=2)]),
        ((int, Point), [Point(1, 2), Point(3, 4)]),
        ((int, list), [(1, [2]), (3, [4])]),
        *(
            (kinds, [School(1), School(2)])  # a School is a Grade, and that an int
            for kinds in ((int, Grade), (Grade, int), (int, (str, Grade)), ((str, int), School), (int, Grade, School))
        ),
    )
    for kinds, batch in cases:
        call = f"collate({batch}, collate_fn_map={{{', '.join(f'{_name(kind)}: ...' for kind in kinds)}}})"
        yield (
            call,
            functools.partial(collated, batch, {kind: named(f"the function for {_name(kind)}") for kind in kinds}),
        )
    untabled: list[list[Any]] = [[[], []], [{}, {}], [{"a": []}, {"a": []}], [[1], [2]]]
    for batch in untabled:
        yield f"collate({batch}), without a table", functools.partial(collated, batch, None)
    call = "collate([{'a': 1}, {'a': 2}]), where the table's function returns None"
    yield call, functools.partial(collated, [{"a": 1}, {"a": 2}], {int: nothing})
    call = "collate([[1, 2], [3, 4]]), where the table's function raises ValueError"
    yield call, functools.partial(collated, [[1, 2], [3, 4]], {int: refuses})


# ---- exercise 3


class Endless:
    """It has no length, and counts the keys that are taken."""

    def __init__(self) -> None:
        self.taken = 0

    def __iter__(self) -> Iterator[int]:
        for key in range(1000):
            self.taken += 1
            yield key


class Backwards(list[int]):
    """It has an order of its own."""

    def __iter__(self) -> Iterator[int]:
        return reversed(self)


class EqualToAll:
    """A key; comparing it tells nothing."""

    def __eq__(self, other: object) -> bool:
        return True

    def __repr__(self) -> str:
        return "EqualToAll()"


class NotComparable(EqualToAll):
    """Like an array of several numbers."""

    def __eq__(self, other: object) -> bool:
        raise TypeError("keys need not be compared")

    def __bool__(self) -> bool:
        raise TypeError("a key need not be true or false")

    def __repr__(self) -> str:
        return "NotComparable()"


class FailsLate:
    def __init__(self, error: type[Exception]) -> None:
        self.error = error

    def __iter__(self) -> Iterator[int]:
        yield from range(5)
        raise self.error("the sixth key cannot be read")


def lists(sampler: Any, size: int, drop_last: bool, most: int = 7) -> list[Any]:
    """What comes, as it is in the end, and what is raised after it."""
    found: list[Any] = []
    try:
        for keys in itertools.islice(BatchSampler(sampler, size, drop_last), most):
            found.append(keys)
    except Exception as error:
        found.append(f"raises {type(error).__name__}")
    return found


def taken(size: int, drop_last: bool) -> str:
    sampler = Endless()
    found = lists(sampler, size, drop_last, 2)
    return f"{found}, for which {sampler.taken} keys were taken"


def left_and_begun_anew(drop_last: bool) -> list[Any]:
    batches = BatchSampler(range(7), 2, drop_last)
    first = iter(batches)
    found = [next(first)]
    if hasattr(first, "close"):
        first.close()
    return [*found, *itertools.islice(batches, 9), *itertools.islice(batches, 9)]


def two_at_once() -> list[Any]:
    batches = BatchSampler(range(7), 2, False)
    return [[one, other] for one, other in itertools.islice(zip(batches, batches, strict=True), 9)]


def _lists() -> Calls:
    of_some: list[tuple[str, Any, int, bool]] = [
        (f"range({length})", range(length), size, drop_last)
        for (length, size), drop_last in itertools.product(((10, 4), (8, 4), (3, 4), (0, 4)), (False, True))
    ]
    keys: tuple[Any, ...] = (None, EqualToAll(), NotComparable(), [])
    for drop_last in (False, True):
        of_some += [(f"a sampler with five keys {key!r}", [key] * 5, 2, drop_last) for key in keys]
        of_some += [
            (f"a sampler that raises {error.__name__} at its sixth key", FailsLate(error), 2, drop_last)
            for error in (ValueError, RuntimeError, TypeError)
        ]
        of_some += [(f"range({n})", range(n), size, drop_last) for n in range(6) for size in (1, 2, 3, 7)]
        of_some += [("keys 1 to 5 that are iterated backwards", Backwards([1, 2, 3, 4, 5]), 2, drop_last)]
    for words, sampler, size, drop_last in of_some:
        call = f"list(BatchSampler({words}, batch_size={size}, drop_last={drop_last}))"
        yield call, functools.partial(lists, sampler, size, drop_last)
    for drop_last in (False, True):
        call = f"the first two lists of a BatchSampler of an endless sampler, batch_size=4, drop_last={drop_last}"
        yield call, functools.partial(taken, 4, drop_last)
    for drop_last in (False, True):
        call = f"BatchSampler(range(7), 2, {drop_last}), left after a list, and begun anew, twice"
        yield call, functools.partial(left_and_begun_anew, drop_last)
    yield "BatchSampler(range(7), 2, False), iterated twice at the same time", two_at_once


# ---- exercise 4


def shares(length: int, ranks: int, *epochs: int | None, now: int | None = None, **options: Any) -> list[Any]:
    """By rank, the keys of each pass; an epoch of None: set_epoch is not called before it. `now`: how long the dataset
    is by then."""
    found: list[Any] = []
    for rank in range(ranks):
        sampler: Any = minidl.DistributedSampler(range(length), ranks, rank, **options)
        if now is not None:
            sampler.dataset = range(now)
        for epoch in epochs:
            if epoch is not None:
                sampler.set_epoch(epoch)
            try:
                found.append(list(sampler))
            except AssertionError:  # all ranks must raise it, or the others wait for this one
                found.append("AssertionError")
    return found


def states() -> tuple[Any, ...]:
    numpys: Any = np.random.get_state()
    return torch.get_rng_state().tolist(), random.getstate(), numpys[1].tolist(), numpys[2:]


def disturbed() -> str:
    before, torchs = states(), torch.get_rng_state()
    shares(12, 4, 0, shuffle=True)
    same = states() == before
    torch.set_rng_state(torchs)
    return f"the states of the global generators {'are as before' if same else 'have changed'}"


def changed_after_iter() -> list[int]:
    sampler: Any = minidl.DistributedSampler(range(12), 4, 1, seed=5)
    keys = iter(sampler)
    sampler.set_epoch(1)
    return list(keys)


def _shares() -> Calls:
    for (length, ranks), shuffle, drop_last in itertools.product(
        ((10, 4), (8, 4), (3, 8), (12, 4), (0, 2), (1, 3), (5, 1), (16, 3)), (False, True), (False, True)
    ):
        if drop_last and length < ranks:
            continue  # no rank has any keys
        options = {"shuffle": shuffle, "seed": 5, "drop_last": drop_last}
        given = ", ".join(f"{name}={value}" for name, value in options.items() if value)
        call = f"DistributedSampler(range({length}), {ranks}, rank, {given or 'shuffle=False'}), each rank's keys"
        epochs = (0, None, 1, 0) if shuffle else (0,)
        call += " in epochs 0, 0 again, 1 and 0" * shuffle
        yield call, functools.partial(shares, length, ranks, *epochs, **options)
    for seed in (0, 6, 2**31 + 5, 2**40, -3):
        call = f"DistributedSampler(range(9), 2, rank, seed={seed}), each rank's keys in epochs 0 and 7"
        yield call, functools.partial(shares, 9, 2, 0, 7, shuffle=True, seed=seed)
    yield "torch's, random's and numpy's own generators, after a pass", disturbed
    yield "keys = iter(sampler); sampler.set_epoch(1); list(keys)", changed_after_iter
    for length, now, drop_last in ((10, 13, False), (10, 3, True), (10, 7, True)):
        call = f"a dataset of {length} samples, {now} of them when the epoch begins; drop_last={drop_last}"
        yield call, functools.partial(shares, length, 4, 0, now=now, shuffle=False, drop_last=drop_last)


# ---- exercise 9


class Numbers(minidl.IterableDataset[int]):
    """Its own iterator: so many numbers from 10. iter() starts anew; next() after the end raises RuntimeError."""

    def __init__(self, length: int) -> None:
        self.length, self.given, self.over = length, 0, False

    def __iter__(self) -> Iterator[int]:
        self.given, self.over = 0, False
        return self

    def __next__(self) -> int:
        if self.over:
            raise RuntimeError("this stream has ended, and was asked again")
        self.over = self.given == self.length
        if self.over:
            raise StopIteration
        self.given += 1
        return 9 + self.given


def taken_from(length: int, *tasks: Any, batching: bool = True, drop_last: bool = False) -> str:
    """What `fetch` gives for each of these tasks' keys, and what is the stream's next sample then."""
    stream = Numbers(length)
    fetcher = IterableFetcher(stream, batching, list, drop_last)
    found: list[Any] = []
    for keys in tasks:
        try:
            found.append(fetcher.fetch(keys))
        except (StopIteration, RuntimeError) as error:
            found.append(type(error).__name__)
    left = "" if stream.over else f", and then the stream gives {next(stream, 'no more')}"
    return f"{', '.join(map(str, found))}{left}"


def _takes() -> Calls:
    for length, tasks, options in (
        (5, ([0, 1],), {}),
        (5, ([0, 1], [2, 3]), {}),
        (3, ([0, 1], [2, 3]), {}),
        (2, ([0, 1], [2, 3]), {}),
        (3, ([0, 1], [2, 3], [4, 5]), {}),
        (3, ([0, 1], [2, 3]), {"drop_last": True}),
        (0, ([0],), {}),
        (1, (0, 1), {"batching": False}),  # nothing asks again: its worker has ended
    ):
        asked = ", ".join(f"fetch({keys})" for keys in tasks)
        also = ", without automatic batching" * ("batching" in options) + ", drop_last" * ("drop_last" in options)
        numbers = ", ".join(str(10 + k) for k in range(length)) or "without samples"
        call = f"{asked} of a stream {numbers}{also}"
        yield call, functools.partial(taken_from, length, *tasks, **options)


CALLS: dict[int, Callable[[], Calls]] = {1: _fetches, 2: _collations, 3: _lists, 4: _shares, 9: _takes}


def calls(number: int) -> list[Program]:
    """Those of an exercise, as programs."""
    return [Program(words, functools.partial(outcome_of, call), alone=True) for words, call in CALLS[number]()]
