"""`tracing.report(trace)`: verdict, why, next; and the tables behind them.

The way of a report, from the trace to its text:

    tracing.analysis.measure    what the trace shows, in numbers: Measures; and what limits the load: Judgement
    report.evidence             why, with the events that show it
    tracing.analysis.whatif     which options to change, and what that saves: promises
    report.verdicts             the table of verdicts, and what else to do
    report.caveats              what to know before you trust the rest
    report.advice, and here     all of it together: Report, its JSON
    report.text                 its text
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from tracing.analysis.hang.explain import explain as explain_hang
from tracing.analysis.hang.hang import Hang
from tracing.analysis.measure.measures import Measures, costliest_first
from tracing.analysis.measure.run_end import ended_early
from tracing.analysis.measure.stages import QUEUES, occupancy, percentiles, slowest_batches, worker_time
from tracing.analysis.measure.waited import PLACES_AWAY, Verdict, judge
from tracing.analysis.report import text as report_text
from tracing.analysis.report.advice import explain
from tracing.analysis.report.caveats import caveats
from tracing.analysis.report.evidence import Number, Reason
from tracing.analysis.whatif.promises import Change
from tracing.trace.intervals import Span
from tracing.trace.thread_activity import MainTime
from tracing.trace.trace import Trace
from tracing.trace.words import STAGES, duration

FORMAT = 1  # of the JSON


@dataclass
class LoaderReport:
    """What there is to report on one DataLoader, or on all that were built at one line, all their epochs together."""

    loader: int
    built: int  # how many loaders this is, all alike
    config: dict[str, Any]
    batches: int  # yielded
    epochs: int
    ended_early: bool  # by an error, or because main was killed: see Report.notes
    hung: bool  # it makes no progress, or made none when it ended: see Report.notes
    verdict: Verdict
    named: str  # who or what the verdict is about: "worker 1, pid 4711"; "" for no one thing
    place: str  # where main's time goes if that is not the loader's: see PLACES_AWAY; else ""
    share: float  # of main's time, 0 to 1: what the cause costs
    cost_ns: int
    also: dict[Verdict, int]  # causes that cost nearly as much, and what they cost (ns)
    why: list[Reason]
    next: list[str]
    promises: list[Change]  # of `next`, in that order: those that save a known time
    look: Span | None  # events that begin and end the part of the trace to look at
    look_batch: tuple[int, int] | None  # (epoch, batch) that this part is about, where it is about one
    nested: bool  # it is iterated in another loader's worker
    program_ns: int  # all time of the thread that iterates, whatever it does
    main_ns: dict[str, int]  # name of a MainTime -> what main spent there, each moment in one loader only
    causes_ns: dict[str, int]  # name of a Verdict -> what its cause costs: see tracing.analysis.measure.waited
    stages_ns: dict[str, dict[str, float]]  # stage -> count, median, p90, p99, max
    workers: list[dict[str, int]]  # one each: see tracing.analysis.measure.stages.worker_time
    queues: dict[str, dict[str, float]]  # queue -> mean, max, empty (share of the time)
    slowest: list[dict[str, Any]]  # batches: see tracing.analysis.measure.stages.slowest_batches

    @property
    def in_loader_ns(self) -> int:
        """What the loader costs the program: main waits for it, or works in it."""
        return sum(ns for name, ns in self.main_ns.items() if name not in ("training", "elsewhere"))

    @property
    def verdict_line(self) -> str:
        if self.ended_early or self.hung:
            return f"The run {'hung' if self.hung else 'ended early'}: see the note."
        text = self.verdict.value if self.place in ("", PLACES_AWAY[0]) else "it is not the loader"
        what = f" is {self.place}" * bool(self.place)
        cost = f"{self.share:.0%} of the time{what} ({duration(self.cost_ns)})"
        return f"{text[0].upper()}{text[1:]}{f' ({self.named})' * bool(self.named)}: {cost}."


@dataclass
class Report:
    """`str()` is its text."""

    trace: Trace
    notes: list[str]  # what to know before you trust the rest
    loaders: list[LoaderReport]  # the one that costs the program most first

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
        """All of it. Times are in ns, those of `at_ns` since the first event; spans are positions of events in
        `trace.events`. Each number in `why` comes with the length of all its stretches together, their count, and
        the longest of them."""
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
            "numbers": [_number(number) for number in reason.numbers],
        }


def _number(number: Number) -> dict[str, Any]:
    count = len(number.stretches.first)
    return {"what": number.name, "clock": number.clock, "ns": number.ns, "count": count, "spans": number.longest}


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else str(value)


def report(trace: Trace) -> Report:
    """Judge every DataLoader of a trace, finished or not."""
    hang = explain_hang(trace)
    stuck = hang.notes() if hang is not None else []
    loaders = [_judge_loader(each, hang) for each in costliest_first(trace)]
    return Report(trace, stuck + caveats(trace, " ".join(stuck)), loaders)


def _judge_loader(measures: Measures, hang: Hang | None) -> LoaderReport:
    judgement = judge(measures)
    explanation = explain(measures, judgement)
    if hang is not None:  # speed comes later
        explanation.why, explanation.promises = explanation.why[:1], []
        explanation.next = [f"Solve that first. {hang.advice}."]
    stages = {name: percentiles(measures.stage(*hops)) for name, hops in STAGES.items()}
    queues = {name: occupancy(measures, *hops) for name, hops in QUEUES.items()}
    queues = {name: found for name, found in queues.items() if found["max"]}
    return LoaderReport(
        loader=measures.loader,
        built=len(measures.loaders),
        config=measures.config,
        batches=int((measures.tasks["yielded"] >= 0).sum()),
        epochs=measures.epochs,
        ended_early=ended_early(measures),
        hung=hang is not None,
        verdict=judgement.verdict,
        place=judgement.place,
        share=judgement.share,
        cost_ns=judgement.cost,
        also=judgement.close,
        **vars(explanation),
        look_batch=batch_of(measures, explanation.look),
        nested=measures.nested,
        program_ns=measures.program,
        main_ns={place.name.lower(): ns for place, ns in measures.spent.items() if place is not MainTime.OUTSIDE},
        causes_ns={each.name.lower(): ns for each, ns in judgement.costs.items() if ns},
        stages_ns={name: found for name, found in stages.items() if found["count"]},
        workers=[worker_time(measures, worker) for worker in range(measures.num_workers)],
        queues=queues,
        slowest=slowest_batches(measures),
    )


def batch_of(measures: Measures, span: Span | None) -> tuple[int, int] | None:
    """(epoch, batch): the one that main waits for longest in this part; if it waits for none, the one it ends with."""
    if span is None:
        return None
    begin, end = measures.time[list(span)].tolist()
    rows, asked, had = measures.requests
    waited = np.minimum(had, end) - np.maximum(asked, begin)
    last = rows[waited.argmax()] if len(rows) and waited.max() > 0 else measures.events[span[1]]
    return (int(last["epoch"]), int(last["task"])) if last["task"] >= 0 else None
