"""What a frame of the live view is made of, and the busiest of those shown, which can be saved as SVG."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI

from tracing.trace.state import MainStatus, State
from tracing.views.live.panels import render
from tracing.views.live.recent import Recent, choose
from tracing.views.terminal.layout import Frame, Line


@dataclass
class Moment:
    """Everything that a frame is made of, except the size of the terminal."""

    state: State
    facts: Recent
    mode: str
    keys: str = ""
    help: bool = False
    processes: list[Line] = field(default_factory=list)  # a line for each, where there are several

    def frame(self, title: str, width: int, height: int) -> Frame:
        return render(
            self.state, self.facts, width, height, title=title, mode=f"{self.mode}  {self.facts.seconds:.1f} s",
            keys=self.keys, help=self.help, above=self.processes,
        )  # fmt: skip

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


class BusiestMoment:
    """The busiest of the moments shown; of equally busy ones the last."""

    def __init__(self, console: Console, title: str) -> None:
        self.title = title
        self.moment: Moment | None = None
        self._size = console.size if console.is_terminal else (110, 28)
        self._interest = -1

    def add(self, moment: Moment) -> None:
        interest = moment.interest()
        if interest >= self._interest:
            self.moment, self._interest = moment, interest

    def save(self, path: Path) -> None:
        """Write it as SVG. Raises OSError if that fails."""
        if self.moment is None:
            return
        width, height = self._size
        console = Console(record=True, file=io.StringIO(), force_terminal=True, width=width, height=height)
        console.print(replace(self.moment, keys="", help=False).frame(self.title, width, height))
        svg = console.export_svg(title=f"python -m tracing live {self.title}", theme=DIMMED_MONOKAI)
        path.write_text(without_remote_fonts(svg), encoding="utf-8")


def without_remote_fonts(svg: str) -> str:
    """rich's picture fetches its font from the network when it is viewed; ours uses the reader's own."""
    svg = re.sub(r"@font-face\s*{[^}]*}", "", svg)
    return svg.replace("Fira Code, monospace", "Fira Code, Menlo, Consolas, DejaVu Sans Mono, monospace")
