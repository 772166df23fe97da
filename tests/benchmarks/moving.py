"""What moving a batch to main costs: torch's loader beside minidl's slots, and where torch's way ends."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from types import ModuleType
from typing import Any

import torch
import torch.utils.data

import minidl
from tests.benchmarks.loading import place_worker
from tests.benchmarks.turns import Comparison, in_turns

ROOT = Path(__file__).parents[2]
SAMPLE, STEP = 0.010, 0.025  # s; a sample computes for so long, a training step takes so long
LEAVES = (1, 4, 20)


class Computing(torch.utils.data.Dataset):
    """Each sample takes its worker's Python for 10 ms, as decoding or tokenising in Python does."""

    def __init__(self, leaves: int) -> None:
        self.leaves = leaves

    def __len__(self) -> int:
        return 1 << 40

    def __getitem__(self, key: int) -> Any:
        end = perf_counter() + SAMPLE
        while perf_counter() < end:
            pass
        return [torch.zeros(16) for _ in range(self.leaves)]


def seconds_in_next(package: ModuleType, leaves: int, batches: int, again: bool = False) -> float:
    """The median time of a next() whose batch is there already, while both workers compute others: the first after a
    training step, or (`again`) the next after that."""
    iterator = iter(package.DataLoader(Computing(leaves), num_workers=2, worker_init_fn=place_worker))
    taken = []
    for _ in range(batches):
        sleep(STEP)
        if again:
            next(iterator)
        begin = perf_counter()
        next(iterator)
        taken.append(perf_counter() - begin)
    return median(taken[batches // 10 :])


def compare_next(leaves: int, again: bool, batches: int, turns: int) -> Comparison:
    """Seconds in next(), torch first, minidl second."""

    def measure(package: ModuleType) -> Callable[[], float]:
        return lambda: seconds_in_next(package, leaves, batches, again)

    return in_turns(measure(torch.utils.data), measure(minidl), turns)


HOLDS = """
import sys, torch
import {package} as package
class Samples(torch.utils.data.Dataset):
    def __len__(self): return {batches}
    def __getitem__(self, key): return torch.full(({floats},), float(key))
if __name__ == "__main__":
    loader = package.DataLoader(Samples(), batch_size=1, num_workers=2)
    held = list(loader) if {hold} else [batch[0, 0].item() for batch in loader]
    print(len(held))
"""


def outcome(package: str, batches: int, floats: int, hold: bool, limit: str) -> str:
    """Whether a program gets all its batches under a limit of the system's, or the error it ends with."""
    program = HOLDS.format(package=package, batches=batches, floats=floats, hold=hold)
    command = ["sh", "-c", f'{limit} exec "$0" -c "$1"', sys.executable, program]
    command = ["unshare", "-m", *command] if "mount" in limit else command
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    if done.stdout.strip() == str(batches):
        return "passes"
    errors = [line for line in done.stderr.splitlines() if "Error" in line or "error" in line]
    return f"fails: {(errors or done.stderr.splitlines() or ['killed'])[-1].strip()[:110]}"


def small_shared_memory() -> str:
    """What gives a program a /dev/shm of 64 MB of its own; "" where the rights for that are missing."""
    limit = "mount -t tmpfs -o size=64m tmpfs /dev/shm &&"
    tried = subprocess.run(["unshare", "-m", "sh", "-c", f"{limit} true"], capture_output=True)
    return "" if tried.returncode else limit


class Growing(torch.utils.data.Dataset):
    """Samples of 1 to 64 KiB."""

    def __len__(self) -> int:
        return 256

    def __getitem__(self, key: int) -> Any:
        return torch.zeros(256 * (1 + key % 64))


def megabytes_left(epochs: int) -> tuple[float, float]:
    """Memory of main and both workers (MB), each page counted once: after a tenth of the epochs, and after all."""
    loader = minidl.DataLoader(
        Growing(), collate_fn=torch.cat, batch_sampler=Sizes(), num_workers=2, persistent_workers=True
    )
    found = []
    for epoch in range(1, epochs + 1):
        for _ in loader:
            pass
        if epoch in (epochs // 10, epochs):
            pids = ["self", *(worker.pid for worker in loader._iterator._workers)]
            found.append(sum(map(proportional, pids)) / 1e3)
    return found[0], found[1]


class Sizes:
    """Batches of 1 to 32 samples, from one to the next larger and smaller."""

    def __iter__(self) -> Any:
        sizes = itertools.cycle((1, 32, 4, 16, 2, 8))
        keys = iter(range(256))
        while batch := list(itertools.islice(keys, next(sizes))):
            yield batch


def proportional(pid: object) -> float:
    """A process's memory (kB), shared pages counted in part."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return float(line.split()[1])
    raise ValueError("no such line")
