"""`whatif`: how fast the same load would be with other options."""

from __future__ import annotations

import argparse
from typing import Any

import tracing
from tracing.cli.arguments import add_command, add_trace, load, usage_errors


def add_to(commands: Any) -> None:
    text = "how fast the same load would be with other options, and which are best"
    parser = add_command(commands, "whatif", run, text, "traces/demo", "traces/demo --workers 1,2,4,8 --prefetch 2")
    add_trace(parser)
    grid = parser.add_argument_group("what to try", "one value, or several as in 1,2,4: every combination is tried")
    grid.add_argument("--workers", type=numbers, metavar="N", help="num_workers (as recorded, and what may help)")
    grid.add_argument("--prefetch", type=numbers, metavar="N", help="prefetch_factor (1,2,4 and as recorded)")
    parser.add_argument("--loader", type=int, metavar="N", help="which DataLoader (the one that took most time)")


def run(args: argparse.Namespace) -> None:
    trace = load(args)
    with usage_errors(f"{args.trace}: "):
        found = tracing.whatif(trace, args.workers, args.prefetch, loader=args.loader)
    print(found)


def numbers(text: str) -> list[int]:
    """The type of an argument that takes several values, separated by commas."""
    return [int(part) for part in text.split(",")]
