"""`report`: what limits the load, why, and what to change."""

from __future__ import annotations

import argparse
from typing import Any

import tracing
from tracing.cli.arguments import add_command, add_trace, load_ranks
from tracing.cli.progress import Progress


def add_to(commands: Any) -> None:
    text = "what limits the load, why, and what to change"
    report = add_command(commands, "report", run, text, "traces/demo --json")
    add_trace(report)
    report.add_argument("--json", action="store_true", help="for programs: times in ns, events as positions")


def run(args: argparse.Namespace) -> None:
    with Progress("reading"):
        report = tracing.report(load_ranks(args))
    print(report.to_json() if args.json else report)
