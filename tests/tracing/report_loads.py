"""What small loads consist of, for tests of what a trace shows. At module level, so that spawned workers can import
what they need."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from pathlib import Path
from typing import Any

import minidl
import tracing
from minidl.world.simulated import sleep
from tests.samples import Samples, napping


class Makes(Samples):
    """A sample is its key. For each, `make` takes its time."""

    def __getitem__(self, key: int) -> int:
        super().__getitem__(key)
        return key


# ---- for the simulated machine


class Opens(Makes):
    """The first sample in each process takes longer."""

    is_open = False

    def __getitem__(self, index: int) -> int:
        if not self.is_open:
            sleep(0.3)
            self.is_open = True
        return super().__getitem__(index)


class SlowToPin:
    """A collate_fn: a batch with its own, slow pin_memory()."""

    def __init__(self, samples: list[int]) -> None:
        self.samples = samples

    def pin_memory(self) -> SlowToPin:
        sleep(0.02)
        return self


# ---- real samples


def one_in_ten_is_slow(index: int) -> int:
    time.sleep(0.15 if index % 10 == 7 else 0.005)
    return index


def main_is_killed(path: Path) -> tracing.Trace:
    """The trace of a process that is killed after six batches, in mid-epoch, with another epoch begun before."""

    def kills_itself() -> None:
        with tracing.record(path):
            other = iter(minidl.DataLoader(Samples(30)))
            next(other)
            for number, _batch in enumerate(minidl.DataLoader(Samples(30, napping(0.1)), num_workers=2), 1):
                if number == 6:
                    os.kill(os.getpid(), signal.SIGKILL)

    main = multiprocessing.get_context("fork").Process(target=kills_itself)
    main.start()
    main.join(60)
    assert main.exitcode == -signal.SIGKILL
    return tracing.load(path)


def record(
    path: Path,
    dataset: Any,
    step: float = 0.001,
    every: int = 1,
    epochs: int = 1,
    package: Any = minidl,
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
