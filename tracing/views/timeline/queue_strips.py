"""The strips under the lanes: each queue and the reorder buffer, how deep it is and which batches are in it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes

from minidl.events import Queue
from tracing.trace.words import QUEUE_NAMES, REORDER_BUFFER
from tracing.views.queue_contents import Stays, binned, queue_stays, reorder_stays
from tracing.views.timeline import colours
from tracing.views.timeline.bars import Scale, bars, number
from tracing.views.timeline.spans import NO_BATCH
from tracing.views.timeline.window import View

MOST_SINGLE_QUEUES = 4  # the index_queues of more workers share one strip
LOW, ROW, HIGH = 0.38, 0.15, 0.76  # inches: of a strip, for each batch that its queue has room for, at most
HIGHEST_BOX = 0.3  # inches
ABOVE = 1.15  # a strip's height over that of its curve


@dataclass(frozen=True)
class Strip:
    """One strip under the lanes: a queue, or several of a kind."""

    label: str
    stays: list[Stays]
    room: int  # batches: what is in it at a time is chance, and a picture's size should not be

    def single(self, view: View) -> bool:
        """Whether each batch is drawn."""
        return not view.summed and len(self.stays) == 1

    def height(self, view: View) -> float:
        """In inches: high enough to read the numbers of eight batches, one above the other."""
        return min(HIGH, max(LOW, ROW * self.room)) if self.single(view) else LOW


def queues_of(view: View) -> list[Strip]:
    """The queues of these iterators, in the order in which a batch passes them. Without workers there are none."""
    trace, iterators, workers = view.trace, view.iterators, list(range(view.num_workers))
    if not workers:
        return []
    prefetch = max(trace.config(each.number).get("prefetch_factor") or 2 for each in iterators)
    room = prefetch * len(workers)
    index = [
        queue_stays(trace, iterators, Queue.INDEX, [worker], f"{QUEUE_NAMES[Queue.INDEX]} {worker}")
        for worker in workers
    ]
    if len(workers) <= MOST_SINGLE_QUEUES:
        strips = [Strip(stays.name, [stays], prefetch) for stays in index]
    else:
        strips = [Strip(f"{QUEUE_NAMES[Queue.INDEX]} 0–{len(workers) - 1}", index, prefetch)]
    results = queue_stays(trace, iterators, Queue.RESULT, workers, QUEUE_NAMES[Queue.RESULT])
    strips.append(Strip(results.name, [results], room))
    data = queue_stays(trace, iterators, Queue.DATA, [-1], QUEUE_NAMES[Queue.DATA])
    if len(data.enter):
        strips.append(Strip(data.name, [data], room))
    return [*strips, Strip(REORDER_BUFFER, [reorder_stays(trace, iterators)], room - 1)]


def draw_strip(axes: Axes, scale: Scale, view: View, strip: Strip, followed: np.void | None) -> None:
    axes.set_gid(strip.label)
    deepest = max(int(each.within(view.begin, view.end).depth()[1].max(initial=1)) for each in strip.stays)
    row = min(HIGHEST_BOX, strip.height(view) / deepest / ABOVE)
    if strip.single(view):
        batch = NO_BATCH if followed is None else int(followed["epoch"]) << 32 | int(followed["task"])
        draw_queue(axes, scale, strip.stays[0], batch, row)
    else:
        draw_summed_queue(axes, scale, strip.stays, strip.label, view.edges)
    frame_strip(axes, strip.label, deepest)
    axes.set_ylim(0, strip.height(view) / row)


def draw_queue(axes: Axes, scale: Scale, stays: Stays, followed: int, row: float) -> None:
    """The batches in a queue, stacked in their order with the next to leave at the bottom; the curve of its depth; and
    outlines around the followed batch and around messages without a batch. row: inches of each."""
    boxes = stays.within(scale.begin, scale.end).boxes()
    begin, end, place, batch = boxes[(boxes[:, 0] < scale.end) & (boxes[:, 1] > scale.begin)].T
    begin, end = np.maximum(begin, scale.begin), np.minimum(end, scale.end)
    fills = [colours.of_batch(each) for each in batch.tolist()]
    drawn = bars(axes, scale, begin, end, place, place + 1, fills)
    drawn.set_gid(f"{stays.name} boxes")
    if row < 0.06:
        drawn.set_linewidth(0)  # such thin boxes would be all edge
    number(axes, scale, begin, end, batch, place, place + 0.9, min(colours.NUMBERS - 0.5, 0.95 * 72 * row))
    for chosen, name, thick in (batch == followed, "followed", 1.0), (batch < NO_BATCH, "messages", 0.6):
        if followed != NO_BATCH or name == "messages":
            outline = bars(axes, scale, begin[chosen], end[chosen], place[chosen], place[chosen] + 1, ["none"])
            outline.set(edgecolor="black", linewidth=thick if row > 0.06 else 0.6, zorder=5, gid=f"{stays.name} {name}")
            outline.set_path_effects(colours.HALO if row > 0.1 else [])  # seen on dark batches, too
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
    axes.set_yticks([0, highest], ["0", top := f"{highest:,.0f}"])
    axes.tick_params(axis="y", labelsize=colours.NUMBERS - 0.5, length=2, colors=colours.FAINT)
    left = -max(18, 8 + 5 * len(top))  # points: beside the numbers of the scale
    axes.annotate(
        label, (0, 0.5), (left, 0), "axes fraction", "offset points", ha="right", va="center", size=colours.WORDS
    )
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#cccccc")
