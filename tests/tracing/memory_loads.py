"""Loads whose memory is measured, each in a process without pytest: `python -m tests.tracing.memory_loads NAME DIR`."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import minidl
import tracing

NAMES = 2_000_000  # strings of some 60 bytes


class Names(minidl.Dataset):
    """Each sample reads one of 100 parts of the names."""

    def __init__(self, names: list[str] | np.ndarray) -> None:
        self.names = names

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        part = self.names[index * NAMES // 100 : (index + 1) * NAMES // 100]
        time.sleep(0.01)
        return len(part) if isinstance(part, np.ndarray) else sum(map(len, part))


class Caching(minidl.Dataset):
    """Keeps a megabyte for each sample."""

    def __init__(self) -> None:
        self.cache: dict[int, bytes] = {}

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        time.sleep(0.01)
        self.cache[index] = os.urandom(1 << 20)
        return index


def objects() -> Any:
    return minidl.DataLoader(Names([f"image number {i} of many" for i in range(NAMES)]), 10, num_workers=1)


def array() -> Any:
    return minidl.DataLoader(Names(np.arange(NAMES)), 10, num_workers=1)


def caching() -> Any:
    return minidl.DataLoader(Caching(), 10, num_workers=1)


def small(step: float = 0.003) -> Any:
    """Batches that torch moves: each is an open file and a mapping."""
    data = torch.utils.data.TensorDataset(torch.arange(300))
    for (batch,) in minidl.DataLoader(data, batch_size=1, num_workers=1, transport="torch"):
        yield batch
        time.sleep(step)


def kept() -> Any:
    return list(small())


def copied() -> Any:
    return [batch.clone() for batch in small()]


def killed() -> Any:
    for number, _batch in enumerate(small(0.01)):
        if number == 60:
            os.kill(os.getpid(), signal.SIGKILL)
    return []


if __name__ == "__main__":
    name, directory = sys.argv[1:]
    with tracing.record(Path(directory), memory=True):
        for _batch in globals()[name]():
            pass
