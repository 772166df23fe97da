"""Why, and what next: options to change first, with what a replay of the recording says that saves, then what the
table of verdicts says."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tracing.analysis.measure.measures import Measures
from tracing.analysis.measure.run_end import failed
from tracing.analysis.measure.waited import Judgement, Verdict
from tracing.analysis.report.evidence import WHY, Reason, time_of_main
from tracing.analysis.report.verdicts import advice, facts, named
from tracing.analysis.task_events import keys_of
from tracing.analysis.whatif.promises import Change, changes
from tracing.trace.intervals import Span
from tracing.trace.words import duration

SAID_BY_OPTIONS = {"in_order": "in_order", "quickly_made": "num_workers", "restarts": "persistent_workers"}
WORSE = 2  # main's longest wait is shown instead of the cause's longest stretch if it is this many times as long


@dataclass
class Explanation:
    """Why a verdict is right, and what to do next."""

    named: str  # who or what it is about: "worker 1, pid 4711"
    why: list[Reason]
    next: list[str] = field(default_factory=list)
    promises: list[Change] = field(default_factory=list)  # of `next`, in that order
    look: Span | None = None  # the part of the trace that shows it best


def explain(measures: Measures, judgement: Judgement) -> Explanation:
    """The reasons for a verdict, and what to do next about it and about the causes that come close to it."""
    verdict, began = judgement.verdict, bool((measures.tasks["yielded"] >= 0).any())
    first, own = time_of_main(measures), WHY[verdict](measures)
    known = facts(measures, judgement)
    found = Explanation(named(verdict, known), [first, *own] if began else own)
    if verdict is not Verdict.TRAINING:
        # A cause that costs most all together may be in each place too short to see, beside one long wait.
        most = measures.waits.longest(1)
        stretch = own[0].numbers[0].stretches.longest(1) if verdict is not Verdict.WORKERS else most
        shown = most if most.total > WORSE * stretch.total else stretch
        found.look = shown.spans[0] if len(shown.begin) else None
    if failed(measures):
        found.why, found.next = found.why[:1], advice_after_error(measures)
        return found
    options = [] if not began or known["left"] else changes(measures, judgement)
    found.promises = [each for each in options if each.saves_ns is not None]
    changed = {name for each in options for name in each.options}
    for fact, option in SAID_BY_OPTIONS.items():  # the same is not said twice
        known[fact] = known[fact] and option not in changed
    # Where the loader is not the limit, its options come second; and anywhere those that bring little.
    second = [each for each in options if each.little or verdict in (Verdict.TRAINING, Verdict.SHUTDOWN)]
    found.next = [each.text for each in options if each not in second]
    found.next += [*advice(verdict, known), *[each.text for each in second]]
    for other, cost in judgement.close.items():
        words = advice(other, known | {"could_save": f"Up to {duration(cost)} could be saved."})
        found.next += [f"Also, {other.value}: {words[0]}"] if words else []
    return found


# ---- after an error


def advice_after_error(measures: Measures) -> list[str]:
    """The batches whose keys reproduce the error."""
    tasks = measures.tasks
    last_epoch = tasks[tasks["epoch"] == tasks["epoch"].max()] if len(tasks) else tasks
    batches = [described for row in last_epoch if (described := _failed_batch(measures, row))]
    if not batches:
        return []
    return [
        f"Fix that first: {'; '.join(batches[:3])}. Without workers (num_workers=0) the same keys fail in main, where "
        "you can use a debugger."
    ]


def _failed_batch(measures: Measures, row: np.void) -> str:
    """What happened to a batch, with its keys: "batch 9 on worker 1 raised (keys [9])"; "" if nothing did."""
    if row["failed"] >= 0 or row["pin_failed"] >= 0:
        what = "raised"
    elif row["lost"] >= 0 and row["index_got"] >= 0:
        what = "was with the worker that died"
    else:
        return ""
    where = f"on worker {row['worker']}" if row["worker"] >= 0 else "in main"
    keys = keys_of(measures.trace, row["loader"], row["epoch"], row["task"])
    shown = f" (keys {keys})" if keys is not None and len(str(keys)) <= 60 else ""
    return f"batch {row['task']} {where} {what}{shown}"
