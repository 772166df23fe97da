"""What a program hung in is known after it was ended: by Ctrl-C, by a scheduler, by kill -9."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest
from rich.console import Console

import tracing
from minidl.events import Kind
from tracing.analysis.hang.causes import Cause
from tracing.analysis.hang.explain import explain
from tracing.analysis.hang.lines import SILENT
from tracing.analysis.hang.patience import FLOOR_ENDED, FLOOR_UNKNOWN, TIMES
from tracing.analysis.hang.stuck_moments import Ending
from tracing.trace.parts import parts
from tracing.views.live.live import watch

pytestmark = [pytest.mark.timeout(60), pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]

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


@contextlib.contextmanager
def running(directory: Path, *args: str, by: Sequence[str] = ()) -> Iterator[subprocess.Popen[bytes]]:
    """The program, recorded, in a process group of its own. At the end none of it is left."""
    command = [sys.executable, "-m", "tracing", "run", "-o", str(directory), *by, str(PROGRAM), *args]
    with open(directory.with_suffix(".txt"), "wb") as output:
        program = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output, start_new_session=True)
    family = [psutil.Process(program.pid)]
    try:
        yield program
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            family += family[0].children(recursive=True)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        for each in family[1:]:  # torchrun's ranks are in groups of their own
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        program.wait()
        psutil.wait_procs(family, timeout=10)


def end(program: subprocess.Popen[bytes], how: str) -> None:
    group, number = SIGNALS[how]
    (os.killpg if group else os.kill)(program.pid, number)
    program.wait(timeout=40)


def loaded(directory: Path) -> tracing.Trace:
    """Its trace, once there is an event of a training step."""
    while True:
        with contextlib.suppress(tracing.TraceError):
            if len(trace := tracing.load(directory)):
                return trace
        time.sleep(0.05)


@pytest.mark.parametrize(("loader", "where", "how", "cause"), STUCK)
def test_what_it_hung_in_leads_the_report(loader: str, where: str, how: str, cause: Cause, tmp_path: Path) -> None:
    path = tmp_path / "trace"
    line = line_of(where)
    with running(path, loader, where) as program:
        while not any(stack.line() and f"# stuck: {where}" in str(stack.line()) for stack in loaded(path).stacks):
            time.sleep(0.1)
        since = next(each.time for each in loaded(path).stacks if f"# stuck: {where}" in str(each.line()))
        lived, found = 0, explain(loaded(path), since + 3600 * 10**9)
        while found is None or found.links[-1].line is None:  # another worker was looked at first
            time.sleep(0.1)
            found = explain(loaded(path), since + 3600 * 10**9)
        while lived < found.links[0].since + max(FLOOR_ENDED, TIMES * found.usual):
            samples = loaded(path).samples
            lived = int(samples["time"][samples["pid"] == program.pid].max())
            time.sleep(0.1)
        end(program, how)
        trace = tracing.load(path)
        hang = explain(trace)
        report = tracing.report(trace)
    assert hang is not None and hang.cause is cause
    assert hang.ending is (Ending.INTERRUPTED if how == "Ctrl-C" else Ending.KILLED)
    assert hang.links[0].who == f"main (pid {program.pid})"
    blamed = hang.links[-1].line
    assert blamed is not None and (blamed.file, blamed.line) == (str(PROGRAM), line)
    lines = " ".join(" ".join(report.first_lines()).split())
    assert f"stuck.py:{line}, " in lines and f"Look at {PROGRAM}:{line}" in lines
    for each in report.loaders:
        assert each.hung and len(each.next) == 1 and each.next[0].startswith("Solve that first. ")


@pytest.mark.parametrize("where", ["c", "unsent"])
def test_code_that_keeps_pythons_lock_shows_by_its_silence(where: str, tmp_path: Path) -> None:
    """Then nothing can say in which line it is. "unsent": its feeder thread has a batch to send, and cannot either."""
    path = tmp_path / "trace"
    with running(path, "torch", where) as program:
        while True:
            trace = loaded(path)
            samples = trace.samples
            last = {pid: int(samples["time"][samples["pid"] == pid].max()) for pid in set(samples["pid"].tolist())}
            if len(last) == 3 and all(last[program.pid] - last[pid] > 2 * SILENT for pid in last if pid != program.pid):
                break
            time.sleep(0.1)
        end(program, "kill -9 of all")
        found = explain(tracing.load(path))
    assert found is not None and found.cause is Cause.DATASET and found.silence > SILENT
    if where == "unsent":
        assert any("to send" in link.what for link in found.links)
    assert "Its process has given no sign of life for" in found.notes()[0] and "Python's lock" in found.notes()[0]


def line_of(where: str) -> int:
    return next(n for n, text in enumerate(PROGRAM.read_text().splitlines(), 1) if f"# stuck: {where}" in text)


def command(name: str, path: Path) -> str:
    """What a command of `python -m tracing` prints, on one line."""
    done = subprocess.run([sys.executable, "-m", "tracing", name, str(path)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return " ".join(done.stdout.split())


def seen_at(path: Path, line: int, for_ns: int) -> bool:
    """Whether the process of a trace without events was seen in this line of the program, for so long."""
    with contextlib.suppress(tracing.TraceError):
        trace = tracing.load(path)
        seen = [each.time for each in trace.stacks if (own := each.own_line()) is not None and own.line == line]
        return len(trace.samples) > 0 and bool(seen) and int(trace.samples["time"].max()) - seen[0] > for_ns
    return False


@pytest.mark.parametrize("how", SIGNALS)
def test_a_hang_before_the_first_loader_is_known_whatever_ends_it(how: str, tmp_path: Path) -> None:
    path, line = tmp_path / "trace", line_of("before")
    with running(path, "torch", "before") as program:
        while not seen_at(path, line, FLOOR_ENDED):
            time.sleep(0.1)
        shown = io.StringIO()
        console, in_half_a_minute = Console(file=shown, width=200), lambda: time.monotonic_ns() + FLOOR_UNKNOWN
        watch(path, once=True, console=console, clock=in_half_a_minute)
        end(program, how)
    hang = explain(tracing.load(path))
    assert hang is not None and hang.cause is Cause.BEFORE
    assert hang.ending is (Ending.INTERRUPTED if "Ctrl-C" in how else Ending.KILLED)
    assert f"it looks stuck: main (pid {program.pid}) is in code of the program, at stuck.py:{line}" in shown.getvalue()
    for name in ("report", "check"):
        text = command(name, path)
        assert f"main (pid {program.pid})" in text and "begun no loader, and been in the same function, for" in text
        assert f"stuck.py:{line}, main: never.wait()" in text and f"Look at {PROGRAM}:{line}" in text


@pytest.mark.slow
@pytest.mark.parametrize("where", ["before", "before, rank 1"])
def test_ranks_that_come_to_no_loader_are_named_beside_those_that_do(where: str, tmp_path: Path) -> None:
    path, line = tmp_path / "trace", line_of("before")
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    ranks = [0, 1] if where == "before" else [1]
    with running(path, "torch", where, by=torchrun) as program:
        while sum(seen_at(part, line, FLOOR_ENDED) for part in path.glob("parts/*")) < len(ranks):
            time.sleep(0.1)
        while len(ranks) == 1 and [part.rank for part in parts(path)] != [0]:  # its first event
            time.sleep(0.1)
        for each in psutil.Process(program.pid).children(recursive=True):
            each.kill()
        end(program, "kill -9 of all")
    text = command("report", path)
    for rank in ranks:
        (part,) = path.glob(f"parts/rank{rank}-*")
        assert f"main (pid {part.name.partition('-')[2]}) was killed" in text
        assert f"Rank {rank}" in text and f"stuck.py:{line}, main: never.wait()" in text
    assert f"stuck.py:{line}" in command("check", path)
    assert [part.rank for part in parts(path)] == ([0, 1] if where == "before" else [0])


HEALTHY = [("nowhere", how) for how in ("Ctrl-C", "kill -9 of main", "kill -9 of all")]


@pytest.mark.parametrize(("where", "how"), [*HEALTHY, ("break", ""), ("evaluates", ""), ("prepares", "")])
def test_what_did_not_hang_is_not_said_to(where: str, how: str, tmp_path: Path) -> None:
    """An epoch's end that takes 3 s, and returns, is none; nor is a run that was ended while it got on."""
    path = tmp_path / "trace"
    with running(path, "torch", where) as program:
        if how:
            while (loaded(path).events["kind"] == Kind.YIELDED).sum() < 30:
                time.sleep(0.05)
            end(program, how)
        assert program.wait(timeout=40) == (0 if not how else 130 if how == "Ctrl-C" else -signal.SIGKILL)
        trace = tracing.load(path)
        assert explain(trace) is None
        assert not any(loader.hung for loader in tracing.report(trace).loaders)
