"""Patch minidl for a while: a learner's function, or a bug, in place of the reference."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def replaced(old: Any, new: Any, owner: Any) -> Iterator[None]:
    """`new` wherever minidl has `old`: in its owner and, for a module's function, in every module that imported it."""
    owners = [owner] if isinstance(owner, type) else [m for n, m in sys.modules.items() if n.startswith("minidl.")]
    places = [(each, name) for each in owners for name, value in list(vars(each).items()) if value is old]
    for each, name in places:
        setattr(each, name, new)
    try:
        yield
    finally:
        for each, name in places:
            setattr(each, name, old)
