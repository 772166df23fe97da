"""Who had the cores, and who waited for a lock: what the recording's samples tell, which events do not.

A sample has what each process and its main thread have used so far, how long that thread was ready to run and had no
core, and whether it waits for a lock that processes share. Between two samples (a tenth of a second) use is taken to be
even. Without samples, as in older traces, nothing is known, and everything here is 0, or None.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from minidl.events import Kind, Queue
from tracing.analysis.measure.measures import Measures
from tracing.trace.intervals import Intervals, depth
from tracing.trace.thread_activity import MainTime

ENOUGH = 20  # samples: a share of them is off by 0.2 at most, as good as always


def worker_pids(measures: Measures, worker: int) -> list[int]:
    """The processes that were this worker, one in each iterator."""
    group = measures.trace.index.group
    begun = [group(each.number, Kind.WORKER_BEGIN, Queue.NONE, worker).array[:1] for each in measures.iterators]
    return [int(measures.events["value"][position]) for positions in begun for position in positions]


def _work_of_each(measures: Measures) -> Iterator[tuple[list[int], Intervals]]:
    """Of each worker: its processes, and when they made batches."""
    return ((worker_pids(measures, worker), made) for worker, made in enumerate(measures.made))


def used(measures: Measures, pids: Iterable[int], *names: str, within: Intervals | None = None) -> float:
    """What these processes used of a sampled clock ("cpu"; "cpu", "main_cpu" is their difference), in ns; by default in
    all of their lives, else within these stretches of time."""
    total = 0.0
    for pid in pids:
        samples = measures.samples[measures.samples["pid"] == pid]
        if len(samples) < 2 or any((samples[name] < 0).any() for name in names):
            continue
        clock = samples[names[0]] - (samples[names[1]] if len(names) > 1 else 0)
        if within is None:
            total += float(clock[-1] - clock[0])
        else:
            total += float(np.diff(np.interp([within.begin, within.end], samples["time"], clock), axis=0).sum())
    return total


def program(measures: Measures) -> float:
    """How many cores all processes of the program kept busy on average, while it recorded."""
    samples = measures.samples
    if len(samples) < 2:
        return 0.0
    return used(measures, np.unique(samples["pid"]).tolist(), "cpu") / int(samples["time"][-1] - samples["time"][0])


def without_core(measures: Measures) -> float:
    """The share of the time in which the workers made batches, 0 to 1, that they were ready to run and had no core."""
    lacked = sum(used(measures, pids, "main_delay", within=made) for pids, made in _work_of_each(measures))
    return min(1.0, lacked / max(1, sum(made.total for made in measures.made)))


def of_programs(measures: Measures) -> float:
    """What programs that the workers ran, and waited for, used while the workers made batches (ns)."""
    return sum(used(measures, pids, "children", within=made) for pids, made in _work_of_each(measures))


def in_lock(measures: Measures) -> float | None:
    """The share of the time in which the workers made batches that they waited for a lock that processes share, 0 to 1;
    None: there are too few samples of it."""
    found = []
    for pids, made in _work_of_each(measures):
        of_it = measures.samples[np.isin(measures.samples["pid"], pids) & (measures.samples["in_lock"] >= 0)]
        found.append(of_it["in_lock"][depth(made.begin, made.end, of_it["time"]) > 0])
    all_of_them = np.concatenate(found) if found else np.empty(0)
    return float(all_of_them.mean()) if len(all_of_them) >= ENOUGH else None


def beside_main(measures: Measures) -> tuple[float, float]:
    """While main's thread is at work in the loader (unpickles, keeps its books): how many cores the other threads of
    its process use, and what of the time main itself has a core or waits for one, 0 to 1."""
    at_work = measures.main_in(MainTime.TAKING, MainTime.HANDLING)
    main, length = [measures.main_pid], max(1, at_work.total)
    others = used(measures, main, "cpu", "main_cpu", within=at_work)
    own = used(measures, main, "main_cpu", within=at_work) + used(measures, main, "main_delay", within=at_work)
    return others / length, min(1.0, own / length)
