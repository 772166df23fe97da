"""Hangs are explained: real programs that hang, and are killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

import tracing
from tests.tracing.loads import LOADS
from tracing.__main__ import main
from tracing.hangs import FLOOR, NAMES, Hang, explain
from tracing.state import MainStatus, WorkerStatus
from tracing.words import duration

pytestmark = pytest.mark.timeout(60)

ROOT = Path(__file__).parents[2]
MINUTE = 60_000_000_000  # ns
Recorded = Callable[[str], tracing.Trace]


@contextlib.contextmanager
def hanging(name: str, directory: Path) -> Iterator[tuple[tracing.Trace, subprocess.Popen[bytes]]]:
    """The trace of a program that hangs, once it does so: main waits, or trains for ever, and worker 1 has nothing to
    do any more."""
    process = subprocess.Popen([sys.executable, "-m", "tests.tracing.hanging", name, str(directory)], cwd=ROOT)
    try:
        while not (directory / "trace.json").exists() or not len(tracing.load(directory)):
            assert process.poll() is None
        trace = tracing.load(directory)
        while not hangs(trace, name):
            assert process.poll() is None
            trace.refresh()
        yield trace, process
    finally:
        workers = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        process.wait()
        for worker in workers:
            with contextlib.suppress(psutil.NoSuchProcess):
                worker.resume()
                worker.kill()
        psutil.wait_procs(workers, timeout=10)


def hangs(trace: tracing.Trace, name: str) -> bool:
    loaders = trace.state(-1).loaders
    if not loaders or len(loaders[0].workers) < 2:
        return False
    main, (one, other) = loaders[0].main, loaders[0].workers
    if name == "trains":
        return main.status is MainStatus.TRAINING and one.status is other.status is WorkerStatus.WAITING
    nested = len(loaders) > 1 or name != "nests"
    return nested and main.status is MainStatus.WAITING and main.waits_for == 4 and other.status is WorkerStatus.WAITING


def later(trace: tracing.Trace, ns: int = MINUTE) -> int:
    return int(trace.events["time"][-1]) + ns


def test_main_waits_for_a_worker_that_never_ends_its_fetch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with hanging("blocks", tmp_path / "run.trace") as (trace, process):
        assert explain(trace, later(trace, FLOOR // 2)) is None  # it may only be slow
        hang = explain(trace, later(trace))
        assert hang is not None
        workers = trace.state(-1).loaders[0].workers
        waited, fetched = (
            duration(later(trace) - each.since) for each in (trace.state(-1).loaders[0].main, workers[0])
        )
        assert hang.chain == [
            f"main has waited for batch 4 on worker_result_queue for {waited}.",
            f"Worker 0 (pid {workers[0].pid}) has been fetching batch 4, keys [8, 9], for {fetched}.",
        ]
        assert hang.waiters[0].startswith("Worker 1 has waited on its empty index_queue for")
        assert {each.pid for each in hang.last} == {process.pid, *(each.pid for each in workers)}
        every_last_word_is_the_last(trace, hang)
        if sys.platform == "linux":  # where /proc tells what state a process is in
            os.kill(workers[0].pid, signal.SIGSTOP)
            while psutil.Process(workers[0].pid).status() != psutil.STATUS_STOPPED:
                pass
            stopped = explain(trace, later(trace))
            assert stopped is not None and f"Process {workers[0].pid} is stopped" in stopped.chain[2]
    # Main was killed meanwhile: it is told what it waited for.
    trace = tracing.load(tmp_path / "run.trace")
    hang = explain(trace)
    assert hang is not None and "has waited for batch 4" in hang.chain[0] and "keys [8, 9]" in hang.chain[1]
    assert any("has waited for batch 4" in note for note in tracing.report(trace).notes)
    assert main(["check", str(trace.path)]) == 0  # no invariant is broken
    assert str(hang) in capsys.readouterr().out


def every_last_word_is_the_last(trace: tracing.Trace, hang: Hang) -> None:
    for each in hang.last:
        event = trace.events[each.event]
        assert not (trace.events["actor"][each.event + 1 :] == event["actor"]).any()
        assert each.said.split()[0] == NAMES[int(event["kind"])]
        assert each.age == later(trace) - int(event["time"])
    said = {each.who: each.said for each in hang.last}
    assert (said["main"], said["worker 0"], said["worker 1"]) == ("WAIT", "FETCH_BEGIN 4", "WAIT")


def test_a_lock_that_was_held_at_the_fork(tmp_path: Path) -> None:
    with hanging("locked", tmp_path / "run.trace") as (trace, _):
        hang = explain(trace, later(trace))
        assert hang is not None and "has been fetching batch 4, keys [8, 9]," in hang.chain[1]


def test_main_that_does_not_ask_again(tmp_path: Path) -> None:
    with hanging("trains", tmp_path / "run.trace") as (trace, _):
        hang = explain(trace, later(trace))
        assert hang is not None
        assert hang.chain[0].startswith("main has not asked for a batch for") and "training step" in hang.chain[0]
        assert len(hang.waiters) == 2


def test_a_loader_in_the_dataset_that_hangs(tmp_path: Path) -> None:
    with hanging("nests", tmp_path / "run.trace") as (trace, _):
        hang = explain(trace, later(trace))
        assert hang is not None
        worker = trace.state(-1).loaders[0].workers[0]
        assert f"Worker 0 (pid {worker.pid}) has been fetching batch 4" in hang.chain[1]
        assert f"in process {worker.pid}, has been fetching, keys [9, 10, 11]," in hang.chain[-1]


@pytest.mark.parametrize("name", LOADS)
def test_what_ended_does_not_hang(recorded: Recorded, name: str) -> None:
    trace = recorded(name)
    assert explain(trace) is None and explain(trace, later(trace)) is None


def test_nothing_recorded_does_not_hang(tmp_path: Path) -> None:
    with tracing.record(tmp_path / "run.trace"):
        pass
    assert explain(tracing.load(tmp_path / "run.trace")) is None
