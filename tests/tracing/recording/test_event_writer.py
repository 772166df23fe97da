"""Every event is in the files, whatever becomes of the process that emitted it."""

from __future__ import annotations

import json
import multiprocessing
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracing
from minidl import events
from minidl.events import NO_TASK, NO_WORKER, Kind, Queue, emit
from tracing.recording import file_format as fmt
from tracing.recording.event_writer import MAX_TEXT

EPOCH = 7 << 32 | 3


def emit_put(task: int, text: object = None) -> None:
    emit(Kind.KEYS_DRAWN, EPOCH, task, text=text)


def test_every_field_comes_back(tmp_path: Path) -> None:
    before = time.monotonic_ns()
    with tracing.record(tmp_path / "run"):
        emit(Kind.SENT, EPOCH, 5, 2, Queue.RESULT, -(1 << 40), {"a": [1, None]})
        emit(Kind.ASKED)
    trace = tracing.load(tmp_path / "run", strict=True)
    first, second = trace.events
    assert before <= first["time"] <= second["time"] <= time.monotonic_ns()
    fields = ("loader", "epoch", "value", "task", "worker", "queue", "kind")
    assert [first[name] for name in fields] == [7, 3, -(1 << 40), 5, 2, Queue.RESULT, Kind.SENT]
    assert [second[name] for name in fields] == [0, 0, 0, NO_TASK, NO_WORKER, 0, Kind.ASKED]
    assert trace.text(0) == trace.text(first) == {"a": [1, None]}
    assert trace.text(1) is None


def test_threads_that_emit_at_once_lose_nothing(tmp_path: Path) -> None:
    each, threads = 5000, range(4)

    def emit_many(worker: int) -> None:
        for n in range(each):
            emit(Kind.PUT, EPOCH, n, worker, text=n if n % 100 == 0 else None)

    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with tracing.record(tmp_path / "run"):
            running = [threading.Thread(target=emit_many, args=(worker,), name=f"{worker}") for worker in threads]
            for thread in running:
                thread.start()
            for thread in running:
                thread.join()
    finally:
        sys.setswitchinterval(switch)
    trace = tracing.load(tmp_path / "run", strict=True)
    for worker in threads:
        mine = np.flatnonzero(trace.events["worker"] == worker)
        (actor,) = set(trace.events["actor"][mine].tolist())
        assert trace.actors[actor].thread == f"{worker}"
        assert trace.events["task"][mine].tolist() == list(range(each))
        assert [trace.text(k) for k in mine[::100].tolist()] == list(range(0, each, 100))


def test_a_full_file_counts_what_it_drops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fmt, "CAPACITY", 10)
    with tracing.record(tmp_path / "run"):
        for n in range(25):
            emit_put(n)
        assert tracing.load(tmp_path / "run").dropped == 15
    trace = tracing.load(tmp_path / "run", strict=True)
    assert trace.events["task"].tolist() == list(range(10))
    assert trace.dropped == 15 and trace.complete == 10


def go_on(recorder: Any, parent: Any) -> None:
    events.install(recorder)
    emit_put(2)
    parent.send("recorded")
    parent.recv()  # once it has stopped recording
    emit_put(3)


def test_the_file_of_a_process_that_lives_on_is_not_cut(tmp_path: Path) -> None:
    """What it writes beyond the end of its file would be lost, or kill it."""
    here, there = multiprocessing.Pipe()
    with tracing.record(tmp_path / "run"):
        living = multiprocessing.get_context("fork").Process(target=go_on, args=(events.installed(), there))
        living.start()
        assert here.recv() == "recorded"
    here.send("stopped")
    living.join()
    assert living.exitcode == 0
    assert tracing.load(tmp_path / "run", strict=True).events["task"].tolist() == [2, 3]


def test_recordings_start_and_stop_within_each_other_and_twice(tmp_path: Path) -> None:
    outer = tracing.record(tmp_path / "outer")
    outer.stop()
    assert outer.start() is outer.start() is outer
    emit_put(0)
    recorder = events.installed()
    with pytest.raises(ZeroDivisionError), tracing.record(tmp_path / "inner"):
        emit_put(1)
        raise ZeroDivisionError
    emit_put(2)
    outer.stop()
    outer.stop()
    assert recorder is not None and events.installed() is None
    emit_put(3)
    recorder(Kind.PUT, EPOCH, 3, 0, 0, 0, "late")  # of a thread that was about to emit
    assert not recorder.__self__._write_line("later")  # type: ignore[attr-defined]  # or to write its text
    assert tracing.load(tmp_path / "outer", strict=True).events["task"].tolist() == [0, 2]
    assert tracing.load(tmp_path / "inner", strict=True).events["task"].tolist() == [1]


class Mute:
    def __repr__(self) -> str:
        raise RuntimeError("no")


SAME = [[12, -3, 1 << 70], [1, True], [1, 2.5, None, "ä"], "two\nlines\r\n", "\ud800"]
RENDERED = [
    *zip(SAME, SAME, strict=True),
    ((1, {"a": (2,)}), [1, {"a": [2]}]),
    ({1: np.int64(2)}, {"1": repr(np.int64(2))}),
    ({(1, 2): 3}, "{(1, 2): 3}"),
    ([Mute()], ["Mute"]),
    (list(range(100_000)), json.dumps(list(range(100_000)))[:MAX_TEXT] + "…"),
]


def test_any_text_is_rendered(tmp_path: Path) -> None:
    with tracing.record(tmp_path / "run"):
        for text, _ in RENDERED:
            emit_put(0, text)
        events.installed().__self__._text.reserve(1)  # type: ignore[union-attr]  # less than another thread has reserved
    (file,) = (tmp_path / "run").glob("text-*")
    assert file.read_bytes().endswith(b"\n"), "it ends with the last"
    trace = tracing.load(tmp_path / "run", strict=True)
    for position, (text, found) in enumerate(RENDERED):
        assert repr(trace.text(position)) == repr(found), type(text)
