"""Which moment of a trace the live view shows: the last one of a run in progress, or the one that a replay has reached.

Legend
    k, now   1234, 81e9        that moment: after event k, at this time (ns, the clock of the events)
"""

from __future__ import annotations

import bisect
from collections.abc import Callable

from tracing.analysis.hang.explain import explain
from tracing.analysis.measure.measures import measure
from tracing.analysis.measure.waited import Judgement
from tracing.trace.state import State
from tracing.trace.trace import Trace
from tracing.views.live.event_lines import stuck_in_words

STILL = 10_000_000_000  # ns without a batch: then it may hang ...
ASK_PERIOD = 5_000_000_000  # ... and is examined this often
JUDGE_PERIOD, JUDGE_COST = 2_000_000_000, 50  # ns between verdicts, and at least this many times what one takes
STEPS = {"left": -1, "right": 1}  # key -> events

Clock = Callable[[], int]  # ns


def verdict(trace: Trace) -> str:
    """The report's, of the loader that took most of main's time; "" without one."""
    costly = max(measure(trace), key=lambda each: each.in_loader.total, default=None)
    return "" if costly is None else f"so far {Judgement(costly).verdict.value}"


class Live:
    """A run in progress: always its last moment."""

    keys = "space pause"  # that move it

    def __init__(self, trace: Trace, clock: Clock) -> None:
        self.trace = trace
        self._clock = clock
        self.over = False  # whether no process records any more: tracing.views.live.processes looks
        self._paused: tuple[State, int] | None = None
        self._had: list[tuple[int, int]] = []  # each loader's epoch, and the number of batches it has yielded in it ...
        self._moved = clock()  # ... and when that changed
        self._asked = clock()
        self.stuck: tuple[str, ...] = ()  # if it hangs, which thread keeps which waiting: see `Recent.stuck`
        self.limit, self._next_verdict = "", clock() + JUDGE_PERIOD

    def look(self) -> tuple[State, int]:
        """The state to show now, and the time in the trace."""
        if self._paused is not None:
            return self._paused
        self.trace.refresh()
        state = self.trace.state(-1)
        self._check_for_hang(state)
        if (begin := self._clock()) >= self._next_verdict:
            # While nothing moves, what limited the load until then is not what one wants to know.
            self.limit = "" if begin - self._moved > ASK_PERIOD else verdict(self.trace)
            self._next_verdict = begin + max(JUDGE_PERIOD, JUDGE_COST * (self._clock() - begin))
        running = not self.over and (not state.loaders or any(loader.alive for loader in state.loaders))
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
        """Whether nothing more will come than the last look has shown."""
        return self.over and self._paused is None  # a paused picture stays

    def press(self, key: str) -> None:
        """React to a key."""
        if key == "space":
            self._paused = None if self._paused is not None else self.look()

    @property
    def mode(self) -> str:
        """What it is doing, in a few words."""
        return "‖ paused" if self._paused is not None else "ended" if self.over else "● live"


class Replay:
    """A finished run: the time in the trace is wall time, times `speed`."""

    keys = "space pause  ← → step"
    limit, stuck, over = "", (), True  # what limited it, and what hung, is for `report` and `check` to say

    def __init__(self, trace: Trace, speed: float, clock: Clock) -> None:
        self.trace = trace
        self.speed = speed
        self._clock = clock
        self._times = trace.events["time"]
        self._from = trace.start, clock()  # a time in the trace, and the wall time when it was shown
        self._k: int | None = None  # paused here
        self._last = len(trace) - 1

    def look(self) -> tuple[State, int]:
        if self._k is None:
            shown, wall = self._from
            now = shown + int((self._clock() - wall) * self.speed)
            k = bisect.bisect_right(self._times, now) - 1
            if k < self._last:
                return self.trace.state(max(k, 0)), now
            self._k = self._last
        state = self.trace.state(self._k)
        return state, state.time

    def ended(self) -> bool:
        return self._k == self._last

    def press(self, key: str) -> None:
        if key in STEPS:
            self._k = min(max(self.look()[0].k + STEPS[key], 0), self._last)
        elif key == "space" and self._k is None:
            self._k = self.look()[0].k
        elif key == "space":
            begin = self.trace.start if self._k == self._last else int(self._times[self._k])
            self._from, self._k = (begin, self._clock()), None

    @property
    def mode(self) -> str:
        if self._k is None:
            return f"replay ×{self.speed:g}"
        return f"‖ ×{self.speed:g}  event {self._k + 1} of {len(self._times)}"
