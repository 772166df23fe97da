"""The long exploration: `make explore`, or

    python -m tests.minidl.simulated.exploring [--chance N] [--jobs 2] [PROGRAM ...]

For 2 workers and 3 tasks, each combination of map and iterable style, pin thread or none, persistent workers or not,
slots or torch's way: every schedule with two delays, every schedule with a delay and a fault. For the programs that
hold batches, which are longer (lending.py): every schedule with two delays, every schedule with a fault. For the
programs worth exploring (worth_all.py): every schedule with a delay, every schedule with a fault. Then N random ones in
all, with up to two faults each. The trace of about one run in a hundred is written, read and checked.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from minidl.world.simulated import Exploration, Outcome, explore, explore_by_chance
from tests.minidl.simulated.lending import lendings
from tests.minidl.simulated.programs import configurations
from tests.minidl.simulated.worth import Worth
from tests.minidl.simulated.worth_all import PROGRAMS

BOUNDS = [(2, 0), (1, 1)]  # delays, faults
BOUNDS_OF_LENDINGS = [(2, 0), (0, 1)]
BOUNDS_OF_OTHERS = [(1, 0), (0, 1)]
CHECK_EVERY = 97  # steps; the trace of a run is checked if their number is a multiple of it
PIECE = 5_000  # random schedules that one job runs


@dataclass(frozen=True)
class Job:
    """A part of the exploration."""

    program: str
    delays: int = 0
    faults: int = 2
    seed: int = 0
    schedules: int = 0  # random ones; 0: all within the bounds


def programs() -> dict[str, Worth]:
    """By name. (What depends on when something happens cannot be compared with another schedule.)"""
    small = {**configurations(), **lendings()}
    others = {name: each for name, each in PROGRAMS.items() if not each.timed}
    return {name: Worth(program, options={"draws": False}) for name, program in small.items()} | others


def bounds(name: str) -> list[tuple[int, int]]:
    if name in lendings():
        return BOUNDS_OF_LENDINGS
    return BOUNDS if name in configurations() else BOUNDS_OF_OTHERS


def run(job: Job) -> tuple[Job, int, int, str]:
    """Run in its own process. Returns the job, schedules run and pruned, and what was found ("": nothing)."""
    worth = programs()[job.program]
    expected = worth.run("0")

    def judge(outcome: Outcome) -> list[str]:  # of an outcome it says the same whenever it is asked
        return worth.broken(outcome, expected, checks=outcome.steps % CHECK_EVERY == 0)

    found: Exploration
    with worth.changed_world():
        if job.schedules:
            options: dict[str, Any] = {"faults": job.faults, "seed": job.seed, "judge": judge, **worth.options}
            found = explore_by_chance(worth.program, job.schedules, **options)
        else:
            found = explore(worth.program, delays=job.delays, faults=job.faults, judge=judge, **worth.options)
    return job, found.schedules, found.pruned, str(found) if found.counterexample is not None else ""


def jobs(names: list[str], chance: int) -> Iterator[Job]:
    for name in reversed(names):  # the longest first
        for delays, faults in reversed(bounds(name)):
            yield Job(name, delays, faults)
    for number in range(0, -(-chance // PIECE)):
        size = min(PIECE, chance - number * PIECE)
        yield Job(names[number % len(names)], seed=number * PIECE, schedules=size)


def end_with_parent() -> None:
    """A process of the pool does not outlive the one that started it, however that ends."""

    def wait() -> None:
        parent = multiprocessing.parent_process()
        assert parent is not None
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def main() -> int:
    parser = argparse.ArgumentParser(description="Every schedule within bounds, and many random ones.")
    parser.add_argument("names", nargs="*", metavar="PROGRAM", help="only these: for example 'keys pinned'")
    parser.add_argument("--chance", type=int, default=20_000, metavar="N", help="random schedules in all (%(default)s)")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes (%(default)s)")
    arguments = parser.parse_args()
    known = [*programs()]
    names = arguments.names or known
    if unknown := [name for name in names if name not in known]:
        parser.error(f"no program is called {unknown[0]!r}: there are {', '.join(known)}")
    begin, bugs = time.perf_counter(), 0
    try:
        with multiprocessing.get_context("spawn").Pool(arguments.jobs, end_with_parent) as pool:
            for job, schedules, pruned, counterexample in pool.imap_unordered(run, jobs(names, arguments.chance)):
                bugs += bool(counterexample)
                counts = f"{schedules:,} schedules run, {pruned:,} pruned: nothing found"
                print(f"{job}: {counterexample or counts}", flush=True)
    except KeyboardInterrupt:
        print("interrupted")
        return 130
    print(f"{time.perf_counter() - begin:.0f} s; found: {bugs or 'nothing'}")
    return 1 if bugs else 0


if __name__ == "__main__":
    sys.exit(main())
