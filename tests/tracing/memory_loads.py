"""Loads whose memory is measured, each in a process without pytest. How far one is when it is sampled does not depend
on the machine: it waits for its samples.

    python -m tests.tracing.memory_loads DIR     records them all, at once, into DIR/NAME
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tracing
from minidl import DataLoader
from tests.samples import Samples
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


def reads(names: Any, index: int) -> int:
    """The sample is how long one of 100 parts of the names is."""
    part = names[index * NAMES // 100 : (index + 1) * NAMES // 100]
    wait_for_samples(index % 10 == 0)
    return len(part) if isinstance(part, np.ndarray) else sum(map(len, part))


def keeps(cache: dict[int, bytes], index: int) -> int:
    """A megabyte for each sample."""
    wait_for_samples(index % 10 == 0)
    cache[index] = os.urandom(1 << 20)
    return index


def loader_of(make: Callable[[Any, int], int], of: Any) -> Any:
    return DataLoader(Samples(100, functools.partial(make, of)), 10, num_workers=1)


def objects() -> Any:
    return loader_of(reads, [f"image number {i} of many" for i in range(NAMES)])


def array() -> Any:
    return loader_of(reads, np.arange(NAMES))


def caching() -> Any:
    return loader_of(keeps, {})


LOADS: dict[str, Callable[[], Any]] = {each.__name__: each for each in (objects, array, caching)}


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
