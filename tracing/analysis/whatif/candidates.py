"""Which settings are worth a try: those that a loader with the recorded durations could gain from.

Legend
    times    Durations     what was recorded
    workers  [0, 1, 2, 4]  values of num_workers
"""

from __future__ import annotations

import math

from tracing.analysis.whatif.durations import Durations

WORKERS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
PREFETCH = (2, 4, 8, 16, 32)
HEADROOM = 1.5  # more workers than keep up on average: batches differ, and workers take time to start
FEWEST_TRIED = 4  # workers, whatever the training needs: the average hides bursts


def workers(times: Durations) -> list[int]:
    """None, the recorded number, and others: as many as could keep up with the training, but no more than there are
    cores for what they compute."""
    making = times.making_cpu.mean() + times.making_wait.mean()
    computing = times.making_cpu.mean() / making if making else 1.0  # the share of a core that a worker at work uses
    keep_up = HEADROOM * making / max(times.training.mean(), making / WORKERS[-1], 1e-9)
    most = min(max(FEWEST_TRIED, math.ceil(keep_up)), most_computing(times.cores, computing))
    return sorted({each for each in (*WORKERS, most) if each <= most} | {times.setting.num_workers})


def most_computing(cores: float, computing: float) -> int:
    """How many workers the cores have room for, if each uses one for this share of its time (0 to 1)."""
    return max(1, int(min(WORKERS[-1], cores / max(computing, 1e-9))))


def prefetch(times: Durations, num_workers: int) -> list[int]:
    """Values of prefetch_factor, the recorded one included. More than the epoch has batches for is no use."""
    most = math.ceil(times.batches / max(1, num_workers))
    return sorted({each for each in PREFETCH if each <= most} | {times.setting.prefetch_factor})
