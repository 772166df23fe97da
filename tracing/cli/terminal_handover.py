"""Lends the terminal to the live view while a program runs: the program's output waits in a file.

The view is a separate process, not a child of this one: a program that waits for all of its children does not wait
for the view. When it is closed, the terminal shows what was printed so far, and the rest as it comes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from tracing.recording.system_calls import above_others

OUTPUT = "output.txt"  # in the trace's directory
RESTORE = b"\x1b[?1049l\x1b[?25h"  # the screen back, the cursor shown
# `python -m tracing` as a child's child. Its pid comes through a pipe, which it keeps open as long as it lives.
GRANDCHILD = """
import os, runpy, sys
pipe = int(sys.argv.pop(1))
if pid := os.fork():
    os.write(pipe, str(pid).encode())
    os._exit(0)
runpy.run_module("tracing", run_name="__main__", alter_sys=True)
"""


def is_terminal() -> bool:
    """Whether the live view can be drawn."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb" and not os.environ.get("CI")


class TerminalHandover:
    """`start()` and `end()`. Without a terminal the view prints plain lines on stderr, and no output is held."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._view = -1  # its pid
        self._pipe = -1  # at its end once the view has ended
        self._held: dict[int, int] = {}  # descriptor 1 or 2 -> a copy of what it was
        self._file = -1  # what is printed meanwhile
        self._shown = 0  # bytes of the file
        self._watcher: threading.Thread | None = None

    def start(self) -> None:
        (self.directory / OUTPUT).unlink(missing_ok=True)
        if not is_terminal():
            self._open_view(stdin=subprocess.DEVNULL, stdout=2, env={**os.environ, "TERM": "dumb"})
        else:
            self._open_view()
            self._hold_output()
        self._watcher = threading.Thread(target=self._watch, daemon=True, name="live view")
        self._watcher.start()

    def _open_view(self, **options: Any) -> None:
        """options: those of subprocess.run."""
        pipe, its = os.pipe()
        command = [sys.executable, "-c", GRANDCHILD, str(its), "live", str(self.directory)]
        subprocess.run(command, pass_fds=[its], check=True, **options)
        os.close(its)
        self._view, self._pipe = int(os.read(pipe, 20)), above_others(pipe)

    def _hold_output(self) -> None:
        flush()
        flags = os.O_CREAT | os.O_RDWR | os.O_APPEND
        self._file = above_others(os.open(self.directory / OUTPUT, flags, 0o666))
        for descriptor in filter(os.isatty, (1, 2)):
            self._held[descriptor] = above_others(os.dup(descriptor))
            os.dup2(self._file, descriptor)

    def _watch(self) -> None:
        """Give the terminal back to the program once the view is closed."""
        with contextlib.suppress(OSError):
            os.read(self._pipe, 1)
        self._show()
        flush()
        for descriptor, was in self._held.items():
            os.dup2(was, descriptor)
        self._show()

    def _show(self) -> None:
        """Print what has been held back since the last call."""
        with contextlib.suppress(OSError):  # the terminal is gone, or nothing is held
            while data := os.pread(self._file, 1 << 16, self._shown):
                self._shown += os.write(self._held[1], data)

    def end(self) -> None:
        """Close the view, as the program has ended."""
        flush()
        if self._watcher is None:  # it has not started
            return
        self._end_view(self._watcher)
        self._watcher.join()
        self._show()  # printed by child processes that still have the file
        for descriptor in (self._pipe, self._file, *self._held.values()):
            with contextlib.suppress(OSError):  # there is none, or the program has closed it
                os.close(descriptor)

    def _end_view(self, watcher: threading.Thread) -> None:
        """SIGTERM makes it give the terminal back, like Ctrl-C."""
        with contextlib.suppress(ProcessLookupError):  # it just ended
            try:
                if watcher.is_alive():
                    os.kill(self._view, signal.SIGTERM)
                watcher.join(5)
            except KeyboardInterrupt:
                pass
            if watcher.is_alive():  # it hangs; or another Ctrl-C
                os.kill(self._view, signal.SIGKILL)
                os.write(self._held.get(1, 2), RESTORE)


def flush() -> None:
    for stream in sys.stdout, sys.stderr:
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or gone
            stream.flush()
