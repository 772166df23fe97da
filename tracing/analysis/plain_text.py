"""How the reports are laid out as text."""

from __future__ import annotations

import textwrap

WIDTH = 76  # characters of a line: the demo indents it by 4


def wrap(label: str, text: str) -> list[str]:
    """Lines of text after a label, such as "Note: ", and indented by its width."""
    blank = " " * len(label)
    return textwrap.wrap(text, WIDTH, initial_indent=label, subsequent_indent=blank, break_on_hyphens=False)
