"""How fast minidl is beside torch's loader, measured in one run: `make bench`, or

    python -m tests.benchmarks [--quick]
    python -m tests.benchmarks moving          only what moving a batch to main costs
    python -m tests.benchmarks views           only deaths, torch's loader attached, events, the views, what-if
    python -m tests.benchmarks stopping        only what it costs that a loader can stop and go on
    python -m tests.benchmarks programs        only what recording costs a whole program
    python -m tests.benchmarks schedules       only how fast the simulated world is
    python -m tests.benchmarks checks          only how long the check of an exercise takes
    python -m tests.benchmarks promises        what the report promises, and what is gained: promises/measuring.py

Principles
1. What is compared is measured in turns (torch, minidl, minidl, torch, ...), so whatever else the machine does
   affects both. A ratio is one of medians; next to it are the quartiles of the turns' own ratios.
2. The datasets hold samples that exist already: the loader is measured, not the dataset.
3. The workers run, the queues are full and the memory is in use before the clock starts, except where starting
   is measured.
4. Main has its own core, the workers have the others: see `loading.place_main`.
5. Ratios are speeds: above 1 the second one is faster, and a goal is always "at least".

Legend: a cell (what a batch is made of) x num_workers is one line of the first table.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import torch
import torch.utils.data
from rich.console import Console

import minidl
from tests.benchmarks import (
    attaching,
    checking,
    deaths,
    limit,
    loading,
    moving,
    overhead,
    playing,
    recording,
    simulating,
    stepping,
    stopping,
    watching,
    whatif,
)
from tests.benchmarks.promises import measuring
from tests.benchmarks.table import Table, as_markdown, between_markers, facts, ratio, show, verdict
from tests.benchmarks.turns import in_turns
from tests.tracing.views import browser

COMMAND = "python -m tests.benchmarks"


@dataclass(frozen=True)
class Effort:
    """How long to measure."""

    seconds: float  # that a loader loads for in one turn
    turns: int  # of each throughput
    first_batches: int  # turns of each time to the first batch
    recorded: int  # turns of each comparison of recording with not recording: more, as its goal is 3 %
    program: float  # seconds that a whole program takes, about
    programs: int  # turns of it
    emits: int  # calls in a loop
    events: int  # in the long trace
    kills: int  # of workers
    steps: int  # events of the step-through's page
    watched: float  # seconds that a run is watched live
    schedules: int  # of the simulated world
    predicted: int  # batches of each load whose speed is predicted
    tried: int  # runs in each of its settings


FULL = Effort(
    seconds=0.35,
    turns=15,
    first_batches=21,
    recorded=21,
    program=30,
    programs=1,
    emits=100_000,
    events=1_000_000,
    kills=40,
    steps=5_000,
    watched=10,
    schedules=100_000,
    predicted=200,
    tried=3,
)
QUICK = Effort(
    seconds=0.12,
    turns=5,
    first_batches=5,
    recorded=7,
    program=2,
    programs=1,
    emits=20_000,
    events=100_000,
    kills=5,
    steps=1_000,
    watched=2,
    schedules=2_000,
    predicted=20,
    tried=1,
)


def measure(effort: Effort) -> Iterator[Table]:
    """Yield the tables, each as soon as it is complete."""
    yield from moving_costs(effort)
    yield from views(effort)


def views(effort: Effort) -> Iterator[Table]:
    yield noticed(effort)
    with tempfile.TemporaryDirectory() as directory:
        yield attached(effort, Path(directory))
        yield events(effort, Path(directory))
        yield watched(effort, Path(directory))
    if browser.find():
        yield stepped(effort)
    else:
        progress("no browser: the step-through is left out")
    progress("what whatif predicts, and real runs")
    yield whatif.predicted(effort.predicted, effort.tried)


def moving_costs(effort: Effort) -> Iterator[Table]:
    yield throughput(effort)
    yield beside_the_limit(effort)
    yield first_batch(effort)
    yield beside_computing(effort)
    yield limits(effort)
    with tempfile.TemporaryDirectory() as directory:
        yield recorded(effort, Path(directory))


def progress(what: str) -> None:
    print(f"measuring: {what}", file=sys.stderr, flush=True)


def throughput(effort: Effort) -> Table:
    columns = ("a batch", "workers", "torch, batches/s", "minidl, batches/s", "minidl / torch", "quartiles", "goal")
    table, serial = Table("Throughput", columns), {}
    for cell in loading.CELLS:
        for workers in loading.WORKERS:
            progress(f"{cell.name}, {workers} workers")
            taken = loading.compare_throughput(cell, workers, effort.seconds, effort.turns)
            rates = f"{1 / taken.median_first:,.0f}", f"{1 / taken.median_second:,.0f}"
            compared = ratio(taken, cell.goal if workers == limit.WORKERS else 0.97)
            table.rows.append((cell.name, str(workers), *rates, *compared))
            serial[cell.name, workers] = taken.median_second
    largest = loading.CELLS[-1]
    progress(f"{largest.name}, 0 workers, batches kept")
    outstanding = 4  # two for each worker
    kept = loading.seconds_kept(largest, outstanding, effort.seconds, effort.turns)
    for words, seconds, goal in (
        ("none", serial[largest.name, 0], 1 / 1.3),
        (f"none and {outstanding} batches kept", kept, None),
    ):
        beside = seconds / serial[largest.name, 2]
        judged = verdict(beside, goal) if goal else ""
        table.rows.append((f"{largest.name}, 2 workers beside {words}", *[""] * 3, f"{beside:.2f}", "", judged))
    return table


def beside_the_limit(effort: Effort) -> Table:
    columns = ("a batch", "workers", "bare processes, µs", "minidl, µs", "share", "quartiles", "goal")
    table = Table("Beside two bare processes, their pipes, and one copy of the batch", columns)
    for cell in loading.CELLS:
        if cell.of_limit:
            progress(f"{cell.name}, beside bare processes")
            batches = loading.batches_within(effort.seconds, minidl, cell, limit.WORKERS)
            bare = partial(limit.seconds_per_batch, cell, effort.seconds)
            ours = partial(loading.seconds_per_batch, minidl, cell, limit.WORKERS, batches)
            taken = in_turns(bare, ours, effort.turns)
            times = f"{taken.median_first * 1e6:.0f}", f"{taken.median_second * 1e6:.0f}"
            table.rows.append((cell.name, str(limit.WORKERS), *times, *ratio(taken, cell.of_limit)))
    return table


def beside_computing(effort: Effort) -> Table:
    columns = ("leaves", "", "torch, ms", "minidl, ms", "goal, at most")
    table = Table("`next()` beside workers that compute in Python", columns)
    for leaves in moving.LEAVES:
        progress(f"next() beside computing workers, {leaves} leaves")
        for again, words in ((False, "after a training step"), (True, "right after another")):
            taken = moving.compare_next(leaves, again, effort.predicted // 2, effort.tried)
            times = [taken.median_first * 1e3, taken.median_second * 1e3]
            judged = "" if again else verdict(times[1], 0.3, at_most=True)
            table.rows.append((str(leaves), words, *(f"{time:.2f}" for time in times), judged))
    return table


def limits(effort: Effort) -> Table:
    table = Table("Limits of the system", ("", "torch.utils.data", "minidl"))
    progress("limits of the system")
    cases = [("10,000 batches held, `ulimit -n 256`", 10_000, 10, True, "ulimit -n 256;")]
    if limit := moving.small_shared_memory():
        cases.append(("batches of 200 MB, `/dev/shm` of 64 MB", 4, 50_000_000, False, limit))
    else:
        table.rows.append(("batches of 200 MB, `/dev/shm` of 64 MB", *["not tried: no right to mount one"] * 2))
    for name, batches, floats, hold, limit in cases:
        outcomes = [moving.outcome(each, batches, floats, hold, limit) for each in ("torch.utils.data", "minidl")]
        table.rows.append((name, *outcomes))
    epochs = 10 * effort.predicted
    before, after = moving.megabytes_left(epochs)
    what = f"memory after {epochs // 10:,} and {epochs:,} epochs of batches that grow and shrink"
    table.rows.append((what, "", f"{before:.0f} and {after:.0f} MB"))
    return table


def first_batch(effort: Effort) -> Table:
    columns = ("a batch", "workers", "torch, ms", "minidl, ms", "torch / minidl", "quartiles", "goal")
    table = Table("From `iter(loader)` to the first batch", columns)
    for cell in loading.CELLS:
        progress(f"the first batch, {cell.name}")
        taken = loading.compare_first_batch(2, effort.first_batches, cell)
        times = f"{taken.median_first * 1e3:.1f}", f"{taken.median_second * 1e3:.1f}"
        table.rows.append((cell.name, "2", *times, *ratio(taken, 1.0)))
    return table


def noticed(effort: Effort) -> Table:
    columns = ("", "thread that iterates", "median, ms", "worst, ms", "goal for the worst, at most")
    table = Table("From the kill of a worker to the error", columns)
    for package, on_main_thread in ((torch.utils.data, True), (minidl, True), (minidl, False)):
        progress(f"killing {effort.kills} workers of {package.__name__}")
        taken = [1e3 * seconds for seconds in deaths.seconds_to_notice(package, effort.kills, on_main_thread)]
        thread = "main" if on_main_thread else "another"
        row = (
            package.__name__,
            thread,
            f"{median(taken):.1f}",
            f"{max(taken):.1f}",
            verdict(max(taken), 100, at_most=True),
        )
        table.rows.append(row)
    return table


def recorded(effort: Effort, directory: Path) -> Table:
    columns = ("", "workers", "off, µs/batch", "on, µs/batch", "off / on", "quartiles", "goal")
    table = Table("Recording, on the smallest batches", columns)
    for workers in (1, 2):
        progress(f"recording on and off, {workers} workers")
        taken = recording.compare_recording(directory, workers, effort.seconds, effort.recorded)
        times = f"{taken.median_first * 1e6:.0f}", f"{taken.median_second * 1e6:.0f}"
        table.rows.append((loading.SMALLEST.name, str(workers), *times, *ratio(taken, 0.91)))
    return table


def attached(effort: Effort, directory: Path) -> Table:
    columns = ("", "workers", "alone, µs/batch", "attached, µs/batch", "alone / attached", "quartiles", "goal")
    table = Table("torch's loader, attached and recorded, on the smallest batches", columns)
    for workers in (1, 2):
        progress(f"torch attached, {workers} workers")
        taken = attaching.compare_attaching(directory, workers, effort.seconds, effort.recorded)
        times = f"{taken.median_first * 1e6:.0f}", f"{taken.median_second * 1e6:.0f}"
        table.rows.append((loading.SMALLEST.name, str(workers), *times, *ratio(taken, 0.95)))
    return table


def whole_programs(effort: Effort) -> Table:
    columns = (
        *("a batch takes", "workers", "batches", "alone, µs/batch", "recorded", "alone / recorded"),
        *("program alone, s", "with the report", "ratio", "quartiles", "goal"),
    )
    table = Table("`python -m tracing run`, torch's loader, whole programs", columns)
    for milliseconds in overhead.MILLISECONDS:
        for workers in overhead.WORKERS:
            progress(f"whole programs, batches of {milliseconds:g} ms, {workers} workers")
            taken = overhead.measure(milliseconds, workers, effort.program, effort.programs)
            loop, program = taken.loop, taken.program
            times = f"{loop.median_first * 1e6:.0f}", f"{loop.median_second * 1e6:.0f}", f"{loop.speed:.2f}"
            wholes = f"{program.median_first:.1f}", f"{program.median_second:.1f}"
            compared = ratio(program, 0.95)
            if milliseconds < overhead.GOAL_FROM:
                compared = (*compared[:2], "")
            table.rows.append((f"{milliseconds:g} ms", str(workers), f"{taken.batches:,}", *times, *wholes, *compared))
    return table


def events(effort: Effort, directory: Path) -> Table:
    table = Table("Events", ("", "measured", "unit", "goal, at most"))

    def add(what: str, value: float, unit: str, goal: float) -> None:
        table.rows.append((what, f"{value:,.3g}", unit, verdict(value, goal, at_most=True)))

    progress("emit")
    add("`emit`, not recorded", recording.ns_per_emit(effort.emits), "ns", 60)
    add("`emit`, recorded", recording.ns_per_recorded_emit(directory, effort.emits), "ns", 400)
    progress(f"a trace of {effort.events:,} events")
    recording.record_events(directory / "long.trace", effort.events)
    reading = recording.read(directory / "long.trace")
    per_million = reading.load / reading.events * 1e6
    add(f"load and sort {reading.events:,} events, per million", per_million, "s", 1)
    add("`trace.state(k)` after that, the worst of twenty", reading.state * 1e3, "ms", 50)
    return table


def watched(effort: Effort, directory: Path) -> Table:
    table = Table("The live view", ("watching a run of", "measured", "unit", "goal, at most"))
    for after in (0.0, 4 * effort.watched):
        progress(f"watching a run for {effort.watched:g} s, {after:g} s after its beginning")
        taken = watching.watch(directory / f"run {after}.trace", effort.watched, after)
        what = f"{taken.events_per_second:,.0f} events a second, {after:g} s after its beginning"
        table.rows.append((what, f"{taken.share:.1%}", "of a core", verdict(100 * taken.share, 5, at_most=True)))
    return table


def simulated(effort: Effort) -> Table:
    table = Table("The simulated world, 2 workers and 3 tasks", ("", "measured", "unit", "goal"))
    progress(f"{effort.schedules:,} schedules of the simulated world")
    taken = simulating.measure(effort.schedules)
    rate = taken.schedules / taken.seconds
    table.rows.append(("by chance, on one core", f"{rate:,.0f}", "schedules a second", verdict(rate, 1000)))
    table.rows.append(
        ("all with two delays", f"{taken.exhausted:,.0f}", "schedules a second", verdict(taken.exhausted, 1000))
    )
    what = f"memory that {taken.schedules:,} schedules leave"
    table.rows.append((what, f"{taken.grown:.1f}", "MB", verdict(taken.grown, 5, at_most=True)))
    return table


def stepped(effort: Effort) -> Table:
    table = Table("The step-through's page", ("", "measured", "unit", "goal, at most"))
    program = browser.find() or ""
    for workers in (2, 16):
        progress(f"stepping through {effort.steps:,} events, {workers} workers")
        with tempfile.TemporaryDirectory() as directory:
            taken = stepping.measure(program, Path(directory), effort.steps, workers)
        for what, value, unit, goal in (
            ("size", taken.megabytes, "MB", 3),
            ("time to make it", taken.seconds, "s", 10),
            ("a step, median", taken.median, "ms", 16),
            ("a step, 99th percentile", taken.worst, "ms", 16),
        ):
            name = f"{what}: {taken.events:,} events of {workers} workers"
            table.rows.append((name, f"{value:.2f}", unit, verdict(value, goal, at_most=True)))
    return table


def main() -> int:
    if sys.argv[1:2] == ["promises"]:
        return measuring.main(sys.argv[2:])
    parser = argparse.ArgumentParser(prog=COMMAND, description="minidl's speed beside torch's, in one run.")
    names = ("moving", "views", "stopping", "programs", "schedules", "playground", "checks")
    parser.add_argument("only", nargs="?", choices=names, help="only these tables")
    parser.add_argument("--quick", action="store_true", help="a rough look in a minute or two")
    parser.add_argument("--write", metavar="PAGE", type=Path, help="also write these tables into this page of markdown")
    arguments = parser.parse_args()
    if arguments.write and not arguments.only:
        parser.error(f"--write needs to know which tables: {', '.join(names)}")
    effort = QUICK if arguments.quick else FULL
    only = {
        "moving": moving_costs,
        "views": views,
        "stopping": lambda effort: stopping.tables(effort.seconds, effort.turns, effort.predicted, progress),
        "programs": lambda effort: iter([whole_programs(effort)]),
        "schedules": lambda effort: iter([simulated(effort)]),
        "playground": lambda effort: iter([playing.table(effort.steps // 10)]),
        "checks": lambda effort: iter([checking.table(effort.tried)]),
        None: measure,
    }
    measured = only[arguments.only](effort)
    page, markers = "", arguments.only
    if arguments.write:
        try:  # fails now rather than after minutes of measuring
            page = arguments.write.read_text(encoding="utf-8")
            between_markers(page, "", markers)
        except (OSError, ValueError) as error:
            parser.error(f"cannot write into {arguments.write}: {error}")

    # Without workers torch would stack a large batch on all cores, and the result depend on what else they do. In a
    # worker it uses one.
    torch.set_num_threads(1)
    if arguments.only != "programs":  # a program has all cores
        loading.place_main()
    warnings.filterwarnings("ignore", "This DataLoader will create")  # more workers than main has cores, on purpose
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(facts(), highlight=False)
    tables = []
    for table in measured:
        show(table, console)
        tables.append(table)
    if arguments.write:
        text = as_markdown(tables, " ".join([COMMAND, *sys.argv[1:]]))
        arguments.write.write_text(between_markers(page, text, markers), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
