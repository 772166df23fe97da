"""The verdict: of what limits a load (tracing.analysis.report.causes), the most expensive cause, unless all cost too
little to matter.

Not everything that costs time is a problem. What happens once an epoch may cost more than what happens with every
batch. And where main hardly waits once every worker has made its first batch, the waiting before that does not count.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tracing.analysis.measure.capacity import cores_are_the_limit, more_workers
from tracing.analysis.measure.measures import Measures
from tracing.analysis.report.causes import ONCE_AN_EPOCH, WAITING_CAUSES, Verdict, costs
from tracing.trace.thread_activity import MainTime

MATTERS = 0.05  # a cause that costs less than this share of main's time is no problem ...
MATTERS_ONCE = 0.25  # ... or less than this, if it comes once an epoch: even a short load has to begin and to end
MOSTLY = 0.8  # of main's time: where training takes this share of it, that is the limit, whatever else costs some
GAINS = 0.03  # what would save less than this share of main's time is not worth changing
CLOSE = 0.5  # a second cause that costs more than this share of the first is reported too
IDLE = 0.5  # workers that are idle for more than this share of the training could be fewer


@dataclass
class Judgement:
    """What limits a load, and what every cause costs. Costs are in ns of main's time."""

    verdict: Verdict
    cost: int  # of the verdict's cause; of a load without a problem, what the training takes
    close: dict[Verdict, int]  # other causes that cost nearly as much, the most expensive first
    costs: dict[Verdict, int]  # of each cause


def judge(measures: Measures) -> Judgement:
    """What limits the load."""
    found = costs(measures)
    if not (measures.tasks["yielded"] >= 0).any():
        return Judgement(Verdict.NOTHING, 0, {}, found)
    limits = {verdict: MATTERS_ONCE if verdict in ONCE_AN_EPOCH else MATTERS for verdict in found}
    if steady_wait(measures) < MATTERS:
        limits |= dict.fromkeys(WAITING_CAUSES, math.inf)
    serious = {verdict: cost for verdict, cost in found.items() if cost >= limits[verdict] * measures.total}
    enough_workers = measures.num_workers == 0
    if Verdict.WORKERS in serious and not cores_are_the_limit(measures):
        _, gain = more_workers(measures, serious[Verdict.WORKERS])
        if gain < GAINS * measures.total:
            enough_workers = True
            del serious[Verdict.WORKERS]
    by_cost = sorted(serious.items(), key=lambda each: -each[1])
    training = measures.spent[MainTime.TRAINING]
    if serious and training >= MOSTLY * measures.total:
        return Judgement(Verdict.TRAINING, training, dict(by_cost), found)
    if serious:
        (verdict, cost), *others = by_cost
        return Judgement(verdict, cost, {other: its for other, its in others if its >= CLOSE * cost}, found)
    fast_enough = enough_workers or measures.spare > IDLE * measures.away.total
    return Judgement(Verdict.TRAINING if fast_enough else Verdict.HEALTHY, training, {}, found)


def warm_up(measures: Measures) -> np.ndarray:
    """Which of `measures.requests` came before every worker had made its first batch of the epoch: bool."""
    epochs = measures.requests[0]["epoch"]
    _, first, which = np.unique(epochs, return_index=True, return_inverse=True)
    return np.arange(1, len(epochs) + 1) - first[which] < measures.num_workers  # the epoch's batch 0 is no request


def steady_wait(measures: Measures) -> float:
    """The share of its time that main waits after the warm-up, 0 to 1; 1 if the load is too short to tell."""
    rows, asked, had = measures.requests
    steady = ~warm_up(measures)
    if not measures.num_workers or steady.sum() < measures.num_workers:
        return 1.0
    waited = int((had - asked)[steady].sum())
    trained = int((rows["asked"] - had)[steady & (rows["asked"] >= 0)].sum())
    return waited / max(1, waited + trained)
