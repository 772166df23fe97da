"""Mains that are made to end: `python -m tests.minidl.mains` imports torch once, then forks a main for each program.

A main runs in a session of its own, at the top level of this module, and ends as any interpreter does. One line in
is the folder with its `program`, one line out its pid; the line "wait" is answered with its exit code.
"""

from __future__ import annotations

import os
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import minidl
from minidl import shutdown
from tests.minidl.dying import Stuck, wait_until

FOLDER = Path()  # a main's own


def loader(context: str = "fork", at: int = -1, **options: Any) -> minidl.DataLoader:
    """Fetching key `at`, if given, takes a worker for ever."""
    dataset = Stuck(100, at, FOLDER / "stuck")
    return minidl.DataLoader(dataset, batch_size=2, num_workers=2, multiprocessing_context=context, **options)


def until_stuck() -> None:
    wait_until((FOLDER / "stuck").exists)


def wait_for_the_end() -> None:
    """Say that everything is in place, and wait for a signal."""
    (FOLDER / "ready").touch()
    threading.Event().wait()


def serve() -> Path:
    """Returns in a main; in the process that forks them it does not, but ends with its input."""
    pid = 0
    for line in sys.stdin:
        if line == "wait\n":
            print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
            continue
        pid = os.fork()
        if pid == 0:
            folder = Path(line.rstrip("\n"))
            os.setsid()
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(os.open(folder / "stdout", os.O_CREAT | os.O_WRONLY), 1)
            os.dup2(os.open(folder / "stderr", os.O_CREAT | os.O_WRONLY), 2)
            return folder
        print(pid, flush=True)
    sys.exit()


if __name__ == "__main__":
    FOLDER = serve()
    warnings.simplefilter("ignore")
    shutdown.PATIENCE = 0.5
    exec((FOLDER / "program").read_text())
