"""Programs, run in a Python of their own; or, where that is not needed, in a fork of this process, which has imported
torch."""

from __future__ import annotations

import multiprocessing
import os
import runpy
import subprocess
import sys
from pathlib import Path

import torch.utils.data  # noqa: F401  # for all that are forked

from tests.tracing.cli.terminal import ROOT
from tracing.__main__ import main as main_of_tracing

TRACED = ("-m", "tracing", "run", "-o", "trace")


def run(folder: Path, *command: str, status: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `python *command` in `folder`; it must exit with `status`."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    done = subprocess.run([sys.executable, *command], cwd=folder, env=env, capture_output=True, text=True, timeout=100)
    assert done.returncode == status, done.stderr
    return done


def both(folder: Path, *target: str, status: int = 0, silent: bool = False) -> tuple[str, str]:
    """Run it by Python alone, and traced: the same comes out, with this exit status. Returns what it wrote to standard
    error, and what tracing did (nothing if it is `silent`)."""
    alone, with_us = run(folder, *target, status=status), run(folder, *TRACED, *target, status=status)
    theirs, _, ours = with_us.stderr.partition("tracing: ")
    assert (with_us.stdout, theirs, ours == "") == (alone.stdout, alone.stderr, silent), with_us.stderr
    return theirs, ours


def forked(folder: Path, *command: str, status: int = 0) -> tuple[str, str]:
    """Run `python *command`, a script or `-m tracing`, in `folder`; it must exit with `status`. Returns what it wrote
    to standard output and to standard error."""
    files = folder / "out.txt", folder / "err.txt"

    def program() -> None:
        os.chdir(folder)
        for number, (name, path) in enumerate(zip(("stdout", "stderr"), files, strict=True), 1):
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(file, number)
            setattr(sys, name, os.fdopen(number, "w", closefd=False))
        sys.argv, sys.path = [*command], [str(folder), *sys.path]
        if command[:2] == ("-m", "tracing"):
            sys.exit(main_of_tracing(command[2:]))
        runpy.run_path(command[0], run_name="__main__")

    process = multiprocessing.get_context("fork").Process(target=program)
    process.start()
    process.join(100)
    written = [path.read_text() for path in files]
    assert process.exitcode == status, written
    return written[0], written[1]
