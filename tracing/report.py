"""`tracing.report(trace)`: verdict, why, next; and beside it the tables that they were drawn from.

What is measured stands in tracing.measures, the rules in tracing.verdicts, the words in tracing.advice; here it is put
together, as text or as JSON.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from minidl.events import Kind
from tracing.advice import Reason, explain
from tracing.intervals import Span
from tracing.measures import Measures, Place, measure
from tracing.notes import broken_off, notes
from tracing.trace import Trace
from tracing.verdicts import Verdict, costs, judge
from tracing.words import QUEUE_NAMES, REORDER_BUFFER, STAGES, duration

WIDTH = 76  # characters of a line of text: the demo indents it by 4
FORMAT = 1  # of the JSON

QUEUES = {name: STAGES[f"in {name}"] for name in (*QUEUE_NAMES.values(), REORDER_BUFFER)}
SLOWEST = 10
NO_LOADER = "No loader was recorded. torch's own DataLoader is recorded by tracing.attach(loader), or by tracing run."


@dataclass
class LoaderReport:
    """What there is to say of one DataLoader, all its epochs together."""

    loader: int
    config: dict[str, Any]
    batches: int  # yielded
    epochs: int
    verdict: Verdict
    share: float  # of main's time, 0 to 1: what the cause costs
    cost_ns: int
    why: list[Reason]
    next: list[str]
    main_ns: dict[str, int]  # name of a Place -> what main spent there
    causes_ns: dict[str, int]  # name of a Verdict -> what its cause costs: see tracing.verdicts
    stages_ns: dict[str, dict[str, float]]  # stage -> count, median, p90, p99, max
    workers: list[dict[str, int]]  # of each: see Measures.worker_time
    queues: dict[str, dict[str, float]]  # queue -> mean, max, empty (share of the time)
    slowest: list[dict[str, Any]]  # batches

    @property
    def verdict_line(self) -> str:
        text = self.verdict.value[0].upper() + self.verdict.value[1:]
        if self.verdict is Verdict.NOTHING:
            return f"{text}."
        what = "of the time is training" if self.verdict in (Verdict.TRAINING, Verdict.HEALTHY) else "of the time"
        return f"{text}: {self.share:.0%} {what} ({duration(self.cost_ns)})."


@dataclass
class Report:
    """`str()` is its text."""

    path: str
    notes: list[str]  # what a reader must know before he believes the rest
    loaders: list[LoaderReport]  # the one that took most of main's time first

    def first_lines(self) -> list[str]:
        """Verdict, why and next of the first loader, as lines."""
        lines = [line for note in self.notes for line in _wrap(note, "Note: ")]
        return lines + (_main_part(self.loaders[0]) if self.loaders else [NO_LOADER])

    def __str__(self) -> str:
        lines = self.first_lines()
        for position, each in enumerate(self.loaders):
            if position:
                lines += ["", "", f"DataLoader {each.loader}", *_main_part(each)]
            lines += ["", *_tables(each)]
        return "\n".join(line.rstrip() for line in lines)

    def to_json(self) -> str:
        """The whole of it; times in ns, spans as positions of events in `trace.events`."""
        loaders = [asdict(each) | {"verdict": each.verdict.name.lower()} for each in self.loaders]
        for each, source in zip(loaders, self.loaders, strict=True):
            each["sentence"] = source.verdict_line
        document = {"format": FORMAT, "trace": self.path, "notes": self.notes, "loaders": loaders}
        return json.dumps(document, indent=1, default=_plain)


def report(trace: Trace) -> Report:
    """Judge every DataLoader of a trace, finished or not."""
    measured = sorted(measure(trace), key=lambda each: -each.total)
    return Report(str(trace.path), notes(trace), [_judge(each) for each in measured])


def _judge(measures: Measures) -> LoaderReport:
    verdict, cost = judge(measures)
    explanation = explain(measures, verdict, cost)
    stages = {name: _percentiles(measures.stage(*hops)) for name, hops in STAGES.items()}
    queues = {name: measures.occupancy(*hops) for name, hops in QUEUES.items()}
    return LoaderReport(
        loader=measures.loader,
        config=measures.config,
        batches=int((measures.tasks["yielded"] >= 0).sum()),
        epochs=len(np.unique(measures.tasks["epoch"])),
        verdict=verdict,
        share=cost / measures.total,
        cost_ns=cost,
        why=explanation.why,
        next=[] if broken_off(measures) else explanation.next,
        main_ns={place.name.lower(): ns for place, ns in measures.spent.items() if place is not Place.OUTSIDE},
        causes_ns={each.name.lower(): ns for each, ns in costs(measures).items() if ns},
        stages_ns={name: found for name, found in stages.items() if found["count"]},
        workers=[measures.worker_time(worker) for worker in range(measures.num_workers)],
        queues={name: found for name, found in queues.items() if found["max"]},
        slowest=_slowest(measures),
    )


def _percentiles(lengths: np.ndarray) -> dict[str, float]:
    if not len(lengths):
        return {"count": 0}
    median, p90, p99 = np.percentile(lengths, (50, 90, 99)).tolist()
    return {"count": len(lengths), "median": median, "p90": p90, "p99": p99, "max": float(lengths.max())}


def _slowest(measures: Measures) -> list[dict[str, Any]]:
    """The batches that took longest to make, with their keys."""
    rows = measures.tasks[measures.tasks["collate_end"] >= 0]
    made = rows["collate_end"] - rows["fetch_begin"]
    waited = {
        (row["epoch"], row["task"]): had - asked for row, asked, had in zip(*measures.requests, strict=True)
    }  # by main, for each
    found = []
    for i in np.argsort(-made, kind="stable")[:SLOWEST]:
        row = rows[i]
        drawn = measures.event(row["keys_drawn"], Kind.KEYS_DRAWN) if row["keys_drawn"] >= 0 else -1
        found.append(
            {
                "epoch": int(row["epoch"]),
                "batch": int(row["task"]),
                "worker": int(row["worker"]),
                "made_ns": int(made[i]),
                "cpu_ns": int(max(0, row["fetch_cpu"]) + max(0, row["collate_cpu"])),
                "waited_ns": int(waited.get((row["epoch"], row["task"]), 0)),
                "keys": measures.trace.text(drawn) if drawn >= 0 else None,
                "events": [drawn, measures.event(row["collate_end"], Kind.COLLATE_END)],
            }
        )
    return found


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else str(value)


# ---- text


def _wrap(text: str, indent: str) -> list[str]:
    blank = " " * len(indent)
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=blank, break_on_hyphens=False)


def _spans(spans: Sequence[Span]) -> str:
    return f" [events {', '.join(f'{begin}-{end}' for begin, end in spans)}]" if spans else ""


def _main_part(each: LoaderReport) -> list[str]:
    lines = _wrap(each.verdict_line, "Verdict  ")
    for number, reason in enumerate(each.why):
        lines += _wrap(f"- {reason.text}{_spans(reason.spans)}", "         " if number else "Why      ")
    for number, advice in enumerate(each.next):
        lines += _wrap(f"- {advice}", "         " if number else "Next     ")
    return lines


def _name(key: str) -> str:
    return {"startup": "start-up", "hold_up": "hold-up", "no_workers": "no workers"}.get(key, key)


def _table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table whose first column is left-aligned, and the others right-aligned."""
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    lines = [title]
    for row in (header, *rows):
        cells = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  " + "  ".join([row[0].ljust(widths[0]), *cells]))
    return [*lines, ""]


def _tables(each: LoaderReport) -> list[str]:
    total = max(1, sum(each.main_ns.values()))
    lines = _table(
        f"Where main's time went: {each.batches} batches, epochs: {each.epochs}",
        ("", "time", "share"),
        [(_name(name), duration(ns), f"{ns / total:.0%}") for name, ns in each.main_ns.items() if ns],
    )
    lines += _table(
        "What it was lost to",
        ("", "time", "share"),
        [
            (_name(name), duration(ns), f"{ns / total:.0%}")
            for name, ns in sorted(each.causes_ns.items(), key=lambda item: -item[1])
        ],
    )
    lines += _table(
        "Stages of a batch",
        ("", "median", "90 %", "99 %", "longest"),
        [
            (name, *(duration(found[key]) for key in ("median", "p90", "p99", "max")))
            for name, found in each.stages_ns.items()
        ],
    )
    if each.workers:
        lines += _table(
            "Workers",
            ("", "batches", "at work", "share", "CPU", "idle"),
            [
                (
                    f"worker {worker}",
                    str(found["batches"]),
                    duration(found["worked"]),
                    f"{found['worked'] / max(1, found['lived']):.0%}",
                    f"{found['cpu'] / max(1, found['worked']):.0%}",
                    f"{found['idle'] / max(1, found['lived']):.0%}",
                )
                for worker, found in enumerate(each.workers)
            ],
        )
        lines += _table(
            "Batches in the queues, those of all workers together",
            ("", "mean", "most", "empty"),
            [
                (name, f"{found['mean']:.1f}", f"{found['max']:.0f}", f"{found['empty']:.0%}")
                for name, found in each.queues.items()
            ],
        )
    return lines + _slowest_table(each) if each.slowest else lines[:-1]


def _slowest_table(each: LoaderReport) -> list[str]:
    rows = [
        (
            f"batch {found['batch']}" + (f" of epoch {found['epoch']}" if each.epochs > 1 else ""),
            "main" if found["worker"] < 0 else str(found["worker"]),
            duration(found["made_ns"]),
            duration(found["cpu_ns"]),
            duration(found["waited_ns"]),
            textwrap.shorten(str(found["keys"]), 34, placeholder=" ...]"),
        )
        for found in each.slowest
    ]
    header = ("", "worker", "made in", "CPU", "waited for", "keys")
    return _table("The batches that took longest to make", header, rows)[:-1]
