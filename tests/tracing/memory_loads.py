"""Loads whose memory is measured, each in a process without pytest. How far one is when it is sampled does not depend
on the machine: it waits for its samples.

    python -m tests.tracing.memory_loads DIR     records them all, at once, into DIR/NAME
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import minidl
import tracing
from tracing.recording import file_format as fmt

DIRECTORY = Path(sys.argv[-1])  # of all; in the process of a load, its own
NAMES = 2_000_000  # strings of some 60 bytes


def wait_for_samples(number: int) -> None:
    """Of this process. All but the first one begin after this does."""

    def taken() -> int:
        (own,) = DIRECTORY.glob(f"cpu-{os.getpid()}-*")
        return own.stat().st_size // fmt.SAMPLE.size

    enough = taken() + number
    while taken() < enough:
        time.sleep(0.005)


class Names(minidl.Dataset):
    """Each sample reads one of 100 parts of the names."""

    def __init__(self, names: list[str] | np.ndarray) -> None:
        self.names = names

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        part = self.names[index * NAMES // 100 : (index + 1) * NAMES // 100]
        wait_for_samples(index % 10 == 0)
        return len(part) if isinstance(part, np.ndarray) else sum(map(len, part))


class Caching(minidl.Dataset):
    """Keeps a megabyte for each sample."""

    def __init__(self) -> None:
        self.cache: dict[int, bytes] = {}

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        wait_for_samples(index % 10 == 0)
        self.cache[index] = os.urandom(1 << 20)
        return index


def objects() -> Any:
    return minidl.DataLoader(Names([f"image number {i} of many" for i in range(NAMES)]), 10, num_workers=1)


def array() -> Any:
    return minidl.DataLoader(Names(np.arange(NAMES)), 10, num_workers=1)


def caching() -> Any:
    return minidl.DataLoader(Caching(), 10, num_workers=1)


def small() -> Any:
    """Batches that torch moves: each is an open file and a mapping."""
    data = torch.utils.data.TensorDataset(torch.arange(300))
    loader = minidl.DataLoader(data, batch_size=1, num_workers=1, transport="torch")
    for number, (batch,) in enumerate(loader, 1):
        yield batch
        if number % 60 == 0:
            wait_for_samples(3)


def kept() -> Any:
    return list(small())


def copied() -> Any:
    return [batch.clone() for batch in small()]


LOADS: dict[str, Callable[[], Any]] = {each.__name__: each for each in (objects, array, caching, kept, copied)}


def record(name: str) -> None:
    global DIRECTORY
    DIRECTORY /= name
    with tracing.record(DIRECTORY, memory=True):
        for _batch in LOADS[name]():
            pass


if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    loads = [context.Process(target=record, args=(name,)) for name in LOADS]
    for each in loads:
        each.start()
    for each in loads:
        each.join()
