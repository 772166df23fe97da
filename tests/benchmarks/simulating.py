"""How many schedules a second the simulated world runs on one core, and whether its memory stays flat."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from time import perf_counter

import psutil

from minidl.world.simulated import explore, explore_by_chance
from tests.minidl.simulated.programs import load

WARM_UP = 500  # schedules, before anything is measured


@dataclass(frozen=True)
class Simulated:
    """How the smallest program (2 workers, 3 tasks) did."""

    schedules: int
    seconds: float  # for all of them, random ones
    exhausted: float  # schedules a second of an exploration, which also hashes states
    grown: float  # megabytes of resident memory more than after the warm-up


def measure(schedules: int, delays: int = 2) -> Simulated:
    """Run `schedules` random ones, without faults (a run that is cut short takes less), and all with so many delays."""
    explore_by_chance(load, min(WARM_UP, schedules), draws=False)
    gc.collect()
    process = psutil.Process()
    before, begin = process.memory_info().rss, perf_counter()
    explore_by_chance(load, schedules, seed=WARM_UP, draws=False)
    seconds = perf_counter() - begin
    gc.collect()
    grown = (process.memory_info().rss - before) / 1e6
    begin = perf_counter()
    found = explore(load, delays=delays, draws=False)
    return Simulated(schedules, seconds, found.schedules / (perf_counter() - begin), grown)
