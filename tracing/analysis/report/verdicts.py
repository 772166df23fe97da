"""The rules of the report: what limits a load.

Each rule estimates how much of main's time its cause costs. Costs do not overlap: a second that main waits is counted
once, by the rule that explains it. The verdict is the most expensive one, unless all cost too little to matter.

cause          what it costs
hold-up        main waits for a batch that is being made, while finished ones lie in the reorder buffer and workers idle
prefetch       of the rest of that waiting: as much as the workers, idle while main trained, could have worked ahead
pinning        main waits for a batch that the pin thread has, or that waits for that thread, and at least half of the
               workers have nothing to do
moving         main waits for a batch that is made and on its way otherwise, and ... as above
workers        all other waiting: they work, and it is not enough; without workers: main makes the batches itself
sampler        main asks the sampler for keys
start-up       from the beginning of an epoch to its first batch, less the time that making a batch takes
shutdown       from the beginning of the shutdown to its end

Not everything that costs is a problem. What comes once in an epoch may cost more than what comes with every batch; and
where main hardly waits any more as soon as every worker has made its first batch, its waiting before that is excused.
"""

from __future__ import annotations

import enum
import math

import numpy as np

from tracing.analysis.measure.capacity import cores_are_the_limit, more_workers
from tracing.analysis.measure.measures import Measures
from tracing.analysis.measure.stages import startup_cost
from tracing.trace.places import Place

MATTERS = 0.05  # a cause that costs less than this share of main's time is no problem ...
MATTERS_ONCE = 0.25  # ... or, if it comes once in an epoch, less than this: a short load always has to begin and to end
GAINS = 0.03  # what would save less than this share of main's time is not worth changing
CLOSE = 0.5  # a second cause that costs more than this share of the first is told, too
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


# Costs of waiting for a batch. They weigh only if main still waits when every worker has made its first one.
WAITS = (Verdict.HOLD_UP, Verdict.PREFETCH, Verdict.WORKERS, Verdict.MOVING, Verdict.PINNING)
ONCE = (Verdict.STARTUP, Verdict.SHUTDOWN)  # these come once in an epoch
FINE = (Verdict.HEALTHY, Verdict.TRAINING)  # nothing is wrong with the loader


def costs(measures: Measures) -> dict[Verdict, int]:
    """What each cause costs, in ns of main's time."""
    spent = measures.spent
    found = {
        Verdict.SAMPLER: spent[Place.DRAWING],
        Verdict.STARTUP: startup_cost(measures),
        Verdict.SHUTDOWN: spent[Place.SHUTDOWN],
    }
    if measures.num_workers == 0:
        return found | {Verdict.NO_WORKERS: spent[Place.LOADING]}
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


def judge(measures: Measures) -> tuple[Verdict, int]:
    """The verdict, and what its cause costs (ns); of a load without a problem, what the training takes."""
    return verdicts(measures)[0]


def verdicts(measures: Measures) -> list[tuple[Verdict, int]]:
    """The verdict and what its cause costs, then the same of those that come close to it, the most expensive first."""
    if not (measures.tasks["yielded"] >= 0).any():
        return [(Verdict.NOTHING, 0)]
    limits = {verdict: (MATTERS_ONCE if verdict in ONCE else MATTERS) * measures.total for verdict in Verdict}
    if steady_wait(measures) < MATTERS:
        limits |= dict.fromkeys(WAITS, math.inf)
    found = {verdict: cost for verdict, cost in costs(measures).items() if cost >= limits[verdict]}
    enough = False
    if Verdict.WORKERS in found and not cores_are_the_limit(measures):
        _, gain = more_workers(measures, found[Verdict.WORKERS])
        if enough := gain < GAINS * measures.total:
            del found[Verdict.WORKERS]
    if found:
        worst = max(found.values())
        close = [(verdict, cost) for verdict, cost in found.items() if cost >= CLOSE * worst]
        return sorted(close, key=lambda each: -each[1])
    training = measures.spent[Place.TRAINING]
    enough = enough or measures.num_workers == 0 or measures.spare > IDLE * training
    return [(Verdict.TRAINING if enough else Verdict.HEALTHY, training)]


def warm_up(measures: Measures) -> np.ndarray:
    """Which of `measures.requests` came before every worker had made its first batch of the epoch: bool."""
    epochs = measures.requests[0]["epoch"]
    _, first, which = np.unique(epochs, return_index=True, return_inverse=True)
    return np.arange(1, len(epochs) + 1) - first[which] < measures.num_workers  # the epoch's batch 0 is no request


def steady_wait(measures: Measures) -> float:
    """The share of its time that main waits after the warm-up, 0 to 1; 1 for a load too short to have such a time."""
    rows, asked, had = measures.requests
    steady = ~warm_up(measures)
    if not measures.num_workers or steady.sum() < measures.num_workers:
        return 1.0
    waited = int((had - asked)[steady].sum())
    trained = int((rows["asked"] - had)[steady & (rows["asked"] >= 0)].sum())
    return waited / max(1, waited + trained)
