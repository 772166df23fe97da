"""Workers and cores: do the workers compute or wait, are the cores the limit, how many workers could keep up?"""

from __future__ import annotations

import enum
import math

import numpy as np

from tracing.analysis.measure import cpu
from tracing.analysis.measure.measures import Measures

ALL_CORES = 0.8  # when the workers use more than this share of all cores, more workers would not help
COMPUTING = 0.5  # a worker that uses a core for more than this share of its working time computes ...
WAITING = 0.1  # ... and below this it waits; between the two it does both, or waits for a core


class Work(enum.Enum):
    """What the workers do while they make batches."""

    COMPUTES = "they compute"
    WAITS = "they wait: for storage, a network, a lock"
    MIXED = "they compute, and wait for the rest"


def cores(measures: Measures) -> int:
    """How many cores the recorded program could use; 0 if that is not known."""
    return int(measures.trace.about.get("cpus") or 0)


def cores_used(measures: Measures) -> float:
    """How many cores the workers (and the pin thread) kept busy on average, from an epoch's first fetch to its last
    batch. What main uses is not counted."""
    rows = measures.tasks
    made = rows["collate_end"] >= 0
    used = sum(int(np.maximum(rows[name], 0)[made].sum()) for name in ("fetch_cpu", "collate_cpu", "pin_cpu"))
    used += int(cpu.of_programs(measures))
    epoch, begin, end = (rows[name][made] for name in ("epoch", "fetch_begin", "collate_end"))
    epochs = [epoch == each for each in np.unique(epoch)]
    return used / max(1, sum(int(end[each].max() - begin[each].min()) for each in epochs))


def cores_are_the_limit(measures: Measures) -> bool:
    return 0 < ALL_CORES * cores(measures) <= cores_used(measures)


def computing(measures: Measures) -> float:
    """The share of a core that a worker uses while it makes a batch, 0 to 1, were it never to wait for a core."""
    rows = measures.tasks
    made = rows["collate_end"] >= 0
    used = int((np.maximum(rows["fetch_cpu"], 0) + np.maximum(rows["collate_cpu"], 0))[made].sum())
    share = (used + cpu.of_programs(measures)) / max(1, int((rows["collate_end"] - rows["fetch_begin"])[made].sum()))
    return min(1.0, share / max(0.01, 1 - cpu.without_core(measures)))


def work(measures: Measures) -> Work:
    """What the workers do."""
    share = computing(measures)
    return Work.COMPUTES if share >= COMPUTING else Work.WAITS if share < WAITING else Work.MIXED


def more_workers(measures: Measures, cost: int) -> tuple[int, int]:
    """How many workers could keep up with the training, if the cores allow it; and what they should save (ns)."""
    workers, training = measures.num_workers, max(1, measures.away.total)
    wanted = min(math.ceil(int(measures.stage("fetch_begin", "collate_end").sum()) / training), 8 * workers)
    if cores(measures):
        wanted = min(wanted, int(workers * cores(measures) / max(0.01, cores_used(measures))))
    wanted = max(workers + 1, wanted)
    return wanted, int(min(cost, (training + cost) * (1 - workers / wanted)))
