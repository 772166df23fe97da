"""What `python -m tracing run` costs a whole program, from its start to the report at its end, beside plain Python.

A batch is made by computing for so much CPU time, so that workers wait for nothing but a core; main only iterates. With
one worker each has a core on the smallest machine; with two they share them with main, and what recording takes is
taken from them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from time import perf_counter

from tests.benchmarks.turns import Comparison, in_turns

MILLISECONDS = (0.1, 1.0, 10.0)  # that a batch takes to make
WORKERS = (0, 1, 2)
TRIAL = 200  # batches, to see how long one takes
GOAL_FROM = 1.0  # ms: a batch that takes as long, or longer, has a goal

PROGRAM = """
import sys, time
from torch.utils.data import DataLoader, Dataset

batches, seconds, workers = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])

class Computed(Dataset):
    def __len__(self):
        return batches
    def __getitem__(self, index):
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            pass
        return index

begin = time.perf_counter()
for _ in DataLoader(Computed(), batch_size=None, num_workers=workers):
    pass
print(time.perf_counter() - begin)
"""


def compare_programs(milliseconds: float, workers: int, seconds: float) -> Comparison:
    """Seconds that a program of about `seconds` takes, imports and report included: plain Python first, recorded
    second."""
    with tempfile.TemporaryDirectory() as directory:
        script = Path(directory, "load.py")
        script.write_text(PROGRAM)
        env = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}  # as for users: only the first run compiles the tracer

        def ended(recorded: bool, batches: int) -> str:
            before = ["-m", "tracing", "run", "-o", str(Path(directory, "trace"))] if recorded else []
            command = [sys.executable, *before, str(script), str(batches), str(milliseconds / 1e3), str(workers)]
            return subprocess.run(command, capture_output=True, check=True, text=True, env=env).stdout

        def timed(recorded: bool) -> float:
            begin = perf_counter()
            ended(recorded, batches)
            return perf_counter() - begin

        ended(True, TRIAL)
        batches = max(10, int(seconds * TRIAL / float(ended(False, TRIAL))))
        return in_turns(partial(timed, False), partial(timed, True), turns=1)
