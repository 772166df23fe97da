"""The strip of memory: what main and each worker used, on the same axis of time. See tracing.trace.memory."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from tracing.trace.memory import SampledProcess, sampled_processes
from tracing.views.timeline import colours
from tracing.views.timeline.bars import Scale
from tracing.views.timeline.queue_strips import frame_strip
from tracing.views.timeline.window import View

LABEL = "memory (MB)"
STYLES = ("-", "--", "-.", ":")  # of the workers: they differ even without colour
SIZE = 7.5  # of the names of processes (points)


def sampled_in(view: View) -> list[SampledProcess]:
    """The processes whose memory was sampled in this window."""
    return [each for each in sampled_processes(view.trace) if len(_seen(view, each))]


def _seen(view: View, process: SampledProcess) -> np.ndarray:
    """The samples in the window, and the next one on either side, so that lines reach its edges."""
    time = process.samples["time"]
    first = max(0, int(time.searchsorted(view.begin, "right")) - 1)
    return process.samples[first : int(time.searchsorted(view.end)) + 1]


def draw_memory(axes: Axes, scale: Scale, view: View, processes: list[SampledProcess]) -> None:
    """The proportional memory. Main is the dark line, workers are lighter; each sample is a point of its line. Few
    workers are named one by one, where there is most room."""
    axes.set_gid(LABEL)
    highest, several = 1.0, sum(each.worker >= 0 for each in processes) > len(STYLES)
    names: dict[str, Line2D] = {}
    for process in processes:
        samples = _seen(view, process)
        values, worker = samples["pss"] / 2**20, process.worker
        (line,) = axes.plot(
            scale(samples["time"]), values, gid=f"{LABEL}: {process.name}, {process.pid}",
            color=colours.INK if worker < 0 else "#888888", linewidth=1.3 if worker < 0 else 0.9,
            linestyle="-" if worker < 0 or several else STYLES[worker % len(STYLES)],
        )  # fmt: skip
        names.setdefault("main" if worker < 0 else "workers" if several else f"worker {worker}", line)
        highest = max(highest, float(values.max()))
    frame_strip(axes, LABEL, highest)
    axes.legend(list(names.values()), list(names), loc="best", ncols=len(names), fontsize=SIZE, borderpad=0.2)
