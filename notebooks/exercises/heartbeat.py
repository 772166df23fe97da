"""What the grader is doing now, for the process that watches whether it ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

last = ""  # the last beat
_listener: Callable[[str], Any] | None = None


def listen(listener: Callable[[str], Any] | None) -> None:
    """Call this at every beat."""
    global _listener
    _listener = listener


def beat(what: str) -> None:
    """The grader begins with this: "fetch([3, 1])". If no other beat follows for long, it is stuck."""
    global last
    last = what
    if _listener is not None:
        _listener(what)
