"""torch's loader and minidl's, side by side: batches a second, and the time to the first one."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from time import perf_counter
from types import ModuleType
from typing import Any

import torch
import torch.utils.data

import minidl
from tests.benchmarks.turns import Comparison, in_turns

SKIPPED = 8  # batches before the clock starts: more than were prefetched while the workers started


class MadeAlready(torch.utils.data.Dataset):
    """As many samples as anybody asks for, all of them the same object."""

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


ROW = torch.arange(10, dtype=torch.float32)
SMALLEST = Cell("1 row of 10 floats", 1, ROW)
CELLS = (
    SMALLEST,
    Cell("8 rows of 10 floats", 8, ROW),
    Cell("4 samples of 100 leaves", 4, {f"leaf {n}": ROW for n in range(100)}),
    Cell("32 images of 3×64×64", 32, torch.zeros(3, 64, 64)),
    Cell("32 images of 3×224×224", 32, torch.zeros(3, 224, 224)),
)
WORKERS = (0, 1, 2)


CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def place_main() -> None:
    """Give main the first core. Left to itself the system puts a worker now beside main and now on a core of its own,
    which decides between 1,700 and 2,700 small batches a second, for either loader, and would drown the rest."""
    if len(CORES) > 1:
        os.sched_setaffinity(0, CORES[:1])


def place_worker(worker_id: int) -> None:
    """Give the workers the other cores, in turn."""
    if len(CORES) > 1:
        os.sched_setaffinity(0, {CORES[1 + worker_id % (len(CORES) - 1)]})


def open_loader(package: ModuleType, cell: Cell, num_workers: int) -> Iterator[Any]:
    """A new iterator over a loader of `package`: torch.utils.data or minidl."""
    dataset = MadeAlready(cell.sample)
    return iter(package.DataLoader(dataset, cell.batch_size, num_workers=num_workers, worker_init_fn=place_worker))


def seconds_per_batch(package: ModuleType, cell: Cell, num_workers: int, batches: int) -> float:
    """The mean over `batches` batches of a loader in full swing. Starting and stopping it is not in it."""
    iterator = open_loader(package, cell, num_workers)
    deque(islice(iterator, SKIPPED), maxlen=0)
    begin = perf_counter()
    deque(islice(iterator, batches), maxlen=0)
    return (perf_counter() - begin) / batches


def seconds_to_first_batch(package: ModuleType, cell: Cell, num_workers: int) -> float:
    """From asking for an iterator to holding a batch."""
    begin = perf_counter()
    iterator = open_loader(package, cell, num_workers)
    next(iterator)
    return perf_counter() - begin


def batches_within(seconds: float, package: ModuleType, cell: Cell, num_workers: int) -> int:
    """How many batches it loads in `seconds`, starting included; at least 8. This also warms it up: the first large
    batches of a process take many times as long as later ones, which find their memory mapped already."""
    batches, end = 0, perf_counter() + seconds
    iterator = open_loader(package, cell, num_workers)
    while perf_counter() < end:
        next(iterator)
        batches += 1
    return max(8, batches)


def compare_throughput(cell: Cell, num_workers: int, seconds: float, turns: int) -> Comparison:
    """torch first, minidl second: seconds a batch. A turn takes each about `seconds`."""
    batches = min(batches_within(seconds, package, cell, num_workers) for package in (minidl, torch.utils.data))
    measure = partial(seconds_per_batch, cell=cell, num_workers=num_workers, batches=batches)
    return in_turns(partial(measure, torch.utils.data), partial(measure, minidl), turns)


def compare_first_batch(num_workers: int, turns: int) -> Comparison:
    """torch first, minidl second: seconds until the first of the smallest batches is there."""
    measure = partial(seconds_to_first_batch, cell=SMALLEST, num_workers=num_workers)
    measure(minidl)  # what either imports on first use (both stand on the same modules) falls on neither
    measure(torch.utils.data)
    return in_turns(partial(measure, torch.utils.data), partial(measure, minidl), turns)
