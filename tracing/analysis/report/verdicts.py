"""The rules of the report: what limits a load.

Each rule estimates how much of main's time its cause costs. Costs do not overlap: a second that main waits is counted
once, by the rule that explains it. The verdict is the most expensive cause, unless all cost too little to matter.

cause          what it costs
hold-up        main waits for a batch that is being made, while finished ones are in the reorder buffer and workers idle
prefetch       of the rest of that waiting: what workers that were idle while main trained could have made up
pinning        main waits for a batch that is with the pin thread, or waits for it, and at least half of the workers
               have nothing to do
moving         main waits for a batch that is finished and elsewhere on its way, and at least half of the workers have
               nothing to do
workers        all other waiting: they work, but it is not enough; without workers, main makes the batches itself
sampler        main asks the sampler for keys
start-up       from the beginning of an epoch to its first batch, less the time that making a batch takes
shutdown       from the beginning of the shutdown to its end

Not everything that costs time is a problem. What happens once an epoch may cost more than what happens with every
batch. And where main hardly waits once every worker has made its first batch, the waiting before that does not count.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

import numpy as np

from tracing.analysis.measure.capacity import cores_are_the_limit, more_workers
from tracing.analysis.measure.measures import Measures
from tracing.analysis.measure.stages import startup_cost
from tracing.trace.thread_activity import MainTime

MATTERS = 0.05  # a cause that costs less than this share of main's time is no problem ...
MATTERS_ONCE = 0.25  # ... or less than this, if it comes once an epoch: even a short load has to begin and to end
GAINS = 0.03  # what would save less than this share of main's time is not worth changing
CLOSE = 0.5  # a second cause that costs more than this share of the first is reported too
IDLE = 0.5  # workers that are idle for more than this share of the training could be fewer


class Verdict(enum.Enum):
    """What limits the load."""

    NOTHING = "there is nothing to judge: no batch was yielded"
    HEALTHY = "no problem found: main hardly waits, and the workers are well used"
    TRAINING = "the training step is the limit"
    WORKERS = "the workers are the limit"
    NO_WORKERS = "main makes the batches itself, and does not train meanwhile"
    HOLD_UP = "one batch holds up the others"
    MOVING = "moving batches is the limit"
    PINNING = "pinning is the limit"
    STARTUP = "start-up is the limit"
    PREFETCH = "too little prefetch"
    SAMPLER = "drawing keys is the limit"
    SHUTDOWN = "shutdown is slow"


# Causes of waiting for a batch. They count only if main still waits once every worker has made its first one.
WAITING_CAUSES = (Verdict.HOLD_UP, Verdict.PREFETCH, Verdict.WORKERS, Verdict.MOVING, Verdict.PINNING)
ONCE_AN_EPOCH = (Verdict.STARTUP, Verdict.SHUTDOWN)
NO_PROBLEM = (Verdict.HEALTHY, Verdict.TRAINING)  # nothing is wrong with the loader


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
    if serious:
        (verdict, cost), *others = sorted(serious.items(), key=lambda each: -each[1])
        return Judgement(verdict, cost, {other: its for other, its in others if its >= CLOSE * cost}, found)
    training = measures.spent[MainTime.TRAINING]
    fast_enough = enough_workers or measures.spare > IDLE * training
    return Judgement(Verdict.TRAINING if fast_enough else Verdict.HEALTHY, training, {}, found)


def costs(measures: Measures) -> dict[Verdict, int]:
    """What each cause costs, in ns of main's time."""
    spent = measures.spent
    found = {
        Verdict.SAMPLER: spent[MainTime.DRAWING],
        Verdict.STARTUP: startup_cost(measures),
        Verdict.SHUTDOWN: spent[MainTime.SHUTDOWN],
    }
    if measures.num_workers == 0:
        return found | {Verdict.NO_WORKERS: spent[MainTime.LOADING]}
    hold_up, moving, pinning = map(measures.length, (measures.held_up, measures.on_its_way, measures.in_pin_thread))
    prefetch = min(measures.length(measures.during("made")) - hold_up, measures.spare)
    rest = measures.length(measures.during("made", "moved", "pinned")) - hold_up - prefetch - moving - pinning
    return found | {
        Verdict.HOLD_UP: hold_up,
        Verdict.PREFETCH: prefetch,
        Verdict.WORKERS: max(0, rest),  # (iterators that overlap in time wait for each other)
        Verdict.MOVING: moving,
        Verdict.PINNING: pinning,
    }


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
