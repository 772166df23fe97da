"""What the live view draws on: a terminal's other screen, or plain lines; and the album that keeps a busy frame.

Whatever starts here can be started and stopped twice.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.control import Control
from rich.terminal_theme import DIMMED_MONOKAI

from tracing.trace.state import MainStatus, State
from tracing.views.live.panels import plain, render
from tracing.views.live.recent import Recent, choose
from tracing.views.terminal.cells import Frame, without_remote_fonts

PLAIN_PERIOD = 2.0  # s between two plain lines
SLOWEST_PERIOD = 0.25  # s between two frames, at most
SHARE_OF_CORE = 0.035  # CPU time that frames may take


@dataclass
class Moment:
    """Everything that a frame is made of, whatever the size of the terminal."""

    state: State
    facts: Recent
    mode: str
    keys: str = ""
    help: bool = False

    def frame(self, title: str, width: int, height: int) -> Frame:
        mode = f"{self.mode}  {(self.facts.now - self.facts.start) / 1e9:.1f} s"
        return render(self.state, self.facts, width, height, title=title, mode=mode, keys=self.keys, help=self.help)

    def interest(self) -> int:
        """How much there is to see."""
        loader = choose(self.state, self.facts.loader)
        if loader is None:
            return 0
        queues = [loader.index_queues, loader.result_queues, [loader.data_queue]]
        lively = sum(any(len(queue) for queue in kind) for kind in queues)
        busy = sum(worker.task >= 0 for worker in loader.workers)
        lively += 2 * (busy == len(loader.workers)) + (loader.main.status is MainStatus.TRAINING)
        return lively + 3 * bool(loader.reorder_buffer) + (self.facts.now - self.facts.start > 1_000_000_000)


def say(console: Console, words: str) -> None:
    """One plain line, however long."""
    console.print(words, soft_wrap=True, highlight=False, markup=False)


class Picture:
    """Frames on the terminal's other screen, which leaves the first one as it was."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._on = False
        self._size = (0, 0)
        self._last: Moment | None = None  # None: nothing was shown

    def start(self) -> Picture:
        if not self._on:
            self._on = True
            self.console.set_alt_screen(True)
            self.console.show_cursor(False)
        return self

    def stop(self) -> None:
        if self._on:
            self._on = False
            self.console.set_alt_screen(False)
            self.console.show_cursor(True)
            if self._last is not None:  # what stays to be read when the picture is gone
                say(self.console, plain(self._last.state, self._last.facts))

    def __enter__(self) -> Picture:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def show(self, moment: Moment, album: Album) -> None:
        self._last = moment
        album.add(moment)
        size = self.console.width, self.console.height  # asked for every frame: windows change
        if size != self._size:
            self._size = size
            self.console.control(Control.clear())
        # Over the frame before: lines are as long as the window, so nothing of that one stays, and nothing flickers.
        # Not with rich's Live, which cuts every line to size once more, in most of a frame's time.
        self.console.control(Control.home())
        self.console.print(moment.frame(album.title, *size), end="", soft_wrap=True)

    def wait(self, period: float, cost: float) -> float:
        return max(period, min(SLOWEST_PERIOD, cost / SHARE_OF_CORE))


class Lines:
    """A plain line now and then."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None: ...

    def show(self, moment: Moment, album: Album) -> None:
        album.add(moment)
        say(self.console, plain(moment.state, moment.facts))

    def wait(self, period: float, cost: float) -> float:
        return PLAIN_PERIOD


class Album:
    """The busiest of the moments shown; of equally busy ones the last."""

    def __init__(self, console: Console, title: str) -> None:
        self.title = title
        self.best: Moment | None = None
        self._size = console.size if console.is_terminal else (110, 28)
        self._interest = -1

    def add(self, moment: Moment) -> None:
        interest = moment.interest()
        if interest >= self._interest:
            self.best, self._interest = moment, interest

    def save(self, path: Path) -> None:
        """Write it as SVG. OSError if that fails."""
        if self.best is None:
            return
        width, height = self._size
        console = Console(record=True, file=io.StringIO(), force_terminal=True, width=width, height=height)
        console.print(Moment(self.best.state, self.best.facts, self.best.mode).frame(self.title, width, height))
        svg = console.export_svg(title=f"python -m tracing live {self.title}", theme=DIMMED_MONOKAI)
        path.write_text(without_remote_fonts(svg), encoding="utf-8")
