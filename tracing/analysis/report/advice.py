"""Why, and what next: each verdict has a function that gives its reasons with their numbers, and says what to change.

Options to change come first, with what a replay of the recording says that saves (savings.py); then what its verdict's
function says. What that would gain is an upper limit.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tracing.analysis.measure.measures import Measures
from tracing.analysis.measure.run_end import failed
from tracing.analysis.report import (
    advice_on_batches,
    advice_on_culprits,
    advice_on_startup_and_shutdown,
    advice_on_workers,
    moving,
)
from tracing.analysis.report.advice_after_error import advice_after_error
from tracing.analysis.report.causes import NO_PROBLEM, WAITING_CAUSES, Verdict
from tracing.analysis.report.evidence import Explanation, Number, Reason, run
from tracing.analysis.report.savings import changes, lacking
from tracing.analysis.report.verdicts import MATTERS, Judgement, warm_up
from tracing.trace.thread_activity import MainTime

EXPLAIN: dict[Verdict, Callable[[Measures, int], Explanation]] = {  # given the cost of the verdict's cause (ns)
    Verdict.NOTHING: advice_on_startup_and_shutdown.explain_nothing,
    Verdict.HEALTHY: advice_on_workers.explain_healthy,
    Verdict.TRAINING: advice_on_workers.explain_training,
    Verdict.WORKERS: advice_on_workers.explain_workers,
    Verdict.CORES: advice_on_culprits.explain_cores,
    Verdict.NEIGHBOURS: advice_on_culprits.explain_neighbours,
    Verdict.TURNS: advice_on_culprits.explain_turns,
    Verdict.SLOW_WORKER: advice_on_culprits.explain_slow_worker,
    Verdict.SHARDS: advice_on_culprits.explain_shards,
    Verdict.GIL: advice_on_culprits.explain_gil,
    Verdict.NO_WORKERS: advice_on_workers.explain_no_workers,
    Verdict.HOLD_UP: advice_on_batches.explain_hold_up,
    Verdict.PREFETCH: advice_on_batches.explain_prefetch,
    Verdict.MOVING: advice_on_batches.explain_moving,
    Verdict.PINNING: advice_on_batches.explain_pinning,
    Verdict.SAMPLER: advice_on_batches.explain_sampler,
    Verdict.STARTUP: advice_on_startup_and_shutdown.explain_startup,
    Verdict.SHUTDOWN: advice_on_startup_and_shutdown.explain_shutdown,
}


def explain(measures: Measures, judgement: Judgement, patience: float) -> Explanation:
    """The reasons for a verdict, and what to do next about it and about the causes that come close to it."""
    verdict = judgement.verdict
    explanation = EXPLAIN[verdict](measures, judgement.cost)
    if verdict is not Verdict.NOTHING:
        explanation.why += secondary_costs(measures, judgement)
        explanation.why += moving.costs_of_moving(measures) if verdict is not Verdict.MOVING else []
    if verdict is not Verdict.NOTHING and not failed(measures):
        found = changes(measures, explanation.keep, patience)
        explanation.promises = [each.promise for each in found if each.promise is not None]
        if found and verdict is Verdict.HEALTHY:
            explanation.next = []  # "Nothing to change" would be wrong beside it
        explanation.next = [each.text for each in found] + explanation.next
        if lacking():
            explanation.next.append(f"What other options would save is not known here: a replay needs {lacking()}.")
        explanation.next += moving.other_transport(measures)
    for other, cost in judgement.close.items():
        explanation.next.append(f"Also, {other.value}: {EXPLAIN[other](measures, cost).next[0]}")
    explanation.next += work_in_the_loop(measures, judgement)
    if failed(measures):
        explanation.next = advice_after_error(measures)
    return explanation


def work_in_the_loop(measures: Measures, judgement: Judgement) -> list[str]:
    """To the report all is training that main does between two batches. Where that is nearly everything, it says so: a
    loop that also reads or converts is slow, too, and no change of the loader helps."""
    training = measures.spent[MainTime.TRAINING]
    small = judgement.verdict not in NO_PROBLEM and judgement.cost < training / 4
    if training < measures.total / 2 or not (small or judgement.verdict is Verdict.TRAINING):
        return []
    return [
        f"{training / measures.total:.0%} of main's time is training, which is all that your loop does between two "
        "batches. If it reads or converts data there, let the workers do that."
    ]


def secondary_costs(measures: Measures, judgement: Judgement) -> list[Reason]:
    """What else costs time, and why it is not the verdict."""
    found, total, whole = judgement.costs, measures.total, run(measures)
    no_problem = judgement.verdict in NO_PROBLEM
    reasons = []
    for verdict, name, place in (
        (Verdict.STARTUP, "start-up", MainTime.STARTUP),
        (Verdict.SHUTDOWN, "shutdown", MainTime.SHUTDOWN),
    ):
        weighs_more = no_problem or found[verdict] > judgement.cost
        if verdict is not judgement.verdict and found[verdict] >= MATTERS * total and weighs_more:
            took = Number(name, measures.main_in(place).joined())
            text = f"{name} took {took} ({took.share_of(whole)} of all), but only once an epoch: in a longer epoch it "
            reasons.append(Reason(f"{text}matters less", [took, whole]))
    waits = Number("longest wait", measures.waits)
    early = measures.waits.where(np.flatnonzero(warm_up(measures))).total
    waiting_cost = sum(found.get(each, 0) for each in WAITING_CAUSES)
    if no_problem and waiting_cost >= 0.01 * total and early > waits.ns / 2:
        text = (
            f"what is left is {waits} ({waits.share_of(whole)}) of waiting for batches, most of it before every worker "
            "had made its first one, which also comes only once an epoch"
        )
        reasons.append(Reason(text, [waits, whole]))
    return reasons
