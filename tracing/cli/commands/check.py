"""`check`: do the protocol's invariants hold, and what waits for what in a run that hangs?"""

from __future__ import annotations

import argparse
from typing import Any

import tracing
from tracing.analysis.hang.explain import explain
from tracing.analysis.report.caveats import caveats
from tracing.cli.arguments import add_command, add_trace, load_loaders


def add_to(commands: Any) -> None:
    text = "test the protocol's invariants (exit status 1 if one is broken), and explain a hang"
    add_trace(add_command(commands, "check", run, text, "traces/demo"))


def run(args: argparse.Namespace) -> int:
    trace = load_loaders(args.trace)
    violations = tracing.check(trace)
    for violation in violations:
        print(violation)
    print(f"{len(trace):,} events: {f'{len(violations)} broken invariants' if violations else 'all invariants hold'}")
    hang = explain(trace)
    for note in caveats(trace, str(hang or "")):
        print(f"Note: {note}")
    if hang is not None:
        print(hang)
    return 1 if violations else 0
