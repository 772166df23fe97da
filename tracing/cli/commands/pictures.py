"""`timeline`, `sequence`, `step` and `export`: a trace, or a part of it, drawn or written into a file."""

from __future__ import annotations

import argparse
import functools
import sys
from pathlib import Path
from typing import Any

import tracing
from tracing.cli import arguments
from tracing.cli.arguments import add_command, add_part, add_trace, load, must_end_in, part_of, ranks_of, usage_errors


def add_to(commands: Any) -> None:
    text = "draw what each thread did when, and how full the queues were"
    parser = add_command(commands, "timeline", timeline, text, "traces/demo -o timeline.svg --batches 10:30")
    add_trace(parser)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="a png, svg or pdf file")
    parser.add_argument("--follow", type=int, metavar="N", help="draw arrows along batch N's path")
    add_part(parser)

    text = "which thread sent what to which, as text or mermaid"
    parser = add_command(commands, "sequence", sequence, text, "traces/demo", "traces/demo --batches 28:32 -o demo.mmd")
    add_trace(parser)
    parser.add_argument("-o", "--output", type=Path, metavar="FILE.mmd", help="a mermaid diagram, for Markdown")
    parser.add_argument("--width", type=int, metavar="N", help="columns of the text (the terminal's)")
    parser.add_argument("--most", type=int, default=200, metavar="N", help="rows to show at most (200)")
    add_part(parser)
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--start-up", dest="only", action="store_const", const="START_UP", help="only the start-up")
    only.add_argument("--shutdown", dest="only", action="store_const", const="SHUTDOWN", help="only the shutdown")

    text = "write a page on which to step through the events, forwards and backwards"
    parser = add_command(commands, "step", step, text, "traces/demo", "traces/demo --batches 28:32 -o step.html")
    add_trace(parser)
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", default="step.html", help="the page (step.html)")
    add_part(parser)
    parser.add_argument("--at", type=arguments.moderate, metavar="S", help="begin then: seconds after the first event")

    text = "write a trace as a page for a bug report, for ui.perfetto.dev, or as lines of JSON"
    examples = "traces/demo --format html -o demo.html", "traces/demo --format perfetto -o demo.json.gz"
    parser = add_command(commands, "export", export, text, *examples)
    add_trace(parser)
    parser.add_argument("--format", choices=("perfetto", "jsonl", "html"), required=True, help="see docs/exports.md")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="compressed if it ends in .gz")
    text = "html: with the keys, errors and paths that are left out by default"
    parser.add_argument("--content", action="store_true", help=text)


def timeline(args: argparse.Namespace) -> None:
    must_end_in(args.output, ".png", ".svg", ".pdf")
    ranks, options = ranks_of(args), part_of(args)
    if len(ranks.all) == 1:  # no batch is followed through several
        options["follow"] = args.follow
    with usage_errors():
        tracing.timeline(ranks, **options).savefig(args.output)


def sequence(args: argparse.Namespace) -> None:
    from rich.console import Console

    from tracing.views.sequence import Phase, as_mermaid, as_text

    trace = load(args)
    part = part_of(args) | {"phase": Phase[args.only or "ALL"], "most": args.most}
    console = Console()
    with usage_errors():
        if args.output:
            must_end_in(args.output, ".mmd")
            args.output.write_text(as_mermaid(trace, **part), encoding="utf-8")
            return
        text = as_text(trace, width=args.width or (console.width if console.is_terminal else 100), **part)
    show: Any = console.print if console.is_terminal else print
    show(text)


def step(args: argparse.Namespace) -> None:
    must_end_in(args.output, ".html", ".htm")
    with usage_errors():
        page = tracing.step(load(args), at=args.at, **part_of(args))
        page.save(args.output)
    if page.excerpt.note:
        print(page.excerpt.note, file=sys.stderr)
    print(f"{args.output}: open it in a browser")


def export(args: argparse.Namespace) -> None:
    from tracing.views.export import html, jsonl, perfetto

    page: Any = functools.partial(html.write, content=args.content)
    with usage_errors():
        {"perfetto": perfetto.write, "jsonl": jsonl.write, "html": page}[args.format](load(args), args.output)
