"""The timeline of a run of several ranks: stacked upon one clock, with what each waited in its steps for the others.

    rank 0    main   training step   ▇▇▇▇▇▇▇▇▇     below it a dark line where it waits for other ranks
              in the loader          ▁   ▁   ▁
              worker 0               ▇▇ ▇▇ ▇▇
    rank 1    …

Where they are many, all workers of a rank share a lane, and many batches are summed up in bins of time.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from tracing.analysis.report.hold_up import hold_up
from tracing.trace.event_index import Lane
from tracing.trace.ranks import Rank, Ranks
from tracing.trace.words import duration
from tracing.views.timeline import colours
from tracing.views.timeline.bars import Scale
from tracing.views.timeline.figure import LOW_LANE, draw_legend, one_by_one, unit_of, write
from tracing.views.timeline.lanes import LOADER_LOOKS, Row, draw_lane, draw_summed_lane, lanes_of
from tracing.views.timeline.spans import Look
from tracing.views.timeline.window import View, select

MOST_LANES = 28  # of workers, each with a lane of its own
LEFT, RIGHT, TOP, BOTTOM, GAP = 2.15, 0.2, 0.95, 0.8, 0.1  # inches
ROW = LOW_LANE
Times = tuple[np.ndarray, np.ndarray]  # begin, end (ns)


def timeline_of_ranks(
    ranks: Ranks,
    *,
    chosen: Sequence[int] | None = None,
    start: float | None = None,
    end: float | None = None,
    batches: tuple[int, int] | None = None,
    loader: int | None = None,
    epoch: int | None = None,
    width: float = 9.0,
) -> Figure:
    """Draw these ranks (numbers), by default all. The other arguments are those of `timeline`: start and end in seconds
    after the first event of all ranks; loader as the first rank counts, and batches and epoch of that. Returns a Figure
    of 200 dots per inch.

    Raises ValueError when there is nothing to draw: no such rank, loader, epoch or batch, or an empty window.
    """
    drawn = [each for each in ranks.all if chosen is None or each.part.rank in chosen]
    if chosen is not None and len(drawn) < len(set(chosen)):
        there = ", ".join(str(each.part.rank) for each in ranks.all if each.part.rank is not None)
        raise ValueError(f"nothing to draw: of the ranks {', '.join(map(str, chosen))} there are {there or 'none'}")
    zero = min(each.trace.start + each.offset for each in ranks.all if len(each.trace))
    views = _views(ranks, drawn, zero, start, end, batches, loader, epoch)
    many = sum(view.num_workers for view in views.values()) > MOST_LANES
    lanes = {name: _lanes(view, many) for name, view in views.items()}
    summed = any(view.summed for view in views.values())
    return _draw(ranks, drawn, views, lanes, zero, summed, width)


def _views(
    ranks: Ranks, drawn: list[Rank], zero: int, start: float | None, end: float | None,
    batches: tuple[int, int] | None, loader: int | None, epoch: int | None,
) -> dict[str, View]:  # fmt: skip
    """What is shown of each rank, by its name: the same window of time."""
    same = _counterparts(ranks, loader)
    windows = {}
    for each in drawn:
        if each.configs and (loader is None or each.name in same):
            windows[each.name] = select(each.trace, None, None, batches, same.get(each.name), epoch)
    if not windows:
        raise ValueError("nothing to draw: none of these ranks has that loader")
    offsets = {each.name: each.offset for each in drawn}
    begin = min(view.begin + offsets[name] for name, view in windows.items()) if start is None else None
    until = max(view.end + offsets[name] for name, view in windows.items()) if end is None else None
    begin = zero + round((start or 0) * 1e9) if begin is None else begin
    until = zero + round((end or 0) * 1e9) if until is None else until
    if until <= begin:
        raise ValueError("nothing to draw: the window is empty")
    found = {}
    for each in drawn:
        if each.name in windows:
            since, to = ((time - each.offset - each.trace.start) / 1e9 for time in (begin, until))
            try:
                view = select(each.trace, since, to, None, windows[each.name].loader, None)
            except ValueError:
                continue  # this rank did nothing then
            found[each.name] = replace(view, begin=begin - each.offset, end=until - each.offset)
    if not found:
        raise ValueError("nothing to draw: no rank has events in this window")
    return found


def _counterparts(ranks: Ranks, loader: int | None) -> dict[str, int]:
    """Name of a rank -> its number of the loader: the first rank's `loader`, or the one with most batches."""

    def batches(at: int, own: int) -> int:
        return len(ranks.together[at].tasks_of[own])

    whole = [same for same in ranks.loaders if (loader is None or same.get(0) == loader)]
    if not whole:
        return {}
    same = max(whole, key=lambda same: (len(same), sum(batches(at, own) for at, own in same.items())))
    return {ranks.together[at].name: own for at, own in same.items()}


def _lanes(view: View, many: bool) -> list[list[Row]]:
    """The lanes of a rank, each of one thread, or, where there are many, of all its workers."""
    rows = lanes_of(view)
    workers = [row for row in rows if row.lane is Lane.WORKER]
    if not many or len(workers) < 2:
        return [[row] for row in rows]
    label = f"{len(workers)} workers"
    return [*([row] for row in rows if row.lane is not Lane.WORKER), [replace(row, label=label) for row in workers]]


def _draw(
    ranks: Ranks, drawn: list[Rank], views: dict[str, View], lanes: dict[str, list[list[Row]]], zero: int, summed: bool,
    width: float,
) -> Figure:  # fmt: skip
    shown = [each for each in drawn if each.name in views]
    heights = [ROW * len(lanes[each.name]) for each in shown]
    height = TOP + sum(heights) + GAP * len(shown) + BOTTOM
    inside, figure = width - LEFT - RIGHT, Figure(figsize=(width, height), dpi=200)
    top, first = TOP, views[shown[0].name]
    length = first.end - first.begin
    unit, name = unit_of(length)
    waits = _waits(ranks)
    for each, own in zip(shown, heights, strict=True):
        view = views[each.name]
        axes = figure.add_axes((LEFT / width, 1 - (top + own) / height, inside / width, own / height))
        scale = Scale(zero - each.offset, unit, view.begin, view.end, length / unit / inside)
        axes.set_xlim(float(scale(view.begin)), float(scale(view.end)))
        axes.tick_params(axis="x", labelbottom=each is shown[-1], labelsize=colours.NUMBERS, length=2)
        _draw_rank(axes, scale, view, lanes[each.name], waits.get(each.name), summed)
        _name(axes, each.name, waits.get(each.name), view, -(LEFT - 0.12) / inside)
        top += own + GAP
    axes.set_xlabel(f"time since the first event ({name})", size=colours.WORDS)
    _write(figure, ranks, views, lanes)
    return figure


def _name(axes: Axes, name: str, waits: Times | None, view: View, left: float) -> None:
    """The rank's name, and how long it waits for others in this window."""
    axes.text(left, 0.5, name, transform=axes.transAxes, size=9, weight="bold", va="bottom")
    if waits is not None:
        begin, end = (np.clip(times, view.begin, view.end) for times in waits)
        words = f"waits {duration(int((end - begin).sum()))}\nfor others"
        axes.text(
            left, 0.45, words, transform=axes.transAxes, size=colours.NUMBERS - 0.5, va="top", color=colours.FOR_OTHERS
        )


def _waits(ranks: Ranks) -> dict[str, Times]:
    """Name of a rank -> when it waited for the others, on its own clock. Empty if they do not wait for each other."""
    steps, found = ranks.steps, dict[str, Times]()
    if not steps.synchronised:
        return found
    for at, rank in enumerate(ranks.together):
        waited = steps.waited[:, at] > 0
        # It waits at the exchange, later in its step, for as long: drawn until the last one begins.
        begin = steps.began[waited, at] - rank.offset
        found[rank.name] = begin, begin + steps.waited[waited, at]
    return found


def _draw_rank(
    axes: Axes, scale: Scale, view: View, lanes: list[list[Row]], waits: Times | None,
    summed: bool,
) -> None:  # fmt: skip
    axes.set_ylim(len(lanes) - 0.5, -0.5)
    axes.set_yticks(range(len(lanes)), [rows[0].label for rows in lanes], size=colours.WORDS)
    axes.tick_params(axis="y", length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color("#cccccc")
    for i, rows in enumerate(lanes):
        if summed or len(rows) > 1:
            _draw_shares(axes, scale, view, rows, i)
        else:
            draw_lane(axes, scale, rows[0].spans, set(rows[0].looks), i, 0.8)
    if waits is not None and len(waits[0]):
        begin, end = (scale(times) for times in waits)
        marks = axes.broken_barh(list(zip(begin, end - begin, strict=True)), (0.25, 0.22))  # below the digits
        marks.set(facecolor=colours.FOR_OTHERS, edgecolor="white", linewidth=0.6, zorder=7, gid="waits for other ranks")


def _draw_shares(axes: Axes, scale: Scale, view: View, rows: list[Row], i: int) -> None:
    """A lane in bins of time; of several workers, their mean."""
    if len(rows) == 1:
        draw_summed_lane(axes, scale, rows[0].spans, rows[0].looks, view.edges, i, 0.8)
        return
    shares = np.mean([row.spans.shares(view.edges) for row in rows], axis=0)
    x, floor = scale(view.edges), np.zeros(shares.shape[1])
    for look in [*LOADER_LOOKS, Look.WAITING]:
        top = floor + shares[look]
        low, high = (i + 0.4 - 0.8 * np.append(share, share[-1]) for share in (floor, top))
        fill = axes.fill_between(x, low, high, step="post", linewidth=0, color=colours.SUMMED[look], zorder=2)
        fill.set_gid(f"{rows[0].label} {look.name.lower()}")
        floor = top


def _write(figure: Figure, ranks: Ranks, views: dict[str, View], lanes: dict[str, list[list[Row]]]) -> None:
    """The title, who holds up whom, and the legend of what is in the picture."""
    view, held = next(iter(views.values())), hold_up(ranks)
    title = f"{len(views)} ranks: {duration(view.end - view.begin)} on one clock"
    words = textwrap.wrap(str(held or ""), int(14 * figure.get_figwidth()))
    write(figure, title, words)
    shown = [
        row.spans.within(views[name].begin, views[name].end)
        for name, own in lanes.items()
        for lane in own
        for row in lane
    ]
    seen = {look for spans in shown for look in spans.look.tolist()}
    names = {Look.TRAINING: "training step", Look.FETCH: "fetch", Look.COLLATE: "collate", Look.PIN: "pin"}
    entries: list[tuple[object, str]] = [one_by_one()]
    if any(each.summed for each in views.values()):
        entries = [(Patch(color=colours.SUMMED[look]), name) for look, name in names.items() if look in seen]
    flat = {Look.BUSY: "other work", Look.WAITING: "waiting", Look.SETUP: "starting, shutting down"}
    entries += [(Patch(color=colours.FLAT[look]), name) for look, name in flat.items() if look in seen]
    if ranks.steps.synchronised:
        entries.append((Patch(color=colours.FOR_OTHERS), "waits in its step for another rank"))
    draw_legend(figure, entries)
