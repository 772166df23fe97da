"""Lends the terminal to the live view while a program runs: the program's output waits in a file.

The view is a process of its own. When it is closed, the terminal shows what was printed so far, and the rest as it
comes.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from pathlib import Path

from tracing.recording.own_files import above_others

OUTPUT = "output.txt"  # in the trace's directory
RESTORE = b"\x1b[?1049l\x1b[?25h"  # the screen back, the cursor shown


def is_terminal() -> bool:
    """Whether the live view can be drawn."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb" and not os.environ.get("CI")


class TerminalHandover:
    """`start()` and `end()`. Without a terminal, or with `lines`, the view prints plain lines on stderr, and no output
    is held."""

    def __init__(self, directory: Path, lines: bool = False) -> None:
        self.directory, self._lines = directory, lines
        self._view: subprocess.Popen[bytes] | None = None
        self._held: dict[int, int] = {}  # descriptor 1 or 2 -> a copy of what it was
        self._file = -1
        self._shown = 0  # bytes of the file
        self._watcher: threading.Thread | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "tracing", "live", str(self.directory)]
        (self.directory / OUTPUT).unlink(missing_ok=True)
        if self._lines or not is_terminal():
            plain = {**os.environ, "TERM": "dumb"}
            self._view = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=2, env=plain)
            return
        self._view = subprocess.Popen(command)
        flush()
        flags = os.O_CREAT | os.O_RDWR | os.O_APPEND
        self._file = above_others(os.open(self.directory / OUTPUT, flags, 0o666))
        for descriptor in filter(os.isatty, (1, 2)):
            self._held[descriptor] = above_others(os.dup(descriptor))
            os.dup2(self._file, descriptor)
        self._watcher = threading.Thread(target=self._watch, daemon=True, name="live view")
        self._watcher.start()

    def _watch(self) -> None:
        """Give the terminal back to the program once the view is closed."""
        assert self._view is not None
        self._view.wait()
        self._show()
        flush()
        for descriptor, was in self._held.items():
            os.dup2(was, descriptor)
        self._show()

    def _show(self) -> None:
        """Print what has been held back since the last call."""
        with contextlib.suppress(OSError):  # the terminal is gone
            while data := os.pread(self._file, 1 << 16, self._shown):
                self._shown += os.write(self._held[1], data)

    def end(self) -> None:
        """Close the view, as the program has ended."""
        flush()
        try:
            self._end_view()
        finally:
            if self._watcher is not None:
                self._watcher.join()
                self._show()  # what child processes printed that still have the file
                for descriptor in (self._file, *self._held.values()):
                    os.close(descriptor)
                self._watcher = None

    def _end_view(self) -> None:
        """SIGTERM makes it give the terminal back, like Ctrl-C."""
        view, self._view = self._view, None
        if view is None:
            return
        try:
            view.terminate()
            view.wait(5)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):  # it hangs; or another Ctrl-C
            view.kill()
            view.wait()
            os.write(self._held.get(1, 2), RESTORE)


def flush() -> None:
    for stream in sys.stdout, sys.stderr:
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or gone
            stream.flush()
