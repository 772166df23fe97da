"""`step`: step through the events, forwards and backwards, on a page or in the terminal."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from tracing.cli.arguments import UsageError, add_command, add_part, add_trace, batches, load, part_of, suffix_of


def add_to(commands: Any) -> None:
    text = "step through the events, forwards and backwards: on a page, or with keys in a terminal"
    step = add_command(
        commands, "step", run, text, "traces/demo", "traces/demo --at 1.5", "traces/demo --batches 28:32 -o step.html"
    )
    add_trace(step)
    step.add_argument("-o", "--output", type=Path, metavar="FILE.html", help="write a page; without it, step with keys")
    add_part(step)
    step.add_argument("--at", type=float, metavar="S", help="begin at this moment: seconds after the first event")
    step.add_argument("--events", type=batches, metavar="A:B", help="only events A to B - 1")


def run(args: argparse.Namespace) -> None:
    from tracing.views import step_through

    trace = load(args)
    try:
        part = part_of(args) | {"at": args.at}
        if args.events is not None:
            part |= {"first": args.events[0], "last": args.events[1] - 1}
        if args.output is None:
            step_through.step_through(trace, **part)
            return
        suffix_of(args.output, ".html", ".htm")
        if note := step_through.write_page(trace, args.output, **part):
            print(note, file=sys.stderr)
    except ValueError as error:
        raise UsageError(str(error)) from None
