"""`merge`: what several hosts wrote of one run, as one trace."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tracing.cli.arguments import add_command, add_path


def add_to(commands: Any) -> None:
    text = "put together what the processes on several hosts recorded, with the offsets of the hosts' clocks"
    merge = add_command(commands, "merge", run, text, "traces/all node1/traces/train node2/traces/train")
    add_path(merge, "output", "the new trace")
    merge.add_argument("traces", type=Path, nargs="+", metavar="DIR", help="the traces; times are on the first's clock")


def run(args: argparse.Namespace) -> None:
    from tracing.trace.merge import merge
    from tracing.trace.parts import clock_notes, parts

    path = merge(args.output, args.traces)
    found = parts(path)
    print(f"{len(found)} processes in {path}: {', '.join(part.name for part in found)}")
    for note in clock_notes(found):
        print(note)
