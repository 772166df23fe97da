"""The strips of memory: what main and each worker used, on the same axis of time. See tracing.trace.memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from tracing.trace.memory import SampledProcess, sampled_processes
from tracing.views.timeline import colours
from tracing.views.timeline.bars import Scale
from tracing.views.timeline.queue_strips import frame_strip
from tracing.views.timeline.window import View

STYLES = ("-", "--", "-.", ":")  # of the workers: they differ even without colour
SIZE = 7.5  # of the names of processes (points)
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
    """Main is the dark line, workers are lighter; each sample is a point of its line. Few workers are named one by one,
    where there is most room."""
    axes.set_gid(strip.label)
    highest, several = 1.0, sum(each.worker >= 0 for each in strip.lines) > len(STYLES)
    names: dict[str, Line2D] = {}
    for process in strip.lines:
        samples = _seen(view, process)
        values = samples[strip.field] / strip.unit
        worker = process.worker
        (line,) = axes.plot(
            scale(samples["time"]), values, gid=f"{strip.label}: {process.name}, {process.pid}",
            color=colours.INK if worker < 0 else "#888888", linewidth=1.3 if worker < 0 else 0.9,
            linestyle="-" if worker < 0 or several else STYLES[worker % len(STYLES)],
        )  # fmt: skip
        names.setdefault("main" if worker < 0 else "workers" if several else f"worker {worker}", line)
        highest = max(highest, float(values.max()))
    frame_strip(axes, strip.label, highest)
    axes.legend(list(names.values()), list(names), loc="best", ncols=len(names), fontsize=SIZE, borderpad=0.2)
