"""What the commands' arguments have in common: how they are read, and one-line errors for wrong ones."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import tracing
from tracing.analysis.measure.measures import NO_LOADER
from tracing.trace.trace import Trace

Run = Callable[[argparse.Namespace], int | None]  # a command; returns the exit status, None for 0


class UsageError(Exception):
    """A wrong argument. The message is one line."""


class Parser(argparse.ArgumentParser):
    """Reports an error in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message} (see {self.prog} --help)\n")


def add_command(commands: Any, name: str, run: Run, text: str, *examples: str) -> Parser:
    """A command, its line in the list of commands, and examples of its arguments."""
    lines = "".join(f"\n  python -m tracing {name} {example}" for example in examples)
    parser: Parser = commands.add_parser(
        name,
        help=text,
        description=text[0].upper() + text[1:] + ".",
        epilog=f"example{'s' if len(examples) > 1 else ''}:{lines}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    return parser


def add_trace(parser: Parser, name: str = "trace", text: str = "the trace: what tracing.record(DIR) wrote") -> None:
    parser.add_argument(name, type=Path, metavar="DIR", help=text)


def load_loaders(path: Path) -> Trace:
    """A trace with at least one loader to judge. UsageError: it has none."""
    trace = tracing.load(path)
    if not trace.loaders:
        raise UsageError(f"{path}: {NO_LOADER}")
    return trace


def add_part(parser: Parser) -> None:
    """Options for which part of the trace to show."""
    part = parser.add_argument_group("which part", "by default all of it")
    part.add_argument("--from", dest="start", type=float, metavar="S", help="seconds after the first event")
    part.add_argument("--to", dest="end", type=float, metavar="S", help="seconds after the first event")
    part.add_argument("--batches", type=batches, metavar="A:B", help="batches A to B - 1 of an epoch")
    part.add_argument("--epoch", type=count, metavar="N", help="of this epoch (0)")
    part.add_argument("--loader", type=count, metavar="N", help="of this DataLoader; `report` shows their numbers")


def part_of(args: argparse.Namespace) -> dict[str, Any]:
    """The same as keyword arguments of the views."""
    return {name: getattr(args, name) for name in ("start", "end", "batches", "epoch", "loader")}


def suffix_of(path: Path, *suffixes: str) -> str:
    """The suffix of the file's name, which decides its format. UsageError: it is none of these."""
    suffix = path.suffix.lower()
    if suffix not in suffixes:
        raise UsageError(f"{path}: the file's name must end in {' or '.join(suffixes)}")
    return suffix


# ---- types


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
