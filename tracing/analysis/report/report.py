"""`tracing.report(trace)`: verdict, why, next; and beside it the tables that they were drawn from.

What is measured stands in tracing.analysis.measure.measures and tracing.analysis.measure.stages, the rules in
tracing.analysis.report.verdicts, the words in tracing.analysis.report.evidence (why) and tracing.analysis.report.advice
(next), the layout in tracing.analysis.report.text; here it is put together, and given as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from tracing.analysis.measure.measures import Measures, measure
from tracing.analysis.measure.run_end import ended_early, failed
from tracing.analysis.measure.stages import QUEUES, bottleneck, occupancy, percentiles, worker_time
from tracing.analysis.report import text as report_text
from tracing.analysis.report.advice import explain, mend
from tracing.analysis.report.caveats import notes
from tracing.analysis.report.evidence import Reason, Shown
from tracing.analysis.report.verdicts import Verdict, costs, verdicts
from tracing.trace.intervals import Span
from tracing.trace.places import Place
from tracing.trace.trace import Trace
from tracing.trace.words import STAGES, duration

FORMAT = 1  # of the JSON
SLOWEST = 10


@dataclass
class LoaderReport:
    """What there is to say of one DataLoader, all its epochs together."""

    loader: int
    config: dict[str, Any]
    batches: int  # yielded
    epochs: int
    ended_early: bool  # by an error, or because main was killed: see Report.notes
    verdict: Verdict
    share: float  # of main's time, 0 to 1: what the cause costs
    cost_ns: int
    also: dict[Verdict, int]  # causes that come close to it, and what they cost (ns)
    why: list[Reason]
    next: list[str]
    look: Span | None  # events that begin and end the part of the trace to look at
    main_ns: dict[str, int]  # name of a Place -> what main spent there
    causes_ns: dict[str, int]  # name of a Verdict -> what its cause costs: see tracing.analysis.report.verdicts
    stages_ns: dict[str, dict[str, float]]  # stage -> count, median, p90, p99, max
    workers: list[dict[str, int]]  # of each: see tracing.analysis.measure.stages.worker_time
    queues: dict[str, dict[str, float]]  # queue -> mean, max, empty (share of the time)
    bottleneck: str  # the step from high to low, in a sentence; "" if no queue backs up
    slowest: list[dict[str, Any]]  # batches

    @property
    def verdict_line(self) -> str:
        text = self.verdict.value[0].upper() + self.verdict.value[1:]
        if self.verdict is Verdict.NOTHING:
            return f"{text}."
        if self.ended_early:
            text = f"The run ended early: see the note. Until then, {self.verdict.value}"
        what = "of the time is training" if self.verdict in (Verdict.TRAINING, Verdict.HEALTHY) else "of the time"
        return f"{text}: {self.share:.0%} {what} ({duration(self.cost_ns)})."

    @property
    def also_line(self) -> str:
        """The causes that come close; "" without one."""
        total = self.cost_ns / max(self.share, 1e-9)
        close = [f"{each.value}: {ns / total:.0%} ({duration(ns)})" for each, ns in self.also.items()]
        return f"{close[0][0].upper()}{'; '.join(close)[1:]}." if close else ""


@dataclass
class Report:
    """`str()` is its text."""

    trace: Trace
    notes: list[str]  # what a reader must know before he believes the rest
    loaders: list[LoaderReport]  # the one that took most of main's time first

    @property
    def path(self) -> str:
        return str(self.trace.path)

    def first_lines(self) -> list[str]:
        """Verdict, why and next of the first loader, as lines."""
        return report_text.first_lines(self)

    def __str__(self) -> str:
        return report_text.text(self)

    def at(self, span: Span) -> tuple[int, int]:
        """When the time between two events begins and ends (ns after the first event)."""
        begin, end = (int(self.trace.events["time"][position]) - self.trace.start for position in span)
        return begin, end

    def to_json(self) -> str:
        """The whole of it. Times in ns, those of `at_ns` since the first event; spans as positions of events in
        `trace.events`. Of a number in `why`: the length of all its stretches together, how many there are, and which
        are the longest."""
        loaders = []
        for each in self.loaders:
            plain = asdict(replace(each, why=[], also={}))
            plain["verdict"], plain["sentence"] = each.verdict.name.lower(), each.verdict_line
            plain["also"] = {verdict.name.lower(): ns for verdict, ns in each.also.items()}
            plain["why"] = [self._reason(reason) for reason in each.why]
            loaders.append(plain)
        document = {"format": FORMAT, "trace": self.path, "notes": self.notes, "loaders": loaders}
        return json.dumps(document, indent=1, default=_plain)

    def _reason(self, reason: Reason) -> dict[str, Any]:
        return {
            "text": reason.text,
            "spans": reason.spans,
            "at_ns": [self.at(span) for span in reason.spans],
            "numbers": [self._number(shown) for shown in reason.shown],
        }

    def _number(self, shown: Shown) -> dict[str, Any]:
        count = len(shown.stretches.first)
        return {"what": shown.name, "clock": shown.clock, "ns": shown.ns, "count": count, "spans": shown.longest}


def report(trace: Trace) -> Report:
    """Judge every DataLoader of a trace, finished or not."""
    measured = sorted(measure(trace), key=lambda each: -each.total)
    return Report(trace, notes(trace), [_judge(each) for each in measured])


def _judge(measures: Measures) -> LoaderReport:
    (verdict, cost), *close = verdicts(measures)
    explanation = explain(measures, verdict, cost)
    advice = explanation.next
    for other, its_cost in close:
        advice.append(f"Then, for {other.value}: {explain(measures, other, its_cost).next[0]}")
    stages = {name: percentiles(measures.stage(*hops)) for name, hops in STAGES.items()}
    queues = {name: occupancy(measures, *hops) for name, hops in QUEUES.items()}
    queues = {name: found for name, found in queues.items() if found["max"]}
    return LoaderReport(
        loader=measures.loader,
        config=measures.config,
        batches=int((measures.tasks["yielded"] >= 0).sum()),
        epochs=len(np.unique(measures.tasks["epoch"])),
        ended_early=ended_early(measures),
        verdict=verdict,
        share=cost / measures.total,
        cost_ns=cost,
        also=dict(close),
        why=explanation.why,
        next=mend(measures) if failed(measures) else advice,
        look=explanation.look,
        main_ns={place.name.lower(): ns for place, ns in measures.spent.items() if place is not Place.OUTSIDE},
        causes_ns={each.name.lower(): ns for each, ns in costs(measures).items() if ns},
        stages_ns={name: found for name, found in stages.items() if found["count"]},
        workers=[worker_time(measures, worker) for worker in range(measures.num_workers)],
        queues=queues,
        bottleneck=bottleneck(measures, queues),
        slowest=_slowest(measures),
    )


def _slowest(measures: Measures) -> list[dict[str, Any]]:
    """The batches that took longest to make, with their keys."""
    rows = measures.tasks[(measures.tasks["collate_end"] >= 0) & (measures.tasks["fetch_begin"] >= 0)]
    rows = rows[np.argsort(rows["fetch_begin"] - rows["collate_end"], kind="stable")[:SLOWEST]]
    made = measures.between(rows, "fetch_begin", "collate_end")
    drawn = measures.positions(rows["keys_drawn"], "keys_drawn") if (rows["keys_drawn"] >= 0).all() else None
    asked_for, asked, had = measures.requests
    found = []
    for i, row in enumerate(rows):
        waited = (had - asked)[(asked_for["epoch"] == row["epoch"]) & (asked_for["task"] == row["task"])]
        found.append(
            {
                "epoch": int(row["epoch"]),
                "batch": int(row["task"]),
                "worker": int(row["worker"]),
                "at_ns": int(made.begin[i]) - measures.trace.start,
                "made_ns": int(made.length[i]),
                "cpu_ns": int(max(0, row["fetch_cpu"]) + max(0, row["collate_cpu"])),
                "waited_ns": int(waited.sum()),
                "keys": measures.trace.text(int(drawn[i])) if drawn is not None else None,
                "events": made.spans[i],
            }
        )
    return found


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else str(value)
