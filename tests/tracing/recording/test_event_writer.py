"""Every event is in the files, whatever becomes of the process that emitted it."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import pickle
import shutil
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracing
from minidl import events
from minidl.events import CLOCKED, NO_TASK, NO_WORKER, Kind, Queue, emit
from tracing.recording import file_format as fmt
from tracing.recording.event_writer import CHUNK, MAX_TEXT

EPOCH = events.epoch_id(7, 3)


def emit_put(task: int, text: object = None) -> None:
    emit(Kind.KEYS_DRAWN, EPOCH, task, text=text)


def in_child(function: Callable[[], None]) -> int:
    """Run it in a forked child, given its recorder as a worker is; return the child's pid once it has ended."""
    recorder = events.installed()
    pid = os.fork()
    if pid == 0:
        try:
            events.install(recorder)
            function()
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    return pid


def tasks_by_pid(trace: tracing.Trace) -> dict[int, list[int]]:
    pids = np.array([actor.pid for actor in trace.actors])[trace.events["actor"]]
    return {pid: trace.events["task"][pids == pid].tolist() for pid in set(pids.tolist())}


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


def test_kinds_with_a_clock_carry_the_threads_cpu_time(tmp_path: Path) -> None:
    with tracing.record(tmp_path / "run"):
        emit(Kind.FETCH_BEGIN, EPOCH, 0)
        before = time.thread_time_ns()
        while time.thread_time_ns() < before + 5_000_000:
            pass
        emit(Kind.FETCH_END, EPOCH, 0)
    begin, end = tracing.load(tmp_path / "run").events["value"].tolist()
    assert end - begin >= 5_000_000
    assert all(kind < CLOCKED for kind in (Kind.FETCH_BEGIN, Kind.FETCH_END))


def test_threads_are_told_apart_even_when_their_ids_are_used_again(tmp_path: Path) -> None:
    with tracing.record(tmp_path / "run"):
        emit_put(0)
        for n in range(1, 4):
            thread = threading.Thread(target=emit_put, args=(n,), name=f"thread {n}")
            thread.start()
            thread.join()
    trace = tracing.load(tmp_path / "run")
    assert [actor.thread for actor in trace.actors] == ["MainThread", "thread 1", "thread 2", "thread 3"]
    assert trace.events["actor"].tolist() == trace.events["task"].tolist() == [0, 1, 2, 3]


def test_threads_that_emit_at_once_lose_nothing(tmp_path: Path) -> None:
    each, threads = 5000, 4

    def emit_many(worker: int) -> None:
        for n in range(each):
            emit(Kind.PUT, EPOCH, n, worker, text=n if n % 100 == 0 else None)

    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with tracing.record(tmp_path / "run"):
            running = [threading.Thread(target=emit_many, args=(worker,)) for worker in range(threads)]
            for thread in running:
                thread.start()
            for thread in running:
                thread.join()
    finally:
        sys.setswitchinterval(switch)
    trace = tracing.load(tmp_path / "run", strict=True)
    for worker in range(threads):
        mine = np.flatnonzero(trace.events["worker"] == worker)
        assert trace.events["task"][mine].tolist() == list(range(each))
        assert [trace.text(k) for k in mine[::100].tolist()] == list(range(0, each, 100))


def test_a_forked_child_writes_to_files_of_its_own(tmp_path: Path) -> None:
    def child() -> None:
        emit_put(1, "child")
        grandchildren.append(in_child(lambda: emit_put(2, "grandchild")))
        emit_put(3)

    grandchildren: list[int] = []
    with tracing.record(tmp_path / "run"):
        emit_put(0, "parent")
        pid = in_child(child)
        emit_put(4)
    trace = tracing.load(tmp_path / "run", strict=True)
    tasks = tasks_by_pid(trace)
    assert tasks.pop(os.getpid()) == [0, 4] and tasks.pop(pid) == [1, 3] and list(tasks.values()) == [[2]]
    assert [trace.text(k) for k in range(5)] == ["parent", "child", "grandchild", None, None]


def emit_with(recorder: Any) -> None:
    events.install(recorder)
    emit_put(1, "from afar")


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_pickled_recorder_records_where_it_arrives(tmp_path: Path, method: str) -> None:
    with tracing.record(tmp_path / "run"):
        process = multiprocessing.get_context(method).Process(target=emit_with, args=(events.installed(),))
        process.start()
        process.join()
    assert process.exitcode == 0
    trace = tracing.load(tmp_path / "run", strict=True)
    assert tasks_by_pid(trace) == {process.pid: [1]} and trace.text(0) == "from afar"


def test_a_recorder_whose_directory_is_gone_is_no_disturbance(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    with tracing.record(tmp_path / "run"):
        emit_put(0)
        arrived = pickle.loads(pickle.dumps(events.installed()))
        shutil.rmtree(tmp_path / "run")
        in_child(lambda: emit_put(1))
        previous = events.install(arrived)
        emit_put(2)
        events.install(previous)
        emit_put(3)
    assert capsys.readouterr().err == ""


def test_a_full_file_counts_what_it_drops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fmt, "CAPACITY", 10)
    with tracing.record(tmp_path / "run"):
        for n in range(25):
            emit_put(n)
        assert tracing.load(tmp_path / "run").dropped == 15
    trace = tracing.load(tmp_path / "run", strict=True)
    assert trace.events["task"].tolist() == list(range(10))
    assert trace.dropped == 15 and trace.complete == 10


def test_a_full_disk_costs_events_and_not_the_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without room on disk a write to the mapping would kill the process with SIGBUS."""
    allocate = os.posix_fallocate

    def nearly_full(fd: int, offset: int, length: int) -> None:
        if offset + length > 2 * CHUNK:
            raise OSError(errno.ENOSPC, "No space left on device")
        allocate(fd, offset, length)

    monkeypatch.setattr(os, "posix_fallocate", nearly_full)
    with tracing.record(tmp_path / "run"):
        for n in range(60_000):
            emit_put(n)
    trace = tracing.load(tmp_path / "run", strict=True)
    assert trace.events["task"].tolist() == list(range(len(trace)))
    assert CHUNK < len(trace) * fmt.RECORD.size < 2 * CHUNK and trace.dropped == 60_000 - len(trace)


def go_on(recorder: Any, parent: Any) -> None:
    events.install(recorder)
    emit_put(2)
    parent.send("recorded")
    parent.recv()  # once it has stopped recording
    emit_put(3)  # to a mapping that it must not have cut


def test_files_are_cut_at_the_end_except_those_of_living_processes(tmp_path: Path) -> None:
    here, there = multiprocessing.Pipe()
    with tracing.record(tmp_path / "run"):
        dead = in_child(lambda: emit_put(1))
        living = multiprocessing.get_context("fork").Process(target=go_on, args=(events.installed(), there))
        living.start()
        assert here.recv() == "recorded"
        emit_put(0)
    sizes = {int(path.name.split("-")[1]): path.stat().st_size for path in (tmp_path / "run").glob("events-*")}
    assert sizes[os.getpid()] == sizes[dead] == fmt.HEADER_SIZE + fmt.RECORD.size
    assert sizes[living.pid or 0] > fmt.HEADER_SIZE + fmt.RECORD.size
    here.send("stopped")
    living.join()
    assert living.exitcode == 0
    assert tasks_by_pid(tracing.load(tmp_path / "run", strict=True))[living.pid or 0] == [2, 3]


def test_start_and_stop_can_be_called_twice(tmp_path: Path) -> None:
    recording = tracing.record(tmp_path / "run")
    recording.stop()
    assert recording.start() is recording.start() is recording
    emit_put(0)
    recorder = events.installed()
    recording.stop()
    recording.stop()
    assert recorder is not None and events.installed() is None
    emit_put(1)
    recorder(Kind.PUT, EPOCH, 1, 0, 0, 0, "late")  # of a thread that was about to emit
    recording.start()
    emit_put(2)
    recording.stop()
    assert tracing.load(tmp_path / "run", strict=True).events["task"].tolist() == [0, 2]


def test_the_previous_recorder_is_put_back(tmp_path: Path) -> None:
    with tracing.record(tmp_path / "outer"):
        emit_put(0)
        with pytest.raises(ZeroDivisionError), tracing.record(tmp_path / "inner"):
            emit_put(1)
            raise ZeroDivisionError
        emit_put(2)
    assert tracing.load(tmp_path / "outer").events["task"].tolist() == [0, 2]
    assert tracing.load(tmp_path / "inner").events["task"].tolist() == [1]


class Mute:
    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ([12, -3, 1 << 70], [12, -3, 1 << 70]),
        ([1, True], [1, True]),
        ([], []),
        ([1, 2.5, None, True, "ä"], [1, 2.5, None, True, "ä"]),
        ((1, {"a": (2,)}), [1, {"a": [2]}]),
        ({1: np.int64(2)}, {"1": repr(np.int64(2))}),
        ({(1, 2): 3}, "{(1, 2): 3}"),
        (ValueError("x"), "ValueError('x')"),
        ([Mute()], ["<Mute, whose repr raises>"]),
        ("two\nlines\r\n", "two\nlines\r\n"),
        ("\ud800", "\ud800"),
        (list(range(100_000)), json.dumps(list(range(100_000)))[:MAX_TEXT] + "…"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_any_text_is_rendered(tmp_path: Path, text: object, found: object) -> None:
    with tracing.record(tmp_path / "run"):
        emit_put(0, text)
        emit_put(1, "next")
    trace = tracing.load(tmp_path / "run", strict=True)
    assert (trace.text(0), trace.text(1)) == (found, "next")


def test_an_event_takes_no_lock_and_makes_no_system_call_but_for_the_time(tmp_path: Path) -> None:
    """It costs these calls and no other. (How long they take is measured by tests/benchmarks.)"""
    with tracing.record(tmp_path / "run"):
        emit(Kind.PUT, EPOCH, 5, 1, Queue.INDEX)  # the first one opens the files
        calls = calls_of(lambda: emit(Kind.PUT, EPOCH, 6, 1, Queue.INDEX))
    assert calls == ["emit", "record", "next", "monotonic_ns", "pack_into"]


def calls_of(function: Callable[[], object]) -> list[str]:
    """The names of all functions that it calls, those of C too."""
    calls: list[str] = []

    def note(frame: Any, event: str, called: Any) -> None:
        if event in ("call", "c_call"):
            calls.append(frame.f_code.co_name if event == "call" else called.__name__)

    sys.setprofile(note)
    function()
    sys.setprofile(None)
    return calls[1:-1]  # without the two at the ends
