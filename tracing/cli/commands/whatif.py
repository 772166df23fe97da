"""`whatif`: how fast the same load would be with other options."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import tracing
from tracing.cli.arguments import UsageError, add_command, add_trace, count, load, positive, positive_count
from tracing.cli.progress import Progress


def add_to(commands: Any) -> None:
    text = "how fast the same load would be with other options, and which are best"
    parser = add_command(
        commands,
        "whatif",
        run,
        text,
        "traces/demo",
        "traces/demo --workers 1,2,4,8 --prefetch 2",
        "traces/demo --in-order yes,no --persistent yes,no",
    )
    add_trace(parser)
    grid = parser.add_argument_group("what to try", "one value, or several as in 1,2,4: every combination is tried")
    grid.add_argument(
        "--workers",
        type=values(count),
        metavar="N",
        help="num_workers (1,2,4,8, as recorded, and more if that may help)",
    )
    grid.add_argument(
        "--prefetch", type=values(positive_count), metavar="N", help="prefetch_factor (1,2,4 and as recorded)"
    )
    grid.add_argument("--in-order", type=values(yes), metavar="yes|no", help="in_order (as recorded)")
    grid.add_argument("--persistent", type=values(yes), metavar="yes|no", help="persistent_workers (as recorded)")
    parser.add_argument("--loader", type=count, metavar="N", help="which DataLoader (the one that took most time)")
    parser.add_argument("--cpus", type=positive, metavar="N", help="cores of the machine (as recorded)")
    parser.add_argument("--json", action="store_true", help="for programs")


def run(args: argparse.Namespace) -> None:
    trace = load(args)
    try:
        with Progress("replaying") as progress:
            found = tracing.whatif(
                trace,
                num_workers=args.workers,
                prefetch_factor=args.prefetch,
                in_order=args.in_order,
                persistent_workers=args.persistent,
                loader=args.loader,
                cpus=args.cpus,
                progress=progress,
            )
    except ValueError as error:  # nothing to replay
        raise UsageError(f"{args.trace}: {error}") from None
    print(found.to_json() if args.json else found)


def values(each: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    """The type of an argument that takes several values, separated by commas."""

    def several(text: str) -> list[Any]:
        return [each(part) for part in text.split(",")]

    several.__name__ = each.__name__  # what argparse calls it in an error
    return several


def yes(text: str) -> bool:
    if text not in ("yes", "no"):
        raise argparse.ArgumentTypeError(f"{text} is neither yes nor no")
    return text == "yes"
