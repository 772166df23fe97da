"""Grade the answers of a class, several at a time: a table, and a summary to teach from.

learner,passed,01,02,...,17,01 message,...
ada,3,passed,passed,no transposition,...,"collate([(1, 2), (3, 4)]): [(1, 2), (3, 4)], not ..."

Each answer is a copy in a temporary folder: nothing is written into what the learners handed in.
"""

from __future__ import annotations

import csv
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TextIO

from notebooks.exercises import runner
from notebooks.exercises.exercise import Exercise, exercises
from notebooks.exercises.feedback import in_one_line
from notebooks.exercises.verdict import Finding, Status, Verdict

OWN = Path("notebooks", "exercises", "answers")  # where a clone keeps its learner's answers
NAMES = 8  # of learners that are listed for a mistake
FIRST = 5  # mistakes at the top

Verdicts = dict[str, dict[str, Verdict]]  # learner -> exercise -> verdict


def grade_class(folders: list[Path], jobs: int, say: Callable[[str], None], file: TextIO) -> Verdicts:
    """Write one row per learner, in the order of the folders: how many passed; for each exercise "passed", "not
    attempted" or the mistake; and for each in what words. Returns all verdicts."""
    table = csv.writer(file)
    table.writerow(["learner", "passed", *exercises(), *(f"{each} message" for each in exercises())])
    found: Verdicts = {}
    pool = ThreadPoolExecutor(jobs)
    try:
        futures = {
            folder: {number: pool.submit(_verdict, which, _inside(folder)) for number, which in exercises().items()}
            for folder in folders
        }
        for folder, its in futures.items():
            verdicts = found[folder.resolve().name] = {number: future.result() for number, future in its.items()}
            passed = sum(each.passed for each in verdicts.values())
            row = [folder.resolve().name, passed, *map(cell, verdicts.values()), *map(in_one_line, verdicts.values())]
            table.writerow(row)
            file.flush()
            say(f"{row[0]}: {passed} passed")
    finally:
        pool.shutdown(cancel_futures=True)
    return found


def _inside(folder: Path) -> Path:
    """The answers in a folder; of a clone that was handed in whole, those inside."""
    return folder / OWN if (folder / OWN).is_dir() else folder


def _verdict(which: Exercise, folder: Path) -> Verdict:
    if not (folder / which.file).is_file():
        return Verdict(which.id, Status.NOT_ATTEMPTED)
    with tempfile.TemporaryDirectory(prefix="answer-", ignore_cleanup_errors=True) as copies:
        shutil.copyfile(folder / which.file, Path(copies, which.file))
        try:
            return runner.grade(which, Path(copies, which.file))
        except Exception as error:  # the rest of the class is graded
            finding = Finding("cannot be graded", which.file, repr(error), "a verdict", "Try it by itself.")
            return Verdict(which.id, Status.FAILED, finding)


def cell(verdict: Verdict) -> str:
    """In a word or a few: "passed", "not attempted", or the mistake."""
    return verdict.finding.mistake if verdict.finding is not None else verdict.status.value


def summary(found: Verdicts) -> Iterator[str]:
    """Lines: the mistakes that are made most often, and those of each exercise, each with its causes."""
    failed = [each for its in found.values() for each in its.values() if each.status is Status.FAILED]
    yield f"{len(found)} learners; of their answers {len(failed)} fail"
    for (number, mistake), times in Counter((each.exercise, cell(each)) for each in failed).most_common(FIRST):
        yield f"  {times:3}  {number} {exercises()[number].title}: {mistake}"
    for number, which in exercises().items():
        made: dict[tuple[str, str], list[str]] = {}  # two may have the same short name, and other causes
        for learner, its in found.items():
            if (finding := its[number].finding) is not None:
                made.setdefault((finding.mistake, finding.cause), []).append(learner)
        if made:
            yield f"\n{number} {which.title}"
        for (mistake, cause), names in sorted(made.items(), key=lambda each: -len(each[1])):
            more = f", and {len(names) - NAMES} more" if len(names) > NAMES else ""
            yield f"  {len(names):3}  {mistake} ({', '.join(names[:NAMES])}{more})"
            yield f"       {cause}"
