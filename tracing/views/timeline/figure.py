"""The timeline: who did what when, how deep the queues were, and the way of one batch through all of it.

    figure = tracing.timeline(trace)          # a matplotlib Figure; no window, no global state
    figure.savefig("timeline.png")            # or .svg, .pdf

    strip of names       epoch 0 | worker 1 died | shutdown
    lanes                main (training step, in the loader), pin thread, worker 0, worker 1, ...
    queues               index_queue 0, 1, ..., worker_result_queue, data_queue, reorder buffer: depth and content
    slots                of each worker: whose batch lies where; where batches go through slots
    memory               of main and each worker, where it was recorded

A few batches are drawn one by one, each in its own colour wherever it is; many are summed up in bins of time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerTuple
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from minidl.events import Kind
from tracing.trace.words import duration
from tracing.views.batch_colours import ON_PAPER
from tracing.views.timeline import colours
from tracing.views.timeline.bars import Scale
from tracing.views.timeline.followed_batch import choose, draw_way, in_words
from tracing.views.timeline.lanes import Row, draw_lanes, lanes_of
from tracing.views.timeline.main_time import main_in_words
from tracing.views.timeline.marks import Mark, draw_notes, draw_regions, marks, note
from tracing.views.timeline.memory_strips import draw_memory, memory_strips
from tracing.views.timeline.queue_strips import MOST_SINGLE_QUEUES, draw_strip, queues_of
from tracing.views.timeline.slot_strips import draw_slots, slot_strips
from tracing.views.timeline.spans import Look, Spans
from tracing.views.timeline.window import View, select

if TYPE_CHECKING:
    from tracing.trace.trace import Trace

LEFT, RIGHT, TOP, RULER, GAP, STRIP, BOTTOM = 1.55, 0.2, 0.55, 0.30, 0.07, 0.34, 0.72  # inches
PART = 0.01  # of a trace: the title of a picture that shows less says so


def timeline(
    trace: Trace,
    *,
    start: float | None = None,
    end: float | None = None,
    batches: tuple[int, int] | None = None,
    follow: int | bool | None = None,
    loader: int | None = None,
    epoch: int | None = None,
    width: float = 9.0,
    notes: Sequence[tuple[int, str]] = (),
) -> Figure:
    """Draw a trace, or a part of it.

    start, end: seconds after the trace's first event. batches: (10, 30) is what happened while batches 10 to 29 were
    sent, made and trained on; of `epoch`, by default the first. follow: the batch whose way is drawn; by default one
    that a note is about, or the most instructive one; False for none. loader: the number of a DataLoader; by default
    the one with the most batches. width: inches. notes: (event, words) each, pointed at through all lanes. Returns a
    Figure of 200 dots per inch; `savefig` writes png, svg or pdf.

    Raises ValueError when there is nothing to draw: no such loader, epoch or batch, or an empty window; IndexError for
    a note at an event that does not exist.
    """
    view = select(trace, start, end, batches, loader, epoch)
    noted = [note(trace, event, words) for event, words in notes]
    followed = choose(view, follow, epoch, [event for event, _ in notes])
    seen = sorted([*marks(trace, view.loader, view.epochs, view.begin, view.end), *noted], key=lambda mark: mark.time)
    rows, strips, slots, memory = lanes_of(view), queues_of(view), slot_strips(view), memory_strips(view)
    heights = [STRIP] * len(strips) + [strip.height for strip in slots] + [2 * STRIP] * len(memory)
    figure, scale, (lanes, *under) = blank(view, width, len(rows), heights)
    draw_lanes(lanes, scale, view, rows, seen)
    drawn = followed if follow is not None or not view.summed else None  # in a sum only a batch that was asked for
    if drawn is not None:
        draw_way(lanes, scale, rows, drawn)
    for axes, strip in zip(under[: len(strips)], strips, strict=True):
        draw_strip(axes, scale, view, strip, followed)
    for axes, of_worker in zip(under[len(strips) :], slots, strict=False):
        draw_slots(axes, scale, view, of_worker)
    for axes, lines in zip(under[len(strips) + len(slots) :], memory, strict=True):
        draw_memory(axes, scale, view, lines)
    draw_regions([lanes, *under], scale, seen, view.end)
    draw_notes([lanes, *under], scale, noted)
    asked = batches if start is None and end is None else None
    write_title(figure, view, rows[0].spans, asked, followed)
    draw_legend(figure, view, rows, drawn, seen)
    return figure


def blank(view: View, width: float, rows: int, strips: list[float]) -> tuple[Figure, Scale, list[Axes]]:
    """An empty page: axes for the lanes, and under them one for each strip, of these heights (inches). All share the
    axis of time."""
    lanes_height = rows * (0.28 if rows <= 10 else 0.2)
    height = TOP + RULER + lanes_height + sum(strips) + GAP * len(strips) + BOTTOM
    inside = width - LEFT - RIGHT
    unit, name = (1e6, "ms") if view.end - view.begin < 2e9 else (1e9, "s")
    scale = Scale(view.trace.start, unit, view.begin, view.end, (view.end - view.begin) / unit / inside)
    figure = Figure(figsize=(width, height), dpi=200)
    heights = [lanes_height, *strips]
    tops = [TOP + RULER + sum(heights[:i]) + i * GAP for i in range(len(heights))]
    axes = []
    for top, own in zip(tops, heights, strict=True):
        axes.append(figure.add_axes((LEFT / width, 1 - (top + own) / height, inside / width, own / height)))
        axes[-1].set_xlim(float(scale(view.begin)), float(scale(view.end)))
        axes[-1].tick_params(axis="x", labelbottom=top == tops[-1], labelsize=7.5, length=2, color=colours.FAINT)
    bins = duration(int(view.edges[1] - view.edges[0]))
    share = f". Height in a lane: share of {bins}" if view.summed else ""
    axes[-1].set_xlabel(f"time since the first event ({name}){share}", size=8)
    return figure, scale, axes


# ---- words


def write_title(
    figure: Figure, view: View, main: Spans, asked: tuple[int, int] | None, followed: np.void | None
) -> None:
    """asked: the batches that the window was chosen for, if any; others may be yielded in it too."""
    yielded = view.tasks[(view.tasks["yielded"] >= view.begin) & (view.tasks["yielded"] <= view.end)]
    what = f"{len(yielded)} batch{'es' * (len(yielded) != 1)} yielded in"
    if asked is not None:
        last = min(asked[1] - 1, int(view.tasks["task"].max()))
        what = f"batch {last}," if last == asked[0] else f"batches {asked[0]} to {last},"
    workers = {0: "no workers", 1: "1 worker"}.get(view.num_workers, f"{view.num_workers} workers")
    title = f"DataLoader with {workers}: {what} {_window(view)}"
    figure.text(0.12 / figure.get_figwidth(), 1 - 0.22 / figure.get_figheight(), title, size=10, weight="bold")
    words = f"Main's time: {main_in_words(main, view.begin, view.end)}."
    if view.left_out:
        words += f" Not drawn: {view.left_out} iterators that ran at the same time."
    if followed is not None:
        task = int(followed["task"])
        closer = f" (drawn with batches=({max(0, task - 5)}, {task + 5}))" if view.summed else ""
        of_epoch = f" of epoch {int(followed['epoch'])}" if len(view.epochs) > 1 else ""
        words += f"\nBatch {task}{of_epoch}{closer}: {in_words(followed)}"
    figure.text(
        0.12 / figure.get_figwidth(), 1 - 0.28 / figure.get_figheight(), words, size=7.5, va="top", color="#444444"
    )


def _window(view: View) -> str:
    """How long it is; of a trace that is much longer, how long that is, too."""
    shown, whole = view.end - view.begin, view.trace.duration
    if shown > PART * whole:
        return duration(shown)
    first = "the first " if view.begin <= view.trace.start else ""
    return f"{first}{duration(shown)} of {duration(whole)}"


def draw_legend(figure: Figure, view: View, rows: list[Row], followed: np.void | None, seen: list[Mark]) -> None:
    """Only what is in the picture, in plain words."""
    looks = {look for row in rows for look in row.spans.within(view.begin, view.end).look.tolist()}
    entries: list[tuple[object, str]] = []
    if view.summed:
        words = {Look.TRAINING: "training step", Look.FETCH: "fetch", Look.COLLATE: "collate", Look.PIN: "pin"}
        entries += [(Patch(color=colours.SUMMED[look]), word) for look, word in words.items() if look in looks]
    else:
        swatches = tuple(Patch(color=colour) for colour in ON_PAPER[:3])
        entries.append((swatches, "work on a batch, in its colour"))
        if Look.COLLATE in looks:
            entries.append((Patch(facecolor=ON_PAPER[0], hatch="//////", edgecolor="white", linewidth=0), "collate"))
    flat = {Look.BUSY: "other work", Look.WAITING: "waiting", Look.SETUP: "start-up, shutdown"}
    entries += [(Patch(color=colours.FLAT[look]), word) for look, word in flat.items() if look in looks]
    if view.num_workers > (0 if view.summed else MOST_SINGLE_QUEUES):
        mean = Line2D([], [], color=colours.MEAN, linewidth=1.0)
        entries.append(((Patch(color=colours.RANGE), mean), "queue: range and mean"))
    if followed is not None:
        entries.append((Line2D([], [], color="black", marker=">", markersize=4), f"way of batch {followed['task']}"))
    if any(mark.kind == Kind.WORKER_DIED for mark in seen):
        entries.append((Line2D([], [], marker="X", color=colours.ALARM, linestyle=""), "death"))
    handles, labels = zip(*entries, strict=True)
    figure.legend(
        handles, labels, loc="lower left", bbox_to_anchor=(0.0, 0.0), ncols=len(labels), fontsize=7, frameon=False,
        handler_map={tuple: HandlerTuple(ndivide=None, pad=0)}, handlelength=1.6, columnspacing=1.4,
    )  # fmt: skip
