"""How fast minidl is beside torch's loader, measured in one run: `make bench`, or

    python -m tests.benchmarks [--quick]
    python -m tests.benchmarks moving          only what moving a batch to main costs
    python -m tests.benchmarks views           only deaths, events, the live view, what-if
    python -m tests.benchmarks stopping        only what it costs that a loader can stop and resume
    python -m tests.benchmarks programs        only what recording costs a whole program
    python -m tests.benchmarks promises        what the report promises, and what is gained: promises/measuring.py

Principles
1. What is compared is measured in turns (torch, minidl, minidl, torch, ...), so whatever else the machine does
   affects both. A ratio is one of medians; next to it are the quartiles of the turns' own ratios.
2. The datasets hold samples that exist already: the loader is measured, not the dataset.
3. The workers run, the queues are full and the memory is in use before the clock starts, except where starting
   is measured.
4. Where loaders are compared, main has its own core, the workers have the others: see `loading.place_main`.
5. Ratios are speeds: above 1 the second one is faster, and a goal is always "at least".

Legend: a cell (what a batch is made of) x num_workers is one line of the first table.
"""

from __future__ import annotations

import argparse
import itertools
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
from torchdata.stateful_dataloader import StatefulDataLoader

import minidl
from docs.make.markers import between_markers
from tests.benchmarks import deaths, limit, loading, moving, overhead, recording, watching
from tests.benchmarks.promises import measuring
from tests.benchmarks.table import Row, Table, as_markdown, facts, show, side_by_side, verdict
from tests.benchmarks.turns import in_turns

COMMAND = "python -m tests.benchmarks"


@dataclass(frozen=True)
class Effort:
    """How long to measure."""

    seconds: float = 0.35  # that a loader loads for in one turn
    turns: int = 15
    program: float = 30  # seconds that a whole program takes, about
    emits: int = 100_000  # calls in a loop
    events: int = 1_000_000  # in the long trace
    kills: int = 40  # of workers
    watched: float = 10  # seconds that a run is watched live
    batches: int = 200  # of a load of which each is timed
    tried: int = 3  # runs of it


QUICK = Effort(seconds=0.12, turns=5, program=2, emits=20_000, events=100_000, kills=5, watched=2, batches=20, tried=1)


def progress(what: str) -> None:
    print(f"measuring: {what}", file=sys.stderr, flush=True)


# ---- what moving a batch costs


def moving_costs(effort: Effort) -> Iterator[Table]:
    loading.place_main()
    sides = "torch", "minidl"
    yield side_by_side("Throughput", sides, "batches/s", throughput(effort))
    title = "Beside two bare processes, their pipes, and one copy of the batch"
    yield side_by_side(title, ("bare processes", "minidl"), "µs/batch", beside_the_limit(effort))
    yield side_by_side("From `iter(loader)` to the first batch", sides, "ms", first_batch(effort))
    yield beside_computing(effort)
    yield side_by_side("Recording, on the smallest batches", ("off", "on"), "µs/batch", recorded(effort))


def throughput(effort: Effort) -> Iterator[Row]:
    for cell, workers in itertools.product(loading.CELLS, (0, limit.WORKERS)):
        progress(f"{cell.name}, {workers} workers")
        taken = loading.compare_throughput(loading.BOTH, cell, workers, effort.seconds, effort.turns)
        yield cell.name, workers, taken, cell.goal if workers else 0.97


def beside_the_limit(effort: Effort) -> Iterator[Row]:
    for cell in loading.CELLS:
        if cell.of_limit:
            progress(f"{cell.name}, beside bare processes")
            of_loader = minidl.DataLoader, cell, limit.WORKERS
            batches = loading.batches_within(effort.seconds, *of_loader)
            bare = partial(limit.seconds_per_batch, cell, effort.seconds)
            taken = in_turns(bare, partial(loading.seconds_per_batch, *of_loader, batches), effort.turns)
            yield cell.name, limit.WORKERS, taken, cell.of_limit


def first_batch(effort: Effort) -> Iterator[Row]:
    for cell in loading.CELLS:
        progress(f"the first batch, {cell.name}")
        yield cell.name, 2, loading.compare_first_batch(cell, 2, effort.turns), 1.0


def beside_computing(effort: Effort) -> Table:
    columns = ("leaves", "", "torch, ms", "minidl, ms", "goal, at most")
    table = Table("`next()` beside workers that compute in Python", columns)
    for leaves in moving.LEAVES:
        progress(f"next() beside computing workers, {leaves} leaves")
        for again, words in ((False, "after a training step"), (True, "right after another")):
            taken = moving.compare_next(leaves, again, effort.batches // 2, effort.tried)
            times = [taken.median_first * 1e3, taken.median_second * 1e3]
            judged = "" if again else verdict(times[1], 0.3, at_most=True)
            table.rows.append((str(leaves), words, *(f"{time:.2f}" for time in times), judged))
    return table


def recorded(effort: Effort) -> Iterator[Row]:
    for workers in (1, 2):
        progress(f"recording on and off, {workers} workers")
        taken = recording.compare_recording(workers, effort.seconds, effort.turns)
        yield loading.SMALLEST.name, workers, taken, 0.91


# ---- deaths, events, the live view


def views(effort: Effort) -> Iterator[Table]:
    yield noticed(effort)
    with tempfile.TemporaryDirectory() as directory:
        yield events(effort, Path(directory))
        yield watched(effort, Path(directory))


def noticed(effort: Effort) -> Table:
    columns = ("", "thread that iterates", "median, ms", "worst, ms", "goal for the worst, at most")
    table = Table("From the kill of a worker to the error", columns)
    for package, thread in ((torch.utils.data, "main"), (minidl, "main"), (minidl, "another")):
        progress(f"killing {effort.kills} workers of {package.__name__}")
        taken = [1e3 * seconds for seconds in deaths.seconds_to_notice(package, effort.kills, thread == "main")]
        times = f"{median(taken):.1f}", f"{max(taken):.1f}"
        table.rows.append((package.__name__, thread, *times, verdict(max(taken), 100, at_most=True)))
    return table


def events(effort: Effort, directory: Path) -> Table:
    table = Table("Events", ("", "measured", "unit", "goal, at most"))

    def add(what: str, value: float, unit: str, goal: float) -> None:
        table.rows.append((what, f"{value:,.3g}", unit, verdict(value, goal, at_most=True)))

    progress("emit")
    add("`emit`, not recorded", recording.ns_per_emit(effort.emits), "ns", 60)
    add("`emit`, recorded", recording.ns_per_recorded_emit(effort.emits), "ns", 400)
    progress(f"a trace of {effort.events:,} events")
    recording.record_events(directory / "long.trace", effort.events)
    reading = recording.read(directory / "long.trace")
    per_million = reading.load / reading.events * 1e6
    add(f"load and sort {reading.events:,} events, per million", per_million, "s", 1)
    add("`trace.state(k)` after that, the worst of twenty", reading.state * 1e3, "ms", 50)
    return table


def watched(effort: Effort, directory: Path) -> Table:
    progress(f"watching a run for {effort.watched:g} s")
    taken = watching.watch(directory / "run.trace", effort.watched)
    what, judged = f"{taken.events_per_second:,.0f} events a second", verdict(100 * taken.share, 5, at_most=True)
    columns = ("watching a run of", "measured", "unit", "goal, at most")
    return Table("The live view", columns, [(what, f"{taken.share:.1%}", "of a core", judged)])


# ---- what it costs to be able to stop and resume; what recording costs a whole program


def stopping(effort: Effort) -> Iterator[Table]:
    loading.place_main()
    ours = minidl.StatefulDataLoader
    for words, other, goal in (("the plain loader", minidl.DataLoader, 0.95), ("torchdata's", StatefulDataLoader, 3)):
        title, sides = f"`minidl.StatefulDataLoader` beside {words}", (words, "StatefulDataLoader")
        yield side_by_side(title, sides, "batches/s", resumable(effort, (other, ours), goal))
    progress("state_dict()")
    times = [1e3 * seconds for seconds in loading.seconds_in_state_dict(loading.SMALL, 4, effort.batches)]
    columns = ("a batch", "workers", "median, ms", "worst, ms", "goal, at most")
    judged = verdict(median(times), 1, at_most=True)
    row = loading.SMALL.name, "4", f"{median(times):.2f}", f"{max(times):.2f}", judged
    yield Table("`state_dict()` in the middle of an epoch", columns, [row])


def resumable(effort: Effort, kinds: tuple[type, type], goal: float) -> Iterator[Row]:
    for cell in (loading.SMALLEST, loading.SMALL):
        progress(f"{kinds[0].__module__}: {cell.name}")
        yield cell.name, 2, loading.compare_throughput(kinds, cell, 2, effort.seconds, effort.turns), goal


def whole_programs(effort: Effort) -> Iterator[Table]:
    title = "`python -m tracing run`, torch's loader, whole programs"
    yield side_by_side(title, ("alone", "recorded"), "s", programs(effort))


def programs(effort: Effort) -> Iterator[Row]:
    for milliseconds, workers in itertools.product(overhead.MILLISECONDS, overhead.WORKERS):
        progress(f"whole programs, batches of {milliseconds:g} ms, {workers} workers")
        taken = overhead.compare_programs(milliseconds, workers, effort.program)
        yield f"{milliseconds:g} ms", workers, taken, 0.95 if milliseconds >= overhead.GOAL_FROM else None


TABLES = {"views": views, "moving": moving_costs, "stopping": stopping, "programs": whole_programs}


def main() -> int:
    if sys.argv[1:2] == ["promises"]:
        return measuring.main(sys.argv[2:])
    parser = argparse.ArgumentParser(prog=COMMAND, description="minidl's speed beside torch's, in one run.")
    parser.add_argument("only", nargs="?", choices=TABLES, help="only these tables; without: views and moving")
    parser.add_argument("--quick", action="store_true", help="a rough look in a minute or two")
    parser.add_argument("--write", metavar="PAGE", type=Path, help="also write these tables into this page of markdown")
    arguments = parser.parse_args()
    if arguments.write and not arguments.only:
        parser.error(f"--write needs to know which tables: {', '.join(TABLES)}")
    page = ""
    if arguments.write:
        try:  # fails now rather than after minutes of measuring
            page = arguments.write.read_text(encoding="utf-8")
            between_markers(page, "", arguments.only)
        except (OSError, ValueError) as error:
            parser.error(f"cannot write into {arguments.write}: {error}")

    # Without workers torch would stack a large batch on all cores, and the result depend on what else they do. In a
    # worker it uses one.
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", "This DataLoader will create")  # more workers than main has cores, on purpose
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(facts(), highlight=False)
    effort = QUICK if arguments.quick else Effort()
    tables = []
    for name in [arguments.only] if arguments.only else ["views", "moving"]:
        for table in TABLES[name](effort):
            show(table, console)
            tables.append(table)
    if arguments.write:
        text = as_markdown(tables, " ".join([COMMAND, *sys.argv[1:]]))
        arguments.write.write_text(between_markers(page, text, arguments.only), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
