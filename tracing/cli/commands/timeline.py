"""`timeline`: what each thread did when, as a picture."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tracing
from tracing.cli.arguments import UsageError, add_command, add_part, add_trace, count, load, part_of, suffix_of
from tracing.cli.progress import Progress
from tracing.ranks.ranks import open_ranks

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def add_to(commands: Any) -> None:
    text = "draw what each thread did when, and how full the queues were"
    timeline = add_command(commands, "timeline", run, text, "traces/demo -o timeline.svg --batches 10:30")
    add_trace(timeline)
    timeline.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="a png, svg or pdf file")
    timeline.add_argument("--follow", type=count, metavar="N", help="draw arrows along the way of batch N")
    add_part(timeline)


def run(args: argparse.Namespace) -> None:
    suffix_of(args.output, ".png", ".svg", ".pdf")
    try:
        with Progress("drawing"):
            draw(args).savefig(args.output)
    except ValueError as error:  # an empty window, say
        raise UsageError(str(error)) from None


def draw(args: argparse.Namespace) -> Figure:
    """One process, or all of them."""
    ranks = None if args.process is not None else open_ranks(args.trace)
    if ranks is not None and len(ranks.all) > 1:
        return tracing.timeline(ranks, **part_of(args))
    return tracing.timeline(load(args), **part_of(args), follow=args.follow)
