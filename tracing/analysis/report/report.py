"""`tracing.report(trace)`: verdict, why, next; and the tables behind them.

How a report is made, from the trace to text:

    tracing.analysis.measure    what the trace shows, in numbers: Measures; and what limits the load: Judgement
    tracing.analysis.notes      how the run ended, what to know before you trust the rest, what to do after an error
    report.evidence             why, with the events that show it
    tracing.analysis.whatif     which options to change, and what that saves: promises
    report.verdicts             the table of verdicts, and what else to do
    here                        all of it together: Report, its JSON and its text, a screen that says what to do, then
                                tables for more detail
"""

from __future__ import annotations

import json
import shlex
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tracing.analysis.hang.explain import explain as explain_hang
from tracing.analysis.hang.hang import Hang
from tracing.analysis.measure.measures import NO_LOADER, Measures
from tracing.analysis.measure.stages import percentiles, slowest_batches, worker_time
from tracing.analysis.measure.waited import PLACES_AWAY, Judgement, Verdict
from tracing.analysis.notes.after_error import advice_after_error
from tracing.analysis.notes.caveats import caveats
from tracing.analysis.notes.run_end import ended_early, failed, most_important_first
from tracing.analysis.report.evidence import WHY, Reason, time_of_main
from tracing.analysis.report.verdicts import advice, facts, named
from tracing.analysis.whatif.promises import Change, changes
from tracing.trace.intervals import Span, concatenate
from tracing.trace.thread_activity import MainTime
from tracing.trace.trace import Trace
from tracing.trace.words import GLOSSES, STAGES, command, duration, seconds, wrap

CROWD = (
    "Other programs, or other ranks, use {others:.1f} of the {cores} cores: what looks like waiting may be for a core, "
    "so no number is promised. Record again when they are idle."
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
        lines = [line for note in self.notes for line in wrap("Note: ", note)]
        if not self.loaders:
            return [*lines, *[NO_LOADER] * (not self.notes)]
        first = self.loaders[0]
        return [*lines, *(_headline(first) if len(self.loaders) > 1 else []), *_main_part(self, first)]

    def __str__(self) -> str:
        lines = self.first_lines()
        for position, each in enumerate(self.loaders):
            if position:
                lines += ["", "", *_headline(each), *_main_part(self, each)]
            lines += ["", *_tables(each)]
        return "\n".join(line.rstrip() for line in lines)

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


def _plain(value: Reason | Change) -> dict[str, Any]:
    if isinstance(value, Reason):
        return {"text": value.text, "spans": [span for number in value.numbers for span in number.longest]}
    return vars(value)  # a Change


def report(trace: Trace) -> Report:
    """Judge every DataLoader of a trace, finished or not."""
    hang = explain_hang(trace)
    stuck = hang.notes() if hang is not None else []
    loaders = [LoaderReport(each, hang) for each in most_important_first(trace)]
    return Report(trace, stuck + caveats(trace, " ".join(stuck)), loaders)


# ---- text


def _headline(each: LoaderReport) -> list[str]:
    """Which of several loaders, and what it costs the program."""
    of = f"({each.config['dataset']}, num_workers={len(each.workers)})" if "dataset" in each.config else ""
    of += f", built {each.built} times" * (each.built > 1)
    of += f", iterated at {each.config['iterated_at']}" if each.config.get("iterated_at") else ""
    cost = f"{each.in_loader_ns / max(1, each.program_ns):.0%} ({duration(each.in_loader_ns)})"
    return wrap(f"DataLoader {each.loader} ", f"{of}: {cost} of its process's {duration(each.program_ns)}".strip())


def _main_part(report: Report, each: LoaderReport) -> list[str]:
    lines, seen = wrap("Verdict  ", each.verdict_line), set[Span]()
    for number, reason in enumerate(each.why):
        lines += wrap("         - " if number else "Why      - ", reason.text)
        lines += wrap("           ", _where(report, reason, seen))
    for number, what in enumerate(each.next):
        lines += wrap("         - " if number else "Next     - ", what)
    if each.look is not None:
        lines += _look(report, each, each.look)
    return lines


def _where(report: Report, reason: Reason, seen: set[Span]) -> str:
    """Where its numbers can be seen: seconds, as the timeline takes them, and positions of events. No span is named
    twice."""
    parts = []
    for number in reason.numbers:
        new = [span for span in number.longest if span not in seen]
        seen |= set(new)
        if new:
            at = (f"{seconds(*report.at(span))} s [events {span[0]}-{span[1]}]" for span in new)
            parts.append(f"{number.name}: {', '.join(at)}")
    return "; ".join(parts)


def _look(report: Report, each: LoaderReport, span: Span) -> list[str]:
    """The command that shows a part of the trace, and a little of what is before and after it. (It follows the batch
    that main waits for longest there.)"""
    begin, end = report.at(span)
    around = max((end - begin) // 2, 1_000_000)
    since, until = seconds(max(0, begin - around), min(end + around, report.trace.duration)).split("-")
    part = f"--from {since} --to {until}"
    if len(report.loaders) > 1 or each.built > 1:
        part += f" --loader {report.trace.events['loader'][span[1]]}"
    if each.epochs > 1:
        part += f" --epoch {report.trace.events['epoch'][span[1]]}"
    path = shlex.quote(str(report.trace.path))
    # Broken at one place only, so that it can be copied.
    return [f"Look     {command()} timeline {path} -o look.png \\", f"           {part}"]


# ---- its tables


def table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]], gloss: bool = False) -> list[str]:
    """The first column is left-aligned, the others right-aligned; `gloss`: each row ends with its gloss."""
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    lines = [title]
    for row in (header, *rows):
        cells = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        line = "  " + "  ".join([row[0].ljust(widths[0]), *cells])
        lines.append(f"{line}  {GLOSSES.get(row[0], '')}" if gloss else line)
    return [*lines, ""]


def _tables(each: LoaderReport) -> list[str]:
    total = max(1, sum(each.main_ns.values()))
    inside = f"{each.in_loader_ns / total:.0%} of it in the loader"
    title = f"Where main's time went: {each.batches} batches, epochs: {each.epochs}; {inside}"
    times = {name.replace("startup", "start-up"): ns for name, ns in each.main_ns.items() if ns}
    rows = [(name, duration(ns), f"{ns / total:.0%}") for name, ns in times.items()]
    lines = table(title, ("", "time", "share"), rows, gloss=True)
    keys = ("median", "p90", "p99", "max")
    stages = [(name, *(duration(found[key]) for key in keys)) for name, found in each.stages_ns.items()]
    lines += table("Stages of a batch", ("", "median", "90 %", "99 %", "longest"), stages)
    # The table has no room for these.
    lines[-1:] = [*wrap("  ", "; ".join(f"{name}: {GLOSSES[name]}" for name in each.stages_ns)), ""]
    if each.workers:
        lines += _workers(each)
    return lines + _slowest(each) if each.slowest else lines[:-1]


def _workers(each: LoaderReport) -> list[str]:
    rows = [
        (
            f"worker {worker}",
            str(found["batches"]),
            duration(found["worked"]),
            f"{found['worked'] / max(1, found['lived']):.0%}",
            f"{found['cpu'] / max(1, found['worked']):.0%}",
            f"{found['idle'] / max(1, found['lived']):.0%}",
        )
        for worker, found in enumerate(each.workers)
    ]
    header = ("", "batches", "at work", "share", "CPU", "idle")
    return table("Workers (CPU: how much of their work used a core; idle: without a task)", header, rows)


def _slowest(each: LoaderReport) -> list[str]:
    rows = [
        (
            f"batch {found['batch']}" + (f" of epoch {found['epoch']}" if each.epochs > 1 else ""),
            "main" if found["worker"] < 0 else str(found["worker"]),
            duration(found["made_ns"]),
            duration(found["cpu_ns"]),
            textwrap.shorten(str(found["keys"]), 26, placeholder=" ...]"),
        )
        for found in each.slowest
    ]
    header = ("", "worker", "made in", "CPU", "keys")
    return table("The batches that took longest to make", header, rows)[:-1]
