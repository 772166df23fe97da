"""Single keys from a terminal, without waiting for the end of a line; then the terminal as it was, whatever happens.

Where there are no single keys (standard input is not a terminal) `read` only waits.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import sys
import termios
import tty
from typing import Any

# What a terminal sends after ESC [ for keys without a character; in application mode with O in place of [.
KEYS = {b"C": "right", b"D": "left"}
NAMES = {b" ": "space"}
_KEY = re.compile(rb"\x1b[\[O][0-9;]*[A-Za-z~]|[\x00-\xff]", re.DOTALL)


class Keyboard:
    """The keys of the terminal that standard input is connected to."""

    def __init__(self) -> None:
        self._fd = -1  # -1: no keys
        self._before: list[Any] = []  # the terminal's settings

    @property
    def active(self) -> bool:
        """Whether keys can come."""
        return self._fd >= 0

    def __enter__(self) -> Keyboard:
        """Get every key as soon as it is pressed. Ctrl-C still interrupts."""
        with contextlib.suppress(termios.error, OSError, ValueError, AttributeError):  # it is closed, or there is none
            fd = sys.stdin.fileno()
            # A background process may not change the terminal: the system would stop it.
            if sys.stdin.isatty() and os.tcgetpgrp(fd) == os.getpgrp():
                self._before = termios.tcgetattr(fd)
                self._fd = fd
                tty.setcbreak(fd)
        return self

    def __exit__(self, *_: object) -> None:
        """Give the terminal back as it was."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with contextlib.suppress(termios.error):  # the terminal is gone
                termios.tcsetattr(fd, termios.TCSADRAIN, self._before)

    def read(self, timeout: float) -> list[str]:
        """The keys pressed since the last time: "q", "space", "left", ... Waits for one, at most `timeout` s."""
        if not select.select([self._fd] if self.active else [], [], [], max(0.0, timeout))[0]:
            return []
        data = os.read(self._fd, 1024)
        if not data:  # the terminal has hung up
            self.__exit__()
        keys = _KEY.findall(data)
        return [NAMES.get(key, key.decode("latin-1")) if len(key) == 1 else KEYS.get(key[2:], "") for key in keys]
