"""Exercise 17 is measured: what passes, what the learner is shown, and that nothing is left running."""

from __future__ import annotations

import pytest

import tracing
from notebooks.exercises.exercise import exercise
from notebooks.exercises.grading import grade
from notebooks.exercises.verdict import Status
from tests.exercises.wrong.edits import solved

WHICH = exercise("17")


def graded(folder, *edits):
    text = solved(WHICH)
    for old, new in edits:
        assert text.count(old) == 1
        text = text.replace(old, new)
    path = folder / WHICH.file
    path.write_text(text, encoding="utf-8")
    return grade(WHICH, path), path


@pytest.mark.timeout(110)
def test_minidls_loader_is_as_good_and_both_reports_are_shown(tmp_path):
    imported = "from torch.utils.data import DataLoader, Dataset"
    verdict, path = graded(tmp_path, (imported, "from minidl import DataLoader, Dataset"))
    assert verdict.status is Status.PASSED, verdict
    before, after = (line for line in verdict.printed if "batches a second" in line)
    assert before.startswith("before") and after.startswith("after")
    was, now = (float(line.split()[1]) for line in (before, after))
    assert now >= 2.5 * was
    assert len(tracing.load(path.with_suffix(".trace")).tasks) == 32  # four epochs of eight batches
    assert len(tracing.load(path.with_suffix(".before.trace")).tasks) == 16


@pytest.mark.timeout(110)
def test_a_worker_that_raises_is_reported_with_its_line(tmp_path):
    verdict, _ = graded(tmp_path, ("values.flatten()", "values.flaten()"))
    assert verdict.finding.mistake == "raises" and "flaten" in verdict.finding.got
    assert "of 17_make_it_fast.py" in verdict.finding.got


@pytest.mark.timeout(110)
def test_an_answer_that_never_ends_is_stopped_with_the_script_beside_it(tmp_path):
    verdict, _ = graded(tmp_path, ("            step(ids, values, labels)", "            sleep(1000)"))
    assert verdict.finding.mistake == "never returns" and "sleep(1000)" in verdict.finding.got
