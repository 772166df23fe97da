"""`demo`: a real load, recorded, watched and explained."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tracing.cli.arguments import add_command, count, positive, positive_count
from tracing.cli.terminal_handover import is_terminal


def add_to(commands: Any) -> None:
    text = "a real load, watched live, then its timeline and report"
    demo = add_command(commands, "demo", run, text, "--epochs 2")
    demo.add_argument(
        "-o", "--output", type=Path, default=Path("traces", "demo"), metavar="DIR", help="record into DIR (traces/demo)"
    )
    demo.add_argument("--workers", type=count, default=2, metavar="N", help="worker processes (2)")
    demo.add_argument("--epochs", type=positive_count, default=1, metavar="N", help="passes over the files (1)")
    demo.add_argument("--files", type=positive_count, metavar="N", help="only the first N files")
    demo.add_argument("--seconds", type=positive, default=25.0, metavar="S", help="stop training after S seconds (25)")
    demo.add_argument("--no-live", action="store_true", help="plain lines instead of the live view")


def run(args: argparse.Namespace) -> int:
    from tracing.cli.demo_training import run_demo  # torch takes seconds to import

    return run_demo(
        args.output,
        workers=args.workers,
        epochs=args.epochs,
        files=args.files,
        seconds=args.seconds,
        live=is_terminal() and not args.no_live,
    )
