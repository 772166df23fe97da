"""Each promise of the events is noticed when it is broken, one after another, in the events of a run of the loader."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from minidl.events import Kind, Queue
from minidl.world.simulated import Outcome
from tests.minidl.simulated.promises import promises
from tests.minidl.simulated.worth import Worth
from tests.minidl.simulated.worth_exploring import Keys, epochs

FIELDS = {"kind": 2, "epoch": 3, "task": 4, "worker": 5, "queue": 6, "value": 7}
EVENTS = Worth(lambda: epochs(Keys(5), 2, pin_memory="host")).run("0")


def first(kind: Kind, /, **changes: int) -> Callable[[list[Any]], list[Any]]:
    """The first event of a kind, changed."""

    def change(events: list[Any]) -> list[Any]:
        at = next(k for k, event in enumerate(events) if event[2] == kind)
        event = list(events[at])
        for name, value in changes.items():
            event[FIELDS[name]] += value
        return [*events[:at], tuple(event), *events[at + 1 :]]

    return change


def again(kind: Kind, after: Kind | None = None) -> Callable[[list[Any]], list[Any]]:
    """The first event of a kind once more: right after it, or after the first of another."""

    def change(events: list[Any]) -> list[Any]:
        event = next(event for event in events if event[2] == kind)
        at = next(k for k, each in enumerate(events) if each[2] == (after or kind))
        return [*events[: at + 1], event, *events[at + 1 :]]

    return change


BROKEN: dict[str, tuple[Callable[[list[Any]], list[Any]], str]] = {
    "an epoch begins twice": (again(Kind.EPOCH_BEGIN), "begins twice"),
    "an unknown epoch": (first(Kind.WAIT, epoch=7), "which no loader has named"),
    "an unknown task": (first(Kind.PIN_BEGIN, task=90), "whose keys nobody has drawn"),
    "a failed task is pinned": (
        first(Kind.FETCH_END, kind=Kind.FETCH_FAILED - Kind.FETCH_END),
        "failed, and is pinned",
    ),
    "a wrong count of batches": (first(Kind.YIELDED, value=1), "YIELDED says 2 instead of 1"),
    "a wrong count at the end": (first(Kind.EPOCH_END, value=1), "EPOCH_END says 6 instead of 5"),
    "a wrong count of keys": (first(Kind.SAMPLER_END, value=-1), "SAMPLER_END says 4 instead of 5"),
    "a wrong count of tasks": (first(Kind.DISPATCHED, value=1), "DISPATCHED says 2 instead of 1"),
    "a worker left for another reason": (first(Kind.WORKER_END, value=2), "another reason than Stop (2)"),
    "a worker says another's number": (first(Kind.FETCH_END, worker=1), "FETCH_END of worker 0 says worker 1"),
    "a worker is joined after force": (
        first(Kind.JOIN_BEGIN, kind=Kind.WORKER_TERMINATED - Kind.JOIN_BEGIN),
        "worker 0 was joined twice, or after force was used",
    ),
    "a worker is joined late": (again(Kind.JOIN_BEGIN), "main waits for worker 0, and has not joined worker 0"),
    "a feeder is left": (
        first(Kind.WORKER_BEGIN, kind=Kind.FEEDER_BEGIN - Kind.WORKER_BEGIN, queue=Queue.DATA),
        "a message to DATA of worker 0 may still be in its feeder",
    ),
    "a queue is closed twice": (again(Kind.CLOSED), "was closed before CLOSED"),
    "a message after the close": (again(Kind.PUT, Kind.SHUTDOWN_END), "was closed before PUT"),
    "a thread after the shutdown": (again(Kind.PIN_THREAD_END, Kind.SHUTDOWN_END), "after the shutdown was complete"),
    "a worker is started late": (again(Kind.WORKER_STARTING, Kind.PIN_THREAD_BEGIN), "while a thread of its loader"),
    "another worker's task": (first(Kind.DISPATCHED, worker=1), "instead of ('DISPATCHED'"),
    "no end": (lambda events: [each for each in events if each[2] != Kind.EPOCH_END], "instead of ('EPOCH_END'"),
}


def broken(outcome: Outcome, in_order: bool = True, slow: bool = False) -> list[str]:
    return list(promises(outcome, EVENTS, in_order, slow))


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_promise_is_noticed(name: str) -> None:
    change, words = BROKEN[name]
    assert broken(EVENTS) == []
    found = broken(dataclasses.replace(EVENTS, events=change(EVENTS.events)))
    assert any(words in each for each in found), found


def test_what_is_stored_swept_and_printed() -> None:
    assert broken(EVENTS, in_order=False) == ["a batch was stored, though the order is free"] * any(
        event[2] == Kind.STORED for event in EVENTS.events
    )
    stored = dataclasses.replace(EVENTS, events=first(Kind.RECEIVED, kind=Kind.STORED - Kind.RECEIVED)(EVENTS.events))
    assert "a batch was stored, though the order is free" in broken(stored, in_order=False, slow=True)
    left = dataclasses.replace(EVENTS, unswept=["worker 1"], swallowed=["a ZeroDivisionError"])
    assert broken(left) == ["only printed: a ZeroDivisionError", "no memory was swept after worker 1"]
    lost = [*EVENTS.events, (0, 0, Kind.SEND_FAILED, EVENTS.events[0][3], -1, 1, Queue.INDEX, 0, None)]
    assert any("found no reader" in each for each in broken(dataclasses.replace(EVENTS, events=lost)))
