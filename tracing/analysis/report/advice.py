"""Why, and what next: each verdict has a function that gives its reasons with their numbers, and says what to change.

What a change should gain is an estimate from the trace; it is an upper limit where it says "up to".
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tracing.analysis.measure.measures import Measures
from tracing.analysis.measure.run_end import failed
from tracing.analysis.report import advice_on_batches, advice_on_startup_and_shutdown, advice_on_workers
from tracing.analysis.report.advice_after_error import advice_after_error
from tracing.analysis.report.advice_on_startup_and_shutdown import keep_workers
from tracing.analysis.report.evidence import Explanation, Number, Reason, run
from tracing.analysis.report.verdicts import MATTERS, NO_PROBLEM, WAITING_CAUSES, Judgement, Verdict, warm_up
from tracing.trace.thread_activity import MainTime

EXPLAIN: dict[Verdict, Callable[[Measures, int], Explanation]] = {  # given the cost of the verdict's cause (ns)
    Verdict.NOTHING: advice_on_startup_and_shutdown.explain_nothing,
    Verdict.HEALTHY: advice_on_workers.explain_healthy,
    Verdict.TRAINING: advice_on_workers.explain_training,
    Verdict.WORKERS: advice_on_workers.explain_workers,
    Verdict.NO_WORKERS: advice_on_workers.explain_no_workers,
    Verdict.HOLD_UP: advice_on_batches.explain_hold_up,
    Verdict.PREFETCH: advice_on_batches.explain_prefetch,
    Verdict.MOVING: advice_on_batches.explain_moving,
    Verdict.PINNING: advice_on_batches.explain_pinning,
    Verdict.SAMPLER: advice_on_batches.explain_sampler,
    Verdict.STARTUP: advice_on_startup_and_shutdown.explain_startup,
    Verdict.SHUTDOWN: advice_on_startup_and_shutdown.explain_shutdown,
}


def explain(measures: Measures, judgement: Judgement) -> Explanation:
    """The reasons for a verdict, and what to do next about it and about the causes that come close to it."""
    verdict = judgement.verdict
    explanation = EXPLAIN[verdict](measures, judgement.cost)
    if verdict is not Verdict.NOTHING:
        explanation.why += secondary_costs(measures, judgement)
    startup = judgement.costs[Verdict.STARTUP]
    if verdict in NO_PROBLEM and startup >= MATTERS * measures.total and (advice := keep_workers(measures, startup)):
        # "Nothing to change", which a healthy load gets, would be wrong beside it.
        explanation.next = advice + explanation.next * (verdict is Verdict.TRAINING)
    for other, cost in judgement.close.items():
        explanation.next.append(f"Then, for {other.value}: {EXPLAIN[other](measures, cost).next[0]}")
    if failed(measures):
        explanation.next = advice_after_error(measures)
    return explanation


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
