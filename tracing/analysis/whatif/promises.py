"""Which options of the DataLoader to change, and what that saves: the recorded load is replayed with others, one
option at a time, and then with several of them together.

A number is promised only where the replay of the recorded setting itself comes close to what was measured, closer than
a part of what the change should save; and where that part is no less than a replay can be off by. Otherwise the advice
says in which direction to go. And nothing is promised that the trace contradicts: an option saves no more than what
the causes cost that it can cure, as many workers as were recorded do not make batches in less time than they took, and
workers that wait for each other are not to be more.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from minidl import events
from tracing.analysis.measure import culprits
from tracing.analysis.measure.cores import Work, cores, cores_are_the_limit, work
from tracing.analysis.measure.measures import Measures
from tracing.analysis.measure.waited import MATTERS, Judgement, Verdict
from tracing.analysis.whatif.durations import SECOND, Durations, Setting, durations
from tracing.trace.words import duration

MOST_BATCHES = 80  # to replay: nobody should have to wait for the report
AHEAD = 3  # ... but this many for each that may be outstanding
FEWER = 0.03  # a cheaper setting that is slower by less than this share is as good
PART = 0.25  # what is gained shall differ from what is promised by less than this part of it
EXACT = 0.03  # the share of the time that a replay may be off by, whatever it replays
ASTRAY = 0.5  # one that is off by more than this share shows nothing
ALTERNATIVE = 0.25  # another change is mentioned if it saves at least this part of what the best one saves
LARGEST_FACTOR = 32

CURES: dict[str, tuple[Verdict, ...]] = {  # an option -> what costs less if it is changed
    "num_workers": tuple(Verdict),
    "in_order": (Verdict.HOLD_UP, Verdict.PREFETCH),
    "prefetch_factor": (Verdict.PREFETCH, Verdict.HOLD_UP),
    "persistent_workers": (Verdict.STARTUP, Verdict.SHUTDOWN),
}


@dataclass(frozen=True)
class Change:
    """Options to change, and what that saves."""

    text: str  # advice, in words
    options: dict[str, Any]
    saves_ns: int | None  # what is promised; None: no number can be relied on


def changes(measures: Measures, judgement: Judgement) -> list[Change]:
    """What to change, the most useful first; empty if nothing helps, or nothing can be replayed."""
    if measures.in_loader.total < MATTERS * measures.total or events.installed() is not None or lacking():
        return []  # (while this program records, what it loads must not run on the simulated machine)
    try:
        replays = Replays(measures, judgement)
    except ValueError:  # too little was loaded
        return []
    return [replays.advice(each) for each in replays.best_first()] if abs(replays.off) <= ASTRAY else []


def lacking() -> str:
    """What a replay needs and is not installed here; "" if it has all."""
    return " and ".join(each for each in ("torch", "greenlet") if importlib.util.find_spec(each) is None)


def kept(measures: Measures, judgement: Judgement) -> tuple[str, ...]:
    """Options not to change: a replay does not know what the workers wait for, how a stream would be divided, or that
    it is always the same worker that is slow."""
    if judgement.verdict is Verdict.SHARES:
        return tuple(CURES)
    if judgement.verdict is Verdict.TURNS:
        return "num_workers", "prefetch_factor", "in_order"
    slow = judgement.verdict is Verdict.HOLD_UP and culprits.slow_worker(measures) is not None
    return ("num_workers", "prefetch_factor") if slow else ()


def starts_processes(measures: Measures) -> bool:
    """Whether main, which makes the batches itself, has started processes by multiprocessing: perhaps the dataset did,
    and a worker may have no children."""
    own = measures.samples[measures.samples["pid"] == measures.main_pid]
    return not measures.num_workers and bool((own["processes"] > 0).any())


class Replays:
    """Replays of one load, each setting once."""

    def __init__(self, measures: Measures, judgement: Judgement) -> None:
        from tracing.analysis.whatif.simulated_replay import fitted  # imports minidl's loader: a second

        self.measures, self.judgement = measures, judgement
        whole = durations(measures)
        self.was, self.batches = whole.setting, len(whole)
        ahead = AHEAD * self.was.num_workers * self.was.prefetch_factor
        self.times = fitted(whole.excerpt(max(MOST_BATCHES, ahead)))
        self.making = float((whole.making_cpu + whole.making_wait).sum())  # by all workers together (s)
        self._taken: dict[Setting, float] = {}
        self.off = self.taken(self.was) / (measures.total / SECOND) - 1  # above 0: the replay is slower

    def taken(self, setting: Setting) -> float:
        """How long the whole load takes in this setting (s): as replayed, but at least as long as its workers need, if
        they are no fewer than recorded. (Fewer may each be quicker, since they share the cores.)"""
        from tracing.analysis.whatif.simulated_replay import replay_load

        if setting not in self._taken:
            self._taken[setting] = replay_load(self.times, setting).total
        needed = self.making / setting.num_workers if 0 < self.was.num_workers <= setting.num_workers else 0.0
        return max(self._taken[setting], needed)

    def share_saved(self, setting: Setting, beside: Setting | None = None) -> float:
        """Of the time, compared with the recorded setting or another one: below 1, and below 0 for a loss."""
        share = 1 - self.taken(setting) / self.taken(beside or self.was)
        return min(share, self.curable(*self.changed(setting)))

    def curable(self, *options: str) -> float:
        """The share of the time that these options can save at most."""
        causes = {cause for name in options for cause in CURES[name]}
        return sum(self.judgement.costs.get(each, 0) for each in causes) / self.measures.total

    def changed(self, setting: Setting) -> dict[str, Any]:
        """The options to change."""
        new = {name: value for name, value in vars(setting).items() if value != vars(self.was)[name]}
        return new if setting.num_workers else {"num_workers": 0}

    def best_first(self) -> list[Setting]:
        """The best change of a single option; then others together with it; then what else would help by itself. Only
        those that save more than the replay is off by."""
        keep = kept(self.measures, self.judgement)
        names = [name for name in CURES if name not in keep and self.curable(name) >= MATTERS]
        single = [each for name in names for each in self._best_value(name, self.was)]
        single.sort(key=self.share_saved, reverse=True)
        if not single:
            return []
        found = single[:1]
        for name in names:
            if vars(found[0])[name] == vars(self.was)[name]:
                found += self._best_value(name, found[-1])
        enough = ALTERNATIVE * self.share_saved(single[0])
        found += [each for each in single[1:] if self.share_saved(each) >= enough]
        found.sort(key=self.share_saved, reverse=True)
        return [each for each in found if self.share_saved(each) >= abs(self.off)]

    def _best_value(self, name: str, beside: Setting) -> list[Setting]:
        """`beside`, with the best value of this option: the cheapest of those that are nearly the fastest. Empty if
        none is worth the change."""
        tried = [replace(beside, **{name: value}) for value in self._values(name, beside)]
        tried = [each if each.num_workers else Setting(0) for each in tried]  # without workers the others mean nothing
        if not tried:
            return []
        enough = min(map(self.taken, tried)) * (1 + FEWER)
        chosen = next(each for each in tried if self.taken(each) <= enough)
        return [chosen] if self.share_saved(chosen, beside) >= MATTERS else []

    def _values(self, name: str, beside: Setting) -> list[Any]:
        """Other values of an option, the cheapest first."""
        values: list[Any]
        if name == "num_workers":
            values = number_of_workers(self.measures, self.times)
        elif not beside.num_workers:
            values = []
        elif name == "prefetch_factor":
            values = [each for each in (2, 4, 8, 16, LARGEST_FACTOR) if each * beside.num_workers <= self.times.batches]
        elif name == "in_order":
            values = [False] if beside.num_workers > 1 else []
        else:
            values = [True] if self.times.epochs > 1 else []
        return [value for value in values if value != vars(beside)[name]]

    def advice(self, setting: Setting) -> Change:
        """In words, with what it saves if that can be relied on."""
        new, share = self.changed(setting), self.share_saved(setting)
        saves = int(share * self.measures.total)
        words = f"{', '.join(self._name(name, value) for name, value in new.items())}{self._why(new)}"
        if abs(self.off) > max(EXACT, PART * share):
            slow = f"{abs(self.off):.0%} too {'slow' if self.off > 0 else 'fast'}"
            why = f"by how much is not known: a replay of the recorded setting itself comes out {slow}"
            return Change(f"{words} should help; {why}.", new, None)
        if PART * share < EXACT:
            return Change(
                f"{words} should help a little (some {share:.0%}; a replay is exact to {EXACT:.0%}).", new, None
            )
        before, after = self.batches / self.taken(self.was), self.batches / self.taken(setting)
        rates = f"replayed: {before:,.1f} → {after:,.1f} batches a second; `whatif` tries more"
        about = "about" if self.was.num_workers or not setting.num_workers else "up to"
        return Change(f"{words} should save {about} {duration(saves)} ({rates}).", new, saves)

    def _name(self, name: str, value: Any) -> str:
        """ "num_workers=4 instead of 2"."""
        was = vars(self.was)[name]
        return f"{name}={value}" + (f" instead of {was}" if type(was) is int and self.was.num_workers else "")

    def _why(self, new: dict[str, Any]) -> str:
        """Why that helps, for the middle of a sentence."""
        if len(new) > 1:
            return " together"
        if "persistent_workers" in new:
            return f" starts the workers once, not in each of {self.times.epochs} epochs, which"
        if "prefetch_factor" in new:
            return ": what the workers make ahead covers longer bursts (at the memory of that many more batches), which"
        if "in_order" in new:
            return ", if the order of batches need not be the same in every run:"
        workers, was = new["num_workers"], self.was.num_workers
        if not was:
            return f": batches are then made while main trains{', several at a time' * (workers > 1)}, which"
        if not workers:
            return ": for main, making a batch is quicker than having it moved from a worker, which"
        if workers < was:
            return ": more only get in each other's way. That"
        if work(self.measures) is not Work.WAITS:
            return ", which"
        warning = workers > cores(self.measures) > 0
        return f", which, if what they wait for can answer that many at a time{IGNORE * warning},"


IGNORE = " (ignore torch's warning about too many workers: these wait, they do not compute)"


WORKERS = (0, 1, 2, 4, 8, 16, 32, 64)
HEADROOM = 1.5  # more workers than keep up on average: batches differ, and workers take time to start
FEWEST_TRIED = 4  # workers, whatever the training needs: the average hides bursts


def number_of_workers(measures: Measures, times: Durations) -> list[int]:
    """None, the recorded number, and others: as many as could keep up with the training, but no more than there are
    cores for what they compute, nor than were recorded if they wait for each other or use all cores already."""
    was, computing = times.setting.num_workers, times.making_cpu.mean()
    making = computing + times.making_wait.mean()
    room = max(1, int(min(WORKERS[-1], times.cores * making / max(computing, 1e-9))))
    keep_up = HEADROOM * making / max(times.training.mean(), making / WORKERS[-1], 1e-9)
    most = min(max(FEWEST_TRIED, int(np.ceil(keep_up))), room)
    if culprits.turns(measures) is not None or starts_processes(measures) or (was and cores_are_the_limit(measures)):
        most = was
    return sorted({each for each in (*WORKERS, most) if each <= most} | {was})
