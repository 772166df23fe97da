"""What the grader is doing now, for the process that watches whether it ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

OFTEN = 0.2  # seconds: the listener need not hear the same beat more often
last = ""  # the last beat
_heard = 0.0  # when the listener was called
_listener: Callable[[str], Any] | None = None


def listen(listener: Callable[[str], Any] | None) -> None:
    """Call this at every beat."""
    global _listener
    _listener = listener


def beat(what: str) -> None:
    """The grader begins with this: "fetch([3, 1])". If no other beat follows for long, it is stuck."""
    global last, _heard
    now = time.monotonic()
    if _listener is not None and (what != last or now - _heard > OFTEN):
        _heard = now
        _listener(what)
    last = what
