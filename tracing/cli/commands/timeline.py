"""`timeline`: what each thread did when, as a picture."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import tracing
from tracing.cli.arguments import UsageError, add_command, add_part, add_trace, count, part_of, suffix_of


def add_to(commands: Any) -> None:
    text = "draw what each thread did when, and how full the queues were"
    timeline = add_command(commands, "timeline", run, text, "traces/demo -o timeline.svg --batches 10:30")
    add_trace(timeline)
    timeline.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="a png, svg or pdf file")
    timeline.add_argument("--follow", type=count, metavar="N", help="draw arrows along the way of batch N")
    add_part(timeline)


def run(args: argparse.Namespace) -> None:
    suffix_of(args.output, ".png", ".svg", ".pdf")
    trace = tracing.load(args.trace)
    try:
        figure = tracing.timeline(trace, **part_of(args), follow=args.follow)
    except ValueError as error:  # an empty window, say
        raise UsageError(str(error)) from None
    figure.savefig(args.output)
