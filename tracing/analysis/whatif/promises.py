"""Which options of the DataLoader to change, and what that saves: the recorded load is replayed with others, one
option at a time.

A number is promised only where the replay of the recorded setting itself is off by less than a part of what the change
should save; otherwise the advice says in which direction to go. Where that part is less than any replay can be off by,
nothing is advised. And nothing is promised that the trace contradicts: an option saves no more than the cost of the
causes that it can cure (`num_workers=0` may: the steps are quicker, too), the recorded number of workers does not make
batches in less time than it took, and where workers wait for each other, no more are advised; nor where other programs
have the cores. There is no number then, nor where the first workers would share most of the cores with main.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from minidl.events import Kind
from tracing.analysis.measure import culprits
from tracing.analysis.measure.cores import cores_are_the_limit, crowded, making_waits
from tracing.analysis.measure.measures import Measures
from tracing.analysis.measure.waited import MATTERS, Judgement, Verdict
from tracing.analysis.whatif.durations import SECOND, Durations, Setting
from tracing.analysis.whatif.replay import Replay, fitted
from tracing.trace.stacks import MAIN
from tracing.trace.words import duration

MOST = 1000  # batches of a longer trace that are replayed
FEWER = 0.03  # a cheaper setting that is slower by less than this share is as good
PART = 0.25  # the gain must differ from what is promised by less than this part of it
EXACT = 0.03  # the share of the time that a replay may be off by, whatever it replays
BUSY = 0.5  # of the cores: where more are used, each may be slower
FACTORS = (2, 4, 8, 16, 32)  # prefetch_factor

CURES: dict[str, tuple[Verdict, ...]] = {  # an option -> what costs less if it is changed
    "num_workers": tuple(Verdict),
    "in_order": (Verdict.HOLD_UP, Verdict.PREFETCH),
    "prefetch_factor": (Verdict.PREFETCH, Verdict.HOLD_UP),
    "persistent_workers": (Verdict.STARTUP, Verdict.SHUTDOWN),
}

# Options not to change: a replay does not know how a stream would be divided, what the workers wait for, or why they
# do not exit.
KEPT: dict[Verdict | None, tuple[str, ...]] = {
    Verdict.SHARES: tuple(CURES),
    Verdict.TURNS: ("num_workers", "prefetch_factor", "in_order"),
    Verdict.SHUTDOWN: ("num_workers",),
}


@dataclass(frozen=True)
class Change:
    """An option to change, and what that saves."""

    text: str  # advice, in words
    options: dict[str, Any]
    saves_ns: int | None  # what is promised; None: no number can be relied on


def changes(measures: Measures, judgement: Judgement) -> list[Change]:
    """What to change, the most useful first; empty if nothing helps, or nothing can be replayed."""
    try:
        replays = Replays(measures, judgement)
    except ValueError:  # too little was loaded
        return []
    return [replays.advice(each) for each in replays.best_first()]


class Replays:
    """Replays of one load, each setting once."""

    def __init__(self, measures: Measures, judgement: Judgement) -> None:
        self.measures, self.judgement, self.crowded = measures, judgement, crowded(measures) > 0
        whole = Durations(measures)
        self.was, self.recorded = whole.setting, len(whole)
        self.batches = whole.batches * whole.epochs  # that a replay stands for
        self.times = fitted(whole.excerpt(MOST))
        self.kept = KEPT.get(judgement.verdict, ())  # options not to change
        self.making = float((whole.making_cpu + whole.making_wait).sum())  # by all workers together (s), ...
        # ... and by the one that makes most, where no other can do that: its part of a stream.
        own = measures.made if measures.config.get("iterable") else []
        self.most_by_one = max((each.total for each in own), default=0) / SECOND
        self.run = functools.cache(functools.partial(Replay, self.times))
        self.off = self.taken(self.was) / (measures.total / SECOND) - 1  # above 0: the replay is slower

    def taken(self, setting: Setting) -> float:
        """How long the whole load takes in this setting (s): as replayed, but at least as long as its workers need, if
        they are no fewer than recorded. (Fewer may each be quicker, since they share the cores.)"""
        needed = 0.0
        if 0 < self.was.num_workers <= setting.num_workers:
            needed = max(self.making / setting.num_workers, self.most_by_one)
        return max(self.run(setting).total, needed)

    def share_saved(self, setting: Setting) -> float:
        """Of the time, compared with the recorded setting: below 1, and below 0 for a loss."""
        saved = 1 - self.taken(setting) / self.taken(self.was)
        # Without workers the steps are quicker, too, which is no cost of the loader.
        return min(saved, self.curable(self.changed(setting))) if setting.num_workers else saved

    def curable(self, option: str) -> float:
        """The share of the time that this option can save at most."""
        return sum(self.judgement.costs.get(each, 0) for each in CURES[option]) / self.measures.total

    def changed(self, setting: Setting) -> str:
        """The option to change."""
        return next(name for name, value in vars(setting).items() if value != vars(self.was)[name])

    def best_first(self) -> list[Setting]:
        """The best value of each option that helps. Only what saves more than the replay is off by."""
        found = [each for name in CURES if name not in self.kept for each in self._best_value(name)]
        found.sort(key=self.share_saved, reverse=True)
        return [each for each in found if self.share_saved(each) >= abs(self.off)]

    def _best_value(self, name: str) -> list[Setting]:
        """The recorded setting, with the best value of this option: the cheapest of those that are nearly the fastest.
        Empty if none is worth the change."""
        tried = [replace(self.was, **{name: value}) for value in self._values(name)]
        enough = min(map(self.taken, tried), default=0.0) * (1 + FEWER)
        cheapest = [each for each in tried if self.taken(each) <= enough][:1]
        return [each for each in cheapest if PART * self.share_saved(each) >= EXACT]

    def _values(self, name: str) -> list[Any]:
        """Other values of an option, the cheapest first; none, if it could cure too little."""
        workers, tried = self.was.num_workers, number_of_workers(self.measures, self.times)
        # Whether more workers are served, by the cores or by what they wait for, is not known.
        unknown = self.crowded or (workers > 0 and making_waits(self.measures))
        medians = [float(np.median(made.length)) for made in self.measures.made if len(made.length)]
        if max(medians, default=0.0) > 2 * min(medians, default=0.0):  # how long one more would take is not known
            tried = [each for each in tried if each == 0]
        values: dict[str, list[Any]] = {
            "num_workers": [each for each in tried if each <= workers or not unknown],
            "prefetch_factor": [each for each in FACTORS if 0 < each * workers <= self.times.batches],
            "in_order": [False] * (workers > 1),
            "persistent_workers": [True] * (workers > 0 and self.times.epochs > len(self.measures.loaders)),
        }
        return [value for value in values[name] if value != vars(self.was)[name] and self.curable(name) >= MATTERS]

    def advice(self, setting: Setting) -> Change:
        """In words, with what it saves if that can be relied on."""
        name, share = self.changed(setting), self.share_saved(setting)
        new, was = {name: vars(setting)[name]}, vars(self.was)[name]
        saves = int(share * self.measures.total)
        instead = f" instead of {was}" if type(was) is int and self.was.num_workers else ""
        words = f"{name}={new[name]}{instead}{self._why(setting)}"
        if unsure := self._unsure(setting, share):
            return Change(f"{words} should help (how much cannot be said: {unsure}).", new, None)
        before, after = self.batches / self.taken(self.was), self.batches / self.taken(setting)
        rates = f"replayed: {before:,.1f} → {after:,.1f} batches a second; `whatif` tries more"
        about = "at most" if self.measures.config.get("cuda") else "about"  # main may wait for it in the loader, too
        return Change(f"{words} should save {about} {duration(saves)} ({rates}).", new, saves)

    def _unsure(self, setting: Setting, share: float) -> str:
        """Why it cannot be said how much this saves; empty if it can."""
        if self.crowded:
            return "other programs use the cores"
        if MAIN not in self.measures.main_threads:
            return "a thread iterates, and what others do meanwhile is not known"
        # Cores may share a memory bus, or be two of one, and a step's threads wait for each other.
        cpu = self.times.cpu * (1 + self.times.helpers) * self.batches
        if not self.was.num_workers and cpu > BUSY * self.times.cores * self.taken(setting):
            return "workers would share the cores with main; `run --try` measures it"
        return f"a replay is off by {abs(self.off):.0%}" if abs(self.off) > PART * share else ""

    def _why(self, setting: Setting) -> str:
        """Why that helps, for the middle of a sentence."""
        whys = {
            "persistent_workers": f" keeps workers, and their dataset as it was, for {self.times.epochs} epochs, which",
            "prefetch_factor": ": more batches made ahead (in memory, too) bridge longer bursts, which",
            "in_order": ", if the order of batches need not be the same in every run:",
        }
        if why := whys.get(self.changed(setting)):
            return why
        if not self.was.num_workers:
            return ": batches are then made while main trains, which"
        if not setting.num_workers:
            too = " (and does what worker_init_fn did)" * bool((self.measures.kind == Kind.INIT_FN_BEGIN).any())
            return f": main makes the batches{too} in less time than workers take to start and to move them, which"
        return ", which"


WORKERS = (0, 1, 2, 4, 8, 16, 32, 64)
HEADROOM = 1.5  # more workers than keep up on average: batches differ, and workers take time to start
FEWEST_TRIED = 4  # workers, whatever the training needs: the average hides bursts


def number_of_workers(measures: Measures, times: Durations) -> list[int]:
    """0 (unless worker_init_fn takes long: main would have to do that), the recorded number, and others: as many as
    could keep up with the training, but no more than there are cores for what they compute, nor than were recorded if
    they wait for each other or use all cores already; of a stream no more than were recorded, or one."""
    was, computing = times.setting.num_workers, times.making_cpu.mean()
    making = computing + times.making_wait.mean()
    room = max(1, int(min(WORKERS[-1], times.cores * making / max(computing, 1e-9))))
    keep_up = HEADROOM * making / max(times.training.mean(), making / WORKERS[-1], 1e-9)
    most = min(max(FEWEST_TRIED, int(np.ceil(keep_up))), room)
    if measures.config.get("iterable"):  # whether each reads only its share is not known
        most = max(1, was)
    if culprits.turns(measures) or (was and cores_are_the_limit(measures)):
        most = was
    least = int(measures.of_starts(Kind.INIT_FN_BEGIN, Kind.INIT_FN_END).total > MATTERS * measures.total)
    return sorted({each for each in (*WORKERS, most) if least <= each <= most} | {was})
