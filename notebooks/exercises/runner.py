"""Try an answer in a process of its own, with a limit: whatever a learner's code does, a verdict comes back.

The processes are forked from a server that has already imported torch. The judge says what it tries (a beat); between
two beats an answer may not compute for long, nor wait. What counts is CPU time, which a busy machine does not change.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import json
import multiprocessing
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from notebooks.exercises.exercise import Exercise, exercise
from notebooks.exercises.verdict import Finding, Status, Verdict

COMPUTES = 2.0  # seconds of CPU time since the last beat
WAITS = 3.0  # seconds in which no process has computed or wanted to
LOOK = 0.1  # seconds between two looks
OFTEN = 0.2  # seconds: the same beat need not be heard more often
ENDING = 5.0  # seconds for a process that was killed
PRINTED = 20  # lines of what the answer printed that are shown
_starts_or_ends = threading.Lock()  # multiprocessing looks after all children of this process whenever it starts one


def grade(which: Exercise, path: Path) -> Verdict:
    """The verdict on the answer in this file. The trace and timeline of a failing run are written beside it. Threads
    may call it side by side."""
    begin, path = time.perf_counter(), path.absolute()
    path.with_suffix(".png").unlink(missing_ok=True)  # of a run that failed before
    shutil.rmtree(path.with_suffix(".trace"), ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="exercise-") as folder:
        said, stacks = Path(folder, "said"), Path(folder, "stacks")
        ours, process = started(_work, which.id, path, said, stacks)
        try:
            verdict = _watch(process, ours, which, path, stacks)
        finally:
            end(process)
            ours.close()
        lines = said.read_text(errors="replace").splitlines() if said.exists() else []
        shown = [line if len(line) < 100 else f"{line[:100]}..." for line in lines[:PRINTED]]
        verdict.printed = [*shown, *["..."] * (len(lines) > PRINTED)]
    verdict.seconds = time.perf_counter() - begin
    return verdict


def started(work: Callable[..., None], *args: Any) -> tuple[Any, Any]:
    """work(connection, *args) in a process of its own: our end of the connection, and the process."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["notebooks.exercises.preloaded"])
    with _starts_or_ends:
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=work, args=(theirs, *args))
        process.start()
        theirs.close()
    return ours, process


def end(process: Any) -> None:
    """End it, and all that it has started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)  # it leads a group of its own
    with _starts_or_ends:
        process.kill()
        process.join(ENDING)


# ---- the process in which an answer is tried


def on_its_own(said: Path) -> None:
    """Ctrl-C is the command's affair, and so is the terminal; the learner's functions are in forked workers, too."""
    os.setsid()
    multiprocessing.set_start_method("fork", force=True)
    out = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(out, 1)
    os.dup2(out, 2)
    sys.stdout = sys.stderr = io.TextIOWrapper(os.fdopen(1, "wb", closefd=False), line_buffering=True)


def _work(connection: Any, number: str, path: Path, said: Path, stacks: Path) -> None:
    on_its_own(said)
    last, heard = "", 0.0

    def beat(what: str) -> None:
        nonlocal last, heard
        now = time.monotonic()
        if what != last or now - heard > OFTEN:
            last, heard = what, now
            connection.send_bytes(json.dumps({"doing": what}).encode())

    with open(stacks, "w") as dump:
        faulthandler.register(signal.SIGUSR1, dump, all_threads=False)
        verdict = judged(exercise(number), path, beat)
        connection.send_bytes(json.dumps({"verdict": verdict.plain()}).encode())


def judged(which: Exercise, path: Path, beat: Callable[[str], None] = lambda what: None) -> Verdict:
    """The verdict, found in this process."""
    from notebooks.exercises import bugs, explained, judge, make_it_fast
    from notebooks.exercises.answers import NotAttempted, Refused, read
    from notebooks.exercises.skeleton import reference

    try:
        answer = read(which, path)
        if which.references:
            failures = judge.failures(answer, lambda name: beat(explained.described().get(name, (name,))[0]))
            beat("drawing the run")
            finding = explained.finding(answer, failures) if failures else None
        else:
            finding = (bugs if which.number == bugs.NUMBER else make_it_fast).grade(answer, beat)
    except NotAttempted as nothing:
        return Verdict(which.id, Status.NOT_ATTEMPTED, missing=str(nothing))
    except Refused as refused:
        return Verdict(which.id, Status.FAILED, refused.finding)
    except BaseException as error:  # SystemExit and KeyboardInterrupt of the learner's code, too
        if not answer.line_of(error):
            raise
        finding = Finding("raises", path.name, answer.raised(error), "no exception", explained.RAISES)
    if finding is not None:
        return Verdict(which.id, Status.FAILED, finding)
    return Verdict(which.id, Status.PASSED, reference=reference(which))


# ---- the process that waits for the verdict


def _watch(process: Any, connection: Any, which: Exercise, path: Path, stacks: Path) -> Verdict:
    """Its verdict; or ours, if it never reaches one."""
    doing, family = f"reading {path.name}", Family(process.pid)
    while True:
        try:
            if connection.poll(LOOK):
                message = json.loads(connection.recv_bytes())
                if "verdict" in message:
                    return Verdict.of(message["verdict"])
                doing = message["doing"]
                family.beat()
        except EOFError:
            process.join(ENDING)
            code = process.exitcode
            how = f"signal {-code}" if code and code < 0 else f"exit code {code}"
            got = f"the process that tried it has ended ({how})"
            cause = "Does your code call os._exit, or kill a process? What it printed is below."
            return Verdict(which.id, Status.FAILED, Finding("ends the process", doing, got, "an end", cause))
        if stuck := family.stuck():
            line = _line(process.pid, path, stacks)
            where = f"line {line} of {path.name}: {_text(path, line)}" if line else "code that your function calls"
            if stuck == "computes":
                got = f"no end: after {COMPUTES:.0f} s of computing it was in {where}"
                cause = "This loop never ends. What should make its condition false, or lead to a break or a return?"
            else:
                got = f"no end: it waits in {where}"
                cause = "It waits for something that never comes. What should send it, and was it told to?"
            return Verdict(which.id, Status.FAILED, Finding("never returns", doing, got, "an end", cause))


def _text(path: Path, line: int) -> str:
    return path.read_text(encoding="utf-8").splitlines()[line - 1].strip()


def _line(pid: int, path: Path, stacks: Path) -> int:
    """The line of the answer that it is executing; 0: none."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGUSR1)
    deadline, found = time.monotonic() + 1.0, None
    while found is None and time.monotonic() < deadline:  # it is written piece by piece
        time.sleep(LOOK)
        found = re.search(rf'File "{re.escape(str(path))}", line (\d+) in ', stacks.read_text())
    return int(found[1]) if found else 0


class Family:
    """A process and all its children: whether they make progress."""

    def __init__(self, pid: int) -> None:
        self.pid, self.last = pid, -1.0
        self.beat()

    def beat(self) -> None:
        self.at_beat, self.since = -1.0, time.monotonic()  # -1: what was used until then is seen at the next look

    def stuck(self) -> str:
        """ "computes" or "waits": it is to be stopped."""
        used, wants = 0.0, False
        with contextlib.suppress(psutil.Error):
            top = psutil.Process(self.pid)
            for each in [top, *top.children(recursive=True)]:
                with contextlib.suppress(psutil.Error):
                    times = each.cpu_times()
                    used += times.user + times.system
                    wants |= each.status() in (psutil.STATUS_RUNNING, psutil.STATUS_DISK_SLEEP)
        now = time.monotonic()
        if used != self.last or wants:
            self.last, self.since = used, now
        if self.at_beat < 0:
            self.at_beat = used
        return "computes" if used - self.at_beat > COMPUTES else "waits" if now - self.since > WAITS else ""
