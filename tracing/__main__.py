"""The command line: `python -m tracing COMMAND`. Each command is a function; what it shows is made elsewhere.

Exit status: 0 done; 1 `check` found a broken invariant; 2 a wrong argument, or a trace that cannot be read: one line
on stderr; 130 Ctrl-C.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import tracing
from tracing import format as fmt
from tracing.recording import is_alive

PICTURES = (".png", ".svg", ".pdf")


class UsageError(Exception):
    """An argument that cannot be meant. The message is one line."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit status."""
    args = make_parser().parse_args(arguments)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _one_line
            status = int(args.run(args) or 0)
        sys.stdout.flush()  # here, where a closed pipe can still be dealt with
        return status
    except BrokenPipeError:  # `… | head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing is flushed into it at exit
        return 0
    except KeyboardInterrupt:
        return 130
    except ModuleNotFoundError as error:
        print(f"error: {error.name} is not installed: use .venv/bin/python, which `make demo` makes", file=sys.stderr)
        return 2
    except (UsageError, tracing.TraceError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _one_line(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"warning: {message}", file=sys.stderr)


# ---- the commands


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


def run_live(args: argparse.Namespace) -> None:
    from tracing.views import live

    wait_for_first_event(args.trace)
    live.watch(args.trace, speed=args.speed, once=args.once, record=args.record)


def wait_for_first_event(directory: Path) -> None:
    """A process that records, and has had nothing to say yet, is waited for: a trace without events looks like one that
    ended without any. (Its file is there a moment before the header, by which a file is known, is whole.)"""
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):  # no trace, or a damaged one: load() tells
        while not any(fmt.read_header(path) for path in directory.glob("events-*-*.bin")):
            if not is_alive(int(json.loads((directory / fmt.DESCRIPTION).read_bytes())["pid"])):
                return
            time.sleep(0.05)


def run_timeline(args: argparse.Namespace) -> None:
    from tracing.views.timeline import timeline

    if args.output.suffix.lower() not in PICTURES:
        raise UsageError(f"{args.output}: a picture's name ends in {', '.join(PICTURES[:-1])} or {PICTURES[-1]}")
    trace = tracing.load(args.trace)
    try:
        figure = timeline(trace, start=args.begin, end=args.end, batches=args.batches, epoch=args.epoch)
    except ValueError as error:  # an empty window, say
        raise UsageError(str(error)) from None
    figure.savefig(args.output)


def run_report(args: argparse.Namespace) -> None:
    report = tracing.report(tracing.load(args.trace))
    print(report.to_json() if args.json else report)


def run_check(args: argparse.Namespace) -> int:
    trace = tracing.load(args.trace)
    violations = tracing.check(trace)
    for violation in violations:
        print(violation)
    print(f"{len(trace):,} events: {f'{len(violations)} broken invariants' if violations else 'all invariants hold'}")
    return 1 if violations else 0


# ---- their arguments


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message} (see {self.prog} --help)\n")


def make_parser() -> Parser:
    parser = Parser(prog="python -m tracing", description="See what a DataLoader does.")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for add in add_demo, add_live, add_timeline, add_report, add_check:
        add(commands)
    return parser


def add_command(commands: Any, name: str, run: Any, text: str, example: str) -> Parser:
    parser: Parser = commands.add_parser(
        name,
        help=text,
        description=text[0].upper() + text[1:] + ".",
        epilog=f"example:\n  python -m tracing {name} {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    if name != "demo":
        parser.add_argument("trace", type=Path, metavar="DIR", help="the trace: what tracing.record(DIR) wrote")
    return parser


def add_demo(commands: Any) -> None:
    text = "a real load, watched live, then its timeline and report"
    demo = add_command(commands, "demo", run_demo, text, "--epochs 2")
    demo.add_argument(
        "-o", "--output", type=Path, default=Path("traces", "demo"), metavar="DIR", help="record into DIR (traces/demo)"
    )
    demo.add_argument("--workers", type=count, default=2, metavar="N", help="worker processes (2)")
    demo.add_argument("--epochs", type=positive_count, default=1, metavar="N", help="passes over the files (1)")
    demo.add_argument("--files", type=positive_count, metavar="N", help="only the first N files")
    demo.add_argument("--seconds", type=positive, default=25.0, metavar="S", help="stop training after S seconds (25)")
    demo.add_argument("--no-live", action="store_true", help="plain lines instead of the live view")


def add_live(commands: Any) -> None:
    text = "watch a run that is being recorded, or replay a finished one"
    live = add_command(commands, "live", run_live, text, "traces/demo --speed 0.5")
    live.add_argument("--speed", type=positive, default=1.0, help="replay so many times as fast (1)")
    live.add_argument("--once", action="store_true", help="print one frame and end")
    live.add_argument("--record", type=Path, metavar="FILE.svg", help="save a frame of what was shown")


def add_timeline(commands: Any) -> None:
    text = "draw who did what when, and how full the queues were"
    timeline = add_command(commands, "timeline", run_timeline, text, "traces/demo -o timeline.svg --batches 10:30")
    timeline.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="a png, svg or pdf file")
    part = timeline.add_argument_group("which part", "by default all of it")
    part.add_argument("--from", dest="begin", type=float, metavar="S", help="seconds after the first event")
    part.add_argument("--to", dest="end", type=float, metavar="S", help="seconds after the first event")
    part.add_argument("--batches", type=batches, metavar="A:B", help="batches A to B - 1 of an epoch")
    part.add_argument("--epoch", type=int, help="of which epoch (0)")


def add_report(commands: Any) -> None:
    text = "what limits the load, why, and what to change"
    report = add_command(commands, "report", run_report, text, "traces/demo --json")
    report.add_argument("--json", action="store_true", help="for programs: times in ns, events as positions")


def add_check(commands: Any) -> None:
    text = "test the protocol's invariants; exit status 1 when one is broken"
    add_command(commands, "check", run_check, text, "traces/demo")


def positive(text: str) -> float:
    number = float(text)
    if not number > 0:
        raise argparse.ArgumentTypeError(f"{text} is not more than 0")
    return number


def count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is less than 0")
    return number


def positive_count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number


def batches(text: str) -> tuple[int, int]:
    first, _, end = text.partition(":")
    if not (first.isdigit() and end.isdigit() and int(first) < int(end)):
        raise argparse.ArgumentTypeError(f"{text} is not a range of batches, as 10:30 is")
    return int(first), int(end)


if __name__ == "__main__":
    sys.exit(main())
