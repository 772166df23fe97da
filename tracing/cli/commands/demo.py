"""`demo`: a real load, recorded, watched and explained."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tracing.cli.arguments import add_command
from tracing.cli.terminal_handover import is_terminal


def add_to(commands: Any) -> None:
    text = "a real load, watched live, then its timeline and report"
    demo = add_command(commands, "demo", run, text, "--files 300")
    demo.add_argument(
        "-o", "--output", type=Path, default=Path("traces", "demo"), metavar="DIR", help="record into DIR (traces/demo)"
    )
    demo.add_argument("--files", type=int, metavar="N", help="only the first N files")
    demo.add_argument("--no-live", action="store_true", help="plain lines instead of the live view")


def run(args: argparse.Namespace) -> int:
    from tracing.cli.demo_training import run_demo  # torch takes seconds to import

    return run_demo(args.output, files=args.files, live=is_terminal() and not args.no_live)
