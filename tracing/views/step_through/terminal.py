"""The step-through in a terminal: the live view's picture of the state after one event, moved by keys.

Legend
    caption    the two lines above the picture: the event in words, and the line of source that emitted it
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console

from minidl.events import Kind
from tracing.trace.event_words import KINDS, sentence, thread_name
from tracing.views.live.moment import BusiestMoment, Moment
from tracing.views.live.outputs import FullScreen
from tracing.views.live.recent import recent
from tracing.views.step_through.event_columns import ERRORS, departure, value_of
from tracing.views.step_through.page import Excerpt
from tracing.views.step_through.source_code import EmittingLines
from tracing.views.terminal.batch_cells import cell
from tracing.views.terminal.keyboard import Keyboard
from tracing.views.terminal.layout import BAD, BOLD, DIM, Frame, Line, text
from tracing.views.terminal.restore import exit_on_sigterm

if TYPE_CHECKING:
    from tracing.trace.trace import Trace

KEYS = "q quit  ← → step  ↑ ↓ ten  < > ends  e error  o early  space play"
PLAY_PERIOD = 0.25  # s between two events
RESIZE_PERIOD = 0.5  # s between two looks at the terminal's size
STEPS = {"left": -1, "right": 1, "up": -10, "down": 10}


@dataclass
class ShownEvent(Moment):
    """An event, and the state after it."""

    caption: list[Line] = field(default_factory=list)

    def frame(self, title: str, width: int, height: int) -> Frame:
        picture = super().frame(title, width, height - len(self.caption))
        return Frame([*self.caption, *picture.lines], width)


class Steps:
    """Which event of a part is shown, and what is shown of it."""

    def __init__(self, trace: Trace, shown: Excerpt) -> None:
        self.trace, self.code = trace, EmittingLines(trace.sources, trace.replaced)
        self.first, self.last, self.k = shown.first, shown.last, shown.at
        self.playing = False
        kinds = trace.events["kind"][self.first : self.last + 1]
        self.errors = (self.first + np.flatnonzero(np.isin(kinds, list(ERRORS)))).tolist()
        self.early = (self.first + np.flatnonzero(kinds == Kind.STORED)).tolist()

    def press(self, key: str) -> None:
        if key in STEPS:
            self.k = min(max(self.k + STEPS[key], self.first), self.last)
        elif key in ("<", ">"):
            self.k = self.first if key == "<" else self.last
        elif key in ("e", "E", "o", "O"):
            self.k = _beyond(self.errors if key in "eE" else self.early, self.k, key.islower())
        self.playing = key == "space" and not self.playing and self.k < self.last

    def play(self) -> None:
        self.k += self.playing
        self.playing = self.playing and self.k < self.last

    def shown_event(self, iterator: int) -> ShownEvent:
        """What is shown now; `iterator`: the one that was shown last."""
        state = self.trace.state(self.k)
        facts = recent(self.trace, state, state.time, iterator)
        mode = f"{'▸' if self.playing else '‖'} event {self.k} of {self.first} to {self.last}"
        if self.last - self.first + 1 < len(self.trace):
            mode += f" (a window of {len(self.trace)})"
        return ShownEvent(state, facts, mode, KEYS, caption=[self._event(), self._source()])

    def _event(self) -> Line:
        event = self.trace.events[self.k]
        before, batch, after = sentence(event)
        who = thread_name(self.trace.actors[int(event["actor"])])
        style = BAD if self.k in self.errors else BOLD
        value = "; ".join(filter(None, [value_of(event), departure(self.trace, self.k)]))
        words = [text(f" {who} ", style), text(before), *([] if batch is None else [cell(batch)]), text(after)]
        return words + ([text(f"  {value}", DIM)] if value else [])

    def _source(self) -> Line:
        event = self.trace.events[self.k]
        kind = KINDS[int(event["kind"])]
        site = self.code.site(kind, int(event["queue"]))
        if site < 0:
            return [text(f" {kind.name}", DIM)]
        file, line, source = self.code.line(site)
        return [text(f" {file}:{line}  ", DIM), text(source)]


def run(trace: Trace, console: Console | None, part: Excerpt) -> None:
    """Obey the keys until q. The terminal is restored, whatever happens."""
    console = console or Console()
    busiest, steps, iterator = BusiestMoment(console, trace.path.name), Steps(trace, part), -1
    with exit_on_sigterm(), Keyboard() as keyboard:
        if not (keyboard.active and console.is_terminal and not console.is_dumb_terminal):
            raise ValueError("stepping with keys needs a terminal; to write the page: -o FILE.html")
        with FullScreen(console) as picture:
            while True:
                shown = steps.shown_event(iterator)
                iterator = shown.facts.loader
                picture.show(shown, busiest)
                keys = keyboard.read(PLAY_PERIOD if steps.playing else RESIZE_PERIOD)
                if "q" in keys or "Q" in keys or not keyboard.active:
                    return
                for key in keys:
                    steps.press(key)
                if not keys:
                    steps.play()


def _beyond(numbers: list[int], k: int, forwards: bool) -> int:
    """The first of them after k, or the last before it; k if there is none."""
    at = bisect.bisect_right(numbers, k) if forwards else bisect.bisect_left(numbers, k) - 1
    return numbers[at] if 0 <= at < len(numbers) else k
