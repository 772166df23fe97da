"""The live view of a run of several processes: a line for each, and one opened.

     rank 0   training      12 ms   52 batches   22.1/s   in the loader 33%   epoch 1
    ▸rank 1   waiting      310 ms   51 batches   22.0/s   in the loader 74%   epoch 1

Parts may appear while the run goes on: torchrun starts its ranks later.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path

from tracing.recording.trace_directory import in_progress
from tracing.trace.file_reader import TraceDamage
from tracing.trace.parts import Part, parts
from tracing.trace.parts import choose as choose_part
from tracing.trace.state import MainStatus, State
from tracing.trace.trace import Trace
from tracing.trace.words import duration
from tracing.views.live.playback import CHECK_PERIOD, STILL, Clock, Live, Replay, Source
from tracing.views.live.recent import choose, recent
from tracing.views.terminal.layout import BAD, BOLD, DIM, GOOD, PLAIN, WAITS, Line, fit, text

LINE_PERIOD = 500_000_000  # ns between two looks at a process that is not opened


class Processes:
    """A source of frames (see playback): that of the opened process, and lines for all of them."""

    def __init__(self, path: str | os.PathLike[str], part: int | str | None, speed: float, clock: Clock) -> None:
        """The arguments are those of tracing.views.live.live.watch."""
        self.path, self._speed, self._clock = Path(path), speed, clock
        self.parts = parts(path)
        self.opened = self.parts[0] if part is None else choose_part(path, part)
        self.interactive = False  # as of a replay
        self.running = not self._over()
        self._looked = clock()
        self._sources: dict[Path, Source] = {}  # of each part that was opened so far
        self._traces: dict[Path, Trace] = {}
        self._lines: dict[Path, tuple[int, Line]] = {}  # of each part: when it was last looked at, and its line

    def _over(self) -> bool:
        """Whether no process records any more."""
        return not any(in_progress(part.path) for part in self.parts)

    # ---- which process

    def open(self, part: Part) -> None:
        """Show it, at the same moment."""
        _, now = self.source.look()
        before, self.opened = self.source, part
        if isinstance(before, Replay) and isinstance(self.source, Replay):
            self.source.go_to(now, before)

    def find_new(self) -> None:
        """Look for processes that have begun since; while the opened one has nothing to show, open the first."""
        if self._clock() - self._looked >= CHECK_PERIOD:
            self._looked, self.parts = self._clock(), parts(self.path)
            if self.opened not in self.parts:
                self.opened = self.parts[0]

    def trace_of(self, part: Part) -> Trace:
        if part.path not in self._traces:
            self._traces[part.path] = Trace(part.path)
            for damage in self._traces[part.path].damage:
                warnings.warn(str(damage), TraceDamage, stacklevel=2)
        return self._traces[part.path]

    # ---- a source of frames

    @property
    def source(self) -> Source:
        if self.opened.path not in self._sources:
            trace = self.trace_of(self.opened)
            if self.running:
                source: Source = Live(trace, self._clock, self._over)
            else:
                source = Replay(trace, self._speed, self._clock)
                source.interactive = self.interactive
            self._sources[self.opened.path] = source
        return self._sources[self.opened.path]

    @property
    def trace(self) -> Trace:
        return self.source.trace

    @property
    def stuck(self) -> tuple[str, ...]:
        return self.source.stuck

    @property
    def mode(self) -> str:
        return self.source.mode if len(self.parts) == 1 else f"{self.opened.name}  {self.source.mode}"

    @property
    def keys(self) -> str:
        if len(self.parts) == 1:
            return self.source.keys
        return f"{self.source.keys.replace('↓ ↑', '- +')}  ↓ ↑ 0-9 rank"

    def look(self) -> tuple[State, int]:
        if isinstance(self.source, Live):
            self.find_new()
        return self.source.look()

    def ended(self) -> bool:
        return self.source.ended()

    def press(self, key: str) -> None:
        """↑, ↓ and numbers open another process, where there are several."""
        at = self.parts.index(self.opened)
        chosen = [part for part in self.parts if str(part.rank) == key]
        if len(self.parts) > 1 and key in ("up", "down"):
            chosen = [self.parts[(at + (1 if key == "down" else -1)) % len(self.parts)]]
        if chosen:
            self.open(chosen[0])
        else:
            self.source.press({"+": "up", "-": "down"}.get(key, key))

    # ---- a line for each

    def lines(self, now: int) -> list[Line]:
        """What each does at this time; none if there is only one."""
        return [self._line(part, now) for part in self.parts] if len(self.parts) > 1 else []

    def _line(self, part: Part, now: int) -> Line:
        known = self._lines.get(part.path)
        if part == self.opened or known is None or not 0 <= now - known[0] < LINE_PERIOD:
            self._lines[part.path] = known = now, _in_words(self.trace_of(part), now, isinstance(self.source, Live))
        mark = text("▸" if part == self.opened else " ", BOLD)
        return [mark, *fit([text(part.name, BOLD if part == self.opened else PLAIN)], 14), *known[1]]


STYLES = {MainStatus.TRAINING: GOOD, MainStatus.WAITING: WAITS, MainStatus.RAISED: BAD}


def _in_words(trace: Trace, now: int, live: bool) -> Line:
    if live:
        trace.refresh()
    k = int(trace.events["time"].searchsorted(now, "right")) - 1
    state = trace.state(k) if k >= 0 else None
    loader = choose(state) if state is not None else None
    if state is None or loader is None:
        return [text("has not begun to load", DIM)]
    facts, since = recent(trace, state, now), now - loader.main.since
    style = BAD if loader.alive and since > STILL else STYLES.get(loader.main.status, PLAIN)
    return [
        *fit([text(loader.main.status.value, style)], 14),
        text(f"{duration(since):>8}  {loader.yielded:5} batches {facts.batches_per_second:6.1f}/s"),
        text(f"  in the loader {facts.in_loader:4.0%}  epoch {loader.epoch}  {facts.limit}"),
    ]
