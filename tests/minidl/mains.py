"""Mains that are made to end: `python -m tests.minidl.mains` imports torch once, then forks a main for each program.

A main runs in a session of its own, at the top level of this module, and ends as any interpreter does. One line in
is the folder with its `program`, one line out its pid; the line "wait" is answered with its exit code.
"""

from __future__ import annotations

import gc

if __name__ == "__main__":
    gc.disable()  # to look again and again through what is imported, and stays, takes a fourth of the time

import importlib
import os
import subprocess
import sys
import textwrap
import threading
import warnings
from pathlib import Path
from typing import Any

import psutil

import minidl
from minidl import shutdown
from tests.minidl.dying import stuck, wait_until, way, workers  # noqa: F401

ROOT = Path(minidl.__file__).parents[1]


class Mains:
    """Starts mains; see tests/minidl/mains.py. `pid` is that of the latest, and of its session. `modules` are imported
    before all of them."""

    def __init__(self, *modules: str) -> None:
        command = [sys.executable, "-m", "tests.minidl.mains", *modules]
        self.forker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        self.pid = 0

    def ask(self, line: str) -> int:
        assert self.forker.stdin and self.forker.stdout
        print(line, file=self.forker.stdin, flush=True)
        return int(self.forker.stdout.readline())

    def start(self, program: str, folder: Path) -> None:
        self.folder = folder
        (folder / "program").write_text(textwrap.dedent(program))
        self.pid = self.ask(str(folder))

    def wait_for(self, name: str) -> None:
        wait_until((self.folder / name).exists, 40)

    def members(self) -> list[psutil.Process]:
        """The living processes of its session."""
        found = []
        for process in psutil.process_iter():
            try:
                if os.getsid(process.pid) == self.pid and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except (psutil.NoSuchProcess, ProcessLookupError):
                pass
        return found

    def runs(self) -> bool:
        return psutil.Process(self.pid).status() != psutil.STATUS_ZOMBIE

    def end(self, limit: float, leftover_limit: float = 1.0) -> tuple[int, str]:
        """Exit code and stderr, once it has ended, within `limit` seconds, and with it its whole session."""
        try:
            wait_until(lambda: not self.runs(), limit)
            wait_until(lambda: not self.members(), leftover_limit)
        finally:
            for process in self.members():
                process.kill()
            code = self.ask("wait")
        return code, (self.folder / "stderr").read_text()


# ---- in the process that forks mains, and in them

FOLDER = Path()  # a main's own


def loader(context: str = "fork", at: int = -1, **options: Any) -> minidl.DataLoader:
    """Fetching key `at`, if given, takes a worker for ever. One that is not forked is alone: it has torch to import."""
    dataset = stuck(100, at, FOLDER / "stuck")
    number = 2 if context == "fork" else 1
    return minidl.DataLoader(dataset, batch_size=2, num_workers=number, multiprocessing_context=context, **options)


def until_stuck() -> None:
    wait_until((FOLDER / "stuck").exists)


def wait_for_the_end() -> None:
    """Show that everything is in place, and wait for a signal."""
    (FOLDER / "ready").touch()
    while not threading.Event().wait(0.01):
        pass  # in short waits: Python handles a signal that comes just before one only after it


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
    for name in sys.argv[1:]:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a main that exits looks through what is its own: through all of torch it takes half a second
    gc.enable()
    FOLDER = serve()
    warnings.simplefilter("ignore")
    shutdown.PATIENCE = 0.5
    exec((FOLDER / "program").read_text())
