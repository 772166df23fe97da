"""Arithmetic of stretches of time, against counting them nanosecond by nanosecond."""

from __future__ import annotations

import numpy as np
import pytest

from tracing.trace.intervals import Grid, depth, spent


@pytest.mark.parametrize("count", [0, 1, 7])
def test_time_spent_is_what_counting_gives(count: int) -> None:
    edges = np.sort(np.random.default_rng(count).choice(90, 2 * count, replace=False)) + 5
    begin, end = edges[::2], edges[1::2]
    at = np.arange(100)
    inside = np.array([((begin <= moment) & (moment < end)).sum() for moment in at])
    assert spent(begin, end, at).tolist() == [inside[:moment].sum() for moment in at]
    assert depth(begin, end, at).tolist() == inside.tolist()


def test_intervals_that_touch_and_empty_ones_count_once() -> None:
    begin, end = np.array([0, 10, 20, 20]), np.array([10, 20, 20, 30])
    assert spent(begin, end, np.array([-5, 0, 5, 10, 20, 25, 30, 99])).tolist() == [0, 0, 5, 10, 20, 25, 30, 30]


def test_pieces_of_a_grid_add_up_to_the_time_that_intervals_share() -> None:
    one, other = (np.array([0, 50]), np.array([30, 90])), (np.array([20, 60]), np.array([55, 70]))
    grid = Grid(*one, *other)
    both = (grid.depth(*one) > 0) & (grid.depth(*other) > 0)
    assert grid.length[both].sum() == (30 - 20) + (55 - 50) + (70 - 60)
