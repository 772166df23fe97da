"""The sequence diagram in a terminal: one line per row. Time on the left, threads in the middle, words on the right.

      time  main          worker 0      worker 1
     8.952   ●             │             │          begins epoch 0
     9.099   ├──── 0 ─────▸│             │          2.8 ms in index_queue
     9.298   ├──── 1 ──────┼────────────▸│          13.8 ms in index_queue
    14.031   │◂───── 0 ────┤             │          470 µs in worker_result_queue

An arrow is on the line of its put; the words give the time that the message spent in the queue. A message that was
never taken is a dashed line.

Legend
    step    14    columns from one thread's line to the next
"""

from __future__ import annotations

import textwrap

from rich.segment import Segment

from minidl.events import Kind
from tracing.trace.kinds import ALARMING
from tracing.views.sequence.rows import Arrow, Delivery, Note, Sequence
from tracing.views.terminal.batch_cells import INKS, cell
from tracing.views.terminal.layout import BAD, BOLD, DIM, PLAIN, Frame, Line, fit, text

LEAST_WIDTH, LEAST_WORDS, WORDS = 40, 18, 34  # columns: of the whole; of the words, and if there is room
WIDEST_STEP = 16
MOST_LINES = 5  # of one note
LEGEND = "An arrow is where its message is put. On the right: how long the message was in its queue."


def draw(sequence: Sequence, width: int) -> Frame:
    """In exactly `width` columns. Threads for which there is no room are left out, and a line names them."""
    if width < LEAST_WIDTH:
        raise ValueError(f"a sequence diagram needs {LEAST_WIDTH} columns or more, not {width}")
    layout = TextLayout(sequence, width)
    lines = [[text(sequence.title, BOLD)], *_wrapped(LEGEND, width), layout.head()]
    for row in layout.rows:
        lines += layout.arrow(row) if isinstance(row, Arrow) else layout.note(row)
    for words in layout.left_out():
        lines += _wrapped(words, width)
    return Frame(lines, width)


class TextLayout:
    """Where everything goes, and the lines that draw it."""

    def __init__(self, sequence: Sequence, width: int) -> None:
        self.sequence, self.width, columns = sequence, width, sequence.columns
        latest = max((sequence.time(row.begin) for row in sequence.rows), default=0)
        self.time_width = max(8, len(f"{latest / 1e6:.3f}")) + 2
        labels = [len(str(row.label)) for row in sequence.rows if isinstance(row, Arrow) and isinstance(row.label, int)]
        least = max(6, max(labels, default=1) + 3)  # a number, an arrow's head, a line
        room = width - self.time_width
        words = WORDS if (room - WORDS) // len(columns) >= least else LEAST_WORDS
        self.step = max(least, min(WIDEST_STEP, (room - words) // len(columns)))
        self.shown = columns[: max(2, (room - LEAST_WORDS) // self.step)]
        self.at = {column: self.step * number + 1 for number, column in enumerate(self.shown)}
        self.rows = [row for row in sequence.rows if columns_of(row) <= set(self.shown)]
        self.needed = self.time_width + LEAST_WORDS + least * len(columns)

    def head(self) -> Line:
        """The threads' names, shortened if the columns are narrow."""
        line = [text("ms".rjust(self.time_width - 2) + "  ", DIM)]
        for name in self.shown:
            if len(name) >= self.step:
                name = name.replace("worker ", "w").split()[0]
            line += fit([text(name, BOLD)], self.step)
        return line

    def arrow(self, row: Arrow) -> list[Line]:
        style = DIM if row.taken else PLAIN if row.delivery is Delivery.WAITING else BAD
        return [[self._time(row), *self._shaft(row), text(self.sequence.delivery_in_words(row), style)]]

    def note(self, row: Note) -> list[Line]:
        """As many lines as its words need."""
        lane = self._lifelines()
        style = BAD if row.kind in ALARMING else PLAIN
        mark = "✗" if row.kind == Kind.WORKER_DIED else "●"
        lane[self.at[row.column]] = text(mark, BAD if row.kind in ALARMING else BOLD)
        room = self.width - self.time_width - len(lane)
        first, *more = textwrap.wrap(row.words.text(), max(room, 1), max_lines=MOST_LINES, placeholder=" …")
        below = [[text(" " * self.time_width), *self._lifelines(), text(line, style)] for line in more]
        return [[self._time(row), *lane, text(first, style)], *below]

    def _time(self, row: Arrow | Note) -> Segment:
        return text(f"{self.sequence.time(row.begin) / 1e6:.3f}".rjust(self.time_width - 2) + "  ", DIM)

    def _lifelines(self) -> Line:
        """One segment per column of the screen."""
        lane = [text(" ")] * (self.step * len(self.shown) + 1)
        for x in self.at.values():
            lane[x] = text("│", DIM)
        return lane

    def _shaft(self, row: Arrow) -> Line:
        """From the sender's line to the receiver's."""
        lane = self._lifelines()
        begin, end = self.at[row.source], self.at[row.target]
        right = end > begin
        ink = INKS[row.label % len(INKS)] if isinstance(row.label, int) else BOLD
        for x in range(min(begin, end) + 1, max(begin, end)):
            crossed = lane[x].text == "│"
            lane[x] = text("┼" if crossed else "─" if row.taken else "╌", ink)
        lane[begin] = text("├" if right else "┤", ink)
        head = {Delivery.TAKEN: "▸" if right else "◂", Delivery.WAITING: "…"}.get(row.delivery, "✗")
        lane[end - 1 if right else end + 1] = text(head, BAD if head == "✗" else ink)
        self._put_label(lane, row, begin, right)
        return [segment for segment in lane if segment.text]

    def _put_label(self, lane: Line, row: Arrow, begin: int, right: bool) -> None:
        """Between the sender's line and the next one."""
        room = self.step - 2  # without the arrow's head
        shown = cell(row.label)
        if len(shown.text) > room:
            shown = Segment(shown.text.strip()[:room], shown.style)
        left = begin + 1 + (room - len(shown.text)) // 2 if right else begin - self.step + 2
        left += 0 if right else (room - len(shown.text) + 1) // 2
        lane[left] = shown
        for x in range(left + 1, left + len(shown.text)):
            lane[x] = text("")

    def left_out(self) -> list[str]:
        """What is not shown, one line each."""
        lines = [self.sequence.left_out] if self.sequence.left_out else []
        hidden = self.sequence.columns[len(self.shown) :]
        if hidden:
            rows = len(self.sequence.rows) - len(self.rows)
            names = hidden[0] if len(hidden) == 1 else f"{hidden[0]} to {hidden[-1]}"
            lines.append(f"No room for {names} ({rows:,} rows): --width {self.needed}")
        return lines


def _wrapped(words: str, width: int) -> list[Line]:
    return [[text(line, DIM)] for line in textwrap.wrap(words, width)]


def columns_of(row: Arrow | Note) -> set[str]:
    return {row.column} if isinstance(row, Note) else {row.source, row.target}
