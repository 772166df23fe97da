"""Batches in a terminal. A batch is a cell, ` 7 `, whose colour it keeps wherever it goes. Cells carry their number and
strips their height: without colour, and in grey, they still show everything."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment
from rich.style import Style

from tracing.views.batch_colours import DARK_ON_SCREEN, ON_SCREEN
from tracing.views.terminal.layout import DIM, Line, fit, length

INKS = [Style(color=colour) for colour in ON_SCREEN]
_CELL = [
    Style(color="#FFFFFF" if colour in DARK_ON_SCREEN else "#000000", bgcolor=colour, bold=True) for colour in ON_SCREEN
]
_MESSAGE = Style(reverse=True, bold=True)  # STOP and the like belong to no batch

LEVELS = " ▁▂▃▄▅▆▇█"


def cell(label: int | str) -> Segment:
    """A batch, or a message that carries none."""
    return Segment(f" {label} ", _CELL[label % len(_CELL)] if isinstance(label, int) else _MESSAGE)


def row_of_cells(labels: Sequence[int | str], width: int, buffered: int = 0) -> Line:
    """As many cells as there is room for, then how many more there are: `+12`.

    What is taken next is at the right end. The last `buffered` of them are still in the
    feeder's buffer: a thin line separates them from those in the pipe.
    """
    line: Line = []
    for number, label in enumerate(labels):
        left = len(labels) - number
        parts = [Segment("╎" if number == len(labels) - buffered else " ")] if number or buffered == left else []
        parts.append(cell(label))
        more = len(f" +{left - 1}") if left > 1 else 0
        if length(line) + length(parts) + more > width:
            line.append(Segment(f"{' ' if number else ''}+{left}", DIM))
            break
        line += parts
    return fit(line[::-1], width, right=True)


def strip(pieces: list[tuple[float, int]]) -> Line:
    """A lane over time: each piece as high as its load, in the colour of its task."""
    line = []
    for load, task in pieces:
        level = LEVELS[min(8, round(load * 8)) or (1 if load > 0 else 0)]
        line.append(Segment(level, INKS[task % len(INKS)] if task >= 0 else DIM))
    return line
