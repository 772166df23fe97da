"""The bricks of a terminal picture: lines of styled text that are exactly as long as they should be.

A batch is drawn as a cell, ` 7 `, whose colour it keeps wherever it goes. Cells carry their number, strips their
height: without colour, and in grey, they still say everything.

Legend
    Line    [Segment(" 7 ", orange), Segment("  ")]   one line; a box is a list of them
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.style import Style

Line = list[Segment]

# Okabe and Ito's colours, which the colour-blind can tell apart. Seven of them: of 2, 4, 8 or 16 workers none sees the
# same one every time. (The timeline has others, apart in grey on white paper: a dark screen would swallow its darkest.)
COLOURS = ("#E69F00", "#56B4E9", "#009E73", "#F0E442", "#CC79A7", "#0072B2", "#D55E00")
DARK = {"#0072B2"}  # light digits on these
_CELL = [Style(color="#FFFFFF" if colour in DARK else "#000000", bgcolor=colour, bold=True) for colour in COLOURS]
_INK = [Style(color=colour) for colour in COLOURS]
_MESSAGE = Style(reverse=True, bold=True)  # STOP and the like belong to no batch
PLAIN, BOLD, DIM = Style(), Style(bold=True), Style(dim=True)
GOOD, BAD, WAITS = Style(color="green", bold=True), Style(color="red", bold=True), Style(color="yellow", bold=True)

LEVELS = " ▁▂▃▄▅▆▇█"
# What a terminal that knows only ASCII gets instead.
ASCII = str.maketrans("╭╮╰╯─│╎▸↱↳→←↑↓·×▁▂▃▄▅▆▇█░●‖µ…", "++++-||>>>><^v.x__--==##.*|u~")


class Frame:
    """Lines, ready to be printed by rich: each exactly `width` columns."""

    def __init__(self, lines: list[Line], width: int) -> None:
        self.lines = [fit(line, width) for line in lines]
        self.width = width

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for number, line in enumerate(self.lines):
            if number:  # none after the last: it would scroll a full window
                yield Segment.line()
            for segment in line:
                yield Segment(segment.text.translate(ASCII), segment.style) if options.ascii_only else segment

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(self.width, self.width)


def text(words: str, style: Style = PLAIN) -> Segment:
    return Segment(words, style)


def length(line: Sequence[Segment]) -> int:
    """Columns on the screen."""
    return sum(cell_len(segment.text) for segment in line)


def fit(line: Line, width: int, right: bool = False) -> Line:
    """The line, cut or filled to `width` columns; `right`: filled on its left. What is cut ends with `…`."""
    missing = width - length(line)
    if missing == 0:
        return line
    if missing > 0:
        space = Segment(" " * missing)
        return [space, *line] if right else [*line, space]
    words = "".join(segment.text for segment in line)
    if width < 1 or not words[width:].strip():
        return Segment.adjust_line_length(line, max(0, width))
    return [*Segment.adjust_line_length(line, width - 1), Segment("…", DIM)]


def ends(left: Line, right: Line, width: int) -> Line:
    """Both ends of a line; the left one is cut if there is no room for both."""
    room = width - length(right)
    return [*fit(left, room), *right] if room > 0 else fit(right, width)


def box(title: str, lines: list[Line], width: int, height: int, caption: str = "") -> list[Line]:
    """The lines in a frame of exactly that size; the caption says more than the title where there is room for it."""
    if width < 4 or height < 2:
        return [fit([], width) for _ in range(height)]
    inner = width - 2
    head = [Segment(f" {title} " if cell_len(title) + 2 <= inner - 1 else title, BOLD)]
    head = fit(head, min(length(head), inner - 1))
    if caption and length(head) + cell_len(caption) + 3 <= inner - 1:
        head.append(Segment(f"· {caption} ", DIM))
    side = Segment("│", DIM)
    top = [Segment("╭─", DIM), *head, Segment("─" * (inner - 1 - length(head)) + "╮", DIM)]
    body = [[side, *fit(line, inner), side] for line in lines[: height - 2]]
    empty = [[side, Segment(" " * inner), side]] * (height - 2 - len(body))
    return [top, *body, *empty, [Segment("╰" + "─" * inner + "╯", DIM)]]


def beside(boxes: list[list[Line]], arrows: Sequence[int] = ()) -> list[Line]:
    """Boxes of the same height side by side, one column apart; in the lines `arrows` an arrow leads from each to the
    next: batches travel from left to right."""
    joined = []
    for number, parts in enumerate(zip(*boxes, strict=True)):
        gap = Segment("▸", BOLD) if number in arrows else Segment(" ")
        line = list(parts[0])
        for part in parts[1:]:
            line += [gap, *part]
        joined.append(line)
    return joined


def cell(label: int | str) -> Segment:
    """A batch, or a message that carries none."""
    return Segment(f" {label} ", _CELL[label % len(_CELL)] if isinstance(label, int) else _MESSAGE)


def row_of_cells(labels: Sequence[int | str], width: int, buffered: int = 0, end: bool = True) -> Line:
    """As many cells as there is room for, then how many more there are: `+12`.

    What is taken next stands at the right `end`, or at the left. The last `buffered` of them are still in the
    feeder's buffer: a thin line parts them from those in the pipe.
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
    return fit(line[::-1], width, right=True) if end else fit(line, width)


def strip(pieces: list[tuple[float, int]]) -> Line:
    """A lane over time: each piece as high as its load, in the colour of its task."""
    line = []
    for load, task in pieces:
        level = LEVELS[min(8, round(load * 8)) or (1 if load > 0 else 0)]
        line.append(Segment(level, _INK[task % len(_INK)] if task >= 0 else DIM))
    return line


def bar(share: float, width: int, style: Style) -> Line:
    """0 to 1 as a bar."""
    full = min(width, round(share * width))
    return [Segment("█" * full, style), Segment("░" * (width - full), DIM)]


def without_remote_fonts(svg: str) -> str:
    """rich's picture fetches its font from the network when it is looked at; ours takes the reader's own."""
    svg = re.sub(r"@font-face\s*{[^}]*}", "", svg)
    return svg.replace("Fira Code, monospace", "Fira Code, Menlo, Consolas, DejaVu Sans Mono, monospace")


def lines_of(frame: Frame) -> Iterator[str]:
    """The frame as plain text, line by line."""
    for line in frame.lines:
        yield "".join(segment.text for segment in line)
