"""The lanes of the timeline: main's two, the pin thread's, each worker's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes

from minidl.events import Kind
from tracing.trace.event_index import Lane
from tracing.views.timeline import colours
from tracing.views.timeline.bars import Scale, bars, number
from tracing.views.timeline.marks import Mark, draw_names, draw_symbol
from tracing.views.timeline.spans import NO_BATCH, Look, Spans, spans
from tracing.views.timeline.window import View

LOADING = 1  # the row of what main does in the loader; above it, in row 0, are its training steps
LOADER_LOOKS = [Look.FETCH, Look.COLLATE, Look.PIN, Look.BUSY, Look.SETUP, Look.WAITING]
HEIGHT = 0.8  # of what is drawn in a lane; from one lane to the next it is 1


@dataclass(frozen=True)
class Row:
    """A lane, or one of main's two."""

    label: str
    lane: Lane
    worker: int
    spans: Spans
    looks: list[Look]  # which spans are drawn in it


def lanes_of(view: View) -> list[Row]:
    def row(label: str, lane: Lane, worker: int = -1, looks: list[Look] = LOADER_LOOKS) -> Row:
        return Row(label, lane, worker, spans(view.trace, view.iterators, lane, worker, view.end), looks)

    rows = [
        row("main   training step", Lane.MAIN, looks=[Look.TRAINING]),
        row("in the loader", Lane.MAIN),
    ]
    if any(len(view.trace.index.lane(each.number, Lane.PIN)) for each in view.iterators):
        rows.append(row("pin thread", Lane.PIN))
    return rows + [row(f"worker {worker}", Lane.WORKER, worker) for worker in range(view.num_workers)]


def draw_lanes(axes: Axes, scale: Scale, view: View, rows: list[Row], seen: list[Mark]) -> None:
    """All lanes on one pair of axes: row i is centred at height i, from the top."""
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_yticks(range(len(rows)), [row.label for row in rows], size=colours.WORDS)
    axes.tick_params(axis="y", length=0)
    axes.set_gid("lanes")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color("#cccccc")
    for i, row in enumerate(rows):
        if view.summed:
            draw_summed_lane(axes, scale, row, view.edges, i)
        else:
            draw_lane(axes, scale, row, i)
    for mark in seen:
        if mark.kind != Kind.EPOCH_BEGIN and mark.kind != Kind.SHUTDOWN_BEGIN:
            draw_symbol(axes, scale, mark, row_of(rows, mark.lane, mark.worker), HEIGHT)
    draw_names(axes, scale, seen)


def draw_lane(axes: Axes, scale: Scale, row: Row, middle: int) -> None:
    """A lane batch by batch."""
    shown = row.spans.within(scale.begin, scale.end)
    for look in sorted(row.looks):
        # Until the training loop asks for its first batch it has none: this is not a training step.
        of_look = (shown.look == look) & ((look is not Look.TRAINING) | (shown.batch != NO_BATCH))
        begin, end, batch = shown.begin[of_look], shown.end[of_look], shown.batch[of_look]
        if len(begin) == 0:
            continue
        half = HEIGHT / 2 * (0.45 if look in (Look.WAITING, Look.SETUP, Look.BUSY) else 1)
        low, high = np.full(len(begin), middle - half), np.full(len(begin), middle + half)
        fills = [colours.FLAT.get(look) or colours.of_batch(each) for each in batch.tolist()]
        drawn = bars(axes, scale, begin, end, low, high, fills)
        drawn.set_gid(f"{row.spans.name} {look.name.lower()}")
        drawn.set_zorder(2 + (look not in colours.FLAT))
        if look is Look.COLLATE:
            drawn.set_hatch("//////")
        if look not in colours.FLAT:
            number(axes, scale, begin, end, batch, low, high, hatched=look is Look.COLLATE)


def draw_summed_lane(axes: Axes, scale: Scale, row: Row, edges: np.ndarray, middle: int) -> None:
    """A lane in bins: the share of each bin's time that went to each look, stacked from the bottom in this order."""
    shares = row.spans.shares(edges)
    bottom, x = middle + HEIGHT / 2, scale(edges)  # the axis points down: the first lane is on top
    floor = np.zeros(len(edges) - 1)
    for look in row.looks:
        top = floor + shares[look]
        if shares[look].any():
            low, high = (bottom - HEIGHT * np.append(share, share[-1]) for share in (floor, top))
            fill = axes.fill_between(x, low, high, step="post", linewidth=0, color=colours.SUMMED[look], zorder=2)
            fill.set_gid(f"{row.spans.name} {look.name.lower()}")
        floor = top


def row_of(rows: list[Row], lane: Lane, worker: int = -1) -> int:
    """The height of a lane; for main, of the row in the loader."""
    return max((i for i, row in enumerate(rows) if row.lane is lane and row.worker == worker), default=LOADING)
