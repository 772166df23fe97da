"""The report as text: a screen that says what to do, then tables for more detail."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tracing.analysis.measure.measures import NO_LOADER
from tracing.analysis.report.evidence import Reason
from tracing.trace.intervals import Span
from tracing.trace.words import GLOSSES, command, duration, seconds, wrap

if TYPE_CHECKING:
    from tracing.analysis.report.report import LoaderReport, Report


def text(report: Report) -> str:
    lines = first_lines(report)
    for position, each in enumerate(report.loaders):
        if position:
            lines += ["", "", *_headline(each), *_main_part(report, each)]
        lines += ["", *_tables(each)]
    return "\n".join(line.rstrip() for line in lines)


def first_lines(report: Report) -> list[str]:
    lines = [line for note in report.notes for line in wrap("Note: ", note)]
    if not report.loaders:
        return [*lines, *[NO_LOADER] * (not report.notes)]
    first = report.loaders[0]
    return [*lines, *(_headline(first) if len(report.loaders) > 1 else []), *_main_part(report, first)]


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
    for number, advice in enumerate(each.next):
        lines += wrap("         - " if number else "Next     - ", advice)
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


# ---- tables


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
