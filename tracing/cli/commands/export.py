"""`export`: a trace in the formats of other programs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tracing.cli.arguments import add_command, add_trace, load
from tracing.cli.progress import Progress

FORMATS = ("perfetto", "jsonl")


def add_to(commands: Any) -> None:
    text = "write a trace for ui.perfetto.dev, or as lines of JSON"
    export = add_command(
        commands,
        "export",
        run,
        text,
        "traces/demo --format perfetto -o demo.json.gz",
        "traces/demo --format jsonl -o demo.jsonl",
    )
    add_trace(export)
    export.add_argument("--format", choices=FORMATS, required=True, help="see docs/exports.md")
    export.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="compressed if it ends in .gz")


def run(args: argparse.Namespace) -> None:
    from tracing.views.export import jsonl, perfetto

    write = {"perfetto": perfetto.write, "jsonl": jsonl.write}[args.format]
    with Progress("writing") as progress:
        write(load(args), args.output, progress)
