"""The live view: a run that goes on, or the replay of a finished one, in the terminal.

    python -m tracing live run.trace

It reads the trace's files while they grow and disturbs nobody. Here are the loop, the clock, the keys and the
terminal; what a frame shows is made from the state alone, in tracing.views.live.panels.

Principles
1. The terminal is restored in `finally`: after an error, Ctrl-C, SIGTERM. Whatever starts can start and stop twice.
2. The clock is passed in: a replay is a matter of which time it is in the trace.
3. A frame that costs much comes less often (never less than four a second), so that watching stays below 5 % of a core.
4. What is not a terminal gets a plain line now and then, and no control codes.

Legend
    source   Live or Replay    which moment of the trace is shown
    k, now   1234, 81e9        that moment: after event k, at this time (ns, the clock of the events)
"""

from __future__ import annotations

import bisect
import contextlib
import functools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from rich.console import Console

from tracing.analysis.hang.explain import explain
from tracing.recording import file_format as fmt
from tracing.recording.trace_directory import in_progress
from tracing.trace.state import State
from tracing.trace.trace import Trace, load
from tracing.views.live.event_lines import stuck_in_words
from tracing.views.live.recent import recent
from tracing.views.live.screens import SLOWEST_PERIOD, Album, Lines, Moment, Picture
from tracing.views.terminal.keyboard import Keyboard

CHECK_PERIOD = 1_000_000_000  # ns between two looks whether the run goes on
STILL = 10_000_000_000  # ns without a batch: then it may hang ...
ASK_PERIOD = 5_000_000_000  # ... and is looked at closer now and then
MOMENTS = 64  # of a finished trace that are looked at for a busy one

Clock = Callable[[], int]  # ns


def watch(
    path: str | os.PathLike[str],
    *,
    console: Console | None = None,
    speed: float = 1.0,
    once: bool = False,
    until: Callable[[], bool] | None = None,
    refresh_per_second: float = 8,
    record: str | os.PathLike[str] | None = None,
    clock: Clock = time.monotonic_ns,
) -> None:
    """Show the run that is recorded into `path` until it ends; a finished one is replayed, `speed` times as fast.

    `until` tells whether the run has ended; without it, it has when no process records any more. `once` prints one
    frame: the present one, or, of a finished run, a busy one. `record` saves a busy frame of those shown as SVG.
    Returns when the run has ended, or at the key q.

    Raises TraceError if there is no trace in `path` (with `until` it is waited for), ValueError for a `speed` that is
    not positive, KeyboardInterrupt at Ctrl-C and SystemExit at SIGTERM: the terminal is restored by then.
    """
    if not speed > 0:
        raise ValueError(f"speed is how many times as fast as it happened: more than 0, not {speed}")
    console = console or Console()
    while until is not None and not fmt.is_trace(Path(path)) and not until():
        time.sleep(0.05)
    trace = load(path)
    going_on = until is not None or in_progress(trace.path)
    album = Album(console, trace.path.name)
    try:
        if once:
            _look_once(trace, going_on, clock, album)
            if album.best is not None:
                console.print(album.best.frame(album.title, *console.size), soft_wrap=True)
                console.line()
        else:
            source = Live(trace, until, clock) if going_on else Replay(trace, speed, clock)
            with terminated_as_exit(), Keyboard() as keyboard:
                _run(source, console, keyboard, album, 1 / refresh_per_second)
    finally:
        if record is not None:
            album.save(Path(record))


# ---- which moment is shown


class Source(Protocol):
    """Decides which moment of the trace is shown."""

    trace: Trace

    def look(self) -> tuple[State, int]:
        """The state to show now, and the time in the trace."""

    def ended(self) -> bool:
        """Whether there is nothing more to come."""

    def press(self, key: str) -> None:
        """A key that moves it."""

    @property
    def stuck(self) -> tuple[str, ...]:
        """If it hangs, who keeps whom waiting: see `Recent.stuck`."""

    @property
    def mode(self) -> str:
        """What it does, in a few words."""

    @property
    def keys(self) -> str:
        """The keys that move it."""


class Live:
    """A run that goes on: the moment is always the last one."""

    keys = "space pause"

    def __init__(self, trace: Trace, until: Callable[[], bool] | None, clock: Clock) -> None:
        self.trace = trace
        self._until = until
        self._clock = clock
        self._checked = clock()
        self._over = False
        self._stopped: tuple[State, int] | None = None
        self._had: list[tuple[int, int]] = []  # of each loader the epoch, and how many batches main has had of it ...
        self._moved = clock()  # ... and when that changed
        self._asked = clock()
        self.stuck: tuple[str, ...] = ()

    def look(self) -> tuple[State, int]:
        if self._stopped is not None:
            return self._stopped
        self.trace.refresh()
        state = self.trace.state(-1)
        self._look_whether_it_hangs(state)
        running = not self._over and any(loader.alive for loader in state.loaders)
        return state, max(state.time, self._clock()) if running else state.time

    def _look_whether_it_hangs(self, state: State) -> None:
        """No batch for long: who is to blame for it? While the run gets on this costs nothing."""
        had = [(loader.epoch, loader.yielded) for loader in state.loaders]
        if had != self._had:
            self._had, self._moved, self.stuck = had, self._clock(), ()
        elif self._clock() - max(self._moved + STILL - ASK_PERIOD, self._asked) >= ASK_PERIOD:
            self._asked = self._clock()
            self.stuck = stuck_in_words(explain(self.trace, self._clock()), self.trace.path)

    def ended(self) -> bool:
        if not self._over and self._until is not None:
            self._over = self._until()
        elif not self._over and self._clock() - self._checked >= CHECK_PERIOD:
            self._checked = self._clock()
            self._over = not in_progress(self.trace.path)
        return self._over and self._stopped is None  # whoever stopped the picture is still looking at it

    def press(self, key: str) -> None:
        if key == "space":
            self._stopped = None if self._stopped is not None else self.look()

    @property
    def mode(self) -> str:
        return "‖ paused" if self._stopped is not None else "ended" if self._over else "● live"


class Replay:
    """A finished run: wall time, times `speed`, is the time in the trace."""

    keys = "space pause  ← → step  ↓ ↑ speed"

    def __init__(self, trace: Trace, speed: float, clock: Clock) -> None:
        self.trace = trace
        self.speed = speed
        self._clock = clock
        self._times = trace.events["time"]
        self._from = trace.start, clock()  # a time in the trace, and the wall time when it was shown
        self._k: int | None = None  # stopped here
        self.interactive = False  # at the end there are keys to go back

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
        if key in ("left", "right"):
            state, _ = self.look()
            self._k = min(max(state.k + (1 if key == "right" else -1), 0), self._last())
        elif key == "space" and self._k is None:
            self._k = self.look()[0].k
        elif key == "space":
            self._go_on(self.trace.start if self._k == self._last() else int(self._times[self._k]))
        elif key in ("up", "down"):
            now = self._now()
            self.speed *= 2 if key == "up" else 0.5
            self._from = now, self._clock()

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
        return f"‖ event {self._k + 1} of {len(self._times)}"


# ---- the loop


def _run(source: Source, console: Console, keyboard: Keyboard, album: Album, period: float) -> None:
    """Show one frame after the other until the run has ended or somebody pressed q."""
    if isinstance(source, Replay):
        source.interactive = keyboard.active
    picture = console.is_terminal and not console.is_dumb_terminal
    screen: Picture | Lines = Picture(console) if picture else Lines(console)
    shown, help, quit = -1, False, False
    with screen:
        while not quit:
            ended = source.ended()
            begin, cpu = time.monotonic(), time.thread_time()
            state, now = source.look()
            facts = recent(source.trace, state, now, shown)
            shown, facts.stuck = facts.loader, source.stuck
            keys = f"q quit  {source.keys}  h help" if keyboard.active else ""
            screen.show(Moment(state, facts, source.mode, keys, help), album)
            if ended:
                break
            wait = screen.wait(period, time.thread_time() - cpu) - (time.monotonic() - begin)
            for key in _keys(source, keyboard, wait):
                quit, help = quit or key in ("q", "Q"), help != (key == "h")
                source.press(key)


def _keys(source: Source, keyboard: Keyboard, wait: float) -> list[str]:
    """Wait for the next frame, the next key or the end of the run."""
    while wait > SLOWEST_PERIOD:
        keys = keyboard.read(SLOWEST_PERIOD)
        if keys or source.ended():
            return keys
        wait -= SLOWEST_PERIOD
    return keyboard.read(wait)


def _look_once(trace: Trace, going_on: bool, clock: Clock, album: Album) -> None:
    """Put one moment into the album: the present one; of a finished run one in which much happens, but the last one if
    it failed or was stuck."""
    state = trace.state(-1)
    now = max(state.time, clock()) if going_on else state.time
    stuck = stuck_in_words(explain(trace, now if going_on else None), trace.path)
    if going_on or stuck or len(trace) == 0 or any(loader.error is not None for loader in state.loaders):
        facts = recent(trace, state, now)
        facts.stuck = stuck
        album.add(Moment(state, facts, "● live" if going_on else "ended"))
    else:
        for k in np.unique(np.linspace(0, len(trace) - 1, MOMENTS, dtype=int)).tolist():
            state = trace.state(k)
            album.add(Moment(state, recent(trace, state, state.time), f"event {k + 1} of {len(trace)}"))


@contextlib.contextmanager
def terminated_as_exit() -> Iterator[None]:
    """SIGTERM raises SystemExit here, so that the terminal is restored on its way out."""

    def leave(number: int, frame: Any) -> None:
        raise SystemExit(128 + number)

    # A thread cannot have handlers; one that is there already belongs to the program.
    ours = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if ours:
        signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
