"""Files that a recorder writes to, within a program that may close any descriptor and open a file of its own in its
place: a daemon closes them all, another closes its standard output.

What it guarantees:
1. Only the recorder's own files are written to, which are known by their device and inode.
2. A descriptor that is held is 100 or above, so that the program's have the numbers they have without us. (If the
   program has closed its standard output, a new descriptor has that number for some microseconds.)
3. What the program has closed is opened again, where the file still is.
"""

from __future__ import annotations

import contextlib
import os
import sys
from io import FileIO
from pathlib import Path

from tracing.recording.system_calls import above_others, file_of

FLAGS = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC


class OwnFile:
    """A file that is made here. A descriptor of it is held until `let_go`: one opened by a thread, later, has a low
    number for a moment, and what the program opens meanwhile has another than without us."""

    def __init__(self, path: Path) -> None:
        """Make it. Raises OSError; FileExistsError if there is one."""
        self.path = path
        self._held = above_others(os.open(path, FLAGS | os.O_CREAT | os.O_EXCL, 0o644))
        self._file = file_of(self._held)

    def opened(self) -> FileIO:
        """It, opened anew. Raises OSError; FileNotFoundError if it is gone, or another has its name."""
        return FileIO(self._open(), "r+")  # not `open`, which a program, or a test of one, may replace

    def append(self, data: bytes) -> None:
        """Raises OSError as `opened` does, or if the disk is full."""
        if file_of(self._held) != self._file:
            self._held = self._open()
        if os.write(self._held, data) < len(data):
            raise OSError("the disk is full")

    def let_go(self) -> None:
        """Hold no descriptor, until the next `append`. Can be called twice."""
        if file_of(self._held) == self._file:
            os.close(self._held)

    def _open(self) -> int:
        descriptor = above_others(os.open(self.path, FLAGS))
        if file_of(descriptor) == self._file:
            return descriptor
        os.close(descriptor)
        raise FileNotFoundError(f"{self.path} is another file now")


def say(text: str, stderr: bytes | None = None) -> None:
    """Print it on stderr, unless that is closed, or no longer the file (`file_of`) `stderr`, if one is given."""
    with contextlib.suppress(Exception):  # of the program's own sys.stderr
        if sys.stderr and stderr in (None, file_of(2)):  # with None, print() would take stdout
            print(text, file=sys.stderr, flush=True)
