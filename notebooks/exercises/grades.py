"""For teachers: the verdicts on many learners' folders, as a table of comma-separated values.

learner,passed,01,02,...,15
ada,3,passed,passed,no transposition,...
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from notebooks.exercises.exercise import exercises
from notebooks.exercises.grading import Status, verdicts


def write_grades(folders: list[Path], file: TextIO, progress: Callable[[str], None] | None = None) -> None:
    """A row a folder: how many passed, and of each exercise "passed", "not attempted", or the mistake that was made."""
    table = csv.writer(file)
    table.writerow(["learner", "passed", *exercises()])
    for folder in folders:
        cells = []
        for which, verdict in verdicts(folder):
            if progress is not None:
                progress(f"{folder.name}: {which.id} {verdict.status.value}")
            failed = verdict.status is Status.FAILED and verdict.finding is not None
            cells.append(verdict.finding.mistake if failed and verdict.finding else verdict.status.value)
        table.writerow([_learner(folder), cells.count(Status.PASSED.value), *cells])
        file.flush()


def _learner(folder: Path) -> str:
    """The folder's name; of ada/notebooks/exercises/answers, a clone that was handed in, the clone's."""
    path, own = folder.resolve(), ("notebooks", "exercises", "answers")
    return path.parents[len(own) - 1].name if path.parts[-len(own) :] == own else path.name
