"""Which exercises are done: answers/progress.json. One that passed and then fails is no longer done."""

from __future__ import annotations

import json
from pathlib import Path

from notebooks.exercises.verdict import Verdict


def done(folder: Path) -> set[str]:
    """The ids of the exercises that passed their last check. An unreadable file counts as empty."""
    try:
        found = json.loads((folder / "progress.json").read_text(encoding="utf-8"))["passed"]
    except (OSError, ValueError, KeyError, TypeError):
        return set()
    return {each for each in found if isinstance(each, str)}


def note(folder: Path, verdict: Verdict) -> bool:
    """Record a verdict. True: this exercise passed before and now fails."""
    before = done(folder)
    now = before | {verdict.exercise} if verdict.passed else before - {verdict.exercise}
    if now != before:
        _write(folder, now)
    return verdict.exercise in before and not verdict.passed


def forget(folder: Path, number: str) -> None:
    _write(folder, done(folder) - {number})


def _write(folder: Path, passed: set[str]) -> None:
    path = folder / "progress.json"
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps({"passed": sorted(passed)}, indent=1) + "\n", encoding="utf-8")
    fresh.replace(path)  # in one step: a reader finds either the old file or the new one
