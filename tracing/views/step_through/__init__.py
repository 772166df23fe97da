"""The step-through: forwards and backwards through a trace, event by event, in a page of its own.

    code       the lines of minidl's source that emitted the events
    told       the events as columns: who did what, in words
    film       the states after them: what each event changes
    page       all of it in one HTML file, with page.html, page.css, and board.js, page.js, controls.js
    terminal   the same with keys in a terminal

The keywords of `step_page`, `write_page` and `step` that choose a part of the trace are those of `page.choose`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracing.views.step_through.page import MOST, Part, choose, render

if TYPE_CHECKING:
    from rich.console import Console

    from tracing.trace.trace import Trace

__all__ = ["MOST", "Part", "Step", "choose", "step", "step_page", "step_through", "write_page"]


class Step:
    """The page of a trace: the last value of a notebook's cell shows it, `save` writes it, `str` is its HTML."""

    def __init__(self, html: str, part: Part, height: int = 820) -> None:
        self.html, self.part, self.height = html, part, height

    def __str__(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return f"<step-through of events {self.part.first} to {self.part.last}: show it in a notebook, or .save(FILE)>"

    def _repr_html_(self) -> str:
        """A frame that holds the whole page, so that it works without a server, and neither's style meets the
        other's."""
        inner = self.html.replace("&", "&amp;").replace("'", "&#39;")
        style = f"width: 100%; height: {self.height}px; border: 0"
        return f"<iframe title='step-through' style='{style}' srcdoc='{inner}'></iframe>"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page. OSError if that fails."""
        Path(path).write_text(self.html, encoding="utf-8")


def step(trace: Trace, *, title: str | None = None, height: int = 820, **part: Any) -> Step:
    """The step-through of a trace, for a notebook: in a frame of `height` pixels.

    Raises ValueError when the part has no events.
    """
    chosen = choose(trace, **part)
    return Step(render(trace, chosen, title or f"{trace.path.name}: step by step"), chosen, height)


def step_page(trace: Trace, *, title: str | None = None, **part: Any) -> str:
    """The page as HTML, in one piece: it needs no network and no file beside it. Raises ValueError as `step` does."""
    return step(trace, title=title, **part).html


def write_page(trace: Trace, path: str | os.PathLike[str], *, title: str | None = None, **part: Any) -> str:
    """Write the page. Returns one line that says what is left out and how to get it, "" if nothing is.

    Raises ValueError as `step` does, OSError if it cannot be written.
    """
    made = step(trace, title=title, **part)
    made.save(path)
    return made.part.left_out


def step_through(trace: Trace, *, console: Console | None = None, k: int = 0) -> None:
    """Step through it with keys, from event `k` on, until q is pressed.

    Raises ValueError where there is no terminal, or no event.
    """
    from tracing.views.step_through.terminal import run  # the page needs no rich

    run(trace, console, k)
