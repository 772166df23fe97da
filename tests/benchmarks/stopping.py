"""What it costs that a loader can be stopped in the middle and go on: the snapshot after every batch, `state_dict()`,
and torchdata's StatefulDataLoader beside it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from statistics import median
from time import perf_counter
from typing import Any

import torch.utils.data
import torchdata.stateful_dataloader as torchdata

import minidl
from tests.benchmarks.loading import CELLS, SKIPPED, Cell, MadeAlready, place_worker
from tests.benchmarks.table import Table, ratio, verdict
from tests.benchmarks.turns import Comparison, in_turns

SELDOM = 1000  # batches from one snapshot to the next
MADE_OF = "a batch", "samples", "workers"


class Augmented(MadeAlready):
    """Each sample draws a random number from torch's generator, as augmentation does: its state changes."""

    def __getitem__(self, key: int) -> Any:
        torch.rand(())
        return self.sample


DATASETS: dict[str, Callable[[Any], Any]] = {"the same": MadeAlready, "random": Augmented}


def open_loader(package: Any, dataset: Any, cell: Cell, num_workers: int, every: int) -> Any:
    """A new loader of minidl or torchdata with a snapshot after `every` batches."""
    options = {"num_workers": num_workers, "worker_init_fn": place_worker, "snapshot_every_n_steps": every}
    return package.StatefulDataLoader(dataset, cell.batch_size, **options)


def seconds_per_batch(package: Any, dataset: Any, cell: Cell, num_workers: int, every: int, batches: int) -> float:
    """The mean over `batches` batches of a loader in full swing."""
    iterator = iter(open_loader(package, dataset, cell, num_workers, every))
    for _ in islice(iterator, SKIPPED):
        pass
    begin = perf_counter()
    for _ in islice(iterator, batches):
        pass
    return (perf_counter() - begin) / batches


def compare(other: Any, every: int, kind: str, cell: Cell, workers: int, seconds: float, turns: int) -> Comparison:
    """Seconds a batch: the other's loader with a snapshot after `every` batches, then minidl's with one after each.
    Each takes about `seconds` in a turn."""
    dataset = DATASETS[kind](cell.sample)
    sides = []
    for package, steps in ((other, every), (minidl, 1)):
        measure = partial(seconds_per_batch, package, dataset, cell, workers, steps)
        sides.append(partial(measure, batches=max(SKIPPED, int(seconds / measure(batches=20 * SKIPPED)))))
    return in_turns(*sides, turns)


def seconds_in_state_dict(cell: Cell, num_workers: int, calls: int) -> list[float]:
    """Of each call, in the middle of an epoch, while the workers make batches with random numbers in them."""
    loader = open_loader(minidl, Augmented(cell.sample), cell, num_workers, 1)
    taken = []
    for _ in islice(loader, calls):
        begin = perf_counter()
        loader.state_dict()
        taken.append(perf_counter() - begin)
    return taken


def tables(seconds: float, turns: int, calls: int, progress: Callable[[str], None]) -> Iterator[Table]:
    for other, every, words, goal, cells, kinds in (
        (minidl, SELDOM, f"minidl, after {SELDOM:,}", 0.95, [*CELLS[:2], CELLS[3]], DATASETS),
        (torchdata, 1, "torchdata, after each", 3.0, CELLS[:2], ["the same"]),
    ):
        rates = f"{words}, batches/s", "minidl, after each, batches/s"
        table = Table(f"A snapshot after each batch, beside {words}", (*MADE_OF, *rates, "ratio", "quartiles", "goal"))
        for cell, kind, workers in itertools.product(cells, kinds, (0, 1, 2, 4)):
            progress(f"snapshots: {cell.name}, {kind}, {workers} workers")
            taken = compare(other, every, kind, cell, workers, seconds, turns)
            rates = f"{1 / taken.median_first:,.0f}", f"{1 / taken.median_second:,.0f}"
            table.rows.append((cell.name, kind, str(workers), *rates, *ratio(taken, goal)))
        yield table
    table = Table("`state_dict()` in the middle of an epoch", (*MADE_OF, "median, ms", "worst, ms", "goal, at most"))
    for workers in (0, 1, 4):
        progress(f"state_dict(), {workers} workers")
        times = [1e3 * seconds for seconds in seconds_in_state_dict(CELLS[1], workers, calls)]
        judged = verdict(median(times), 1, at_most=True)
        table.rows.append((CELLS[1].name, "random", str(workers), f"{median(times):.2f}", f"{max(times):.2f}", judged))
    yield table
