"""What had the cores: do the workers compute or wait, and are the cores the limit?

Events give the CPU time of making a batch. The recording's samples (tracing.trace.samples) give that of whole
processes and of the machine; use is assumed to be even between two samples, and 0 without samples.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from minidl.events import Kind, Queue
from tracing.analysis.measure.measures import Measures, epoch_ids
from tracing.trace.intervals import Intervals
from tracing.trace.thread_activity import MainTime

ALL_CORES = 0.8  # when this share of all cores is in use, more workers would not help
WAITING = 0.1  # a worker that uses a core for less than this share of its working time waits
NOISE = 0.1  # cores: a system uses this much for itself


def cores(measures: Measures) -> int:
    """How many cores the recorded program could use; 0 if that is not known."""
    return int(measures.trace.about.get("cpus") or 0)


def cores_used(measures: Measures) -> float:
    """How many cores the workers (and the pin thread) kept busy on average, from an epoch's first fetch to its last
    batch. What main uses is not counted."""
    rows = measures.tasks[measures.tasks["collate_end"] >= 0]
    used = sum(int(np.maximum(rows[name], 0).sum()) for name in ("fetch_cpu", "collate_cpu", "pin_cpu"))
    used += int(beside_making(measures))
    epochs, which = np.unique(epoch_ids(rows), return_inverse=True)
    begin, end = np.full(len(epochs), np.iinfo(np.int64).max), np.zeros(len(epochs), np.int64)
    np.minimum.at(begin, which, rows["fetch_begin"])
    np.maximum.at(end, which, rows["collate_end"])
    return used / max(1, int((end - begin).sum()))


def cores_are_the_limit(measures: Measures) -> bool:
    """Whether the workers use nearly all cores that main and other programs leave them."""
    main = (
        used(measures, [measures.main_pid], "cpu", within=measures.run) / measures.total if measures.num_workers else 0
    )
    left = cores(measures) - main - cores_of_others(measures)
    return cores(measures) > 0 and cores_used(measures) >= max(2 * NOISE, ALL_CORES * left)


def making_waits(measures: Measures) -> bool:
    """Whether the workers (without any, main) hardly compute while they make batches: they wait for storage,
    a network, a lock."""
    rows = measures.tasks[measures.tasks["collate_end"] >= 0]
    used = int((np.maximum(rows["fetch_cpu"], 0) + np.maximum(rows["collate_cpu"], 0)).sum()) + beside_making(measures)
    share = used / max(1, int(measures.stage("fetch_begin", measures.made_at).sum()))
    return share < WAITING


# ---- by samples


def worker_pids(measures: Measures, worker: int) -> list[int]:
    """The processes that were this worker, one in each iterator."""
    group = measures.trace.index.group
    begun = [group(each.number, Kind.WORKER_BEGIN, Queue.NONE, worker).array[:1] for each in measures.iterators]
    return [int(measures.events["value"][position]) for positions in begun for position in positions]


def used(measures: Measures, pids: Iterable[int], *names: str, within: Intervals) -> float:
    """What these processes used of a sampled clock ("cpu"; "cpu", "main_cpu" is their difference), within these
    stretches of time (ns)."""
    total = 0.0
    for pid in pids:
        samples = measures.samples[measures.samples["pid"] == pid]
        if len(samples) < 2 or any((samples[name] < 0).any() for name in names):
            continue
        clock = samples[names[0]] - (samples[names[1]] if len(names) > 1 else 0)
        total += float(np.diff(np.interp([within.begin, within.end], samples["time"], clock), axis=0).sum())
    return total


def beside_making(measures: Measures) -> float:
    """What was used while the workers made batches, but not by the threads that made them: by programs that they ran
    and waited for, and by threads of a library (ns)."""
    return _of_workers(measures, "children") + threads_of_workers(measures)


def threads_of_workers(measures: Measures) -> float:
    """What the workers' other threads used while batches were made (ns). A feeder thread's share is small."""
    return _of_workers(measures, "cpu", "main_cpu")


def _of_workers(measures: Measures, *names: str) -> float:
    pids = ((worker_pids(measures, worker), made) for worker, made in enumerate(measures.made))
    return sum(used(measures, its, *names, within=made) for its, made in pids)


def cores_of_others(measures: Measures) -> float:
    """How many cores other programs kept busy on average. 0 if that is not known, as in a container that has a part of
    its machine's cores."""
    samples = measures.samples
    machine = samples[(samples["busy"] >= 0) & (samples["idle"] >= 0)]
    if len(machine) < 2:
        return 0.0
    grown = {name: float(machine[name][-1] - machine[name][0]) for name in ("time", "busy", "steal", "idle")}
    whole = grown["busy"] + grown["steal"] + grown["idle"]
    if not 0.75 <= whole / max(1.0, grown["time"] * cores(measures)) <= 1.25:
        return 0.0
    within = Intervals(machine["time"][:1], machine["time"][-1:], np.zeros(1, np.int64), np.zeros(1, np.int64))
    pids = np.unique(samples["pid"])
    own = used(measures, pids.tolist(), "cpu", within=within)
    # What main waited for includes its workers, which count already.
    own += used(measures, pids[pids != measures.main_pid].tolist(), "children", within=within)
    others = (grown["busy"] + grown["steal"] - own) / grown["time"]
    return others if others > NOISE else 0.0


def beside_main(measures: Measures) -> tuple[float, float]:
    """While main's thread is at work in the loader (unpickles, keeps its books): how many cores the other threads of
    its process use, and the share of that time in which main itself has a core, 0 to 1."""
    at_work = measures.main_in(MainTime.TAKING, MainTime.HANDLING)
    main, length = [measures.main_pid], max(1, at_work.total)
    others = used(measures, main, "cpu", "main_cpu", within=at_work)
    return others / length, min(1.0, used(measures, main, "main_cpu", within=at_work) / length)
