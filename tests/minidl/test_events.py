"""The vocabulary, and the promises of `emit`."""

from __future__ import annotations

import io
import sys

import pytest

from minidl import events
from minidl.events import Kind, describe, emit
from tests.minidl.observing import recorder
from tracing.recording.source_lines import emit_sites


def test_each_kind_is_emitted_by_exactly_one_line() -> None:
    """So the line that emitted an event follows from its kind; but for `PUT` and its like, of which data_queue, that
    has neither feeder nor pipe, has lines of its own."""
    sites = emit_sites()
    assert {kind for kind in Kind.__members__ if kind not in sites} == set(), "never emitted"
    for kind, places in sites.items():
        assert len({(place.file, place.function.partition(".")[0]) for place in places}) == len(places), (kind, places)
        assert len(places) == 1 or {place.file for place in places} == {"minidl/queues.py"}, (kind, places)


def test_a_recorder_that_raises_is_removed_and_reported_once(capsys: pytest.CaptureFixture[str]) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("in the recorder")

    with recorder(fail):
        emit(Kind.ASKED)
        emit(Kind.ASKED)
        assert events.installed() is None
    printed = capsys.readouterr().err
    assert printed.startswith("minidl: ") and "the load goes on" in printed
    assert printed.count("ZeroDivisionError: in the recorder") == 1


class Emits(io.StringIO):
    """A program's own stderr, which is traced, too."""

    def write(self, text: str) -> int:
        emit(Kind.ASKED)
        return super().write(text)


def test_a_recorder_that_raises_is_removed_before_that_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[object] = []

    def fail(*arguments: object) -> None:
        called.append(arguments)
        raise ZeroDivisionError("in the recorder")

    monkeypatch.setattr(sys, "stderr", stderr := Emits())
    with recorder(fail):
        emit(Kind.ASKED)
    assert len(called) == 1 and stderr.getvalue().count("the load goes on") == 1


def test_a_recorder_that_raises_breaks_nothing_where_stderr_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("in the recorder")

    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    with recorder(fail):
        emit(Kind.ASKED)
        assert events.installed() is None


def test_without_a_recorder_nothing_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    emit(Kind.ASKED)
    assert events.installed() is None and capsys.readouterr().err == ""


def test_whoever_installs_a_recorder_is_given_the_one_it_replaces() -> None:
    def first(*_: object) -> None: ...

    def second(*_: object) -> None: ...

    with recorder(first):
        assert events.install(second) is first
        assert events.install(None) is second


def test_an_epoch_id_holds_both_its_halves() -> None:
    assert events.epoch_id(7, 3) == 7 << 32 | 3


@pytest.mark.parametrize("pid", [1, 12345, (1 << 22) - 1])
def test_the_loaders_of_a_worker_have_numbers_that_fit(pid: int) -> None:
    before = events._loaders
    try:
        events.number_loaders_from(pid)
        first, second = events.new_loader(), events.new_loader()
        assert 0 < events.epoch_id(second, (1 << 32) - 1) < 1 << 63
        assert (first >> 10, second) == (pid & 0x1FFFFF, first + 1)  # 1,024 loaders until the next pid's
    finally:
        events._loaders = before


def test_every_kind_has_words_and_a_number_of_its_own() -> None:
    for kind in Kind:
        assert kind.who and kind.when and getattr(events, kind.name) == kind
    assert len({int(kind) for kind in Kind}) == len(Kind)


class Unspeakable(Exception):
    def __repr__(self) -> str:
        raise LookupError("no words")

    __str__ = __repr__


@pytest.mark.parametrize(
    ("error", "in_short", "as_repr"),
    [
        (ValueError("bad"), "ValueError: bad", "ValueError('bad')"),
        (KeyError("k"), "KeyError: 'k'", "KeyError('k')"),
        (StopIteration(), "StopIteration: ", "StopIteration()"),
        (Unspeakable("x"), "Unspeakable", "Unspeakable"),
    ],
)
def test_an_exception_is_described_by_type_and_text(error: Exception, in_short: str, as_repr: str) -> None:
    assert (describe(error), describe(error, as_repr=False)) == (as_repr, in_short)
