"""How long a learner waits for a verdict: `python -m notebooks.exercises check`, the whole command."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter

from notebooks.exercises.exercise import Edit, Exercise, exercises, known
from notebooks.exercises.skeleton import edited
from tests.benchmarks.table import Table, verdict

RIGHT = Edit("", "", {}, ())  # the reference as it is


def seconds(which: Exercise, answer: Edit, passes: bool) -> float:
    """For the verdict on an answer. RuntimeError: it is the wrong one."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, which.file).write_text(edited(which, answer), encoding="utf-8")
        command = [sys.executable, "-m", "notebooks.exercises", "check", which.id]
        begin = perf_counter()
        done = subprocess.run(command, capture_output=True, env={**os.environ, "MINIDL_ANSWERS": folder}, check=False)
        taken = perf_counter() - begin
    if passes is not (done.returncode == 0):
        raise RuntimeError(done.stdout.decode())
    return taken


def table(turns: int) -> Table:
    """Of each exercise the median of its turns: a right answer, and the first of its known mistakes."""
    made = Table(
        "`check` of an exercise", ("", "fastest, s", "median, s", "slowest, s", "goal for the median, at most")
    )
    for words, passes, goal in (("a right answer", True, 8.0), ("a wrong one", False, 3.0)):
        taken = []
        for which in exercises().values():
            answer = RIGHT if passes else next(iter(known(which.id).values()))
            taken.append(median(seconds(which, answer, passes) for _ in range(turns)))
        numbers = f"{min(taken):.1f}", f"{median(taken):.1f}", f"{max(taken):.1f}"
        made.rows.append((f"{words}, {len(taken)} exercises", *numbers, verdict(median(taken), goal, at_most=True)))
    return made
