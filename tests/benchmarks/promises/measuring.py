"""Does a load gain what the report promises?

    python -m tests.benchmarks promises [--loads DIR] [--only 01,07] [--write PAGE]

Each load is a script, NN_name.py, that takes `--options JSON`: options of its DataLoader. It is recorded once with its
own options. Then it runs without the tracer, with its own options and with those that the report of that recording
promises a gain for, in turn, until the middle half of the same runs differ by at most a quarter of the gain: three
times at least, nine at most. If they never do, as on a busy machine, the result is marked as unsteady.
Nothing here knows what is in a script.

Legend
    promise  {"options": {"num_workers": 4}, "saves_ns": 1.2e9}   the first one of each kind: the names of its options
    run      how long the script takes (s), its imports included: they cancel out in a gain
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from rich.console import Console

from docs.make.markers import between_markers
from tests.benchmarks.table import Table, as_markdown, facts, show

COMMAND = "python -m tests.benchmarks promises"
ROOT = Path(__file__).parents[3]
LOADS = Path(__file__).with_name("loads")
FEWEST, MOST = 3, 9  # turns
KINDS = 2  # promises tried for a load, at most: the first ones of different kinds
SECONDS = 150.0  # that a script may run for
WITHIN = 0.25  # a gain this close to what was promised is as promised
SHARE, LEAST = 0.05, 0.1  # a gain or loss below this share of the run, or below so many seconds, is negligible


@dataclass
class Tried:
    """One promise, or the reason why there is none; and the runs with its options."""

    load: str
    took: float  # what the recorded load took, in its loader (s)
    options: dict[str, Any] = field(default_factory=dict)
    promised: float = 0.0  # s
    why: str = ""  # nothing is promised
    before: list[float] = field(default_factory=list)
    after: list[float] = field(default_factory=list)

    @property
    def gained(self) -> float:
        return median(self.before) - median(self.after)

    @property
    def verdict(self) -> str:
        """ "as promised", "negligible", "off", or "LOSS"; "no promise"."""
        if not self.before:
            return "no promise" if self.why else "failed"
        negligible = max(SHARE * self.took, LEAST)
        if self.gained < -negligible:
            return "LOSS"
        if abs(self.gained - self.promised) <= WITHIN * self.promised:
            return "as promised"
        return "negligible" if max(self.gained, self.promised) < negligible else "off"

    @property
    def steady(self) -> bool:
        quarters = [quantiles(each, method="inclusive") for each in (self.before, self.after)]
        spread = max(each[2] - each[0] for each in quarters)
        return spread <= max(SHARE * self.took, LEAST, WITHIN * max(self.promised, abs(self.gained)))

    @property
    def row(self) -> tuple[str, ...]:
        if not self.before:
            return (self.load, self.why or "-", f"{self.took:.2f}", "", "", "", self.verdict)
        options = ", ".join(f"{name}={value}" for name, value in self.options.items())
        ratio = f"{self.gained / self.promised:.2f}"
        return (
            self.load,
            options,
            f"{self.took:.2f}",
            f"{self.promised:.2f}",
            f"{self.gained:.2f}",
            ratio,
            self.verdict + ("" if self.steady else ", unsteady"),
        )


def run(script: Path, options: dict[str, Any], *before: str) -> float:
    """Run a script, and return how long that took (s). RuntimeError: it failed, with its last line."""
    command = [sys.executable, *before, str(script)] + (["--options", json.dumps(options)] if options else [])
    begin = time.perf_counter()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().rpartition("\n")[2])
    return time.perf_counter() - begin


def reported(script: Path, directory: Path, options: dict[str, Any]) -> list[dict[str, Any]]:
    """Record a script. What the report says of each loader."""
    run(script, options, "-m", "tracing", "run", "-o", str(directory))
    command = [sys.executable, "-m", "tracing", "report", str(directory), "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=True)
    loaders: list[dict[str, Any]] = json.loads(done.stdout)["loaders"]
    return loaders


def promises(script: Path, directory: Path) -> tuple[float, list[dict[str, Any]], str]:
    """What the loader took (s); its promises, the first of each kind; and, if there are none, what the report says."""
    loaders = reported(script, directory / "own", {})
    if not loaders:
        return 0.0, [], "nothing was recorded"
    loader = loaders[0]
    if len(loaders) > 1 and loader["promises"]:
        # Which loader do the options go to? To the one that is configured differently with them.
        others = {
            each["loader"]: each for each in reported(script, directory / "other", loader["promises"][0]["options"])
        }
        changed = [each for each in loaders if each["config"] != others.get(each["loader"], each)["config"]]
        if loader not in changed[:1]:
            return sum(loader["main_ns"].values()) / 1e9, [], "promised for another loader than --options goes to"
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for each in loader["promises"]:
        found.setdefault(tuple(sorted(each["options"])), each)
    why = f"{loader['verdict']}: {loader['next'][0] if loader['next'] else ''}"
    return sum(loader["main_ns"].values()) / 1e9, list(found.values())[:KINDS], why


def measure(script: Path) -> list[Tried]:
    """Record a load, and try what is promised."""
    name = script.stem
    try:
        with tempfile.TemporaryDirectory() as directory:
            took, promised, why = promises(script, Path(directory))
        tried = [Tried(name, took, each["options"], each["saves_ns"] / 1e9) for each in promised]
        for turn in range(MOST if tried else 0):
            if turn >= FEWEST and all(each.steady for each in tried):
                break
            before = run(script, {})
            for each in tried:
                each.before.append(before)
                each.after.append(run(script, each.options))
        return tried or [Tried(name, took, why=why if len(why) < 90 else f"{why[:88]}…")]
    except (RuntimeError, subprocess.SubprocessError) as error:
        return [Tried(name, 0.0, why=f"FAILED: {error}")]


def tables(loads: Path, only: list[str]) -> Iterator[tuple[Tried, ...]]:
    """The results, load by load."""
    scripts = [each for each in sorted(loads.glob("[0-9][0-9]_*.py")) if not only or each.stem[:2] in only]
    for number, script in enumerate(scripts):
        print(f"measuring: {script.stem} ({number + 1} of {len(scripts)})", file=sys.stderr, flush=True)
        found = measure(script)
        for each in found:
            print("   ", " | ".join(each.row), file=sys.stderr, flush=True)
        yield tuple(found)


def table(results: list[Tried]) -> Table:
    columns = ("load", "options", "took, s", "promised, s", "gained, s", "gained / promised", "")
    found = Table("What the report promises, and what was gained", columns, [each.row for each in results])
    kept = [each for each in results if each.before]
    for name, some in ("all", kept), ("steady", [each for each in kept if each.steady]):
        good = sum(each.verdict in ("as promised", "negligible") for each in some)
        losses = sum(each.verdict == "LOSS" for each in some)
        found.rows.append((name, f"{good} of {len(some)} as promised, losses: {losses}", "", "", "", "", ""))
    return found


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog=COMMAND, description="What the report promises, and what is gained.")
    parser.add_argument("--loads", type=Path, default=LOADS, metavar="DIR", help="of scripts NN_name.py")
    parser.add_argument("--only", default="", metavar="NN,NN", help="these scripts")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="also write the table into this page of markdown")
    given = parser.parse_args(arguments)
    page = given.write.read_text(encoding="utf-8") if given.write else ""
    if page:
        between_markers(page, "", "promises")  # fails now rather than after all the runs
    results = [each for found in tables(given.loads, list(filter(None, given.only.split(",")))) for each in found]
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(facts(), highlight=False)
    show(table(results), console)
    if page:
        text = as_markdown([table(results)], " ".join([COMMAND, *arguments]))
        given.write.write_text(between_markers(page, text, "promises"), encoding="utf-8")
    return 0
