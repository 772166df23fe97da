"""`tracing.report(path)`: the report of a run. For several processes: a table with a row for each, the rank that
holds up the others, and the report of the one that matters most.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace

from tracing.analysis.measure.waited import Verdict
from tracing.analysis.report.report import Report, table
from tracing.analysis.report.report import report as report_of_trace
from tracing.ranks.check import EQUAL, Finding, check_ranks
from tracing.ranks.hold_up import HoldUp, hold_up
from tracing.ranks.ranks import Rank, Ranks
from tracing.ranks.steps import steps_of
from tracing.trace.trace import Trace
from tracing.trace.words import command, duration, wrap


@dataclass
class RankReport:
    """What there is to report on one process."""

    rank: Rank
    report: Report
    for_others_ns: int  # of its training steps, what it spent waiting for other ranks

    @property
    def batches(self) -> int:
        return sum(each.batches for each in self.report.loaders)

    def row(self) -> list[str]:
        inside = sum(each.in_loader_ns for each in self.report.loaders)
        training = sum(each.main_ns.get("training", 0) for each in self.report.loaders)
        share = f"{inside / max(1, inside + training):.0%}"
        return [self.rank.name, str(self.batches), duration(inside), share, duration(self.for_others_ns)]


IN_STEP = "The ranks begin their steps together. (One that is slower before they exchange gradients does not show.)"


class RunReport:
    """`str()` is its text."""

    def __init__(self, ranks: Ranks, findings: list[Finding]) -> None:
        steps = steps_of(ranks)
        waited = dict(zip(ranks.together, steps.waited.sum(axis=0).tolist(), strict=True))
        self.path = str(ranks.path)
        self.ranks = [RankReport(each, report_of_trace(each.trace), waited.get(each, 0)) for each in ranks.all]
        hung = any(own.hung for each in self.ranks for own in each.report.loaders)
        self.notes = _notes(findings, hung)  # what is wrong with the ranks as a whole
        self.warnings = len(findings) - len(self.notes)  # how many more of these `tracing.check` has
        self.hold_up = hold_up(ranks, steps)
        self.opened = _opened(self.ranks, self.hold_up)  # the one whose report matters most
        self.synchronised = steps.synchronised and not hung  # the ranks were seen to wait for each other, not in vain
        if 0 < len(ranks.together) < ranks.world_size:
            compared = f"Only {len(ranks.together)} of {ranks.world_size} ranks are compared"
            self.notes.append(f"{compared}: those that one host has recorded here.")

    def first_lines(self) -> list[str]:
        """The table, the rank that holds up the others, then verdict, why and next of one rank, as lines; and what
        to know about the others."""
        lines = [line for note in self.notes for line in wrap("Note: ", note)] + self._table()
        if self.synchronised:
            lines += wrap("Held up  ", str(self.hold_up or IN_STEP))
        if self.warnings:
            count = f"{self.warnings} warning{'s' * (self.warnings > 1)}"
            lines += wrap("Check    ", f"{count} about the ranks as a whole: {command()} check {self.path}")
        lines += [*[""] * bool(lines[-1]), f"{_upper(self.opened.rank.name)}  {self.opened.report.trace.path}"]
        lines += self.opened.report.first_lines()
        for each in self.ranks:
            if each is not self.opened and each.report.notes:
                lines += ["", *wrap(f"{_upper(each.rank.name)}  ", each.report.notes[0])]
        return lines

    def __str__(self) -> str:
        return "\n".join(line.rstrip() for line in self.first_lines())

    def _table(self) -> list[str]:
        header = ["", "batches", "in loader", "", "for others"][: 5 if self.synchronised else 4]
        title = "Ranks" if self.ranks[0].rank.part.rank is not None else "Processes"
        head, names, *lines = table(title, header, [each.row()[: len(header)] for each in self.ranks])
        first = [each.report.loaders[:1] for each in self.ranks]
        verdicts = ["".join(f"  {loader.verdict_line.partition(':')[0]}" for loader in loaders) for loaders in first]
        return [head, names, *map("".join, zip(lines, verdicts, strict=False)), ""]

    def to_json(self) -> str:
        """All of it, as `Report.to_json` has it: `loaders` are those of the rank that matters most."""
        reports = [json.loads(each.report.to_json()) for each in self.ranks]
        held = None if self.hold_up is None else {**vars(self.hold_up), "sentence": str(self.hold_up)}
        document = reports[self.ranks.index(self.opened)] | {"trace": self.path, "notes": self.notes}
        document |= {"opened": self.opened.rank.name, "held_up_by": held, "ranks": []}
        for each, own in zip(self.ranks, reports, strict=True):
            about = {"name": each.rank.name, "about": each.rank.part.about, "for_others_ns": each.for_others_ns}
            document["ranks"].append(about | {"report": own})
        return json.dumps(document, indent=1)


def _upper(name: str) -> str:
    return name[0].upper() + name[1:]


def report(run: Trace | Ranks | str | os.PathLike[str]) -> Report | RunReport:
    """Judge every DataLoader of a trace, finished or not; or, given the path of a run of several processes, all of
    these together. Raises TraceError as `tracing.load` does."""
    if isinstance(run, Trace):
        return report_of_trace(run)
    ranks = run if isinstance(run, Ranks) else Ranks(run)
    findings = check_ranks(ranks)
    if len(ranks.all) == 1:
        only = report_of_trace(ranks.all[0].trace)
        return replace(only, notes=only.notes + _notes(findings))
    return RunReport(ranks, findings)


def _notes(findings: list[Finding], hung: bool = False) -> list[str]:
    """What is surely wrong; and what a hang of a rank may come from."""
    return [f"{_upper(each.what)}." for each in findings if each.wrong is not False or (hung and each.name == EQUAL)]


def _opened(reports: list[RankReport], held: HoldUp | None) -> RankReport:
    """The one that matters most: of the ranks that hung or failed, the furthest behind; else the one that holds up the
    others; else the one whose loader costs most."""
    if troubled := [each for each in reports if any(own.hung or own.ended_early for own in each.report.loaders)]:
        return min(troubled, key=lambda each: each.batches)

    def cost(each: RankReport) -> int:
        return sum(loader.cost_ns for loader in each.report.loaders[:1] if loader.verdict is not Verdict.TRAINING)

    by_name = {each.rank.name: each for each in reports}
    return by_name.get(held.name if held else "") or max(reports, key=cost)
