"""Which exercises are done: answers/progress.json. One that fails after it had passed is not done any more."""

from __future__ import annotations

import json
from pathlib import Path

from notebooks.exercises.verdict import Verdict


def done(folder: Path) -> set[str]:
    """The ids of those that passed when they were last checked. A file that cannot be read counts as empty."""
    try:
        found = json.loads((folder / "progress.json").read_text(encoding="utf-8"))["passed"]
    except (OSError, ValueError, KeyError, TypeError):
        return set()
    return {each for each in found if isinstance(each, str)}


def note(folder: Path, verdict: Verdict) -> bool:
    """Write down a verdict. True: this exercise had passed before, and does not now."""
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
    fresh.replace(path)  # at once: whoever reads it meanwhile finds the old one or the new one
