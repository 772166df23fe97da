"""Why: sentences with numbers, and for each number the stretches of the trace that it is computed from.

A number in a sentence comes from one of its `Number`s: the total, the longest or the mean of its stretches, or its
share of another Number. A test computes them all again from the events. Here are the sentences of each verdict, and
those that several have.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tracing.analysis.measure import cores, culprits
from tracing.analysis.measure.measures import Measures
from tracing.analysis.measure.stages import startup_parts
from tracing.analysis.measure.waited import Verdict, left
from tracing.trace.intervals import Intervals, Span, concatenate
from tracing.trace.thread_activity import MainTime
from tracing.trace.words import duration, size

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


# ---- what several verdicts say


def run(measures: Measures) -> Number:
    return Number("the run", measures.run)


def median(measures: Measures, name: str, begin: str, end: str) -> Number:
    """How long a stage took for the median batch."""
    return Number(name, measures.between(measures.tasks, begin, end).median())


def time_of_main(measures: Measures) -> Reason:
    """What main's time went to, with its longest requests."""
    whole, steps = run(measures), Number("longest step", measures.main_in(MainTime.TRAINING))
    elsewhere = Number("longest elsewhere", measures.main_in(MainTime.ELSEWHERE).joined())
    inside, waits = Number("in the loader", measures.in_loader, most=0), Number("longest wait", measures.waits)
    numbers = [whole, steps, elsewhere, inside, waits]
    if elsewhere.ns <= ELSEWHERE * whole.ns:
        numbers.remove(elsewhere)
    also = f", {elsewhere} elsewhere," if elsewhere in numbers else ""
    text = f"of {whole}, main spent {steps} in the training step{also} and {inside} ({inside.share_of(whole)}) in the "
    text += "loader"
    if waits.longest:
        longest = measures.waits.longest(1)
        text += f", longest for batch {measures.events['task'][longest.last[0]]} ({duration(longest.total)})"
    return Reason(text, numbers)


def busy(measures: Measures) -> Reason:
    """How busy the workers were, and where they were seen."""
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
    if cores.cores_are_the_limit(measures):
        text += f"; the workers used {cores.cores_used(measures):.1f} of {cores.cores(measures)} cores"
    return Reason(text, [making, life, core])


def seen(measures: Measures) -> list[Reason]:
    """Where batches were seen being made."""
    who = "the workers were" if measures.num_workers else "main was"
    return _seen(who, culprits.seen_at(culprits.looks(measures)))


def _seen(who: str, found: culprits.Seen | None) -> list[Reason]:
    return [Reason(f"{who} seen at {found} in {found.times} of {found.looks} looks")] if found else []


def elsewhere(measures: Measures) -> list[Reason]:
    """What main does while it is in no loader."""
    by_workers = [busy(measures)] if measures.num_workers else []
    return [*_seen("outside of the loaders main was", culprits.away(measures).seen), *by_workers]


# ---- what one verdict says. The first number of the first reason is what the report's *Look* shows


def held_up(measures: Measures) -> list[Reason]:
    held = Number("longest", measures.stretches(measures.held_up), most=3)
    reasons = []
    if slow := culprits.slow_worker(measures):
        its, others = Number("its median batch", slow.its.median()), Number("that of the others", slow.others.median())
        text = f"worker {slow.worker} takes {its} for the median batch, the others {others}: {slow.times:.1f} times as "
        reasons.append(Reason(f"{text}long", [its, others]))
    held = Number("longest", measures.stretches(measures.held_up), most=3)
    if held.ns:
        rows, asked, had = measures.requests
        blamed = []
        longest = held.stretches.longest(3)
        for begin, end in zip(longest.begin, longest.end, strict=True):
            task = rows[np.flatnonzero((asked <= begin) & (end <= had))[0]]
            blamed.append(f"batch {task['task']} on worker {task['worker']} ({duration(end - begin)})")
        text = (
            f"for {held} main waited for a batch while finished ones were in the reorder buffer and workers were idle, "
            f"because they had worked as far ahead as they may; longest for {', '.join(blamed)}"
        )
        reasons.append(Reason(text, [held]))
    return [*reasons, busy(measures)]


def turns(measures: Measures) -> list[Reason]:
    found = culprits.turns(measures)
    assert found is not None
    one = Number("median", found.made.median())
    text = f"the median batch takes {one}; "
    if found.in_lock:
        text += f"in {found.in_lock} of {found.looks} looks at the workers, they waited for a lock: one goes on, and "
        text += "the others wait for it"
    else:
        text += "it takes the longer the more workers make one at the same time, nearly in proportion: one is served "
        text += "after the other"
    return [Reason(text, [one]), *seen(measures), busy(measures)]


def prefetch(measures: Measures) -> list[Reason]:
    idle = [
        measures.stretches(measures.is_away & (measures.grid.depth(each.begin, each.end) > 0)) for each in measures.idle
    ]
    steps = Number("longest step", measures.main_in(MainTime.TRAINING))
    unused = Number("longest idle", concatenate(idle), most=3, over=measures.num_workers)
    text = (
        f"while main trained ({steps}), a worker was idle for {duration(unused.mean)} on average, having worked as far "
        "ahead as it was allowed to. Then main came back for several batches at once"
    )
    return [Reason(text, [unused, steps]), busy(measures)]


def shares(measures: Measures) -> list[Reason]:
    for iterator in measures.iterators:
        if shown := culprits.undivided(measures.trace, iterator):
            at = np.array(shown)
            first = Number("first batches", measures.of_events(at[:1], at[-1:]))
            text = f"the first samples of all {len(shown)} workers are the same: each reads the whole stream"
            return [Reason(text, [first]), busy(measures)]
    idle = Number("longest without work", concatenate(list(culprits.ended_streams(measures))), most=3)
    made = measures.tasks["worker"][measures.tasks["collate_end"] >= 0]
    batches = np.bincount(made[made >= 0], minlength=measures.num_workers)
    text = (
        f"worker {int(batches.argmax())} made {batches.max()} batches, the others {batches.min()} to "
        f"{np.sort(batches)[-2]}; workers whose stream had ended waited for the others for {idle}"
    )
    return [Reason(text, [idle]), busy(measures)]


def making_in_main(measures: Measures) -> list[Reason]:
    loading, whole = Number("longest", measures.main_in(MainTime.LOADING), most=3), run(measures)
    text = f"main made every batch itself for {loading} ({loading.share_of(whole)}), and did not train meanwhile"
    return [Reason(text, [loading, whole]), *seen(measures)]


def moving(measures: Measures) -> list[Reason]:
    on_its_way = Number("longest", measures.stretches(measures.on_its_way), most=3)
    made = median(measures, "made", "fetch_begin", "collate_end")
    unpickled = median(measures, "unpickled", "result_arrived", "result_got")
    text = (
        f"for {on_its_way} main waited for batches that were already made, or unpickled them; for the median batch, "
        f"making it took {made}, unpickling it {unpickled}"
    )
    return [Reason(text, [on_its_way, made, unpickled]), *messages(measures), *another_thread(measures)]


def messages(measures: Measures) -> list[Reason]:
    """What the messages of batches are made of."""
    known = measures.tasks[(measures.tasks["result_bytes"] > 0) & (measures.tasks["result_got"] >= 0)]
    if not len(known):
        return []
    row = known[np.argsort(known["result_bytes"], kind="stable")[(len(known) - 1) // 2 :][:1]]
    message = Number("its unpickling", measures.between(row, "result_arrived", "result_got"))
    text = f"the median message of a batch has {int(row['result_bytes'][0]):,} bytes"
    made_of = culprits.contents(measures)
    if made_of is not None and made_of["tensors"]:
        tensors = f"{made_of['tensors']} tensors" if made_of["tensors"] > 1 else "its one tensor"
        text += f", without the {size(made_of['bytes'])} of {tensors}"
    elif made_of is not None:
        text += f", and its {made_of['objects']} objects are pickled, none of them a tensor"
    return [Reason(text, [message])]


def another_thread(measures: Measures) -> list[Reason]:
    """That a thread of main keeps Python's lock."""
    beside, own = cores.beside_main(measures)
    at_work = Number("longest", measures.main_in(MainTime.TAKING, MainTime.HANDLING), most=3)
    text = (
        f"for {at_work} main unpickled batches and kept the loader's books, but had a core for only {own:.2f} of that; "
        f"meanwhile the other threads of its process used {beside:.1f} cores"
    )
    return [Reason(text, [at_work])] if beside > 0.1 else []


def pinning(measures: Measures) -> list[Reason]:
    waited = Number("longest", measures.stretches(measures.in_pin_thread), most=3)
    pins = Number("longest pin", measures.between(measures.tasks, "pin_begin", "pin_end"))
    one, whole = median(measures, "a pin", "pin_begin", "pin_end"), run(measures)
    text = (
        f"for {waited} main waited for the pin thread, while workers were idle; it pinned for {pins} "
        f"({pins.share_of(whole)} of the run), the median batch for {one}"
    )
    queued = median(measures, "queued", "result_put", "result_got")
    backs_up = Reason(f"worker_result_queue backs up: the median batch spends {queued} in it", [queued])
    return [Reason(text, [waited, pins, one, whole]), *[backs_up] * bool(queued.longest)]


def drawing(measures: Measures) -> list[Reason]:
    drawn = Number("longest", measures.main_in(MainTime.DRAWING), most=3)
    one = Number("a draw", measures.main_in(MainTime.DRAWING).median())
    text = f"drawing keys took {drawn}, {one} for the median batch, and main does nothing else meanwhile"
    return [Reason(text, [drawn, one])]


def starting(measures: Measures) -> list[Reason]:
    startup, whole = Number("longest start-up", measures.main_in(MainTime.STARTUP).joined(), most=3), run(measures)
    text = f"the time from the beginning of an epoch to its first batch was {startup} ({startup.share_of(whole)})"
    text += f", over {measures.epochs} epochs" if measures.epochs > 1 else ""
    reasons = [Reason(text, [startup, whole])]
    parts = {name: Number(f"{name}, longest", each) for name, each in startup_parts(measures).items() if each.total}
    needs = [f"{name} {duration(number.mean)}" for name, number in parts.items()]
    if needs:
        later = Number("a batch", measures.between(measures.tasks, "fetch_begin", "collate_end").median())
        text = f"on average the start of a worker takes: {', '.join(needs)} (the median of all batches: {later})"
        reasons.append(Reason(text, [*parts.values(), later]))
    return reasons + (shutting_down(measures) if left(measures) else [])


def shutting_down(measures: Measures) -> list[Reason]:
    shutdown, whole = Number("longest shutdown", measures.main_in(MainTime.SHUTDOWN).joined()), run(measures)
    longest, worker = Number("this step", measures.main_in(MainTime.SHUTDOWN).longest(1)), slowest_step(measures)
    waited_for = f"worker {worker}" if worker >= 0 else "the pin thread"
    text = f"shutting down took {shutdown} ({shutdown.share_of(whole)}), of which {longest} went on waiting for "
    text += f"{waited_for} to exit"
    return [Reason(text, [longest, shutdown, whole])]


def slowest_step(measures: Measures) -> int:
    """Of the shutdown: the worker that its longest step waits for; -1: the pin thread."""
    first = measures.main_in(MainTime.SHUTDOWN).longest(1).first
    return int(measures.events["worker"][first[0]]) if len(first) else -1


WHY: dict[Verdict, Callable[[Measures], list[Reason]]] = {
    Verdict.TRAINING: elsewhere,
    Verdict.WORKERS: lambda measures: [busy(measures), *seen(measures)],
    Verdict.TURNS: turns,
    Verdict.HOLD_UP: held_up,
    Verdict.PREFETCH: prefetch,
    Verdict.SHARES: shares,
    Verdict.NO_WORKERS: making_in_main,
    Verdict.MOVING: moving,
    Verdict.PINNING: pinning,
    Verdict.SAMPLER: drawing,
    Verdict.STARTUP: starting,
    Verdict.SHUTDOWN: shutting_down,
}
