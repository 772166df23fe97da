"""What the grader is doing just now: said to whoever watches that it comes to an end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

last = ""  # what was said last
_listener: Callable[[str], Any] | None = None


def listen(listener: Callable[[str], Any] | None) -> None:
    """Call this at every beat."""
    global _listener
    _listener = listener


def beat(what: str) -> None:
    """The grader begins with something: "fetch([3, 1])". If nothing else is heard for long, this does not end."""
    global last
    last = what
    if _listener is not None:
        _listener(what)
