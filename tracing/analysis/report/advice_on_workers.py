"""Why, and what next, where the number of workers decides: too few, none, or enough."""

from __future__ import annotations

import math

from tracing.analysis.measure.capacity import Work, cores, more_workers, work
from tracing.analysis.measure.measures import Measures
from tracing.analysis.report.evidence import Explanation, Number, Reason, busy, collating, run, seen_at, waiting
from tracing.trace.thread_activity import MainTime
from tracing.trace.words import duration


def explain_healthy(measures: Measures, cost: int) -> Explanation:
    return Explanation([waiting(measures), busy(measures)], ["Nothing to change."])


def explain_training(measures: Measures, cost: int) -> Explanation:
    why = [waiting(measures)]
    advice = ["The loader keeps up: to go faster, make the training step faster."]
    if measures.num_workers:
        why.append(busy(measures))
        worked = int(measures.stage("fetch_begin", "collate_end").sum())
        enough = max(1, math.ceil(1.25 * worked / max(1, measures.away.total)))  # with some headroom
        if enough < measures.num_workers:
            advice.append(f"num_workers={enough} would do as well as {measures.num_workers}.")
    return Explanation(why, advice)


def explain_no_workers(measures: Measures, cost: int) -> Explanation:
    loading, whole = Number("longest", measures.main_in(MainTime.LOADING), most=3), run(measures)
    text = f"main made every batch itself for {loading} ({loading.share_of(whole)}), and did not train meanwhile"
    slow = collating(measures)
    advice = (
        "Workers make batches while main trains: worth it where making one takes longer than moving it to main. Up to "
        f"{duration(cost)} could be saved."
    )
    reasons = [waiting(measures), Reason(text, [loading, whole]), *slow.reasons]
    return Explanation(reasons, [advice], loading.first, slow.name)


def explain_workers(measures: Measures, cost: int) -> Explanation:
    why, slow = waiting(measures), collating(measures)
    waits = why.numbers[-1]
    waits.most = 3
    advice = _what_would_help(measures, cost, slow.name)
    _, seen = seen_at(measures) if work(measures) is Work.WAITS and not slow.name else ("", "")
    return Explanation([why, busy(measures, seen), *slow.reasons], advice, waits.first, slow.name)


def _what_would_help(measures: Measures, cost: int, slow: str) -> list[str]:
    """More workers, or cheaper samples: it depends on what the workers do, and on the cores."""
    workers, there, kind = measures.num_workers, cores(measures), work(measures)
    if kind is Work.WAITS:
        advice = (
            "They hardly compute: they wait for storage, a network or a lock. If that can answer several at a time, "
            "more workers help, even beyond the number of cores."
        )
        if more_workers(measures, cost)[0] > there > 0:
            advice += " (Ignore torch's warning about too many workers: these wait, they do not compute.)"
        return [advice]
    cheaper = (
        f"Make {slow or 'the samples'} cheaper, or prepare them once and store the result. Up to {duration(cost)} "
    )
    cheaper += "could be saved."
    if kind is Work.MIXED:
        help_ = "They compute, and wait for storage, a network or a lock: more workers help until the cores are busy."
        return [help_, cheaper]
    if there > workers:
        return [f"They compute, and there are {there} cores: more workers can help, one for each core.", cheaper]
    return [f"More workers would not help: they compute, and there are {there or 'no more'} cores. {cheaper}"]
