"""docs/symptoms.md is true: each script shows its symptom, the tool names the cause, and the cure cures it."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.minidl.mains import Mains

Run = Callable[..., tuple[str, str]]
DOCS = Path(__file__).parents[2] / "docs"
SCRIPTS, PAGE = DOCS / "symptoms", DOCS / "symptoms.md"
TRACED = """
import gc, sys
from tracing.__main__ import main
status = main(["run", "-o", {trace!r}, {script!r}])
gc.freeze()  # what the forker had frozen, and the run has not left so
sys.exit(status)
"""
PLAIN = """
import runpy, sys
sys.argv = [{script!r}]
runpy.run_path({script!r}, run_name="__main__")
"""
CURED = PLAIN.replace("]", ', "cured"]')

# Script -> what it prints as it is; the cause that `tracing run` reports, if it can; what it prints cured.
PRINTED = {
    "killed": (
        "RuntimeError: DataLoader worker (pid",
        "batch 1 on worker 1 was with the worker that died (keys [4, 5, 6, 7])",
        "10 batches",
    ),
    "open_files": ("RuntimeError: Too many open files.", "Main ran out of open files", "300 batches kept"),
    "ancdata": ("received 0 items of ancdata", "", "100 batches kept, 100 samples to validate with"),
    "mappings": ("Cannot allocate memory (12)", "", "1000 batches kept"),
    "stops": ("KeyboardInterrupt", "is in collate_fn with batch 4, keys [16, 17, 18, 19]", "10 batches"),
    "same_numbers": ("8 samples, 4 different", "draw the same random numbers", "8 samples, 8 different"),
    "duplicated": ("24 samples, 12 different", "each has all of it", "12 samples, 12 different"),
}


@pytest.fixture
def run(mains: Mains, tmp_path: Path) -> Run:
    """Runs a script: what it prints, and what the tool reports of it, in one line."""

    def run(name: str, program: str = TRACED) -> tuple[str, str]:
        folder = tmp_path / ("cured" if program is CURED else "symptom")
        folder.mkdir()
        mains.start(program.format(script=str(SCRIPTS / f"{name}.py"), trace=str(folder / "run.trace")), folder)
        _, errors = mains.end(limit=50, leftover_limit=10)
        errors, _, reported = f"\n{errors}".partition("\ntracing: ")
        return (folder / "stdout").read_text() + errors.lstrip("\n"), " ".join(reported.split())

    return run


def numbers(printed: str) -> list[float]:
    return [float(word) for word in printed.split() if word.replace(".", "").isdigit()]


@pytest.mark.parametrize("name", PRINTED)
def test_the_symptom_shows_and_is_cured(run: Run, name: str) -> None:
    symptom, cause, cured = PRINTED[name]
    # Where the tool names no cause, it does not run: a sample of it would take the descriptors that ancdata.py counts.
    printed, reported = run(name, TRACED if cause else PLAIN)
    assert symptom in printed and cause in reported
    assert run(name, CURED)[0].rstrip() == cured


def test_a_first_batch_that_is_slow_in_every_epoch(run: Run) -> None:
    """The wait for the first batch is the last number of each line."""
    printed, reported = run("first_batch")
    assert [numbers(line)[-1] >= 0.5 for line in printed.splitlines()] == [True] * 3
    assert "Start-up is the limit" in reported and "persistent_workers=True" in reported
    cured, _ = run("first_batch", CURED)
    assert [numbers(line)[-1] >= 0.5 for line in cured.splitlines()] == [True, False, False]


@pytest.mark.alone
def test_every_fourth_batch_is_slow(run: Run) -> None:
    printed, reported = run("every_nth")
    epochs = [numbers(line) for line in printed.splitlines()]
    assert [len(waits) for waits in epochs] == [16] * 5
    by_place = [statistics.median(waits) for waits in zip(*epochs, strict=True)]
    quick = max(wait for place, wait in enumerate(by_place) if place % 4)
    assert min(by_place[::4]) > 3 * quick
    assert "The workers are the limit" in reported and "num_workers=" in reported
    cured = numbers(run("every_nth", CURED)[0])
    assert len(cured) == 16 * 5 and sum(cured) < sum(numbers(printed)) / 2


QUICKER = {  # Script -> what the tool reports of it; cured, it takes half of the time, or less.
    "turns": ["The workers wait for each other"],
    "without_workers": ["Moving batches is the limit", "Larger batches", "num_workers=0"],
    "pythons_lock": ["Moving batches is the limit", "Other threads of main use", "they keep the lock"],
}


@pytest.mark.alone
@pytest.mark.parametrize("name", QUICKER)
def test_it_is_quick_once_cured(run: Run, name: str) -> None:
    printed, reported = run(name)
    batches, seconds = numbers(printed)
    assert all(words in reported for words in QUICKER[name]), reported
    cured_batches, cured_seconds = numbers(run(name, CURED)[0])
    assert cured_batches == batches and cured_seconds < seconds / 2


LESS = {  # Script -> the least that its last number is; less than what it is cured; what the tool reports
    "slow_exit": (5, 5, "what worker 0 does at exit"),  # s
    "growing": (100, 20, ""),  # MB; the tool names no cause
}


@pytest.mark.parametrize("name", LESS)
def test_it_takes_less_once_cured(run: Run, name: str) -> None:
    least, cured, words = LESS[name]
    printed, reported = run(name, TRACED if words else PLAIN)
    assert numbers(printed)[-1] >= least and words in reported
    assert numbers(run(name, CURED)[0])[-1] < cured


def test_every_script_is_tested_and_on_the_page() -> None:
    scripts = {path.stem for path in SCRIPTS.glob("*.py")}
    assert scripts == {*PRINTED, *QUICKER, *LESS, "first_batch", "every_nth"}
    assert all(f"(symptoms/{name}.py)" in PAGE.read_text() for name in scripts)
