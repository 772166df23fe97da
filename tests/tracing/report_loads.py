"""Small real loads, each with its own limit. At module level, so that spawned workers can import what they need."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import minidl
import tracing


class Samples(minidl.Dataset):
    """`n` samples; sample i is `make(i)`."""

    def __init__(self, n: int, make: Callable[[int], Any]) -> None:
        self.n, self.make = n, make

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> Any:
        return self.make(index)


class SlowSampler(minidl.Sampler):
    """Takes 10 ms for each key."""

    def __iter__(self) -> Any:
        for key in range(60):
            time.sleep(0.01)
            yield key

    def __len__(self) -> int:
        return 60


def quick(index: int) -> int:
    return index


def computes(index: int) -> int:
    end = time.thread_time() + 0.005
    while time.thread_time() < end:
        pass
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


def many_leaves(index: int) -> dict[str, torch.Tensor]:
    return {str(key): torch.zeros(2) for key in range(200)}


def fails(index: int) -> float:
    return index / 0


def no_such_image(index: int) -> int:
    if index == 9:
        raise KeyError("no such image")
    return index


def is_killed(index: int) -> int:
    if index == 9:
        os.kill(os.getpid(), signal.SIGKILL)
    return index


def kills_main(path: Path) -> None:
    """Body of a process: it is killed after six batches, in mid-epoch."""
    with tracing.record(path):
        for number, _batch in enumerate(minidl.DataLoader(Samples(30, waits), num_workers=2), 1):
            if number == 6:
                os.kill(os.getpid(), signal.SIGKILL)


def slow_start(worker_id: int) -> None:
    """A worker_init_fn: an expensive import, say."""
    time.sleep(0.4)


def starts_later(worker_id: int) -> None:
    """A worker_init_fn: all but worker 0 have something to do first."""
    time.sleep(0.3 * (worker_id > 0))


def record(
    path: Path, dataset: Any, step: float = 0.001, every: int = 1, epochs: int = 1, **options: Any
) -> tracing.Trace:
    """The trace of a training that takes `step` seconds after every so many batches, and none after the others."""
    with tracing.record(path):
        loader: minidl.DataLoader[Any] = minidl.DataLoader(dataset, **options)
        for _ in range(epochs):
            for number, _batch in enumerate(loader, 1):
                if number % every == 0:
                    time.sleep(step)
    return tracing.load(path)
