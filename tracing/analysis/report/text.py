"""The report as text: a screen that says what to do, then tables for more detail."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tracing.analysis.measure.measures import NO_LOADER
from tracing.analysis.plain_text import wrap
from tracing.analysis.report.evidence import Reason
from tracing.trace.intervals import Span
from tracing.trace.words import GLOSSES, duration, seconds

if TYPE_CHECKING:
    from tracing.analysis.report.report import LoaderReport, Report

NAMES = {  # of places, in words
    "startup": "start-up", "hold_up": "hold-up", "no_workers": "no workers",
}  # fmt: skip
LOST = NAMES | {"startup": "slow start-up"}  # of causes: this one is less than all of the start-up


def text(report: Report) -> str:
    lines = first_lines(report)
    if len(report.loaders) > 1:
        lines += ["", *_split(report)]
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
    of += f", built {each.built} times at {each.config.get('iterated_at')}" * (each.built > 1)
    whose = "a worker" if each.nested else "main"
    cost = f"{each.in_loader_ns / max(1, each.program_ns):.0%} ({duration(each.in_loader_ns)})"
    return wrap(f"DataLoader {each.loader} ", f"{of}: {cost} of {whose}'s {duration(each.program_ns)} go to it".strip())


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
    """The command that shows a part of the trace, a little of what is before and after it, and the way of the batch
    that it is about."""
    begin, end = report.at(span)
    around = max((end - begin) // 2, 1_000_000)
    since, until = seconds(max(0, begin - around), end + around).split("-")
    part = f"--from {since} --to {until}"
    if len(report.loaders) > 1 or each.built > 1:
        part += f" --loader {report.trace.events['loader'][span[1]]}"
    epoch, batch = each.look_batch or (int(report.trace.events["epoch"][span[1]]), -1)
    if each.epochs > 1:
        part += f" --epoch {epoch}"
    if batch >= 0:
        part += f" --follow {batch}"
    # Broken at one place only, so that it can be copied.
    return [f"Look     python -m tracing timeline {shlex.quote(report.path)} -o look.png \\", f"           {part}"]


# ---- tables


def _split(report: Report) -> list[str]:
    """The program's time, each moment once."""
    loaders = [each for each in report.loaders if not each.nested]
    whole = max((each.program_ns for each in loaders), default=0)
    rest, rows = whole, []
    for each in loaders:
        parts = [each.in_loader_ns, each.main_ns.get("training", 0)]
        rest -= sum(parts)
        rows.append(
            (f"DataLoader {each.loader}", *(cell for ns in parts for cell in (duration(ns), _share(ns, whole))))
        )
    rows.append(("in no loop", "", "", duration(rest), _share(rest, whole)))
    title = f"All of main's {duration(whole)}: what each loader costs, and the steps with its batches"
    return table(title, ("", "loader", "share", "steps", "share"), rows)


def _share(ns: int, whole: int) -> str:
    return f"{ns / max(1, whole):.0%}"


def table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]], gloss: bool = False) -> list[str]:
    """The first column is left-aligned, the others right-aligned; a gloss explains the first at the end."""
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
    lost = dict(sorted(each.causes_ns.items(), key=lambda item: -item[1]))
    lines = []
    for title, times in (
        (f"Where main's time went: {each.batches} batches, epochs: {each.epochs}; {inside}", each.main_ns),
        ("What it was lost to", lost),
    ):
        names = LOST if times is lost else NAMES
        rows = [(names.get(name, name), duration(ns), f"{ns / total:.0%}") for name, ns in times.items() if ns]
        lines += table(title, ("", "time", "share"), rows, gloss=True)
    lines += table(
        "Stages of a batch",
        ("", "median", "90 %", "99 %", "longest"),
        [
            (name, *(duration(found[key]) for key in ("median", "p90", "p99", "max")))
            for name, found in each.stages_ns.items()
        ],
    )
    # The table has no room for these.
    lines[-1:] = [*wrap("  ", "; ".join(f"{name}: {GLOSSES[name]}" for name in each.stages_ns)), ""]
    if each.workers:
        lines += [*_workers(each), *_queues(each)]
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


def _queues(each: LoaderReport) -> list[str]:
    rows = [
        (name, f"{found['mean']:.1f}", f"{found['max']:.0f}", f"{found['empty']:.0%}")
        for name, found in each.queues.items()
    ]
    title = "Batches in the queues, in their order: the slowest step follows a full one"
    return table(title, ("", "mean", "most", "empty"), rows)


def _slowest(each: LoaderReport) -> list[str]:
    rows = [
        (
            f"batch {found['batch']}" + (f" of epoch {found['epoch']}" if each.epochs > 1 else ""),
            "main" if found["worker"] < 0 else str(found["worker"]),
            f"{found['at_ns'] / 1e9:.3f} s",
            duration(found["made_ns"]),
            duration(found["cpu_ns"]),
            duration(found["waited_ns"]),
            textwrap.shorten(str(found["keys"]), 26, placeholder=" ...]"),
        )
        for found in each.slowest
    ]
    header = ("", "worker", "begun at", "made in", "CPU", "waited", "keys")
    return table("The batches that took longest to make (waited: how long main did)", header, rows)[:-1]
