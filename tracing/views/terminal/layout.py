"""The layout of a terminal picture: lines of styled text that are exactly as long as they should be.

Legend
    Line    [Segment(" 7 ", orange), Segment("  ")]   one line; a box is a list of them
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style

Line = list[Segment]

PLAIN, BOLD, DIM = Style(), Style(bold=True), Style(dim=True)
GOOD, BAD, WAITS = Style(color="green", bold=True), Style(color="red", bold=True), Style(color="yellow", bold=True)


class Frame:
    """Lines, each exactly `width` columns: rich prints them in colour, `str` is plain."""

    def __init__(self, lines: list[Line], width: int) -> None:
        self.lines = [fit(line, width) for line in lines]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for number, line in enumerate(self.lines):
            if number:  # none after the last: it would scroll a full window
                yield Segment.line()
            yield from line

    def __str__(self) -> str:
        return "\n".join(line.rstrip() for line in lines_of(self))


def text(words: str, style: Style = PLAIN) -> Segment:
    return Segment(words, style)


def length(line: Sequence[Segment]) -> int:
    """Columns on the screen."""
    return sum(cell_len(segment.text) for segment in line)


def fit(line: Line, width: int, right: bool = False) -> Line:
    """The line, cut or padded to `width` columns; `right`: padded on its left. A cut line ends with `…`."""
    missing = width - length(line)
    if missing >= 0:
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
    """The lines in a frame of exactly that size, with a caption beside the title where there is room for it."""
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
    """Boxes of the same height side by side, one column apart. In the lines `arrows` an arrow leads from each to the
    next: batches travel from left to right."""
    joined = []
    for number, parts in enumerate(zip(*boxes, strict=True)):
        gap = Segment("▸", BOLD) if number in arrows else Segment(" ")
        line = list(parts[0])
        for part in parts[1:]:
            line += [gap, *part]
        joined.append(line)
    return joined


def lines_of(frame: Frame) -> Iterator[str]:
    """The frame as plain text, line by line."""
    for line in frame.lines:
        yield "".join(segment.text for segment in line)
