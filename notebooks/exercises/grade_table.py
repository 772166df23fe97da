"""For teachers: the verdicts on many learners' folders, as a table of comma-separated values.

learner,passed,01,02,...,16
ada,3,passed,passed,no transposition,...
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from notebooks.exercises.exercise import exercises
from notebooks.exercises.grading import verdicts
from notebooks.exercises.verdict import Status


def write_grades(folders: list[Path], file: TextIO, progress: Callable[[str], None] | None = None) -> None:
    """One row per folder: how many passed, and for each exercise "passed", "not attempted", or the mistake."""
    table = csv.writer(file)
    table.writerow(["learner", "passed", *exercises()])
    for folder in map(_answers, folders):
        if progress is not None and not any((folder / each.file).exists() for each in exercises().values()):
            progress(f"{folder}: no exercises in it")
        cells = []
        for which, verdict in verdicts(folder):
            if progress is not None:
                progress(f"{folder.name}: {which.id} {verdict.status.value}")
            failed = verdict.status is Status.FAILED and verdict.finding is not None
            cells.append(verdict.finding.mistake if failed and verdict.finding else verdict.status.value)
        table.writerow([_learner(folder), cells.count(Status.PASSED.value), *cells])
        file.flush()


OWN = Path("notebooks", "exercises", "answers")  # where a clone keeps its learner's answers


def _answers(folder: Path) -> Path:
    """A learner's folder; or, in a clone that was handed in whole, the one inside."""
    return folder / OWN if (folder / OWN).is_dir() else folder


def _learner(folder: Path) -> str:
    """The folder's name, or the clone's."""
    path = folder.resolve()
    return path.parents[2].name if path.parts[-3:] == OWN.parts else path.name
