"""The strips of slots: which batch is in which memory, and how long the caller keeps it. See minidl.transport.

    slots of worker 0    3    ▒███12████
                         2  ▒▒██10██████████
                         1      ▒██14██
                         0        ▒█16█

Light while the batch is on its way, from SLOT_FILLED to SLOT_LENT; then in its colour, until main finds that all of it
is gone. A trace in which no batch needed a slot has no such strips, nor does one of many workers or batches.
"""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from tracing.trace.event_index import NO_SLOT
from tracing.views.queue_contents import batch_of, closed_at
from tracing.views.timeline import colours
from tracing.views.timeline.bars import Scale, bars, number
from tracing.views.timeline.queue_strips import MOST_SINGLE_QUEUES, frame_strip
from tracing.views.timeline.window import View

ROW = 0.14  # inches
ON_ITS_WAY = 0.35  # opacity, until main has it


class SlotStrip:
    """One worker's slots: the batches that were put into them. (n,) each, times in ns."""

    def __init__(self, view: View, worker: int) -> None:
        tasks = view.trace.tasks
        filled = (tasks["loader"] == view.loader) & (tasks["worker"] == worker) & (tasks["slot_filled"] >= 0)
        rows = tasks[filled & (tasks["slot"] != NO_SLOT) & np.isin(tasks["epoch"], view.epochs)]
        # If no event says that a slot is free, it is shown until main no longer looks.
        closed = [closed_at(view.trace, each) for each in view.iterators]
        until = np.select([np.isin(rows["epoch"], each.epochs) for each in view.iterators], closed, 0)
        self.label = f"slots of worker {worker}"
        self.filled = rows["slot_filled"]
        self.free = np.where(rows["slot_free"] >= 0, rows["slot_free"], until)
        self.lent = np.where(rows["slot_lent"] >= 0, rows["slot_lent"], self.free)  # when main had it
        self.batch = batch_of(rows["epoch"], rows["task"])
        self.slots = rows["slot"]  # which slot each is in
        self.rows = 1 + int(self.slots.max(initial=0))
        self.height = max(0.34, ROW * self.rows)  # inches


def slot_strips(view: View) -> list[SlotStrip]:
    """None where batches are too many to be drawn one by one."""
    if view.summed or view.num_workers > MOST_SINGLE_QUEUES:
        return []
    each = [SlotStrip(view, worker) for worker in range(view.num_workers)]
    return [strip for strip in each if ((strip.free > view.begin) & (strip.filled < view.end)).any()]


def draw_slots(axes: Axes, scale: Scale, view: View, strip: SlotStrip) -> None:
    axes.set_gid(strip.label)
    for begin, end, words, alpha in (
        (strip.filled, strip.lent, "filled", ON_ITS_WAY),
        (strip.lent, strip.free, "lent", 1.0),
    ):
        seen = (end > view.begin) & (begin < view.end) & (end > begin)
        left, right = np.maximum(begin[seen], view.begin), np.minimum(end[seen], view.end)
        slot, batch = strip.slots[seen], strip.batch[seen]
        fills = [colours.of_batch(each) for each in batch.tolist()]
        drawn = bars(axes, scale, left, right, slot, slot + 1, fills)
        drawn.set(gid=f"{strip.label} {words}", alpha=alpha)
        if words == "lent":
            number(axes, scale, left, right, batch, slot, slot + 0.9, size=colours.NUMBERS - 0.5)
    frame_strip(axes, strip.label, 1)
    axes.set_ylim(0, strip.rows)
    axes.set_yticks(sorted({0.5, strip.rows - 0.5}), sorted({"0", str(strip.rows - 1)}, key=int))
