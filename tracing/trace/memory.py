"""What the processes used while they were recorded: `trace.memory`, and what it warns of.

`tracing.record(path, memory=True)` starts tracing.recording.memory_sampler beside the recording; here its file is read.
Linux only: where there is no /proc there are no samples, and nothing is guessed.

What is warned of, and how it is told from what is harmless:
growth       the private memory of a worker still grows in the second half of its life. (What it imports and the first
             batches' buffers come at the beginning.) If what it holds in all does not grow as much, it does not make
             new things: it copies pages that it shared with main, by writing reference counts into them.
mappings,    main holds more of them with every batch that it takes, in the first half of its batches as in the second:
open files   they are kept. Their limits are told in batches.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from minidl.events import Kind
from tracing.recording import file_format as fmt

if TYPE_CHECKING:
    from tracing.trace.trace import Trace

MEMORY_DTYPE = np.dtype(
    [
        (name, "<i8")
        for name in (
            "time", "pid",  # ns, the clock of the events
            "rss", "pss", "private",  # bytes: resident, proportional, and shared with nobody
            "open_files", "mappings", "shared_mappings",  # of the latter those of shared memory, as tensors have
            "most_open_files", "most_mappings",  # how many it may have
        )
    ]
)  # fmt: skip
GROWTH = 32 << 20  # bytes of a worker's own that are worth a word ...
STEADY = 0.25  # ... if at least this share of them came in the second half of its life
KEPT = 0.5  # mappings or open files a batch, kept for good, that are worth a word ...
ENOUGH = 100  # ... once there are so many of them
COPIED = 0.5  # of private growth: if a process's resident memory grew by less than this, it copied what it shared


def read(directory: Path) -> np.ndarray:
    """The samples so far, shape (n,), MEMORY_DTYPE, in time order; none if memory was not recorded. Half a sample at
    the end of the file is left out."""
    try:
        data = (directory / fmt.MEMORY).read_bytes()
    except FileNotFoundError:
        return np.empty(0, MEMORY_DTYPE)
    samples = np.frombuffer(data, MEMORY_DTYPE, len(data) // MEMORY_DTYPE.itemsize)
    return samples[np.argsort(samples["time"], kind="stable")]


class Process(NamedTuple):
    """Main or a worker, and its samples."""

    name: str  # "main", "worker 0"
    worker: int  # worker_id; -1: main
    pid: int
    samples: np.ndarray


def processes(trace: Trace) -> list[Process]:
    """Main first, then the workers in the order in which they began. Other children of main are left out."""
    samples = trace.memory
    begun = trace.events[trace.events["kind"] == Kind.WORKER_BEGIN]
    who = {int(trace.about.get("pid", -1)): -1}
    who.update((int(event["value"]), int(event["worker"])) for event in begun)
    found = []
    for pid, worker in who.items():
        own = samples[samples["pid"] == pid]
        if len(own):
            found.append(Process("main" if worker < 0 else f"worker {worker}", worker, pid, own))
    return found


# ---- warnings


def warnings(trace: Trace) -> list[str]:
    """What a user should know before it hurts, a sentence or two each."""
    if not len(trace.memory):
        return []
    everybody = processes(trace)
    found = [text for each in everybody if each.worker >= 0 and (text := growth(trace, each))]
    more = f" So did {len(found) - 1} other workers." if len(found) > 1 else ""
    kept = [keeps(trace, each) for each in everybody if each.worker < 0]
    return [text for text in (*kept, *(text + more for text in found[:1])) if text]


def growth(trace: Trace, process: Process) -> str:
    """Whether a worker's own memory grows for good."""
    samples = process.samples[process.samples["private"] >= 0]
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
    said = f"The memory of {process.name}'s own grew by {_megabytes(end - begin)} from {seconds[0]:.1f} to "
    said += f"{seconds[1]:.1f} s, and to the end. "
    if held < COPIED * (end - begin):
        said += "It copies what it shared with main: reading a Python object writes its reference count. "
        return said + "Keep the dataset's lists of objects in numpy arrays or tensors."
    return said + "It keeps what it makes: a cache in the dataset, say, of which each worker has its own."


def keeps(trace: Trace, main: Process) -> str:
    """What main has more of with every batch, and when it runs out: of what it runs out of first."""
    yields = trace.events["time"][trace.events["kind"] == Kind.YIELDED]
    between = np.searchsorted(yields, main.samples["time"])
    samples = main.samples[(between > 0) & (between < len(yields))]  # from the first batch to the last
    if len(samples) < 3:
        return ""
    batches = np.searchsorted(yields, samples["time"])  # yielded by then
    half = int(np.searchsorted(batches, (batches[0] + batches[-1]) / 2))
    seen = int(batches[half] - batches[0]), int(batches[-1] - batches[half])
    found = []  # (batches that are left, what to say)
    for name, told in (("mappings", "memory mappings"), ("open_files", "open files")):
        first, middle, last = (int(samples[name][at]) for at in (0, half, -1))
        if not all(seen) or last - first < ENOUGH or min((middle - first) / seen[0], (last - middle) / seen[1]) < KEPT:
            continue
        each, most = (last - first) / sum(seen), int(samples[f"most_{name}"][-1])
        left = max(0, int((most - last) / each)) if most > 0 else sys.maxsize
        text = f"Main holds {each:.1f} more {told} with every batch it takes, {last:,} at last"
        text += f": after {left:,} batches more it reaches the limit of {most:,}" if most > 0 else ""
        found.append((left, f"{text}. It keeps its batches: keep copies instead (batch.clone(), loss.item())."))
    return min(found)[1] if found else ""


def _megabytes(size: float) -> str:
    return f"{size / (1 << 20):,.0f} MB"
