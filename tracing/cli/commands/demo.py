"""`demo`: a real load, run as `run` runs any script; then its timeline and report."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import tracing
from tracing.cli.arguments import UsageError, add_command
from tracing.cli.terminal_handover import is_terminal

SCRIPT = Path(__file__).parents[1] / "demo_training.py"
TIMELINE, REPORT = "timeline.png", "report.txt"  # written beside the trace


def add_to(commands: Any) -> None:
    text = "a real load, watched live, then its timeline and report"
    demo = add_command(commands, "demo", run, text, "--files 300")
    demo.add_argument(
        "-o", "--output", type=Path, default=Path("traces", "demo"), metavar="DIR", help="record into DIR (traces/demo)"
    )
    demo.add_argument("--files", type=int, metavar="N", help="only the first N files")
    demo.add_argument("--no-live", action="store_true", help="plain lines instead of the live view")


def run(args: argparse.Namespace) -> int:
    from tracing.cli.run_script import run_script, shown

    if args.files is not None and args.files < 1:
        raise UsageError("--files: at least one file is needed")
    recording, files = tracing.record(args.output), [] if args.files is None else [str(args.files)]
    status = run_script(recording, str(SCRIPT), files, live=is_terminal() and not args.no_live)
    trace = tracing.load(recording.path)
    for name in (TIMELINE, REPORT):  # of an earlier run: after Ctrl-C they would pass for this one's
        (recording.path / name).unlink(missing_ok=True)
    if trace.loaders:
        (recording.path / REPORT).write_text(f"{tracing.report(trace)}\n", encoding="utf-8")
        tracing.timeline(trace).savefig(recording.path / TIMELINE)
        print(f"Its timeline and the whole report: {TIMELINE} and {REPORT} in {shown(recording.path)}")
    return status
