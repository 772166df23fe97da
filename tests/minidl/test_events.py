"""The vocabulary, and the promises of `emit`."""

from __future__ import annotations

import io
import signal
import sys
from typing import Any

import pytest

from minidl import events
from minidl.events import Kind, describe, emit
from tests.minidl.observing import recorder
from tests.minidl.programs import Unspeakable
from tests.samples import fail
from tracing.trace.source_lines import emit_sites


def test_each_kind_is_emitted_by_exactly_one_line() -> None:
    """So the line that emitted an event follows from its kind. Queues with and without a pipe are two classes: what
    both do, each emits in a line of its own."""
    for kind in Kind:
        sites = emit_sites().get(kind.name, [])
        of_data_queue = [site for site in sites if site.function.startswith("ThreadQueue.")]
        assert len(of_data_queue) == (kind in {Kind.PUT, Kind.WAIT, Kind.GOT, Kind.TIMED_OUT})
        assert len(sites) - len(of_data_queue) == 1, (kind, sites)


class Emits(io.StringIO):
    """A program's own stderr, which is traced, too."""

    def write(self, text: str) -> int:
        emit(Kind.ASKED)
        return super().write(text)


@pytest.mark.parametrize("kind", [io.StringIO, Emits, "closed"])
def test_a_recorder_that_raises_is_removed_and_reported_once(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is removed before that is printed, and breaks nothing where stderr is closed."""
    called: list[object] = []

    def breaks(*arguments: object) -> None:
        called.append(arguments)
        raise ZeroDivisionError("in the recorder")

    stderr = io.StringIO() if kind == "closed" else kind()
    if kind == "closed":
        stderr.close()
    monkeypatch.setattr(sys, "stderr", stderr)
    with recorder(breaks):
        emit(Kind.ASKED)
        emit(Kind.ASKED)
        assert events.installed() is None
    assert len(called) == 1
    if kind != "closed":
        printed = stderr.getvalue()
        assert printed.startswith("minidl: ") and printed.count("the load goes on") == 1
        assert printed.count("ZeroDivisionError: in the recorder") == 1


def test_what_a_signals_handler_raises_meanwhile_is_the_programs() -> None:
    previous = signal.signal(signal.SIGALRM, lambda *_: fail(TimeoutError()))
    with recorder(lambda *_: signal.raise_signal(signal.SIGALRM)):
        with pytest.raises(TimeoutError):
            emit(Kind.ASKED)
        assert events.installed() is not None
    signal.signal(signal.SIGALRM, previous)


def test_whoever_installs_a_recorder_is_given_the_one_it_replaces() -> None:
    with recorder(print):
        assert events.install(repr) is print  # type: ignore[arg-type]
        assert events.install(None) is repr


@pytest.mark.parametrize("pid", [1, 12345, (1 << 22) - 1])
def test_the_loaders_of_a_worker_have_numbers_that_fit(pid: int) -> None:
    before = events._loaders
    try:
        events.number_loaders_from(pid)
        first, second = events.new_loader(), events.new_loader()
        assert 0 < second | (1 << 32) - 1 < 1 << 63
        assert (first >> 42, second) == (pid & 0x1FFFFF, first + (1 << 32))  # 1,024 loaders until the next pid's
    finally:
        events._loaders = before


def test_every_kind_has_words_and_a_number_of_its_own() -> None:
    for kind in Kind:
        assert kind.who and kind.when and getattr(events, kind.name) == kind
    assert len({int(kind) for kind in Kind}) == len(Kind)


@pytest.mark.parametrize(
    ("error", "in_short", "as_repr"),
    [
        (ValueError("bad"), "ValueError: bad", "ValueError('bad')"),
        (KeyError("k"), "KeyError: 'k'", "KeyError('k')"),
        (StopIteration(), "StopIteration: ", "StopIteration()"),
        (Unspeakable(), "Unspeakable", "Unspeakable"),
    ],
)
def test_an_exception_is_described_by_type_and_text(error: Exception, in_short: str, as_repr: str) -> None:
    assert (describe(error), describe(error, as_repr=False)) == (as_repr, in_short)
