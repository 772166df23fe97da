"""How far a command is: a line in the terminal, once it has taken a second."""

from __future__ import annotations

import sys
import threading
import time

PATIENCE, PERIOD = 1.0, 0.2  # s: until the line appears, and between two looks at it
WIDTH = 30  # of the bar


class Progress:
    """`with Progress("drawing") as progress:`, and where it is known how far that is, `progress(done, total)`. The line
    is gone at the end, also after Ctrl-C. Where stderr is no terminal there is none."""

    def __init__(self, what: str) -> None:
        self._what, self._share = what, -1.0  # -1: it is not known
        self._over = threading.Event()
        self._line = threading.Thread(target=self._show, daemon=True, name="progress")

    def __call__(self, done: int, total: int) -> None:
        self._share = done / max(1, total)

    def __enter__(self) -> Progress:
        if sys.stderr.isatty():
            self._line.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._line.ident is not None:
            self._line.join()

    def _show(self) -> None:
        begin, wait = time.monotonic(), PATIENCE
        while not self._over.wait(wait):
            wait, full = PERIOD, round(max(0.0, self._share) * WIDTH)
            bar = f"{'#' * full}{'.' * (WIDTH - full)} {self._share:4.0%}" if self._share >= 0 else ""
            self._print(f"{self._what} {bar or f'for {time.monotonic() - begin:.0f} s'}")
        if wait == PERIOD:
            self._print("")

    def _print(self, words: str) -> None:
        print(f"\r\x1b[K{words}", end="", file=sys.stderr, flush=True)
