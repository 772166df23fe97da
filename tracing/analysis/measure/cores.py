"""What had the cores: do the workers compute or wait, and are the cores the limit? And how much did they read?

Events give the CPU time of making a batch. The recording's samples (`trace.samples`) give that of whole
processes and of the machine; use is assumed to be even between two samples, and 0 without samples.
"""

from __future__ import annotations

import numpy as np

from minidl.events import Kind
from tracing.analysis.measure.measures import Measures, epoch_ids
from tracing.trace.intervals import Intervals, depth
from tracing.trace.thread_activity import MainTime

ALL_CORES = 0.8  # when this share of all cores is in use, more workers would not help
WAITING = 0.1  # a worker that uses a core for less than this share of its working time waits
MOST_OF_THEM = 0.6  # cores, that others have
SHOWN = 1_000_000_000  # ns, until a sample has what was read: see tracing.recording.file_format
NOISE = 0.1  # cores: a system uses this much for itself
MAKING = ("fetch_cpu", "collate_cpu")  # of the thread that makes a batch


def cores(measures: Measures) -> int:
    """How many cores the recorded program could use; 0 if that is not known."""
    return int(measures.trace.about.get("cpus") or 0)


def making(measures: Measures) -> float:
    """The CPU time that making all batches took: of the threads that made them, and beside them (ns)."""
    return sum(int(measures.tasks[name].clip(0).sum()) for name in MAKING) + beside_making(measures)


def cores_used(measures: Measures) -> float:
    """How many cores the making of batches kept busy on average, from an epoch's first fetch to its last batch."""
    rows = measures.tasks[measures.tasks["collate_end"] >= 0]
    first = np.flatnonzero(np.diff(epoch_ids(rows), prepend=-1))  # of each epoch: its rows follow each other
    lasted = np.maximum.reduceat(rows["collate_end"], first) - np.minimum.reduceat(rows["fetch_begin"], first)
    return making(measures) / max(1, int(lasted.sum()))


def cores_of_main(measures: Measures) -> float:
    """How many cores main used beside its workers, on average."""
    own = used(measures, measures.main_pid, "cpu", within=measures.run) if measures.num_workers else 0.0
    return own / measures.total


def cores_are_the_limit(measures: Measures) -> bool:
    """Whether the workers use nearly all cores that main and other programs leave them."""
    left = cores(measures) - cores_of_main(measures) - cores_of_others(measures)
    return cores(measures) > 0 and cores_used(measures) >= max(2 * NOISE, ALL_CORES * left)


def making_waits(measures: Measures) -> bool:
    """Whether the workers (without any, main) hardly compute while they make batches: they wait for storage,
    a network, a lock."""
    return making(measures) < WAITING * max(1, int(measures.stage("fetch_begin", measures.made_at).sum()))


# ---- by samples


def worker_of(measures: Measures) -> dict[int, int]:
    """pid -> worker, for each process that was a worker: one in each iterator."""
    begun = measures.events[measures.kind == Kind.WORKER_BEGIN]
    begun = begun[np.isin(begun["loader"], measures.loaders)]
    return dict(zip(begun["value"].tolist(), begun["worker"].tolist(), strict=True))


def makers(measures: Measures) -> dict[int, Intervals]:
    """pid -> when it makes batches, for each process that does: the workers, or else main."""
    making = {pid: measures.made[worker] for pid, worker in worker_of(measures).items()}
    return making or {measures.main_pid: measures.main_in(MainTime.LOADING)}


def used(measures: Measures, pid: int, *names: str, within: Intervals) -> float:
    """What a process used of something sampled, within these stretches of time: a clock (ns; "cpu", "main_cpu" is
    their difference), or bytes."""
    samples = measures.trace.samples[measures.trace.samples["pid"] == pid]
    if len(samples) < 2 or any((samples[name] < 0).any() for name in names):
        return 0.0
    clock = samples[names[0]] - (samples[names[1]] if len(names) > 1 else 0)
    return float(np.diff(np.interp([within.begin, within.end], samples["time"], clock), axis=0).sum())


def beside_making(measures: Measures) -> float:
    """What was used while batches were made, but not by the threads that made them: by programs that they ran
    and waited for, and by threads of a library (ns)."""
    if not measures.num_workers:  # main's other threads may do anything else, and it may wait for another one's workers
        return 0.0 if Kind.WORKER_BEGIN in measures.kind else of_makers(measures, "children")
    return of_makers(measures, "children") + of_makers(measures, "cpu", "main_cpu")


def bytes_read(measures: Measures) -> float:
    """Those that were read, from files and pipes, while batches were made: but for the first ones, for which a dataset
    may open what it needs, and until a sample shows that."""
    first = measures.first_batches if measures.num_workers else measures.had[:1]
    begin, end = first["fetch_begin"], first["collate_end"] + SHOWN
    making = {pid: made.where(depth(begin, end, made.begin) == 0) for pid, made in makers(measures).items()}
    return sum(used(measures, pid, "read", within=made) for pid, made in making.items())


def of_makers(measures: Measures, *names: str) -> float:
    """What the workers, or else main, used of a sampled clock while they made batches (ns). ("cpu", "main_cpu" is what
    their other threads used: a feeder thread's share is small.)"""
    return sum(used(measures, pid, *names, within=made) for pid, made in makers(measures).items())


def cores_of_others(measures: Measures) -> float:
    """How many cores other programs kept busy on average. 0 if that is not known, as in a container that has a part of
    its machine's cores."""
    samples = measures.trace.samples
    machine = samples[(samples["busy"] >= 0) & (samples["idle"] >= 0)]
    grown = {name: float(np.diff(machine[name]).sum()) for name in ("time", "busy", "idle")}
    if not 0.75 <= (grown["busy"] + grown["idle"]) / max(1.0, grown["time"] * cores(measures)) <= 1.25:
        return 0.0
    within = Intervals(machine["time"][:1], machine["time"][-1:], np.zeros(1, np.int64), np.zeros(1, np.int64))
    pids = np.unique(samples["pid"])
    main, beside = measures.main_pid, pids[pids != measures.main_pid].tolist()
    # What main waited for has all that its workers used, also before their first sample, if they have ended.
    sampled = sum(used(measures, pid, name, within=within) for pid in beside for name in ("cpu", "children"))
    own = used(measures, main, "cpu", within=within) + max(sampled, used(measures, main, "children", within=within))
    others = (grown["busy"] - own) / grown["time"]
    return others if others > NOISE else 0.0


def crowded(measures: Measures) -> float:
    """How many cores other programs keep busy, if these are most of all, and more than the making of batches has: what
    looks like waiting may then be for a core. Else 0; also if making hardly computes, and so waits for something
    else."""
    others = cores_of_others(measures)
    crowd = others > max(cores_used(measures), MOST_OF_THEM * cores(measures))
    return others if crowd and not making_waits(measures) else 0.0
