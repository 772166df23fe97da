"""Gives the terminal back as it was, whatever happens: an error, Ctrl-C or SIGTERM.

Here it is the screen, the cursor and the handler of SIGTERM; keyboard.py does the same for the keys.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator

from rich.console import Console


@contextlib.contextmanager
def other_screen(console: Console) -> Iterator[None]:
    """The terminal's other screen, without a cursor. The first one stays as it was."""
    try:
        console.set_alt_screen(True)
        console.show_cursor(False)
        yield
    finally:
        console.set_alt_screen(False)
        console.show_cursor(True)


@contextlib.contextmanager
def exit_on_sigterm() -> Iterator[None]:
    """SIGTERM raises SystemExit in this block, so that the terminal is restored on the way out."""
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
