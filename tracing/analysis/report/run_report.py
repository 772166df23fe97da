"""`tracing.report(path)`: the report of a run. Of several processes it is a table with a row for each, who holds up the
others, and the report of the one that matters most.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, dataclass, replace
from typing import Any

from tracing.analysis.check.ranks import check_ranks
from tracing.analysis.hang.explain import explain
from tracing.analysis.plain_text import wrap
from tracing.analysis.report.causes import NO_PROBLEM
from tracing.analysis.report.hold_up import HoldUp, hold_up
from tracing.analysis.report.report import FORMAT, Report
from tracing.analysis.report.report import report as report_of_trace
from tracing.analysis.report.text import first_lines, table
from tracing.trace.parts import clock_notes
from tracing.trace.ranks import Rank, Ranks, open_ranks
from tracing.trace.trace import Trace
from tracing.trace.words import duration


@dataclass
class RankReport:
    """What there is to report on one process."""

    rank: Rank
    report: Report
    for_others_ns: int  # of its training steps, what it spent waiting for other ranks

    @property
    def batches(self) -> int:
        return sum(each.batches for each in self.report.loaders)

    @property
    def total_ns(self) -> int:
        return sum(sum(each.main_ns.values()) for each in self.report.loaders)

    @property
    def training_ns(self) -> int:
        return sum(each.main_ns.get("training", 0) for each in self.report.loaders)

    @property
    def workers(self) -> str:
        """ "2", or, of loaders with different numbers, "2, 0"."""
        numbers = dict.fromkeys(len(each.workers) for each in self.report.loaders)
        return ", ".join(map(str, numbers)) if len(numbers) < 4 else f"0 to {max(numbers)}"

    @property
    def troubled(self) -> bool:
        hangs_before_them = not self.report.loaders and bool(self.report.notes)
        return hangs_before_them or any(each.hung or each.ended_early for each in self.report.loaders)

    @property
    def cost_ns(self) -> int:
        """What the first of its loaders costs it, if that is a problem."""
        first = self.report.loaders[:1]
        return sum(each.cost_ns for each in first if each.verdict not in NO_PROBLEM)

    def in_short(self) -> str:
        """What is known of it, where another's report is shown in full."""
        if self.report.notes or not self.report.loaders:
            return (self.report.notes or ["It iterated no loader."])[0]
        text = self.report.loaders[0].verdict_line
        if self.for_others_ns > 0.05 * self.total_ns:
            text += f" Of its training, {duration(self.for_others_ns)} is waiting for other ranks."
        return text

    def to_dict(self) -> dict[str, Any]:
        about = self.rank.part.about
        of_process = {key: about.get(key) for key in ("rank", "local_rank", "world_size", "host", "pid")}
        measured = {
            "batches": self.batches,
            "total_ns": self.total_ns,
            "training_ns": self.training_ns,
            "for_others_ns": self.for_others_ns,
        }
        return {"name": self.rank.name, **of_process, **measured, "report": json.loads(self.report.to_json())}


@dataclass
class RunReport:
    """`str()` is its text."""

    path: str
    notes: list[str]  # what is wrong with the ranks as a whole
    warnings: int  # how many more of these `tracing.check` has
    ranks: list[RankReport]
    opened: int  # the position of the one whose report matters most
    hold_up: HoldUp | None
    synchronised: bool  # whether the ranks were seen to wait for each other

    def first_lines(self) -> list[str]:
        """The table, who holds up the others, then verdict, why and next of one rank, as lines."""
        opened = self.ranks[self.opened]
        lines = [line for note in self.notes for line in wrap("Note: ", note)]
        lines += [*self._table(), *self._together(), f"{_upper(opened.rank.name)}  {opened.report.path}"]
        return [*lines, *first_lines(opened.report), *self._others()]

    def __str__(self) -> str:
        return "\n".join(line.rstrip() for line in self.first_lines())

    def _table(self) -> list[str]:
        hosts = [str(each.rank.part.about.get("host")) for each in self.ranks]
        several, rows = len(set(hosts)) > 1, []
        for each, host in zip(self.ranks, hosts, strict=True):
            inside, total = each.total_ns - each.training_ns, max(1, each.total_ns)
            row = [each.rank.name, str(each.batches), f"{each.batches * 1e9 / total:.1f}"]
            row += [duration(inside), f"{inside / total:.0%}", duration(each.training_ns)]
            rows.append([*row, *[duration(each.for_others_ns)] * self.synchronised, each.workers, *[host] * several])
        header = [
            "",
            "batches",
            "a second",
            "in loader",
            "",
            "training",
            *["for others"] * self.synchronised,
            "workers",
            *["host"] * several,
        ]
        return table("Ranks" if self.ranks[0].rank.part.rank is not None else "Processes", header, rows)

    def _together(self) -> list[str]:
        lines = []
        if self.hold_up is not None:
            lines = wrap("Held up  ", str(self.hold_up))
        elif self.synchronised:
            lines = wrap("Held up  ", "The ranks keep step: none holds up the others.")
        if self.warnings:
            count = f"{self.warnings} warning{'s' * (self.warnings > 1)}"
            lines += wrap("Check    ", f"{count} about the ranks as a whole: python -m tracing check {self.path}")
        return [*lines, ""] if lines else []

    def _others(self) -> list[str]:
        lines = [""]
        for number, each in enumerate(self.ranks):
            if number != self.opened:
                lines += wrap(f"{_upper(each.rank.name)}  ", each.in_short())
        return lines

    def to_json(self) -> str:
        """All of it, as `Report.to_json` has it: `loaders` are those of the rank that matters most."""
        opened = json.loads(self.ranks[self.opened].report.to_json())
        document = {
            **{"format": FORMAT, "trace": self.path, "notes": self.notes, "opened": self.ranks[self.opened].rank.name},
            "loaders": opened["loaders"],
            "synchronised": self.synchronised,
            "held_up_by": None if self.hold_up is None else {**asdict(self.hold_up), "sentence": str(self.hold_up)},
            "ranks": [each.to_dict() for each in self.ranks],
        }
        return json.dumps(document, indent=1)


def _upper(name: str) -> str:
    return name[0].upper() + name[1:]


def report(run: Trace | Ranks | str | os.PathLike[str], patience: float = math.inf) -> Report | RunReport:
    """Judge every DataLoader of a trace, finished or not; or, given the path of a run of several processes, all of
    these together. `patience`: about how long replays may take (seconds). Raises TraceError as `tracing.load` does."""
    if isinstance(run, Trace):
        return report_of_trace(run, patience)
    ranks = run if isinstance(run, Ranks) else open_ranks(run)
    hangs = ((each.name, explain(each.trace)) for each in ranks.without_events)
    notes = [f"{_upper(name)}: {hang.notes()[0]}" for name, hang in hangs if hang is not None]
    if len(ranks.all) == 1:
        of_one = report_of_trace(ranks.all[0].trace, patience)
        return replace(of_one, notes=notes + of_one.notes)
    waited = dict(zip((each.name for each in ranks.together), ranks.steps.waited.sum(axis=0).tolist(), strict=True))
    share = patience / len(ranks.all)
    reports = [RankReport(each, report_of_trace(each.trace, share), waited.get(each.name, 0)) for each in ranks.all]
    lacks = list(dict.fromkeys(line for each in ranks.all for line in each.trace.lacks))  # of the run, not of a rank
    for each in reports:
        each.report.notes = [note for note in each.report.notes if note not in lacks]
    findings, held = check_ranks(ranks), hold_up(ranks)
    wrong = [finding for finding in findings if finding.wrong is not False]
    notes += [f"{_upper(each.what)}." for each in wrong] + clock_notes([each.part for each in ranks.all])
    if 0 < len(ranks.together) < ranks.world_size:
        notes.append(f"Only {len(ranks.together)} of {ranks.world_size} ranks were recorded here.")
    notes += lacks
    warnings, opened = len(findings) - len(wrong), _opened(reports, ranks, held)
    return RunReport(str(ranks.path), notes, warnings, reports, opened, held, ranks.steps.synchronised)


def _opened(reports: list[RankReport], ranks: Ranks, held: HoldUp | None) -> int:
    """Which report matters most: of a rank that hung or failed, the one that is furthest behind; else of the one that
    holds up the others; else of the one whose loader costs most."""
    troubled = [number for number, each in enumerate(reports) if each.troubled]
    if troubled:
        return min(troubled, key=lambda number: reports[number].batches)
    if held is not None and held.rank is not None:
        return next(number for number, each in enumerate(reports) if each.rank is ranks.together[held.rank])
    return max(range(len(reports)), key=lambda number: reports[number].cost_ns)
