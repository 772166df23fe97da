"""The strips under the lanes: each queue and the reorder buffer, how deep it is and which batches are in it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes

from minidl.events import Queue
from tracing.trace.words import QUEUE_NAMES, REORDER_BUFFER
from tracing.views.timeline import colours
from tracing.views.timeline.bars import Scale, bars, number
from tracing.views.timeline.queue_contents import Stays, binned, queue_stays, reorder_stays
from tracing.views.timeline.spans import NO_BATCH
from tracing.views.timeline.window import View

MOST_SINGLE_QUEUES = 4  # the index_queues of more workers share one strip


@dataclass(frozen=True)
class Strip:
    """One strip under the lanes: a queue, or several of a kind."""

    label: str
    stays: list[Stays]


def queues_of(view: View) -> list[Strip]:
    """The queues of these iterators, in the order in which a batch passes them. Without workers there are none."""
    trace, iterators, workers = view.trace, view.iterators, list(range(view.num_workers))
    if not workers:
        return []
    index = [
        queue_stays(trace, iterators, Queue.INDEX, [worker], f"{QUEUE_NAMES[Queue.INDEX]} {worker}")
        for worker in workers
    ]
    if len(workers) <= MOST_SINGLE_QUEUES:
        strips = [Strip(stays.name, [stays]) for stays in index]
    else:
        strips = [Strip(f"{QUEUE_NAMES[Queue.INDEX]} 0–{len(workers) - 1}", index)]
    results = queue_stays(trace, iterators, Queue.RESULT, workers, QUEUE_NAMES[Queue.RESULT])
    strips.append(Strip(results.name, [results]))
    data = queue_stays(trace, iterators, Queue.DATA, [-1], QUEUE_NAMES[Queue.DATA])
    if len(data.enter):
        strips.append(Strip(data.name, [data]))
    return [*strips, Strip(REORDER_BUFFER, [reorder_stays(trace, iterators)])]


def draw_strip(axes: Axes, scale: Scale, view: View, strip: Strip, followed: np.void | None) -> None:
    axes.set_gid(strip.label)
    if view.summed or len(strip.stays) > 1:
        draw_summed_queue(axes, scale, strip.stays, strip.label, view.edges)
    else:
        batch = -1 if followed is None else int(followed["epoch"]) << 32 | int(followed["task"])
        draw_queue(axes, scale, strip.stays[0], batch)
    deepest = max(int(stays.within(view.begin, view.end).depth()[1].max(initial=0)) for stays in strip.stays)
    frame_strip(axes, strip.label, max(deepest, 1))


def draw_queue(axes: Axes, scale: Scale, stays: Stays, followed: int = NO_BATCH) -> None:
    """The batches in a queue, stacked in their order with the next to leave at the bottom; the curve of its depth; and
    an outline around the followed batch."""
    boxes = stays.within(scale.begin, scale.end).boxes()
    begin, end, place, batch = boxes[(boxes[:, 0] < scale.end) & (boxes[:, 1] > scale.begin)].T
    begin, end = np.maximum(begin, scale.begin), np.minimum(end, scale.end)
    fills = [colours.of_batch(each) for each in batch.tolist()]
    drawn = bars(axes, scale, begin, end, place, place + 1, fills)
    drawn.set_gid(f"{stays.name} boxes")
    if place.max(initial=0) > 8:
        drawn.set_linewidth(0)  # such thin boxes would be all edge
    if place.max(initial=0) < 2:
        number(axes, scale, begin, end, batch, place + 0.45, size=6)
    if followed != NO_BATCH:
        one = batch == followed
        outline = bars(axes, scale, begin[one], end[one], place[one], place[one] + 1, ["none"])
        outline.set(edgecolor="black", linewidth=1.0 if place.max(initial=0) < 4 else 0.6, zorder=5)
        outline.set_gid(f"{stays.name} followed")
    times, depths = stays.depth_within(scale.begin, scale.end)
    (line,) = axes.step(scale(times), depths, where="post", color=colours.INK, linewidth=0.7, zorder=4)
    line.set_gid(f"{stays.name} depth")


def draw_summed_queue(axes: Axes, scale: Scale, stays: list[Stays], name: str, edges: np.ndarray) -> None:
    """In each bin the mean depth of one queue, or of several of a kind, and the range from lowest to highest."""
    curves = np.stack([binned(*each.depth(), edges) for each in stays])
    low, mean, high = curves[:, 0].min(axis=0), curves[:, 1].mean(axis=0), curves[:, 2].max(axis=0)
    x = scale(edges)
    band = axes.fill_between(
        x, np.append(low, low[-1]), np.append(high, high[-1]), step="post", color=colours.RANGE, linewidth=0
    )
    band.set_gid(f"{name} range")
    (line,) = axes.step(x, np.append(mean, mean[-1]), where="post", color=colours.MEAN, linewidth=1.0)
    line.set_gid(f"{name} mean")


def frame_strip(axes: Axes, label: str, highest: float) -> None:
    """The name and the scale of a strip under the lanes, from 0 to `highest`."""
    axes.set_ylim(0, highest * 1.15)
    axes.set_yticks([0, highest], ["0", f"{highest:,.0f}"])
    axes.tick_params(axis="y", labelsize=6.5, length=2, colors=colours.FAINT)
    axes.annotate(label, (0, 0.5), (-18, 0), "axes fraction", "offset points", ha="right", va="center", size=8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color("#cccccc")
