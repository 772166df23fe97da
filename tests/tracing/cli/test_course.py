"""`course`: what it copies is a course that works, and nothing is written over."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tracing
from tracing.__main__ import main


def test_the_copied_course_grades_an_answer_and_is_not_written_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "course"
    assert main(["course", str(folder)]) == 0
    assert f"cd {folder}" in capsys.readouterr().out
    command = [sys.executable, "-m", "notebooks.exercises", "check", "01"]
    installed = {**os.environ, "PYTHONPATH": str(Path(tracing.__file__).parents[1])}
    graded = subprocess.run(command, cwd=folder, env=installed, capture_output=True, text=True, timeout=60)
    assert graded.returncode == 1 and "fetch: not attempted" in graded.stdout, graded
    answer = next((folder / "notebooks" / "exercises" / "answers").glob("01_*.py"))
    assert main(["course", str(folder)]) == 2
    assert "choose a new folder" in capsys.readouterr().err and answer.exists()
