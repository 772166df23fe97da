"""The timeline: who did what when, how deep the queues were, and the way of one batch through all of it.

    figure = tracing.timeline(trace)          # a matplotlib Figure; no window, no global state
    figure.savefig("timeline.png")            # or .svg, .pdf

    strip of names       epoch 0 | worker 1 died | shutdown
    lanes                main (training step, in the loader), pin thread, worker 0, worker 1, ...
    queues               index_queue 0, 1, ..., worker_result_queue, data_queue, reorder buffer: depth and content
    memory               of main and each worker, where it was recorded

Few batches are drawn one by one, each in its own colour wherever it is; many are summed up in bins of time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerTuple
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from minidl.events import Kind, Queue
from tracing.trace.event_index import Lane
from tracing.trace.words import QUEUE_NAMES, duration
from tracing.views.timeline import artists
from tracing.views.timeline.artists import Scale
from tracing.views.timeline.memory import draw_memory, memory_strips
from tracing.views.timeline.queues import Stays, queue_stays, reorder_stays
from tracing.views.timeline.spans import Look, Spans, spans
from tracing.views.timeline.story import Mark, main_in_words, marks, note, stages, way
from tracing.views.timeline.window import View, choose, select

if TYPE_CHECKING:
    from tracing.trace.trace import Trace

MOST_SINGLE_QUEUES = 4  # of more workers the index_queues share one strip
LEFT, RIGHT, TOP, RULER, GAP, STRIP, BOTTOM = 1.55, 0.2, 0.55, 0.30, 0.07, 0.34, 0.72  # inches
LOADING = 1  # the row of what main does in the loader; above it, in row 0, are its training steps
LOADER_LOOKS = [Look.FETCH, Look.COLLATE, Look.PIN, Look.BUSY, Look.SETUP]


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
    the one with most batches. width: inches. notes: (event, words) each, pointed at through all lanes. Returns a Figure
    of 200 dots an inch; `savefig` writes png, svg or pdf.

    Raises ValueError when there is nothing to draw: no such loader, epoch or batch, or an empty window; IndexError for
    a note at an event that there is not.
    """
    view = select(trace, start, end, batches, loader, epoch)
    noted = [note(trace, event, words) for event, words in notes]
    followed = choose(view, follow, epoch, [event for event, _ in notes])
    seen = sorted([*marks(trace, view.loader, view.epochs, view.begin, view.end), *noted], key=lambda mark: mark.time)
    rows, strips, memory = lanes_of(view), queues_of(view), memory_strips(view)
    figure, scale, (lanes, *under) = blank(view, width, len(rows), [STRIP] * len(strips) + [2 * STRIP] * len(memory))
    draw_lanes(lanes, scale, view, rows, seen)
    if followed is not None and not view.summed:
        draw_way(lanes, scale, rows, followed)
    for axes, strip in zip(under[: len(strips)], strips, strict=True):
        draw_strip(axes, scale, view, strip, followed)
    for axes, lines in zip(under[len(strips) :], memory, strict=True):
        draw_memory(axes, scale, view, lines)
    draw_regions([lanes, *under], scale, seen, view.end)
    draw_notes([lanes, *under], scale, noted)
    asked = batches if start is None and end is None else None
    write_title(figure, view, rows[0].spans, asked, followed)
    draw_legend(figure, view, rows, followed, seen)
    return figure


def blank(view: View, width: float, rows: int, strips: list[float]) -> tuple[Figure, Scale, list[Axes]]:
    """An empty page: axes for the lanes, and under them one for each strip, which is so high (inches), all with the
    same axis of time."""
    lanes_height = rows * (0.28 if rows <= 10 else 0.2)
    height = TOP + RULER + lanes_height + sum(strips) + GAP * len(strips) + BOTTOM
    inside = width - LEFT - RIGHT
    unit, name = (1e6, "ms") if view.end - view.begin < 2e9 else (1e9, "s")
    scale = Scale(view.trace.start, unit, view.begin, view.end, (view.end - view.begin) / unit / inside)
    figure = Figure(figsize=(width, height), dpi=200)
    talls = [lanes_height, *strips]
    tops = [TOP + RULER + sum(talls[:i]) + i * GAP for i in range(len(talls))]
    axes = []
    for top, tall in zip(tops, talls, strict=True):
        axes.append(figure.add_axes((LEFT / width, 1 - (top + tall) / height, inside / width, tall / height)))
        axes[-1].set_xlim(float(scale(view.begin)), float(scale(view.end)))
        axes[-1].tick_params(axis="x", labelbottom=top == tops[-1], labelsize=7.5, length=2, color=artists.FAINT)
    bins = duration(int(view.edges[1] - view.edges[0]))
    heights = f". Height in a lane: share of {bins}" if view.summed else ""
    axes[-1].set_xlabel(f"time since the first event ({name}){heights}", size=8)
    return figure, scale, axes


def draw_notes(every: list[Axes], scale: Scale, noted: list[Mark]) -> None:
    """A line through everything that is drawn; its words stand above the lanes, with those of the marks."""
    for axes in every:
        for mark in noted:
            line = axes.axvline(float(scale(mark.time)), color=artists.ALARM, linestyle=(0, (4, 2)), zorder=9)
            line.set(linewidth=1.0, gid="note")


# ---- lanes


@dataclass(frozen=True)
class Row:
    """A lane, or one of main's two."""

    label: str
    lane: Lane
    worker: int
    spans: Spans
    looks: list[Look]  # those that are drawn in it


def lanes_of(view: View) -> list[Row]:
    def row(label: str, lane: Lane, worker: int, looks: list[Look]) -> Row:
        return Row(label, lane, worker, spans(view.trace, view.iterators, lane, worker, view.end), looks)

    rows = [
        row("main   training step", Lane.MAIN, -1, [Look.TRAINING]),
        row("in the loader", Lane.MAIN, -1, [*LOADER_LOOKS, Look.WAITING]),
    ]
    if any(len(view.trace.index.lane(each.number, Lane.PIN)) for each in view.iterators):
        rows.append(row("pin thread", Lane.PIN, -1, [*LOADER_LOOKS, Look.WAITING]))
    for worker in range(view.num_workers):
        rows.append(row(f"worker {worker}", Lane.WORKER, worker, [*LOADER_LOOKS, Look.WAITING]))
    return rows


def draw_lanes(axes: Axes, scale: Scale, view: View, rows: list[Row], seen: list[Mark]) -> None:
    """All lanes on one pair of axes: row i is centred at height i, counted from the top."""
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_yticks(range(len(rows)), [row.label for row in rows], size=8)
    axes.tick_params(axis="y", length=0)
    axes.set_gid("lanes")
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color("#cccccc")
    for i, row in enumerate(rows):
        if view.summed:
            artists.draw_summed_lane(axes, scale, row.spans, row.looks, view.edges, i, 0.8)
        else:
            artists.draw_lane(axes, scale, row.spans, set(row.looks), i, 0.8)
    for mark in seen:
        if mark.kind != Kind.EPOCH_BEGIN and mark.kind != Kind.SHUTDOWN_BEGIN:
            artists.draw_symbol(axes, scale, mark, row_of(rows, mark.lane, mark.worker), 0.8)
    artists.draw_names(axes, scale, seen)


def row_of(rows: list[Row], lane: Lane, worker: int = -1) -> int:
    """The height of a lane: of main's two rows the one in the loader."""
    return max((i for i, row in enumerate(rows) if row.lane is lane and row.worker == worker), default=LOADING)


def draw_way(axes: Axes, scale: Scale, rows: list[Row], task: np.void) -> None:
    """Arrows from lane to lane, each from when the batch left one to when it reached the next."""
    hops = way(task)
    heights = [row_of(rows, lane, int(task["worker"]) if lane is Lane.WORKER else -1) for _, lane in hops]
    for i in range(len(hops) - 1):
        if heights[i] != heights[i + 1]:
            artists.draw_arrow(axes, scale, (hops[i][0], heights[i]), (hops[i + 1][0], heights[i + 1]), held=False)
    if task["stored"] >= 0 and task["yielded"] >= 0:
        artists.draw_arrow(axes, scale, (int(task["stored"]), LOADING), (int(task["yielded"]), LOADING), held=True)
    if task["yielded"] >= 0:
        artists.draw_arrow(axes, scale, (int(task["yielded"]), LOADING), (int(task["yielded"]), 0.4), held=False)


def draw_regions(axes: list[Axes], scale: Scale, seen: list[Mark], end: int) -> None:
    """Through lanes and queues: a line where an epoch begins, a shade while the loader shuts down."""
    for mark in seen:
        if mark.kind == Kind.EPOCH_BEGIN:
            for each in axes:
                each.axvline(float(scale(mark.time)), color=artists.FAINT, linewidth=0.8, linestyle=":", zorder=1)
        elif mark.kind == Kind.SHUTDOWN_BEGIN:
            over = [other.time for other in seen if other.kind == Kind.SHUTDOWN_END and other.time >= mark.time]
            for each in axes:
                each.axvspan(float(scale(mark.time)), float(scale(min([*over, end]))), color="#f4ece4", zorder=0)


# ---- queues


@dataclass(frozen=True)
class Strip:
    """One strip under the lanes: a queue, or several alike."""

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
    return [*strips, Strip("reorder buffer", [reorder_stays(trace, iterators)])]


def draw_strip(axes: Axes, scale: Scale, view: View, strip: Strip, followed: np.void | None) -> None:
    axes.set_gid(strip.label)
    if view.summed or len(strip.stays) > 1:
        artists.draw_summed_queue(axes, scale, strip.stays, strip.label, view.edges)
    else:
        batch = -1 if followed is None else int(followed["epoch"]) << 32 | int(followed["task"])
        artists.draw_queue(axes, scale, strip.stays[0], batch)
    deepest = max(int(stays.within(view.begin, view.end).depth()[1].max(initial=0)) for stays in strip.stays)
    artists.frame_strip(axes, strip.label, max(deepest, 1))


# ---- words


def in_words(task: np.void) -> str:
    """The stages of a batch's way that took 2 % of it or more."""
    found = stages(task)
    whole = sum(ns for _, ns in found)
    return " → ".join(f"{duration(ns)} {what}" for what, ns in found if ns >= whole / 50)


def write_title(
    figure: Figure, view: View, main: Spans, asked: tuple[int, int] | None, followed: np.void | None
) -> None:
    """asked: the batches that the window was chosen for, if it was; more than these may be yielded in it."""
    yielded = view.tasks[(view.tasks["yielded"] >= view.begin) & (view.tasks["yielded"] <= view.end)]
    what = f"{len(yielded)} batch{'es' * (len(yielded) != 1)} yielded in"
    if asked is not None:
        last = min(asked[1] - 1, int(view.tasks["task"].max()))
        what = f"batch {last}," if last == asked[0] else f"batches {asked[0]} to {last},"
    workers = {0: "no workers", 1: "1 worker"}.get(view.num_workers, f"{view.num_workers} workers")
    title = f"DataLoader with {workers}: {what} {duration(view.end - view.begin)}"
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


def draw_legend(figure: Figure, view: View, rows: list[Row], followed: np.void | None, seen: list[Mark]) -> None:
    """Only what is in the picture, in plain words."""
    looks = {look for row in rows for look in row.spans.within(view.begin, view.end).look.tolist()}
    entries: list[tuple[object, str]] = []
    if view.summed:
        words = {Look.TRAINING: "training step", Look.FETCH: "fetch", Look.COLLATE: "collate", Look.PIN: "pin"}
        entries += [(Patch(color=artists.SUMMED[look]), word) for look, word in words.items() if look in looks]
    else:
        swatches = tuple(Patch(color=colour) for colour in artists.BATCH_COLOURS[:3])
        entries.append((swatches, "work on a batch, in its colour"))
        if Look.COLLATE in looks:
            entries.append(
                (Patch(facecolor=artists.BATCH_COLOURS[0], hatch="//////", edgecolor="white", linewidth=0), "collate")
            )
    flat = {Look.BUSY: "other work", Look.WAITING: "waiting", Look.SETUP: "start-up, shutdown"}
    entries += [(Patch(color=artists.FLAT[look]), word) for look, word in flat.items() if look in looks]
    if view.num_workers > (0 if view.summed else MOST_SINGLE_QUEUES):
        mean = Line2D([], [], color=artists.MEAN, linewidth=1.0)
        entries.append(((Patch(color=artists.RANGE), mean), "queue: range and mean"))
    if followed is not None and not view.summed:
        entries.append((Line2D([], [], color="black", marker=">", markersize=4), f"way of batch {followed['task']}"))
    if any(mark.kind == Kind.WORKER_DIED for mark in seen):
        entries.append((Line2D([], [], marker="X", color=artists.ALARM, linestyle=""), "death"))
    handles, labels = zip(*entries, strict=True)
    figure.legend(
        handles, labels, loc="lower left", bbox_to_anchor=(0.0, 0.0), ncols=len(labels), fontsize=7, frameon=False,
        handler_map={tuple: HandlerTuple(ndivide=None, pad=0)}, handlelength=1.6, columnspacing=1.4,
    )  # fmt: skip
