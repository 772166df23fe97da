"""Grade the answers of a class, several at a time.

Every folder is read before the first answer runs, and each answer runs in a temporary folder that holds nothing but a
copy of it: no answer can change another, or what the learners handed in.
"""

from __future__ import annotations

import signal
import tempfile
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from notebooks.exercises.exercise import Exercise, Finding, exercises
from notebooks.exercises.family import Stopped
from notebooks.exercises.grading import grade
from notebooks.exercises.verdict import Status, Verdict

OWN = Path("notebooks", "exercises", "answers")  # where a clone keeps its learner's answers


@dataclass
class Learner:
    """One who handed in a folder."""

    name: str
    files: dict[str, bytes]  # by exercise: "07"
    verdicts: dict[str, Verdict] = field(default_factory=dict)


def read_class(folders: list[Path]) -> list[Learner]:
    """What each folder holds; of a clone that was handed in whole, the answers inside."""
    learners = []
    for folder in folders:
        inside = folder / OWN if (folder / OWN).is_dir() else folder
        files = {}
        for each in exercises().values():
            if (inside / each.file).is_file():
                files[each.id] = (inside / each.file).read_bytes()
        learners.append(Learner(_name(inside), files))
    return learners


def _name(folder: Path) -> str:
    """The folder's name, or the clone's."""
    path = folder.resolve()
    return path.parents[2].name if path.parts[-3:] == OWN.parts else path.name


def grade_class(learners: list[Learner], jobs: int, progress: Callable[[str], None]) -> Generator[Learner, None, None]:
    """Each learner in turn, with all verdicts. If the caller stops asking, or Ctrl-C or SIGTERM comes, the answers that
    run are ended first."""
    stop = threading.Event()
    total, done = sum(len(each.files) for each in learners), 0

    def one(learner: Learner, which: Exercise) -> None:
        nonlocal done
        verdict = _verdict(which, learner.files.get(which.id), stop)
        learner.verdicts[which.id] = verdict
        if which.id in learner.files:
            done += 1  # threads may lose a count here; it is only shown
            progress(f"[{done}/{total}] {learner.name}: {which.id} {cell(verdict)}")

    with _ended_by_sigterm(), ThreadPoolExecutor(jobs) as pool:
        futures: list[list[Future[None]]] = []
        try:
            futures += [[pool.submit(one, each, which) for which in exercises().values()] for each in learners]
            for learner, its in zip(learners, futures, strict=True):
                for future in its:
                    future.result()
                yield learner
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)


def _verdict(which: Exercise, text: bytes | None, stop: threading.Event) -> Verdict:
    if text is None:
        return Verdict(which.id, Status.NOT_ATTEMPTED)
    with tempfile.TemporaryDirectory(prefix="answer-", ignore_cleanup_errors=True) as folder:
        path = Path(folder, which.file).absolute()
        path.write_bytes(text)
        try:
            return grade(which, path, Path(folder), stop)
        except Stopped:
            raise
        except Exception as error:  # what it sent back cannot be read, say: the rest of the class is graded
            finding = Finding("cannot be graded", which.file, repr(error), "a verdict", "Try it by itself.")
            return Verdict(which.id, Status.FAILED, finding)


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Like Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def cell(verdict: Verdict) -> str:
    """In a word or a few: "passed", "not attempted", or the mistake."""
    failed = verdict.status is Status.FAILED and verdict.finding is not None
    return verdict.finding.mistake if failed and verdict.finding else verdict.status.value
