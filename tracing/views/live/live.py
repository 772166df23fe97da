"""The live view: a run in progress, or the replay of a finished one, in the terminal.

    python -m tracing live run.trace

It reads the trace's files while they grow, and the run does not notice. Here is the loop over frames and keys. Which
moment a frame shows is decided in playback; what it shows is made from the state alone, in panels.

Principles
1. The terminal is restored in `finally`: after an error, Ctrl-C, SIGTERM (tracing.views.terminal.restore).
2. The clock is passed in: to replay is to choose what time it is in the trace.
3. Expensive frames come less often (but at least four a second), so that watching stays below 5 % of a core.
4. Outside a terminal it prints a plain line now and then, and no control codes.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
from pathlib import Path

from rich.console import Console

from tracing.trace.state import State
from tracing.trace.trace import Trace
from tracing.views.live.one_moment import one_moment, save
from tracing.views.live.outputs import FullScreen, PlainLines
from tracing.views.live.panels import Moment, plain, render
from tracing.views.live.playback import Clock
from tracing.views.live.processes import Processes
from tracing.views.live.recent import Recent, choose
from tracing.views.main_time import main_in_words
from tracing.views.terminal.keyboard import Keyboard
from tracing.views.terminal.restore import exit_on_sigterm, other_screen

PERIOD = 1 / 8  # s between two frames, if they are cheap


def watch(
    path: str | os.PathLike[str],
    *,
    console: Console | None = None,
    speed: float = 1.0,
    once: bool = False,
    record: str | os.PathLike[str] | None = None,
    clock: Clock = time.monotonic_ns,
    part: int | str | None = None,
) -> None:
    """Show the run that is recorded into `path` until it ends; a finished one is replayed, `speed` times as fast.

    `once` prints one frame: the present one, or a busy one of a finished run. `record` saves that as SVG, too. Of
    several processes the first is shown, or `part`, a rank or a name. Returns
    when the run has ended, that is, when no process records any more, or q is pressed.

    Raises LookupError if there is no such part, TraceError if there is no trace in `path`, ValueError for a `speed` of
    0 or less, KeyboardInterrupt at Ctrl-C and SystemExit at SIGTERM: the terminal is restored by then.
    """
    if not speed > 0:
        raise ValueError(f"speed must be above 0, not {speed}")
    console = console or Console()
    source = Processes(path, part, speed, clock)
    if once or record is not None:
        moment = one_moment(source, clock)
        console.print(render(moment, *console.size), soft_wrap=True)
        console.line()
        if record is not None:
            save(moment, Path(record), *(console.size if console.is_terminal else (110, 28)))
        return
    with exit_on_sigterm(), Keyboard() as keyboard:
        _run(source, console, keyboard)


# ---- the loop


def _run(processes: Processes, console: Console, keyboard: Keyboard) -> None:
    """Show one frame after another until the run has ended or q is pressed. A replay waits for keys at its end."""
    picture = console.is_terminal and not console.is_dumb_terminal
    screen = FullScreen(console) if picture else PlainLines(console)
    shown, help, quit = -1, False, False
    with screen, other_screen(console) if picture else contextlib.nullcontext():
        while not quit:
            begin, cpu = time.monotonic(), time.thread_time()
            state, now = processes.look()
            source = processes.source
            ended = source.ended() and (processes.running or not keyboard.active)
            facts = Recent(source.trace, state, now, shown)
            shown, facts.limit, facts.stuck = facts.loader, source.limit, source.stuck
            keys = f"q quit  {source.keys}  h help" if keyboard.active else ""
            screen.show(Moment(state, facts, processes.path.name, processes.mode, keys, help))
            screen.last_words = functools.partial(_last_words, source.trace, state, facts)
            if ended:
                break
            wait = screen.wait(PERIOD, time.thread_time() - cpu) - (time.monotonic() - begin)
            for key in keyboard.read(wait):
                quit, help = quit or key in ("q", "Q"), help != (key == "h")
                source.press(key)


def _last_words(trace: Trace, state: State, facts: Recent) -> str:
    """What remains in the terminal: how far the run had come, and where main's time had gone."""
    loader = choose(state, facts.loader)
    iterators = [] if loader is None else [each for each in trace.index.iterators if each.loader == loader.loader]
    if not iterators or state.time <= (begin := int(trace.events["time"][iterators[0].first()])):
        return plain(state, facts)
    return plain(state, facts, main_in_words(trace, iterators, begin, state.time))
