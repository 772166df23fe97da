"""Arithmetic of stretches of time, against counting them nanosecond by nanosecond."""

from __future__ import annotations

import numpy as np
import pytest

from tracing.trace.intervals import depth


@pytest.mark.parametrize("count", [0, 1, 7, 40])
def test_depth_is_what_counting_gives(count: int) -> None:
    """Some intervals are empty, and some touch."""
    edges = np.sort(np.random.default_rng(count).choice(90, 2 * count)) + 5
    begin, end = edges[::2], edges[1::2]
    at = np.arange(100)
    inside = np.array([((begin <= moment) & (moment < end)).sum() for moment in at])
    assert depth(begin, end, at).tolist() == inside.tolist()
