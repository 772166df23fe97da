"""`tracing.whatif(trace, num_workers=(1, 2, 4), ...)`: how fast the recorded load would be with other options.

minidl's own loader replays the recorded durations (tracing.analysis.whatif.durations) on a simulated machine with as
many cores (tracing.analysis.whatif.simulated_replay), once for every setting. The recorded setting is always among
them: what is predicted for it can be compared with what was measured.

Legend
    grid     the settings: each combination of the values given
    best     the setting with the fewest workers of those that are nearly the fastest. All that keep nearly all cores
             busy count as equally fast: how a real machine shares out the rest is chance
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import TypeVar

from tracing.analysis.measure.capacity import ALL_CORES, Work, work
from tracing.analysis.measure.measures import NO_LOADER, Measures, measure
from tracing.analysis.measure.run_end import ended_early
from tracing.analysis.plain_text import wrap
from tracing.analysis.whatif import candidates
from tracing.analysis.whatif.durations import Durations, Setting, durations
from tracing.trace.trace import Trace

FORMAT = 1  # of the JSON
MOST = 240  # batches of a longer trace that are replayed
LARGEST = 256  # num_workers or prefetch_factor that is replayed
NEARLY = 0.03  # a setting slower by less than this share is as good
OFF = 0.1  # a note reports that the prediction for the recorded setting is wrong by more than this
BELIEVED = 0.25  # ... and if by more than this, nothing is recommended
PREFETCH = (1, 2, 4)  # tried, beside the recorded one, if no values are given

T = TypeVar("T", int, bool)


@dataclass(frozen=True)
class Prediction:
    """A setting, and how the load would do in it."""

    setting: Setting
    batches_per_second: float  # all epochs, start-up and shutdown included
    waiting: float  # the share of that time in which main does not train, 0 to 1
    busy: float  # cores, on average


@dataclass
class WhatIf:
    """`str()` is its text."""

    path: str  # of the trace
    loader: int
    rows: list[Prediction]
    recorded: Prediction  # as measured
    best: Prediction
    cores: float  # of the machine that it is replayed on
    recorded_cores: float  # of the machine that it was recorded on
    replayed: int  # batches, of ...
    batches: int  # ... those recorded
    notes: list[str] = field(default_factory=list)  # what is not known, or was chosen

    def __getitem__(self, setting: Setting) -> Prediction:
        """The prediction for a setting. KeyError: it was not among those tried."""
        for row in self.rows:
            if row.setting == setting:
                return row
        raise KeyError(setting)

    @property
    def off(self) -> float:
        """By how much the prediction for the recorded setting is too fast, or (below 0) too slow: 0.1 is 10 %. 0 for
        another machine, on which nothing was measured."""
        if self.cores != self.recorded_cores:
            return 0.0
        return self[self.recorded.setting].batches_per_second / self.recorded.batches_per_second - 1

    def __str__(self) -> str:
        return text(self)

    def to_json(self) -> str:
        """All of it."""
        return json.dumps({"format": FORMAT} | asdict(self), indent=1)


def whatif(
    trace: Trace,
    num_workers: int | Iterable[int] | None = None,
    prefetch_factor: int | Iterable[int] | None = None,
    in_order: bool | Iterable[bool] | None = None,
    persistent_workers: bool | Iterable[bool] | None = None,
    *,
    loader: int | None = None,
    cpus: float | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> WhatIf:
    """Predict the throughput of a recorded load in other settings: one value for each option, or several.

    Without values for `num_workers` and `prefetch_factor`, those that are likely to be the best are tried; the other
    options stay as recorded. `loader` is a loader's number; by default it is the one that took most of main's time.
    `cpus` is the number of cores, if not that of the recording's machine. `progress(done, all)` is called before each
    setting. ValueError: the trace has nothing to replay, or no such loader, or a loader would not accept a value.
    """
    if cpus is not None and not cpus > 0:
        raise ValueError(f"a machine has at least a part of a core, not {cpus}")
    measured = sorted(measure(trace), key=lambda each: -each.total) if len(trace) else []
    if measured and loader is not None:
        trace.iterators_of(loader)  # ValueError: there is none
        measured = [each for each in measured if each.loader == loader]
    if not measured:
        raise ValueError(NO_LOADER)
    whole = durations(measured[0])
    was = whole.setting
    grid = _grid(
        candidates.workers(whole) if num_workers is None else _values(num_workers),
        sorted({*PREFETCH, was.prefetch_factor}) if prefetch_factor is None else _values(prefetch_factor),
        [was.in_order] if in_order is None else _values(in_order),
        [was.persistent_workers] if persistent_workers is None else _values(persistent_workers),
    )
    return predict(measured[0], whole, [was, *(each for each in grid if each != was)], cpus, progress, len(measured))


def _values(given: T | Iterable[T]) -> list[T]:
    """One value, or several, as a list."""
    return list(dict.fromkeys(given)) if isinstance(given, Iterable) else [given]


def _grid(workers: list[int], prefetch: list[int], in_order: list[bool], persistent: list[bool]) -> list[Setting]:
    """Each combination; without workers the other options mean nothing. ValueError: a loader would not accept it."""
    for name, values, least in (("num_workers", workers, 0), ("prefetch_factor", prefetch, 1)):
        for value in values:
            if type(value) is not int or value < least:
                raise ValueError(f"no loader takes {name}={value!r}")
            if value > LARGEST:
                raise ValueError(f"{name}={value} would be replayed for hours: {LARGEST} is the most")
    found = [Setting(*each) for each in itertools.product(workers, prefetch, in_order, persistent)]
    return list(dict.fromkeys(each if each.num_workers else Setting(0) for each in found))


def predict(
    measures: Measures,
    whole: Durations,
    settings: list[Setting],
    cpus: float | None = None,
    progress: Callable[[int, int], None] | None = None,
    loaders: int = 1,
    most: int = MOST,
) -> WhatIf:
    """The first of `settings` is the recorded one. At most `most` batches are replayed, or four for each that may be
    outstanding."""
    from tracing.analysis.whatif.simulated_replay import fitted, replay_load  # imports minidl's loader: a second

    times = fitted(whole.excerpt(max(most, *(4 * each.num_workers * each.prefetch_factor for each in settings))))
    cores = cpus or times.cores
    rows = []
    for done, setting in enumerate(settings):
        if progress is not None:
            progress(done, len(settings))
        run = replay_load(times, setting, cores)
        rate = whole.batches * whole.epochs / run.total
        rows.append(Prediction(setting, rate, 1 - run.trained / run.total, times.cpu * rate))
    total, trained = measures.total, measures.away.total
    rate = len(whole) * 1e9 / total
    recorded = Prediction(settings[0], rate, 1 - trained / total, times.cpu * rate)
    found = WhatIf(
        path=str(measures.trace.path),
        loader=measures.loader,
        rows=sorted(rows, key=lambda row: row.setting),
        recorded=recorded,
        best=best(rows, cores),
        cores=cores,
        recorded_cores=times.cores,
        replayed=len(times),
        batches=len(whole),
    )
    found.notes += _notes(found, times, measures, loaders)
    return found


def best(rows: list[Prediction], cores: float) -> Prediction:
    """The cheapest of those that are nearly the fastest: the fewest workers, then the least prefetch (but two rather
    than one, which leaves no reserve for what the recording has not seen), then in order."""

    def sure(row: Prediction) -> float:
        """Batches a second, at most as many as keep nearly all cores busy."""
        return row.batches_per_second * ALL_CORES * cores / max(row.busy, ALL_CORES * cores)

    def cost(row: Prediction) -> tuple[float, ...]:
        workers, prefetch, in_order, persistent = vars(row.setting).values()
        return workers, prefetch < 2, prefetch, not in_order, persistent, -row.batches_per_second

    enough = (1 - NEARLY) * max(map(sure, rows))
    return min((row for row in rows if sure(row) >= enough), key=cost)


def _notes(found: WhatIf, times: Durations, measures: Measures, loaders: int) -> list[str]:
    """What to know before you trust the table."""
    notes = []
    was, chosen = found.recorded.setting, found.best
    if ended_early(measures):
        notes.append(
            f"The run ended early, after {found.batches:,} batches: the predictions are for a run of that length, in "
            "which the start-up has more weight than in a longer one."
        )
    if abs(found.off) > OFF:
        notes.append(
            f"The recorded setting itself comes out {_off(found)}: the other numbers are no more exact than that."
        )
    if chosen.batches_per_second < (1 - NEARLY) * max(row.batches_per_second for row in found.rows):
        notes.append(
            f"All settings that keep more than {ALL_CORES:.0%} of the cores busy count as equally fast, and the one "
            "with the fewest workers as the best."
        )
    if not was.num_workers:
        notes.append(
            "The trace has no workers: the time to start one, and to send a batch from one process to another, is not "
            "known. With torch's loader it is taken to be what small batches usually take, and otherwise not counted. "
            "Record a short run with num_workers=1 to have it counted."
        )
    elif not times.cores_known:
        how = (
            "use a core (what main computes is not recorded)" if times.trains_on else "wait: the workers were too quick"
        )
        notes.append(f"The training step is assumed to {how}.")
    if was.num_workers and not times.cores_known and work(measures) is Work.MIXED:
        notes.append(
            "The workers had a core for less than half of the time in which they made batches. The part of that which "
            "this load itself does not explain is assumed to be waiting for storage or a network. If other programs "
            "had the cores, more workers gain less."
        )
    if (measures.tasks["stream_end"] >= 0).any():
        notes.append(
            "The dataset is iterable: it is assumed to divide the same batches among any number of workers, which then "
            "end at the same time."
        )
    if found.cores == found.recorded_cores and not measures.trace.about.get("cpus"):
        notes.append("The number of cores of the machine is not known: one is assumed.")
    if loaders > 1:
        notes.append(f"Of {loaders} loaders this is number {found.loader}, which took most of main's time.")
    if found.cores != found.recorded_cores:
        notes.append(f"It was recorded on {cores_in_words(found.recorded_cores)}.")
    return notes


# ---- text

COLUMNS = {  # field of a Setting -> its heading in the table
    "num_workers": "workers",
    "prefetch_factor": "prefetch",
    "in_order": "in order",
    "persistent_workers": "persist",
}


def options(setting: Setting, beside: Setting | None = None) -> str:
    """As arguments: "num_workers=4, prefetch_factor=2", and whatever else differs from the setting `beside`."""
    return ", ".join(
        f"{name}={value}"
        for name, value in vars(setting).items()
        if name == "num_workers"
        or (setting.num_workers and (name == "prefetch_factor" or (beside and value != vars(beside)[name])))
    )


def cores_in_words(cores: float) -> str:
    return f"{cores:g} core{'s' if cores != 1 else ''}"


def text(found: WhatIf) -> str:
    recorded, chosen = found.recorded, found.best
    what = f"{found.replayed:,} of {found.batches:,}" if found.replayed < found.batches else f"{found.batches:,}"
    replayed = f"{what} batches of {found.path}, replayed in virtual time on {cores_in_words(found.cores)}"
    if abs(found.off) > BELIEVED:
        choice = f"unknown: the replay of the recorded setting itself comes out {_off(found)}"
    elif chosen.setting == recorded.setting:
        choice = f"{options(chosen.setting)}, as recorded"
    else:
        times = chosen.batches_per_second / found[recorded.setting].batches_per_second
        rate = f"{chosen.batches_per_second:,.1f} batches a second, {times:.2f} times what the recorded setting gives"
        choice = f"{options(chosen.setting, recorded.setting)}: {rate}"
    lines = [*wrap("What if  ", replayed), *wrap("Best     ", choice), "", *_table(found), ""]
    return "\n".join(lines + [line for note in found.notes for line in wrap("Note: ", note)])


def _off(found: WhatIf) -> str:
    return f"{abs(found.off):.0%} too {'fast' if found.off > 0 else 'slow'}"


def _table(found: WhatIf) -> list[str]:
    shown = [
        name
        for name in COLUMNS
        if name in ("num_workers", "prefetch_factor") or len({vars(row.setting)[name] for row in found.rows}) > 1
    ]
    heads = [*(COLUMNS[name] for name in shown), "batches/s", "main waits", "cores"]
    lines = ["".join(f"{head:>11}" for head in heads)]
    for row in found.rows:
        cells = [vars(row.setting)[name] for name in shown]
        words = [str(cell) if type(cell) is int else "yes" if cell else "no" for cell in cells]
        if not row.setting.num_workers:
            words[1:] = ["-"] * (len(words) - 1)
        words += [f"{row.batches_per_second:,.1f}", f"{row.waiting:.0%}", f"{row.busy:.1f}"]
        mark = "best" if row is found.best and abs(found.off) <= BELIEVED else ""
        if row.setting == found.recorded.setting:
            measured = f"measured: {found.recorded.batches_per_second:,.1f}, {found.recorded.waiting:.0%}"
            mark = ", ".join(filter(None, (mark, f"recorded ({measured})")))
        lines.append(f"{''.join(f'{word:>11}' for word in words)}   {mark}".rstrip())
    return lines
