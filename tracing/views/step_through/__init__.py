"""The step-through: forwards and backwards through a trace, event by event, in a page.

source_code     the lines of minidl's source that emitted the events
event_columns   the events as columns: which thread did what, in words
state_changes   the states after them: what each event changes
page            all of it in one HTML file, with page.html, page.css, and board.js, page.js, controls.js
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tracing.trace.trace import Trace
from tracing.views.step_through.page import Excerpt, choose, render

__all__ = ["Excerpt", "Step", "choose", "step"]


class Step:
    """The page of a trace: a notebook shows it, `save` writes it, `html` is its text."""

    def __init__(self, html: str, excerpt: Excerpt, height: int = 820) -> None:
        self.html, self.excerpt, self.height = html, excerpt, height

    def __repr__(self) -> str:
        first, last = self.excerpt.first, self.excerpt.last
        return f"<step-through of events {first} to {last}: show it in a notebook, or .save(FILE)>"

    def _repr_html_(self) -> str:
        """A frame that holds the whole page: it needs no server, and its styles and the notebook's stay apart."""
        inner = self.html.replace("&", "&amp;").replace("'", "&#39;")
        style = f"width: 100%; height: {self.height}px; border: 0"
        return f"<iframe title='step-through' style='{style}' srcdoc='{inner}'></iframe>"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page. OSError if that fails."""
        Path(path).write_text(self.html, encoding="utf-8")


def step(trace: Trace, *, title: str | None = None, height: int = 820, **selection: Any) -> Step:
    """The step-through of a trace: one self-contained page, in a notebook in a frame of `height` pixels.

    selection: the keywords of `page.choose`, which choose a part of the trace. Raises ValueError if no events are
    chosen.
    """
    chosen = choose(trace, **selection)
    return Step(render(trace, chosen, title or f"{trace.path.name}: step by step"), chosen, height)
