"""The command line: `python -m tracing COMMAND`. The commands are in tracing.cli.commands.

Exit status: 0 done; 1 `check` found a broken law; 2 a wrong argument, or a trace that cannot be read, with one
line on stderr; 130 Ctrl-C. `run` exits with the status of the script.
"""

from __future__ import annotations

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
    args = make_parser().parse_args(arguments)
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
    parser.set_defaults(run=lambda _: parser.print_help())
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for each in COMMANDS:
        each.add_to(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
