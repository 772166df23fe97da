"""Who had the cores while a load was recorded: how long its threads computed, how long they were ready to and had no
core, and what other programs took. By the samples of its processes (`trace.samples`).

Legend
    cpu, delay  2.5, 1.5   s: a thread used a core for 2.5 s, and waited 1.5 s for one
    speed       0.625      of a thread that computes: 2.5 / (2.5 + 1.5)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minidl.events import Kind, Queue
from tracing.analysis.measure.measures import Measures
from tracing.trace.event_index import Lane
from tracing.trace.thread_activity import MainTime

SECOND = 1e9  # ns
FEWEST = 3  # samples of main, below which they show too little
NOISE = 0.1  # cores: a system uses so much for itself
IN_LOADER = {
    MainTime.HANDLING: 1.0,
    MainTime.DRAWING: 1.0,
    MainTime.TAKING: 0.5,
}  # the share on a core, if there is one


@dataclass(frozen=True)
class Threads:
    """The main thread of a process, or those of several processes together."""

    cpu: float  # s
    delay: float  # s
    helpers: float = 0.0  # cores that the other threads of the process used while this one did, on average

    @property
    def speed(self) -> float:
        return self.cpu / (self.cpu + self.delay) if self.cpu else 1.0

    def delay_of(self, cpu: float) -> float:
        """How long the threads wait for a core while they compute for so long (s)."""
        return cpu * self.delay / self.cpu if self.cpu else 0.0


@dataclass(frozen=True)
class CoreUse:
    main: Threads
    main_trains: float  # s of main's CPU that are not the loader's
    workers: Threads
    others: float  # threads of other programs that computed all the time, or as many as together came to that
    lost_to_others: float  # s that main waited for cores which other programs had


def core_use(measures: Measures) -> CoreUse | None:
    """What the samples show of this loader's epochs. None: there are too few."""
    samples, run = measures.trace.samples, measures.run
    lane = measures.trace.index.lane(measures.iterators[0].number, Lane.MAIN).array
    main_pid = measures.trace.actors[int(measures.events["actor"][lane[0]])].pid
    mine = samples[samples["pid"] == main_pid]
    if len(mine) < FEWEST or (mine["main_delay"] < 0).any():
        return None

    def grown(rows: np.ndarray, *names: str) -> float:
        """By how much these have grown during the run (s)."""
        total = sum(rows[name] for name in names)
        ends = (np.interp(at, rows["time"], total) for at in (run.end, run.begin))
        return float(np.subtract(*ends).sum()) / SECOND

    cpu, of_all = grown(mine, "main_cpu"), grown(mine, "cpu")
    main = Threads(cpu, grown(mine, "main_delay"), max(0.0, of_all - cpu) / cpu if cpu else 0.0)
    in_loader = main.speed * sum(measures.spent[use] * share for use, share in IN_LOADER.items()) / SECOND
    loading = measures.tasks[measures.tasks["worker"] < 0]
    made = sum(float(np.maximum(loading[name], 0).sum()) for name in ("fetch_cpu", "collate_cpu", "pin_cpu")) / SECOND
    trains = float(np.clip(cpu - in_loader - made, 0.0, main.speed * measures.away.total / SECOND))

    used = of_all
    pids = np.unique(samples["pid"])
    worker_cpu = worker_delay = feeders = 0.0
    workers = _worker_pids(measures)
    for pid in pids[pids != main_pid].tolist():
        rows = samples[samples["pid"] == pid]
        used += grown(rows, "cpu", "children")
        if pid in workers:
            worker_cpu += grown(rows, "main_cpu")
            worker_delay += grown(rows, "main_delay")
            feeders += grown(rows, "cpu") - grown(rows, "main_cpu")
    threads = Threads(worker_cpu, worker_delay, max(0.0, feeders) / worker_cpu if worker_cpu else 0.0)
    speed = Threads(cpu + worker_cpu, main.delay + worker_delay).speed
    machine = mine[(mine["busy"] >= 0) & (mine["idle"] >= 0)]
    others, ours = 0.0, (worker_cpu + worker_delay + main.cpu * main.helpers) / (run.total / SECOND)
    if len(machine) >= FEWEST:
        others = (grown(machine, "busy") + max(0.0, grown(machine, "steal")) - used) / (run.total / SECOND)
    others = others / speed if others > NOISE else 0.0
    return CoreUse(main, trains, threads, others, main.delay * others / (others + ours) if others else 0.0)


def _worker_pids(measures: Measures) -> set[int]:
    """Of all processes that were workers of this loader."""
    groups = [
        measures.trace.index.group(each.number, Kind.WORKER_BEGIN, Queue.NONE, worker).array
        for each in measures.iterators
        for worker in range(each.num_workers)
    ]
    return set(measures.events["value"][np.concatenate([np.empty(0, np.int64), *groups])].tolist())
