"""For teachers: the verdicts on a class, as comma-separated values, and a summary to teach from.

learner,passed,01,02,...,17,01 message,...
ada,3,passed,passed,no transposition,...,"collate([(1, 2), (3, 4)]): [(1, 2), (3, 4)], not ..."
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TextIO

from notebooks.exercises.class_run import Learner, cell
from notebooks.exercises.exercise import exercises
from notebooks.exercises.same_answers import same
from notebooks.exercises.verdict import Status, Verdict

NAMES = 8  # of learners that are listed for a mistake
FIRST = 5  # mistakes at the top


def write_grades(learners: Iterable[Learner], file: TextIO) -> None:
    """One row per learner: how many passed; for each exercise "passed", "not attempted", or the mistake; and for each
    in what words."""
    table = csv.writer(file)
    table.writerow(["learner", "passed", *exercises(), *(f"{each} message" for each in exercises())])
    file.flush()
    for learner in learners:
        verdicts = [learner.verdicts[each] for each in exercises()]
        passed = sum(each.passed for each in verdicts)
        table.writerow([learner.name, passed, *map(cell, verdicts), *map(message, verdicts)])
        file.flush()


def message(verdict: Verdict) -> str:
    """What the learner is told, in one line."""
    finding = verdict.finding
    if finding is None:
        return f"to write: {verdict.missing}" if verdict.missing else ""
    said = f"{finding.call}: {finding.got}; expected: {finding.expected}. {finding.cause}"
    return " ".join(said.split())


def summary(learners: list[Learner]) -> Iterator[str]:
    """Lines: the mistakes that are made most often, those of each exercise, and which answers are the same."""
    verdicts = [each.verdicts[number] for each in learners for number in each.files]
    count = Counter(each.status for each in verdicts)
    said = ", ".join(f"{count[each]} {each.value}" for each in Status)
    yield f"{len(learners)} learners, {len(verdicts)} answers: {said}"
    often = Counter((each.exercise, cell(each)) for each in verdicts if each.status is Status.FAILED)
    if often:
        yield "\nThe mistakes made most often"
        for (number, mistake), times in often.most_common(FIRST):
            yield f"  {times:3}  {number} {exercises()[number].title}: {mistake}"
    yield "\nBy exercise"
    for number in exercises():
        yield from _of_exercise(number, learners)
    yield from _the_same(learners)


def _of_exercise(number: str, learners: list[Learner]) -> Iterator[str]:
    verdicts = {each.name: each.verdicts[number] for each in learners}
    count = Counter(each.status for each in verdicts.values())
    said = ", ".join(f"{count[each]} {each.value}" for each in Status if count[each])
    yield f"{number} {exercises()[number].title}: {said}"
    made: dict[str, list[str]] = {}
    for name, verdict in verdicts.items():
        if verdict.status is Status.FAILED:
            made.setdefault(cell(verdict), []).append(name)
    for mistake, names in sorted(made.items(), key=lambda each: -len(each[1])):
        first = verdicts[names[0]].finding
        yield f"  {len(names):3}  {mistake} ({_listed(names)})"
        if first is not None:
            yield f"       {' '.join(first.cause.split())}"


def _listed(names: list[str]) -> str:
    more = [f"and {len(names) - NAMES} more"] if len(names) > NAMES else []
    return ", ".join([*names[:NAMES], *more])


def _the_same(learners: list[Learner]) -> Iterator[str]:
    found = []
    for number, which in exercises().items():
        texts = {each.name: each.files[number].decode("utf-8", "replace") for each in learners if number in each.files}
        found += [f"  {number}  {', '.join(group)}" for group in same(which, texts)]
    if found:
        yield "\nThe same but for names, comments and layout (minidl: as in this repository)"
        yield from found
