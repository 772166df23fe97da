"""Which moment of a trace the live view shows: the last one of a run in progress, or the one that a replay has reached.

Legend
    k, now   1234, 81e9        that moment: after event k, at this time (ns, the clock of the events)
"""

from __future__ import annotations

import bisect
import functools
from collections.abc import Callable

from tracing.analysis.hang.explain import explain
from tracing.recording.trace_directory import in_progress
from tracing.trace.state import State
from tracing.trace.trace import Trace
from tracing.views.live.event_lines import stuck_in_words

CHECK_PERIOD = 1_000_000_000  # ns between two checks whether the run is still in progress
STILL = 10_000_000_000  # ns without a batch: then it may hang ...
ASK_PERIOD = 5_000_000_000  # ... and is examined this often
STEPS = {"left": -1, "right": 1, "page up": -10, "page down": 10}  # key -> events

Clock = Callable[[], int]  # ns


class Live:
    """A run in progress: always its last moment."""

    keys = "space pause"  # that move it

    def __init__(self, trace: Trace, clock: Clock, over: Callable[[], bool] | None = None) -> None:
        """`over` returns whether nobody records any more; by default whether nobody does so into this trace."""
        self.trace = trace
        self._recorded = over or (lambda: not in_progress(trace.path))
        self._clock = clock
        self._checked = clock()
        self._over = False
        self._paused: tuple[State, int] | None = None
        self._had: list[tuple[int, int]] = []  # each loader's epoch, and the number of batches it has yielded in it ...
        self._moved = clock()  # ... and when that changed
        self._asked = clock()
        self.stuck: tuple[str, ...] = ()  # if it hangs, which thread keeps which waiting: see `Recent.stuck`

    def look(self) -> tuple[State, int]:
        """The state to show now, and the time in the trace."""
        if self._paused is not None:
            return self._paused
        self.trace.refresh()
        state = self.trace.state(-1)
        self._check_for_hang(state)
        running = not self._over and (not state.loaders or any(loader.alive for loader in state.loaders))
        return state, max(state.time, self._clock()) if running else state.time

    def _check_for_hang(self, state: State) -> None:
        """If there has been no batch for a long time, find out why. While the run makes progress this costs nothing."""
        had = [(loader.epoch, loader.yielded) for loader in state.loaders]
        if had != self._had:
            self._had, self._moved, self.stuck = had, self._clock(), ()
        elif self._clock() - max(self._moved + STILL - ASK_PERIOD, self._asked) >= ASK_PERIOD:
            self._asked = self._clock()
            self.stuck = stuck_in_words(explain(self.trace, self._clock()), self.trace.path)

    def ended(self) -> bool:
        """Whether nothing more will come."""
        if not self._over and self._clock() - self._checked >= CHECK_PERIOD:
            self._checked = self._clock()
            self._over = self._recorded()
        return self._over and self._paused is None  # a paused picture stays

    def press(self, key: str) -> None:
        """React to a key."""
        if key == "space":
            self._paused = None if self._paused is not None else self.look()

    @property
    def mode(self) -> str:
        """What it is doing, in a few words."""
        return "‖ paused" if self._paused is not None else "ended" if self._over else "● live"


class Replay:
    """A finished run: the time in the trace is wall time, times `speed`."""

    keys = "space pause  ← → step  ↓ ↑ speed"

    def __init__(self, trace: Trace, speed: float, clock: Clock) -> None:
        self.trace = trace
        self.speed = speed
        self._clock = clock
        self._times = trace.events["time"]
        self._from = trace.start, clock()  # a time in the trace, and the wall time when it was shown
        self._k: int | None = None  # paused here
        self.interactive = False  # whether there are keys to go back with, at the end

    def _now(self) -> int:
        shown, wall = self._from
        return shown + int((self._clock() - wall) * self.speed)

    def _last(self) -> int:
        return len(self._times) - 1

    def look(self) -> tuple[State, int]:
        if self._k is None:
            now = self._now()
            k = bisect.bisect_right(self._times, now) - 1
            if k < self._last():
                return self.trace.state(max(k, 0)), now
            self._k = self._last()
        state = self.trace.state(self._k)
        return state, state.time

    def ended(self) -> bool:
        over = self._now() >= self.trace.start + self.trace.duration if self._k is None else self._k == self._last()
        return over and not self.interactive

    def press(self, key: str) -> None:
        if key in STEPS or key in ("home", "end"):
            k = {"home": 0, "end": self._last()}.get(key, self.look()[0].k + STEPS.get(key, 0))
            self._k = min(max(k, 0), self._last())
        elif key == "space" and self._k is None:
            self._k = self.look()[0].k
        elif key == "space":
            self._go_on(self.trace.start if self._k == self._last() else int(self._times[self._k]))
        elif key in ("up", "down"):
            now = self._now()
            self.speed *= 2 if key == "up" else 0.5
            self._from = now, self._clock()

    def go_to(self, now: int, other: Replay) -> None:
        """Show the same moment as another replay, on the same clock: paused, if that is."""
        self.speed = other.speed
        self._go_on(now)
        if other._k is not None:
            self._k = min(max(bisect.bisect_right(self._times, now) - 1, 0), self._last())

    def _go_on(self, now: int) -> None:
        self._from, self._k = (now, self._clock()), None

    @functools.cached_property
    def _stuck_at_the_end(self) -> tuple[str, ...]:
        return stuck_in_words(explain(self.trace), self.trace.path)

    @property
    def stuck(self) -> tuple[str, ...]:
        return self._stuck_at_the_end if self._k == self._last() else ()

    @property
    def mode(self) -> str:
        if self._k is None:
            return f"replay ×{self.speed:g}"
        return f"‖ ×{self.speed:g}  event {self._k + 1} of {len(self._times)}"


Source = Live | Replay  # decides which moment of the trace is shown
