"""The cost of recording to the loader, and of reading a long trace."""

from __future__ import annotations

import random
import tempfile
import timeit
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median
from time import perf_counter

import torch.utils.data

import minidl
import tracing
from minidl import events
from tests.benchmarks.loading import SMALLEST, batches_within, seconds_per_batch
from tests.benchmarks.turns import Comparison, in_turns


def compare_recording(num_workers: int, seconds: float, turns: int) -> Comparison:
    """Seconds for each of the smallest batches: minidl alone first, minidl recorded second."""
    batches = batches_within(seconds, minidl.DataLoader, SMALLEST, num_workers)
    alone = partial(seconds_per_batch, minidl.DataLoader, SMALLEST, num_workers, batches)

    def recorded() -> float:
        with tempfile.TemporaryDirectory() as trace, tracing.record(trace):
            return alone()

    return in_turns(alone, recorded, turns)


def ns_per_emit(calls: int) -> float:
    """Nanoseconds for an `emit` as the loader calls it: the best of five loops of `calls`, less an empty loop."""
    call = "emit(PUT, 1, 3, 0, 1)"
    names = {"emit": events.emit, "PUT": events.PUT}
    loops = timeit.repeat(call, globals=names, number=calls, repeat=5)
    empty = timeit.repeat("pass", number=calls, repeat=5)
    return (min(loops) - min(empty)) / calls * 1e9


def ns_per_recorded_emit(calls: int) -> float:
    """The same with a recorder, in ns."""
    with tempfile.TemporaryDirectory() as trace, tracing.record(trace):
        return ns_per_emit(calls)


class Numbers(torch.utils.data.IterableDataset):
    """Plain ints, which cross a pipe quickly: many events a second."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(1 << 40))


EVENTS_PER_BATCH = 20  # with two workers, without the waits


def record_events(directory: Path, count: int) -> None:
    """Record at least `count` events into `directory`, and about a tenth more."""
    batches = -(-count // EVENTS_PER_BATCH)
    with tracing.record(directory):
        deque(islice(minidl.DataLoader(Numbers(), batch_size=None, num_workers=2), batches), maxlen=0)


@dataclass(frozen=True)
class Reading:
    """How long it took to read a trace."""

    events: int
    load: float  # seconds to load and sort it: the median of three
    state: float  # seconds for the state after any event: the worst of twenty


def read(directory: Path) -> Reading:
    """Load the trace in `directory` three times, and ask for its state after twenty random events."""
    loads = []
    for _ in range(3):
        begin = perf_counter()
        trace = tracing.load(directory)
        count = len(trace.events)
        loads.append(perf_counter() - begin)
    draw, states = random.Random(0), []
    for _ in range(20):
        k = draw.randrange(count)
        begin = perf_counter()
        trace.state(k)
        states.append(perf_counter() - begin)
    return Reading(count, median(loads), max(states))
