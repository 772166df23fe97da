"""What `tracing.whatif` predicts from one recording, beside what the same load really does in each setting."""

from __future__ import annotations

import collections
import gc
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from statistics import median
from typing import Any

import minidl
import tracing
from tests.benchmarks.table import Table, verdict
from tests.samples import Samples
from tracing.analysis.whatif.durations import Setting
from tracing.analysis.whatif.whatif import whatif

WORKERS = PREFETCH = (1, 2, 3, 4)
RECORDED = Setting(2, 2)


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


@dataclass(frozen=True)
class Load:
    """A dataset, and a training step. A batch is one sample."""

    name: str
    make: Callable[[int], int]
    train: Callable[[], None]

    def rate(self, setting: Setting, batches: int) -> float:
        """Batches a second in one epoch, from the start of its workers to their end."""
        loader: Any = minidl.DataLoader(
            Samples(batches, self.make), num_workers=setting.num_workers, prefetch_factor=setting.prefetch_factor
        )
        gc.collect()
        begin = time.perf_counter()
        for _ in loader:
            self.train()
        return batches / (time.perf_counter() - begin)


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
    runs: dict[Setting, list[float]] = field(default_factory=lambda: collections.defaultdict(list))  # as measured

    @property
    def errors(self) -> list[float]:
        """How far the prediction of each setting is off, as a share of what was measured."""
        return [abs(self.rates[setting] / median(rates) - 1) for setting, rates in self.runs.items()]

    @property
    def missed(self) -> float:
        """How much slower the setting predicted to be best is than the best one, 0 to 1."""
        return 1 - median(self.runs[self.best]) / max(map(median, self.runs.values()))


def predict(load: Load, batches: int) -> Predicted:
    """From one recording of it."""
    with tempfile.TemporaryDirectory() as directory:
        with tracing.record(directory):
            load.rate(RECORDED, batches)
        found = whatif(tracing.load(directory), num_workers=WORKERS, prefetch_factor=PREFETCH)
    rates = {each.setting: each.batches_per_second for each in found.rows}
    return Predicted(load.name, rates, found.best.setting)


def measure(load: Load, batches: int, turns: int) -> Predicted:
    """Predict the grid and run it: all settings in turns, so that whatever else the machine does affects all of
    them."""
    result = predict(load, batches)
    settings = [Setting(*pair) for pair in product(WORKERS, PREFETCH)]
    for turn in range(turns):
        for setting in settings if turn % 2 == 0 else settings[::-1]:
            result.runs[setting].append(load.rate(setting, batches))
    return result


def predicted(batches: int, turns: int) -> Table:
    """What was predicted from one recording with 2 workers and prefetch_factor=2, against what was measured."""
    columns = ("load", "median error", "worst error", "predicted best", "slower than the best by", "goal")
    table = Table("Predicted and measured batches a second, 1 to 4 workers × prefetch_factor 1 to 4", columns)
    errors = []
    for load in LOADS:
        result = measure(load, batches, turns)
        errors += result.errors
        best = f"{result.best.num_workers} × {result.best.prefetch_factor}"
        off = f"{median(result.errors):.1%}", f"{max(result.errors):.1%}"
        judged = f"best: {verdict(result.missed, 0.05, at_most=True)}"
        table.rows.append((load.name, *off, best, f"{result.missed:.1%}", judged))
    middle, worst = median(errors), max(errors)
    table.rows.append(("all: median error", f"{middle:.1%}", *[""] * 3, verdict(middle, 0.1, at_most=True)))
    table.rows.append(("all: worst error", "", f"{worst:.1%}", *[""] * 2, verdict(worst, 0.25, at_most=True)))
    return table
