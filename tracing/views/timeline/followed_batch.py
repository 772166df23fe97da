"""The batch that is followed through the timeline: which one, its way from lane to lane, and the arrows along it.

Legend
    hop     (12.1 ms, Lane.WORKER)      when and where the batch is
    leg     from (12.1 ms, 3.0) to (15.0 ms, 1.0)    an arrow: from one time and height to another
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.transforms import Bbox, TransformedBbox

from tracing.trace.event_index import Lane
from tracing.trace.words import STAGES, duration
from tracing.views.timeline import colours
from tracing.views.timeline.bars import Scale
from tracing.views.timeline.lanes import LOADING, Row, row_of
from tracing.views.timeline.window import View

# Where a batch is at each hop: the lane, and the column of trace.tasks that says when.
WAY = (
    (Lane.MAIN, "index_put"),
    (Lane.WORKER, "index_got"),
    (Lane.WORKER, "result_put"),
    (Lane.PIN, "result_got"),
    (Lane.PIN, "data_put"),
    (Lane.MAIN, "data_got"),
    (Lane.MAIN, "yielded"),
)
# The stages from when main sends a task to when it yields the batch. (Pickling is part of being in a queue.)
ON_THE_WAY = [name for name in STAGES if name not in ("draw keys", "pickle", "unpickle", "training step")]


def way(task: np.void) -> list[tuple[int, Lane]]:
    """(time in ns, lane) of each hop that happened, in order. Without a pin thread main takes what workers put."""
    pinned = task["data_put"] >= 0
    hops = ((column, lane if lane is not Lane.PIN or pinned else Lane.MAIN) for lane, column in WAY)
    return [(int(task[column]), lane) for column, lane in hops if task[column] >= 0]


EDGE = 0.006  # of the width


# ---- which batch


def choose(view: View, follow: int | bool | None, epoch: int | None, noted: Sequence[int] = ()) -> np.void | None:
    """The task to follow, a row of trace.tasks: `follow`, or one that a noted event is about, or an instructive one."""
    if follow is False:
        return None
    if follow is None:
        for event in view.trace.events[list(noted)]:
            same = (view.tasks["task"] == event["task"]) & (view.tasks["epoch"] == event["epoch"])
            if same.any() and event["loader"] == view.loader:
                return view.tasks[same][0]
        pick = longest_awaited if view.summed else most_instructive
        return pick(whole(view.tasks, view.begin, view.end))
    found = view.tasks[view.tasks["task"] == follow]
    found = found[found["epoch"] == epoch] if epoch is not None else found
    if len(found) == 0:
        raise ValueError(f"batch {follow} is not in this window")
    return found[0]


def whole(tasks: np.ndarray, begin: int, end: int) -> np.ndarray:
    """Those tasks (rows of trace.tasks) whose whole path is between two times (ns)."""
    sent = np.where(tasks["index_put"] >= 0, tasks["index_put"], tasks["keys_begin"])
    return tasks[(sent >= begin) & (tasks["yielded"] >= 0) & (tasks["yielded"] <= end)]


def most_instructive(tasks: np.ndarray) -> np.void | None:
    """The one that waited longest in the reorder buffer; if all came in order, the one that took longest from its fetch
    to the yield."""
    early = tasks[tasks["stored"] >= 0]
    if len(early):
        return early[np.argmax(early["released"] - early["stored"])]
    return tasks[np.argmax(tasks["yielded"] - tasks["fetch_begin"])] if len(tasks) else None


def longest_awaited(tasks: np.ndarray) -> np.void | None:
    """The one that main waited longest for, as in the report: among very many a reader looks for the worst."""
    tasks = tasks[np.lexsort((tasks["yielded"], tasks["epoch"]))]
    asked = np.where(tasks["epoch"][1:] == tasks["epoch"][:-1], tasks["asked"][:-1], -1)
    waited = np.where(asked >= 0, tasks["yielded"][1:] - asked, 0)
    return tasks[1 + waited.argmax()] if len(waited) else most_instructive(tasks)


# ---- its path


class Leg(NamedTuple):
    """An arrow, from one (time, height) to another; held: the batch is in the reorder buffer meanwhile."""

    begin: tuple[int, float]
    end: tuple[int, float]
    held: bool = False


def legs(rows: list[Row], task: np.void) -> list[Leg]:
    """From lane to lane, each from when the batch left one to when it reached the next."""
    hops = [(time, row_of(rows, lane, int(task["worker"]) if lane is Lane.WORKER else -1)) for time, lane in way(task)]
    found = [Leg(one, other) for one, other in itertools.pairwise(hops) if one[1] != other[1]]
    stored, yielded = int(task["stored"]), int(task["yielded"])
    if stored >= 0 and yielded >= 0:
        found.append(Leg((stored, LOADING), (yielded, LOADING), held=True))
    if yielded >= 0:
        found.append(Leg((yielded, LOADING), (yielded, 0.4)))
    return found


def draw_leg(axes: Axes, scale: Scale, leg: Leg) -> None:
    begin, end, held = leg
    look = {
        "arrowstyle": "-|>", "mutation_scale": 8, "shrinkA": 0, "shrinkB": 0, "linewidth": 1.2, "color": "black",
        "linestyle": (0, (2.5, 1.5)) if held else "-", "path_effects": colours.HALO,
    }  # fmt: skip
    tip, tail = (float(scale(end[0])), end[1]), (float(scale(begin[0])), begin[1])
    arrow = axes.annotate("", tip, tail, arrowprops=look, zorder=7, annotation_clip=False)
    arrow.set_gid("way")
    if arrow.arrow_patch is not None:
        # Clipped where it leads out of the window; but the tip of one that ends at its edge is shown whole.
        arrow.arrow_patch.set_clip_box(TransformedBbox(Bbox([[-EDGE, 0], [1 + EDGE, 1]]), axes.transAxes))


def in_words(task: np.void) -> str:
    """The stages of a batch's way that took 2 % of it or more."""
    hops = [(name, *STAGES[name]) for name in ON_THE_WAY]
    found = [(name, int(task[end] - task[begin])) for name, begin, end in hops if 0 <= task[begin] <= task[end]]
    whole = sum(ns for _, ns in found)
    return " → ".join(f"{duration(ns)} {what}" for what, ns in found if ns >= whole / 50)
