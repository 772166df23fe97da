"""`live`: watch a run that is being recorded, or replay a finished one."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tracing.cli.arguments import add_command, add_trace, moderate, process_of, usage_errors


def add_to(commands: Any) -> None:
    text = "watch a run that is being recorded, or replay a finished one"
    live = add_command(commands, "live", run, text, "traces/demo --speed 0.5")
    add_trace(live)
    live.add_argument("--speed", type=moderate, default=1.0, help="replay at N times the speed (1)", metavar="N")
    live.add_argument("--once", action="store_true", help="print one frame and exit")
    live.add_argument("--record", type=Path, metavar="FILE.svg", help="the same, and save it as a picture")


def run(args: argparse.Namespace) -> None:
    from tracing.views.live.live import watch

    part = None if args.process is None else process_of(args).path.name
    with usage_errors():
        watch(args.trace, speed=args.speed, once=args.once, record=args.record, part=part)
