"""The timeline: what each thread did when, how deep the queues were, and one batch's path through all of it.

    figure = tracing.timeline(trace)          # a matplotlib Figure; no window, no global state
    figure.savefig("timeline.png")            # or .svg, .pdf

    strip of names       epoch 0 | worker 1 died | shutdown
    lanes                main (training step, in the loader), pin thread, worker 0, worker 1, ...
    queues               index_queue 0, 1, ..., worker_result_queue, data_queue, reorder buffer: depth and content
    slots                of each worker: which batch is where; if batches go through slots

A few batches are drawn one by one, each in its own colour wherever it is; many are summed up in bins of time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerTuple
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from minidl.events import Kind
from tracing.trace.event_index import Lane
from tracing.trace.trace import Trace
from tracing.trace.words import duration
from tracing.views.batch_colours import ON_PAPER
from tracing.views.main_time import main_in_words
from tracing.views.timeline import colours
from tracing.views.timeline.bars import Scale
from tracing.views.timeline.followed_batch import choose, draw_leg, in_words, legs
from tracing.views.timeline.lanes import Row, draw_lanes, lanes_of
from tracing.views.timeline.marks import NOTE, Mark, draw_notes, draw_regions, marks
from tracing.views.timeline.queue_strips import MOST_SINGLE_QUEUES, Strip, draw_strip, queues_of
from tracing.views.timeline.slot_strips import ON_ITS_WAY, draw_slots, slot_strips
from tracing.views.timeline.spans import NO_BATCH, Look, killed_at
from tracing.views.timeline.window import View

LEFT, RIGHT, TITLE, LINES, RULER, GAP, BOTTOM = 1.6, 0.2, 0.3, 0.3, 0.36, 0.07, 0.8  # inches
LANE, LOW_LANE = 0.3, 0.22  # heights
MARGIN = 0.12  # of the words, from the left
SEEN = 0.01  # inches: of a bar, to be worth a place in the legend


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
    that a note is about, or if they are few the most instructive one; False for none. loader: the number of a
    DataLoader; by default the one with the most batches. width: inches. notes: (event, words) each, pointed at through
    all lanes. Returns a Figure of 200 dots per inch; `savefig` writes png, svg or pdf.

    Raises ValueError when there is nothing to draw: no such loader, epoch or batch, or an empty window; IndexError for
    a note at an event that does not exist.
    """
    view = View(trace, start, end, batches, loader, epoch)
    noted = [Mark(int(trace.events["time"][event]), NOTE, Lane.FEEDER, -1, words, 0) for event, words in notes]
    followed = choose(view, follow, epoch, [event for event, _ in notes])
    seen = sorted([*marks(view), *noted], key=lambda mark: mark.time)
    rows, strips, slots = lanes_of(view), queues_of(view), slot_strips(view)
    heights = [strip.height(view) for strip in strips] + [strip.height for strip in slots]
    asked = batches if start is None and end is None else None
    title, words = in_words_all(view, asked, followed)
    figure, scale, (lanes, *under) = blank(view, width, len(rows), heights)
    way = [] if followed is None else legs(rows, followed)
    draw_lanes(lanes, scale, view, rows, seen)
    for leg in way:
        draw_leg(lanes, scale, leg)
    free = iter(under)
    for strip in strips:
        draw_strip(next(free), scale, view, strip, followed)
    for of_worker in slots:
        draw_slots(next(free), scale, view, of_worker)
    draw_regions([lanes, *under], scale, seen, view.end)
    draw_notes([lanes, *under], scale, noted)
    write(figure, title, words)
    draw_legend(figure, entries_of(view, scale, rows, strips, followed, seen, bool(slots)))
    return figure


def blank(view: View, width: float, rows: int, strips: list[float]) -> tuple[Figure, Scale, list[Axes]]:
    """An empty page: axes for the lanes, and under them one for each strip, of these heights (inches). All share the
    axis of time. Its size depends on what the loader is like, not on what happened."""
    lanes_height = rows * (LANE if rows <= 10 else LOW_LANE)
    top = TITLE + LINES + RULER
    height = top + lanes_height + sum(strips) + GAP * len(strips) + BOTTOM
    inside = width - LEFT - RIGHT
    unit, name = unit_of(view.end - view.begin)
    scale = Scale(view.trace.start, unit, view.begin, view.end, (view.end - view.begin) / unit / inside)
    figure = Figure(figsize=(width, height), dpi=200)
    heights = [lanes_height, *strips]
    tops = [top + sum(heights[:i]) + i * GAP for i in range(len(heights))]
    axes = []
    for top, own in zip(tops, heights, strict=True):
        axes.append(figure.add_axes((LEFT / width, 1 - (top + own) / height, inside / width, own / height)))
        axes[-1].set_xlim(float(scale(view.begin)), float(scale(view.end)))
        look = {"labelsize": colours.NUMBERS, "length": 2, "color": colours.FAINT}
        axes[-1].tick_params(axis="x", labelbottom=top == tops[-1], **look)
    bins = duration(int(view.edges[1] - view.edges[0]))
    share = f". Height in a lane: share of each {bins}" if view.summed else ""
    axes[-1].set_xlabel(f"time since the first event ({name}){share}", size=colours.WORDS)
    return figure, scale, axes


def unit_of(length: int) -> tuple[float, str]:
    """The unit of an axis of this length (ns): its ns, and its name."""
    return (1e3, "µs") if length < 2e6 else (1e6, "ms") if length < 2e9 else (1e9, "s")


# ---- words


def in_words_all(view: View, asked: tuple[int, int] | None, followed: np.void | None) -> tuple[str, list[str]]:
    """The title, and the lines below it. asked: the batches that the window was chosen for, if any; others may be
    yielded in it too."""
    yielded = view.tasks[(view.tasks["yielded"] >= view.begin) & (view.tasks["yielded"] <= view.end)]
    what = f"{len(yielded)} batch{'es' * (len(yielded) != 1)} yielded in"
    if asked is not None:
        last = min(asked[1] - 1, int(view.tasks["task"].max()))
        what = f"batch {last}," if last == asked[0] else f"batches {asked[0]} to {last},"
    workers = {0: "no workers", 1: "1 worker"}.get(view.num_workers, f"{view.num_workers} workers")
    shown, whole = view.end - view.begin, view.trace.duration
    of_whole = f" of {duration(whole)}" if shown < whole / 100 else ""  # a trace that is much longer
    which = f" {view.loader}" * (len({each.loader for each in view.trace.loaders}) > 1)
    title = f"DataLoader{which} with {workers}: {what} {duration(shown)}{of_whole}"
    killed = killed_at(view.trace, view.iterators, Lane.MAIN)
    words = [f"Main's time: {main_in_words(view.trace, view.iterators, view.begin, view.end, killed)}."]
    if view.left_out:
        words[0] += f" Not drawn: {view.left_out} iterator{'s' * (view.left_out > 1)} that ran at the same time."
    if followed is not None:
        task = int(followed["task"])
        of_epoch = f" of epoch {int(followed['epoch'])}" if len(view.epochs) > 1 else ""
        words.append(f"Batch {task}{of_epoch}: {in_words(followed)}")
    return title, words


def write(figure: Figure, title: str, words: list[str]) -> None:
    """The title, and two lines below it: smaller, if they are long."""
    left, height = MARGIN / figure.get_figwidth(), figure.get_figheight()
    figure.text(left, 1 - 0.24 / height, title, size=colours.TITLE, weight="bold")
    for number, line in enumerate(words):
        size = min(colours.WORDS, (figure.get_figwidth() - 2 * MARGIN) * 72 / (0.56 * len(line)))
        baseline = 1 - (TITLE + LINES * (number + 0.8) / 2) / height
        figure.text(left, baseline, line, size=size, color="#444444")


def entries_of(
    view: View, scale: Scale, rows: list[Row], strips: list[Strip], followed: np.void | None, seen: list[Mark],
    slots: bool,
) -> list[tuple[object, str]]:  # fmt: skip
    """The legend: only what is in the picture, in plain words."""
    shown = [row.spans.within(view.begin, view.end) for row in rows]
    least = 0.0 if view.summed else SEEN
    looks = {look for each in shown for look in each.look[seen_for(each.begin, each.end, scale) >= least].tolist()}
    entries = entries_of_looks(looks, view.summed)
    if view.num_workers > (0 if view.summed else MOST_SINGLE_QUEUES):
        mean = Line2D([], [], color=colours.MEAN, linewidth=1.0)
        entries.append(((Patch(color=colours.RANGE), mean), "queue: range and mean"))
    single = [strip.stays[0].within(view.begin, view.end) for strip in strips if strip.single(view)]
    if any((seen_for(each.enter, each.leave, scale)[each.batch < NO_BATCH] >= SEEN).any() for each in single):
        entries.append((Patch(facecolor=colours.MESSAGE, edgecolor="black", linewidth=0.6), "message without a batch"))
    if slots:
        entries.append((Patch(color=ON_PAPER[0], alpha=ON_ITS_WAY), "in a slot, on its way"))
    if followed is not None:
        entries.append((Line2D([], [], color="black", marker=">", markersize=4), f"batch {followed['task']}'s path"))
    if any(mark.kind == Kind.WORKER_DIED for mark in seen):
        entries.append((Line2D([], [], marker="X", color=colours.ALARM, linestyle=""), "death"))
    return entries


def entries_of_looks(looks: set[Look], summed: bool) -> list[tuple[object, str]]:
    """What the lanes show. summed: are batches too many to be drawn one by one?"""
    entries: list[tuple[object, str]] = []
    if summed:
        words = {Look.TRAINING: "training step", Look.FETCH: "fetch", Look.COLLATE: "collate", Look.PIN: "pin"}
        entries += [(Patch(color=colours.SUMMED[look]), word) for look, word in words.items() if look in looks]
    else:
        colours_in_turn = tuple(Patch(color=colour) for colour in ON_PAPER)
        entries.append((colours_in_turn, f"a batch: {len(ON_PAPER)} colours in turn"))
        if Look.COLLATE in looks:
            entries.append((Patch(facecolor=ON_PAPER[0], hatch="//////", edgecolor="white", linewidth=0), "collate"))
    flat = {Look.BUSY: "other work", Look.WAITING: "waiting", Look.SETUP: "starting, shutting down"}
    return entries + [(Patch(color=colours.FLAT[look]), word) for look, word in flat.items() if look in looks]


def seen_for(begin: np.ndarray, end: np.ndarray, scale: Scale) -> np.ndarray:
    """How much of each bar is seen, in inches."""
    return scale.inches(np.minimum(end, scale.end) - np.maximum(begin, scale.begin))


def draw_legend(figure: Figure, entries: list[tuple[object, str]]) -> None:
    """In one row, or in two if they do not fit."""
    handles, labels = zip(*entries, strict=True)
    for rows in (1, 2):
        legend = figure.legend(
            handles, labels, loc="lower left", bbox_to_anchor=(0.0, 0.0), ncols=-(-len(labels) // rows), frameon=False,
            fontsize=colours.WORDS, handler_map={tuple: HandlerTuple(ndivide=None, pad=0)}, handlelength=1.8,
            columnspacing=1.4, borderaxespad=0.2,
        )  # fmt: skip
        if rows == 2 or legend.get_window_extent().x1 <= figure.bbox.x1:
            return
        legend.remove()
