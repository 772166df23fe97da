"""Results as tables: for a terminal or a pipe by rich, for docs/ as markdown between two markers."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from dataclasses import dataclass, field

import rich.box
import rich.table
import torch
from rich.console import Console

from tests.benchmarks.turns import Comparison


@dataclass
class Table:
    """Cells of text under a title. The first column has words, the others numbers."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]] = field(default_factory=list)


def verdict(value: float, goal: float, *, at_most: bool = False) -> str:
    """`0.97 met` or `0.97 missed`; goals are lower bounds unless `at_most`."""
    met = value <= goal if at_most else value >= goal
    return f"{goal:g} {'met' if met else 'missed'}"


Row = tuple[str, int, Comparison, float | None]  # what a batch is, num_workers, both loaders, the goal
UNITS = {
    "batches/s": lambda seconds: f"{1 / seconds:,.0f}",
    "µs/batch": lambda seconds: f"{seconds * 1e6:.0f}",
    "ms": lambda seconds: f"{seconds * 1e3:.1f}",
    "s": lambda seconds: f"{seconds:.1f}",
}


def side_by_side(title: str, sides: tuple[str, str], unit: str, rows: Iterable[Row]) -> Table:
    """Of each comparison both medians, how many times as fast the second side is, and the goal for that."""
    table = Table(title, ("a batch", "workers", *(f"{side}, {unit}" for side in sides), "ratio", "quartiles", "goal"))
    for batch, workers, taken, goal in rows:
        medians = UNITS[unit](taken.median_first), UNITS[unit](taken.median_second)
        low, high = taken.spread
        judged = "" if goal is None else verdict(taken.speed, goal)
        table.rows.append((batch, str(workers), *medians, f"{taken.speed:.2f}", f"{low:.2f}–{high:.2f}", judged))
    return table


def facts() -> str:
    """The kind of machine and the versions, in one line."""
    return (
        f"{platform.system()} on {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"torch {torch.__version__}"
    )


def show(table: Table, console: Console) -> None:
    """Print a table: boxes and colour in a terminal, plain characters in a pipe."""
    box = rich.box.ROUNDED if console.is_terminal else rich.box.ASCII
    drawn = rich.table.Table(title=table.title, title_justify="left", box=box)
    for number, column in enumerate(table.columns):
        drawn.add_column(column, justify="right" if number else "left")
    for row in table.rows:
        style = "bold red" if row[-1].endswith("missed") else None
        drawn.add_row(*row, style=style)
    console.print(drawn)


def as_markdown(tables: list[Table], command: str) -> str:
    """The tables, with the command that made them and where they were measured."""
    lines = [f"Made by `{command}` on {facts()}.", ""]
    for table in tables:
        lines += [f"### {table.title}", ""]
        lines += ["| " + " | ".join(table.columns) + " |", "|---" + "|---:" * (len(table.columns) - 1) + "|"]
        lines += ["| " + " | ".join(row) + " |" for row in table.rows] + [""]
    return "\n".join(lines).rstrip()
