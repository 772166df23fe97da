"""The command that writes a trace in the formats of others: export."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import tracing
from tracing.commands.arguments import add_command, add_trace

FORMATS = ("perfetto", "jsonl")


def add_export(commands: Any) -> None:
    text = "write a trace for ui.perfetto.dev, or as lines of JSON"
    export = add_command(
        commands,
        "export",
        run_export,
        text,
        "traces/demo --format perfetto -o demo.json.gz",
        "traces/demo --format jsonl -o demo.jsonl",
    )
    add_trace(export)
    export.add_argument("--format", choices=FORMATS, required=True, help="see docs/exports.md")
    export.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="FILE",
        help="a name in .gz is compressed",
    )


def run_export(args: argparse.Namespace) -> None:
    from tracing.export import jsonl, perfetto

    write = {"perfetto": perfetto.write, "jsonl": jsonl.write}[args.format]
    write(tracing.load(args.trace), args.output)
