"""`course`: what it copies is a course that works, and nothing is written over."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tracing.forked import run
from tracing.__main__ import main


def test_the_copied_course_grades_an_answer_and_is_not_written_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "course"
    assert main(["course", str(folder)]) == 0
    assert f"cd {folder}" in capsys.readouterr().out
    assert "fetch: not attempted" in run(folder, "-m", "notebooks.exercises", "check", "01", status=1).stdout
    answer = next((folder / "notebooks" / "exercises" / "answers").glob("01_*.py"))
    assert main(["course", str(folder)]) == 2
    assert "choose a new folder" in capsys.readouterr().err and answer.exists()
