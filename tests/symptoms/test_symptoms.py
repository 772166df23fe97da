"""docs/symptoms.md says the truth: each script shows its symptom, the tool names the cause, and the cure cures it."""

from __future__ import annotations

import statistics
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
TRACED = """
import sys
from tracing.__main__ import main
sys.exit(main(["run", "--memory", "-o", {trace!r}, {script!r}]))
"""
CURED = """
import runpy, sys
sys.argv = [{script!r}, "cured"]
runpy.run_path({script!r}, run_name="__main__")
"""

# Script -> what it says as it is; what `tracing run --memory` says of it, if it can; and what it says once it is cured.
SAID = {
    "killed": ("RuntimeError: DataLoader worker (pid", "batch 5, keys [20, 21, 22, 23]", "10 batches"),
    "open_files": ("RuntimeError: Too many open files.", "more open files with every batch", "300 batches kept"),
    "ancdata": ("received 0 items of ancdata", "", "100 batches kept, 100 samples to validate with"),
    "mappings": ("Cannot allocate memory (12)", "", "1000 batches kept"),
    "same_numbers": ("8 samples, 4 different", "", "8 samples, 8 different"),
    "duplicated": ("24 samples, 12 different", "", "12 samples, 12 different"),
}


@pytest.fixture(scope="module")
def mains() -> Iterator[Mains]:
    mains = Mains()
    yield mains
    assert mains.forker.stdin is not None
    mains.forker.stdin.close()
    mains.forker.wait()


def said_by(mains: Mains, folder: Path, name: str, program: str = TRACED) -> tuple[str, str]:
    """What a script prints, and what the tool says of it in one line."""
    folder = folder / ("cured" if program is CURED else "traced")
    folder.mkdir()
    mains.start(program.format(script=str(HERE / f"{name}.py"), trace=str(folder / "run.trace")), folder)
    _, errors = mains.end(limit=50, leftover_limit=10)
    errors, _, told = f"\n{errors}".partition("\ntracing: ")
    return (folder / "stdout").read_text() + errors.lstrip("\n"), " ".join(told.split())


def numbers(said: str) -> list[float]:
    return [float(word) for word in said.split() if word.replace(".", "").isdigit()]


@pytest.mark.parametrize("name", SAID)
def test_the_symptom_shows_and_is_cured(mains: Mains, tmp_path: Path, name: str) -> None:
    symptom, cause, cured = SAID[name]
    said, told = said_by(mains, tmp_path, name)
    assert symptom in said and cause in told
    assert said_by(mains, tmp_path, name, CURED)[0].rstrip() == cured


def test_a_first_batch_that_is_slow_in_every_epoch(mains: Mains, tmp_path: Path) -> None:
    """The wait for the first batch is the last number of each line."""
    said, told = said_by(mains, tmp_path, "first_batch")
    assert [numbers(line)[-1] >= 0.5 for line in said.splitlines()] == [True] * 3
    assert "Start-up is the limit" in told and "persistent_workers=True" in told
    cured, _ = said_by(mains, tmp_path, "first_batch", CURED)
    assert [numbers(line)[-1] >= 0.5 for line in cured.splitlines()] == [True, False, False]


@pytest.mark.alone
def test_every_fourth_batch_is_slow(mains: Mains, tmp_path: Path) -> None:
    said, told = said_by(mains, tmp_path, "every_nth")
    epochs = [numbers(line) for line in said.splitlines()]
    assert [len(waits) for waits in epochs] == [16] * 9
    by_place = [statistics.median(waits) for waits in zip(*epochs, strict=True)]
    quick = max(wait for place, wait in enumerate(by_place) if place % 4)
    assert min(by_place[::4]) > 3 * quick
    assert "The workers are the limit" in told and "num_workers=" in told
    cured = numbers(said_by(mains, tmp_path, "every_nth", CURED)[0])
    assert len(cured) == 16 * 9 and sum(cured) < sum(numbers(said)) / 2


def test_an_exit_that_takes_five_seconds(mains: Mains, tmp_path: Path) -> None:
    said, told = said_by(mains, tmp_path, "slow_exit")
    assert numbers(said)[-1] >= 5
    assert "Shutdown is slow" in told and "waiting for worker 0 to exit" in " ".join(told.split())
    assert numbers(said_by(mains, tmp_path, "slow_exit", CURED)[0])[-1] < 5


def test_memory_that_grows(mains: Mains, tmp_path: Path) -> None:
    said, told = said_by(mains, tmp_path, "growing")
    assert numbers(said)[-1] > 100  # MB
    assert "The memory of worker 0's own grew by" in told and "reference count" in told
    assert numbers(said_by(mains, tmp_path, "growing", CURED)[0])[-1] < 20


def test_every_script_is_tested_and_told() -> None:
    scripts = {path.stem for path in HERE.glob("*.py")} - {"test_symptoms"}
    assert scripts == {*SAID, "first_batch", "every_nth", "slow_exit", "growing"}
    assert all(f"tests/symptoms/{name}.py" in PAGE.read_text() for name in scripts)
