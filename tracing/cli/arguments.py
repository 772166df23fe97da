"""What the commands' arguments have in common: how they are read, and one-line errors for wrong ones."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from tracing.analysis.measure.measures import NO_LOADER
from tracing.ranks.ranks import Ranks
from tracing.trace.parts import Part, choose, parts
from tracing.trace.trace import Trace
from tracing.trace.words import command

Run = Callable[[argparse.Namespace], int | None]  # a command; returns the exit status, None for 0


class UsageError(Exception):
    """A wrong argument. The message is one line."""


@contextlib.contextmanager
def usage_errors(of: str = "") -> Iterator[None]:
    """A view raises ValueError for what it cannot show: here a wrong argument. of: what it is about."""
    try:
        yield
    except ValueError as error:
        raise UsageError(f"{of}{error}") from None


class Parser(argparse.ArgumentParser):
    """Reports an error in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message} (see {self.prog} --help)\n")


def add_command(commands: Any, name: str, run: Run, text: str, *examples: str) -> Parser:
    """A command, its line in the list of commands, and examples of its arguments."""
    lines = "".join(f"\n  {command()} {name} {example}" for example in examples)
    parser: Parser = commands.add_parser(
        name,
        help=text,
        description=text[0].upper() + text[1:] + ".",
        epilog=f"example{'s' if len(examples) > 1 else ''}:{lines}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    return parser


def add_trace(parser: Parser) -> None:
    """A trace, and which process, if the run has several."""
    add_path(parser, "trace", "the trace: what tracing.record(DIR) wrote")
    add_process(parser)


def add_path(parser: Parser, name: str, text: str) -> None:
    parser.add_argument(name, type=Path, metavar="DIR", help=text)


def add_process(parser: Parser) -> None:
    text = "of several processes, rank N, or this folder of DIR/parts"
    parser.add_argument("--rank", "--part", dest="process", metavar="N|NAME", help=text)


def load(args: argparse.Namespace, name: str = "trace") -> Trace:
    """The trace that the arguments name. If there are several processes, stderr names the others."""
    return Ranks(getattr(args, name), process_of(args, name)).all[0].trace


def process_of(args: argparse.Namespace, name: str = "trace") -> Part:
    """Which process of the run they name."""
    path = getattr(args, name)
    try:
        chosen = choose(path, args.process)
    except LookupError as error:
        raise UsageError(error.args[0]) from None
    if others := [each.name for each in parts(path) if each.path != chosen.path]:
        print(f"{chosen.name} of {path}; there are also {', '.join(others)} (--rank, --part)", file=sys.stderr)
    return chosen


def load_loaders(args: argparse.Namespace, name: str = "trace") -> Trace:
    """A trace with at least one loader to judge. UsageError: it has none."""
    trace = load(args, name)
    must_have_a_loader(getattr(args, name), trace)
    return trace


def ranks_of(args: argparse.Namespace) -> Ranks:
    """The processes of a run, or the one asked for."""
    return Ranks(args.trace, None if args.process is None else process_of(args))


def load_ranks(args: argparse.Namespace) -> Ranks:
    """The same. UsageError: none has a loader to judge."""
    ranks = ranks_of(args)
    must_have_a_loader(ranks.path, *(each.trace for each in ranks.all))
    return ranks


def must_have_a_loader(path: Path, *traces: Trace) -> None:
    if not any(trace.loaders for trace in traces):
        raise UsageError(f"{path}: {NO_LOADER}")


def add_part(parser: Parser) -> None:
    """Options for which part of the trace to show."""
    part = parser.add_argument_group("which part", "by default all of one loader: that with the most batches")
    part.add_argument("--from", dest="start", type=moderate, metavar="S", help="seconds after the first event")
    part.add_argument("--to", dest="end", type=moderate, metavar="S", help="seconds after the first event")
    part.add_argument("--batches", type=batches, metavar="A:B", help="batches A to B - 1 of an epoch")
    part.add_argument("--epoch", type=int, metavar="N", help="of this epoch (0)")
    part.add_argument("--loader", type=int, metavar="N", help="of this DataLoader; `report` shows their numbers")


def part_of(args: argparse.Namespace) -> dict[str, Any]:
    """The same as keyword arguments of the views."""
    return {name: getattr(args, name) for name in ("start", "end", "batches", "epoch", "loader")}


def must_end_in(path: Path, *suffixes: str) -> None:
    """The suffix of the file's name decides its format. UsageError: it is none of these."""
    if path.suffix.lower() not in suffixes:
        raise UsageError(f"{path}: the file's name must end in {' or '.join(suffixes)}")


def moderate(text: str) -> float:
    """A number that is still one as ns."""
    if not abs(number := float(text)) < 1e9:
        raise argparse.ArgumentTypeError(f"{text} is too large")
    return number


def batches(text: str) -> tuple[int, int]:
    first, _, end = text.partition(":")
    if not (first.isdigit() and end.isdigit() and int(first) < int(end)):
        raise argparse.ArgumentTypeError(f"{text} is not a range of batches like 10:30")
    return int(first), int(end)
