"""`tracing.compare(before, after)`: two runs side by side. Which is faster, where the time went, do the keys differ?

Runs may differ in length, so what is compared is the time per batch. Loaders are paired in the order in which they
began. No two runs take the same time, so not every difference is real:

batches a second    real if the mean times from one batch to the next differ by more than twice their standard error
                    (of rounds, each of one batch per worker, since batches come in bursts)
all                 only if at least 3 % of the time per batch: less is not worth a line. (Stages are compared by their
                    medians, which a few disturbed batches do not change.)

Legend
    A, B     the first trace, and the second
    period   4_100_000    from one yielded batch to the next (ns)
"""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracing.analysis.measure.measures import Measures, epoch_ids, measure
from tracing.analysis.measure.waited import Judgement
from tracing.trace.task_events import keys_of
from tracing.trace.thread_activity import MainTime
from tracing.trace.trace import Trace
from tracing.trace.words import STAGES, duration, wrap

MATTERS = 0.03  # share of the time per batch: a smaller change is not reported
PLACES = {use: use.name.lower().replace("startup", "start-up") for use in MainTime if use is not MainTime.OUTSIDE}
FEWEST = 4  # rounds needed to estimate how much rounds differ


class Side:
    """One loader in one run, that yielded at least one batch. Times in ns."""

    def __init__(self, measures: Measures) -> None:
        stages = {name: measures.stage(*hops) for name, hops in STAGES.items()}
        self.config = measures.config
        self.verdict = Judgement(measures).verdict.value
        self.batches = measures.batches
        self.per_batch = measures.total / self.batches  # main's time, all epochs from beginning to end, over these
        self.error = _error(measures)  # standard error of the mean time from one batch to the next
        # What main did -> how long, for a batch.
        self.places = {name: measures.spent[place] / self.batches for place, name in PLACES.items()}
        self.stages = {name: float(np.median(lengths)) for name, lengths in stages.items() if len(lengths)}  # medians
        # (ordinal of the epoch, batch) -> its keys, one epoch after the other
        self.keys = _keys(measures)


@dataclass
class Change:
    """A number in both runs, in ns."""

    name: str
    before: float
    after: float
    real: bool  # worth reporting

    def __str__(self) -> str:
        return f"{self.name} {duration(self.before)} → {duration(self.after)}"


class LoaderComparison:
    """A loader of one run and its counterpart in the other."""

    def __init__(self, before: Side, after: Side) -> None:
        self.before, self.after = before, after
        floor = MATTERS * max(before.per_batch, after.per_batch)
        chance = 2 * math.hypot(before.error, after.error)
        self.faster = before.per_batch / after.per_batch  # batches a second in the second run, over those in the first
        self.real = abs(before.per_batch - after.per_batch) >= max(floor, chance)  # not mere chance
        was, is_ = before.config, after.config
        # name -> what was configured differently
        self.configs = {name: (was.get(name), is_.get(name)) for name in was | is_ if was.get(name) != is_.get(name)}
        self.places = _changes(before.places, after.places, floor)  # of main's time, a batch
        self.stages = _changes(before.stages, after.stages, floor)  # medians of those that both runs have
        both = [place for place in before.keys if place in after.keys]
        self.compared = len(both)  # batches whose keys both runs have
        # Epoch and batch of the first keys that differ; None: none of `compared`.
        self.differ = next((place for place in both if before.keys[place] != after.keys[place]), None)

    def sentence(self) -> str:
        """The answer in one sentence: what was configured differently, and where main's time and the stages
        changed most. (How long a batch waits in a queue follows from these.)"""
        was, is_ = duration(self.before.per_batch), duration(self.after.per_batch)
        times = self.faster if self.faster >= 1 else 1 / self.faster
        found = f"B is {times:.2f}× as {'fast' if self.faster >= 1 else 'slow'}: {was} → {is_} a batch"
        work = [change for change in self.stages if not change.name.startswith("in ")]
        reasons = [f"{name} {was} → {is_}" for name, (was, is_) in self.configs.items() if len(f"{was}{is_}") < 40]
        for each in (self.places, work):
            most = max(each, key=lambda change: abs(change.before - change.after), default=None)
            reasons += [str(most)] if most and most.real else []
        found += f" ({'; '.join(reasons)})" if reasons else ""
        return f"{found}." if self.real else f"No real difference: {was} and {is_} a batch."


class Comparison:
    """`str()` is its text."""

    def __init__(self, before: Trace, after: Trace) -> None:
        sides = [[Side(each) for each in measure(trace) if each.batches] for trace in (before, after)]
        numbers = "A has {} loaders that yielded batches, and B has {}.".format(*map(len, sides))
        self.before, self.after = str(before.path), str(after.path)
        self.loaders = [LoaderComparison(one, other) for one, other in zip(*sides, strict=False)]
        # If loaders have no counterpart.
        self.note = numbers if not self.loaders or len(sides[0]) != len(sides[1]) else ""

    def __str__(self) -> str:
        lines = [f"A  {self.before}", f"B  {self.after}"]
        for number, each in enumerate(self.loaders, 1):
            lines += ["", *[f"Loader {number} of {len(self.loaders)}"] * (len(self.loaders) > 1), *_text(each)]
        return "\n".join(line.rstrip() for line in [*lines, self.note]).rstrip()


def compare(before: Trace, after: Trace) -> Comparison:
    """Compare two traces, finished or not. A loader that yielded nothing counts as missing."""
    return Comparison(before, after)


def _changes(before: dict[str, float], after: dict[str, float], floor: float) -> list[Change]:
    """Of what both have, if either took any time at all."""
    both = [(name, was, after[name]) for name, was in before.items() if name in after]
    return [Change(name, was, is_, abs(was - is_) >= floor) for name, was, is_ in both if was or is_]


# ---- one run


def _error(measures: Measures) -> float:
    """The standard error of the mean period (ns). Workers that began together finish together: batches come in bursts,
    and a long period after short ones is not chance. So it is estimated from rounds of one batch per worker; if there
    are too few, from the periods themselves."""
    epochs = epoch_ids(measures.had)
    periods = np.diff(measures.had["yielded"])[epochs[1:] == epochs[:-1]]
    size = max(1, measures.num_workers)
    count = len(periods) // size
    if count >= FEWEST:
        periods = periods[: count * size].reshape(count, size).mean(axis=1)
    return float(periods.std() / math.sqrt(len(periods))) if len(periods) else 0.0


def _keys(measures: Measures) -> dict[tuple[int, int], Any]:
    rows = measures.tasks[measures.tasks["keys_drawn"] >= 0]
    _, epochs = np.unique(epoch_ids(rows), return_inverse=True)
    keys = (keys_of(measures.trace, *row) for row in rows[["loader", "epoch", "task"]].tolist())
    places = zip(epochs.tolist(), rows["task"].tolist(), strict=True)
    return dict(zip(places, keys, strict=True))


# ---- text


def _text(each: LoaderComparison) -> list[str]:
    before, after = each.before, each.after
    lines = [*wrap("", each.sentence()), "", _row("", "A", "B")]
    lines.append(_row("batches", f"{before.batches:,}", f"{after.batches:,}"))
    lines.append(_row("batches a second", *(f"{1e9 / side.per_batch:,.1f}" for side in (before, after))))
    for name, values in each.configs.items():
        lines.append(_row(name, *(textwrap.shorten(str(value), 20, placeholder="…") for value in values)))
    lines += ["", f"Main's time per batch (* changed by {MATTERS:.0%} of that or more)", *map(_change, each.places)]
    lines += ["", "Stages of a batch, medians", *map(_change, each.stages)]
    lines += ["", *wrap("Verdict of A  ", before.verdict), *wrap("Verdict of B  ", after.verdict)]
    keys = f"the same in the {each.compared:,} batches that both have drawn"
    if each.differ is not None:
        keys = "they differ from batch {1} of epoch {0} on".format(*each.differ)
    return lines + wrap("Keys          ", keys)


def _row(name: str, one: str, other: str, note: str = "") -> str:
    return f"  {name:22}{one:>20}{other:>20}  {note}"


def _change(change: Change) -> str:
    difference = change.after - change.before
    note = f"{'+' if difference >= 0 else '-'}{duration(abs(difference))}{' *' * change.real}"
    return _row(change.name, duration(change.before), duration(change.after), note)
