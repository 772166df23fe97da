"""What comes out of a loader when the batches, the errors, the keys or the moment are unusual.

Slow batches, what cannot be pickled, errors of odd types. Where torch
does the same, both run and are compared.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import multiprocessing
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

import minidl
from minidl import events
from tests.minidl.dying import loader_of, workers
from tests.minidl.observing import alike, attempt, describe_error, emitted, steps
from tests.minidl.programs import TORCH, BadStream, Dropout, Faulty, Unspeakable, keep
from tests.samples import Samples, failing

pytestmark = pytest.mark.timeout(30)

BOTH = pytest.mark.parametrize("loaders", [minidl, TORCH], ids=["minidl", "torch"])
FORK = multiprocessing.get_context("fork")


# ---- pin_memory="host"


class OutOfMemory:
    def __init__(self, samples: Any) -> None:
        pass

    def pin_memory(self) -> Any:
        raise MemoryError("nothing left to pin")


def test_an_epoch_whose_stream_cannot_be_opened_has_not_begun() -> None:
    with emitted() as found, pytest.raises(ValueError, match="cannot be opened"):
        iter(minidl.DataLoader(BadStream()))
    assert [event[0] for event in found] == [events.Kind.LOADER]


# ---- waiting


@pytest.mark.parametrize("pin_memory", [False, "host"])
@alike
def test_a_timeout_loses_nothing(package: ModuleType, pin_memory: Any) -> Any:
    gate = FORK.Event()
    dataset = Samples(6, at=dict.fromkeys(range(2, 6), gate.wait))  # all but two are not there until it is opened
    options = {"pin_memory": pin_memory} if package is minidl else {}
    loader = package.DataLoader(dataset, None, num_workers=1, timeout=60, multiprocessing_context="fork", **options)
    iterator = iter(loader)
    shown = [attempt(lambda: next(iterator)) for _ in range(2)]
    iterator._timeout = 0.1  # not before: how long a worker needs to start is not known
    shown += [attempt(lambda: next(iterator)) for _ in range(2)]
    iterator._timeout = 60
    gate.set()
    assert shown[:2] == [("value", 0), ("value", 1)]
    assert shown[3] == ("error", RuntimeError, "DataLoader timed out after 0.1 seconds")
    assert list(iterator) == [2, 3, 4, 5], "a timeout loses nothing"
    return shown


@alike
def test_a_timeout_that_is_not_a_number_never_comes(package: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("minidl.parallel.STATUS_CHECK_INTERVAL", 0.001)  # it looks often, and goes on waiting
    return [int(batch) for batch in package.DataLoader(range(3), None, num_workers=1, timeout=float("nan"))]


@pytest.mark.parametrize("in_order", [True, False])
def test_a_sampler_that_raises_half_way_loses_no_batch(in_order: bool) -> None:
    """The error comes up in place of a batch, and the batch comes next. In torch it is lost."""
    options = {"batch_size": None, "num_workers": 2, "in_order": in_order}
    shown = steps(minidl.DataLoader(list(range(20)), sampler=Dropout(20), **options))
    assert ("error", ValueError, "out of keys") in shown
    assert sorted(int(step[1][1]) for step in shown if step[0] == "value") == list(range(10))


# ---- odd things to send


def failing_at(key: int, fail: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A collate_fn that calls `fail` for the batch with this key, and leaves the others as they are."""
    return lambda samples: fail(samples) if key in samples else samples


def raise_an_own_error(samples: Any) -> Any:
    class LocalError(Exception):
        pass

    raise LocalError("main does not know this type")


class UnsendableByAnOwnError(OutOfMemory):
    __reduce__ = raise_an_own_error


LOCK = threading.Lock()
UNPICKLED = "cannot pickle '_thread.lock' object"
MAIN = {"num_workers": 0, "multiprocessing_context": None}
# What fails -> options of the loader, the type of the error, and words from it. torch waits for ever where something
# cannot be pickled: multiprocessing prints the error and drops the message.
FAILURES: dict[str, tuple[dict[str, Any], type[Exception], list[str]]] = {
    "collate_fn": (
        {"collate_fn": failing_at(3, failing(LookupError("no 3")))},
        LookupError,
        ["Caught LookupError in DataLoader worker process 1.", "no 3"],
    ),
    "a batch": ({"collate_fn": failing_at(3, lambda samples: LOCK)}, TypeError, [UNPICKLED]),
    "keys": ({"batch_sampler": [[0, 1], [2, LOCK], [4, 5], [6, 7]], "batch_size": 1}, TypeError, [UNPICKLED]),
    "its error's type": ({"collate_fn": failing_at(3, raise_an_own_error)}, Exception, ["LocalError"]),
    "a batch, by such an error": (
        {"collate_fn": failing_at(3, UnsendableByAnOwnError)},
        RuntimeError,
        ["LocalError: main does not know this type"],
    ),
    "pinning": (
        {"collate_fn": failing_at(3, OutOfMemory), "pin_memory": "host"},
        MemoryError,
        ["Caught MemoryError in pin memory thread", "nothing left to pin"],
    ),
    "pinning in main": (
        {"collate_fn": failing_at(3, OutOfMemory), "pin_memory": "host", **MAIN},
        MemoryError,
        ["nothing left to pin"],
    ),
}


@pytest.mark.parametrize("pin_memory", [False, "host"])
@pytest.mark.parametrize("what", FAILURES)
def test_whatever_fails_costs_one_batch_only(what: str, pin_memory: Any) -> None:
    """It is raised in its batch's turn, says where it was raised, and the iteration goes on."""
    options, error, words = FAILURES[what]
    shown = steps(loader_of(list(range(8)), **{"collate_fn": keep, "pin_memory": pin_memory, **options}))
    assert [step[0] for step in shown] == ["value", "error", "value", "value", "error", "error"]
    values = [[int(item[1]) for item in step[1][1]] for step in shown if step[0] == "value"]
    assert values == [[0, 1], [4, 5], [6, 7]]
    assert issubclass(shown[1][1], error) and all(each in shown[1][2] for each in words)


def fail_without_words(*_: Any) -> Any:
    raise Unspeakable


class Unsendable(OutOfMemory):
    __reduce__ = fail_without_words


class Unpinnable(OutOfMemory):
    pin_memory = fail_without_words


class Unreadable(OutOfMemory):
    def __reduce__(self) -> Any:
        return fail_without_words, ()


@pytest.mark.parametrize(
    ("collate_fn", "options"),
    [
        (fail_without_words, {}),
        (fail_without_words, {"num_workers": 1}),
        (Unsendable, {"num_workers": 1}),
        (Unsendable, {"num_workers": 1, "transport": "torch"}),
        (Unpinnable, {"num_workers": 1, "pin_memory": "host"}),
    ],
)
def test_an_error_without_words_is_raised_like_any_other(collate_fn: Any, options: dict[str, Any]) -> None:
    iterator = iter(minidl.DataLoader([0, 1], collate_fn=collate_fn, **options))
    for _ in range(2):
        with pytest.raises(Unspeakable):
            next(iterator)
    assert next(iterator, "over") == "over"


def test_a_batch_that_is_lost_without_words_is_missed_for_ever() -> None:
    iterator = iter(minidl.DataLoader([0, 1], num_workers=1, collate_fn=Unreadable))
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"could not be unpickled \(Unspeakable\)"):
            next(iterator)


class Fails:
    """Unpickling it raises an error."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __reduce__(self) -> tuple[Any, ...]:
        return fail, (self.error,)


def fail(error: Exception) -> None:
    raise error


NO_FILES = {"open": OSError(errno.EMFILE, "no more files"), "received": RuntimeError("received 0 items of ancdata")}


@pytest.mark.parametrize("error", NO_FILES.values(), ids=NO_FILES)
def test_a_batch_that_is_lost_for_want_of_files_says_what_to_do(error: Exception) -> None:
    iterator = iter(minidl.DataLoader(range(1), num_workers=1, collate_fn=lambda samples: Fails(error)))
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"Too many open files.*ulimit -n"):
            next(iterator)


def test_an_error_says_where_it_was_raised() -> None:
    """The message of an error from a worker holds the worker's traceback, down to the dataset's own line."""
    with pytest.raises(ValueError) as raised:
        next(iter(minidl.DataLoader(Faulty({0: ValueError("here")}), num_workers=1)))
    text = str(raised.value)
    assert text.startswith("Caught ValueError in DataLoader worker process 0.\nOriginal Traceback")
    assert "in __getitem__\n    raise self.errors[key]" in text
    assert describe_error(raised.value)[2].endswith("ValueError: here")


def test_an_iterator_dropped_after_an_error_takes_its_workers_with_it() -> None:
    """Without the garbage collector: nothing of the error that was caught holds the iterator."""
    iterator = iter(minidl.DataLoader(Faulty({0: ValueError("here")}), num_workers=1))
    gc.disable()
    try:
        with contextlib.suppress(ValueError):
            next(iterator)
        del iterator
        assert not workers()
    finally:
        gc.enable()
