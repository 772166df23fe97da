"""Who said what to whom: the threads as columns, every message an arrow from its put to its got.

rows        which arrows and notes there are, and in what order        text    in a terminal
                                                                        svg     as a picture
tracing.views.sequence.mermaid writes the same rows for Markdown.

`as_text`, `as_svg` and `as_mermaid` take the same keywords to choose a part: see `rows.select`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracing.views.sequence.rows import Part, Sequence, select

if TYPE_CHECKING:
    from tracing.trace.trace import Trace
    from tracing.views.sequence.text import Text

__all__ = ["Part", "Sequence", "as_mermaid", "as_svg", "as_text", "select"]


def as_text(trace: Trace, *, width: int = 100, **part: Any) -> Text:
    """For a terminal of `width` columns: `print` gives plain text, rich's console one with colours.
    Raises ValueError as `select` does, and for a width of less than 40."""
    from tracing.views.sequence.text import draw

    return draw(select(trace, **part), width)


def as_svg(trace: Trace, **part: Any) -> str:
    """As a picture, in one piece: no script, no font, nothing from the network. Raises ValueError as `select` does."""
    from tracing.views.sequence.svg import draw

    return draw(select(trace, **part))


def as_mermaid(trace: Trace, **part: Any) -> str:
    """As a mermaid sequenceDiagram, for Markdown. Raises ValueError as `select` does."""
    from tracing.views.sequence.mermaid import diagram

    return diagram(select(trace, **part))
