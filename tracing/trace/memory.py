"""How much memory the processes used while they were recorded, and warnings about it.

With `tracing.record(path, memory=True)` it is in `trace.samples`. Linux only: elsewhere a warning says so.

What separates growth that a warning is about from harmless growth: a worker's private memory still grows in the second
half of its life. (Imports and the first batches' buffers come at the beginning.) If its resident memory does not grow
as much, the worker makes nothing new: it copies pages that it shared with main, by writing reference counts into them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from minidl.events import Kind
from tracing.trace.words import size

if TYPE_CHECKING:
    from tracing.trace.trace import Trace

GROWTH = 32 << 20  # bytes of private memory that are worth a warning ...
STEADY = 0.25  # ... if at least this share of them came in the second half of its life
COPIED = 0.5  # if resident memory grew by less than this share of private memory, the process copied what it shared


class SampledProcess(NamedTuple):
    """Main or a worker, and its samples."""

    name: str  # "main", "worker 0"
    worker: int  # worker_id; -1: main
    pid: int
    samples: np.ndarray


def sampled_processes(trace: Trace) -> list[SampledProcess]:
    """Main first, then the workers in the order in which they began; no other children of main."""
    samples = trace.samples
    samples = samples[samples["rss"] >= 0]
    begun = trace.events[trace.events["kind"] == Kind.WORKER_BEGIN]
    workers = {int(trace.about.get("pid", -1)): -1}
    workers.update((int(event["value"]), int(event["worker"])) for event in begun)
    found = []
    for pid, worker in workers.items():
        own = samples[samples["pid"] == pid]
        if len(own):
            found.append(SampledProcess("main" if worker < 0 else f"worker {worker}", worker, pid, own))
    return found


# ---- warnings


def warnings(trace: Trace) -> list[str]:
    """What a user should know before it becomes a problem; at most one."""
    everyone = sampled_processes(trace)
    if trace.about.get("memory") and len(trace.samples) and not everyone:
        return ["Memory was asked for, and could not be sampled: it is read from /proc, which this system lacks."]
    found = [text for each in everyone if each.worker >= 0 and (text := growth_warning(trace, each))]
    more = f" So did {len(found) - 1} other workers." if len(found) > 1 else ""
    return [text + more for text in found[:1]]


def growth_warning(trace: Trace, process: SampledProcess) -> str:
    """A warning if a worker's private memory keeps growing, else ""."""
    samples = process.samples
    ready = trace.events["time"][(trace.events["kind"] == Kind.FETCH_END) & (trace.events["worker"] == process.worker)]
    samples = samples[samples["time"] >= ready[0]] if len(ready) else samples[:0]
    if len(samples) < 3:
        return ""
    time, private = samples["time"] - samples["time"][0], samples["private"]
    begin, middle, end = np.interp((0, time[-1] / 2, time[-1]), time, private).tolist()
    if end - begin < GROWTH or end - middle < STEADY * (end - begin):
        return ""
    held = int(samples["rss"][-1] - samples["rss"][0])
    seconds = [(int(at) - trace.start) / 1e9 for at in (samples["time"][0], samples["time"][-1])]
    text = f"Worker {process.worker}'s private memory grew by {size(end - begin)} between {seconds[0]:.1f} and "
    text += f"{seconds[1]:.1f} s, and was still growing at the end. "
    if held < COPIED * (end - begin):
        text += "It copies memory that it shared with main: reading a Python object writes its reference count. "
        return text + "Keep the dataset's lists of objects in numpy arrays or tensors."
    return text + "It keeps what it makes: in a cache of the dataset, say, of which each worker has its own."
