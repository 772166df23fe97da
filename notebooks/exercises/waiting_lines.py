"""In a deadlock, the line of the answer at which each thread waits: no event records that."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from minidl.world.simulated import simulate
from minidl.world.simulated.schedule import Schedule, parse
from notebooks.exercises.protocol import Broken


class Standstill(Schedule):
    """A schedule that records, whenever no thread can go on, which line of a file each is in."""

    def __init__(self, token: str, path: Path) -> None:
        super().__init__(parse(token).moves)
        self.path = str(path)
        self.lines: dict[str, int] = {}  # "main", "worker 0", or the name of another thread -> line

    def choose(self, machine: Any) -> Any:
        chosen = super().choose(machine)
        if chosen is None:
            own = sys._getframe()  # of the running thread: its greenlet has none
            frames = [(each, each.greenlet.gr_frame or own) for each in machine.threads if each.alive]
            found = {_who(each): self._line(frame) for each, frame in frames}
            self.lines = {who: line for who, line in found.items() if line}
        return chosen

    def _line(self, frame: Any) -> int:
        """The innermost line of the file on a stack; 0: none."""
        while frame is not None and frame.f_code.co_filename != self.path:
            frame = frame.f_back
        return frame.f_lineno if frame is not None else 0


def _who(thread: Any) -> str:
    if thread is not thread.process.threads[0]:
        return str(thread.name)
    return str(thread.process.name).removeprefix("minidl ")


def lines_that_wait(broken: Broken, path: Path) -> dict[str, str]:
    """Of a run that deadlocks: {"main": "main waits in line 32 of 13_shutdown.py: worker.join()", ...}, for the threads
    that wait in the answer's lines. The answer must be at work."""
    outcome = broken.outcome
    if outcome is None or not outcome.deadlock:
        return {}
    return where(outcome.program, outcome.token, path, **outcome.options)


def where(program: Callable[[], Any], token: str, path: Path, **options: Any) -> dict[str, str]:
    """The same of any run; {} if it does not deadlock."""
    schedule = Standstill(token, path)
    if not simulate(program, schedule=schedule, **options).deadlock:
        return {}
    lines = {who: linecache.getline(str(path), line).strip() for who, line in schedule.lines.items()}
    return {who: f"{who} waits in line {schedule.lines[who]} of {path.name}: {text}" for who, text in lines.items()}
