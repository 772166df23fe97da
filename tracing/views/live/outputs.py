"""Where the live view's frames go: to the terminal's other screen, or as plain lines where there is no terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from rich.console import Console
from rich.control import Control

from tracing.views.live.panels import Moment, plain, render

PLAIN_PERIOD = 2.0  # s between two plain lines
SLOWEST_PERIOD = 0.25  # s between two frames, at most
SHARE_OF_CORE = 0.035  # that frames may take


def print_line(console: Console, words: str) -> None:
    """One plain line, however long; in a terminal broken between words."""
    console.print(words, soft_wrap=not console.is_terminal, highlight=False, markup=False)


class PlainLines(contextlib.AbstractContextManager["PlainLines"]):
    """A plain line every PLAIN_PERIOD."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.last_words: Callable[[], str] | None = None  # what remains, as a plain line

    def __exit__(self, *_: object) -> None:
        if self.last_words is not None:
            print_line(self.console, self.last_words())

    def show(self, moment: Moment) -> None:
        print_line(self.console, plain(moment.state, moment.recent))

    def wait(self, period: float, cost: float) -> float:
        """Until the next frame, after one that took `cost` s."""
        return PLAIN_PERIOD


class FullScreen(PlainLines):
    """Frames on the terminal's other screen."""

    _size = (0, 0)

    def show(self, moment: Moment) -> None:
        size = self.console.width, self.console.height  # looked up for every frame: windows change
        if size != self._size:
            self._size = size
            self.console.control(Control.clear())
        # Over the previous frame: lines are as long as the window, so nothing of it remains and nothing flickers. Not
        # with rich's Live, which cuts every line to size once more, and that takes most of a frame's time.
        self.console.control(Control.home())
        self.console.print(render(moment, *size), end="", soft_wrap=True)

    def wait(self, period: float, cost: float) -> float:
        return max(period, min(SLOWEST_PERIOD, cost / SHARE_OF_CORE))
