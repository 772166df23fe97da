"""Why: sentences with numbers, and for each number the stretches of the trace that it is computed from.

A number in a sentence comes from one of its `Number`s: the total, the longest or the mean of its stretches, or its
share of another Number. A test computes them all again from the events.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tracing.analysis.measure import culprits
from tracing.analysis.measure.measures import Measures
from tracing.analysis.report.savings import Promise
from tracing.trace.intervals import Intervals, Span, concatenate
from tracing.trace.thread_activity import MainTime
from tracing.trace.words import duration

ELSEWHERE = 0.01  # of the run: less than this in other loaders is not mentioned


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
    next: list[str]  # other than options to change
    look_at: Span | None = None  # the part of the trace that shows it best
    named: str = ""  # who or what the verdict is about: "worker 1, pid 4711"
    keep: tuple[str, ...] = ()  # options not to change: a replay would promise too much
    promises: list[Promise] = field(default_factory=list)  # what `next` promises, in that order


# ---- what several verdicts report


def run(measures: Measures) -> Number:
    return Number("the run", measures.run)


def waiting(measures: Measures) -> Reason:
    """What main's time went to, with its longest requests."""
    whole, steps = run(measures), Number("longest step", measures.main_in(MainTime.TRAINING))
    elsewhere = Number("longest elsewhere", measures.main_in(MainTime.ELSEWHERE).joined())
    waits = Number("longest wait", measures.waits)
    numbers = [whole, steps, elsewhere, waits] if elsewhere.ns > ELSEWHERE * whole.ns else [whole, steps, waits]
    also = f", {elsewhere} in other loaders and their steps," if elsewhere in numbers else ""
    text = f"of {whole}, main spent {steps} in the training step{also} and {waits} ({waits.share_of(whole)}) waiting "
    text += "for batches"
    if waits.longest:
        longest = measures.waits.longest(1)
        task = measures.events["task"][longest.last[0]]
        text += f", longest for batch {task} ({duration(longest.total)})"
    return Reason(text, numbers)


def busy(measures: Measures, more: str = "") -> Reason:
    """How busy the workers were, and `more` about that."""
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
    return Reason(f"{text}; {more}" if more else text, [making, life, core])


def seen_at(measures: Measures) -> tuple[str, str]:
    """In which line the workers were seen most often, "train.py:14, Rows.__getitem__", and that as evidence; "" if in
    none."""
    if (found := culprits.waits_at(measures)) is None:
        return "", ""
    line, times, looks = found
    return str(line._replace(source="")), f"they were seen at {line} in {times} of {looks} looks"


def median(measures: Measures, name: str, begin: str, end: str) -> Number:
    """How long a stage took for the median batch."""
    return Number(name, measures.between(measures.tasks, begin, end).median())


@dataclass
class Collating:
    """What to say where collating is most of making a batch."""

    name: str  # of the function; "" if it is not
    reasons: list[Reason]


def collating(measures: Measures) -> Collating:
    collated = culprits.collating(measures)
    if collated is None:
        return Collating("", [])
    name = f"collate_fn {measures.config.get('collate_fn', '')}".strip()
    made = Number("longest to make", measures.between(measures.tasks, "fetch_begin", "collate_end"))
    took = Number("longest to collate", collated)
    text = f"{took.share_of(made)} of making a batch is collating: {duration(took.mean)} on average, in {name}"
    return Collating(name, [Reason(text, [took, made])])
