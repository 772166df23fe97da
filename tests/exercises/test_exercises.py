"""The graders are graded: the reference passes each, each skeleton counts as not attempted, each wrong answer of
tests/exercises/wrong fails with its own message."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path

import pytest

from notebooks.exercises.exercise import exercises
from notebooks.exercises.grading import grade
from notebooks.exercises.skeleton import generate
from notebooks.exercises.verdict import Status

WRONG = sorted((Path(__file__).parent / "wrong").glob("*/*.py"))
ALL = list(exercises().values())


@pytest.fixture
def answer(tmp_path):
    """A function that puts an answer where a learner has it."""

    def put(which, text):
        path = tmp_path / which.file
        path.write_text(text, encoding="utf-8")
        return path

    return put


@pytest.mark.timeout(60)
@pytest.mark.parametrize("which", ALL, ids=lambda each: each.id)
def test_the_reference_passes(which, answer):
    verdict = grade(which, answer(which, generate(which, solved=True)))
    assert verdict.status is Status.PASSED, verdict


@pytest.mark.timeout(60)
@pytest.mark.parametrize("which", ALL, ids=lambda each: each.id)
def test_a_skeleton_counts_as_not_attempted(which, tmp_path):
    path = tmp_path / which.file
    shutil.copyfile(which.skeleton, path)
    assert grade(which, path).status is Status.NOT_ATTEMPTED


@pytest.mark.parametrize("which", ALL, ids=lambda each: each.id)
def test_the_skeleton_is_what_is_generated(which):
    assert which.skeleton.read_text(encoding="utf-8") == generate(which)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("path", WRONG, ids=lambda path: f"{path.parent.name} {path.stem}")
def test_a_wrong_answer_fails_with_its_own_message(path, answer):
    """The first line of its docstring names the mistake."""
    which, text = exercises()[path.parent.name], path.read_text(encoding="utf-8")
    verdict = grade(which, answer(which, text))
    assert verdict.status is Status.FAILED, verdict
    mistake = ast.get_docstring(ast.parse(text)).splitlines()[0]
    assert verdict.finding.mistake == mistake, verdict


@pytest.mark.parametrize("which", ALL, ids=lambda each: each.id)
def test_each_exercise_has_three_hints_and_three_wrong_answers(which):
    assert len(set(which.hints)) == 3 and all(which.hints)
    assert len([path for path in WRONG if path.parent.name == which.id]) >= 3
