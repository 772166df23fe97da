"""Which process the live view shows, of a run that has several. Parts may appear while the run goes on: torchrun starts
its ranks later."""

from __future__ import annotations

import os
from pathlib import Path

from tracing.recording.trace_directory import being_recorded
from tracing.trace.parts import Part, parts
from tracing.trace.parts import choose as choose_part
from tracing.trace.state import State
from tracing.trace.trace import load
from tracing.views.live.playback import Clock, Live, Replay

CHECK_PERIOD = 1_000_000_000  # ns between looks at which processes there are, and whether they still record


class Processes:
    """A source of frames (see playback): that of the process that is opened."""

    def __init__(self, path: str | os.PathLike[str], part: int | str | None, speed: float, clock: Clock) -> None:
        """The arguments are those of tracing.views.live.live.watch."""
        self.path, self._speed, self._clock = Path(path), speed, clock
        self.parts = parts(path)
        self.running = not self._over()
        self._looked = clock()
        self._open(self.parts[0] if part is None else choose_part(path, part))

    def _over(self) -> bool:
        """Whether no process records any more."""
        return not any(being_recorded(part.path, elsewhere=False) for part in self.parts)

    def _open(self, part: Part) -> None:
        self.opened, trace = part, load(part.path)
        clock = self._clock
        self.source: Live | Replay = Live(trace, clock) if self.running else Replay(trace, self._speed, clock)

    # ---- a source of frames

    @property
    def mode(self) -> str:
        others = f"{self.opened.name} of {len(self.parts)} processes  " if len(self.parts) > 1 else ""
        return others + self.source.mode

    def look(self) -> tuple[State, int]:
        """Look for processes that have begun since, too; while the opened one has nothing to show, open the first."""
        if self.running and self._clock() - self._looked >= CHECK_PERIOD:
            self._looked, self.parts = self._clock(), parts(self.path)
            if self.opened.path not in [part.path for part in self.parts]:
                self._open(self.parts[0])
            self.source.over = self._over()
        return self.source.look()
