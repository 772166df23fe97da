"""Commands that record: demo, run."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from tracing.commands.arguments import add_command, count, positive, positive_count


def add_demo(commands: Any) -> None:
    text = "the main job: a real load, watched live, then its timeline and report"
    demo = add_command(commands, "demo", run_demo, text, "--epochs 2")
    demo.add_argument(
        "-o", "--output", type=Path, default=Path("traces", "demo"), metavar="DIR", help="record into DIR (traces/demo)"
    )
    demo.add_argument("--workers", type=count, default=2, metavar="N", help="worker processes (2)")
    demo.add_argument("--epochs", type=positive_count, default=1, metavar="N", help="passes over the files (1)")
    demo.add_argument("--files", type=positive_count, metavar="N", help="only the first N files")
    demo.add_argument("--seconds", type=positive, default=25.0, metavar="S", help="stop training after S seconds (25)")
    demo.add_argument("--no-live", action="store_true", help="plain lines instead of the live view")


def run_demo(args: argparse.Namespace) -> int:
    from tracing import demo

    terminal = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb" and not os.environ.get("CI")
    return demo.run(
        args.output,
        workers=args.workers,
        epochs=args.epochs,
        files=args.files,
        seconds=args.seconds,
        live=terminal and not args.no_live,
    )


def add_run(commands: Any) -> None:
    text = "any training script, unchanged: record its loaders, minidl's and torch.utils.data's"
    run = add_command(
        commands,
        "run",
        run_script,
        text,
        "train.py --lr 0.1",
        "--live -o traces/slow train.py",
        "-m pkg.train --lr 0.1",
    )
    run.add_argument("-o", "--output", type=Path, metavar="DIR", help="record into DIR (traces/ and the script's name)")
    run.add_argument("--live", action="store_true", help="watch it; what the script prints is shown at the end")
    run.add_argument("--memory", action="store_true", help="sample the processes' memory, open files and mappings")
    run.add_argument(
        "--capacity",
        type=positive_count,
        default=1_000_000,
        metavar="N",
        help="events a process may record (1,000,000)",
    )
    run.add_argument("-m", dest="module", action="store_true", help="SCRIPT is a module's name, as in python -m")
    run.add_argument("script", metavar="SCRIPT", help="a Python file")
    own = run.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGS", help="its own arguments")
    own.required = False  # or an error would ask for them


def run_script(args: argparse.Namespace) -> int:
    from tracing.running import run

    name = args.script.rpartition(".")[2] if args.module else Path(args.script).stem
    return run(
        args.script,
        args.arguments,
        module=args.module,
        directory=args.output or Path("traces", name),
        live=args.live,
        memory=args.memory,
        capacity=args.capacity,
    )
