"""How long an answer may work: it is stopped if it has computed for COMPUTES seconds since the last beat, or if it and
all its children have slept for WAITS. What counts is CPU time: on a busy machine the clock means little.
"""

from __future__ import annotations

import contextlib
import threading
import time

import psutil

COMPUTES = 3.0  # seconds of CPU time since the last beat
IN_ALL = 120.0  # and from the beginning: an answer could go on sending beats
WAITS = 3.0  # seconds in which no process has computed or wanted to
LOOK = 0.15  # seconds between two looks at processes that seem to wait
SELDOM = 0.5  # and at those that compute: each look goes through all processes of the system


class Stopped(Exception):
    """Whoever asked for the verdict does not want it any more."""


class Family:
    """A process and all its children: whether they make progress."""

    def __init__(self, pid: int, stop: threading.Event | None) -> None:
        self.pid, self.stop = pid, stop  # pid 0: it is being started
        self.last, self.next_look = -1.0, 0.0
        self.beat()

    def beat(self) -> None:
        self.at_beat, self.since = -1.0, time.monotonic()  # -1: what was used until then is seen at the next look

    def has(self, pid: int) -> bool:
        with contextlib.suppress(psutil.Error):
            return any(parent.pid == self.pid for parent in psutil.Process(pid).parents())
        return False

    def _used(self) -> tuple[float, bool]:
        """CPU seconds, and whether one of them wants a core now."""
        used, wants = 0.0, False
        with contextlib.suppress(psutil.Error):
            top = psutil.Process(self.pid)
            for each in [top, *top.children(recursive=True)]:
                with contextlib.suppress(psutil.Error):
                    times = each.cpu_times()
                    used += times.user + times.system
                    wants |= each.status() in (psutil.STATUS_RUNNING, psutil.STATUS_DISK_SLEEP)
        return used, wants

    def stuck(self) -> str:
        """ "computes" or "waits": it is to be stopped. Raises Stopped."""
        now = time.monotonic()
        if self.stop is not None and self.stop.is_set():
            raise Stopped
        if not self.pid or now < self.next_look:
            return ""
        used, wants = self._used()
        goes_on = used != self.last or wants
        if goes_on:
            self.last, self.since = used, now
        if self.at_beat < 0:
            self.at_beat = used
        self.next_look = now + (SELDOM if goes_on else LOOK)
        if used - self.at_beat > COMPUTES or used > IN_ALL:
            return "computes"
        return "waits" if now - self.since > WAITS else ""
