"""What each thread does: spans without gaps, the same in every window. Their statuses are tested with the states."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

import numpy as np
import pytest

import tracing
from tests.tracing.loads import LOADS
from tracing.trace.event_index import Lane
from tracing.trace.thread_activity import Activity, activity


@pytest.mark.parametrize("name", LOADS)
def test_a_window_shows_what_the_whole_trace_shows(recorded: Callable[[str], tracing.Trace], name: str) -> None:
    trace = recorded(name)
    lanes = {(each.loader, Lane(lane), worker) for each in trace.index.iterators for _, lane, worker in each.lanes}
    for loader, lane, worker in lanes:
        if lane is Lane.FEEDER:  # feeders have no statuses
            continue
        iterators = trace.index.iterators_of(loader)
        whole = activity(trace, iterators, lane, worker)
        assert (whole.begin[1:] == whole.end[:-1]).all() and (whole.first[1:] == whole.last[:-1]).all()
        for first, k in ((0, len(trace) // 2), (len(trace) // 3, len(trace) // 2), (len(trace) // 2, len(trace) - 1)):
            begun = max(0, int((whole.first <= first).sum()) - 1)
            expected = whole.where(np.arange(begun, (whole.first <= k).sum()))
            expected.last[-1:], expected.end[-1:] = k, trace.events["time"][k]
            assert columns(activity(trace, iterators, lane, worker, first, k)) == columns(expected)


def columns(found: Activity) -> dict[str, list[int]]:
    return {each.name: getattr(found, each.name).tolist() for each in fields(found)}
