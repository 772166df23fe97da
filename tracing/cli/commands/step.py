"""`step`: step through the events, forwards and backwards, on a page."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from tracing.cli.arguments import UsageError, add_command, add_part, add_trace, load, part_of, suffix_of
from tracing.cli.progress import Progress


def add_to(commands: Any) -> None:
    text = "write a page on which to step through the events, forwards and backwards"
    step = add_command(
        commands, "step", run, text, "traces/demo", "traces/demo --at 1.5", "traces/demo --batches 28:32 -o step.html"
    )
    add_trace(step)
    step.add_argument("-o", "--output", type=Path, metavar="FILE.html", help="the page (step.html)")
    add_part(step)
    step.add_argument("--at", type=float, metavar="S", help="begin at this moment: seconds after the first event")


def run(args: argparse.Namespace) -> None:
    from tracing.views.step_through import step

    output = args.output or Path("step.html")
    suffix_of(output, ".html", ".htm")
    try:
        with Progress("stepping through the events") as progress:
            page = step(load(args), progress=progress, at=args.at, **part_of(args))
    except ValueError as error:
        raise UsageError(str(error)) from None
    page.save(output)
    if page.excerpt.cut:
        print(page.excerpt.note, file=sys.stderr)
    if args.output is None:
        print(f"{output}: open it in a browser")
