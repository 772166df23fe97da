"""Which options of the DataLoader to change, and what that saves: the recorded load is replayed (tracing.whatif) with
others, one option at a time, and then with several of them together.

A number is promised only where the replay of the recorded setting itself comes close to what was measured, closer than
a part of what the change should save; and where that part is no less than a replay can be off by. Otherwise the advice
says in which direction to go, and why it has no number.

Two things in the trace overrule a replay. It cannot be right where it has as many workers as were recorded make batches
in less time than they took; and what saves less than the replay is off by, or than main waited for cores that other
programs had, is not advised at all: it may be nothing but noise.
"""

from __future__ import annotations

import importlib.util
import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from minidl import events
from tracing.analysis.measure.capacity import Work, work
from tracing.analysis.measure.culprits import turns
from tracing.analysis.measure.measures import Measures
from tracing.analysis.measure.stages import first_batches
from tracing.analysis.whatif import candidates
from tracing.analysis.whatif.core_use import SECOND, core_use
from tracing.analysis.whatif.durations import Setting, durations
from tracing.trace.words import duration

MOST_BATCHES = 160  # to replay: nobody should have to wait for the report
FEWEST_BATCHES = 40  # however little patience there is
USUAL = 12  # replays of one load
GAINS = 0.05  # what saves less than this share of main's time is not worth changing
FEWER = 0.03  # a cheaper setting that is slower by less than this share is as good
PART = 0.25  # what is gained shall differ from what is promised by less than this part of it
EXACT = 0.03  # the share of the time that a replay may be off by, whatever it replays
ASTRAY = 0.5  # one that is off by more than this share shows nothing
ALTERNATIVE = 0.25  # another change is mentioned if it saves at least this part of what the best one saves


@dataclass(frozen=True)
class Promise:
    """What a change of options saves."""

    options: dict[str, Any]  # of the DataLoader: those to change
    saves_ns: int


@dataclass(frozen=True)
class Change:
    """Options to change: advice in words, and what it promises. None: no number can be relied on."""

    text: str
    promise: Promise | None


def changes(measures: Measures, keep: Iterable[str] = (), patience: float = math.inf) -> list[Change]:
    """What to change, the most useful first; empty if nothing helps, or nothing can be replayed. Options to `keep` are
    not changed: where waiting has a cause that a replay knows nothing of, it would promise too much. With less
    `patience`, seconds of CPU time for all of it, fewer batches are replayed."""
    if measures.total - measures.away.total < GAINS * measures.total or events.installed() is not None or lacking():
        return []  # (while this program records, what it loads must not run on the simulated machine)
    try:
        replays = Replays(measures, patience)
    except ValueError:  # too little was loaded
        return []
    if abs(replays.off) > ASTRAY:
        return []
    return [replays.advice(each) for each in replays.best_first(set(keep)) if replays.shows(each)]


def lacking() -> str:
    """What a replay needs and is not installed here; "" if it has all."""
    return " and ".join(each for each in ("torch", "greenlet") if importlib.util.find_spec(each) is None)


class Replays:
    """Replays of one load, each setting once."""

    def __init__(self, measures: Measures, patience: float = math.inf) -> None:
        self.measures = measures
        self.whole = durations(measures)
        self.was = self.whole.setting
        self.making = _making(measures)
        used = core_use(measures)
        self.noise = used.lost_to_others if used is not None else 0.0
        batches = MOST_BATCHES
        if patience < math.inf:
            begin = time.thread_time()
            self._replay(FEWEST_BATCHES)
            took = max(1e-6, time.thread_time() - begin)
            batches = min(MOST_BATCHES, int(FEWEST_BATCHES * patience / (USUAL * took)))
        if batches > FEWEST_BATCHES:
            self._replay(batches)
        self.off = self._taken[self.was] / (measures.total / 1e9) - 1  # above 0: the replay is slower

    def _replay(self, batches: int) -> None:
        """Replay the recorded setting with so many batches; others are replayed with the same ones."""
        from tracing.analysis.whatif.simulated_replay import fitted  # imports minidl's loader: a second

        self.times = fitted(self.whole.excerpt(batches))
        self._taken: dict[Setting, float] = {}
        self.taken(self.was)

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
        return 1 - self.taken(setting) / self.taken(beside or self.was)

    def shows(self, setting: Setting) -> bool:
        """Whether what a setting saves is more than noise."""
        share = self.share_saved(setting)
        return share >= abs(self.off) and share * self.measures.total / 1e9 >= self.noise

    def best_first(self, keep: set[str]) -> list[Setting]:
        """The best change of a single option; then others together with it; then what else would help by itself."""
        single = [each for name in OPTIONS if name not in keep for each in self._best_value(name, self.was)]
        single.sort(key=self.taken)
        if not single:
            return []
        found = single[:1]
        for name in OPTIONS:
            if name not in keep and vars(found[0])[name] == vars(self.was)[name]:
                found += self._best_value(name, found[-1])
        enough = ALTERNATIVE * self.share_saved(single[0])
        return found + [each for each in single[1:] if self.share_saved(each) >= enough]

    def _best_value(self, name: str, beside: Setting) -> list[Setting]:
        """`beside`, with the best value of this option: the cheapest of those that are nearly the fastest. Empty if
        none is worth the change."""
        tried = [replace(beside, **{name: value}) for value in self._values(name, beside)]
        tried = [_without_what_means_nothing(each) for each in tried]
        if not tried:
            return []
        enough = min(map(self.taken, tried)) * (1 + FEWER)
        chosen = next(each for each in tried if self.taken(each) <= enough)
        return [chosen] if self.share_saved(chosen, beside) >= GAINS else []

    def _values(self, name: str, beside: Setting) -> list[Any]:
        """Other values of an option, the cheapest first."""
        values: list[Any]
        if name == "num_workers":
            values = candidates.workers(self.times)
            if turns(self.measures) is not None:  # a replay does not know how long more of them would wait
                values = [value for value in values if value <= self.was.num_workers]
        elif not beside.num_workers:
            values = []
        elif name == "prefetch_factor":
            values = [each for each in candidates.prefetch(self.times, beside.num_workers) if each > 1]
        elif name == "in_order":
            values = [False] if beside.num_workers > 1 else []
        else:
            values = [True] if self.times.epochs > 1 else []
        return [value for value in values if value != vars(beside)[name]]

    def advice(self, setting: Setting) -> Change:
        """In words, with what it saves if that can be relied on."""
        new = {name: value for name, value in vars(setting).items() if value != vars(self.was)[name]}
        if not setting.num_workers:
            new = {"num_workers": 0}
        share = self.share_saved(setting)
        saves = int(share * self.measures.total)
        words = f"{', '.join(self._name(name, value) for name, value in new.items())}{self._why(new)}"
        if abs(self.off) > max(EXACT, PART * share):
            slow = f"{abs(self.off):.0%} too {'slow' if self.off > 0 else 'fast'}"
            why = f"by how much is not known: a replay of the recorded setting itself comes out {slow}"
            return Change(f"{words} should help; {why}.", None)
        if PART * share < EXACT:
            return Change(f"{words} should help a little (some {share:.0%}; a replay is exact to {EXACT:.0%}).", None)
        batches = len(self.whole)
        before, after = batches / self.taken(self.was), batches / self.taken(setting)
        rates = f"replayed: {before:,.1f} → {after:,.1f} batches a second; `whatif` tries more"
        about = "about" if self.was.num_workers or not setting.num_workers else "up to"
        return Change(f"{words} should save {about} {duration(saves)} ({rates}).", Promise(new, saves))

    def _name(self, name: str, value: Any) -> str:
        """ "num_workers=4 instead of 2"."""
        was = vars(self.was)[name]
        return f"{name}={value}" + (f" instead of {was}" if type(was) is int and self.was.num_workers else "")

    def _why(self, new: dict[str, Any]) -> str:
        return OPTIONS[next(iter(new))](self, new) if len(new) == 1 else " together"


def _making(measures: Measures) -> float:
    """How long all workers together were making batches (s), without their first ones: another setting may have fewer
    of those."""
    first = first_batches(measures)["fetch_begin"]
    rows = measures.tasks
    made = (rows["worker"] >= 0) & (rows["yielded"] >= 0) & (rows["fetch_begin"] >= 0) & (rows["collate_end"] >= 0)
    made &= ~np.isin(rows["fetch_begin"], first)
    return float((rows["collate_end"] - rows["fetch_begin"])[made].sum()) / SECOND


def _without_what_means_nothing(setting: Setting) -> Setting:
    return setting if setting.num_workers else Setting(0)


def _why_workers(replays: Replays, new: dict[str, Any]) -> str:
    workers, was = new["num_workers"], replays.was.num_workers
    if not was:
        return f": batches are then made while main trains{', several at a time' * (workers > 1)}, which"
    if not workers:
        return ": for main, making a batch is quicker than having it moved from a worker, which"
    if workers > was and work(replays.measures) is Work.WAITS:
        return ", which, if what they wait for can answer so many at a time,"
    return ", which" if workers > was else ": more only get in each other's way. That"


def _why_prefetch(replays: Replays, new: dict[str, Any]) -> str:
    return ": what the workers make ahead covers longer bursts (at the memory of that many more batches), which"


def _why_any_order(replays: Replays, new: dict[str, Any]) -> str:
    return ", if the order of batches need not be the same in every run:"


def _why_persistent(replays: Replays, new: dict[str, Any]) -> str:
    return f" starts the workers once, not in each of {replays.times.epochs} epochs, which"


OPTIONS = {  # what may be changed -> why that helps, for the middle of a sentence
    "num_workers": _why_workers,
    "prefetch_factor": _why_prefetch,
    "in_order": _why_any_order,
    "persistent_workers": _why_persistent,
}
