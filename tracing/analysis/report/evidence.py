"""Why: sentences with numbers, and for each number the stretches of the trace that it is computed from.

A number in a sentence comes from one of its `Number`s: the total, the longest or the mean of its stretches, or its
share of another Number. A test computes them all again from the events. Here are each verdict's sentences, and
those that several share.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tracing.analysis.measure import cores, culprits
from tracing.analysis.measure.measures import Measures
from tracing.analysis.measure.stages import startup_parts
from tracing.analysis.measure.waited import Verdict
from tracing.trace.intervals import Intervals, concatenate
from tracing.trace.stacks import MAIN
from tracing.trace.thread_activity import MainTime
from tracing.trace.words import duration


class Number:
    """A number, and where in the trace it can be seen."""

    def __init__(self, name: str, stretches: Intervals, most: int = 1) -> None:
        """`most`: how many of the longest to name."""
        self.name = name  # of one stretch: the text puts "longest wait" before the events of the longest
        self.stretches = stretches
        self.ns = stretches.total  # all stretches together
        self.mean = self.ns / max(1, len(stretches.begin))
        self.longest = stretches.longest(most).spans  # the events that begin and end these, longest first

    def share_of(self, whole: Number) -> str:
        return f"{self.ns / max(1, whole.ns):.0%}"

    def __str__(self) -> str:
        return duration(self.ns)


@dataclass
class Reason:
    """A sentence, and the numbers in it."""

    text: str
    numbers: list[Number] = field(default_factory=list)


# ---- what several verdicts say


def run(measures: Measures) -> Number:
    return Number("longest epoch", measures.run)


def median(measures: Measures, name: str, begin: str, end: str) -> Number:
    """How long a stage took for the median batch."""
    return Number(name, measures.between(measures.tasks, begin, end).median())


def time_of_main(measures: Measures) -> Reason:
    """What main's time went to, with its longest requests."""
    whole, steps = run(measures), Number("longest step", measures.steps)
    inside, waits = Number("in the loader", measures.in_loader, most=0), Number("longest wait", measures.waits)
    elsewhere = Number("longest elsewhere", measures.main_in(MainTime.ELSEWHERE).joined())
    numbers, also = [whole, steps, inside], ""
    if elsewhere.ns > 0.01 * whole.ns:
        numbers, also = [*numbers, elsewhere], f", {elsewhere} elsewhere,"
    text = f"of {whole}, main spent {steps} in the training step{also} and {inside} ({inside.share_of(whole)}) in the "
    text += "loader"
    if waits.longest:
        longest = measures.waits.longest(1)
        numbers.append(waits)
        text += f", longest for batch {measures.events['task'][longest.last[0]]} ({duration(longest.total)})"
    return Reason(text, numbers)


def busy(measures: Measures) -> list[Reason]:
    """How busy the workers were, and where they were seen."""
    made = measures.between(measures.tasks[measures.tasks["worker"] >= 0], "fetch_begin", "collate_end")
    value = measures.events["value"]
    on_core = Intervals(value[made.first], value[made.last], made.first, made.last)
    lived = [measures.lived(worker) for worker in range(measures.num_workers)]
    making, life = Number("longest to make", made), Number("a worker's life", concatenate(lived))
    core = Number("most on a core", on_core)
    text = f"the workers were making batches for {making.share_of(life)} of their time, {duration(making.mean)} each "
    text += f"on average; they used a core for {core.share_of(making)} of that"
    if cores.cores_are_the_limit(measures):
        text += f"; the workers used {cores.cores_used(measures):.1f} of {cores.cores(measures)} cores, and main "
        text += f"{cores.cores_of_main(measures):.1f}"
    return [Reason(text, [making, life, core]), *seen(measures)]


def seen(measures: Measures) -> list[Reason]:
    """Where batches were seen being made."""
    they = "the workers were" if measures.num_workers else "main was"
    return _seen(they, culprits.seen_at(culprits.looks(measures), culprits.making))


def _seen(they: str, found: culprits.Seen | None) -> list[Reason]:
    if found is None:
        return []
    often = f"most often ({found.on_it}) on this line: {found}"
    return [Reason(f"in {found.times} of {found.looks} looks {they} in one function, {often}")]


def elsewhere(measures: Measures) -> list[Reason]:
    """What main does while it is in no loader."""
    away, reasons, where = culprits.Away(measures), list[Reason](), "outside of the loaders"
    if away.rare.total:
        rare, step = Number("longest", away.rare), Number("the median step", measures.steps.median())
        text = f"{len(away.rare.length)} of {len(measures.steps.length)} steps took {rare} together, the median {step}"
        reasons, where = [Reason(text, [rare, step])], "in these"
    reasons += _seen(f"{where} main was", away.seen)
    return reasons + (busy(measures) if measures.num_workers else [])


# ---- what one verdict says. The first number of the first reason is what the report's *Look* shows


def held_up(measures: Measures) -> list[Reason]:
    held = Number("longest", measures.stretches(measures.held_up), most=3)
    text = f"for {held} main waited for a batch while finished ones were in the reorder buffer and workers were idle, "
    return [Reason(f"{text}because they had worked as far ahead as allowed", [held]), *busy(measures)]


def turns(measures: Measures) -> list[Reason]:
    looks, what = culprits.looks(measures), culprits.turns(measures)
    go_on = [look for look in looks if not culprits.waits_for(look)]  # one of these has the lock
    holder = culprits.seen_at(go_on)
    text = f"in {len(looks) - len(go_on)} of {len(looks)} looks at the workers, they waited for {what}: one goes on, "
    text += "and the others wait for it"
    text += f"; the one that goes on was seen at {holder}" if holder else ""
    return [Reason(text), *busy(measures)]


def prefetch(measures: Measures) -> list[Reason]:
    steps = Number("longest step", measures.steps)
    idle = Number("longest idle", measures.stretches(measures.is_away & (measures.idle_share > 0)), most=3)
    text = f"while main trained ({steps}), workers were idle for {idle}, having worked as far ahead as they were "
    text += "allowed to. Then main came back for several batches at once"
    return [Reason(text, [idle, steps]), *busy(measures)]


def shares(measures: Measures) -> list[Reason]:
    if shown := culprits.undivided(measures):
        first = Number("first batches", measures.of_events(np.array(shown[:1]), np.array(shown[-1:])))
        text = f"all {len(shown)} workers have first samples in common: each reads the whole stream"
        return [Reason(text, [first]), *busy(measures)]
    idle = Number("longest without work", concatenate(list(culprits.ended_streams(measures))), most=3)
    return [Reason(f"workers whose stream had ended waited for the others for {idle}", [idle]), *busy(measures)]


def making_in_main(measures: Measures) -> list[Reason]:
    loading, whole = Number("longest", measures.main_in(MainTime.LOADING), most=3), run(measures)
    who = "main" if MAIN in measures.main_threads else "a thread"
    text = f"{who} made every batch itself for {loading} ({loading.share_of(whole)}), and did not train meanwhile"
    return [Reason(text, [loading, whole]), *seen(measures)]


def moving(measures: Measures) -> list[Reason]:
    on_its_way = Number("longest", measures.stretches(measures.on_its_way), most=3)
    made = median(measures, "made", "fetch_begin", "collate_end")
    unpickled = median(measures, "unpickled", "result_arrived", "result_got")
    pinned = median(measures, "pinned", "pin_begin", "pin_end")
    text = f"for {on_its_way} main waited for batches that were already made, or unpickled them; for the median batch, "
    text += f"making it took {made}, unpickling it {unpickled}"
    text += f", pinning it {pinned}" if pinned.ns else ""
    return [Reason(text, [on_its_way, made, unpickled] + [pinned] * bool(pinned.ns))]


def drawing(measures: Measures) -> list[Reason]:
    drawn = Number("longest", measures.main_in(MainTime.DRAWING), most=3)
    one = Number("a draw", measures.main_in(MainTime.DRAWING).median())
    text = f"drawing keys took {drawn}, {one} for the median batch, and main does nothing else meanwhile"
    looks = culprits.within(drawn.stretches, culprits.looks_at(measures, measures.main_pid))
    return [Reason(text, [drawn, one]), *_seen("main was", culprits.seen_at(looks))]


def starting(measures: Measures) -> list[Reason]:
    startup, whole = Number("longest start-up", measures.main_in(MainTime.STARTUP).joined(), most=3), run(measures)
    text = f"the time from the beginning of an epoch to its first batch was {startup} ({startup.share_of(whole)})"
    text += f", over {measures.epochs} epochs" if measures.epochs > 1 else ""
    reasons = [Reason(text, [startup, whole]), *_seen("meanwhile main was", culprits.starting_at(measures))]
    parts = {name: Number(f"{name}, longest", each) for name, each in startup_parts(measures).items() if each.total}
    needs = [f"{name} {duration(number.mean)}" for name, number in parts.items()]
    if needs:
        later = Number("a batch", measures.between(measures.tasks, "fetch_begin", "collate_end").median())
        text = f"on average the start of a worker takes: {', '.join(needs)} (the median of all batches: {later})"
        reasons.append(Reason(text, [*parts.values(), later]))
    return reasons


def shutting_down(measures: Measures) -> list[Reason]:
    shutdown, whole = Number("longest shutdown", measures.main_in(MainTime.SHUTDOWN).joined()), run(measures)
    longest = Number("this step", measures.main_in(MainTime.SHUTDOWN).longest(1))
    text = f"shutting down took {shutdown} ({shutdown.share_of(whole)}), of which {longest} was waiting for "
    text += f"{slowest_step(measures)} to exit"
    return [Reason(text, [longest, shutdown, whole]), *_seen("the exiting workers were", culprits.exiting(measures)[1])]


def slowest_step(measures: Measures) -> str:
    """What the longest step of the shutdown waits for: "worker 1"."""
    first = measures.main_in(MainTime.SHUTDOWN).longest(1).first
    worker = int(measures.events["worker"][first[0]]) if len(first) else -1
    return f"worker {worker}" if worker >= 0 else "the pin thread"


WHY: dict[Verdict, Callable[[Measures], list[Reason]]] = {
    Verdict.TRAINING: elsewhere,
    Verdict.WORKERS: busy,
    Verdict.TURNS: turns,
    Verdict.HOLD_UP: held_up,
    Verdict.PREFETCH: prefetch,
    Verdict.SHARES: shares,
    Verdict.NO_WORKERS: making_in_main,
    Verdict.MOVING: moving,
    Verdict.SAMPLER: drawing,
    Verdict.STARTUP: starting,
    Verdict.SHUTDOWN: shutting_down,
}
