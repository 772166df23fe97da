"""The command line: `python -m tracing COMMAND`. The commands are in tracing.cli.commands.

Exit status: 0 done; 1 `check` found a broken law; 2 a wrong argument, or a trace that cannot be read, with one
line on stderr; 130 Ctrl-C. `run` exits with the status of the script.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from tracing.cli.arguments import Parser, UsageError
from tracing.cli.commands import demo, live, pictures, run, verdicts, whatif
from tracing.trace.file_reader import TraceError

COMMANDS = (demo, run, live, pictures, verdicts, whatif)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit status."""
    parser = make_parser()
    args = parser.parse_args(arguments)
    if args.run is None:
        parser.print_help()
        return 0
    try:
        with warnings.catch_warnings():
            if args.run is not run.run:  # a script's warnings are its own
                warnings.showwarning = _one_line
            status = int(args.run(args) or 0)
        sys.stdout.flush()  # here, where a closed pipe can still be handled
        return status
    except BrokenPipeError:  # `… | head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing is flushed into it at exit
        return 0
    except KeyboardInterrupt:
        return 130
    except (UsageError, TraceError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _one_line(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"warning: {message}", file=sys.stderr)


def make_parser() -> Parser:
    parser = Parser(prog="python -m tracing", description="See what a DataLoader does.")
    parser.set_defaults(run=None)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for command in COMMANDS:
        command.add_to(commands)
    return parser


def leave_garbage() -> None:
    """Hardly ever collect garbage in this process, and not when it ends. A replay imports torch, half a million objects
    and none of them garbage: looking through them would take a third of that time again."""
    gc.set_threshold(100_000)
    atexit.register(gc.freeze)


if __name__ == "__main__":
    if sys.argv[1:2] not in (["run"], ["demo"]):  # in these a program runs, and its garbage is its own affair
        leave_garbage()
    sys.exit(main())
