"""pytest as a class's tool: one item for each exercise that was answered, whose failure is the feedback.

    python -m pytest notebooks/exercises                              your own answers
    python -m pytest class/ada -p notebooks.exercises.conftest        a folder of answers
    ... --junit-xml=report.xml                                        as GitHub Classroom and GitLab read it

What is still the skeleton is skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from notebooks.exercises import feedback, runner
from notebooks.exercises.exercise import Exercise, exercises
from notebooks.exercises.verdict import Status

BY_FILE = {each.file: each for each in exercises().values()}


class Failed(Exception):
    """The text is the feedback."""


class Answered(pytest.File):
    """A learner's file."""

    def collect(self) -> Iterator[pytest.Item]:
        which = BY_FILE[self.path.name]
        yield Graded.from_parent(self, name=which.id, which=which)


class Graded(pytest.Item):
    """An answer."""

    def __init__(self, *, which: Exercise, **options: Any) -> None:
        super().__init__(**options)
        self.which = which

    def runtest(self) -> None:
        verdict = runner.grade(self.which, self.path)
        if verdict.status is Status.NOT_ATTEMPTED:
            pytest.skip(f"not attempted: {verdict.missing}")
        if not verdict.passed:
            raise Failed(feedback.plain(verdict))

    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
        return str(excinfo.value) if isinstance(excinfo.value, Failed) else super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, f"exercise {self.which.id}"


def pytest_collect_file(file_path: Path, parent: Any) -> pytest.Collector | None:
    return Answered.from_parent(parent, path=file_path) if file_path.name in BY_FILE else None
