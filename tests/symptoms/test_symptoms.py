"""docs/symptoms.md says the truth: each script shows its symptom, and its cure cures it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.minidl.mains import Mains

pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.skipif(sys.platform != "linux", reason="the limits and /proc are Linux's"),
]

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "symptoms.md"
PROGRAM = """
import runpy, sys
sys.argv = [{script!r}, *{arguments!r}]
runpy.run_path({script!r}, run_name="__main__")
"""

# Script -> what it says as it is, and what it says once it is cured.
SAID = {
    "killed": ("is killed by signal: Killed.", "10 batches"),
    "open_files": ("RuntimeError: Too many open files.", "300 batches kept"),
    "ancdata": ("RuntimeError: received 0 items of ancdata", "100 batches kept, 100 samples to validate with"),
    "mappings": ("Cannot allocate memory (12)", "1000 batches kept"),
    "same_numbers": ("8 samples, 4 different", "8 samples, 8 different"),
    "duplicated": ("24 samples, 12 different", "12 samples, 12 different"),
}


@pytest.fixture(scope="module")
def mains() -> Iterator[Mains]:
    mains = Mains()
    yield mains
    assert mains.forker.stdin is not None
    mains.forker.stdin.close()
    mains.forker.wait()


def said_by(mains: Mains, folder: Path, name: str, *arguments: str) -> str:
    """All that a script prints."""
    folder = folder / "_".join(["run", *arguments])
    folder.mkdir()
    mains.start(PROGRAM.format(script=str(HERE / f"{name}.py"), arguments=arguments), folder)
    _, errors = mains.end(limit=50, leftover_limit=10)
    return (folder / "stdout").read_text() + errors


def numbers(said: str) -> list[float]:
    return [float(word) for word in said.split() if word.replace(".", "").isdigit()]


@pytest.mark.parametrize("name", SAID)
def test_the_symptom_shows_and_is_cured(mains: Mains, tmp_path: Path, name: str) -> None:
    symptom, cured = SAID[name]
    assert symptom in said_by(mains, tmp_path, name)
    assert said_by(mains, tmp_path, name, "cured").rstrip() == cured


def test_a_first_batch_that_is_slow_in_every_epoch(mains: Mains, tmp_path: Path) -> None:
    """The wait for the first batch is the last but one number of each line."""
    slow, cured = (
        [numbers(line)[-1] for line in said_by(mains, tmp_path, "first_batch", *arguments).splitlines()]
        for arguments in ((), ("cured",))
    )
    assert len(slow) == len(cured) == 3
    assert min(slow) >= 0.5 and cured[0] >= 0.5 and max(cured[1:]) < 0.5


def test_every_fourth_batch_is_slow(mains: Mains, tmp_path: Path) -> None:
    waits = numbers(said_by(mains, tmp_path, "every_nth"))
    by_turn = [sorted(waits[turn::4])[len(waits) // 8] for turn in range(4)]  # medians
    assert len(waits) == 64 and max(by_turn) > 3 * sorted(by_turn)[-2]
    assert sum(numbers(said_by(mains, tmp_path, "every_nth", "cured"))) < sum(waits) / 2


def test_an_exit_that_takes_five_seconds(mains: Mains, tmp_path: Path) -> None:
    assert numbers(said_by(mains, tmp_path, "slow_exit"))[-1] >= 5
    assert numbers(said_by(mains, tmp_path, "slow_exit", "cured"))[-1] < 5


def test_memory_that_grows(mains: Mains, tmp_path: Path) -> None:
    grown, cured = (
        numbers(said_by(mains, tmp_path, "growing", *arguments))[-1] for arguments in ((), ("cured",))
    )  # MB
    assert grown > 40 > 10 > cured


def test_every_script_is_tested_and_told() -> None:
    scripts = {path.stem for path in HERE.glob("*.py")} - {"test_symptoms"}
    assert scripts == {*SAID, "first_batch", "every_nth", "slow_exit", "growing"}
    assert all(f"tests/symptoms/{name}.py" in PAGE.read_text() for name in scripts)
