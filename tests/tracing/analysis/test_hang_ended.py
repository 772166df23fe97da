"""What a program hung in is known after it was ended: by Ctrl-C, by a scheduler, by kill -9."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from rich.console import Console

import tracing
from minidl.events import Kind
from tests.minidl.dying import wait_until
from tests.minidl.mains import Mains
from tracing.__main__ import main
from tracing.analysis.hang import before_loaders, lines, patience
from tracing.analysis.hang.causes import Cause
from tracing.analysis.hang.explain import explain
from tracing.analysis.hang.stuck_moments import Ending
from tracing.recording import watch as recording_watch
from tracing.trace.parts import parts
from tracing.views.live.live import watch

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(60),
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]

ROOT = Path(__file__).parents[3]
PROGRAM = ROOT / "tests" / "tracing" / "stuck.py"
SIGNALS = {  # how it is ended: (to its whole process group, signal)
    "Ctrl-C": (True, signal.SIGINT),
    "SIGTERM": (False, signal.SIGTERM),
    "a scheduler's SIGTERM": (True, signal.SIGTERM),
    "kill -9 of main": (False, signal.SIGKILL),
    "kill -9 of all": (True, signal.SIGKILL),
}
STUCK = [
    ("minidl", "training", "Ctrl-C", Cause.TRAINING),
    ("torch", "training", "kill -9 of main", Cause.TRAINING),
    ("torch", "caught", "Ctrl-C", Cause.TRAINING),
    ("torch", "evaluation", "Ctrl-C", Cause.TRAINING),
    ("minidl", "evaluation", "SIGTERM", Cause.TRAINING),
    ("minidl", "collate", "SIGTERM", Cause.COLLATE),
    ("torch", "collate", "a scheduler's SIGTERM", Cause.COLLATE),
    ("torch", "init", "Ctrl-C", Cause.INIT_FN),
    ("minidl", "init", "kill -9 of all", Cause.INIT_FN),
    ("torch", "sampler", "kill -9 of all", Cause.SAMPLER),
    ("minidl", "dataset", "Ctrl-C", Cause.DATASET),
]
IN_SECONDS = STUCK[1], STUCK[5]  # with the limits as they are; the others with shorter ones


RUN = """
import gc, sys
from tracing.__main__ import main
from tracing.recording import watch
watch.STUCK, watch.LONGEST = {looks}
status = main(["run", "-o", {directory!r}, {program!r}, *{args!r}])
gc.freeze()  # what the forker had frozen, and the run has not left so
sys.exit(status)
"""
SHORT = {  # In place of seconds: how long something must last to be noticed. The processes look as often.
    (patience, "FLOOR_ENDED"): 400_000_000,
    (before_loaders, "FLOOR_ENDED"): 400_000_000,
    (lines, "SILENT"): 900_000_000,
    (lines, "SLACK"): 300_000_000,
    (recording_watch, "STUCK"): 200_000_000,
    (recording_watch, "LONGEST"): 400_000_000,
}


@pytest.fixture
def shortly(monkeypatch: pytest.MonkeyPatch) -> None:
    for (module, name), value in SHORT.items():
        monkeypatch.setattr(module, name, value)


@pytest.fixture(scope="module")
def mains() -> Iterator[Mains]:
    mains = Mains("tests.tracing.ready")
    yield mains
    assert mains.forker.stdin is not None
    mains.forker.stdin.close()
    mains.forker.wait()


class Program:
    """The program, recorded into `folder`/trace, in a session of its own: `pid` is that of its main, and its group."""

    def __init__(self, mains: Mains, folder: Path) -> None:
        self.mains, self.folder, self.pid = mains, folder, 0

    def run(self, *args: str) -> Path:
        given = {"directory": str(self.folder / "trace"), "program": str(PROGRAM), "args": args}
        self.mains.start(RUN.format(**given, looks=(recording_watch.STUCK, recording_watch.LONGEST)), self.folder)
        self.pid = self.mains.pid
        return self.folder / "trace"

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
def program(mains: Mains, tmp_path: Path) -> Iterator[Program]:
    program = Program(mains, tmp_path)
    yield program
    program.kill()


def loaded(directory: Path) -> tracing.Trace:
    """Its trace, once there is an event of a training step."""
    while True:
        with contextlib.suppress(tracing.TraceError):
            if len(trace := tracing.load(directory)):
                return trace
        time.sleep(0.05)


@pytest.mark.parametrize(("loader", "where", "how", "cause"), STUCK)
def test_what_it_hung_in_leads_the_report(
    loader: str, where: str, how: str, cause: Cause, program: Program, request: pytest.FixtureRequest
) -> None:
    if (loader, where, how, cause) not in IN_SECONDS:
        request.getfixturevalue("shortly")
    path, pid, line = program.run(loader, where), program.pid, line_of(where)
    while not any(stack.line() and f"# stuck: {where}" in str(stack.line()) for stack in loaded(path).stacks):
        time.sleep(0.05)
    since = next(each.time for each in loaded(path).stacks if f"# stuck: {where}" in str(each.line()))
    lived, found = 0, explain(loaded(path), since + 3600 * 10**9)
    while found is None or found.links[-1].line is None:  # another worker was looked at first
        time.sleep(0.05)
        found = explain(loaded(path), since + 3600 * 10**9)
    while lived < found.links[0].since + max(patience.FLOOR_ENDED, patience.TIMES * found.usual):
        time.sleep(0.05)
        samples = loaded(path).samples
        lived = int(samples["time"][samples["pid"] == pid].max())
    program.end(how)
    trace = tracing.load(path)
    hang = explain(trace)
    report = tracing.report(trace)
    assert hang is not None and hang.cause is cause
    assert hang.ending is (Ending.INTERRUPTED if how == "Ctrl-C" else Ending.KILLED)
    assert hang.links[0].who == f"main (pid {pid})"
    blamed = hang.links[-1].line
    assert blamed is not None and (blamed.file, blamed.line) == (str(PROGRAM), line)
    first = " ".join(" ".join(report.first_lines()).split())
    assert "It was stuck: main " in first or how != "Ctrl-C"
    assert f"stuck.py:{line}, " in first and f"Look at {PROGRAM}:{line}" in first
    for each in report.loaders:
        assert each.hung and (
            where == "init" or each.verdict_line.startswith("The run hung: see the note. Until then, ")
        )
        [advice] = each.next
        assert advice.startswith("Solve that first. ") and "save" not in advice


@pytest.mark.parametrize("where", ["c", "unsent"])
@pytest.mark.usefixtures("shortly")
def test_code_that_keeps_pythons_lock_shows_by_its_silence(where: str, program: Program) -> None:
    """Then nothing can say in which line it is. "unsent": its feeder thread has a batch to send, and cannot either."""
    path = program.run("torch", where)
    while True:
        samples = loaded(path).samples
        last = {pid: int(samples["time"][samples["pid"] == pid].max()) for pid in set(samples["pid"].tolist())}
        if len(last) == 3 and all(
            last[program.pid] - last[pid] > 2 * lines.SILENT for pid in last if pid != program.pid
        ):
            break
        time.sleep(0.1)
    program.end("kill -9 of all")
    found = explain(tracing.load(path))
    assert found is not None and found.cause is Cause.DATASET and found.silence > lines.SILENT
    if where == "unsent":
        assert any("to send" in link.what for link in found.links)
    assert "Its process has given no sign of life for" in found.notes()[0] and "Python's lock" in found.notes()[0]


def line_of(where: str) -> int:
    return next(n for n, text in enumerate(PROGRAM.read_text().splitlines(), 1) if f"# stuck: {where}" in text)


def command(capsys: pytest.CaptureFixture[str], name: str, path: Path) -> str:
    """What a command of `python -m tracing` prints, on one line."""
    assert main([name, str(path)]) == 0
    return " ".join(capsys.readouterr().out.split())


def seen_at(path: Path, line: int, for_ns: int) -> bool:
    """Whether the process of a trace without events was seen in this line of the program, for so long."""
    with contextlib.suppress(tracing.TraceError):
        trace = tracing.load(path)
        seen = [each.time for each in trace.stacks if (own := each.own_line()) is not None and own.line == line]
        return len(trace.samples) > 0 and bool(seen) and int(trace.samples["time"].max()) - seen[0] > for_ns
    return False


@pytest.mark.parametrize("how", SIGNALS)
@pytest.mark.usefixtures("shortly")
def test_a_hang_before_the_first_loader_is_known_whatever_ends_it(
    how: str, program: Program, capsys: pytest.CaptureFixture[str]
) -> None:
    path, pid, line = program.run("torch", "before"), program.pid, line_of("before")
    while not seen_at(path, line, patience.FLOOR_ENDED):
        time.sleep(0.05)
    shown = io.StringIO()
    console, later = Console(file=shown, width=200), lambda: time.monotonic_ns() + patience.FLOOR_UNKNOWN
    watch(path, once=True, console=console, clock=later)
    program.end(how)
    hang = explain(tracing.load(path))
    assert hang is not None and hang.cause is Cause.BEFORE
    assert hang.ending is (Ending.INTERRUPTED if "Ctrl-C" in how else Ending.KILLED)
    assert f"it looks stuck: main (pid {pid}) is in code of the program, at stuck.py:{line}" in shown.getvalue()
    for name in ("report", "check"):
        text = command(capsys, name, path)
        assert f"main (pid {pid})" in text and "begun no loader, and been in the same function, for" in text
        assert f"stuck.py:{line}, main: never.wait()" in text and f"Look at {PROGRAM}:{line}" in text


@contextlib.contextmanager
def launched(directory: Path, where: str) -> Iterator[subprocess.Popen[bytes]]:
    """The program in two ranks. At the end none of it is left."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [sys.executable, "-m", "tracing", "run", "-o", str(directory), *torchrun, str(PROGRAM), "torch", where]
    with open(directory.with_suffix(".txt"), "wb") as output:
        program = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output, start_new_session=True)
    family: list[psutil.Process] = []
    try:
        yield program
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            family = psutil.Process(program.pid).children(recursive=True)  # the ranks are in groups of their own
        for each in (program, *family):
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        program.wait()
        psutil.wait_procs(family, timeout=10)


@pytest.mark.parametrize("where", [pytest.param("before", marks=pytest.mark.full), "before, rank 1"])
def test_ranks_that_come_to_no_loader_are_named_beside_those_that_do(
    where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, line = tmp_path / "trace", line_of("before")
    ranks = [0, 1] if where == "before" else [1]
    with launched(path, where) as program:
        while sum(seen_at(part, line, patience.FLOOR_ENDED) for part in path.glob("parts/*")) < len(ranks):
            time.sleep(0.1)
        while len(ranks) == 1 and [part.rank for part in parts(path)] != [0]:  # its first event
            time.sleep(0.1)
        family = psutil.Process(program.pid).children(recursive=True)
        for each in family:
            each.kill()
        program.kill()
        program.wait()
        psutil.wait_procs(family)  # a rank that lives on for a moment would not count as killed
    text = command(capsys, "report", path)
    for rank in ranks:
        (part,) = path.glob(f"parts/rank{rank}-*")
        assert f"main (pid {part.name.partition('-')[2]}) was killed" in text
        assert f"Rank {rank}" in text and f"stuck.py:{line}, main: never.wait()" in text
    assert f"stuck.py:{line}" in command(capsys, "check", path)
    assert [part.rank for part in parts(path)] == ([0, 1] if where == "before" else [0])


@pytest.mark.parametrize("how", ["Ctrl-C", "kill -9 of main", "kill -9 of all"])
def test_what_was_ended_while_it_got_on_did_not_hang(how: str, program: Program) -> None:
    path = program.run("torch", "nowhere")
    while (loaded(path).events["kind"] == Kind.YIELDED).sum() < 30:
        time.sleep(0.05)
    assert program.end(how) == (130 if how == "Ctrl-C" else -signal.SIGKILL)
    assert_no_hang(path)


@pytest.mark.parametrize("where", ["break", "evaluates", "prepares"])
@pytest.mark.usefixtures("shortly")
def test_what_took_long_and_ended_by_itself_did_not_hang(where: str, program: Program) -> None:
    """An epoch that is left, one whose end takes a second, and one that comes after a second."""
    path = program.run("torch", where)
    assert program.end() == 0
    assert_no_hang(path)


def assert_no_hang(path: Path) -> None:
    trace = tracing.load(path)
    assert explain(trace) is None
    assert not any(loader.hung for loader in tracing.report(trace).loaders)
