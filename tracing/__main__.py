"""The command line: `python -m tracing COMMAND`. The commands are in tracing.cli.commands.

Exit status: 0 done; 1 `check` found a broken law; 2 a wrong argument, or a trace that cannot be read, with one
line on stderr; 130 Ctrl-C. `run` exits with the status of the script.
"""

from __future__ import annotations

import atexit
import gc
import io
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from tracing.cli.arguments import Parser, UsageError
from tracing.cli.commands import course, demo, live, pictures, run, verdicts, whatif
from tracing.trace.file_reader import TraceError
from tracing.trace.words import command

COMMANDS = (demo, run, live, pictures, verdicts, whatif, course)


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
                if isinstance(sys.stdout, io.TextIOWrapper):
                    sys.stdout.reconfigure(errors="replace")  # a terminal in Latin-1 has no box characters
            status = int(args.run(args) or 0)
        sys.stdout.flush()  # here, where a closed pipe can still be handled
        return status
    except BrokenPipeError:  # `… | head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing is flushed into it at exit
        return 0
    except KeyboardInterrupt:
        return 130
    except (UsageError, TraceError, OSError, ModuleNotFoundError) as error:  # rich and matplotlib are extras
        print(f"error: {error}", file=sys.stderr)
        return 2


def _one_line(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"warning: {message}", file=sys.stderr)


def make_parser() -> Parser:
    parser = Parser(prog=command(), description="See what a DataLoader does.")
    parser.set_defaults(run=None)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for each in COMMANDS:
        each.add_to(commands)
    return parser


def leave_garbage() -> None:
    """Hardly ever collect garbage in this process, and never at exit. A replay imports torch, which makes half a
    million objects, none of them garbage: scanning them would add a third to that time."""
    gc.set_threshold(100_000)
    atexit.register(gc.freeze)


if __name__ == "__main__":
    if sys.argv[1:2] not in (["run"], ["demo"]):  # these run a program, and its garbage is its own affair
        leave_garbage()
    sys.exit(main())
