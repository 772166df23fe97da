"""Names for parametrized tests that are the same in every process, as tests may run in several at once."""

from __future__ import annotations

import re


def plain(value: object) -> str:
    """`repr(value)` without addresses and paths."""
    return re.sub(r" at 0x[0-9a-f]+| from '[^']*'", "", repr(value))
