"""Programs in a terminal of their own, as a user runs them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import tracing
from minidl.events import Kind

ROOT = Path(__file__).parents[3]

# Make the pseudo-terminal the controlling one, as a shell does, so that Ctrl-C reaches what runs in it.
IN_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


@contextlib.contextmanager
def in_terminal(
    command: list[str], folder: Path, width: int = 100, height: int = 30
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A Python command that runs in a terminal of its own, and that terminal. It is killed at the end."""
    terminal, theirs = pty.openpty()
    resize(terminal, width, height)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color"}
    for name in ("CI", "COLUMNS", "LINES", "NO_COLOR"):
        environment.pop(name, None)
    process = subprocess.Popen(
        [sys.executable, "-c", IN_TERMINAL, *command[1:]], cwd=folder,
        stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    try:
        yield process, terminal
    finally:
        process.kill()
        process.wait()
        os.close(terminal)


def resize(terminal: int, width: int, height: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))


def read_until(terminal: int, enough: Callable[[bytes], bool], seconds: float = 60) -> bytes:
    """What comes out of a terminal until it is enough, or until every process has closed it."""
    shown, deadline = b"", time.monotonic() + seconds
    with contextlib.suppress(OSError):  # EIO: it is closed
        while not enough(shown):
            left = deadline - time.monotonic()
            assert left > 0 and select.select([terminal], [], [], left)[0], f"not enough: {shown!r}"
            data = os.read(terminal, 1 << 16)
            if not data:
                break
            shown += data
    return shown


def read_all(terminal: int) -> bytes:
    return read_until(terminal, lambda shown: False)


def batches_in(directory: Path) -> int:
    """How many batches a trace has yielded, while it grows; 0 if it does not exist yet."""
    try:
        return int((tracing.load(directory).events["kind"] == Kind.YIELDED).sum())
    except tracing.TraceError:
        return 0
