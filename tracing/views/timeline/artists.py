"""Draws the parts of a timeline on matplotlib axes; what they show is computed in spans, queues and story.

Every artist that shows data has a gid ("worker 0 fetch", "reorder buffer depth"), so that tests and SVG find it.
Times come in ns and are drawn in the axis's unit, counted from the trace's first event: see Scale.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import matplotlib.patheffects as effects
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgb
from matplotlib.lines import Line2D

from minidl.events import Kind
from tracing.views.timeline.queues import Stays, binned
from tracing.views.timeline.spans import NO_BATCH, Look, Spans
from tracing.views.timeline.story import NOTE, Mark

# Seven colours of Paul Tol's "muted" scheme, which the colour-blind tell apart, each of another lightness. Batches
# that follow one another, and every second batch (two workers), differ in lightness by two steps or more: in grey too.
BATCH_COLOURS = ("#332288", "#117733", "#44aa99", "#ddcc77", "#882255", "#cc6677", "#88ccee")
FLAT = {  # looks that do not take a batch's colour
    Look.WAITING: "#e8e8e8",
    Look.BUSY: "#8a8a8a",
    Look.SETUP: "#d8c3a5",
}
SUMMED = FLAT | {  # where single batches are too narrow to be drawn
    Look.FETCH: "#332288",
    Look.COLLATE: "#88ccee",  # in grey it differs from all that it may be stacked on
    Look.PIN: "#332288",
    Look.TRAINING: "#cc6677",
}
INK, FAINT, ALARM = "#222222", "#767676", "#c02020"
RANGE, MEAN = "#cfd8e8", "#332288"  # of a queue's depth, summed up
HALO: list[effects.AbstractPathEffect] = [effects.withStroke(linewidth=2.2, foreground="white")]


@dataclass(frozen=True)
class Scale:
    """From ns to the axis."""

    zero: int  # ns: the trace's first event
    unit: float  # ns in a unit of the axis: 1e6 for ms
    begin: int  # ns: what is shown
    end: int
    inch: float  # units of the axis to an inch of paper

    def __call__(self, time: np.ndarray | int) -> np.ndarray:
        return (np.asarray(time, float) - self.zero) / self.unit

    def inches(self, duration: np.ndarray | int) -> np.ndarray:
        return np.asarray(duration, float) / self.unit / self.inch


def colour(batch: int) -> str:
    """The colour of a batch, the same wherever it is."""
    return BATCH_COLOURS[(batch & 0xFFFFFFFF) % len(BATCH_COLOURS)] if batch >= 0 else FLAT[Look.BUSY]


def ink_on(background: str) -> str:
    """Black or white, whichever can be read on it."""
    red, green, blue = to_rgb(background)
    return "white" if 0.299 * red + 0.587 * green + 0.114 * blue < 0.55 else "black"


def bars(
    axes: Axes, scale: Scale, begin: np.ndarray, end: np.ndarray, low: np.ndarray, high: np.ndarray, colours: list[str]
) -> PolyCollection:
    """Rectangles as one collection: (n,) each. They part by a hair of white when they are wide enough for it."""
    left, right = scale(begin), scale(end)
    corners = np.stack([left, low, left, high, right, high, right, low], axis=-1).reshape(-1, 4, 2)
    widths = np.where(scale.inches(np.asarray(end) - begin) > 0.03, 0.5, 0.0)
    drawn = PolyCollection(list(corners), facecolors=colours, edgecolors="white", linewidths=widths)
    axes.add_collection(drawn, autolim=False)
    return drawn


# ---- lanes


def draw_lane(axes: Axes, scale: Scale, spans: Spans, looks: set[Look], middle: float, height: float) -> None:
    """A lane batch by batch: those of its spans that have one of these looks."""
    shown = spans.within(scale.begin, scale.end)
    for look in sorted(looks):
        # Before it asks for its first batch the training loop has none, so that is no training step.
        of_look = (shown.look == look) & ((look is not Look.TRAINING) | (shown.batch != NO_BATCH))
        begin, end, batch = shown.begin[of_look], shown.end[of_look], shown.batch[of_look]
        if len(begin) == 0:
            continue
        half = height / 2 * (0.45 if look in (Look.WAITING, Look.SETUP, Look.BUSY) else 1)
        low, high = np.full(len(begin), middle - half), np.full(len(begin), middle + half)
        colours = [FLAT[look]] * len(begin) if look in FLAT else [colour(each) for each in batch.tolist()]
        drawn = bars(axes, scale, begin, end, low, high, colours)
        drawn.set_gid(f"{spans.name} {look.name.lower()}")
        drawn.set_zorder(2 + (look not in FLAT))
        if look is Look.COLLATE:
            drawn.set_hatch("//////")
        if look not in FLAT:
            number(axes, scale, begin, end, batch, (low + high) / 2, hatched=look is Look.COLLATE)


def number(
    axes: Axes, scale: Scale, begin: np.ndarray, end: np.ndarray, batch: np.ndarray, middle: np.ndarray,
    size: float = 7, hatched: bool = False,
) -> None:  # fmt: skip
    """Print the task in each bar that has room for it, smaller where there is little; on a ground of its own where the
    bar is hatched. middle: (n,) heights."""
    for i in np.flatnonzero(batch >= 0).tolist():
        text = str(batch[i] & 0xFFFFFFFF)
        room = float(scale.inches(end[i] - begin[i])) - 0.03
        fitting = min(size, room * 72 / (0.66 * len(text)))  # a digit is 0.66 as wide as its font is tall
        if fitting >= 5:
            ground = {"facecolor": colour(int(batch[i])), "edgecolor": "none", "pad": 1} if hatched else None
            axes.text(
                float(scale((begin[i] + end[i]) // 2)), middle[i], text, size=fitting, ha="center",
                va="center_baseline", color=ink_on(colour(int(batch[i]))), zorder=9, clip_on=True, bbox=ground,
            )  # fmt: skip


def draw_summed_lane(
    axes: Axes, scale: Scale, spans: Spans, looks: list[Look], edges: np.ndarray, middle: float, height: float
) -> None:
    """A lane in bins: the share of each bin's time that went to each look, stacked from below in this order."""
    shares = spans.shares(edges)
    bottom, x = middle + height / 2, scale(edges)  # the axis points down: the first lane is on top
    floor = np.zeros(len(edges) - 1)
    for look in looks:
        top = floor + shares[look]
        if shares[look].any():
            low, high = (bottom - height * np.append(share, share[-1]) for share in (floor, top))
            fill = axes.fill_between(x, low, high, step="post", linewidth=0, color=SUMMED[look], zorder=2)
            fill.set_gid(f"{spans.name} {look.name.lower()}")
        floor = top


# ---- queues


def draw_queue(axes: Axes, scale: Scale, stays: Stays, followed: int = NO_BATCH) -> None:
    """The batches in a queue, stacked as they stand, the next to leave at the bottom; the curve of its depth; and an
    outline around the followed batch."""
    boxes = stays.within(scale.begin, scale.end).boxes()
    begin, end, place, batch = boxes[(boxes[:, 0] < scale.end) & (boxes[:, 1] > scale.begin)].T
    begin, end = np.maximum(begin, scale.begin), np.minimum(end, scale.end)
    colours = [colour(each) for each in batch.tolist()]
    drawn = bars(axes, scale, begin, end, place, place + 1, colours)
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
    (line,) = axes.step(scale(times), depths, where="post", color=INK, linewidth=0.7, zorder=4)
    line.set_gid(f"{stays.name} depth")


def draw_summed_queue(axes: Axes, scale: Scale, stays: list[Stays], name: str, edges: np.ndarray) -> None:
    """Of one queue, or of several alike: the mean depth, and the range from lowest to highest, in each bin."""
    curves = np.stack([binned(*each.depth(), edges) for each in stays])
    low, mean, high = curves[:, 0].min(axis=0), curves[:, 1].mean(axis=0), curves[:, 2].max(axis=0)
    x = scale(edges)
    band = axes.fill_between(
        x, np.append(low, low[-1]), np.append(high, high[-1]), step="post", color=RANGE, linewidth=0
    )
    band.set_gid(f"{name} range")
    (line,) = axes.step(x, np.append(mean, mean[-1]), where="post", color=MEAN, linewidth=1.0)
    line.set_gid(f"{name} mean")


# ---- the followed batch, and marks


def frame_strip(axes: Axes, label: str, highest: float) -> None:
    """The name and the scale of a strip under the lanes, from 0 to `highest`."""
    axes.set_ylim(0, highest * 1.15)
    axes.set_yticks([0, highest], ["0", f"{highest:,.0f}"])
    axes.tick_params(axis="y", labelsize=6.5, length=2, colors=FAINT)
    axes.annotate(label, (0, 0.5), (-18, 0), "axes fraction", "offset points", ha="right", va="center", size=8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color("#cccccc")


def draw_arrow(axes: Axes, scale: Scale, begin: tuple[int, float], end: tuple[int, float], held: bool) -> None:
    """From one (time, height) to another; dashed while the batch is held in one place."""
    look = {
        "arrowstyle": "-|>", "mutation_scale": 8, "shrinkA": 0, "shrinkB": 0, "linewidth": 1.2, "color": "black",
        "linestyle": (0, (2.5, 1.5)) if held else "-", "path_effects": HALO,
    }  # fmt: skip
    tip, tail = (float(scale(end[0])), end[1]), (float(scale(begin[0])), begin[1])
    arrow = axes.annotate("", tip, tail, arrowprops=look, zorder=7, annotation_clip=False)
    arrow.set_gid("way")
    if arrow.arrow_patch is not None:
        arrow.arrow_patch.set_clip_box(axes.bbox)  # of one that leads out of the window, the part within


SYMBOLS: dict[int, tuple[str, float, str]] = {
    Kind.WORKER_DIED: ("X", 7.5, ALARM),
    Kind.ERROR_RAISED: ("v", 7.0, ALARM),
    Kind.FETCH_FAILED: ("v", 6.0, ALARM),
    Kind.PIN_FAILED: ("v", 6.0, ALARM),
    Kind.PARENT_DIED: ("X", 6.0, ALARM),
    Kind.WORKER_TERMINATED: ("v", 6.0, ALARM),
    Kind.WORKER_KILLED: ("v", 6.0, ALARM),
}


def draw_symbol(axes: Axes, scale: Scale, mark: Mark, middle: float, height: float) -> None:
    """What happened in a lane: a red symbol for what is wrong, a tick for a step."""
    x = float(scale(mark.time))
    if mark.kind in SYMBOLS:
        symbol, size, ink = SYMBOLS[mark.kind]
        drawn = Line2D([x], [middle], marker=symbol, markersize=size, color=ink, markeredgecolor="white", zorder=8)
    else:
        drawn = Line2D([x, x], [middle - height / 2, middle + height / 2], color=INK, linewidth=0.8, zorder=6)
    drawn.set_gid(f"mark {mark.text}")
    axes.add_line(drawn)


def draw_names(axes: Axes, scale: Scale, marks: list[Mark]) -> None:
    """The marks' names in two rows above the lanes: the important ones first, the others where there is room."""
    rows: list[list[tuple[float, float]]] = [[], []]  # of each row: what is taken, in inches
    room = float(scale.inches(scale.end - scale.begin))
    at = [float(scale.inches(mark.time - scale.begin)) for mark in marks]
    for i in sorted(range(len(marks)), key=lambda i: (marks[i].rank, marks[i].time)):
        mark, left, width = marks[i], at[i], 0.05 + 0.062 * len(marks[i].text)
        if mark.rank == 2 and any(abs(left - other) < 0.04 for j, other in enumerate(at) if j != i):
            continue  # a step among steps: it is named in a closer look
        for row, backwards in itertools.product(range(len(rows)), (False, True)):
            first, last = (left - width, left) if backwards else (left, left + width)
            free = all(last <= other_first or first >= other_last for other_first, other_last in rows[row])
            if not free or last > room:
                continue
            rows[row].append((first - 0.05 * backwards, last + 0.05 * (not backwards)))
            offset = (-2 if backwards else 2, 3 + 9 * row)
            ink = ALARM if mark.kind in SYMBOLS or mark.kind == NOTE else FAINT
            drawn = axes.annotate(
                mark.text, (float(scale(mark.time)), 1), offset, ("data", "axes fraction"), "offset points",
                ha="right" if backwards else "left", size=7, color=ink,
            )  # fmt: skip
            drawn.set_gid(f"name {mark.text}")
            break
