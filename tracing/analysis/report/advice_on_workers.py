"""Why, and what next, where the number of workers decides: too few, none, or enough."""

from __future__ import annotations

import math

from tracing.analysis.measure.capacity import Work, cores, cores_are_the_limit, cores_used, more_workers, work
from tracing.analysis.measure.measures import Measures
from tracing.analysis.report.evidence import Explanation, Number, Reason, busy, run, waiting
from tracing.analysis.report.savings import more_workers_saving, saving
from tracing.trace.thread_activity import MainTime
from tracing.trace.words import duration


def explain_healthy(measures: Measures, cost: int) -> Explanation:
    return Explanation([waiting(measures), busy(measures)], ["Nothing to change."])


def explain_training(measures: Measures, cost: int) -> Explanation:
    why = [waiting(measures)]
    advice = ["Nothing to gain in the loader. To go faster, make the training step faster."]
    if measures.num_workers:
        why.append(busy(measures))
        worked = int(measures.stage("fetch_begin", "collate_end").sum())
        enough = max(1, math.ceil(1.25 * worked / max(1, measures.spent[MainTime.TRAINING])))  # with some headroom
        if enough < measures.num_workers:
            advice.append(f"num_workers={enough} would do as well as {measures.num_workers}.")
    return Explanation(why, advice)


def explain_no_workers(measures: Measures, cost: int) -> Explanation:
    loading, whole = Number("longest", measures.main_in(MainTime.LOADING), most=3), run(measures)
    text = f"main made every batch itself for {loading} ({loading.share_of(whole)}), and did not train meanwhile"
    training = measures.spent[MainTime.TRAINING]
    most = 8 if work(measures) is Work.WAITS else max(1, cores(measures))
    wanted = min(max(1, math.ceil(cost / max(1, training))), most)
    gain = cost + training - max(cost // wanted, training)
    several = ", several at a time" if wanted > 1 else ""
    advice = f"num_workers={wanted}: batches are then made while main trains{several}, which "
    advice += f"{saving(measures, gain, 'up to', num_workers=wanted)}."
    return Explanation([waiting(measures), Reason(text, [loading, whole])], [advice], loading.first)


def explain_workers(measures: Measures, cost: int) -> Explanation:
    why = waiting(measures)
    waits = why.numbers[-1]
    waits.most = 3
    return Explanation([why, busy(measures)], [_what_would_help(measures, cost)], waits.first)


def _what_would_help(measures: Measures, cost: int) -> str:
    """More workers, or cheaper samples: it depends on what the workers do, and on the cores."""
    workers, there, kind = measures.num_workers, cores(measures), work(measures)
    wanted, gain = more_workers(measures, cost)
    if cores_are_the_limit(measures):
        return (
            f"The cores are the limit: the workers use {cores_used(measures):.1f} of {there}, not counting what main "
            f"uses, so more workers would not help. {_cheaper(cost)}"
        )
    if kind is Work.WAITS:
        wanted, more = more_workers_saving(measures, wanted, gain)
        advice = (
            "They hardly compute: they wait for storage, a network or a lock. So more of them can help, even beyond "
            f"the number of cores: {more}."
        )
        if wanted > there > 0:
            advice += " (Ignore torch's warning about too many workers: these wait, they do not compute.)"
        return advice
    if kind is Work.MIXED:
        used = f"on {cores_used(measures):.1f} of {there} cores together" if there else "on an unknown number of cores"
        return (
            f"They compute for less than half of that, {used}. If other programs had the rest, they waited for a core: "
            "make the samples cheaper, or run on a machine with nothing else to do. If not, they waited for storage, a "
            f"network or a lock, and {more_workers_saving(measures, wanted, gain)[1]}."
        )
    if there > workers + 1:
        wanted = min(wanted, there - 1)
        gain = int(min(gain, (measures.spent[MainTime.TRAINING] + cost) * (1 - workers / wanted)))
        return f"They compute, and there are {there} cores: {more_workers_saving(measures, wanted, gain)[1]}."
    return (
        f"They compute, and together with main they take all {there or 'the'} cores: more workers would not help. "
        f"{_cheaper(cost)}"
    )


def _cheaper(cost: int) -> str:
    return (
        "Make the samples cheaper (the slowest batches are listed below), prepare them once and store the result, or "
        f"use a machine with more cores. Up to {duration(cost)} could be saved."
    )
