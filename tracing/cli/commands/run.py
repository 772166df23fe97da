"""`run`: any training script, unchanged, with all its loaders recorded."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tracing.cli.arguments import add_command


def add_to(commands: Any) -> None:
    text = "run any training script, unchanged, and record its loaders, minidl's and torch.utils.data's"
    examples = ("train.py --lr 0.1", "--live -o traces/slow -m pkg.train --lr 0.1", "--try train.py")
    parser = add_command(commands, "run", run, text, *examples)
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="record into DIR (traces/NAME_OF_SCRIPT)")
    parser.add_argument("--live", action="store_true", help="watch it; the script's output is shown at the end")
    parser.add_argument("--try", dest="tries", action="store_true", help="measure other settings of its loader, too")
    parser.add_argument("--try-only", dest="ends", action="store_true", help="the same, and then end the script")
    parser.add_argument("--minidl", action="store_true", help="give it minidl's DataLoader in place of torch's")
    parser.add_argument("-m", dest="module", action="store_true", help="SCRIPT is a module's name, as in python -m")
    parser.add_argument("script", metavar="SCRIPT", help="a Python file")
    own = parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGS", help="its own arguments")
    own.required = False  # otherwise errors would list it as missing


def run(args: argparse.Namespace) -> int:
    import tracing
    from tracing.cli.run_script import run_script

    name = args.script.rpartition(".")[2] if args.module else Path(args.script).stem
    recording = tracing.record(args.output or Path("traces", name))
    how = {name: getattr(args, name) for name in ("module", "live", "minidl", "ends")}
    return run_script(recording, args.script, args.arguments, tries=args.tries or args.ends, **how)
