"""Exercises 10 and 11: a learner's functions called alone, with messages that a run seldom or never brings. Each must
do what minidl's own does with them."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from torch._utils import ExceptionWrapper

from minidl import pinning
from minidl.messages import Result, Resumed, StreamEnd
from notebooks.exercises.answers import Answer
from notebooks.exercises.attempts import attempt
from notebooks.exercises.catalogue.scripted import (
    FAILED,
    OLD,
    THREADS,
    Handshake,
    comes,
    instead,
    passed_on,
    said,
)
from notebooks.exercises.exercise import Finding

# ---- exercise 10

PASSES_ON = (
    "Each message leads to one in data_queue, whatever came before: as it is, or with the batch pinned, or with the "
    "exception in the batch's place and the Result's own three numbers. What get() raises becomes a Failed with "
    f"`pin_loop`'s epoch_id (here {THREADS}) and the exception itself, and the loop goes on until Stopped."
)


def passes_on(answer: Answer) -> Finding | None:
    expected = passed_on()
    tried = attempt(answer, "pin_loop, with one message of each kind", passed_on)
    if tried.error is not None:
        return tried.finding("a message is not passed on", f"{len(expected)} messages in data_queue", PASSES_ON)
    for number, wanted in enumerate(expected):
        got = tried.value[number] if number < len(tried.value) else "nothing"
        if got != wanted:
            came = comes()[number]
            what = f"raises {came!r}" if isinstance(came, Exception) else f"returns {said(came)}"
            tried.call, tried.got = f"pin_loop, when results.get() {what}", got
            return tried.finding("a message is not passed on", wanted, PASSES_ON)
    return None


def pins_alone(answer: Answer) -> Finding | None:
    """`pinned` with another device, and another epoch than the thread's."""

    def pinned(raises: bool) -> str:
        def pin_batch(batch: Any, device: Any, epoch_id: int, task_id: int, worker_id: int) -> str:
            if raises:
                raise ValueError("this batch cannot be pinned")
            return f"{batch} on {device}, of epoch {epoch_id}, task {task_id}, worker {worker_id}"

        with instead(answer, pinning, pin_batch=pin_batch):
            found = pinning.pinned(Result(9, 3, 1, "batch"), "host" if raises else "cuda")
        data = found.data.exc_type.__name__ if isinstance(found.data, ExceptionWrapper) else found.data
        return f"Result({found.epoch_id}, {found.task_id}, {found.worker_id}, {data})"

    for raises, words in ((False, ""), (True, ", where pin_batch raises ValueError")):
        expected = pinned(raises)
        device = "host" if raises else "cuda"
        call = f"pinned(Result(9, 3, 1, batch), {device!r}){words}"
        tried = attempt(answer, call, functools.partial(pinned, raises))
        if tried.value != expected and not (raises and isinstance(tried.error, ValueError)):  # the loop may catch it
            cause = "The device is `pinned`'s argument, and the three numbers are the Result's own, whatever happens."
            return tried.finding("other numbers, or another device", expected, cause)
    return None


# ---- exercise 11


def _handshakes() -> Iterator[Handshake]:
    yield Handshake("three workers, and nothing of the old epoch")
    results = (Result(OLD, 2, 0, [2]), Result(OLD, 3, 0, FAILED), Result(OLD, 4, 0, StreamEnd(0)))
    late = Resumed(OLD, 0)
    for order in ((0, 1, 2), (2, 1, 0), (1, 0, 2)):
        words = f"the workers {', '.join(map(str, order))} answer in this order; worker 0"
        yield Handshake(
            f"{words} still sends a batch, an exception and the end of its stream", "EAA", (results, (), ()), order
        )
        yield Handshake(f"{words} still sends a Resumed of the old epoch", "AEA", ((late,), (), ()), order, 30.0)
        yield Handshake(f"{words} and worker 2 send much of the old", "EEE", ((late, *results), (), results), order)
    for states in ("DAA", "AAD", "EDE"):
        yield Handshake(f"worker {states.index('D')} is DEAD", states)
    for call in (0, 2):
        yield Handshake("`_get_data` raises: nothing has come in time", raises_at=call, timeout=30.0)


SHAKES = (
    "A DEAD worker is reported first. Then all are ACTIVE before the first wait, each is sent one Resume of the new "
    "epoch, and main waits with the user's timeout until each has answered that one. What else comes is dropped, "
    "whatever is in it, and what `_get_data` raises goes on to the caller."
)


def shakes_hands(answer: Answer) -> Finding | None:
    for number, scene in enumerate(_handshakes()):
        expected = scene.shaken()
        mine = list(_handshakes())[number]
        tried = attempt(answer, f"_resume_workers(): {scene.words}", mine.shaken)
        if tried.value != expected:
            tried.got = "; ".join(tried.value) if tried.error is None else tried.got
            return tried.finding("the steps of the handshake", "; ".join(expected), SHAKES)
    return None
