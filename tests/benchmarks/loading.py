"""Two loaders side by side: batches a second, and the time to the first one."""

from __future__ import annotations

import os
from collections import deque
from dataclasses import dataclass
from functools import partial
from itertools import islice
from time import perf_counter
from typing import Any

import torch
import torch.utils.data

import minidl
from tests.benchmarks.turns import Comparison, in_turns

SKIPPED = 8  # batches before the clock starts: more than were prefetched while the workers started
BOTH = torch.utils.data.DataLoader, minidl.DataLoader


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
SMALL = Cell("8 rows of 10 floats", 8, ROW, 10, 0.3)
CELLS = (
    SMALLEST,
    SMALL,
    Cell("4 samples of 100 leaves", 4, {f"leaf {n}": ROW for n in range(100)}, 40),
    Cell("32 images of 3×64×64", 32, torch.zeros(3, 64, 64), 6, 0.5),
    Cell("32 images of 3×224×224", 32, torch.zeros(3, 224, 224), 4, 0.9),
)


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


def open_loader(kind: Any, cell: Cell, num_workers: int) -> Any:
    """A new loader of this kind: torch's DataLoader, minidl's or one of its subclasses."""
    return kind(MadeAlready(cell.sample), cell.batch_size, num_workers=num_workers, worker_init_fn=place_worker)


def seconds_per_batch(kind: Any, cell: Cell, num_workers: int, batches: int) -> float:
    """The mean over `batches` batches of a loader in full swing, without starting and stopping it."""
    iterator = iter(open_loader(kind, cell, num_workers))
    deque(islice(iterator, SKIPPED), maxlen=0)
    begin = perf_counter()
    deque(islice(iterator, batches), maxlen=0)
    return (perf_counter() - begin) / batches


def seconds_to_first_batch(kind: Any, cell: Cell, num_workers: int) -> float:
    """From asking for an iterator to having a batch."""
    begin = perf_counter()
    iterator = iter(open_loader(kind, cell, num_workers))
    next(iterator)
    return perf_counter() - begin


def batches_within(seconds: float, kind: Any, cell: Cell, num_workers: int) -> int:
    """How many batches it loads in `seconds`, starting included; at least 8. This also warms it up: a process's first
    large batches take many times as long as later ones, whose memory is mapped already."""
    batches, end = 0, perf_counter() + seconds
    iterator = iter(open_loader(kind, cell, num_workers))
    while perf_counter() < end:
        next(iterator)
        batches += 1
    return max(8, batches)


def compare_throughput(kinds: tuple[Any, Any], cell: Cell, num_workers: int, seconds: float, turns: int) -> Comparison:
    """Seconds a batch. Each takes about `seconds` in a turn."""
    first, second = (
        partial(seconds_per_batch, kind, cell, num_workers, batches_within(seconds, kind, cell, num_workers))
        for kind in kinds
    )
    return in_turns(first, second, turns)


def compare_first_batch(cell: Cell, num_workers: int, turns: int) -> Comparison:
    """Seconds to the first batch, torch first, minidl second."""
    first, second = (partial(seconds_to_first_batch, kind, cell, num_workers) for kind in BOTH)
    second()  # imports what both import on first use
    first()
    return in_turns(first, second, turns)


def seconds_in_state_dict(cell: Cell, num_workers: int, calls: int) -> list[float]:
    """Of each call, in the middle of an epoch, while the workers make batches."""
    loader = open_loader(minidl.StatefulDataLoader, cell, num_workers)
    taken = []
    for _ in islice(loader, calls):
        begin = perf_counter()
        loader.state_dict()
        taken.append(perf_counter() - begin)
    return taken
