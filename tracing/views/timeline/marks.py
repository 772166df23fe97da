"""The events that a reader must not miss: symbols on the lanes, their names above them, regions through everything.

Legend
    mark    12.1 ms, worker 0, "died"       drawn on a lane, and named above the lanes where there is room
    note                                    a mark that the caller has asked for: a line through everything
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from minidl.events import Kind
from tracing.trace import event_words
from tracing.trace.event_index import Lane
from tracing.trace.kinds import ALARMING, MARKED, TRAITS
from tracing.trace.trace import Trace
from tracing.views.timeline import colours
from tracing.views.timeline.bars import Scale
from tracing.views.timeline.spans import killed_at
from tracing.views.timeline.window import View


@dataclass(frozen=True)
class Mark:
    """Something to point at."""

    time: int  # ns
    kind: int  # Kind
    lane: Lane
    worker: int  # -1 except in a worker's lane
    text: str  # a few plain words
    rank: int  # 0 must be named, 1 should be, 2 may be


FIRST = {Kind.WORKER_DIED, Kind.ERROR_RAISED, Kind.GOES_ON}
SECOND = ALARMING | {Kind.EPOCH_BEGIN, Kind.STATE_TAKEN, Kind.SHUTDOWN_BEGIN}
NOTE = -1  # the kind of a mark that the caller asked for, in no lane
MOST_MARKS = 150


def marks(view: View) -> list[Mark]:
    """All marks in the window, in time order."""
    events = view.trace.events
    first, last = np.searchsorted(events["time"], [view.begin, view.end + 1])
    seen = events[first:last]
    at = np.flatnonzero(np.isin(seen["kind"], list(MARKED)))
    at = at[(seen["loader"][at] == view.loader) & np.isin(seen["epoch"][at], view.epochs)]
    going_on = seen["epoch"][at[seen["kind"][at] == Kind.GOES_ON]]  # its mark names the epoch, too
    at = at[~((seen["kind"][at] == Kind.EPOCH_BEGIN) & np.isin(seen["epoch"][at], going_on))]
    found = [_mark(view.trace, int(position)) for position in first + at]
    noticed = {mark.worker for mark in found if mark.kind == Kind.WORKER_DIED}
    found += [mark for mark in _kills(view) if view.begin <= mark.time <= view.end and mark.worker not in noticed]
    return sorted(_thin_out(found), key=lambda mark: mark.time)


def _kills(view: View) -> Iterator[Mark]:
    """When processes were killed in a simulated run, whether or not another process noticed."""
    for worker in range(-1, view.num_workers):
        lane, who = (Lane.WORKER, f"worker {worker}") if worker >= 0 else (Lane.MAIN, "main")
        for time in killed_at(view.trace, view.iterators, lane, worker):
            yield Mark(time, Kind.WORKER_DIED, lane, worker, f"{who} is killed", 0)


def _thin_out(found: list[Mark]) -> list[Mark]:
    """Leave out marks where they would hide the lanes: first the steps, then epochs and shutdowns."""
    if len(found) > MOST_MARKS:
        found = [mark for mark in found if mark.rank < 2 or mark.kind == Kind.SHUTDOWN_END]
    if len(found) > MOST_MARKS:
        found = [mark for mark in found if mark.kind in ALARMING]
    return found


def _mark(trace: Trace, position: int) -> Mark:
    event = trace.events[position]
    kind = int(event["kind"])
    lane = TRAITS[kind].lane
    rank = 0 if kind in FIRST else 1 if kind in SECOND else 2
    text = event_words.mark(event, error=str(trace.text(position) or "error").split("(")[0])
    worker = int(event["worker"]) if lane is Lane.WORKER else -1
    return Mark(int(event["time"]), kind, lane, worker, text, rank)


# ---- drawn


def draw_symbol(axes: Axes, scale: Scale, mark: Mark, middle: float, height: float) -> None:
    """What happened in a lane: a red symbol for what is wrong, a tick for a step."""
    x = float(scale(mark.time))
    if mark.kind in ALARMING:
        symbol, size = "X" if mark.kind in (Kind.WORKER_DIED, Kind.PARENT_DIED) else "v", 7 - mark.rank
        drawn = Line2D([x], [middle], marker=symbol, markersize=size, color=colours.ALARM, zorder=8, clip_on=False)
        drawn.set_markeredgecolor("white")
    else:
        drawn = Line2D([x, x], [middle - height / 2, middle + height / 2], color=colours.INK, linewidth=0.8, zorder=6)
    drawn.set_gid(f"mark {mark.text}")
    axes.add_line(drawn)


def draw_names(axes: Axes, scale: Scale, marks: list[Mark]) -> None:
    """The marks' names in two rows above the lanes: the important ones first, the others where there is room."""
    rows: list[list[tuple[float, float]]] = [[], []]  # of each row: what is taken, in inches
    room = float(scale.inches(scale.end - scale.begin))
    at = [float(scale.inches(mark.time - scale.begin)) for mark in marks]
    for i in sorted(range(len(marks)), key=lambda i: (marks[i].rank, marks[i].time)):
        mark, left, width = marks[i], at[i], 0.05 + 0.068 * len(marks[i].text)
        if mark.rank == 2 and any(abs(left - other) < 0.04 for j, other in enumerate(at) if j != i):
            continue  # one step of many: a closer view names it
        for row, backwards in itertools.product(range(len(rows)), (False, True)):
            first, last = (left - width, left) if backwards else (left, left + width)
            free = all(last <= other_first or first >= other_last for other_first, other_last in rows[row])
            if not free or last > room:
                continue
            rows[row].append((first - 0.05 * backwards, last + 0.05 * (not backwards)))
            offset = (-2 if backwards else 2, 3 + 10 * row)
            ink = colours.ALARM if mark.kind in ALARMING or mark.kind == NOTE else colours.FAINT
            drawn = axes.annotate(
                mark.text, (float(scale(mark.time)), 1), offset, ("data", "axes fraction"), "offset points",
                ha="right" if backwards else "left", size=colours.WORDS - 0.5, color=ink,
            )  # fmt: skip
            drawn.set_gid(f"name {mark.text}")
            break


def draw_regions(axes: list[Axes], scale: Scale, seen: list[Mark], end: int) -> None:
    """Through lanes and queues: a line where an epoch begins, shading while the loader shuts down."""
    for mark in seen:
        if mark.kind in (Kind.EPOCH_BEGIN, Kind.GOES_ON):
            for each in axes:
                each.axvline(float(scale(mark.time)), color=colours.FAINT, linewidth=0.8, linestyle=":", zorder=1)
        elif mark.kind == Kind.SHUTDOWN_BEGIN:
            over = [other.time for other in seen if other.kind == Kind.SHUTDOWN_END and other.time >= mark.time]
            for each in axes:
                each.axvspan(float(scale(mark.time)), float(scale(min([*over, end]))), color="#f4ece4", zorder=0)


def draw_notes(every: list[Axes], scale: Scale, noted: list[Mark]) -> None:
    """A line through everything that is drawn. Its words are above the lanes, among the names of the marks."""
    for axes in every:
        for mark in noted:
            line = axes.axvline(float(scale(mark.time)), color=colours.ALARM, linestyle=(0, (4, 2)), zorder=8)
            line.set(linewidth=1.0, gid="note")
