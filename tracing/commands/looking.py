"""Commands that show a trace: live, timeline, sequence, step."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import tracing
from tracing import format as fmt
from tracing.commands.arguments import (
    UsageError,
    add_command,
    add_part,
    add_trace,
    batches,
    count,
    has_suffix,
    part_of,
    positive,
    positive_count,
)
from tracing.recording import is_alive


def add_live(commands: Any) -> None:
    text = "watch a run that is being recorded, or replay a finished one"
    live = add_command(commands, "live", run_live, text, "traces/demo --speed 0.5")
    add_trace(live)
    live.add_argument("--speed", type=positive, default=1.0, help="replay so many times as fast (1)")
    live.add_argument("--once", action="store_true", help="print one frame and end")
    live.add_argument("--record", type=Path, metavar="FILE.svg", help="save a frame of what was shown")


def run_live(args: argparse.Namespace) -> None:
    from tracing.views import live

    wait_for_first_event(args.trace)
    live.watch(args.trace, speed=args.speed, once=args.once, record=args.record)


def wait_for_first_event(directory: Path) -> None:
    """A process that records, and has had nothing to say yet, is waited for: a trace without events looks like one that
    ended without any. (Its file is there a moment before the header, by which a file is known, is whole.)"""
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):  # no trace, or a damaged one: load() tells
        while not any(fmt.read_header(path) for path in directory.glob("events-*-*.bin")):
            if not is_alive(int(json.loads((directory / fmt.DESCRIPTION).read_bytes())["pid"])):
                return
            time.sleep(0.05)


def add_timeline(commands: Any) -> None:
    text = "draw who did what when, and how full the queues were"
    timeline = add_command(commands, "timeline", run_timeline, text, "traces/demo -o timeline.svg --batches 10:30")
    add_trace(timeline)
    timeline.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="a png, svg or pdf file")
    timeline.add_argument("--follow", type=count, metavar="N", help="draw arrows along the way of batch N")
    add_part(timeline)


def run_timeline(args: argparse.Namespace) -> None:
    from tracing.views.timeline import timeline

    has_suffix(args.output, ".png", ".svg", ".pdf")
    trace = tracing.load(args.trace)
    try:
        figure = timeline(trace, **part_of(args), follow=args.follow)
    except ValueError as error:  # an empty window, say
        raise UsageError(str(error)) from None
    figure.savefig(args.output)


def add_sequence(commands: Any) -> None:
    text = "who said what to whom, as text, svg or mermaid"
    sequence = add_command(
        commands, "sequence", run_sequence, text, "traces/demo", "traces/demo --batches 28:32 -o demo.svg"
    )
    add_trace(sequence)
    sequence.add_argument("-o", "--output", type=Path, metavar="FILE", help="an svg, mmd (mermaid) or txt file")
    sequence.add_argument("--width", type=positive_count, metavar="N", help="columns of the text (the terminal's)")
    sequence.add_argument("--most", type=positive_count, default=200, metavar="N", help="rows that are shown (200)")
    sequence.add_argument("--feeders", action="store_true", help="show the feeder threads, too")
    add_part(sequence)
    only = sequence.add_mutually_exclusive_group()
    only.add_argument("--start-up", dest="only", action="store_const", const="START_UP", help="only the start-up")
    only.add_argument("--shutdown", dest="only", action="store_const", const="SHUTDOWN", help="only the shutdown")


def run_sequence(args: argparse.Namespace) -> None:
    from rich.console import Console

    from tracing.views import sequence

    kind = has_suffix(args.output, ".svg", ".mmd", ".txt") if args.output else ""
    trace = tracing.load(args.trace)
    part = part_of(args) | {
        "part": sequence.Part[args.only or "ALL"],
        "most": args.most,
        "feeders": args.feeders,
    }
    console = Console()
    try:
        if kind == ".svg":
            args.output.write_text(sequence.as_svg(trace, **part), encoding="utf-8")
        elif kind == ".mmd":
            args.output.write_text(sequence.as_mermaid(trace, **part), encoding="utf-8")
        else:
            text = sequence.as_text(trace, width=args.width or (console.width if console.is_terminal else 100), **part)
            if kind:
                args.output.write_text(f"{text}\n", encoding="utf-8")
            elif console.is_terminal:
                console.print(text)
            else:
                print(text)
    except ValueError as error:
        raise UsageError(str(error)) from None


def add_step(commands: Any) -> None:
    text = "step through the events, forwards and backwards: as a page, or with keys in a terminal"
    step = add_command(commands, "step", run_step, text, "traces/demo", "traces/demo --batches 28:32 -o step.html")
    add_trace(step)
    step.add_argument("-o", "--output", type=Path, metavar="FILE.html", help="write the page; without it: keys")
    add_part(step)
    step.add_argument("--events", type=batches, metavar="A:B", help="the page of events A to B - 1")


def run_step(args: argparse.Namespace) -> None:
    from tracing.views import stepper

    trace = tracing.load(args.trace)
    try:
        if args.output is None:
            stepper.step_through(trace, k=args.events[0] if args.events else 0)
            return
        has_suffix(args.output, ".html", ".htm")
        part = part_of(args)
        if args.events is not None:
            part |= {"first": args.events[0], "last": args.events[1] - 1}
        if left_out := stepper.write_page(trace, args.output, **part):
            print(left_out, file=sys.stderr)
    except ValueError as error:
        raise UsageError(str(error)) from None
