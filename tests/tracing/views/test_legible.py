"""Pictures can be read: no words overlap or are cut off, and what differs in colour differs in grey."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from tests.tracing.loads import Recorded
from tests.tracing.traces import steady
from tracing.views.timeline import colours, timeline
from tracing.views.timeline.spans import Look

# ---- words


def words_of(figure: Figure) -> list[tuple[str, Bbox]]:
    """Every text that is shown, and where it is (px)."""
    hidden = set()  # matplotlib has labels for ticks beyond the ends of an axis, too, and does not draw them
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        begin, end = sorted(axis.get_view_interval())
        hidden |= {tick.label1 for tick in axis.get_major_ticks() if not begin <= tick.get_loc() <= end}
    found = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text() and text not in hidden]
    return [(text.get_text(), Text.get_window_extent(text)) for text in found]


def overlapping(boxes: Iterable[tuple[str, Bbox]]) -> list[tuple[str, str]]:
    """Pairs of texts that share more than a pixel's width: the boxes of letters are a little larger than these."""
    found = []
    for (one, here), (other, there) in itertools.combinations(boxes, 2):
        wide = min(here.x1, there.x1) - max(here.x0, there.x0)
        tall = min(here.y1, there.y1) - max(here.y0, there.y0)
        if wide > 1 and tall > 0.25 * min(here.height, there.height):
            found.append((one, other))
    return found


# How many batches -> options of the picture: of single ones, of numbers with four digits, summed up.
STEADY: dict[Any, dict[str, Any]] = {200: {}, 1020: {"batches": (1000, 1016)}, 300: {}}
NOTES = [(100, "batch 9 was yielded where batch 8 was due"), (103, "and another")]
REAL = ["in_order", "stream", "persistent", "failing", "dying", "slots", "serial"]


@pytest.mark.parametrize("load", [*STEADY, *REAL])
def test_no_words_overlap_and_none_are_cut_off(recorded: Recorded, load: Any, tmp_path: Path) -> None:
    if load in STEADY:
        figure = timeline(steady(tmp_path, load, workers=16), **STEADY[load])
    else:
        figure = timeline(recorded(load), notes=NOTES)
    figure.draw_without_rendering()
    words = words_of(figure)
    assert len(words) > 10 and not overlapping(words)
    page = figure.bbox
    assert not [text for text, box in words if box.x0 < 0 or box.y0 < 0 or box.x1 > page.x1 or box.y1 > page.y1]


# ---- colours


def luminance(colour: str) -> float:
    """Of light, 0 to 1, as WCAG 2 defines it."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return float(np.dot((0.2126, 0.7152, 0.0722), linear))


def test_what_lies_side_by_side_differs_in_grey() -> None:
    """Bars of half a lane, on white; looks that are summed up; batches that follow each other, one apart or, as two
    workers take turns, two."""
    flat = sorted([1.0, *(luminance(colours.FLAT[look]) for look in colours.FLAT)])
    stacked = sorted(luminance(colours.SUMMED[look]) for look in (Look.FETCH, Look.COLLATE, Look.BUSY, Look.WAITING))
    batches = [luminance(colours.of_batch(batch)) for batch in range(14)]
    for looks, apart, least in (flat, 1, 1.2), (stacked, 1, 1.4), (batches, 1, 1.7), (batches, 2, 1.7):
        for pair in zip(looks, looks[apart:], strict=False):
            dark, light = sorted(pair)
            assert (light + 0.05) / (dark + 0.05) > least
