"""Why: sentences with numbers, each number with the stretches of the trace that it is computed from.

A number in a sentence is, of one of its `Shown`: the length of all stretches together, or that of the longest, or the
mean; or the share that one Shown is of another. A test computes all of them again from the events.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tracing.analysis.measure.measures import Measures
from tracing.analysis.report.verdicts import FINE, MATTERS, WAITS, Verdict, costs, warm_up
from tracing.trace.intervals import Intervals, Span, concatenate
from tracing.trace.places import Place
from tracing.trace.words import duration


@dataclass
class Shown:
    """A number, and where in the trace it can be seen."""

    name: str  # of one stretch, "wait", as the report has it before the events of the longest
    stretches: Intervals = field(repr=False)
    most: int = 1  # so many of the longest are named
    clock: str = "time"  # field of the events whose difference counts: "value" for CPU time
    over: int = 0  # the mean is that of so many, if not of the stretches

    @property
    def ns(self) -> int:
        """All stretches together."""
        return self.stretches.total

    @property
    def mean(self) -> float:
        return self.ns / max(1, self.over or len(self.stretches.begin))

    @property
    def longest(self) -> list[Span]:
        """The events that begin and end the longest ones, longest first."""
        return self.stretches.longest(self.most).spans

    @property
    def first(self) -> Span | None:
        """The longest of all."""
        return self.longest[0] if self.longest else None

    def __str__(self) -> str:
        return duration(self.ns)


@dataclass
class Reason:
    """A sentence, and the numbers in it."""

    text: str
    shown: list[Shown] = field(default_factory=list)

    @property
    def spans(self) -> list[Span]:
        """Of all that is shown."""
        return [span for each in self.shown for span in each.longest]


@dataclass
class Explanation:
    why: list[Reason]
    next: list[str]
    look: Span | None = None  # the part of the trace to look at


def of(part: Shown, whole: Shown) -> str:
    """The share that one is of the other, in words."""
    return f"{part.ns / max(1, whole.ns):.0%}"


# ---- what several verdicts say


def run(measures: Measures) -> Shown:
    return Shown("the run", measures.run)


def waiting(measures: Measures) -> Reason:
    """What main's time went to, with its longest requests."""
    whole, steps = run(measures), Shown("longest step", measures.main_in(Place.TRAINING))
    waits = Shown("longest wait", measures.waits)
    text = f"of {whole}, main spent {steps} in the training step and {waits} ({of(waits, whole)}) waiting for batches"
    if waits.longest:
        longest = measures.waits.longest(1)
        task = measures.events["task"][longest.last[0]]
        text += f", longest for batch {task} ({duration(longest.total)})"
    return Reason(text, [whole, steps, waits])


def busy(measures: Measures) -> Reason:
    """How busy the workers were."""
    made = measures.between(measures.tasks[measures.tasks["worker"] >= 0], "fetch_begin", "collate_end")
    value = measures.events["value"]
    on_core = Intervals(value[made.first], value[made.last], made.first, made.last)
    lived = [measures.lived(worker) for worker in range(measures.num_workers)]
    making, life = Shown("longest to make", made), Shown("a worker's life", concatenate(lived))
    core = Shown("most on a core", on_core, clock="value")
    text = (
        f"the workers were making batches for {of(making, life)} of their time, {duration(making.mean)} each in the "
        f"mean; they used a core for {of(core, making)} of that"
    )
    return Reason(text, [making, life, core])


def median(measures: Measures, name: str, begin: str, end: str) -> Shown:
    """Of a stage: the batch for which it took as long as in the median."""
    return Shown(name, measures.between(measures.tasks, begin, end).median())


def excused(measures: Measures, verdict: Verdict, cost: int) -> list[Reason]:
    """What costs something too, and why it is not the verdict."""
    found, total, fine = costs(measures), measures.total, verdict in FINE
    reasons = []
    for once, name, place in (
        (Verdict.STARTUP, "start-up", Place.STARTUP),
        (Verdict.SHUTDOWN, "shutdown", Place.SHUTDOWN),
    ):
        if once is not verdict and found[once] >= MATTERS * total and (fine or found[once] > cost):
            took, whole = Shown(name, measures.main_in(place).joined()), run(measures)
            reasons.append(
                Reason(
                    f"{name} took {took} ({of(took, whole)} of all), but it comes once in an epoch: the longer that "
                    "is, the less it weighs",
                    [took, whole],
                )
            )
    waits = Shown("longest wait", measures.waits)
    early = measures.waits.where(np.flatnonzero(warm_up(measures))).total
    if fine and sum(found.get(each, 0) for each in WAITS) >= 0.01 * total and early > waits.ns / 2:
        text = (
            f"what is left is {waits} ({of(waits, run(measures))}) of waiting for batches, most of it before every "
            "worker had made its first one, which comes once in an epoch too"
        )
        reasons.append(Reason(text, [waits, run(measures)]))
    return reasons
