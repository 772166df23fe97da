"""What `tracing.whatif` predicts from one recording, beside what the same load really does in each setting."""

from __future__ import annotations

import contextlib
import gc
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from statistics import mean, median
from typing import Any

import psutil

import minidl
import tracing
from tests.benchmarks import loading
from tests.benchmarks.table import Table, verdict
from tracing.analysis.whatif.durations import Setting
from tracing.analysis.whatif.whatif import WhatIf, whatif

WORKERS = PREFETCH = (1, 2, 3, 4)
RECORDED = Setting(2, 2)
RECORDINGS = 5  # the least disturbed one counts


def compute(seconds: float) -> None:
    """Use a core for `seconds`."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def uneven(index: int) -> float:
    """0.75 to 1.25, as if by chance."""
    return 0.75 + index * 7919 % 13 / 24


def computes(index: int) -> int:
    compute(0.006 * uneven(index))
    return index


def sleeps(index: int) -> int:
    time.sleep(0.01 * uneven(index))
    return index


def one_in_ten_is_slow(index: int) -> int:
    time.sleep(0.06 if index % 10 == 7 else 0.006)
    return index


def is_quick(index: int) -> int:
    compute(0.002)
    return index


class Samples(minidl.Dataset[int]):
    def __init__(self, make: Callable[[int], int], number: int) -> None:
        self.make, self.number = make, number

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, index: int) -> int:
        return self.make(index)


@dataclass(frozen=True, order=True)
class Ran:
    """A run. Sorted, the least disturbed one comes first."""

    others: float  # cores that other programs used meanwhile, on average
    rate: float  # batches a second


@dataclass(frozen=True)
class Load:
    """A dataset, and a training step. A batch is one sample."""

    name: str
    make: Callable[[int], int]
    train: Callable[[], None]

    def run(self, setting: Setting, batches: int) -> Ran:
        """Run one epoch, from the start of its workers to their end."""
        loader: Any = minidl.DataLoader(
            Samples(self.make, batches),
            num_workers=setting.num_workers,
            prefetch_factor=setting.prefetch_factor,
            in_order=setting.in_order,
        )
        gc.collect()
        begin, of_all, own = time.perf_counter(), used_by_all(), used_by_us()
        for _ in loader:
            self.train()
        seconds = time.perf_counter() - begin
        return Ran(max(0.0, used_by_all() - of_all - used_by_us() + own) / seconds, batches / seconds)

    def record(self, batches: int, directory: Path) -> tracing.Trace:
        """The least disturbed of a few recordings."""
        found = []
        for number in range(RECORDINGS):
            path = directory / f"{number}.trace"
            with tracing.record(path):
                ran = self.run(RECORDED, batches)
            found.append((ran, path))
        _, path = min(found)
        return tracing.load(path)


def used_by_all() -> float:
    """CPU seconds of the whole machine since it was started."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0))


def used_by_us() -> float:
    """CPU seconds of this process, and of its children that have ended."""
    return sum(os.times()[:4])


def quickly() -> None:
    time.sleep(0.001)


def slowly() -> None:
    compute(0.008)


LOADS = (
    Load("computes", computes, quickly),
    Load("sleeps", sleeps, quickly),
    Load("one in ten is slow", one_in_ten_is_slow, quickly),
    Load("slow training", is_quick, slowly),
)


@dataclass
class Predicted:
    """One load, in each setting."""

    load: str
    rates: dict[Setting, float]  # batches a second, as predicted
    best: Setting  # as predicted
    runs: dict[Setting, list[Ran]] = field(default_factory=dict)

    def undisturbed(self, setting: Setting) -> list[Ran]:
        """The half of its runs in which other programs used the cores least."""
        runs = sorted(self.runs[setting])
        return runs[: (len(runs) + 1) // 2]

    def measured(self, setting: Setting) -> float:
        """Batches a second."""
        return median(each.rate for each in self.undisturbed(setting))

    @property
    def others(self) -> float:
        """Cores that other programs used, on average, in the runs that count."""
        return mean(each.others for setting in self.runs for each in self.undisturbed(setting))

    @property
    def errors(self) -> dict[Setting, float]:
        """How far each prediction is off, as a share of what was measured."""
        return {setting: abs(self.rates[setting] / self.measured(setting) - 1) for setting in self.runs}

    @property
    def missed(self) -> float:
        """How much slower the setting predicted to be best is than the best one, 0 to 1."""
        return 1 - self.measured(self.best) / max(map(self.measured, self.runs))


def predict(load: Load, batches: int, directory: Path) -> Predicted:
    trace = load.record(batches, directory)
    found: WhatIf = whatif(trace, num_workers=WORKERS, prefetch_factor=PREFETCH)
    rates = {each.setting: each.batches_per_second for each in found.rows}
    return Predicted(load.name, rates, found.best.setting)


@contextlib.contextmanager
def on_all_cores() -> Iterator[None]:
    """Undo `loading.place_main`, by which main, and so its workers, would have a single core."""
    if not loading.CORES:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, loading.CORES)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def measure(batches: int, turns: int, loads: Iterable[Load] = LOADS) -> list[Predicted]:
    """Record each load once, predict the grid, and run it: all settings in turns, so that whatever else the machine
    does affects all of them."""
    results = []
    settings = [Setting(*pair) for pair in product(WORKERS, PREFETCH)]
    for load in loads:
        with tempfile.TemporaryDirectory() as directory, on_all_cores():
            result = predict(load, batches, Path(directory))
            for turn in range(turns):
                for setting in settings if turn % 2 == 0 else settings[::-1]:
                    result.runs.setdefault(setting, []).append(load.run(setting, batches))
        results.append(result)
    return results


def predicted(batches: int, turns: int) -> Table:
    """What was predicted from one recording with 2 workers and prefetch_factor=2, against what was measured. (The
    prediction knows nothing of other programs; a column shows how many cores they used.)"""
    columns = ("load", "median error", "worst error", "predicted best", "slower than the best by", "others use", "goal")
    table = Table("Predicted and measured batches a second, 1 to 4 workers × prefetch_factor 1 to 4", columns)
    results = measure(batches, turns)
    for result in results:
        errors = list(result.errors.values())
        best = f"{result.best.num_workers} × {result.best.prefetch_factor}"
        row = (result.load, f"{median(errors):.1%}", f"{max(errors):.1%}", best, f"{result.missed:.1%}")
        table.rows.append((*row, f"{result.others:.2f} cores", f"best: {verdict(result.missed, 0.05, at_most=True)}"))
    errors = [error for result in results for error in result.errors.values()]
    for name, value, goal in (("median", median(errors), 0.1), ("worst", max(errors), 0.25)):
        cells = [f"{value:.1%}" if name in column else "" for column in columns[1:-1]]
        table.rows.append((f"all: {name} error", *cells, verdict(value, goal, at_most=True)))
    return table
