"""The strips of memory: what main and each worker used, on the same axis of time. See tracing.trace.memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes

from tracing.trace.memory import SampledProcess, sampled_processes
from tracing.views.timeline import colours
from tracing.views.timeline.bars import Scale
from tracing.views.timeline.queue_strips import frame_strip
from tracing.views.timeline.window import View

STYLES = ("-", "--", "-.", ":")  # of the workers: they differ even without colour
SIZE = 7.0  # of the processes' names (points)
GROWN = 50  # open files or mappings: a strip that varies by less is not worth its room


@dataclass(frozen=True)
class MemoryStrip:
    """One quantity, a line for each process."""

    label: str
    field: str  # of tracing.trace.memory.MEMORY_DTYPE
    unit: float  # what 1 on the axis is
    lines: list[SampledProcess]


def memory_strips(view: View) -> list[MemoryStrip]:
    """Proportional memory; open files and mappings of main where they change much. None if they were not sampled."""
    found = [each for each in sampled_processes(view.trace) if len(_seen(view, each))]
    if not found:
        return []
    strips = [MemoryStrip("memory (MB)", "pss", 2**20, found)]
    main = [each for each in found if each.worker < 0]
    for label, field in (("open files", "open_files"), ("mappings", "mappings")):
        if any(np.ptp(_seen(view, each)[field]) >= GROWN for each in main):
            strips.append(MemoryStrip(f"{label} of main", field, 1, main))
    return strips


def _seen(view: View, process: SampledProcess) -> np.ndarray:
    """The samples in the window, and the next one on either side, so that lines reach its edges."""
    time = process.samples["time"]
    first = max(0, int(time.searchsorted(view.begin, "right")) - 1)
    return process.samples[first : int(time.searchsorted(view.end)) + 1]


def draw_memory(axes: Axes, scale: Scale, view: View, strip: MemoryStrip) -> None:
    """Main is the dark line, workers are lighter; each sample is a point of its line."""
    axes.set_gid(strip.label)
    highest = 1.0
    ends = []
    for process in strip.lines:
        samples = _seen(view, process)
        values = samples[strip.field] / strip.unit
        worker = process.worker
        axes.plot(
            scale(samples["time"]), values, gid=f"{strip.label}: {process.name}, {process.pid}",
            color=colours.INK if worker < 0 else "#888888", linewidth=1.3 if worker < 0 else 0.9,
            linestyle="-" if worker < 0 else STYLES[worker % len(STYLES)],
        )  # fmt: skip
        highest = max(highest, float(values.max()))
        end = min(int(samples["time"][-1]), view.end)
        ends.append(LineEnd(float(scale(end)), float(np.interp(end, samples["time"], values)), [worker]))
    frame_strip(axes, strip.label, highest)
    for each in joined(axes, ends):
        down = covered(axes, each, 1) and not covered(axes, each, -1)
        axes.annotate(
            each.words, (each.x, each.y), (-2, -2 if down else 2), textcoords="offset points", size=SIZE,
            ha="right", va="top" if down else "baseline",
        )  # fmt: skip


@dataclass(frozen=True)
class LineEnd:
    """Where the lines of some processes end, and their names stand; in the axes' units."""

    x: float
    y: float
    workers: list[int]  # worker_ids in order; -1: main

    @property
    def words(self) -> str:
        """ "main", "worker 0", "main, workers 0–3"."""
        numbers = [each for each in self.workers if each >= 0]
        together = len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1
        shown = f"{numbers[0]}–{numbers[-1]}" if together else ", ".join(map(str, numbers))
        names = ["main"] * (len(numbers) < len(self.workers)) + [f"worker{'s' * (len(numbers) > 1)} {shown}"] * bool(
            numbers
        )
        return ", ".join(names)


def joined(axes: Axes, ends: list[LineEnd]) -> list[LineEnd]:
    """The ends whose names would overprint each other as one."""
    apart: list[LineEnd] = []
    for end in ends:
        while (other := next((each for each in apart if overprint(axes, each, end)), None)) is not None:
            apart.remove(other)
            end = LineEnd(max(end.x, other.x), max(end.y, other.y), sorted(end.workers + other.workers))
        apart.append(end)
    return apart


def overprint(axes: Axes, one: LineEnd, other: LineEnd) -> bool:
    """Whether their names would."""
    (x1, y1), (x2, y2) = axes.transData.transform([(one.x, one.y), (other.x, other.y)])
    right = one if x1 > x2 else other
    wide, tall = extent(axes, right)
    return bool(abs(y1 - y2) < tall * 1.2 and abs(x1 - x2) < wide)


def extent(axes: Axes, end: LineEnd) -> tuple[float, float]:
    """Width and height of its names in pixels. A letter is at most 0.62 as wide as its font is tall."""
    tall = SIZE / 72 * axes.figure.dpi
    return tall * 0.62 * (len(end.words) + 1), tall


def covered(axes: Axes, end: LineEnd, side: int) -> bool:
    """Whether a line runs where its names would stand: above its end (side 1), or below (-1)."""
    right, level = axes.transData.transform((end.x, end.y))
    wide, tall = extent(axes, end)
    for line in axes.get_lines():
        x, y = axes.transData.transform(line.get_xydata()).T
        heights = np.interp(np.linspace(right - wide, right, 9), x, y, np.nan, np.nan)
        beyond = side * (heights - level) / tall  # its own line begins at 0
        if ((beyond > 0.2) & (beyond < 1.6)).any():
            return True
    return False
