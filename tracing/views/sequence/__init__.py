"""The sequence diagram: threads are columns, and a message is an arrow from where it is put to where it is taken.

    rows       which arrows and notes there are, and in what order
    text       draws them in a terminal
    mermaid    ... for Markdown

`as_text` and `as_mermaid` take the keywords of `rows.select`, which choose a part of the trace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracing.views.sequence.rows import Phase, Sequence, select

if TYPE_CHECKING:
    from tracing.trace.trace import Trace
    from tracing.views.terminal.layout import Frame

__all__ = ["Phase", "Sequence", "as_mermaid", "as_text", "select"]


def as_text(trace: Trace, *, width: int = 100, **selection: Any) -> Frame:
    """For a terminal of `width` columns: `print` prints it plain, rich's console in colour.
    Raises ValueError as `select` does, and for a width of less than 40."""
    from tracing.views.sequence.text import draw

    return draw(select(trace, **selection), width)


def as_mermaid(trace: Trace, **selection: Any) -> str:
    """As a mermaid sequenceDiagram, for Markdown. Raises ValueError as `select` does."""
    from tracing.views.sequence.mermaid import diagram

    return diagram(select(trace, **selection))
