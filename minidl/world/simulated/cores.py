"""The cores of a simulated machine, which the threads that compute share fairly."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from minidl.world.simulated.processes import Thread

if TYPE_CHECKING:
    from minidl.world.simulated.machine import Machine

SECOND = 1_000_000_000  # ns


def never() -> bool:
    return False


class Cores:
    """Which threads compute, and when they will be done."""

    def __init__(self, machine: Machine, count: float) -> None:
        self._machine = machine
        self.count = count
        self.others = 0.0  # threads of other programs that compute all the time
        self._busy: dict[Thread, float] = {}  # -> core time that it still needs (ns) ...
        self._helpers: dict[Thread, float] = {}  # -> threads that compute with it
        self._settled_at = 0  # ... as of this time (ns)

    def compute(self, seconds: float, helpers: float = 0.0) -> None:
        """The running thread uses a core for `seconds`, and so do `helpers`, on average, that it waits for: longer by
        the clock if more threads compute than there are cores."""
        me = self._machine.running
        self._settle()
        self._busy[me], self._helpers[me] = seconds * SECOND, helpers
        me.cpu += int(seconds * SECOND)
        try:
            while self._busy[me] >= 1:
                self._plan()
                self._machine.until(never, (me.deadline - self._machine.clock) / SECOND)
                self._settle()
        finally:
            del self._busy[me], self._helpers[me]
            self._plan()

    def _settle(self) -> None:
        """Subtract what the busy threads have computed since the last time."""
        for thread in [thread for thread in self._busy if not thread.alive]:
            del self._busy[thread], self._helpers[thread]
        for thread in self._busy:
            self._busy[thread] -= (self._machine.clock - self._settled_at) * self._speed()
        self._settled_at = self._machine.clock

    def _speed(self) -> float:
        return min(1.0, self.count / (len(self._busy) + sum(self._helpers.values()) + self.others))

    def _plan(self) -> None:
        """Set when each busy thread will be done if no other begins or ends before."""
        for thread, left in self._busy.items():
            thread.deadline = self._machine.clock + math.ceil(max(0.0, left) / self._speed())
