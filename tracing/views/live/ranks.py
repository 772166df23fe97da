"""The live view of a run of several processes: a line for each, and one opened.

     rank 0   training      12 ms   52 batches   22.1/s   in the loader 33%   epoch 1
    ▸rank 1   waiting      310 ms   51 batches   22.0/s   in the loader 74%   epoch 1

Parts may appear while the run goes on: torchrun starts its ranks later.
"""

from __future__ import annotations

import os
from pathlib import Path

from tracing.recording.trace_directory import being_recorded
from tracing.trace.parts import Part, parts
from tracing.trace.parts import choose as choose_part
from tracing.trace.state import State
from tracing.trace.trace import Trace, load
from tracing.trace.words import duration
from tracing.views.live.panels import STYLES
from tracing.views.live.playback import CHECK_PERIOD, STILL, Clock, Live, Replay
from tracing.views.live.recent import Recent, choose
from tracing.views.terminal.layout import BAD, BOLD, DIM, PLAIN, Line, fit, text

LINE_PERIOD = 500_000_000  # ns between two looks at a process that is not opened


class Processes:
    """A source of frames (see playback): that of the opened process, and lines for all of them."""

    def __init__(self, path: str | os.PathLike[str], part: int | str | None, speed: float, clock: Clock) -> None:
        """The arguments are those of tracing.views.live.live.watch."""
        self.path, self._speed, self._clock = Path(path), speed, clock
        self.parts = parts(path)
        self.running = not self._over()
        self._looked = clock()
        self._traces: dict[Path, Trace] = {}
        self._lines: dict[Path, tuple[int, Line]] = {}  # of each part: when it was last looked at, and its line
        self._open(self.parts[0] if part is None else choose_part(path, part))

    def _over(self) -> bool:
        """Whether no process records any more."""
        return not any(being_recorded(part.path, elsewhere=False) for part in self.parts)

    def _open(self, part: Part) -> None:
        self.opened, trace = part, self._trace_of(part)
        self.source: Live | Replay = Replay(trace, self._speed, self._clock)
        if self.running:
            self.source = Live(trace, self._clock, self._over)

    def _trace_of(self, part: Part) -> Trace:
        if part.path not in self._traces:
            self._traces[part.path] = load(part.path)
        return self._traces[part.path]

    # ---- a source of frames

    @property
    def mode(self) -> str:
        return self.source.mode if len(self.parts) == 1 else f"{self.opened.name}  {self.source.mode}"

    def look(self) -> tuple[State, int]:
        """Look for processes that have begun since, too; while the opened one has nothing to show, open the first."""
        if self.running and self._clock() - self._looked >= CHECK_PERIOD:
            self._looked, self.parts = self._clock(), parts(self.path)
            if self.opened not in self.parts:
                self._open(self.parts[0])
        return self.source.look()

    # ---- a line for each

    def lines(self, now: int) -> list[Line]:
        """What each does at this time; none if there is only one."""
        return [self._line(part, now) for part in self.parts] if len(self.parts) > 1 else []

    def _line(self, part: Part, now: int) -> Line:
        known = self._lines.get(part.path)
        if part == self.opened or known is None or not 0 <= now - known[0] < LINE_PERIOD:
            self._lines[part.path] = known = now, _in_words(self._trace_of(part), now, self.running)
        mark = text("▸" if part == self.opened else " ", BOLD)
        return [mark, *fit([text(part.name, BOLD if part == self.opened else PLAIN)], 14), *known[1]]


def _in_words(trace: Trace, now: int, live: bool) -> Line:
    if live:
        trace.refresh()
    k = int(trace.events["time"].searchsorted(now, "right")) - 1
    state = trace.state(k) if k >= 0 else None
    loader = choose(state) if state is not None else None
    if state is None or loader is None:
        return [text("has not begun to load", DIM)]
    facts, since = Recent(trace, state, now), now - loader.main.since
    style = BAD if loader.alive and since > STILL else STYLES.get(loader.main.status, PLAIN)
    return [
        *fit([text(loader.main.status.value, style)], 14),
        text(f"{duration(since):>8}  {loader.yielded:5} batches {facts.batches_per_second:6.1f}/s"),
        text(f"  in the loader {facts.in_loader:4.0%}  epoch {loader.epoch}"),
    ]
