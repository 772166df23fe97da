"""`tracing.whatif(trace, num_workers=(1, 2, 4), ...)`: how fast the recorded load would be with other options.

A model of the loader replays the recorded durations (tracing.analysis.whatif.durations) on a machine with as many cores
(tracing.analysis.whatif.replay), once for every setting. The recorded setting is always among
them: what is predicted for it can be compared with what was measured.

Legend
    grid     the settings: each combination of the values given
    best     the setting with the fewest workers of those that are nearly the fastest. All that keep nearly all cores
             busy count as equally fast: how a real machine shares out the rest is chance
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tracing.analysis.measure.cores import ALL_CORES
from tracing.analysis.measure.measures import NO_LOADER
from tracing.analysis.measure.waited import Judgement
from tracing.analysis.notes.run_end import ended_early, most_important_first
from tracing.analysis.whatif.durations import Setting
from tracing.analysis.whatif.promises import FEWER, Replays, number_of_workers
from tracing.trace.trace import Trace
from tracing.trace.words import wrap

OFF = 0.1  # a note reports that the prediction for the recorded setting is wrong by more than this
BELIEVED = 0.25  # ... and if by more than this, nothing is recommended
PREFETCH = (1, 2, 4)  # tried besides the recorded one if no values are given


@dataclass(frozen=True)
class Prediction:
    """A setting, and how the load would do in it."""

    setting: Setting
    batches_per_second: float  # all epochs, start-up and shutdown included
    in_loader: float  # the share of that time in which main is not in the training step, 0 to 1
    busy: float  # cores, on average


class WhatIf:
    """`str()` is its text."""

    def __init__(self, replays: Replays, rows: list[Prediction]) -> None:
        measures, times = replays.measures, replays.times
        rate = replays.recorded * 1e9 / measures.total
        in_loader = measures.in_loader.total / measures.total
        self.path = str(measures.trace.path)  # of the trace
        self.loader = measures.loaders[0]
        self.rows = rows
        self.recorded = Prediction(replays.was, rate, in_loader, times.cpu * rate)  # as measured
        self.best = best(rows, times.cores)
        self.cores = times.cores  # of the machine
        self.replayed = len(times)  # batches, of ...
        self.batches = replays.recorded  # ... those recorded
        self.notes = _notes(self, replays)  # what is not known, or was chosen

    def __getitem__(self, setting: Setting) -> Prediction:
        """The prediction for a setting. KeyError: it was not among those tried."""
        return {row.setting: row for row in self.rows}[setting]

    @property
    def off(self) -> float:
        """By how much the prediction for the recorded setting is too fast, or (below 0) too slow: 0.1 is 10 %."""
        return self[self.recorded.setting].batches_per_second / self.recorded.batches_per_second - 1

    def __str__(self) -> str:
        was, chosen = self.recorded.setting, self.best.setting
        what = f"{self.replayed:,} of {self.batches:,}" if self.replayed < self.batches else f"{self.batches:,}"
        cores = f"{self.cores:g} core{'s' * (self.cores != 1)}"
        replayed = f"{what} batches of {self.path}, replayed in virtual time on {cores}"
        choice = f"num_workers={chosen.num_workers}"  # as arguments: "num_workers=4, prefetch_factor=2"
        choice += f", prefetch_factor={chosen.prefetch_factor}" if chosen.num_workers else ""
        if abs(self.off) > BELIEVED:
            choice = f"unknown: the replay of the recorded setting itself comes out {_off(self)}"
        elif chosen == was:
            choice += ", as recorded"
        else:
            rate, before = self.best.batches_per_second, self[was].batches_per_second
            choice += f": {rate:,.1f} batches a second, {rate / before:.2f} times what the recorded setting gives"
        lines = [*wrap("What if  ", replayed), *wrap("Best     ", choice), "", *_table(self), ""]
        return "\n".join(lines + [line for note in self.notes for line in wrap("Note: ", note)])


def whatif(
    trace: Trace,
    num_workers: int | Iterable[int] | None = None,
    prefetch_factor: int | Iterable[int] | None = None,
    *,
    loader: int | None = None,
) -> WhatIf:
    """Predict the throughput of a recorded load in other settings: one value for each option, or several.

    Without values those that are likely to be the best are tried. All other options stay as recorded (what they save,
    the report says). `loader` is a loader's number; by default it is the one that the report puts first. ValueError:
    the trace has nothing to replay, or no such loader, or a loader would not accept a value.
    """
    measured = most_important_first(trace)
    others = len(measured) - 1 if loader is None else 0
    if measured and loader is not None:
        trace.index.iterators_of(loader)  # ValueError: there is none
        measured = [each for each in measured if loader in each.loaders]
    if not measured:
        raise ValueError(NO_LOADER)
    replays = Replays(measured[0], Judgement(measured[0]))
    was, measures = replays.was, replays.measures
    likely = [was.num_workers] if "num_workers" in replays.kept else number_of_workers(measures, replays.times)
    workers = likely if num_workers is None else _values("num_workers", num_workers, 0)
    prefetch = [*PREFETCH, was.prefetch_factor]
    prefetch = prefetch if prefetch_factor is None else _values("prefetch_factor", prefetch_factor, 1)
    grid = [replace(was, num_workers=each, prefetch_factor=ahead) for each in workers for ahead in prefetch]
    rows = [prediction(replays, setting) for setting in sorted({was, *grid})]
    found = WhatIf(replays, rows)
    if others:
        found.notes.append(f"Of {others + 1} loaders this is number {found.loader}, which costs main most.")
    return found


def _values(name: str, given: int | Iterable[int], least: int) -> list[int]:
    """One value, or several, as a list. ValueError: a loader would not accept one."""
    values = list(given) if isinstance(given, Iterable) else [given]
    for value in values:
        if type(value) is not int or value < least:
            raise ValueError(f"no loader takes {name}={value!r}")
    return values


def prediction(replays: Replays, setting: Setting) -> Prediction:
    run = replays.run(setting)
    rate = replays.batches / run.total
    return Prediction(setting, rate, 1 - run.trained / run.total, replays.times.cpu * rate)


def best(rows: list[Prediction], cores: float) -> Prediction:
    """The cheapest of those that are nearly the fastest: the fewest workers, then the least prefetch (but two rather
    than one, which leaves no reserve for what the recording has not seen)."""

    def sure(row: Prediction) -> float:
        """Batches a second, at most as many as keep nearly all cores busy."""
        return row.batches_per_second * ALL_CORES * cores / max(row.busy, ALL_CORES * cores)

    def cost(row: Prediction) -> tuple[float, ...]:
        workers, prefetch = row.setting.num_workers, row.setting.prefetch_factor
        return workers, prefetch < 2, prefetch, -row.batches_per_second

    enough = (1 - FEWER) * max(map(sure, rows))
    return min((row for row in rows if sure(row) >= enough), key=cost)


def _notes(found: WhatIf, replays: Replays) -> list[str]:
    """What to know before you trust the table."""
    fixed = "num_workers" in replays.kept
    unknown = f"The report's verdict is that {replays.judgement.verdict.value}: no replay knows what more workers do."
    early = "The run ended early: in a longer one the start-up has less weight than in these predictions."
    inexact = f"The recorded setting itself comes out {_off(found)}: the other numbers are no more exact than that."
    notes = {unknown: fixed, early: ended_early(replays.measures), inexact: abs(found.off) > OFF}
    return [note for note, holds in notes.items() if holds]


# ---- text


def _off(found: WhatIf) -> str:
    return f"{abs(found.off):.0%} too {'fast' if found.off > 0 else 'slow'}"


def _table(found: WhatIf) -> list[str]:
    lines = ["".join(f"{head:>11}" for head in ("workers", "prefetch", "batches/s", "in loader", "cores"))]
    for row in found.rows:
        workers, prefetch = row.setting.num_workers, row.setting.prefetch_factor
        words = [str(workers), str(prefetch) if workers else "-"]
        words += [f"{row.batches_per_second:,.1f}", f"{row.in_loader:.0%}", f"{row.busy:.1f}"]
        mark = "best" if row is found.best and abs(found.off) <= BELIEVED else ""
        if row.setting == found.recorded.setting:
            measured = f"measured: {found.recorded.batches_per_second:,.1f}, {found.recorded.in_loader:.0%}"
            mark = ", ".join(filter(None, (mark, f"recorded ({measured})")))
        lines.append(f"{''.join(f'{word:>11}' for word in words)}   {mark}".rstrip())
    return lines
