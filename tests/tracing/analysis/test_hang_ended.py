"""What a program hung in is known after it was ended: by Ctrl-C, by a scheduler, by kill -9."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import minidl
import tracing
from minidl.events import Kind
from minidl.world.simulated import simulate, sleep
from tests.minidl.dying import wait_until
from tests.minidl.mains import Mains
from tests.samples import Samples
from tests.tracing.cli.terminal import ROOT, batches_in
from tracing.analysis.hang import patience, stuck_moments
from tracing.analysis.hang.explain import explain
from tracing.analysis.hang.hang import Cause
from tracing.analysis.hang.stuck_moments import Ending
from tracing.recording import watch as recording_watch
from tracing.trace import stacks

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

PROGRAM, MAINS = ROOT / "tests" / "tracing" / "stuck.py", str(ROOT / "tests" / "minidl" / "mains.py")
SIGNALS = {  # how it is ended: (to its whole process group, signal)
    "Ctrl-C": (True, signal.SIGINT),
    "SIGTERM": (False, signal.SIGTERM),
    "a scheduler's SIGTERM": (True, signal.SIGTERM),
    "kill -9 of main": (False, signal.SIGKILL),
    "kill -9 of all": (True, signal.SIGKILL),
}
STUCK = [
    ("torch", "training", "kill -9 of main", Cause.TRAINING),
    ("torch", "caught", "Ctrl-C", Cause.TRAINING),
    ("minidl", "evaluation", "SIGTERM", Cause.TRAINING),
    ("minidl", "collate", "kill -9 of main", Cause.CODE),
    ("torch", "init", "a scheduler's SIGTERM", Cause.INIT_FN),
    ("torch", "sampler", "kill -9 of all", Cause.CODE),
    ("minidl", "dataset", "Ctrl-C", Cause.CODE),
    ("torch", "first", "Ctrl-C", Cause.CODE),
    ("minidl", "queue", "kill -9 of all", Cause.CODE),
    ("torch", "openmp", "SIGTERM", Cause.CODE),
    ("torch", "mark", "SIGTERM", Cause.CODE),
    ("minidl", "ahead", "Ctrl-C", Cause.TRAINING),
    ("torch", "behind", "Ctrl-C", Cause.TRAINING),
    ("torch", "computes", "Ctrl-C", Cause.CODE),
    ("torch", "copied", "Ctrl-C", Cause.CODE),
    ("minidl", "shared", "Ctrl-C", Cause.CODE),
    ("torch", "program", "Ctrl-C", Cause.CODE),
    ("minidl", "polls", "kill -9 of all", Cause.CODE),
]
ADVICE = {  # -> where
    "a lock that is shared": ("shared",), "it took itself": ("copied", "openmp"), "set_num_threads(1)": ("openmp",),
    "it waits for others": ("first", "collate", "training", "caught", "evaluation", "init", "sampler", "dataset"),
    "the queue is full": ("queue", "behind"), "the queue is empty": ("mark", "ahead"), "it is computing": ("computes",),
    "the program that it runs": ("program",), "it sleeps, perhaps until": ("polls",),
}  # fmt: skip
IN_SECONDS = "training", "collate"  # with the limits as they are; the others with shorter ones


RUN = """
import gc, sys
from tracing.__main__ import main
from tracing.recording import watch
watch.LOOK, watch.COST = {look}, 0  # samples as often as the shorter limits need
status = main(["run", "-o", {directory!r}, {program!r}, *{args!r}])
gc.freeze()  # what the forker had frozen, and the run has not left so
sys.exit(status)
"""
SHORT = {  # In place of seconds: how long something must last to be noticed. The processes look as often.
    (patience, "FLOOR_ENDED"): 400_000_000,
    (recording_watch, "LOOK"): 200_000_000,
}


@pytest.fixture
def shortly(monkeypatch: pytest.MonkeyPatch) -> None:
    for (module, name), value in SHORT.items():
        monkeypatch.setattr(module, name, value)


class Program:
    """The program, recorded into `path`, in a session of its own: `pid` is that of its main, and its group."""

    def __init__(self, mains: Mains, folder: Path) -> None:
        self.mains, self.folder, self.path, self.pid = mains, folder, folder / "trace", 0

    def run(self, *args: str) -> None:
        given = {"directory": str(self.path), "program": str(PROGRAM), "args": args}
        self.mains.start(RUN.format(**given, look=recording_watch.LOOK), self.folder)
        self.pid = self.mains.pid

    def end(self, how: str = "") -> int:
        """Wait for it to end, by itself or so. Its exit code."""
        if how:
            group, number = SIGNALS[how]
            (os.killpg if group else os.kill)(self.pid, number)
        wait_until(lambda: not self.mains.runs(), 40)
        self.pid = 0
        return self.mains.ask("wait")

    def kill(self) -> None:
        """None of it is left."""
        for each in self.mains.members():
            each.kill()
        wait_until(lambda: not self.mains.members(), 10)
        if self.pid:
            self.mains.ask("wait")


@pytest.fixture
def program(mains: Mains, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Program]:
    # Where Python's own frames are otherwise, and none of a program's: `python -m tracing run`.
    monkeypatch.setattr(stacks, "LIBRARY", re.compile(f"{stacks.LIBRARY.pattern}|{re.escape(MAINS)}"))
    program = Program(mains, tmp_path)
    yield program
    program.kill()


def seen_at(path: Path, where: str) -> int:
    """When a process was first seen in this line of the program; 0: not yet."""
    try:
        seen = ((each.time, str(each.line(name))) for each in tracing.load(path).stacks for name in each.threads)
        return next(time for time, line in seen if f"# stuck: {where}" in line)
    except (tracing.TraceError, StopIteration):  # there is no trace yet
        return 0


@pytest.mark.parametrize(("loader", "where", "how", "cause"), STUCK)
def test_what_it_hung_in_leads_the_report(
    loader: str, where: str, how: str, cause: Cause, program: Program, request: pytest.FixtureRequest
) -> None:
    if where not in IN_SECONDS:
        request.getfixturevalue("shortly")
    program.run(loader, where)
    path, pid, line = program.path, program.pid, line_of(where)
    wait_until(lambda: seen_at(path, where), 60)
    much_later = seen_at(path, where) + 3600 * 10**9

    def is_known() -> bool:
        """The line is, and main has lived on for long enough."""
        trace = tracing.load(path)
        found, lived = explain(trace, much_later), max(each["time"] for each in trace.samples if each["pid"] == pid)
        if found is None or found.links[-1].line is None:
            return False  # another worker was looked at first
        blamed = found.links[-1]  # whether it computes, two samples show; the first look may see how it came there
        looks = sum(each.pid == blamed.pid and each.time > blamed.since for each in trace.stacks)
        if min(looks, sum(each["pid"] == blamed.pid and each["time"] >= blamed.since for each in trace.samples)) < 2:
            return False
        return bool(lived >= found.links[0].since + max(patience.FLOOR_ENDED, patience.TIMES * found.usual))

    wait_until(is_known, 60)
    program.end(how)
    trace = tracing.load(path)
    seen, report = explain(trace), tracing.report(trace)
    assert seen is not None
    # As if it had been seen once more, while the loader noted what Ctrl-C raised there, or Python printed it.
    blamed = seen.links[-1]
    trace.stacks.append(stacks.Stack(seen.until, blamed.pid, {blamed.thread: [stacks.Line(MAINS, 1, "", "")]}))
    hang = explain(trace)
    assert hang is not None and hang.cause is cause and hang.links == seen.links
    assert hang.ending is (Ending.INTERRUPTED if how == "Ctrl-C" else Ending.KILLED)
    assert hang.links[0].who == f"main (pid {pid})"
    first = " ".join(" ".join(report.first_lines()).split())
    assert "It was stuck: main " in first or how != "Ctrl-C"
    assert f"stuck.py:{line}, " in first and f"Look at {PROGRAM}:{line}" in first
    # Its workers cannot notice that main has died where they are stuck themselves.
    assert (where, how) != ("collate", "kill -9 of main") or "These outlived main: kill " in first
    assert [where in places for places in ADVICE.values()] == [words in hang.advice for words in ADVICE], hang.advice
    for each in report.loaders:
        assert each.hung and each.verdict_line == "The run hung: see the note."
        [advice] = each.next
        assert advice.startswith("Solve that first. ") and "save" not in advice


def line_of(where: str) -> int:
    return next(n for n, text in enumerate(PROGRAM.read_text().splitlines(), 1) if f"# stuck: {where}" in text)


@pytest.mark.parametrize("how", ["Ctrl-C", "kill -9 of main", "kill -9 of all"])
def test_what_was_ended_while_it_got_on_did_not_hang(how: str, program: Program) -> None:
    program.run("torch", "nowhere")
    wait_until(lambda: batches_in(program.path) >= 30, 60)
    assert program.end(how) == (130 if how == "Ctrl-C" else -signal.SIGKILL)
    assert_no_hang(program.path)


@pytest.mark.parametrize("where", ["break", "evaluates", "prepares"])
@pytest.mark.usefixtures("shortly")
def test_what_took_long_and_ended_by_itself_did_not_hang(where: str, program: Program) -> None:
    """An epoch that is left, one whose end takes a second, and one that comes after a second."""
    program.run("torch", where)
    assert program.end() == 0
    assert_no_hang(program.path)


def assert_no_hang(path: Path) -> None:
    trace = tracing.load(path)
    assert explain(trace) is None
    assert not any(loader.hung for loader in tracing.report(trace).loaders)


def is_stuck() -> None:
    sleep(30.0)
    raise TimeoutError


def test_a_thread_that_looks_while_it_waits_makes_no_progress() -> None:
    """Main looks after its workers every five seconds."""

    def program() -> None:
        with contextlib.suppress(TimeoutError):
            list(minidl.DataLoader(Samples(6, at={5: is_stuck}), num_workers=1))

    trace = tracing.load(simulate(program, cpus=2))
    assert (trace.events["kind"] == Kind.TIMED_OUT).sum() >= 5
    pause = stuck_moments._longest_pause(trace, int(trace.events["actor"][0]), int(trace.events["time"][-1]))
    assert pause.until >= trace.tasks["failed"][5]
