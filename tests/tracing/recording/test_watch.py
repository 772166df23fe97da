"""The thread that watches a process: what it writes, and that nobody notices it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import minidl
import tracing
from minidl.events import Kind, emit
from tracing.recording import file_format as fmt
from tracing.recording import watch
from tracing.trace.stacks import Line, Stack

pytestmark = [pytest.mark.timeout(60), pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]


class Waits(minidl.Dataset[int]):
    """Sample 2 waits for the file `go`."""

    LINE = 39  # it does so here

    def __init__(self, go: Path) -> None:
        self.go = go

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        while index == 2 and not self.go.exists():
            time.sleep(0.01)  # here
        return index


def tasks_of_system() -> set[int]:
    return {int(each) for each in os.listdir("/proc/self/task")}


def until(found: object) -> None:
    """Wait for what must come; else the test times out."""
    while not found():  # type: ignore[operator]
        time.sleep(0.005)


class UntilSampled(minidl.Dataset[int]):
    """Each sample waits until its process has been sampled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        until(lambda: os.getpid() in tracing.load(self.path).samples["pid"])
        return index


def test_each_process_is_sampled_from_its_first_event_to_its_end(tmp_path: Path) -> None:
    with tracing.record(tmp_path / "run"):
        dataset = UntilSampled(tmp_path / "run")
        assert len(list(minidl.DataLoader(dataset, num_workers=2, multiprocessing_context="fork"))) == 8
        begin = time.process_time_ns()
        while time.process_time_ns() < begin + 50_000_000:
            pass
        subprocess.run([sys.executable, "-c", "for _ in range(3_000_000): pass"], check=True)
    trace = tracing.load(tmp_path / "run")
    samples = trace.samples
    assert set(samples["pid"].tolist()) == {actor.pid for actor in trace.actors}
    assert (np.diff(samples["time"]) >= 0).all()
    for pid in set(samples["pid"].tolist()):
        own = samples[samples["pid"] == pid]
        for name in ("cpu", "main_cpu", "children"):
            assert own[name][0] >= 0 and (np.diff(own[name]) >= 0).all()
        assert (own["main_cpu"] <= own["cpu"] + 1_000_000).all(), "they are read one after the other"
        assert (own["idle"] >= 0).all() == (pid == os.getpid())
    own = samples[samples["pid"] == os.getpid()]
    assert own["time"][0] - trace.start < 10**9 and own["time"][-1] >= trace.events["time"][-1]
    assert own["main_cpu"][-1] - own["main_cpu"][0] >= 50_000_000
    assert own["children"][-1] - own["children"][0] >= 10_000_000


def test_where_a_process_is_that_makes_no_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "FIRST_LOOK", 1)
    go, path = tmp_path / "go", tmp_path / "run"

    def train() -> None:
        for _ in minidl.DataLoader(Waits(go), num_workers=1, multiprocessing_context="fork"):
            pass

    def seen(thread: str | None, line: str) -> list[Stack]:
        """The stacks in which this thread (None: the main one) is in this line."""
        stacks = tracing.load(path).stacks if path.exists() else []
        return [stack for stack in stacks if str(stack.line(thread)).endswith(line)]

    name = "Waits.__getitem__" if sys.version_info >= (3, 11) else "__getitem__"
    wanted = f"test_watch.py:{Waits.LINE}, {name}: time.sleep(0.01)  # here"
    asks = 'train: for _ in minidl.DataLoader(Waits(go), num_workers=1, multiprocessing_context="fork"):'
    with tracing.record(path):
        thread = threading.Thread(target=train, name="trains")
        thread.start()
        try:
            until(lambda: seen(None, wanted) and seen("trains", asks))
        finally:
            go.touch()
            thread.join()
    stack = seen("trains", asks)[-1]
    assert stack.pid == os.getpid() and next(iter(stack.threads)) == "MainThread"
    assert "test_watch.py" in str(stack.line())
    many = tracing.load(path).stacks
    assert [each.time for each in many] == sorted(each.time for each in many)


def test_the_programs_own_line_is_not_one_of_the_process_that_forked_it() -> None:
    library = [Line("/usr/lib/python3.11/queue.py", 7, "get", "wait()"), Line("<frozen importlib>", 1, "load", "")]
    library.append(Line("<string>", 5, "__create_fn__.<locals>.__init__", ""))  # of a dataclass
    start = Line("/usr/lib/python3.11/multiprocessing/process.py", 314, "BaseProcess._bootstrap", "self.run()")
    before = Line("/home/me/train.py", 3, "<module>", "for batch in loader:")
    own = Line("/home/me/data.py", 9, "load", "get()")
    stack = Stack(0, 1, {"MainThread": [*library, start, before], "other": [*library, own, start, before]})
    assert stack.line() == library[0] and stack.line("other") == own and stack.line("none") is None


FORKS = """
import os, sys, threading, warnings
warnings.simplefilter("error")
running = []
os.register_at_fork(before=lambda: running.append(len(os.listdir("/proc/self/task"))))  # runs after the tracer's
import tracing
from minidl.events import Kind, emit, install, installed
tracing.record  # imports numpy
alone = len(os.listdir("/proc/self/task"))
with tracing.record(sys.argv[1]):
    emit(Kind.ASKED)
    assert len(os.listdir("/proc/self/task")) == alone + 1 and threading.active_count() == 1
    recorder = installed()
    for _ in range(20):
        pid = os.fork()
        if pid == 0:
            assert len(os.listdir("/proc/self/task")) == 1
            install(recorder)  # as in a worker
            emit(Kind.ASKED)
            assert len(os.listdir("/proc/self/task")) == 2
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        assert len(os.listdir("/proc/self/task")) == alone + 1
assert running == [alone] * 20 and len(os.listdir("/proc/self/task")) == alone
"""


def test_it_is_not_there_while_the_process_forks(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKS, tmp_path / "run"],
        capture_output=True,
        text=True,
        timeout=50,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # numpy's threads end at a fork, too
    )
    assert (done.returncode, done.stderr) == (0, "")
    trace = tracing.load(tmp_path / "run")
    main = trace.samples[trace.samples["pid"] == trace.about["pid"]]
    assert len(trace) == 21 and main["time"][-1] > trace.events["time"][-1]


def test_threads_that_fork_at_once_leave_one_that_watches(tmp_path: Path) -> None:
    def fork() -> None:
        for _ in range(10):
            pid = os.fork()
            if pid == 0:
                os._exit(0)
            os.waitpid(pid, 0)

    before = tasks_of_system()
    with tracing.record(tmp_path / "run"):
        emit(Kind.ASKED)
        threads = [threading.Thread(target=fork) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        until(lambda: len(tasks_of_system() - before) == 1)
    assert tasks_of_system() <= before


def test_it_takes_no_signals(tmp_path: Path) -> None:
    """A signal must interrupt what the program waits for: in its own threads, not here."""
    before = tasks_of_system()
    with tracing.record(tmp_path / "run"):
        emit(Kind.ASKED)
        until(lambda: tracing.load(tmp_path / "run").samples.size)
        (thread,) = tasks_of_system() - before
        status = Path(f"/proc/self/task/{thread}/status").read_text()
        blocked = int(status.partition("SigBlk:")[2].split()[0], 16)
    for number in (1, 2, 10, 12, 15, 17):  # SIGHUP, SIGINT, SIGUSR1, SIGUSR2, SIGTERM, SIGCHLD
        assert blocked >> (number - 1) & 1


def test_if_it_cannot_write_the_program_runs_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "FIRST_LOOK", 1)
    before = tasks_of_system()
    with tracing.record(tmp_path / "run") as recording:
        emit(Kind.ASKED)
        until(lambda: tracing.load(tmp_path / "run").stacks)
        shutil.rmtree(tmp_path / "run")
        until(lambda: tasks_of_system() <= before)
        emit(Kind.ASKED)
    assert recording.failure is None
    assert watch.begin(tmp_path / "nowhere" / "events-1-0.bin").__class__ is watch.NoWatch


def test_a_thread_that_gives_the_lock_up_often_does_not_keep_the_watch_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As training does with num_workers=0: every millisecond or so an operation gives Python's lock up for a moment, in
    which the thread that waits for it is woken, and comes too late. (Without `give_turn` it waits for a second.)"""
    monkeypatch.setattr(watch, "COST", 100)  # a sample each tenth of a second
    with tracing.record(tmp_path / "run"):
        emit(Kind.ASKED)
        usage = next((tmp_path / "run").glob("cpu-*"))
        while usage.stat().st_size < 10 * fmt.SAMPLE.size:  # gives it up
            end = time.thread_time() + 0.001
            while time.thread_time() < end:
                pass
            emit(Kind.ASKED)
    samples = tracing.load(tmp_path / "run").samples
    assert np.median(np.diff(samples["time"])[1:-1]) < 200_000_000


def test_half_a_line_and_half_a_sample_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "FIRST_LOOK", 1)
    with tracing.record(tmp_path):
        emit(Kind.ASKED)
        until(lambda: tracing.load(tmp_path).stacks)
    (events,) = fmt.events_files(tmp_path)
    trace = tracing.load(tmp_path)
    whole = trace.samples.tolist(), trace.stacks
    for path in fmt.samples_file(events), fmt.stacks_file(events):
        with open(path, "ab") as file:
            file.write(path.read_bytes()[:30])
    assert (trace.samples.tolist(), trace.stacks) == whole
    assert set(fmt.files_of(tmp_path)) == set(tmp_path.iterdir()), "so all is replaced with the trace"
