"""The strips of slots: whose batch lies in which memory, and how long the caller keeps it. See minidl.transport.

    slots of worker 0    3    ▒███12████
                         2  ▒▒██10██████████
                         1      ▒██14██
                         0        ▒█16█

Light while the batch is on its way, from SLOT_FILLED to SLOT_LENT; then in its colour, until main finds that all of it
is gone. A trace in which no batch needed a slot has no such strips.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes

from tracing.trace.event_index import NO_SLOT, Iterator
from tracing.views.queue_moves import closing
from tracing.views.timeline import colours
from tracing.views.timeline.bars import Scale, bars, number
from tracing.views.timeline.queue_contents import Stays
from tracing.views.timeline.queue_strips import MOST_SINGLE_QUEUES, draw_summed_queue, frame_strip
from tracing.views.timeline.spans import batch_of
from tracing.views.timeline.window import View

ROW = 0.14  # inches
ON_ITS_WAY = 0.35  # opacity, until main has it


@dataclass(frozen=True)
class SlotStrip:
    """One worker's slots, or those of many summed up."""

    label: str
    stays: list[Stays]  # for each worker: the batches that were laid into its slots
    slots: np.ndarray  # (n,) of one worker: which slot each lies in
    lent: np.ndarray  # (n,) ns: when main had it

    @property
    def height(self) -> float:
        """In inches."""
        return max(0.34, ROW * (1 + int(self.slots.max(initial=0))))


def slot_strips(view: View) -> list[SlotStrip]:
    each = [_of_worker(view, worker) for worker in range(view.num_workers)]
    seen = [strip for strip in each if len(strip.stays[0].within(view.begin, view.end).enter)]
    if not seen:
        return []
    if len(each) <= MOST_SINGLE_QUEUES and not view.summed:
        return seen
    none = np.empty(0, np.int64)
    return [SlotStrip("slots in use", [strip.stays[0] for strip in each], none, none)]


def _of_worker(view: View, worker: int) -> SlotStrip:
    tasks = view.trace.tasks
    filled = (tasks["loader"] == view.loader) & (tasks["worker"] == worker) & (tasks["slot_filled"] >= 0)
    rows = tasks[filled & (tasks["slot"] != NO_SLOT) & np.isin(tasks["epoch"], view.epochs)]
    batch = batch_of(rows["epoch"], rows["task"])
    until = np.select([np.isin(rows["epoch"], each.epochs) for each in view.iterators], _ends(view), 0)
    free = np.where(rows["slot_free"] >= 0, rows["slot_free"], until)
    lent = np.where(rows["slot_lent"] >= 0, rows["slot_lent"], free)
    name = f"slots of worker {worker}"
    return SlotStrip(name, [Stays(name, rows["slot_filled"], free, batch)], rows["slot"], lent)


def _ends(view: View) -> list[np.ndarray]:
    """For each iterator, until when its slots are shown if nothing tells that they are free: main looks no longer."""

    def end(iterator: Iterator) -> int:
        closed = closing(view.trace, iterator)
        return int(view.trace.events["time"][closed]) if closed >= 0 else view.end

    return [np.array(end(each)) for each in view.iterators]


def draw_slots(axes: Axes, scale: Scale, view: View, strip: SlotStrip) -> None:
    axes.set_gid(strip.label)
    if len(strip.stays) > 1 or view.summed:
        draw_summed_queue(axes, scale, strip.stays, strip.label, view.edges)
        highest = max(int(stays.within(view.begin, view.end).depth()[1].max(initial=1)) for stays in strip.stays)
        frame_strip(axes, strip.label, highest)
        return
    [stays] = strip.stays
    for begin, end, words, alpha in (
        (stays.enter, strip.lent, "filled", ON_ITS_WAY),
        (strip.lent, stays.leave, "lent", 1.0),
    ):
        seen = (end > view.begin) & (begin < view.end) & (end > begin)
        left, right = np.maximum(begin[seen], view.begin), np.minimum(end[seen], view.end)
        slot, batch = strip.slots[seen], stays.batch[seen]
        fills = [colours.of_batch(each) for each in batch.tolist()]
        drawn = bars(axes, scale, left, right, slot, slot + 1, fills)
        drawn.set(gid=f"{strip.label} {words}", alpha=alpha)
        if words == "lent":
            number(axes, scale, left, right, batch, slot, slot + 0.9, size=colours.NUMBERS - 0.5)
    frame_strip(axes, strip.label, 1)
    rows = 1 + int(strip.slots.max(initial=0))
    axes.set_ylim(0, rows)
    axes.set_yticks([0.5, rows - 0.5] if rows > 1 else [0.5], ["0", str(rows - 1)] if rows > 1 else ["0"])
