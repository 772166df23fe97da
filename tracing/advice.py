"""Why, and what next: for each verdict a function that shows its numbers and says what to change.

What a change should gain is an estimate, from what the trace shows; it is an upper limit where it says "up to".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from minidl.events import Kind
from tracing.intervals import Span
from tracing.measures import Measures, Place
from tracing.verdicts import (
    FINE,
    MATTERS,
    MATTERS_ONCE,
    ONCE,
    WAITS,
    Verdict,
    cores,
    cores_are_the_limit,
    cores_used,
    costs,
    more_workers,
    warm_up,
)
from tracing.words import duration

COMPUTING = 0.5  # a worker that uses a core for more than this share of its working time computes ...
WAITING = 0.1  # ... and below this it waits; between the two it may be either

KIND_NAME = {int(kind): kind.name for kind in Kind}


@dataclass
class Reason:
    """A number, and where in the trace it can be seen."""

    text: str
    spans: list[Span] = field(default_factory=list)  # positions of the events that begin and end what weighs most


@dataclass
class Explanation:
    why: list[Reason]
    next: list[str]


def explain(measures: Measures, verdict: Verdict, cost: int) -> Explanation:
    explanation = EXPLAIN[verdict](measures, cost)
    if verdict is not Verdict.NOTHING:
        explanation.why += _excused(measures, verdict, cost)
    return explanation


def _excused(measures: Measures, verdict: Verdict, cost: int) -> list[Reason]:
    """What costs something too, and why it is not the verdict."""
    found, total, fine = costs(measures), measures.total, verdict in FINE
    reasons = []
    for once in ONCE:
        if once is not verdict and found[once] >= MATTERS * total and (fine or found[once] > cost):
            text = (
                f"{'start-up' if once is Verdict.STARTUP else 'shutdown'} took {duration(found[once])} "
                f"({found[once] / total:.0%}), but it comes once in an epoch: the longer that is, the less it weighs"
                + (f" (below {MATTERS_ONCE:.0%} it is no problem)" if found[once] < MATTERS_ONCE * total else "")
            )
            place = Place.STARTUP if once is Verdict.STARTUP else Place.SHUTDOWN
            reasons.append(Reason(text, measures.main_in(place).longest()))
    left = sum(found.get(each, 0) for each in WAITS)
    if fine and left >= 0.01 * total:
        _, asked, had = measures.requests
        early = int((had - asked)[warm_up(measures)].sum())
        text = f"what is left is {duration(left)} ({left / total:.0%}) of waiting for batches"
        if early > left / 2:
            text += ", most of it before every worker had made its first one, which comes once in an epoch too"
        reasons.append(Reason(text))
    return reasons


def _waiting(measures: Measures) -> Reason:
    """What main's time went to, with its longest requests."""
    spent, total = measures.spent, measures.total
    _, asked, had = measures.requests
    longest = measures.request_spans(had - asked)
    text = (
        f"of {duration(total)}, main spent {duration(spent[Place.TRAINING])} in the training step and "
        f"{duration((had - asked).sum())} ({(had - asked).sum() / total:.0%}) in the loader, asking for batches"
    )
    if longest:
        (begin, end), task = longest[0]
        took = int(measures.time[end] - measures.time[begin])
        text += f"; longest for batch {task['task']} ({duration(took)})"
    return Reason(text, [span for span, _ in longest])


def _busy(measures: Measures) -> tuple[Reason, float]:
    """How busy the workers were; and the CPU time as a share of their working time."""
    times = [measures.worker_time(worker) for worker in range(measures.num_workers)]
    lived, worked, cpu = (sum(each[name] for each in times) for name in ("lived", "worked", "cpu"))
    rows = measures.tasks[measures.tasks["collate_end"] >= 0]
    slowest = rows[np.argsort(rows["fetch_begin"] - rows["collate_end"], kind="stable")[:3]]
    spans = [
        (measures.event(row["fetch_begin"], Kind.FETCH_BEGIN), measures.event(row["collate_end"], Kind.COLLATE_END))
        for row in slowest
    ]
    text = (
        f"the workers were making batches for {worked / max(1, lived):.0%} of their time, "
        f"{duration(worked / max(1, len(rows)))} each in the mean; they used a core for {cpu / max(1, worked):.0%} "
        "of that"
    )
    return Reason(text, spans), cpu / max(1, worked)


def _explain_no_workers(measures: Measures, cost: int) -> Explanation:
    text = f"main made every batch itself (num_workers=0), and did not train for {duration(cost)} meanwhile"
    gain = duration(min(cost, measures.spent[Place.TRAINING]))
    return Explanation(
        [_waiting(measures), Reason(text, measures.main_in(Place.LOADING).longest())],
        [f"num_workers=1 or more: batches are then made while main trains, which can save up to {gain}."],
    )


def _explain_workers(measures: Measures, cost: int) -> Explanation:
    workers = measures.num_workers
    busy, computing = _busy(measures)
    wanted, gain = more_workers(measures, cost)
    there = cores(measures)
    if cores_are_the_limit(measures):
        advice = (
            f"The cores are the limit: the workers use {cores_used(measures):.1f} of {there}, what main uses not "
            f"counted, so more workers would not help. {_cheaper(cost)}"
        )
    elif computing < WAITING:
        advice = (
            "They hardly compute: they wait, for storage, a network or a lock. So more of them help, beyond the "
            f"number of cores too: num_workers={wanted} instead of {workers} should save some {duration(gain)}."
        )
        if wanted > there > 0:
            advice += " (torch's warning about too many workers does not apply: they wait, they do not compute.)"
    elif computing < COMPUTING:
        advice = (
            "They compute for less than half of that: the rest they wait, for storage, a network or a lock, or for "
            f"one of the {f'{there} ' if there else ''}cores, of which they use {cores_used(measures):.1f}. Try "
            f"num_workers={wanted} instead of {workers}, which may save some {duration(gain)}; if it does not, the "
            "cores are the limit."
        )
    elif there > workers + 1:
        more = min(wanted, there - 1)
        gain = int(min(gain, (measures.spent[Place.TRAINING] + cost) * (1 - workers / more)))
        advice = (
            f"They compute, and there are {there} cores: num_workers={more} instead of {workers} should save some "
            f"{duration(gain)}."
        )
    else:
        advice = (
            f"They compute, and with main they keep all {there or 'the'} cores busy: more workers would not help. "
            f"{_cheaper(cost)}"
        )
    return Explanation([_waiting(measures), busy], [advice])


def _cheaper(cost: int) -> str:
    return (
        "Make the samples cheaper (the slowest batches are listed below), prepare them once and store the result, or "
        f"use a machine with more cores. Up to {duration(cost)} is to be had."
    )


def _explain_hold_up(measures: Measures, cost: int) -> Explanation:
    begin, end = measures.awaited["made"]
    spans = measures.request_spans(end - begin)
    blamed = ", ".join(f"{task['task']} (worker {task['worker']})" for _, task in spans)
    why = [
        _waiting(measures),
        Reason(
            f"for {duration(cost)} main waited for a batch while finished ones lay in the reorder buffer and workers "
            f"were idle, because they had made all they may make ahead; most for batches {blamed}",
            [span for span, _ in spans],
        ),
        _busy(measures)[0],
    ]
    prefetch = measures.config.get("prefetch_factor") or 2
    return Explanation(
        why,
        [
            f"in_order=False, if the order of batches need not be the same in every run: should save some "
            f"{duration(measures.hold_up_gain)}.",
            f"Or prefetch_factor={2 * prefetch} instead of {prefetch}: the other workers could go on for longer.",
            "Or make the slow samples cheaper; the slowest batches and their keys are listed below.",
        ],
    )


def _explain_prefetch(measures: Measures, cost: int) -> Explanation:
    idle = [span for each in measures.idle for span in each.longest(2)]
    text = (
        f"while main trained, {measures.spare / max(1, measures.spent[Place.TRAINING]):.0%} of the workers' time "
        "was idle: they had made all they were allowed to make ahead"
    )
    prefetch = measures.config.get("prefetch_factor") or 2
    return Explanation(
        [_waiting(measures), Reason(text, idle), _busy(measures)[0]],
        [
            f"prefetch_factor={max(4, 2 * prefetch)} instead of {prefetch}: what the workers make ahead covers longer "
            f"bursts, and should save up to {duration(cost)}. It costs memory for as many batches more."
        ],
    )


def _explain_moving(measures: Measures, cost: int) -> Explanation:
    begin, end = measures.awaited["moved"]
    spans = [span for span, _ in measures.request_spans(end - begin)]
    stages = {
        "making one takes": ("fetch_begin", "collate_end"),
        "pickling it": ("result_sending", "result_sent"),
        "the pipe": ("result_sent", "result_arrived"),
        "unpickling it": ("result_arrived", "result_got"),
    }
    lengths = {name: measures.stage(*hops) for name, hops in stages.items()}  # none: torch's feeders are not seen
    took = ", ".join(f"{name} {duration(_median(each))}" for name, each in lengths.items() if len(each))
    sizes = measures.tasks["result_bytes"][measures.tasks["result_bytes"] >= 0]
    message = f" (message of {_median(sizes):,.0f} bytes, without the tensors' shared memory)" if len(sizes) else ""
    why = [
        _waiting(measures),
        Reason(
            f"for {duration(cost)} main waited for batches that were already made: in the median {took}{message}", spans
        ),
    ]
    return Explanation(
        why,
        [
            f"Fewer tensors in a batch (each costs a shared-memory file, whatever its size), for example one stacked "
            f"tensor instead of many, and larger batches: up to {duration(cost)} is to be had."
        ],
    )


def _explain_pinning(measures: Measures, cost: int) -> Explanation:
    begin, end = measures.awaited["pinned"]
    took = measures.stage("pin_begin", "pin_end")
    text = f"pinning a batch takes {duration(_median(took))} in the median; main waited {duration(cost)} for it"
    return Explanation(
        [_waiting(measures), Reason(text, [span for span, _ in measures.request_spans(end - begin)])],
        [f"Smaller batches (half precision, uint8 images), or no pinning at all: up to {duration(cost)} is to be had."],
    )


def _explain_sampler(measures: Measures, cost: int) -> Explanation:
    drawing = measures.main_in(Place.DRAWING)
    took = duration(_median(drawing.length))
    text = f"drawing the keys of a batch takes {took} in the median, in which main does nothing else"
    return Explanation(
        [_waiting(measures), Reason(text, drawing.longest())],
        [f"Draw the keys of the whole epoch at once, in the sampler's __iter__. Up to {duration(cost)} is to be had."],
    )


def _explain_startup(measures: Measures, cost: int) -> Explanation:
    startup = measures.main_in(Place.STARTUP)
    epochs = len(np.unique(measures.tasks["epoch"]))
    begun, ready, first = measures.startup_parts()
    text = (
        f"{duration(measures.spent[Place.STARTUP])} from the beginning of {'an epoch' if epochs > 1 else 'the epoch'} "
        f"to its first batch{f', over {epochs} epochs' if epochs > 1 else ''}: a worker needs {duration(begun)} to its "
        f"first line, {duration(ready - begun)} more until it is ready, and its first batch {duration(first)}"
    )
    advice = []
    if measures.num_workers and epochs > 1 and not measures.config.get("persistent_workers"):
        advice.append(
            f"persistent_workers=True starts them once, not in each of {epochs} epochs: should save some "
            f"{duration(cost * (1 - 1 / epochs))}."
        )
    advice.append("Move expensive imports and opening of files out of the workers' start, or train for longer epochs.")
    return Explanation([_waiting(measures), Reason(text, startup.longest())], advice)


def _explain_shutdown(measures: Measures, cost: int) -> Explanation:
    steps = measures.main_in(Place.SHUTDOWN)
    longest = steps.where(np.argsort(-steps.length)[:1])
    at = longest.first[0]
    step, worker = KIND_NAME[int(measures.kind[at])], int(measures.events["worker"][at])
    after = f"after {step}" + (f" of worker {worker}" if worker >= 0 else "")
    text = f"shutting down took {duration(cost)}, of which {duration(longest.length[0])} {after}"
    return Explanation(
        [_waiting(measures), Reason(text, longest.longest())],
        ["Look at what that worker does when it is told to stop: a fetch that cannot be interrupted, or its exit."],
    )


def _explain_training(measures: Measures, cost: int) -> Explanation:
    why = [_waiting(measures)]
    if measures.num_workers == 0:
        return Explanation(why, ["Nothing to gain in the loader. To go faster, make the training step faster."])
    busy, _ = _busy(measures)
    worked = int(measures.stage("fetch_begin", "collate_end").sum())
    enough = max(1, math.ceil(1.25 * worked / max(1, measures.spent[Place.TRAINING])))  # with some room
    advice = ["Nothing to gain in the loader. To go faster, make the training step faster."]
    if enough < measures.num_workers:
        advice.append(f"num_workers={enough} would do as well as {measures.num_workers}.")
    return Explanation([*why, busy], advice)


def _explain_healthy(measures: Measures, cost: int) -> Explanation:
    return Explanation([_waiting(measures), _busy(measures)[0]], ["Nothing to change."])


def _explain_nothing(measures: Measures, cost: int) -> Explanation:
    return Explanation([Reason(f"{len(measures.tasks)} tasks were drawn, and no batch was yielded")], [])


def _median(values: np.ndarray) -> float:
    return float(np.median(values)) if len(values) else 0.0


EXPLAIN: dict[Verdict, Callable[[Measures, int], Explanation]] = {
    Verdict.NOTHING: _explain_nothing,
    Verdict.HEALTHY: _explain_healthy,
    Verdict.TRAINING: _explain_training,
    Verdict.WORKERS: _explain_workers,
    Verdict.NO_WORKERS: _explain_no_workers,
    Verdict.HOLD_UP: _explain_hold_up,
    Verdict.PREFETCH: _explain_prefetch,
    Verdict.MOVING: _explain_moving,
    Verdict.PINNING: _explain_pinning,
    Verdict.SAMPLER: _explain_sampler,
    Verdict.STARTUP: _explain_startup,
    Verdict.SHUTDOWN: _explain_shutdown,
}
