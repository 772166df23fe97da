"""How long main is in `next()` while both workers compute in Python: torch's loader beside minidl's."""

from __future__ import annotations

from functools import partial
from statistics import median
from time import perf_counter, sleep
from typing import Any

import torch
import torch.utils.data

from tests.benchmarks.loading import BOTH, place_worker
from tests.benchmarks.turns import Comparison, in_turns
from tests.samples import Samples

SAMPLE, STEP = 0.010, 0.025  # s; a sample computes for so long, a training step takes so long
LEAVES = (1, 4, 20)


def computed(leaves: int, key: int) -> Any:
    """Each sample takes its worker's Python for 10 ms, as decoding or tokenising in Python does."""
    end = perf_counter() + SAMPLE
    while perf_counter() < end:
        pass
    return [torch.zeros(16) for _ in range(leaves)]


def seconds_in_next(kind: Any, leaves: int, batches: int, again: bool) -> float:
    """The median time of a next() whose batch is there already, while both workers compute others: the first after a
    training step, or (`again`) the next after that."""
    iterator = iter(kind(Samples(1 << 40, partial(computed, leaves)), num_workers=2, worker_init_fn=place_worker))
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
    first, second = (partial(seconds_in_next, kind, leaves, batches, again) for kind in BOTH)
    return in_turns(first, second, turns)
