"""Runs a small training of each framework under the tracer, and writes docs/frameworks.md. `make wild`, or

.venv-wild/bin/python -m docs.make.frameworks

Each program docs/frameworks/with_NAME.py says what it is: in its docstring what the truth is, in VERDICTS which
verdicts are right, in ADVICE a pattern that the advice must match. With RANKS_TOO it is also run by torchrun, as two
processes. Exit status 1: a verdict is wrong, or a loader, a worker or a batch was not recorded.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import tracing
from minidl.events import Kind
from tests.benchmarks.table import facts
from tests.benchmarks.turns import in_turns
from tracing.trace.parts import parts

ROOT = Path(__file__).parents[2]
PROGRAMS, WRITTEN = ROOT / "docs/frameworks", ROOT / "docs/frameworks.md"
TURNS = 5  # runs without the tracer, and with it, of each program
LIMIT = 300  # seconds for one run
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")

PAGE = """# Frameworks

What the tracer records of frameworks that load with torch's DataLoader or with iterators like it, and whether its
report is right, verdict and advice. Each program in `docs/frameworks/` trains a small model on data that it makes, with
a bottleneck that is known. Overhead: the training alone, with the tracer and without, in turn; medians of {turns}.

{table}

Made by `make wild` on {facts}, with a load average of {load:.0f} at the start. (Above 1 the machine was busy with other
work, so overheads mean little.)
"""


@dataclass
class Program:
    """One of the programs, as its file describes it."""

    path: Path
    truth: str
    framework: str
    verdicts: set[str]  # names of tracing.analysis.measure.waited.Verdict
    advice: str  # a pattern, in one of the report's `next`; "" for any
    ranks_too: bool


@dataclass
class Found:
    """What a recorded run shows."""

    recorded: str
    verdict: str
    right: bool


def programs() -> list[Program]:
    return [described(path) for path in sorted(PROGRAMS.glob("with_*.py"))]


def described(path: Path) -> Program:
    given = constants(path)
    fields = (given[name] for name in ("FRAMEWORK", "VERDICTS", "ADVICE"))
    return Program(path, docstring(path), *fields, ranks_too=given.get("RANKS_TOO", False))


def docstring(path: Path) -> str:
    return " ".join((ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split())


def constants(path: Path) -> dict[str, Any]:
    """What a program says of itself; without importing it, since that takes its framework."""
    found: dict[str, Any] = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign):
            several = isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple)
            names = node.targets[0].elts if several else node.targets
            values = node.value.elts if several else [node.value]
            for name, value in zip(names, values, strict=False):
                if isinstance(name, ast.Name) and name.id.isupper():
                    found[name.id] = ast.literal_eval(value)
    return found


def trained(*command: str) -> float:
    """Run it; the seconds that it says it trained. RuntimeError if it fails."""
    ended = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, timeout=LIMIT)
    said = re.search(r"^trained in ([\d.]+) s$", ended.stdout, re.MULTILINE)
    if ended.returncode or said is None:
        raise RuntimeError(f"{' '.join(command)} failed:\n{ended.stdout}{ended.stderr}")
    return float(said[1])


def traced(directory: Path, *command: str) -> float:
    return trained("-m", "tracing", "run", "-o", str(directory), *command)


def judged(directory: Path, program: Program) -> Found:
    trace = tracing.load(directory)
    broken = "".join(f"; {violation}" for violation in tracing.check(trace))
    report = tracing.report(trace)
    if not report.loaders:
        return Found("nothing", "none", False)
    first = report.loaders[0]  # the one that costs the program most
    advised = [advice for advice in first.next if re.search(program.advice, advice)]
    right = first.verdict.name.lower() in program.verdicts and bool(advised or not program.advice)
    right &= not broken and kinds(trace, Kind.WORKER_BEGIN) == sum(each.num_workers for each in trace.loaders)
    right &= kinds(trace, Kind.YIELDED) == (trace.tasks["yielded"] >= 0).sum() >= 60
    verdict = first.verdict_line if right else " ".join([first.verdict_line, *first.next])
    return Found(counted(trace) + broken, verdict, right)


def counted(trace: tracing.Trace) -> str:
    loaders, workers = {each.loader for each in trace.loaders}, kinds(trace, Kind.WORKER_BEGIN)
    batches = counts(kinds(trace, Kind.YIELDED), "batch", "batches")
    return ", ".join([counts(len(loaders), "loader"), counts(workers, "worker"), batches])


def kinds(trace: tracing.Trace, kind: Kind) -> int:
    return int((trace.events["kind"] == kind).sum())


def counts(number: int, word: str, words: str = "") -> str:
    return f"{number} {word if number == 1 else words or word + 's'}"


def by_ranks(directory: Path, program: Program) -> str:
    traced(directory, *TORCHRUN, str(program.path))
    ranks = {part.rank: tracing.load(part.path) for part in parts(directory) if part.rank is not None}
    if not ranks:
        return "ranks: not recorded"
    return "; ".join(f"rank {rank}: {counted(trace)}" for rank, trace in sorted(ranks.items()))


def row(program: Program, folder: Path) -> tuple[str, ...]:
    path = str(program.path)
    times = in_turns(lambda: trained(path), lambda: traced(folder / "run", path), TURNS)
    found = judged(folder / "run", program)
    recorded = found.recorded + (f"; {by_ranks(folder / 'ranks', program)}" if program.ranks_too else "")
    overhead = f"{times.median_second / times.median_first - 1:+.0%} of {times.median_first:.2f} s"
    return named(program.framework), program.truth, recorded, mark(found), overhead


def named(framework: str) -> str:
    return f"{framework} {version(framework)}"


def mark(found: Found) -> str:
    return ("right: " if found.right else "**wrong**: ") + found.verdict


def main() -> int:
    load = os.getloadavg()[0]
    columns = ("framework", "the truth", "recorded", "verdict", "overhead")
    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    for program in programs():
        with tempfile.TemporaryDirectory() as folder:
            lines.append("| " + " | ".join(row(program, Path(folder))) + " |")
        print(lines[-1], file=sys.stderr, flush=True)
    text = PAGE.format(turns=TURNS, table="\n".join(lines), facts=facts(), load=load)
    WRITTEN.write_text(text, encoding="utf-8")
    return int("**wrong**" in text)


if __name__ == "__main__":
    sys.exit(main())
