"""`compare`: two runs side by side."""

from __future__ import annotations

import argparse
from typing import Any

import tracing
from tracing.cli.arguments import add_command, add_path, add_process, load_loaders
from tracing.cli.progress import Progress


def add_to(commands: Any) -> None:
    text = "two runs side by side: which is faster, where did the time go, do the keys differ"
    compare = add_command(commands, "compare", run, text, "traces/before traces/after")
    add_path(compare, "before", "the first run, A")
    add_path(compare, "after", "the second run, B: after a change, or with the other package")
    add_process(compare)


def run(args: argparse.Namespace) -> None:
    with Progress("comparing"):
        comparison = tracing.compare(load_loaders(args, "before"), load_loaders(args, "after"))
    print(comparison)
