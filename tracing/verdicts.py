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
"""

from __future__ import annotations

import enum

from tracing.measures import Measures, Place

MATTERS = 0.05  # a cause that costs less than this share of main's time is no problem ...
MATTERS_ONCE = 0.25  # ... or, if it comes once in an epoch, less than this: a short load always has to begin and to end
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
    once = Verdict.STARTUP, Verdict.SHUTDOWN
    limits = {verdict: (MATTERS_ONCE if verdict in once else MATTERS) * measures.total for verdict in Verdict}
    found = {verdict: cost for verdict, cost in costs(measures).items() if cost >= limits[verdict]}
    if found:
        worst = max(found, key=lambda verdict: found[verdict])
        return worst, found[worst]
    training = measures.spent[Place.TRAINING]
    idle = measures.num_workers == 0 or measures.spare > IDLE * training
    return (Verdict.TRAINING if idle else Verdict.HEALTHY), training
