"""Bars on an axis of time, and the numbers of batches in them.

Every artist that shows data has a gid ("worker 0 fetch", "reorder buffer depth"), by which tests and SVG find it.
Times come in ns and are drawn in the axis's unit, counted from the trace's first event: see Scale.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection

from tracing.views.timeline import colours


@dataclass(frozen=True)
class Scale:
    """Converts ns to units of the axis."""

    zero: int  # ns: the trace's first event
    unit: float  # ns in a unit of the axis: 1e6 for ms
    begin: int  # ns: what is shown
    end: int
    inch: float  # units of the axis to an inch of paper

    def __call__(self, time: np.ndarray | int) -> np.ndarray:
        return (np.asarray(time, float) - self.zero) / self.unit

    def inches(self, duration: np.ndarray | int) -> np.ndarray:
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
    axes: Axes, scale: Scale, begin: np.ndarray, end: np.ndarray, batch: np.ndarray, middle: np.ndarray,
    size: float = 7, plain: bool = False,
) -> None:  # fmt: skip
    """Print the task in each bar that has room for it, smaller where there is little. middle: (n,) heights. plain: on a
    background of its own, where something else may be drawn upon the bar."""
    for i in np.flatnonzero(batch >= 0).tolist():
        text, fill = str(batch[i] & 0xFFFFFFFF), colours.of_batch(int(batch[i]))
        room = float(scale.inches(end[i] - begin[i])) - 0.03
        fitting = min(size, room * 72 / (0.66 * len(text)))  # a digit is 0.66 as wide as its font is tall
        if fitting >= 5:
            ground = {"facecolor": fill, "edgecolor": "none", "pad": 1} if plain else None
            axes.text(
                float(scale((begin[i] + end[i]) // 2)), middle[i], text, size=fitting, ha="center",
                va="center_baseline", color=colours.ink_on(fill), zorder=9, clip_on=True, bbox=ground,
            )  # fmt: skip
