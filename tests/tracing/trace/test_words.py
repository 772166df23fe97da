"""Numbers in words."""

from __future__ import annotations

import pytest

from tracing.trace.words import duration, size


@pytest.mark.parametrize(
    ("nanoseconds", "words"),
    [(-5, "0 ns"), (0, "0 ns"), (999, "999 ns"), (999.6, "1 µs"), (999_400, "999 µs"), (999_600, "1.0 ms"),
     (12_340_000, "12.3 ms"), (999_400_000, "999 ms"), (999_600_000, "1.00 s"), (59_960_000_000, "60.0 s"),
     (999e9, "999 s"), (999.6e9, "16.7 min"), (1800e9, "30.0 min"), (7200e9, "2.0 h")],
)  # fmt: skip
def test_durations_are_short(nanoseconds: float, words: str) -> None:
    assert duration(nanoseconds) == words and len(words) <= 8


@pytest.mark.parametrize(
    ("nbytes", "words"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 KB"), (99_960, "100 KB"), (999_600, "1.0 MB"), (38_535_168, "38.5 MB"),
     (999_600_000, "1.0 GB"), (123e9, "123.0 GB")],
)  # fmt: skip
def test_sizes_are_short(nbytes: float, words: str) -> None:
    assert size(nbytes) == words and len(words) <= 8
