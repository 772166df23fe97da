"""What it costs that a loader can be stopped in the middle and go on: minidl's StatefulDataLoader beside the plain one
and beside torchdata's; and a call of `state_dict()`."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from statistics import median
from time import perf_counter
from typing import Any

import torchdata.stateful_dataloader

import minidl
from tests.benchmarks.loading import CELLS, SKIPPED, Cell, MadeAlready, place_worker
from tests.benchmarks.table import Table, ratio, verdict
from tests.benchmarks.turns import Comparison, in_turns

# What it stands beside, and how many times as fast it should be.
OTHERS: dict[str, tuple[Any, float]] = {
    "the plain loader": (minidl.DataLoader, 0.95),
    "torchdata's": (torchdata.stateful_dataloader.StatefulDataLoader, 3.0),
}


def open_loader(kind: Any, cell: Cell, num_workers: int) -> Any:
    return kind(MadeAlready(cell.sample), cell.batch_size, num_workers=num_workers, worker_init_fn=place_worker)


def seconds_per_batch(kind: Any, cell: Cell, num_workers: int, batches: int) -> float:
    """The mean over `batches` batches of a loader in full swing."""
    iterator = iter(open_loader(kind, cell, num_workers))
    deque(islice(iterator, SKIPPED), maxlen=0)
    begin = perf_counter()
    deque(islice(iterator, batches), maxlen=0)
    return (perf_counter() - begin) / batches


def compare(other: Any, cell: Cell, workers: int, seconds: float, turns: int) -> Comparison:
    """Seconds a batch: the other's loader first, minidl's StatefulDataLoader second. Each takes about `seconds` in a
    turn."""
    sides = []
    for kind in (other, minidl.StatefulDataLoader):
        measure = partial(seconds_per_batch, kind, cell, workers)
        sides.append(partial(measure, batches=max(SKIPPED, int(seconds / measure(batches=20 * SKIPPED)))))
    return in_turns(*sides, turns)


def seconds_in_state_dict(cell: Cell, num_workers: int, calls: int) -> list[float]:
    """Of each call, in the middle of an epoch, while the workers make batches."""
    loader = open_loader(minidl.StatefulDataLoader, cell, num_workers)
    taken = []
    for _ in islice(loader, calls):
        begin = perf_counter()
        loader.state_dict()
        taken.append(perf_counter() - begin)
    return taken


def tables(seconds: float, turns: int, calls: int, progress: Callable[[str], None]) -> Iterator[Table]:
    made_of = "a batch", "workers"
    for words, (other, goal) in OTHERS.items():
        rates = f"{words}, batches/s", "StatefulDataLoader, batches/s"
        table = Table(f"`minidl.StatefulDataLoader` beside {words}", (*made_of, *rates, "ratio", "quartiles", "goal"))
        for cell, workers in itertools.product([*CELLS[:2], CELLS[3]], (0, 1, 2)):
            progress(f"stopping, beside {words}: {cell.name}, {workers} workers")
            taken = compare(other, cell, workers, seconds, turns)
            rates = f"{1 / taken.median_first:,.0f}", f"{1 / taken.median_second:,.0f}"
            table.rows.append((cell.name, str(workers), *rates, *ratio(taken, goal)))
        yield table
    table = Table("`state_dict()` in the middle of an epoch", (*made_of, "median, ms", "worst, ms", "goal, at most"))
    for workers in (0, 1, 4):
        progress(f"state_dict(), {workers} workers")
        times = [1e3 * seconds for seconds in seconds_in_state_dict(CELLS[1], workers, calls)]
        judged = verdict(median(times), 1, at_most=True)
        table.rows.append((CELLS[1].name, str(workers), f"{median(times):.2f}", f"{max(times):.2f}", judged))
    yield table
