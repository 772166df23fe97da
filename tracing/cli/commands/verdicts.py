"""`report`, `check` and `compare`: what a trace says about its run, in words."""

from __future__ import annotations

import argparse
from typing import Any

import tracing
from tracing.analysis.hang.explain import explain
from tracing.analysis.notes.caveats import caveats
from tracing.cli.arguments import add_command, add_path, add_process, add_trace, load_loaders, load_ranks


def add_to(commands: Any) -> None:
    text = "what limits the load, why, and what to change"
    parser = add_command(commands, "report", report, text, "traces/demo --json")
    add_trace(parser)
    parser.add_argument("--json", action="store_true", help="for programs: times in ns, events as positions")
    text = "test the protocol's laws (exit status 1 if one is broken), and explain a hang"
    add_trace(add_command(commands, "check", check, text, "traces/demo"))
    text = "two runs side by side: which is faster, where did the time go, do the keys differ"
    parser = add_command(commands, "compare", compare, text, "traces/before traces/after")
    add_path(parser, "before", "the first run, A")
    add_path(parser, "after", "the second run, B: after a change, or with the other package")
    add_process(parser)


def report(args: argparse.Namespace) -> None:
    found = tracing.report(load_ranks(args))
    print(found.to_json() if args.json else found)


def compare(args: argparse.Namespace) -> None:
    print(tracing.compare(load_loaders(args, "before"), load_loaders(args, "after")))


def check(args: argparse.Namespace) -> int:
    ranks = load_ranks(args)
    found = tracing.check(ranks)
    for each in found:
        print(each)
    broken = sum(not isinstance(each, tracing.Finding) for each in found)
    wrong = sum(isinstance(each, tracing.Finding) and each.wrong is True for each in found)
    several = f" of {len(ranks.all)} processes" if len(ranks.all) > 1 else ""
    result = f"{broken} broken laws" if broken else "all laws hold"
    result += f"; {wrong} wrong with the {'ranks as a whole' if several else 'sampler'}" if wrong else ""
    print(f"{sum(len(each.trace) for each in ranks.all):,} events{several}: {result}")
    for rank in ranks.all:
        name, hang = f"{rank.name}: " if several else "", explain(rank.trace)
        for note in caveats(rank.trace, str(hang or "")):
            print(f"Note: {name}{note}")
        if hang is not None:
            print(f"{name}{hang}")
    return 1 if broken or wrong else 0
