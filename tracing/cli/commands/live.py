"""`live`: watch a run that is being recorded, or replay a finished one."""

from __future__ import annotations

import argparse
import contextlib
import time
from pathlib import Path
from typing import Any

from tracing.cli.arguments import add_command, add_trace, process_of, usage_errors
from tracing.recording import file_format as fmt
from tracing.recording.trace_directory import being_recorded
from tracing.trace.parts import parts


def add_to(commands: Any) -> None:
    text = "watch a run that is being recorded, or replay a finished one"
    live = add_command(commands, "live", run, text, "traces/demo --speed 0.5")
    add_trace(live)
    live.add_argument("--speed", type=float, default=1.0, help="replay at N times the speed (1)", metavar="N")
    live.add_argument("--once", action="store_true", help="print one frame and exit")
    live.add_argument("--record", type=Path, metavar="FILE.svg", help="the same, and save it as a picture")


def run(args: argparse.Namespace) -> None:
    from tracing.views.live.live import watch

    wait_for_first_event(args.trace)
    part = None if args.process is None else process_of(args).path.name
    with usage_errors():
        watch(args.trace, speed=args.speed, once=args.once, record=args.record, part=part)


def wait_for_first_event(directory: Path) -> None:
    """Wait for a process that is recording but has emitted nothing yet: its trace looks like one that ended without any
    events. (Its file exists a moment before the header, by which a file is recognised, is whole.)"""
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):  # no trace, or a damaged one: load() reports
        while not any(fmt.headers(part.path) for part in parts(directory)):
            if not being_recorded(directory):
                return
            time.sleep(0.05)
