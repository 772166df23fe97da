"""Exercises 1 to 4: calls that no known mistake is behind. The answer must do what minidl's function does."""

from __future__ import annotations

import functools
import itertools
from collections import UserDict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import minidl
from minidl.data import collate
from minidl.data.fetch import MapFetcher
from minidl.data.sampler import BatchSampler


def outcome_of(call: Callable[[], Any]) -> str:
    """What comes of a call, with the types of containers, or what it raises."""
    try:
        return _typed(call())
    except Exception as error:
        return f"raises {type(error).__name__}"


def _typed(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__}({', '.join(map(_typed, value))})"
    if isinstance(value, (dict, UserDict)):
        return f"{type(value).__name__}({', '.join(f'{key}: {_typed(value[key])}' for key in sorted(value))})"
    return repr(value)


# ---- exercise 1


class Said:
    """A dataset that says how it was asked; each sample is a new one."""

    def __init__(self) -> None:
        self.asked = 0

    def __getitem__(self, key: Any) -> Any:
        self.asked += 1
        if key == 99:
            raise IndexError("there is no sample 99")
        if key == 98:
            raise StopIteration  # as from next() on a file that has ended
        if key == 7:
            return None
        return ["sample", key, self.asked]


class SaidAtOnce(Said):
    def __getitems__(self, keys: Any) -> list[Any]:
        return [f"all at once, of a {type(keys).__name__}", *keys]


class FailsAtOnce(Said):
    """It fetches no two samples at once."""

    def __init__(self, error: type[Exception]) -> None:
        super().__init__()
        self.error = error

    def __getitems__(self, keys: Any) -> list[Any]:
        raise self.error("the connection is lost")


def fetched(dataset: Callable[[], Any], keys: Any, batching: bool = True) -> Any:
    return MapFetcher(dataset(), batching, list, False).fetch(keys)


def keys_afterwards(dataset: Callable[[], Any]) -> list[Any]:
    keys = [2, 0, 1]
    MapFetcher(dataset(), True, list, False).fetch(keys)
    return keys


def _fetches() -> Iterator[tuple[str, Callable[[], Any]]]:
    for kind, also in ((Said, ""), (SaidAtOnce, " of a dataset with __getitems__")):
        for keys in ([5], [5, 5], [0, 2], ["a", (1, 2)], [6, 7, 8]):
            yield f"fetch({keys}){also}", functools.partial(fetched, kind, keys)
        for key in (12, 0, "", [3, 4], (3, 4), None):
            yield f"fetch({key!r}){also}, without automatic batching", functools.partial(fetched, kind, key, False)
        yield f"keys = [2, 0, 1]; fetch(keys){also}; keys", functools.partial(keys_afterwards, kind)
    for key, error in ((99, "IndexError"), (98, "StopIteration")):
        yield (
            f"fetch([8, {key}, 10]), where sample {key} raises {error}",
            functools.partial(fetched, Said, [8, key, 10]),
        )
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


class Pair(NamedTuple):
    x: Any
    y: Any


def named(name: str) -> Any:
    return lambda batch, *, collate_fn_map=None: f"{name} of {list(batch)}"


class Grade(int):
    def __repr__(self) -> str:
        return f"Grade({int(self)})"


class School(Grade):
    def __repr__(self) -> str:
        return f"School({int(self)})"


def nothing(batch: Any, *, collate_fn_map: Any = None) -> None:
    return None


def refuses(batch: Any, *, collate_fn_map: Any = None) -> Any:
    raise ValueError("these cannot be put together")


def collated(batch: list[Any], table: dict[Any, Any] | None) -> Any:
    return collate.collate(batch, collate_fn_map=table)


def _type_names(kind: Any) -> str:
    return f"({', '.join(each.__name__ for each in kind)})" if isinstance(kind, tuple) else kind.__name__


def _collations() -> Iterator[tuple[str, Callable[[], Any]]]:
    numbers = {int: named("ints")}
    batch: list[Any]
    for batch in (
        [Rows([1, 2]), Rows([3, 4])],
        [Record(a=1, b=2), Record(b=3, a=4)],
        [Frozen(a=1), Frozen(a=2)],
        [Pair(1, Rows([2])), Pair(3, Rows([4]))],
        [[1, (2, 3)], [4, (5, 6)]],
        [{"a": [1, 2]}, {"a": [3]}],
        [(), ()],
        [{1, 2}, {3, 4}],
    ):
        yield f"collate({batch}, collate_fn_map={{int: ...}})", functools.partial(collated, batch, numbers)
    for kind, first, second in ((Record, Record(a=1), Record(a=2)), (list, [1], [2]), (Pair, Pair(1, 2), Pair(3, 4))):
        table: dict[Any, Any] = {**numbers, kind: named(kind.__name__)}
        call = f"collate({[first, second]}, collate_fn_map={{int: ..., {kind.__name__}: ...}})"
        yield call, functools.partial(collated, [first, second], table)
    derived: list[tuple[type, Any, Any]]
    derived = [(dict, Record(a=1), Record(a=2)), (list, Rows([1]), Rows([2])), (tuple, Pair(1, 2), Pair(3, 4))]
    for base, first, second in derived:
        call = f"collate({[first, second]}, collate_fn_map={{int: ..., {base.__name__}: ...}})"
        yield call, functools.partial(collated, [first, second], {**numbers, base: named(base.__name__)})
    pairs = [(1, [2]), (3, [4])]
    call = f"collate({pairs}, collate_fn_map={{int: ..., list: ...}})"
    yield call, functools.partial(collated, pairs, {**numbers, list: named("lists")})
    schools = [School(1), School(2)]  # each an instance of three types
    table = {Grade: named("grades"), School: named("schools"), int: named("ints")}
    for kinds in ((int, Grade), (Grade, int), (int, (str, Grade)), ((str, int), School), (int, Grade, School)):
        names = ", ".join(f"{_type_names(kind)}: ..." for kind in kinds)
        some = {kind: table[kind[1] if isinstance(kind, tuple) else kind] for kind in kinds}
        call = f"collate({schools}, collate_fn_map={{{names}}}); a School is a Grade, and that an int"
        yield call, functools.partial(collated, schools, some)
    untabled: list[list[Any]] = [[[], []], [{}, {}], [{"a": []}, {"a": []}], [[1], [2]]]
    for batch in untabled:
        yield f"collate({batch}), without a table", functools.partial(collated, batch, None)
    call = "collate([{'a': 1}, {'a': 2}]), where the table's function returns None"
    yield call, functools.partial(collated, [{"a": 1}, {"a": 2}], {int: nothing})
    call = "collate([[1, 2], [3, 4]]), where the table's function raises ValueError"
    yield call, functools.partial(collated, [[1, 2], [3, 4]], {int: refuses})


# ---- exercise 3


class Endless:
    """It has no length."""

    def __iter__(self) -> Iterator[int]:
        return itertools.count()


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


def lists(sampler: Any, size: int, drop_last: bool, most: int = 9) -> list[Any]:
    """What comes, and what is raised after it."""
    found: list[Any] = []
    try:
        for keys in itertools.islice(BatchSampler(sampler, size, drop_last), most):
            found.append(list(keys))
    except (ValueError, RuntimeError, TypeError) as error:
        found.append(f"{type(error).__name__}: {error}")
    return found


def left_and_begun_anew() -> list[Any]:
    batches = BatchSampler(range(7), 2, False)
    first = iter(batches)
    found = [next(first)]
    close = getattr(first, "close", None)
    if close is not None:
        close()
    return [*found, *batches, *batches]


def two_at_once() -> list[Any]:
    batches = BatchSampler(range(7), 2, False)
    return [(one, other) for one, other in zip(batches, batches, strict=True)]


def _lists() -> Iterator[tuple[str, Callable[[], Any]]]:
    for drop_last in (False, True):
        options = f"batch_size=2, drop_last={drop_last}"
        yield f"BatchSampler of an endless sampler, {options}", functools.partial(lists, Endless(), 2, drop_last, 3)
        for error in (ValueError, RuntimeError, TypeError):
            call = f"BatchSampler of a sampler that raises {error.__name__} at its sixth key, {options}"
            yield call, functools.partial(lists, FailsLate(error), 2, drop_last)
        keys: tuple[Any, ...] = (EqualToAll(), NotComparable(), None, [])
        for key in keys:
            call = f"BatchSampler of a sampler with three keys {key!r}, {options}"
            yield call, functools.partial(lists, [key] * 3, 2, drop_last)
        for length, size in itertools.product(range(6), (1, 2, 3, 7)):
            call = f"BatchSampler(range({length}), batch_size={size}, drop_last={drop_last})"
            yield call, functools.partial(lists, range(length), size, drop_last)
        call = f"BatchSampler of a list of keys 1 to 5 that is iterated backwards, {options}"
        yield call, functools.partial(lists, Backwards([1, 2, 3, 4, 5]), 2, drop_last)
    yield "BatchSampler(range(7), 2, False), left after a list, and begun anew, twice", left_and_begun_anew
    yield "BatchSampler(range(7), 2, False), iterated twice at the same time", two_at_once


# ---- exercise 4


def shares(length: int, ranks: int, *epochs: int | None, **options: Any) -> list[Any]:
    """By rank, the keys of each pass; an epoch of None: set_epoch is not called before it."""
    found = []
    for rank in range(ranks):
        sampler: Any = minidl.DistributedSampler(range(length), ranks, rank, **options)
        for epoch in epochs:
            if epoch is not None:
                sampler.set_epoch(epoch)
            found.append(list(sampler))
    return found


def _shares() -> Iterator[tuple[str, Callable[[], Any]]]:
    cases = ((10, 4), (0, 2), (1, 3), (3, 8), (12, 4), (4, 4), (5, 1), (16, 3))
    for (length, ranks), drop_last in itertools.product(cases, (False, True)):
        if drop_last and length < ranks:
            continue  # no rank has any keys
        call = f"DistributedSampler(range({length}), num_replicas={ranks}, shuffle=True, seed=3, drop_last={drop_last})"
        one = functools.partial(
            shares, length, ranks, None, None, 1, None, 0, shuffle=True, seed=3, drop_last=drop_last
        )
        yield f"{call}: five passes, in epochs 0, 0, 1, 1 and 0", one
    for seed in (2**31 + 5, 2**40, -3):
        call = f"DistributedSampler(range(9), num_replicas=2, shuffle=True, seed={seed}): epochs 0 and 7"
        yield call, functools.partial(shares, 9, 2, 0, 7, shuffle=True, seed=seed)


CALLS = {1: list(_fetches()), 2: list(_collations()), 3: list(_lists()), 4: list(_shares())}
