"""`tracing.timeline()` of several ranks: one picture, stacked, with each one's waits in its steps for the others.

    rank 0    main   training step   ▇▇▇▇▇▇▇▇▇     below it a dark line where it waits for other ranks
              in the loader          ▁   ▁   ▁
              worker 0               ▇▇ ▇▇ ▇▇
    rank 1    …

Where there are many workers, only main's lanes are drawn.
"""

from __future__ import annotations

import contextlib
import os
import textwrap
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from tracing.ranks.hold_up import hold_up
from tracing.ranks.ranks import Loaders, Ranks
from tracing.ranks.steps import steps_of
from tracing.trace.event_index import Lane
from tracing.trace.trace import Trace
from tracing.trace.words import duration
from tracing.views.timeline import colours
from tracing.views.timeline.bars import Scale
from tracing.views.timeline.figure import LOW_LANE, draw_legend, entries_of_looks, unit_of, write
from tracing.views.timeline.figure import timeline as timeline_of_trace
from tracing.views.timeline.lanes import Row, draw_lanes, lanes_of
from tracing.views.timeline.marks import ALARMING, marks
from tracing.views.timeline.window import View

MOST_LANES = 28  # of workers
LEFT, RIGHT, TOP, BOTTOM, GAP = 2.15, 0.2, 0.95, 0.8, 0.2  # inches


def timeline(run: Trace | Ranks | str | os.PathLike[str], **options: Any) -> Figure:
    """Draw a trace: see tracing.views.timeline.figure.timeline for the options. Or, given the path of a run of
    several processes, all of these, stacked on one clock: see `timeline_of_ranks`.

    Raises ValueError when there is nothing to draw, TraceError as `tracing.load` does.
    """
    if isinstance(run, Trace):
        return timeline_of_trace(run, **options)
    ranks = run if isinstance(run, Ranks) else Ranks(run)
    if len(ranks.all) == 1:
        return timeline_of_trace(ranks.all[0].trace, **options)
    return timeline_of_ranks(ranks, **options)


def timeline_of_ranks(ranks: Ranks, width: float = 9.0, **window: Any) -> Figure:
    """`window`: as for `timeline`. start and end are seconds after the first event of all ranks; loader is as the first
    rank counts, and batches and epoch are of that. Returns a Figure of 200 dots per inch.

    Raises ValueError when there is nothing to draw: no such loader, epoch or batch, or an empty window.
    """
    zero = min((each.trace.start for each in ranks.on_one_clock if len(each.trace)), default=0)
    views = _views(ranks, zero, **window)
    many = sum(view.num_workers for view in views.values()) > MOST_LANES
    lanes = {name: [row for row in lanes_of(views[name]) if not many or row.lane is not Lane.WORKER] for name in views}
    height = TOP + sum(map(len, lanes.values())) * LOW_LANE + len(views) * GAP + BOTTOM
    figure, steps, y = Figure(figsize=(width, height), dpi=200), steps_of(ranks), height - TOP
    for name, view in views.items():
        unit, unit_name = unit_of(view.end - view.begin)
        inside, own = width - LEFT - RIGHT, LOW_LANE * len(lanes[name])
        scale = Scale(zero, unit, view.begin, view.end, (view.end - view.begin) / unit / inside)
        axes = figure.add_axes((LEFT / width, (y - own) / height, inside / width, own / height))
        axes.set_xlim(float(scale(view.begin)), float(scale(view.end)))
        axes.tick_params(axis="x", labelbottom=name == list(views)[-1], labelsize=colours.NUMBERS, length=2)
        draw_lanes(axes, scale, view, lanes[name], [mark for mark in marks(view) if mark.kind in ALARMING])
        axes.text(-(LEFT - 0.12) / inside, 0.5, name, transform=axes.transAxes, size=9, weight="bold", va="bottom")
        for at, rank in enumerate(ranks.together):
            if rank.name == name and steps.synchronised:
                _draw_waits(axes, scale, steps.began[:, at], steps.waited[:, at], -(LEFT - 0.12) / inside)
        y -= own + GAP
    axes.set_xlabel(f"time since the first event ({unit_name})", size=colours.WORDS)
    title = f"{len(views)} ranks: {duration(view.end - view.begin)} on one clock"
    write(figure, title, textwrap.wrap(str(hold_up(ranks, steps) or ""), int(14 * width)))
    draw_legend(figure, _legend(views, lanes, steps.synchronised))
    return figure


def _views(
    ranks: Ranks, zero: int, start: float | None = None, end: float | None = None,
    batches: tuple[int, int] | None = None, loader: int | None = None, epoch: int | None = None,
) -> dict[str, View]:  # fmt: skip
    """What is shown of each rank, by its name: the same window of time."""
    same = _counterparts(ranks, loader)
    shown = [each for each in ranks.on_one_clock if each.configs and (loader is None or each.name in same)]
    if not shown:
        raise ValueError("nothing to draw: none of these ranks has that loader")
    windows = [View(each.trace, None, None, batches, same.get(each.name), epoch) for each in shown]
    begin = min(view.begin for view in windows) if start is None else zero + round(start * 1e9)
    until = max(view.end for view in windows) if end is None else zero + round(end * 1e9)
    found = {}
    for rank, view in zip(shown, windows, strict=True):
        with contextlib.suppress(ValueError):  # this rank did nothing then
            since, to = ((time - rank.trace.start) / 1e9 for time in (begin, until))
            found[rank.name] = View(rank.trace, since, to, loader=view.loader)
            found[rank.name].begin, found[rank.name].end = begin, until
    if not found or until <= begin:
        raise ValueError("nothing to draw: no rank has events in this window")
    return found


def _counterparts(ranks: Ranks, loader: int | None) -> dict[str, int]:
    """Name of a rank -> its number of the loader: the first rank's `loader`, or the one with most batches."""
    found = [same for same in ranks.loaders if loader in (None, same.get(ranks.together[0]))]

    def weight(same: Loaders) -> tuple[int, int]:
        return len(same), sum(len(rank.tasks_of(own)) for rank, own in same.items())

    return {rank.name: own for rank, own in max(found, key=weight, default=Loaders()).items()}


def _draw_waits(axes: Axes, scale: Scale, began: np.ndarray, waited: np.ndarray, left: float) -> None:
    """A rank waits at the exchange, somewhere in its step: drawn from its start, for as long."""
    begin, end = began[waited > 0], (began + waited)[waited > 0]
    seen = np.clip(end, scale.begin, scale.end) - np.clip(begin, scale.begin, scale.end)
    words = f"waits {duration(int(seen.sum()))}\nfor others"
    small, colour = colours.NUMBERS - 0.5, colours.FOR_OTHERS
    axes.text(left, 0.45, words, transform=axes.transAxes, size=small, va="top", color=colour)
    x = scale(begin)
    marks = axes.broken_barh(list(zip(x, scale(end) - x, strict=True)), (0.25, 0.22))  # below the digits
    marks.set(facecolor=colours.FOR_OTHERS, edgecolor="white", linewidth=0.6, zorder=7, gid="waits for other ranks")


def _legend(views: dict[str, View], lanes: dict[str, list[Row]], synchronised: bool) -> list[tuple[object, str]]:
    """What is in the picture."""
    shown = [row.spans.within(views[name].begin, views[name].end) for name, rows in lanes.items() for row in rows]
    seen = {look for spans in shown for look in spans.look.tolist()}
    entries = entries_of_looks(seen, any(each.summed for each in views.values()))
    return entries + [(Patch(color=colours.FOR_OTHERS), "waits in its step for another rank")] * synchronised
