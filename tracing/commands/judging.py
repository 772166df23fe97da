"""Commands that judge a trace: report, check, compare."""

from __future__ import annotations

import argparse
from typing import Any

import tracing
from tracing.commands.arguments import add_command, add_trace, load_loaders
from tracing.hangs import explain
from tracing.notes import beside


def add_report(commands: Any) -> None:
    text = "what limits the load, why, and what to change"
    report = add_command(commands, "report", run_report, text, "traces/demo --json")
    add_trace(report)
    report.add_argument("--json", action="store_true", help="for programs: times in ns, events as positions")


def run_report(args: argparse.Namespace) -> None:
    report = tracing.report(load_loaders(args.trace))
    print(report.to_json() if args.json else report)


def add_check(commands: Any) -> None:
    text = "test the protocol's invariants, exit status 1 when one is broken; explain a hang"
    add_trace(add_command(commands, "check", run_check, text, "traces/demo"))


def run_check(args: argparse.Namespace) -> int:
    trace = load_loaders(args.trace)
    violations = tracing.check(trace)
    for violation in violations:
        print(violation)
    print(f"{len(trace):,} events: {f'{len(violations)} broken invariants' if violations else 'all invariants hold'}")
    hang = explain(trace)
    for note in beside(trace, str(hang or "")):
        print(f"Note: {note}")
    if hang is not None:
        print(hang)
    return 1 if violations else 0


def add_compare(commands: Any) -> None:
    text = "two runs side by side: which is faster, where the time went, do the keys differ"
    compare = add_command(commands, "compare", run_compare, text, "traces/before traces/after")
    add_trace(compare, "before", "the first run, A")
    add_trace(compare, "after", "the second, B: after a change, or of the other package")
    compare.add_argument("--json", action="store_true", help="for programs: times in ns")


def run_compare(args: argparse.Namespace) -> None:
    from tracing.compare import compare

    comparison = compare(load_loaders(args.before), load_loaders(args.after))
    print(comparison.to_json() if args.json else comparison)
