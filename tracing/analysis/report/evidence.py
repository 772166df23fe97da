"""Why: sentences with numbers, and for each number the stretches of the trace that it is computed from.

A number in a sentence comes from one of its `Number`s: the total, the longest or the mean of its stretches, or its
share of another Number. A test computes them all again from the events.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tracing.analysis.measure.measures import Measures
from tracing.trace.intervals import Intervals, Span, concatenate
from tracing.trace.thread_activity import MainTime
from tracing.trace.words import duration


@dataclass
class Number:
    """A number, and where in the trace it can be seen."""

    name: str  # of one stretch: the text puts "longest wait" before the events of the longest
    stretches: Intervals = field(repr=False)
    most: int = 1  # how many of the longest to name
    clock: str = "time"  # the field of the events whose difference counts: "value" for CPU time
    over: int = 0  # the mean is per this many, instead of per stretch

    @property
    def ns(self) -> int:
        """All stretches together."""
        return self.stretches.total

    @property
    def mean(self) -> float:
        return self.ns / max(1, self.over or len(self.stretches.begin))

    @property
    def longest(self) -> list[Span]:
        """The events that begin and end the longest stretches, longest first."""
        return self.stretches.longest(self.most).spans

    @property
    def first(self) -> Span | None:
        """The longest of all."""
        return self.longest[0] if self.longest else None

    def share_of(self, whole: Number) -> str:
        return f"{self.ns / max(1, whole.ns):.0%}"

    def __str__(self) -> str:
        return duration(self.ns)


@dataclass
class Reason:
    """A sentence, and the numbers in it."""

    text: str
    numbers: list[Number] = field(default_factory=list)

    @property
    def spans(self) -> list[Span]:
        """The longest stretches of all its numbers."""
        return [span for number in self.numbers for span in number.longest]


@dataclass
class Explanation:
    """Why a verdict is right, and what to do next."""

    why: list[Reason]
    next: list[str]
    look_at: Span | None = None  # the part of the trace that shows it best


# ---- what several verdicts report


def run(measures: Measures) -> Number:
    return Number("the run", measures.run)


def waiting(measures: Measures) -> Reason:
    """What main's time went to, with its longest requests."""
    whole, steps = run(measures), Number("longest step", measures.main_in(MainTime.TRAINING))
    waits = Number("longest wait", measures.waits)
    text = f"of {whole}, main spent {steps} in the training step and {waits} ({waits.share_of(whole)}) waiting for "
    text += "batches"
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
    making, life = Number("longest to make", made), Number("a worker's life", concatenate(lived))
    core = Number("most on a core", on_core, clock="value")
    text = (
        f"the workers were making batches for {making.share_of(life)} of their time, {duration(making.mean)} each on "
        f"average; they used a core for {core.share_of(making)} of that"
    )
    return Reason(text, [making, life, core])


def median(measures: Measures, name: str, begin: str, end: str) -> Number:
    """How long a stage took for the median batch."""
    return Number(name, measures.between(measures.tasks, begin, end).median())
