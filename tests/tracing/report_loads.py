"""What small loads consist of, for tests of what a trace shows. At module level, so that spawned workers can import
what they need."""

from __future__ import annotations

import importlib
import multiprocessing
import multiprocessing.util
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

import minidl
import tracing
from minidl.world.simulated import sleep
from minidl.world.simulated.machine import current_machine


class Samples(minidl.Dataset):
    """`n` samples; sample i is `make(i)`."""

    def __init__(self, n: int, make: Callable[[int], Any]) -> None:
        self.n, self.make = n, make

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> Any:
        return self.make(index)


class Makes(minidl.Dataset[int]):
    """`n` samples; for each `make` takes its time."""

    def __init__(self, n: int, make: Callable[[int], None]) -> None:
        self.n, self.make = n, make

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> int:
        self.make(index)
        return index


def expensive_import() -> None:
    """Import a module that takes long, once in each process."""
    importlib.import_module("tests.tracing.expensive")


# ---- for the simulated machine


class Opens(Makes):
    """The first sample in each process takes longer."""

    is_open = False

    def __getitem__(self, index: int) -> int:
        if not self.is_open:
            sleep(0.3)
            self.is_open = True
        return super().__getitem__(index)


class Quota(Makes):
    """A sample comes every 10 ms, whichever worker asks for it."""

    def __getitem__(self, index: int) -> int:
        machine: Any = current_machine()
        now = machine.world.now()
        machine.taken = max(now, getattr(machine, "taken", 0.0)) + 0.01
        sleep(machine.taken - now)
        return index


class Stream(minidl.IterableDataset[int]):
    """So many samples of worker 0, and of every other worker; before the first it fills a buffer."""

    def __init__(self, first: int, others: int, each: float = 0.01, before: float = 0.0) -> None:
        self.first, self.others, self.each, self.before = first, others, each, before

    def __iter__(self) -> Iterator[int]:
        sleep(self.before)
        info = minidl.get_worker_info()
        for index in range(self.first if info is None or info.id == 0 else self.others):
            sleep(self.each)
            yield index


class SlowToPin:
    """A collate_fn: a batch with its own, slow pin_memory()."""

    def __init__(self, samples: list[int]) -> None:
        self.samples = samples

    def pin_memory(self) -> SlowToPin:
        sleep(0.02)
        return self


# ---- real samples


def quick(index: int) -> int:
    return index


def waits(index: int) -> int:
    time.sleep(0.02)
    return index


def waits_long(index: int) -> int:
    time.sleep(0.055)
    return index


def one_in_ten_is_slow(index: int) -> int:
    time.sleep(0.15 if index % 10 == 7 else 0.005)
    return index


def fails(index: int) -> float:
    return index / 0


def no_such_image(index: int) -> int:
    if index == 9:
        raise KeyError("no such image")
    return index


def uneven(index: int) -> torch.Tensor:
    """Sample 10 is longer than the others."""
    return torch.zeros(2 if index == 10 else 1)


def is_killed(index: int) -> int:
    if index == 9:
        os.kill(os.getpid(), signal.SIGKILL)
    return index


def main_is_killed(path: Path) -> tracing.Trace:
    """The trace of a process that is killed after six batches, in mid-epoch."""
    main = multiprocessing.get_context("fork").Process(target=_kills_itself, args=(path,))
    main.start()
    main.join(60)
    assert main.exitcode == -signal.SIGKILL
    return tracing.load(path)


def _kills_itself(path: Path) -> None:
    with tracing.record(path):
        for number, _batch in enumerate(minidl.DataLoader(Samples(30, waits), num_workers=2), 1):
            if number == 6:
                os.kill(os.getpid(), signal.SIGKILL)


def record(
    path: Path,
    dataset: Any,
    step: float = 0.001,
    every: int = 1,
    epochs: int = 1,
    package: ModuleType | Any = minidl,
    **options: Any,
) -> tracing.Trace:
    """The trace of a training that takes `step` seconds after every `every`-th batch, and no time after the others."""
    with tracing.record(path):
        loader = package.DataLoader(dataset, **options)
        for _ in range(epochs):
            for number, _batch in enumerate(loader, 1):
                if number % every == 0:
                    time.sleep(step)
    return tracing.load(path)
