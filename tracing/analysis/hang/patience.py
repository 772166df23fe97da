"""How long is too long? A trace is its own measure: several times as long as the same thing ever took before, and
longer than a floor that depends on what ended the wait, and on what main does meanwhile."""

from __future__ import annotations

import numpy as np

from minidl.events import Kind
from tracing.analysis.hang.lines import Lines
from tracing.analysis.hang.stuck_moments import Ending, Moment
from tracing.trace.state import OUTSIDE, LoaderState
from tracing.trace.trace import Trace

TIMES = 3  # stuck: this many times as long as it ever took before, ...
FLOOR = 10_000_000_000  # ... and longer than this (ns): a loader that waits runs a health check every 5 s
# The same for the first batch, and for a training step that computes: it may evaluate.
FLOOR_UNKNOWN = 30_000_000_000
FLOOR_ENDED = 2_000_000_000  # for a wait that Ctrl-C or a kill ended: somebody took it for a hang

OUT_OF_EPOCH = (Kind.EPOCH_END, Kind.SHUTDOWN_END, Kind.ERROR_RAISED)


def patience(trace: Trace, moment: Moment, loader: LoaderState, last: int, lines: Lines) -> tuple[int, int]:
    """The longest it took before (ns; -1: it never happened), and the longest it may take. `last`: the last event of
    the thread that iterates."""
    outside = loader.main.status in OUTSIDE
    usual = _longest_outside(trace, moment, last) if outside else _longest_inside(trace, loader, moment.k)
    if moment.ending is Ending.TIMED_OUT:  # too long for the user's own timeout
        return usual, 0
    computes = outside and not lines.waits(trace.actors[moment.actor].pid, int(trace.events["time"][last]))
    floor = FLOOR_UNKNOWN if usual < 0 or computes else FLOOR
    if moment.ending in (Ending.KILLED, Ending.INTERRUPTED):
        floor = FLOOR if computes else FLOOR_ENDED
    return usual, max(floor, TIMES * usual)


def _longest_outside(trace: Trace, moment: Moment, last: int) -> int:
    """A training step, or from an epoch's end to whatever came next, except a shutdown."""
    mine = trace.events[: last + 1][trace.events["actor"][: last + 1] == moment.actor]
    in_epoch = mine["kind"][-1] == Kind.YIELDED
    begins = np.isin(mine["kind"][:-1], (Kind.YIELDED,) if in_epoch else OUT_OF_EPOCH)
    begins &= mine["kind"][1:] != Kind.SHUTDOWN_BEGIN
    return int(np.diff(mine["time"])[begins].max(initial=-1))


def _longest_inside(trace: Trace, loader: LoaderState, k: int) -> int:
    """To get a batch, or to make one."""
    times = trace.events["time"]
    tasks = trace.tasks[trace.tasks["loader"] == loader.loader]
    made = tasks[(tasks["fetch_begin"] >= 0) & (tasks["collate_end"] >= 0) & (tasks["collate_end"] <= times[k])]
    longest = int((made["collate_end"] - made["fetch_begin"]).max(initial=-1))
    for iterator in trace.index.iterators_of(loader.loader):
        asked, had = (trace.index.group(iterator.number, kind).array for kind in (Kind.ASKED, Kind.YIELDED))
        had = had[(had <= k) & (asked.searchsorted(had) > 0)]  # (of a damaged trace the first may be missing)
        begun = asked[asked.searchsorted(had) - 1]
        longest = int((times[had] - times[begun]).max(initial=longest))
    return longest
