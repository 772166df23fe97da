"""docs/symptoms.md is true: each script shows its symptom, the tool names the cause, and the cure cures it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.minidl.mains import Mains

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


def numbers(printed: str) -> list[float]:
    return [float(word) for word in printed.split() if word.replace(".", "").isdigit()]


def prints(words: str) -> Callable[..., bool]:
    return lambda printed, *_: words in printed


def only(words: str) -> Callable[..., bool]:
    return lambda printed, *_: printed.rstrip() == words


def ends_with(least: float, limit: float) -> Callable[..., bool]:
    return lambda printed, *_: least <= numbers(printed)[-1] < limit


def begins_slowly(*epochs: bool) -> Callable[..., bool]:
    """The wait for the first batch is the last number of each line."""
    return lambda printed, *_: [numbers(line)[-1] >= 0.5 for line in printed.splitlines()] == [*epochs]


def every_fourth_is_slow(printed: str) -> bool:
    epochs = [numbers(line) for line in printed.splitlines()]
    assert [len(waits) for waits in epochs] == [16] * 5
    waits = [statistics.median(waits) for waits in zip(*epochs, strict=True)]
    return min(waits[::4]) > 3 * max(wait for place, wait in enumerate(waits) if place % 4)


def waits_half(cured: str, printed: str) -> bool:
    return len(numbers(cured)) == 16 * 5 and sum(numbers(cured)) < sum(numbers(printed)) / 2


def takes_half(cured: str, printed: str) -> bool:
    (batches, before), (cured_batches, seconds) = numbers(printed), numbers(cured)
    return cured_batches == batches and seconds < before / 2


ALONE = ("every_nth", "turns", "without_workers", "pythons_lock")
SYMPTOMS: dict[str, tuple[Callable[[str], bool], list[str], Callable[[str, str], bool]]] = {
    # script: what it prints; the cause that `tracing run` reports, if it can; what it prints cured
    "killed": (
        prints("RuntimeError: DataLoader worker (pid"),
        ["batch 1 on worker 1 was with the worker that died (keys [4, 5, 6, 7])"],
        only("10 batches"),
    ),
    "open_files": (prints("Error: Too many open files."), ["Main ran out of open files"], only("300 batches kept")),
    "ancdata": (prints("0 items of ancdata"), [], only("100 batches kept, 100 samples to validate with")),
    "mappings": (prints("Cannot allocate memory (12)"), [], only("1000 batches kept")),
    "stops": (prints("KeyboardInterrupt"), ["in collate_fn with batch 4, keys [16, 17, 18, 19]"], only("10 batches")),
    "same_numbers": (
        prints("8 samples, 4 different"), ["draw the same random numbers"], only("8 samples, 8 different"),
    ),
    "duplicated": (prints("24 samples, 12 different"), ["each has all of it"], only("12 samples, 12 different")),
    "first_batch": (
        begins_slowly(True, True, True), ["Start-up is the limit", "persistent_workers=True"],
        begins_slowly(True, False, False),
    ),
    "every_nth": (every_fourth_is_slow, ["The workers are the limit", "num_workers="], waits_half),
    "turns": (prints("batches"), ["The workers wait for each other"], takes_half),
    "without_workers": (
        prints("batches"), ["Moving batches is the limit", "num_workers=0"], takes_half,
    ),
    "pythons_lock": (
        prints("batches"), ["Moving batches is the limit", "Another thread", "for Python's lock"], takes_half,
    ),
    "slow_exit": (ends_with(5, math.inf), ["what worker 0 does at exit"], ends_with(0, 5)),  # s
    "growing": (ends_with(100, math.inf), [], ends_with(0, 20)),  # MB
}  # fmt: skip


@pytest.fixture
def run(mains: Mains, tmp_path: Path) -> Callable[..., tuple[str, str]]:
    """Runs a script: what it prints, and what the tool reports of it, in one line."""

    def run(name: str, program: str = TRACED) -> tuple[str, str]:
        folder = tmp_path / ("cured" if program is CURED else "symptom")
        folder.mkdir()
        mains.start(program.format(script=str(SCRIPTS / f"{name}.py"), trace=str(folder / "run.trace")), folder)
        _, errors = mains.end(limit=50, leftover_limit=10)
        errors, _, reported = f"\n{errors}".partition("\ntracing: ")
        return (folder / "stdout").read_text() + errors.lstrip("\n"), " ".join(reported.split())

    return run


@pytest.mark.parametrize("name", [pytest.param(each, marks=[pytest.mark.alone] * (each in ALONE)) for each in SYMPTOMS])
def test_the_symptom_shows_and_is_cured(run: Callable[..., tuple[str, str]], name: str) -> None:
    shows, causes, is_cured = SYMPTOMS[name]
    # Where the tool names no cause, it does not run: a sample of it would take the descriptors that ancdata.py counts.
    printed, reported = run(name, TRACED if causes else PLAIN)
    assert shows(printed), printed
    assert all(cause in reported for cause in causes), reported
    cured, _ = run(name, CURED)
    assert is_cured(cured, printed), cured


def test_every_script_is_tested_and_on_the_page() -> None:
    scripts = {path.stem for path in SCRIPTS.glob("*.py")}
    assert scripts == {*SYMPTOMS}
    assert all(f"(symptoms/{name}.py)" in PAGE.read_text() for name in scripts)
