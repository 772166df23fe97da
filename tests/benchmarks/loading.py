"""torch's loader and minidl's, side by side: batches a second, and the time to the first one."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from statistics import median
from time import perf_counter
from typing import Any

import torch
import torch.utils.data

import minidl
from tests.benchmarks.turns import Comparison, in_turns

SKIPPED = 8  # batches before the clock starts: more than were prefetched while the workers started


class MadeAlready(torch.utils.data.Dataset):
    """Any number of samples, all of them the same object."""

    def __init__(self, sample: Any) -> None:
        self.sample = sample

    def __len__(self) -> int:
        return 1 << 40

    def __getitem__(self, key: int) -> Any:
        return self.sample


@dataclass(frozen=True)
class Cell:
    """What a batch is made of."""

    name: str
    batch_size: int
    sample: Any
    goal: float  # with two workers, as a multiple of torch's speed
    of_limit: float = 0  # the goal with two workers, as a share of the speed in limit.py


ROW = torch.arange(10, dtype=torch.float32)
SMALLEST = Cell("1 row of 10 floats", 1, ROW, 10, 0.3)
CELLS = (
    SMALLEST,
    Cell("8 rows of 10 floats", 8, ROW, 10, 0.3),
    Cell("4 samples of 100 leaves", 4, {f"leaf {n}": ROW for n in range(100)}, 40),
    Cell("32 images of 3×64×64", 32, torch.zeros(3, 64, 64), 6, 0.5),
    Cell("32 images of 3×224×224", 32, torch.zeros(3, 224, 224), 4, 0.9),
)
WORKERS = (0, 1, 2, 4)


CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def place_main() -> None:
    """Give main the first core. Otherwise the system may put a worker on main's core or on its own: the difference,
    1,700 or 2,700 small batches a second for either loader, would drown everything else."""
    if len(CORES) > 1:
        os.sched_setaffinity(0, CORES[:1])


def place_worker(worker_id: int) -> None:
    """Give the workers the other cores, in turn."""
    if len(CORES) > 1:
        os.sched_setaffinity(0, {CORES[1 + worker_id % (len(CORES) - 1)]})


def open_loader(package: Any, cell: Cell, num_workers: int) -> Iterator[Any]:
    """A new iterator over a loader of `package`: torch.utils.data or minidl."""
    dataset = MadeAlready(cell.sample)
    return iter(package.DataLoader(dataset, cell.batch_size, num_workers=num_workers, worker_init_fn=place_worker))


def seconds_per_batch(package: Any, cell: Cell, num_workers: int, batches: int, held: int = 0) -> float:
    """The mean over `batches` batches of a loader in full swing, without starting and stopping it. The last `held`
    batches are kept, so that each is made in other memory than these."""
    iterator = open_loader(package, cell, num_workers)
    kept = deque(islice(iterator, SKIPPED), maxlen=held)
    begin = perf_counter()
    kept.extend(islice(iterator, batches))
    return (perf_counter() - begin) / batches


def seconds_to_first_batch(package: Any, cell: Cell, num_workers: int) -> float:
    """From asking for an iterator to having a batch."""
    begin = perf_counter()
    iterator = open_loader(package, cell, num_workers)
    next(iterator)
    return perf_counter() - begin


def batches_within(seconds: float, package: Any, cell: Cell, num_workers: int) -> int:
    """How many batches it loads in `seconds`, starting included; at least 8. This also warms it up: a process's first
    large batches take many times as long as later ones, whose memory is mapped already."""
    batches, end = 0, perf_counter() + seconds
    iterator = open_loader(package, cell, num_workers)
    while perf_counter() < end:
        next(iterator)
        batches += 1
    return max(8, batches)


def compare_throughput(cell: Cell, num_workers: int, seconds: float, turns: int) -> Comparison:
    """Seconds a batch, torch first, minidl second. Each takes about `seconds` in a turn."""
    batches = [batches_within(seconds, package, cell, num_workers) for package in (torch.utils.data, minidl)]
    measure = partial(seconds_per_batch, cell=cell, num_workers=num_workers)
    first = partial(measure, torch.utils.data, batches=batches[0])
    return in_turns(first, partial(measure, minidl, batches=batches[1]), turns)


def seconds_kept(cell: Cell, held: int, seconds: float, turns: int) -> float:
    """Seconds a batch without workers, while the last `held` batches are kept: the median of `turns`."""
    batches = batches_within(seconds, minidl, cell, 0)
    return median(seconds_per_batch(minidl, cell, 0, batches, held) for _ in range(turns))


def compare_first_batch(num_workers: int, turns: int, cell: Cell = SMALLEST) -> Comparison:
    """Seconds to the first batch, torch first, minidl second."""
    measure = partial(seconds_to_first_batch, cell=cell, num_workers=num_workers)
    measure(minidl)  # imports what both import on first use
    measure(torch.utils.data)
    return in_turns(partial(measure, torch.utils.data), partial(measure, minidl), turns)
