"""The rules of the report: what limits a load.

Each rule estimates how much of main's time its cause costs. Costs do not overlap: a second that main waits is counted
once, by the rule that explains it. The verdict is the most expensive one, unless all cost too little to matter.

cause          what it costs
hold-up        main waits for a batch that is being made, while finished ones lie in the reorder buffer and workers idle
prefetch       of the rest of that waiting: as much as the workers, idle while main trained, could have worked ahead
moving         main waits for a batch that is made and on its way, and at least half of the workers have nothing to do
pinning        main waits for a batch that the pin thread has, and ... as above
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

from tracing.measures import Measures, Place

MATTERS = 0.05  # a cause that costs less than this share of main's time is no problem ...
MATTERS_ONCE = 0.25  # ... or, if it comes once in an epoch, less than this: a short load always has to begin and to end
GAINS = 0.03  # what would save less than this share of main's time is not worth changing
ALL_CORES = 0.8  # workers that use more than this share of all cores would not do more if they were more
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
    spent, made = measures.spent, measures.waited_for("made")
    hold_up = min(made, measures.hold_up)
    prefetch = min(made - hold_up, measures.spare)
    found = {
        Verdict.SAMPLER: spent[Place.DRAWING],
        Verdict.STARTUP: measures.startup_cost,
        Verdict.SHUTDOWN: spent[Place.SHUTDOWN],
    }
    if measures.num_workers == 0:
        return found | {Verdict.NO_WORKERS: spent[Place.LOADING]}
    moving, pinning = measures.waited_for_while_idle("moved"), measures.waited_for_while_idle("pinned")
    later = measures.waited_for("moved") - moving + measures.waited_for("pinned") - pinning
    return found | {
        Verdict.HOLD_UP: hold_up,
        Verdict.PREFETCH: prefetch,
        Verdict.WORKERS: made - hold_up - prefetch + later,
        Verdict.MOVING: moving,
        Verdict.PINNING: pinning,
    }


def judge(measures: Measures) -> tuple[Verdict, int]:
    """The verdict, and what its cause costs (ns); of a load without a problem, what the training takes."""
    if not (measures.tasks["yielded"] >= 0).any():
        return Verdict.NOTHING, 0
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
        worst = max(found, key=lambda verdict: found[verdict])
        return worst, found[worst]
    training = measures.spent[Place.TRAINING]
    enough = enough or measures.num_workers == 0 or measures.spare > IDLE * training
    return (Verdict.TRAINING if enough else Verdict.HEALTHY), training


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


def cores_used(measures: Measures) -> float:
    """How many cores the workers (and the pin thread) kept busy in the mean, from an epoch's first fetch to its last
    batch. What main uses is not known, and not counted."""
    rows = measures.tasks[measures.tasks["collate_end"] >= 0]
    used = sum(int(np.maximum(rows[name], 0).sum()) for name in ("fetch_cpu", "collate_cpu", "pin_cpu"))
    epochs = (rows[rows["epoch"] == epoch] for epoch in np.unique(rows["epoch"]))
    return used / max(1, sum(int(each["collate_end"].max() - each["fetch_begin"].min()) for each in epochs))


def cores(measures: Measures) -> int:
    """Those that the recorded program could use; 0 if that is not known."""
    return int(measures.trace.about.get("cpus") or 0)


def cores_are_the_limit(measures: Measures) -> bool:
    return 0 < ALL_CORES * cores(measures) <= cores_used(measures)


def more_workers(measures: Measures, cost: int) -> tuple[int, int]:
    """How many workers could keep up with the training, as far as the cores reach; and what they should save (ns)."""
    workers, training = measures.num_workers, max(1, measures.spent[Place.TRAINING])
    wanted = min(math.ceil(int(measures.stage("fetch_begin", "collate_end").sum()) / training), 8 * workers)
    if cores(measures):
        wanted = min(wanted, int(workers * cores(measures) / max(0.01, cores_used(measures))))
    wanted = max(workers + 1, wanted)
    return wanted, int(min(cost, (training + cost) * (1 - workers / wanted)))
