"""The thread that watches a process: what it writes, and that nobody notices it. (In which lines a program was that
hung: tests/tracing/analysis/test_hang_ended.py.)"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import minidl
import tracing
from minidl.events import Kind, emit
from tests.minidl.dying import wait_until
from tests.tracing.forked import run
from tracing.recording import watch
from tracing.trace.stacks import Line, Stack

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def tasks_of_system() -> set[int]:
    return {int(each) for each in os.listdir("/proc/self/task")}


def test_each_process_is_sampled_from_its_first_event_to_its_end(tmp_path: Path) -> None:
    def sampled(_: int) -> None:
        wait_until(lambda: os.getpid() in tracing.load(tmp_path / "run").samples["pid"])

    with tracing.record(tmp_path / "run"):
        list(minidl.DataLoader(range(8), num_workers=2, multiprocessing_context="fork", worker_init_fn=sampled))
        begin = time.process_time_ns()
        while time.process_time_ns() < begin + 50_000_000:
            pass
        subprocess.run([sys.executable, "-c", "for _ in range(3_000_000): pass"], check=True)
    trace = tracing.load(tmp_path / "run")
    samples = trace.samples
    assert set(samples["pid"].tolist()) == {actor.pid for actor in trace.actors}
    assert ((samples["idle"] >= 0) == (samples["pid"] == os.getpid())).all(), "one process samples the machine"
    own = samples[samples["pid"] == os.getpid()]
    assert own["time"][0] - trace.start < 10**9 and own["time"][-1] >= trace.events["time"][-1]
    for name, least in (("cpu", 50_000_000), ("main_cpu", 50_000_000), ("children", 10_000_000)):
        assert (np.diff(own[name]) >= 0).all() and own[name][-1] - own[name][0] >= least


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
def threads(): return len(os.listdir("/proc/self/task"))
running = []
os.register_at_fork(before=lambda: running.append(threads()))  # runs after the tracer's
import tracing
from minidl.events import Kind, emit, install, installed
tracing.record  # imports numpy
alone = threads()
with tracing.record(sys.argv[1]):
    emit(Kind.ASKED)
    assert threads() == alone + 1 and threading.active_count() == 1
    recorder = installed()
    for _ in range(20):
        if (pid := os.fork()) == 0:
            assert threads() == 1
            install(recorder)  # as in a worker
            emit(Kind.ASKED)
            assert threads() == 2
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        assert threads() == alone + 1
assert running == [alone] * 20 and threads() == alone
"""


def test_it_is_not_there_while_the_process_forks(tmp_path: Path) -> None:
    done = run(tmp_path, "-c", FORKS, "run", OPENBLAS_NUM_THREADS="1")  # numpy's threads end at a fork, too
    assert done.stderr == ""
    trace = tracing.load(tmp_path / "run")
    main = trace.samples[trace.samples["pid"] == trace.about["pid"]]
    assert len(trace) == 21 and main["time"][-1] > trace.events["time"][-1]


def test_threads_that_fork_at_once_leave_one_that_watches_and_takes_no_signals(tmp_path: Path) -> None:
    """A signal must interrupt what the program waits for: in its own threads, not here."""

    def fork(_: int) -> None:
        for _ in range(10):
            if (pid := os.fork()) == 0:
                os._exit(0)
            os.waitpid(pid, 0)

    def blocked(thread: int) -> int:
        status = Path(f"/proc/self/task/{thread}/status").read_text()
        return int(status.partition("SigBlk:")[2].split()[0], 16)

    before = tasks_of_system()
    with tracing.record(tmp_path / "run"):
        emit(Kind.ASKED)
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(fork, range(4)))
        wait_until(lambda: len(tasks_of_system() - before) == 1)
        (thread,) = tasks_of_system() - before
        wanted = sum(1 << number - 1 for number in (1, 2, 10, 12, 15, 17))  # SIGHUP, SIGINT, SIGUSR1, ..., SIGCHLD
        wait_until(lambda: blocked(thread) & wanted == wanted)
    assert tasks_of_system() <= before


def test_if_nothing_can_be_written_any_more_the_program_runs_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(watch, "FIRST_LOOK", 1)
    before = tasks_of_system()
    with tracing.record(tmp_path / "run"):
        emit(Kind.ASKED)
        wait_until(lambda: tracing.load(tmp_path / "run").stacks)
        shutil.rmtree(tmp_path / "run")
        wait_until(lambda: tasks_of_system() <= before)
        assert len(list(minidl.DataLoader(range(4), num_workers=1))) == 4  # its worker cannot even make files
    assert capfd.readouterr().err == ""


def test_a_thread_is_seen_where_it_spends_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It computes for less than the 5 ms that Python leaves it the lock, then gives it up in numpy for a moment."""
    for name, value in {"LOOK": 30_000_000, "COST": 1, "LOOK_COST": 1}.items():
        monkeypatch.setattr(watch, name, value)
    numbers, interval = np.zeros(5_000), sys.getswitchinterval()
    with tracing.record(tmp_path / "run"):
        emit(Kind.ASKED)
        while len(stacks := tracing.load(tmp_path / "run").stacks) < 10:
            for _ in range(200):
                sum(key * key for key in range(20_000))
                numbers.mean()
    assert sum("numbers.mean()" in str(each.line()) for each in stacks) < 0.3 * len(stacks), stacks
    assert sys.getswitchinterval() == interval


def test_a_look_is_not_interrupted_by_what_it_looks_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else another thread may find the garbage collector off."""
    monkeypatch.setattr(watch, "_stacks", sys.getswitchinterval)
    assert watch._at_any_moment()[1] == sys.getswitchinterval() > watch.PROMPT
