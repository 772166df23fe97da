"""Bars on an axis of time, and the numbers of batches in them.

Every artist that shows data has a gid ("worker 0 fetch", "reorder buffer depth"), by which tests and SVG find it.
Times come in ns and are drawn in the axis's unit, counted from the trace's first event: see Scale.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection

from tracing.trace.state_after_event import label
from tracing.views.batch_colours import DARK_ON_PAPER
from tracing.views.timeline import colours
from tracing.views.timeline.spans import NO_BATCH


@dataclass(frozen=True)
class Scale:
    """Converts ns to units of the axis."""

    zero: int  # ns: the trace's first event
    unit: float  # ns in a unit of the axis: 1e6 for ms
    begin: int  # ns: what is shown
    end: int
    inch: float  # units of the axis to an inch of paper

    def __call__(self, time: np.ndarray | float) -> np.ndarray:
        return (np.asarray(time, float) - self.zero) / self.unit

    def inches(self, duration: np.ndarray | float) -> np.ndarray:
        return np.asarray(duration, float) / self.unit / self.inch


def bars(
    axes: Axes, scale: Scale, begin: np.ndarray, end: np.ndarray, low: np.ndarray, high: np.ndarray, fills: list[str]
) -> PolyCollection:
    """Rectangles as one collection: (n,) each. Where they are wide enough, a thin white line separates them."""
    left, right = scale(begin), scale(end)
    corners = np.stack([left, low, left, high, right, high, right, low], axis=-1).reshape(-1, 4, 2)
    widths = np.where(scale.inches(np.asarray(end) - begin) > 0.03, 0.5, 0.0)
    drawn = PolyCollection(list(corners), facecolors=fills, edgecolors="white", linewidths=widths)
    axes.add_collection(drawn, autolim=False)
    return drawn


def number(
    axes: Axes, scale: Scale, begin: np.ndarray, end: np.ndarray, batch: np.ndarray, low: np.ndarray, high: np.ndarray,
    size: float = colours.NUMBERS, hatched: bool = False,
) -> None:  # fmt: skip
    """Print the task in each bar that has room for it, smaller where there is little; in the bar of a message without
    one, its name. On a hatch it gets a plain ground. An arrow that crosses it is below it."""
    grounds = []
    for i in np.flatnonzero(batch != NO_BATCH).tolist():
        each = int(batch[i])
        fill, words = colours.of_batch(each), str(label(each & 0xFFFFFFFF if each >= 0 else each))
        room = float(scale.inches(end[i] - begin[i])) - 0.14 * hatched - 0.03
        fitting = min(size, room / width(words, 1.0))
        if fitting < colours.LEAST_NUMBERS:
            continue
        middle, half = (begin[i] + end[i]) / 2, (0.5 * width(words, fitting) + 0.04) * scale.inch * scale.unit
        if hatched:
            grounds.append((middle - half, middle + half, low[i], high[i], fill))
        axes.text(
            float(scale(middle)), (low[i] + high[i]) / 2, words, size=fitting, ha="center", va="center_baseline",
            color="white" if fill in DARK_ON_PAPER else "black", zorder=9, clip_on=True,
        )  # fmt: skip
    if grounds:
        places = np.array([each[:4] for each in grounds]).T
        patches = bars(axes, scale, places[0], places[1], places[2], places[3], [each[4] for each in grounds])
        patches.set(linewidth=0, zorder=8.5, gid="ground of digits")


def width(words: str, size: float) -> float:
    """Inches. A digit is 0.66 as wide as its font is tall, a capital letter 0.75."""
    return len(words) * (0.66 if words.isdigit() else 0.75) * size / 72
