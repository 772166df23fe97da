"""`check`: do the protocol's laws hold, and what waits for what in a run that hangs?"""

from __future__ import annotations

import argparse
from typing import Any

import tracing
from tracing.analysis.hang.explain import explain
from tracing.analysis.report.caveats import caveats
from tracing.cli.arguments import add_command, add_trace, load_ranks
from tracing.cli.progress import Progress


def add_to(commands: Any) -> None:
    text = "test the protocol's laws (exit status 1 if one is broken), and explain a hang"
    add_trace(add_command(commands, "check", run, text, "traces/demo"))


def run(args: argparse.Namespace) -> int:
    with Progress("checking"):
        ranks = load_ranks(args)
        found = tracing.check(ranks)
    for each in found:
        print(each)
    broken = sum(not isinstance(each, tracing.Finding) for each in found)
    wrong = sum(isinstance(each, tracing.Finding) and each.wrong is True for each in found)
    several = f" of {len(ranks.all)} processes" if len(ranks.all) > 1 else ""
    result = f"{broken} broken laws" if broken else "all laws hold"
    result += f"; {wrong} wrong with the ranks as a whole" if wrong else ""
    print(f"{sum(len(each.trace) for each in ranks.all):,} events{several}: {result}")
    for rank in [*ranks.all, *ranks.without_events]:
        explain_hang(rank.trace, f"{rank.name}: " if several or rank in ranks.without_events else "")
    return 1 if broken or wrong else 0


def explain_hang(trace: tracing.Trace, name: str) -> None:
    hang = explain(trace)
    for note in caveats(trace, str(hang or "")):
        print(f"Note: {name}{note}")
    if hang is not None:
        print(f"{name}{hang}")
