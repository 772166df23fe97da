"""`tracing.report(trace)`: verdict, why, next; and the tables behind them.

How a report is made, from the trace to text:

    tracing.analysis.measure    what the trace shows, in numbers: Measures; and what limits the load: Judgement
    report.evidence             why, with the events that show it
    tracing.analysis.whatif     which options to change, and what that saves: promises
    report.verdicts             the table of verdicts, and what else to do
    report.caveats              what to know before you trust the rest
    report.advice               what to do after an error
    here                        all of it together: Report, its JSON
    report.text                 its text
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracing.analysis.hang.explain import explain as explain_hang
from tracing.analysis.hang.hang import Hang
from tracing.analysis.measure.measures import Measures
from tracing.analysis.measure.run_end import ended_early, failed, most_important_first
from tracing.analysis.measure.stages import percentiles, slowest_batches, worker_time
from tracing.analysis.measure.waited import PLACES_AWAY, Judgement, Verdict
from tracing.analysis.report import text as report_text
from tracing.analysis.report.advice import advice_after_error
from tracing.analysis.report.caveats import caveats
from tracing.analysis.report.evidence import WHY, Reason, time_of_main
from tracing.analysis.report.verdicts import advice, facts, named
from tracing.analysis.whatif.promises import Change, changes
from tracing.trace.intervals import Span, concatenate
from tracing.trace.thread_activity import MainTime
from tracing.trace.trace import Trace
from tracing.trace.words import STAGES, duration

CROWD = (
    "Other programs use {others:.1f} of the {cores} cores: what looks like waiting may be for a core, so no number is "
    "promised. Record again when they are idle."
)


class LoaderReport:
    """What there is to report on one DataLoader, or on all that were built at one line, all their epochs together."""

    def __init__(self, measures: Measures, hang: Hang | None) -> None:
        judgement = Judgement(measures)
        self._explain(measures, judgement, hang)
        self.loader = measures.loaders[0]
        self.built = len(measures.loaders)  # how many loaders this is, all alike
        self.config = measures.config
        self.batches = measures.batches  # yielded
        self.epochs = measures.epochs
        self.ended_early = ended_early(measures)  # by an error, or because main was killed: see Report.notes
        self.hung = hang is not None  # it makes no progress, or made none when it ended: see Report.notes
        self.verdict = judgement.verdict
        self.place = judgement.place  # where main's time goes if not to the loader: see PLACES_AWAY; else ""
        self.share = judgement.share  # of main's time, 0 to 1: what the cause costs
        self.cost_ns = judgement.cost
        self.program_ns = judgement.away.program  # all time of the thread that iterates, whatever it does
        self.in_loader_ns = measures.in_loader.total  # what it costs the program: main waits for it, or works in it
        # name of a MainTime -> what main spent there, each moment in one loader only
        self.main_ns = {place.name.lower(): ns for place, ns in measures.spent.items() if place is not MainTime.OUTSIDE}
        # name of a Verdict -> what its cause costs: see tracing.analysis.measure.waited
        self.causes_ns = {cause.name.lower(): ns for cause, ns in judgement.costs.items() if ns}
        # stage -> count, median, p90, p99, max
        stages = {name: measures.stage(*hops) for name, hops in STAGES.items()}
        self.stages_ns = {name: percentiles(lengths) for name, lengths in stages.items() if len(lengths)}
        self.workers = [worker_time(measures, worker) for worker in range(measures.num_workers)]  # one each
        self.slowest = slowest_batches(measures)

    def _explain(self, measures: Measures, judgement: Judgement, hang: Hang | None) -> None:
        """Why the verdict is right, and what to do next."""
        verdict = judgement.verdict
        first, own = time_of_main(measures), WHY[verdict](measures)
        known = facts(measures, judgement)
        self.named = named(verdict, known)  # what it is about: "at data.py:17, read"
        self.why = [first, *own] if measures.batches else own  # numbers, each with the events that show it
        self.look: Span | None = None  # events that begin and end the part of the trace that shows it best
        if verdict is not Verdict.TRAINING:
            # The costliest cause may be too short to see in each single place, beside one long wait.
            of_cause = [] if verdict is Verdict.WORKERS else own[0].numbers[:1]
            shown = [measures.waits, *(number.stretches for number in of_cause)]
            self.look = next(iter(concatenate(shown).longest(1).spans), None)
        # A load that gets slower and slower has no one speed; and where workers read too much, that comes first.
        replayable = verdict is not Verdict.TRAINING and not (known["left"] or known["slows"] or known["reads"])
        options = changes(measures, judgement) if replayable else []
        crowd = [CROWD.format(**known)] if replayable and known["others"] else []
        self.next = advice(verdict, known, options) + crowd  # what to do
        self.promises = [each for each in options if each.saves_ns is not None]  # of `next`, in that order
        if hang is not None or failed(measures):  # speed comes later
            self.why, self.promises = self.why[:1], []
            self.next = [f"Solve that first. {hang.advice}."] if hang is not None else advice_after_error(measures)

    @property
    def verdict_line(self) -> str:
        if self.ended_early or self.hung:
            return f"The run {'hung' if self.hung else 'ended early'}: see the note."
        text = self.verdict.value if self.place in ("", PLACES_AWAY[0]) else "it is not the loader"
        cost = f"{self.share:.0%} of the time{f' is {self.place}' * bool(self.place)} ({duration(self.cost_ns)})"
        step, whole = self.main_ns["training"], sum(self.main_ns.values())
        cost += f"; the training step takes {step / max(1, whole):.0%}" * (not self.place and 2 * step > whole)
        return f"{text[0].upper()}{text[1:]}{f' ({self.named})' * bool(self.named)}: {cost}."


@dataclass
class Report:
    """`str()` is its text."""

    trace: Trace
    notes: list[str]  # what to know before you trust the rest
    loaders: list[LoaderReport]  # the most important one first

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
        """All of it, in the form with this number. Times are in ns; spans are positions of events in `trace.events`."""
        loaders = [
            vars(each) | {"verdict": each.verdict.name.lower(), "sentence": each.verdict_line} for each in self.loaders
        ]
        document = {"format": 2, "trace": str(self.trace.path), "notes": self.notes, "loaders": loaders}
        return json.dumps(document, indent=1, default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, Reason):
        return {"text": value.text, "spans": [span for number in value.numbers for span in number.longest]}
    if isinstance(value, Change):
        return vars(value)
    return value.item() if isinstance(value, np.generic) else str(value)


def report(trace: Trace) -> Report:
    """Judge every DataLoader of a trace, finished or not."""
    hang = explain_hang(trace)
    stuck = hang.notes() if hang is not None else []
    loaders = [LoaderReport(each, hang) for each in most_important_first(trace)]
    return Report(trace, stuck + caveats(trace, " ".join(stuck)), loaders)
