"""The sequence diagram as a picture: one self-contained SVG, without script, font or network.

Time goes down the page, one event per line (in order, not to scale: the times are on the left). A message begins in the
line of its put and ends in the line of its got, so the longer it is in a queue, the steeper it falls. A bar on a
thread's line is the batch that the thread has.

    stub   ──[3]──╲             the sender's end: its put, with the batch
                   ╲
    stub            ╲──3─▸      the taker's end: its got
"""

from __future__ import annotations

from html import escape

from minidl.events import Kind
from tracing.trace.event_words import ALARMING
from tracing.trace.state import Label
from tracing.views.batch_colours import DARK_ON_PAPER, LINES_ON_PAPER, ON_PAPER
from tracing.views.sequence.rows import MAIN, Arrow, Delivery, Note, Sequence

INK, FAINT, ALARM, MESSAGE = "#222222", "#767676", "#c02020", "#555555"

LINE = 18  # pixels: a line's height; in a lower one the label of an arrow touches a chip in the line above
TOP, LEFT, RIGHT = 92, 130, 380  # the space above the threads, left, right
CHIP, STUB, HEAD = 30, 40, 26  # a label's width; the level parts of an arrow
REPEAT = 45  # lines after which the threads' names are repeated
LEGEND = "Time goes down, event by event. The longer a message is in its queue, the steeper it falls."


def draw(sequence: Sequence) -> str:
    """The whole file."""
    layout = SvgLayout(sequence)
    body = [*layout.lifelines(), *layout.bars()]
    for row in sequence.rows:
        body += layout.arrow(row) if isinstance(row, Arrow) else layout.note(row)
    return "\n".join([*layout.head(), *body, *layout.foot(), "</svg>", ""])


class SvgLayout:
    """Where everything goes, and the elements that draw it."""

    def __init__(self, sequence: Sequence) -> None:
        self.sequence = sequence
        count = len(sequence.columns)
        self.step = 150 if count <= 5 else 124 if count <= 9 else 104
        self.x = {column: LEFT + self.step * number for number, column in enumerate(sequence.columns)}
        positions = {row.begin for row in sequence.rows}
        positions |= {row.end for row in sequence.rows if isinstance(row, Arrow) and row.end >= 0}
        self.repeats = range(REPEAT, len(positions) - REPEAT // 3, REPEAT)  # names are repeated above these lines
        self.y = {position: self._line(number) for number, position in enumerate(sorted(positions))}
        self.bottom = self._line(len(positions) - 1) + LINE
        self.words_x = LEFT + self.step * (count - 1) + 34
        self.width, self.height = self.words_x + RIGHT, self.bottom + 62

    def _line(self, number: int) -> int:
        return TOP + LINE * (number + 2 * sum(number >= repeat for repeat in self.repeats))

    # ---- the background

    def head(self) -> list[str]:
        style = (
            "text{font:12px system-ui,Segoe UI,Helvetica,Arial,sans-serif;fill:#222222}"
            ".t{font-size:10.5px;fill:#767676;text-anchor:end;font-variant-numeric:tabular-nums}"
            ".n{font-weight:600;text-anchor:middle}.c{font-size:11px;font-weight:600;text-anchor:middle}"
            ".f{fill:#767676;font-size:11px}.a{fill:#c02020}.l{stroke:#c8c8c8;stroke-width:1.2}"
            ".m{fill:none;stroke-width:1.5}"
        )
        return [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{self.height}" '
            f'viewBox="0 0 {self.width} {self.height}" role="img">',
            f"<title>{escape(self.sequence.title)}</title><style>{style}</style>",
            f'<rect width="{self.width}" height="{self.height}" fill="#ffffff"/>',
            f'<text x="16" y="26" style="font-size:16px;font-weight:600">{escape(self.sequence.title)}</text>',
            f'<text x="16" y="44" class="f">{LEGEND}</text>',
            f'<text x="{LEFT - 46}" y="{TOP - 20}" class="t">ms</text>',
        ]

    def lifelines(self) -> list[str]:
        """A line for each thread, dotted once it is known to have ended; and the names, every so often."""
        drawn = []
        for column, x in self.x.items():
            end = self._end_of(column)
            drawn.append(f'<line x1="{x}" y1="{TOP - 14}" x2="{x}" y2="{end}" class="l"/>')
            if end < self.bottom:
                drawn.append(
                    f'<line x1="{x}" y1="{end}" x2="{x}" y2="{self.bottom}" class="l" stroke-dasharray="1.5 5"/>'
                )
            heads = [TOP - 20, *(self._line(repeat) - LINE - 8 for repeat in self.repeats), self.bottom + 14]
            for y in heads:
                drawn.append(
                    f'<rect x="{x - 44}" y="{y - 14}" width="88" height="19" rx="4" fill="#f0f0f0" opacity="0.9"/>'
                    f'<text x="{x}" y="{y}" class="n">{escape(_short(column))}</text>'
                )
        return drawn

    def _end_of(self, column: str) -> int:
        """Where a note shows that this thread has ended; else the bottom."""
        for row in self.sequence.rows:
            if isinstance(row, Note) and column == _ended_by(row):
                return self.y[row.begin]
        return self.bottom

    def bars(self) -> list[str]:
        """The batch that a worker or the pin thread has: from its got to its put."""
        drawn = []
        got: dict[str, Arrow] = {}
        arrows = [row for row in self.sequence.rows if isinstance(row, Arrow)]
        moments = [(row.end, False, row) for row in arrows if row.taken] + [(row.begin, True, row) for row in arrows]
        for _, puts, row in sorted(moments, key=lambda moment: moment[:2]):
            if not puts:
                got[row.target] = row
            elif row.source in got and got[row.source].label == row.label and row.source != MAIN:
                drawn.append(self._bar(got.pop(row.source), self.y[row.begin]))
        notes = [row for row in self.sequence.rows if isinstance(row, Note)]
        dead = {_ended_by(row) for row in notes if row.kind == Kind.WORKER_DIED}
        drawn += [self._bar(row, self._end_of(column)) for column, row in got.items() if column in dead]
        return drawn

    def _bar(self, row: Arrow, end: int) -> str:
        begin = self.y[row.end]
        return (
            f'<rect x="{self.x[row.target] - 5}" y="{begin}" width="10" height="{max(1, end - begin)}" rx="2" '
            f'fill="{_colour(row.label)}" opacity="0.8"/>'
        )

    def foot(self) -> list[str]:
        line = escape(self.sequence.left_out)
        return [f'<text x="16" y="{self.height - 14}" class="f">{line}</text>'] if line else []

    # ---- rows

    def arrow(self, row: Arrow) -> list[str]:
        """From where it is put to where it is taken; dashed, with a cross at its end, if it never is."""
        x1, y1, x2 = self.x[row.source], self.y[row.begin], self.x[row.target]
        side = 1 if x2 > x1 else -1
        colour, line = _colour(row.label), _line(row.label)
        drawn = [f'<g data-k="{row.begin}" data-end="{row.end}"><title>{escape(self._tooltip(row))}</title>']
        if row.end >= 0:
            y2 = self.y[row.end]
            ends = f"L{x2 - side * HEAD},{y2} L{x2 - side * 7},{y2}"
            broken = "" if row.taken else ' stroke-dasharray="5 4"'
        else:
            y2, x2 = y1, x1 + side * (STUB + 34)
            ends, broken = f"L{x2},{y2}", ' stroke-dasharray="5 4"'
        drawn.append(f'<path class="m" stroke="{line}"{broken} d="M{x1},{y1} L{x1 + side * STUB},{y1} {ends}"/>')
        if row.taken:
            drawn.append(f'<path fill="{line}" d="M{x2 - side},{y2} l{-side * 8},-4 v8 z"/>')
            drawn.append(
                f'<text x="{x2 - side * 17}" y="{y2 - 3}" class="c" fill="{colour}" '
                f'style="font-size:9.5px;fill:{_ink(colour)}">{row.label if isinstance(row.label, int) else ""}</text>'
            )
        elif row.delivery is not Delivery.WAITING:
            drawn.append(_cross(x2 - side * (8 if row.end >= 0 else 0), y2))
        drawn.append(self._chip(x1 + side * (STUB / 2 + 2), y1, row.label))
        if not row.taken:
            drawn.append(self._words(y1, self.sequence.delivery_in_words(row), row.delivery is not Delivery.WAITING))
        return [*drawn, self._time(row.begin), self._time(row.end) if row.end >= 0 else "", "</g>"]

    def note(self, row: Note) -> list[str]:
        x, y, alarming = self.x[row.column], self.y[row.begin], row.kind in ALARMING
        drawn = [f'<g data-k="{row.begin}">', self._time(row.begin)]
        drawn.append(
            f'<line x1="{x}" y1="{y}" x2="{self.words_x - 6}" y2="{y}" stroke="{ALARM if alarming else "#d4d4d4"}" '
            f'stroke-dasharray="1 4"/>'
        )
        if row.kind == Kind.YIELDED and row.words.batch is not None:
            drawn.append(self._chip(x, y, row.words.batch))
        else:
            drawn.append(f'<circle cx="{x}" cy="{y}" r="3.5" fill="{ALARM if alarming else INK}"/>')
        if row.kind == Kind.WORKER_DIED and f"worker {row.worker}" in self.x:
            drawn.append(_cross(self.x[f"worker {row.worker}"], y, 6))
        return [*drawn, self._words(y, row.words.text(), alarming), "</g>"]

    # ---- parts of these

    def _tooltip(self, row: Arrow) -> str:
        return f"{row.label}: {row.source} → {row.target}, {self.sequence.delivery_in_words(row)} (event {row.begin})"

    def _time(self, position: int) -> str:
        time = f"{self.sequence.time(position) / 1e6:.3f}"
        return f'<text x="{LEFT - 46}" y="{self.y[position] + 4}" class="t">{time}</text>'

    def _words(self, y: int, words: str, alarming: bool) -> str:
        shown = words if len(words) <= 62 else words[:61] + "…"
        return (
            f'<text x="{self.words_x}" y="{y + 4}"{" class=" + chr(34) + "a" + chr(34) if alarming else ""}>'
            f"<title>{escape(words)}</title>{escape(shown)}</text>"
        )

    def _chip(self, x: float, y: int, label: Label) -> str:
        colour, text = _colour(label), str(label)
        width = max(22, 8 + 7 * len(text))
        ink = "#ffffff" if colour in DARK_ON_PAPER | {MESSAGE} else "#000000"
        return (
            f'<rect x="{x - width / 2:g}" y="{y - 7}" width="{width}" height="14" rx="3" fill="{colour}"/>'
            f'<text x="{x:g}" y="{y + 4}" class="c" style="fill:{ink}">'
            f"{escape(text)}</text>"
        )


def _ended_by(note: Note) -> str:
    """The thread whose end it shows, "" if none."""
    if note.kind in (Kind.WORKER_DIED, Kind.WORKER_JOINED):
        return f"worker {note.worker}"
    return note.column if note.kind == Kind.PIN_THREAD_END else ""


def _colour(label: Label) -> str:
    return ON_PAPER[label % len(ON_PAPER)] if isinstance(label, int) else MESSAGE


def _line(label: Label) -> str:
    return LINES_ON_PAPER[label % len(LINES_ON_PAPER)] if isinstance(label, int) else MESSAGE


def _ink(colour: str) -> str:
    """For small digits on white: light colours are hard to read."""
    return colour if colour in DARK_ON_PAPER else INK


def _cross(x: float, y: int, size: int = 4) -> str:
    return (
        f'<path d="M{x - size:g},{y - size} l{2 * size},{2 * size} m0,{-2 * size} l{-2 * size},{2 * size}" '
        f'stroke="{ALARM}" stroke-width="2.2" fill="none"/>'
    )


def _short(column: str) -> str:
    return column.replace("feeder of worker", "feeder w")
