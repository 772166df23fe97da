"""Try an answer in its own process, which can be stopped: whatever a learner's code does, a verdict comes back.

The processes are forked from a server that has already imported torch, so a check need not wait for that. In its own
process an answer can do anything, also to its judge: so one that passes there is examined (examination.py). The grader
announces each thing that it tries (a beat); between two of them an answer may not work for long (family.py).
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
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from notebooks.exercises import heartbeat, uses
from notebooks.exercises.answers import NotAttempted, Refused, read
from notebooks.exercises.exam_questions import ASKED
from notebooks.exercises.examination import examined, prepare, starts_or_ends
from notebooks.exercises.exercise import Exercise, Finding, exercise
from notebooks.exercises.family import COMPUTES, LOOK, WAITS, Family
from notebooks.exercises.keeper import ENDING, keep
from notebooks.exercises.verdict import PRINTED, Status, Verdict, plain, understood
from tracing.recording.simulated_run import NoEvent

LONGEST = 1 << 20  # bytes of what the answer's process sends at once


def grade(which: Exercise, path: Path, cwd: Path | None = None, stop: threading.Event | None = None) -> Verdict:
    """The verdict on the answer in this file, which is tried in the folder `cwd`. The trace and timeline of a failing
    run are written beside it. Threads may call it side by side; raises Stopped soon after `stop` is set."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["notebooks.exercises.preloaded"])
    begin = time.perf_counter()
    prepare()
    path.with_suffix(".png").unlink(missing_ok=True)  # of a run that failed before
    shutil.rmtree(path.with_suffix(".trace"), ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="exercise-") as folder:
        said, stacks = Path(folder, "said"), Path(folder, "stacks")
        with starts_or_ends:
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_keep, args=(which.id, path, theirs, said, stacks, cwd))
            process.start()
            theirs.close()
        try:
            verdict = _watch(process, ours, which, path, stacks, stop)
        finally:
            _end(process)
            ours.close()
        if verdict.passed and which.number in ASKED:  # says the answer's own process, where it can do anything
            finding = examined(which, path, Path(folder), said, Family(0, stop))
            verdict = verdict if finding is None else Verdict(which.id, Status.FAILED, finding)
        verdict.printed = _printed(said)
    verdict.seconds = time.perf_counter() - begin
    return verdict


def _printed(said: Path) -> list[str]:
    """The first lines that the answer printed, cut to 100 characters; one line more if there are more."""
    if not said.exists():
        return []
    with open(said, errors="replace") as file:
        text = file.read(100 * PRINTED)
    return [line if len(line) < 100 else f"{line[:100]}..." for line in text.splitlines()[: PRINTED + 1]]


# ---- the process in which an answer is tried


def _keep(*args: Any) -> None:
    grader = multiprocessing.parent_process()
    assert grader is not None
    code = keep(grader.sentinel, _work, *args)
    if code < 0:  # it ended by a signal, and so does this one
        with contextlib.suppress(OSError):
            signal.signal(-code, signal.SIG_DFL)  # SIGKILL has no other
        os.kill(os.getpid(), -code)
    os._exit(code)


def _work(number: str, path: Path, connection: Connection, said: Path, stacks: Path, cwd: Path | None) -> None:
    def send(**message: Any) -> None:
        connection.send_bytes(json.dumps(message).encode())

    send(pid=os.getpid())
    if cwd is not None:
        os.chdir(cwd)
    multiprocessing.set_start_method("fork", force=True)  # the learner's functions are in the workers, too
    with open(said, "w", buffering=1) as out, open(stacks, "w") as dump:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
        sys.stdout = sys.stderr = io.TextIOWrapper(os.fdopen(1, "wb", closefd=False), line_buffering=True)
        faulthandler.register(signal.SIGUSR1, dump, all_threads=False)
        heartbeat.listen(lambda what: send(doing=what))
        send(verdict=plain(_judge(exercise(number), path)))
        connection.close()


def _judge(which: Exercise, path: Path) -> Verdict:
    try:
        answer = read(which, path)
    except NotAttempted as nothing:
        return Verdict(which.id, Status.NOT_ATTEMPTED, missing=str(nothing))
    except Refused as refused:
        return Verdict(which.id, Status.FAILED, refused.finding)
    try:
        finding = which.grade(answer) or uses.judged(answer)
    except NoEvent as error:
        cause = "emit(kind, epoch_id, task, worker, queue, value) takes integers; you may also leave out its calls."
        finding = Finding("emits an invalid event", f"{heartbeat.last}", str(error), "events with integers", cause)
    except BaseException as error:  # SystemExit and KeyboardInterrupt of the learner's code, too
        if not _concerns(error, path):
            raise
        doing = f"{heartbeat.last or path.name}"
        cause = "Your code raises where it should not. Is a name misspelt, or is there a case you have not thought of?"
        finding = Finding("raises", doing, answer.raised(error), "no exception", cause)
    if finding is None:
        return Verdict(which.id, Status.PASSED)
    if finding.broken is not None:
        heartbeat.beat("drawing the run")
        with answer.at_work():  # the run is repeated
            finding.broken.save(path.parent, path.stem)
    return Verdict(which.id, Status.FAILED, finding)


def _concerns(error: BaseException, path: Path) -> bool:
    """Whether an exception passed through the answer's lines."""
    frame = error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == str(path):
            return True
        frame = frame.tb_next
    return False


# ---- the process that waits for the verdict


def _watch(
    process: Any, connection: Connection, which: Exercise, path: Path, stacks: Path, stop: threading.Event | None
) -> Verdict:
    """Its verdict; or ours, if it never reaches one."""
    family = Family(process.pid, stop)
    doing, pid = f"reading {path.name}", process.pid
    while True:
        try:
            if connection.poll(LOOK):
                message = json.loads(connection.recv_bytes(LONGEST))
                if "verdict" in message:
                    return understood(message["verdict"], which.id, path)
                doing, pid = str(message.get("doing", doing)), int(message.get("pid", pid))
                family.beat()
        except EOFError:
            return _ended(which, _exit_code(process), doing)
        except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
            return _forged(which, doing, error)
        stuck = family.stuck()
        if stuck:
            return _stopped(which, path, stuck, doing, _line(pid if family.has(pid) else process.pid, path, stacks))


def _exit_code(process: Any) -> int | None:
    """None: it has closed the connection, but goes on."""
    with starts_or_ends:
        process.join(WAITS)
        code: int | None = process.exitcode
    return code


def _line(pid: int, path: Path, stacks: Path) -> tuple[int, str] | None:
    """The line of the answer that it is executing."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGUSR1)
    deadline, found = time.monotonic() + 1.0, None
    while found is None and time.monotonic() < deadline:  # it is written piece by piece
        time.sleep(LOOK)
        found = re.search(rf'File "{re.escape(str(path))}", line (\d+) in ', stacks.read_text())
    if found is None:
        return None
    number = int(found[1])
    return number, path.read_text(encoding="utf-8").splitlines()[number - 1].strip()


def _stopped(which: Exercise, path: Path, stuck: str, doing: str, line: tuple[int, str] | None) -> Verdict:
    where = f"line {line[0]} of {path.name}: {line[1]}" if line else "code that your function calls"
    if stuck == "computes":
        got = f"no end: after {COMPUTES:.0f} s of computing it was in {where}"
        cause = "This loop never ends. What should make its condition false, or lead to a break or a return?"
    else:
        got = f"no end: it waits in {where}"
        cause = "It waits for something that never comes. What should send it, and was it told to?"
    return Verdict(which.id, Status.FAILED, Finding("never returns", doing, got, "an end", cause))


def _ended(which: Exercise, code: int | None, doing: str) -> Verdict:
    """It ended without a verdict: os._exit, a signal, or an error in the grader, which has printed it."""
    how = f"signal {-code}" if code and code < 0 else f"exit code {code}"
    got = f"the process that tried it has ended ({how})" if code is not None else "its connection to the grader closed"
    cause = "Does your code call os._exit, kill a process, or close files that it has not opened? Its output is below."
    return Verdict(which.id, Status.FAILED, Finding("ends the process", doing, got, "a verdict", cause))


def _forged(which: Exercise, doing: str, error: Exception) -> Verdict:
    """Something else than the grader has written into the connection."""
    cause = "Does your code write into files or connections that it has not opened?"
    finding = Finding("speaks for the grader", doing, f"what is no verdict: {error}", "a verdict", cause)
    return Verdict(which.id, Status.FAILED, finding)


def _end(process: Any) -> None:
    """End it, and all that the answer has started."""
    with starts_or_ends:
        process.terminate()  # the keeper ends the rest first
        process.join(ENDING)
        process.kill()
        process.join()
        process.close()
