"""Stops a small training of each framework in mid-epoch, resumes it in another process, and says what differs from a
run that was not stopped: the last section of docs/frameworks.md. `make wild`, or this part alone:

.venv-wild/bin/python -m docs.make.stops [WORDS ...]

With WORDS only those cases whose id has one of them are run; the page keeps what it says of the others. Exit status 1:
something else happens than a program says.

Each program docs/frameworks/stop_NAME.py says in its docstring what the framework does with a loader's state, and in
CASES what is tried: a name, after how many batches the checkpoint is saved, what it took, and how the words of
`compared` must begin.
"""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docs.frameworks.stopping import BATCHES
from docs.make.frameworks import LIMIT, PROGRAMS, ROOT, WRITTEN, constants, docstring, named
from tests.benchmarks.table import facts

HEADER = "## Resuming in mid-epoch"
SECTION = f"""{HEADER}

A small training (three epochs of ten batches, shuffled, with a random transform and dropout) is killed two batches
after a checkpoint, and another process resumes from it, with different seeds unless stated otherwise. The keys, random
numbers and loss of each batch are compared with a run that was not stopped.

{{table}}

{{notes}}

Made by `make wild` on {{facts}}.
"""
SAME, SAMPLES = "the same run", "the same samples, different random numbers"
BELOW = ("Loader", "Place", "OfMinidl")


@dataclass
class Case:
    """One thing that is tried of a framework."""

    path: Path
    framework: str
    name: str
    stop: int  # batches before the checkpoint
    what: str
    expected: str | tuple[str, str]  # how `compared` must begin; or that without workers, and with two

    @property
    def id(self) -> str:
        return f"{self.framework}: {self.name}, {self.stop}"


def cases() -> list[Case]:
    found = []
    for path in sorted(PROGRAMS.glob("stop_*.py")):
        given = constants(path)
        found += [Case(path, given["FRAMEWORK"], *case) for case in given["CASES"]]
    return found


def tried(case: Case, workers: int) -> str:
    """Run it, whole and stopped and resumed; what differs. RuntimeError if a run fails."""
    with tempfile.TemporaryDirectory() as folder:
        for name, code in (("whole", 0), ("stopped", -signal.SIGKILL), ("resumed", 0)):
            place = Path(folder, "whole" if name == "whole" else "stopped")  # the resumed run finds the stopped one's
            place.mkdir(exist_ok=True)
            command = [sys.executable, str(case.path), case.name, name, str(place), str(workers), str(case.stop)]
            environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
            ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT)
            if ended.returncode != code:
                raise RuntimeError(f"{' '.join(command)} ended with {ended.returncode}:\n{ended.stdout}{ended.stderr}")
        differences = [compared_logs(whole, case.stop) for whole in sorted(Path(folder, "whole").glob("whole.?"))]
    return max(differences, key=lambda words: words != SAME)  # of several ranks, one where it differs


def compared_logs(whole: Path, stop: int) -> str:
    stopped, resumed = (whole.parents[1] / "stopped" / f"{name}{whole.suffix}" for name in ("stopped", "resumed"))
    runs = [[json.loads(line) for line in log.read_text().splitlines()] for log in (whole, stopped, resumed)]
    if runs[1] != runs[0][: stop + 2]:
        raise RuntimeError("the stopped run differs before it is stopped")
    return compared(runs[0], runs[1][:stop] + runs[2], stop)


def compared(wanted: list[Any], came: list[Any], stop: int) -> str:
    """What differs, in words. A batch is [keys, random numbers, loss]."""
    if came == wanted:
        return SAME
    if [batch[:2] for batch in came] == [batch[:2] for batch in wanted]:
        return "the same batches, a different dropout"
    if [batch[0] for batch in came] == [batch[0] for batch in wanted]:
        return SAMPLES
    if missing := len(wanted) - len(came):
        return f"{missing} {'batch is' if missing == 1 else 'batches are'} missing"
    begin = (stop - 1) // BATCHES * BATCHES  # of the epoch in which it was stopped
    keys = [key for batch in came[begin : begin + BATCHES] for key in batch[0]]
    lost = {key for batch in wanted[begin : begin + BATCHES] for key in batch[0]} - set(keys)
    twice = len(keys) - len(set(keys))
    if not lost and not twice:
        return "different samples: those of the epoch are complete"
    return f"different samples: {len(lost)} of the epoch's {len(keys)} are lost, and {twice} come twice"


def cell(case: Case, workers: int) -> str:
    words = tried(case, workers)
    print(f"{case.id}, {workers} workers: {words}", file=sys.stderr, flush=True)
    expected = case.expected if isinstance(case.expected, str) else case.expected[workers > 0]
    return words if words.startswith(expected) else f"**unexpected**: {words}"


def shown(path: Path) -> str:
    """The code of a program that its CASES call "below"."""
    source = path.read_text(encoding="utf-8")
    classes = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name in BELOW]
    code = "\n\n\n".join(ast.get_source_segment(source, node) or "" for node in classes)
    return f"\n\n```python\n{code}\n```" if code else ""


def main(words: list[str]) -> int:
    before, _, section = WRITTEN.read_text(encoding="utf-8").partition(HEADER)
    known = {tuple(line.split(" | ")[:3]): line for line in section.splitlines() if line.startswith("| ")}
    columns = ("framework", "loader, and what it took", "checkpoint after batch", "without and with two workers")
    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    for case in cases():
        begin = f"| {named(case.framework)}", case.what, str(case.stop)
        line = known.get(begin)
        if line is None or not words or any(word in case.id for word in words):
            alone, with_two = cell(case, 0), cell(case, 2)
            line = " | ".join([*begin, alone if alone == with_two else f"{alone}; two workers: {with_two}"]) + " |"
        lines.append(line)
    paths = sorted({case.path: case.framework for case in cases()}.items())
    notes = [
        textwrap.fill(f"[{framework}](frameworks/{path.name}): {docstring(path)}", 120) + shown(path)
        for path, framework in paths
    ]
    text = SECTION.format(table="\n".join(lines), notes="\n\n".join(notes), facts=facts())
    WRITTEN.write_text(before.rstrip("\n") + "\n\n" + text, encoding="utf-8")
    return int("**unexpected**" in text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
