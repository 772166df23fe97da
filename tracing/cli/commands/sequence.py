"""`sequence`: which thread sent what to which, as a diagram."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tracing.cli.arguments import UsageError, add_command, add_part, add_trace, load, part_of, positive_count, suffix_of


def add_to(commands: Any) -> None:
    text = "which thread sent what to which, as text or mermaid"
    sequence = add_command(commands, "sequence", run, text, "traces/demo", "traces/demo --batches 28:32 -o demo.mmd")
    add_trace(sequence)
    sequence.add_argument("-o", "--output", type=Path, metavar="FILE", help="an mmd (mermaid) or txt file")
    sequence.add_argument("--width", type=positive_count, metavar="N", help="columns of the text (the terminal's)")
    sequence.add_argument("--most", type=positive_count, default=200, metavar="N", help="rows to show at most (200)")
    add_part(sequence)
    only = sequence.add_mutually_exclusive_group()
    only.add_argument("--start-up", dest="only", action="store_const", const="START_UP", help="only the start-up")
    only.add_argument("--shutdown", dest="only", action="store_const", const="SHUTDOWN", help="only the shutdown")


def run(args: argparse.Namespace) -> None:
    from rich.console import Console

    from tracing.views import sequence

    kind = suffix_of(args.output, ".mmd", ".txt") if args.output else ""
    trace = load(args)
    part = part_of(args) | {"phase": sequence.Phase[args.only or "ALL"], "most": args.most}
    console = Console()
    try:
        if kind == ".mmd":
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
