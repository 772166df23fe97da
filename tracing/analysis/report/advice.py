"""Why, and what next: for each verdict a function that shows its numbers and says what to change. Those of the way of a
batch stand in tracing.analysis.report.advice_on_batches, those of an epoch's two ends in
tracing.analysis.report.advice_on_startup_and_shutdown.

What a change should gain is an estimate, from what the trace shows; it is an upper limit where it says "up to".
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tracing.analysis.measure.capacity import Work, cores, cores_are_the_limit, cores_used, more_workers, work
from tracing.analysis.measure.measures import Measures
from tracing.analysis.report.advice_on_batches import (
    explain_hold_up,
    explain_moving,
    explain_pinning,
    explain_prefetch,
    explain_sampler,
)
from tracing.analysis.report.advice_on_startup_and_shutdown import (
    explain_nothing,
    explain_shutdown,
    explain_startup,
    keep_workers,
)
from tracing.analysis.report.evidence import Explanation, Reason, Shown, busy, excused, of, run, waiting
from tracing.analysis.report.savings import saving, with_more_workers
from tracing.analysis.report.verdicts import FINE, MATTERS, Verdict, costs
from tracing.trace.places import Place
from tracing.trace.words import duration


def explain(measures: Measures, verdict: Verdict, cost: int) -> Explanation:
    explanation = EXPLAIN[verdict](measures, cost)
    if verdict is not Verdict.NOTHING:
        explanation.why += excused(measures, verdict, cost)
    startup = costs(measures)[Verdict.STARTUP]
    if verdict in FINE and startup >= MATTERS * measures.total and (advice := keep_workers(measures, startup)):
        explanation.next = advice + explanation.next * (verdict is Verdict.TRAINING)  # something is to change
    return explanation


def mend(measures: Measures) -> list[str]:
    """What next, for a run that an error broke off: the batches to look at, whose keys reproduce it; or what a worker
    does before it has any."""
    last = measures.tasks[measures.tasks["epoch"] == measures.tasks["epoch"].max()] if len(measures.tasks) else []
    found, never_begun = [], set()
    for row in last:
        where = f" on worker {row['worker']}" if row["worker"] >= 0 else " in main"
        if row["failed"] >= 0 or row["pin_failed"] >= 0:
            found.append(f"batch {row['task']}{where} raised{_keys(measures, int(row['keys_drawn']))}")
        elif row["lost"] >= 0 and row["index_got"] >= 0:
            what = "was with the worker that died"
            found.append(f"batch {row['task']}{where} {what}{_keys(measures, int(row['keys_drawn']))}")
        elif row["lost"] >= 0:
            never_begun.add(int(row["worker"]))
    if found:
        return [
            f"Mend that first: {'; '.join(found[:3])}. Without workers (num_workers=0) the same keys fail in main, "
            "where a debugger can be used."
        ]
    if never_begun:
        return [
            f"No batch was with worker {min(never_begun)} when it died. Look at what it printed; and if it was at its "
            "start, at what that does: the program's imports, the dataset's unpickling, worker_init_fn."
        ]
    return []


def _keys(measures: Measures, drawn: int) -> str:
    keys = measures.trace.text(int(measures.positions(np.array([drawn]), "keys_drawn")[0])) if drawn >= 0 else None
    return f" (keys {keys})" if keys is not None and len(str(keys)) <= 60 else ""


# ---- the verdicts


def _explain_no_workers(measures: Measures, cost: int) -> Explanation:
    loading, whole = Shown("longest", measures.main_in(Place.LOADING), most=3), run(measures)
    text = f"main made every batch itself for {loading} ({of(loading, whole)}), and did not train meanwhile"
    training = measures.spent[Place.TRAINING]
    most = 8 if work(measures) is Work.WAITS else max(1, cores(measures))
    wanted = min(max(1, math.ceil(cost / max(1, training))), most)
    gain = cost + training - max(cost // wanted, training)
    return Explanation(
        [waiting(measures), Reason(text, [loading, whole])],
        [
            f"num_workers={wanted}: batches are then made while main trains"
            + (", several at a time" if wanted > 1 else "")
            + f", which {saving(measures, gain, 'up to', num_workers=wanted)}."
        ],
        loading.first,
    )


def _explain_workers(measures: Measures, cost: int) -> Explanation:
    why = waiting(measures)
    why.shown[-1].most = 3
    return Explanation([why, busy(measures)], [_about_workers(measures, cost)], why.shown[-1].first)


def _about_workers(measures: Measures, cost: int) -> str:
    workers, there, kind = measures.num_workers, cores(measures), work(measures)
    wanted, gain = more_workers(measures, cost)
    if cores_are_the_limit(measures):
        return (
            f"The cores are the limit: the workers use {cores_used(measures):.1f} of {there}, what main uses not "
            f"counted, so more workers would not help. {_cheaper(cost)}"
        )
    if kind is Work.WAITS:
        wanted, more = with_more_workers(measures, wanted, gain)
        advice = (
            "They hardly compute: they wait, for storage, a network or a lock. So more of them can help, beyond the "
            f"number of cores too: {more}."
        )
        if wanted > there > 0:
            advice += " (torch's warning about too many workers does not apply: they wait, they do not compute.)"
        return advice
    if kind is Work.MIXED:
        used = f"on {cores_used(measures):.1f} of {there} cores together" if there else "on an unknown number of cores"
        return (
            f"They compute for less than half of that, {used}. If other programs had the rest, they waited for a core: "
            "make the samples cheaper, or run on a machine with nothing else to do. If not, they waited for storage, a "
            f"network or a lock, and {with_more_workers(measures, wanted, gain)[1]}."
        )
    if there > workers + 1:
        wanted = min(wanted, there - 1)
        gain = int(min(gain, (measures.spent[Place.TRAINING] + cost) * (1 - workers / wanted)))
        return f"They compute, and there are {there} cores: {with_more_workers(measures, wanted, gain)[1]}."
    return (
        f"They compute, and with main they take all {there or 'the'} cores: more workers would not help. "
        f"{_cheaper(cost)}"
    )


def _cheaper(cost: int) -> str:
    return (
        "Make the samples cheaper (the slowest batches are listed below), prepare them once and store the result, or "
        f"use a machine with more cores. Up to {duration(cost)} is to be had."
    )


def _explain_training(measures: Measures, cost: int) -> Explanation:
    why = [waiting(measures)]
    advice = ["Nothing to gain in the loader. To go faster, make the training step faster."]
    if measures.num_workers:
        why.append(busy(measures))
        worked = int(measures.stage("fetch_begin", "collate_end").sum())
        enough = max(1, math.ceil(1.25 * worked / max(1, measures.spent[Place.TRAINING])))  # with some room
        if enough < measures.num_workers:
            advice.append(f"num_workers={enough} would do as well as {measures.num_workers}.")
    return Explanation(why, advice)


def _explain_healthy(measures: Measures, cost: int) -> Explanation:
    return Explanation([waiting(measures), busy(measures)], ["Nothing to change."])


EXPLAIN: dict[Verdict, Callable[[Measures, int], Explanation]] = {
    Verdict.NOTHING: explain_nothing,
    Verdict.HEALTHY: _explain_healthy,
    Verdict.TRAINING: _explain_training,
    Verdict.WORKERS: _explain_workers,
    Verdict.NO_WORKERS: _explain_no_workers,
    Verdict.HOLD_UP: explain_hold_up,
    Verdict.PREFETCH: explain_prefetch,
    Verdict.MOVING: explain_moving,
    Verdict.PINNING: explain_pinning,
    Verdict.SAMPLER: explain_sampler,
    Verdict.STARTUP: explain_startup,
    Verdict.SHUTDOWN: explain_shutdown,
}
