"""`tracing.compare(before, after)`: two runs side by side. Which is faster, where the time went, do the keys differ?

Runs may differ in length, so what is compared is the time per batch. Loaders are paired in the order in which they
began. No two runs take the same time, so not every difference is real:

batches a second    real if the mean times from one batch to the next differ by more than twice their standard error
                    (of rounds, each of one batch per worker, since batches come in bursts)
stages              real if the medians' notches (median ± 1.57 IQR / √n) do not overlap: McGill, Tukey and Larsen,
                    Variations of Box Plots, 1978
both                only if also at least 3 % of the time per batch: less is not worth a line

Legend
    A, B     the first trace, and the second
    period   4_100_000    from one yielded batch to the next (ns)
"""

from __future__ import annotations

import json
import math
import textwrap
from dataclasses import asdict, dataclass, field
from itertools import zip_longest
from typing import Any

import numpy as np

from minidl.events import Kind
from tracing.analysis.measure.measures import MainTime, Measures, measure
from tracing.analysis.plain_text import WIDTH, wrap
from tracing.analysis.report.verdicts import judge
from tracing.trace.trace import Trace
from tracing.trace.words import STAGES, duration

FORMAT = 1  # of the JSON
MATTERS = 0.03  # share of the time per batch: a smaller change is not reported
FEWEST = 4  # rounds needed to estimate how much rounds differ
NOTCH = 1.57  # times the interquartile range, over the root of the count
PLACES = {  # of main -> in words
    MainTime.STARTUP: "start-up",
    MainTime.TRAINING: "training",
    MainTime.WAITING: "waiting",
    MainTime.DRAWING: "drawing keys",
    MainTime.TAKING: "unpickling",
    MainTime.LOADING: "loading itself",
    MainTime.HANDLING: "bookkeeping",
    MainTime.SHUTDOWN: "shutdown",
    MainTime.ELSEWHERE: "elsewhere",
}


@dataclass
class Side:
    """One loader in one run. Times in ns."""

    loader: int
    config: dict[str, Any]
    verdict: str
    batches: int  # yielded
    total: int  # main's time, all epochs from beginning to end
    per_batch: float  # total / batches
    period: float  # mean time from one batch to the next within an epoch
    period_error: float  # standard error of it
    places: dict[str, float]  # what main did -> ns a batch
    stages: dict[str, tuple[float, float]]  # stage -> median, and half of its notch


@dataclass
class Change:
    """A number in both runs, in ns."""

    name: str
    before: float
    after: float
    real: bool  # larger than chance, and worth reporting

    def __str__(self) -> str:
        return f"{self.name} {duration(self.before)} → {duration(self.after)}"


@dataclass
class KeyDifference:
    """The first batch that is made of different keys."""

    epoch: int
    batch: int
    before: Any
    after: Any


@dataclass
class LoaderComparison:
    """A loader of one run and its counterpart in the other."""

    before: Side
    after: Side
    faster: float  # batches a second in the second run, over those in the first
    real: bool  # that is more than chance
    configs: dict[str, tuple[Any, Any]]  # name -> what was configured differently
    places: list[Change]  # of main's time, ns a batch
    stages: list[Change]  # medians of those that both runs have
    keys: KeyDifference | None  # None: the same keys in the same order, as far as both runs go
    batches_compared: int  # whose keys both runs have

    def sentence(self) -> str:
        """The answer, in one sentence."""
        was, is_ = duration(self.before.per_batch), duration(self.after.per_batch)
        if self.real:
            times = self.faster if self.faster >= 1 else 1 / self.faster
            speed = f"B is {times:.2f}× as {'fast' if self.faster >= 1 else 'slow'}: {was} → {is_} a batch"
            speed += f" ({'; '.join(self.reasons())})" if self.reasons() else ""
        else:
            speed = f"No real difference: {was} and {is_} a batch"
        if not self.batches_compared:
            return f"{speed}."
        return f"{speed}; {'the two drew different keys' if self.keys else 'the same keys in the same order'}."

    def reasons(self) -> list[str]:
        """What was configured differently; where main's time changed most; and which work did. (How long a batch waits
        in a queue follows from these.)"""
        found = [f"{name} {was} → {is_}" for name, (was, is_) in self.configs.items() if len(f"{was}{is_}") < 40]
        work = [change for change in self.stages if not change.name.startswith("in ")]
        found += [str(max(group, key=_size)) for group in (self.places, work) if any(map(_size, group))]
        return found


@dataclass
class Comparison:
    """`str()` is its text."""

    before: str  # path of the trace
    after: str
    loaders: list[LoaderComparison]
    alone: list[str] = field(default_factory=list)  # a line for each loader without a counterpart

    def __str__(self) -> str:
        lines = [f"A  {self.before}", f"B  {self.after}"]
        for number, each in enumerate(self.loaders):
            lines += ["", *([f"Loader {number + 1} of {len(self.loaders)}"] if len(self.loaders) > 1 else [])]
            lines += _text(each)
        return "\n".join(line.rstrip() for line in [*lines, *self.alone])

    def to_json(self) -> str:
        """All of it; times in ns."""
        document = {"format": FORMAT} | asdict(self)
        for each, source in zip(document["loaders"], self.loaders, strict=True):
            each["sentence"] = source.sentence()
        return json.dumps(document, indent=1, default=str)


def compare(before: Trace, after: Trace) -> Comparison:
    """Compare two traces, finished or not. A loader that yielded nothing counts as missing."""
    found: list[LoaderComparison] = []
    alone: list[str] = []
    pairs = zip_longest(_that_yielded(before), _that_yielded(after))
    for one, other in pairs:
        if one is not None and other is not None:
            found.append(_compare(one, other))
        else:
            measures, name = (one, "A") if one is not None else (other, "B")
            alone.append(f"Only {name} has a loader number {measures.loader} that yielded batches.")
    if not found and not alone:
        alone = ["Neither run yielded a batch: there is nothing to compare."]
    return Comparison(str(before.path), str(after.path), found, alone)


def _that_yielded(trace: Trace) -> list[Measures]:
    return [each for each in measure(trace) if (each.tasks["yielded"] >= 0).any()] if len(trace) else []


def _compare(one: Measures, other: Measures) -> LoaderComparison:
    before, after = side(one), side(other)
    floor = MATTERS * max(before.per_batch, after.per_batch)
    error = 2 * math.hypot(before.period_error, after.period_error)
    difference = before.per_batch - after.per_batch
    keys, compared = first_difference(one, other)
    return LoaderComparison(
        before=before,
        after=after,
        faster=before.per_batch / after.per_batch,
        real=abs(difference) >= max(floor, error),
        configs={
            name: (before.config.get(name), after.config.get(name))
            for name in {**before.config, **after.config}
            if before.config.get(name) != after.config.get(name)
        },
        places=[
            Change(name, was, after.places[name], abs(was - after.places[name]) >= floor)
            for name, was in before.places.items()
            if was or after.places[name]
        ],
        stages=[_stage_change(name, before, after, floor) for name in before.stages if name in after.stages],
        keys=keys,
        batches_compared=compared,
    )


def side(measures: Measures) -> Side:
    """A loader that yielded at least one batch."""
    batches = int((measures.tasks["yielded"] >= 0).sum())
    periods = _periods(measures)
    stages = {name: measures.stage(*hops) for name, hops in STAGES.items()}
    return Side(
        loader=measures.loader,
        config=measures.config,
        verdict=judge(measures).verdict.value,
        batches=batches,
        total=measures.total,
        per_batch=measures.total / batches,
        period=float(periods.mean()) if len(periods) else 0.0,
        period_error=_error(periods, measures.num_workers),
        places={name: measures.spent[place] / batches for place, name in PLACES.items()},
        stages={name: _median(lengths) for name, lengths in stages.items() if len(lengths)},
    )


def _periods(measures: Measures) -> np.ndarray:
    """From each batch to the next of its epoch (ns)."""
    rows = measures.tasks[measures.tasks["yielded"] >= 0]
    rows = rows[np.lexsort((rows["yielded"], rows["epoch"]))]
    return np.diff(rows["yielded"])[rows["epoch"][1:] == rows["epoch"][:-1]]


def _error(periods: np.ndarray, workers: int) -> float:
    """The standard error of their mean (ns). Workers that began together finish together: batches come in bursts, and
    a long period after short ones is not chance. So it is estimated from rounds of one batch per worker; if there are
    too few, from the periods themselves."""
    size = max(1, workers)
    count = len(periods) // size
    if count >= FEWEST:
        periods = periods[: count * size].reshape(count, size).mean(axis=1)
    return float(periods.std() / math.sqrt(len(periods))) if len(periods) else 0.0


def _median(lengths: np.ndarray) -> tuple[float, float]:
    """The median and half of its notch."""
    low, median, high = np.percentile(lengths, (25, 50, 75)).tolist()
    return median, NOTCH * (high - low) / math.sqrt(len(lengths))


def _stage_change(name: str, before: Side, after: Side, floor: float) -> Change:
    (was, was_notch), (is_, is_notch) = before.stages[name], after.stages[name]
    return Change(name, was, is_, abs(was - is_) > max(was_notch + is_notch, floor))


def _size(change: Change) -> float:
    """How much it explains: nothing if it is not real."""
    return abs(change.before - change.after) if change.real else 0.0


# ---- keys


def drawn(measures: Measures) -> dict[tuple[int, int], Any]:
    """(ordinal of the epoch, batch) -> its keys, in the order in which they were drawn."""
    found: dict[tuple[int, int], Any] = {}
    epochs: dict[int, int] = {}
    for iterator in measures.iterators:
        for position in measures.trace.index.group(iterator.number, Kind.KEYS_DRAWN).array.tolist():
            event = measures.events[position]
            epoch = epochs.setdefault(int(event["epoch"]), len(epochs))
            found[epoch, int(event["task"])] = measures.trace.text(position)
    return found


def first_difference(one: Measures, other: Measures) -> tuple[KeyDifference | None, int]:
    """The first batch with different keys among those that both have drawn; and how many those are."""
    before, after = drawn(one), drawn(other)
    both = [place for place in before if place in after]
    for epoch, batch in both:
        if before[epoch, batch] != after[epoch, batch]:
            return KeyDifference(epoch, batch, before[epoch, batch], after[epoch, batch]), len(both)
    return None, len(both)


# ---- text


def _text(each: LoaderComparison) -> list[str]:
    before, after = each.before, each.after
    lines = [*wrap("", each.sentence()), "", _row("", "A", "B")]
    lines.append(_row("batches", f"{before.batches:,}", f"{after.batches:,}"))
    lines.append(_row("batches a second", *(f"{side.batches * 1e9 / side.total:,.1f}" for side in (before, after))))
    for name, values in each.configs.items():
        lines.append(_row(name, *(textwrap.shorten(str(value), 20, placeholder="…") for value in values)))
    lines += ["", "Main's time per batch", *map(_change, each.places)]
    lines += ["", "Stages of a batch, medians (* changed by more than chance)"]
    lines += [_change(change, mark=" *") for change in each.stages]
    lines += ["", *wrap("Verdict of A  ", before.verdict), *wrap("Verdict of B  ", after.verdict)]
    return lines + _keys(each)


def _row(name: str, one: str, other: str, note: str = "") -> str:
    return f"  {name:22}{one:>20}{other:>20}  {note}"


def _change(change: Change, mark: str = "") -> str:
    difference = change.after - change.before
    note = f"{'+' if difference >= 0 else '-'}{duration(abs(difference))}{mark if change.real else ''}"
    return _row(change.name, duration(change.before), duration(change.after), note)


def _keys(each: LoaderComparison) -> list[str]:
    if each.keys is None:
        return wrap("Keys          ", f"the same in the {each.batches_compared:,} batches that both have drawn")
    place = f"they differ from batch {each.keys.batch} of epoch {each.keys.epoch} on:"
    found = wrap("Keys          ", place)
    for name, keys in (("A", each.keys.before), ("B", each.keys.after)):
        found += [f"{'':14}{name} {textwrap.shorten(str(keys), WIDTH - 16, placeholder=' ...]')}"]
    return found
