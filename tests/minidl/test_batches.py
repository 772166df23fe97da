"""What comes out of a loader when the batches, the errors, the keys or the moment are unusual.

Pinned batches, slow ones, interrupted waits, what cannot be pickled, what is large, errors of odd types. Where torch
does the same, both run and are compared.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import threading
from collections import namedtuple
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch

import minidl
from minidl import events
from tests.minidl.dying import wait_until, workers
from tests.minidl.observing import attempt, comparable, describe_error, emitted, in_both, recorder, steps
from tests.minidl.programs import TORCH, Dropout, Squares, keep

pytestmark = pytest.mark.timeout(30)

BOTH = pytest.mark.parametrize("loaders", [minidl, TORCH], ids=["minidl", "torch"])
FORK = multiprocessing.get_context("fork")


# ---- pin_memory="host"

Pair = namedtuple("Pair", ["first", "second"])


class Custom:
    """A batch type that pins itself."""

    def __init__(self, samples: Any) -> None:
        self.x = torch.tensor(samples)
        self.pinned_in = ""

    def pin_memory(self) -> Custom:
        self.pinned_in = threading.current_thread().name
        return self


def as_pair(samples: Any) -> Any:
    return Pair(torch.tensor(samples), {"text": "abc", "list": [torch.zeros(0), samples], "none": None})


class OutOfMemory:
    def __init__(self, samples: Any) -> None:
        pass

    def pin_memory(self) -> Any:
        raise MemoryError("nothing left to pin")


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("collate_fn", [None, as_pair, keep], ids=["default", "namedtuple", "list"])
def test_batches_pinned_on_the_host_are_the_same(workers: int, collate_fn: Any) -> None:
    options: dict[str, Any] = {"batch_size": 3, "num_workers": workers, "collate_fn": collate_fn}
    pinned = list(minidl.DataLoader(list(range(7)), pin_memory="host", **options))
    assert comparable(pinned) == comparable(list(TORCH.DataLoader(list(range(7)), **options)))


@pytest.mark.parametrize("workers", [0, 1])
def test_pinning_copies_out_of_shared_memory(workers: int) -> None:
    """Page-locked memory is the tensor's own: not the shared memory in which the batch came."""
    loader = minidl.DataLoader(Squares(4), 2, num_workers=workers, pin_memory="host")
    for batch in loader:
        assert not batch["x"].is_shared()
        assert not batch["point"].x.is_shared()


@pytest.mark.parametrize("workers", [0, 1])
def test_a_batch_may_pin_itself(workers: int) -> None:
    batches = list(minidl.DataLoader([1, 2, 3], 2, num_workers=workers, collate_fn=Custom, pin_memory="host"))
    assert [batch.x.tolist() for batch in batches] == [[1, 2], [3]]
    assert {batch.pinned_in for batch in batches} == {"pin thread" if workers else "MainThread"}


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_while_pinning_is_raised_in_the_batchs_place(workers: int) -> None:
    loader = minidl.DataLoader([1, 2], num_workers=workers, collate_fn=OutOfMemory, pin_memory="host")
    shown = steps(loader)
    assert [step[1] for step in shown] == [MemoryError, MemoryError, StopIteration, StopIteration]
    assert "nothing left to pin" in shown[0][2]


class Closed(minidl.IterableDataset):
    def __iter__(self) -> Any:
        raise LookupError("there is no such stream")


def test_an_epoch_whose_stream_cannot_be_opened_has_not_begun() -> None:
    with emitted() as found, pytest.raises(LookupError):
        iter(minidl.DataLoader(Closed()))
    assert [event[0] for event in found] == [events.Kind.LOADER]


# ---- waiting


class Gate(Squares):
    """Six samples, of which those from `closed_from` on are not there until the gate is opened."""

    def __init__(self, closed_from: int = 2, closed_until: int = 6) -> None:
        super().__init__(6)
        self.closed = range(closed_from, closed_until)
        self.opened = FORK.Event()

    def __getitem__(self, key: int) -> int:
        if key in self.closed:
            self.opened.wait()
        return key


@pytest.mark.parametrize("pin_memory", [False, "host"])
def test_a_timeout_loses_nothing(pin_memory: Any) -> None:
    def run(package: ModuleType) -> Any:
        dataset = Gate()
        options = {"pin_memory": pin_memory} if package is minidl else {}
        iterator = iter(
            package.DataLoader(dataset, None, num_workers=1, timeout=60, multiprocessing_context="fork", **options)
        )
        shown = [attempt(lambda: next(iterator)) for _ in range(2)]
        iterator._timeout = 0.1  # not before: how long a worker needs to start is not known
        shown += [attempt(lambda: next(iterator)) for _ in range(2)]
        iterator._timeout = 60
        dataset.opened.set()
        return [*shown, *attempt(lambda: list(iterator))]

    shown = in_both(run)[1]
    assert shown[:2] == [("value", 0), ("value", 1)]
    assert shown[3] == ("error", RuntimeError, "DataLoader timed out after 0.1 seconds")
    assert shown[4:] == ["value", [2, 3, 4, 5]], "a timeout loses nothing"


class Overtaken(Squares):
    """Key 0 is there once `passed` is set: until then every other batch comes early."""

    def __init__(self) -> None:
        super().__init__(6)
        self.passed = FORK.Event()

    def __getitem__(self, key: int) -> int:
        if key == 0:
            self.passed.wait()
        return key


def test_batches_that_arrive_early_wait_for_their_turn() -> None:
    """Worker 0 cannot finish task 0 before main has put worker 1's two batches away."""
    dataset = Overtaken()
    stored = []

    def open_the_gate(kind: int, epoch_id: int, task: int, *rest: object) -> None:
        if kind == events.STORED:
            stored.append(task)
            if stored == [1, 3]:
                dataset.passed.set()

    loader = minidl.DataLoader(dataset, None, num_workers=2, multiprocessing_context="fork")
    with recorder(open_the_gate):
        assert list(loader) == list(range(6))
    assert stored[:2] == [1, 3]


@BOTH
def test_without_order_main_does_not_wait_for_a_slow_worker(loaders: ModuleType) -> None:
    """Worker 0 holds key 0 until all others are there: they all come from worker 1."""
    dataset = Gate(closed_from=0, closed_until=1)
    loader = loaders.DataLoader(
        dataset, None, num_workers=2, prefetch_factor=1, in_order=False, multiprocessing_context="fork"
    )
    iterator = iter(loader)
    others = [next(iterator) for _ in range(5)]
    dataset.opened.set()
    assert others == [1, 2, 3, 4, 5]
    assert list(iterator) == [0]


@pytest.mark.parametrize("in_order", [True, False])
def test_a_sampler_that_raises_half_way_loses_no_batch(in_order: bool) -> None:
    """The error comes up in place of a batch, and the batch comes next. In torch it is lost."""
    options = {"batch_size": None, "num_workers": 2, "in_order": in_order}
    shown = steps(minidl.DataLoader(list(range(20)), sampler=Dropout(20), **options))
    assert ("error", ValueError, "out of keys") in shown
    assert sorted(int(step[1][1]) for step in shown if step[0] == "value") == list(range(10))


@pytest.mark.parametrize("workers", [1, 2])
def test_ctrl_c_while_next_waits_loses_no_batch(workers: int) -> None:
    """Ctrl-C reaches main while it waits for a batch: next() raises KeyboardInterrupt, and no batch is lost."""
    dataset = Gate()
    loader = minidl.DataLoader(dataset, None, num_workers=workers, multiprocessing_context="fork")
    iterator = iter(loader)
    seen = [next(iterator), next(iterator)]

    def interrupt() -> None:
        wait_until(lambda: iterator._data_queue.waiting)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            next(iterator)
    finally:
        dataset.opened.set()
        thread.join()
    assert [*seen, *iterator] == list(range(6))


# ---- odd things to send


def with_a_lock(samples: Any) -> Any:
    return threading.Lock() if 1 in samples else samples


def raise_an_own_error(samples: Any) -> Any:
    class LocalError(Exception):
        pass

    raise LocalError("main does not know this type")


@pytest.mark.parametrize("pin_memory", [False, "host"])
def test_a_batch_that_cannot_be_pickled_is_raised_as_an_error(pin_memory: Any) -> None:
    """torch waits for ever: multiprocessing prints the error and drops the message."""
    loader = minidl.DataLoader([0, 1, 2], num_workers=1, collate_fn=with_a_lock, pin_memory=pin_memory)
    shown = steps(loader)
    assert [step[0] for step in shown] == ["value", "error", "value", "error", "error"]
    assert shown[1][1] is TypeError
    assert "cannot pickle '_thread.lock' object" in shown[1][2]


class UnsendableByAnOwnError(OutOfMemory):
    __reduce__ = raise_an_own_error


@pytest.mark.parametrize(
    ("collate_fn", "words"),
    [(raise_an_own_error, "LocalError"), (UnsendableByAnOwnError, "LocalError: main does not know this type")],
)
def test_an_error_that_cannot_be_pickled_is_named(collate_fn: Any, words: str) -> None:
    shown = steps(minidl.DataLoader([0, 1], num_workers=1, collate_fn=collate_fn))
    assert [step[0] for step in shown] == ["error"] * 4
    assert words in shown[0][2]


class Unspeakable(Exception):
    """An error that itself fails, as one does whose text is made of something that is gone."""

    def __init__(self, *_: Any) -> None:
        pass

    def __str__(self) -> str:
        raise LookupError("no words")

    __repr__ = __str__


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


def test_keys_that_cannot_be_pickled_are_raised_as_an_error() -> None:
    """torch waits for ever here, too."""
    loader = minidl.DataLoader({0: 5, 1: 6}, None, sampler=[0, threading.Lock(), 1], num_workers=1)
    shown = steps(loader)
    assert [step[0] for step in shown] == ["value", "error", "value", "error", "error"]
    assert "cannot pickle '_thread.lock' object" in shown[1][2]


class Added(Squares):
    def __getitems__(self, keys: list[int]) -> list[int]:
        return [len(keys), sum(keys)]


def test_keys_larger_than_a_pipe_arrive() -> None:
    """Several times what a pipe holds."""
    keys = [list(range(start, start + 60_000)) for start in range(4)]
    loader = minidl.DataLoader(Added(), batch_sampler=keys, num_workers=2, collate_fn=keep)
    assert list(loader) == [[60_000, sum(task)] for task in keys]


class Texts(Squares):
    def __getitem__(self, key: int) -> str:
        return chr(65 + key) * (1 << 20)


def test_batches_larger_than_a_pipe_arrive() -> None:
    """Several MB of strings, which travel through the pipe itself."""
    loader = minidl.DataLoader(Texts(8), 4, num_workers=2)
    assert list(loader) == [[Texts()[key] for key in range(first, first + 4)] for first in (0, 4)]


def with_many_leaves(samples: Any) -> Any:
    return {"tensors": [torch.full((2,), i) for i in range(200)], "numbers": list(range(100_000)), "of": samples}


def test_a_batch_of_many_leaves_arrives_whole() -> None:
    for batch in minidl.DataLoader([0, 1, 2], num_workers=1, collate_fn=with_many_leaves, prefetch_factor=1):
        assert [int(tensor[1]) for tensor in batch["tensors"]] == list(range(200))
        assert batch["numbers"] == list(range(100_000))


class Refusing(Squares):
    """Raises what `error` makes."""

    def __init__(self, error: Callable[[], BaseException]) -> None:
        super().__init__(2)
        self.error = error

    def __getitem__(self, key: int) -> Any:
        raise self.error()


class WithMessage(Exception):
    """Takes its text by keyword, which torch's ExceptionWrapper knows of."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.message = message


class Unprintable(Exception):
    def __str__(self) -> str:
        if not self.args:
            raise RuntimeError("no text")
        return super().__str__()


ERRORS: dict[str, Callable[[], BaseException]] = {
    "key": lambda: KeyError(("a", 1)),
    "several arguments": lambda: OSError(5, "io", "name"),
    "unicode": lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
    "message": lambda: WithMessage("hello", code=3),
    "unprintable": Unprintable,
    "stop": lambda: StopIteration(5),
    "nested": lambda: ValueError(ValueError("inner")),
    "warning": lambda: UserWarning("raised"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_of_odd_types_are_raised_as_in_torch(name: str) -> None:
    def run(package: ModuleType) -> Any:
        return steps(package.DataLoader(Refusing(ERRORS[name]), None, num_workers=1))

    in_both(run)


def test_an_error_says_where_it_was_raised() -> None:
    """The message of an error from a worker holds the worker's traceback, down to the dataset's own line."""
    with pytest.raises(ValueError) as raised:
        next(iter(minidl.DataLoader(Refusing(lambda: ValueError("here")), num_workers=1)))
    text = str(raised.value)
    assert text.startswith("Caught ValueError in DataLoader worker process 0.\nOriginal Traceback")
    assert "in __getitem__\n    raise self.error()" in text
    assert describe_error(raised.value)[2].endswith("ValueError: here")


def test_an_iterator_dropped_after_an_error_takes_its_workers_with_it() -> None:
    """Without the garbage collector: nothing of the error that was caught holds the iterator."""
    iterator = iter(minidl.DataLoader(Refusing(lambda: ValueError("here")), num_workers=1))
    gc.disable()
    try:
        with contextlib.suppress(ValueError):
            next(iterator)
        del iterator
        assert not workers()
    finally:
        gc.enable()
