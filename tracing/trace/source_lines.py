"""Which line of minidl emits which kind of event. Each kind is emitted from one line, so the line is not recorded
with every event: it is looked up in the installed package's source when a view shows the event.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from minidl import events
from minidl.events import Kind


class Site(NamedTuple):
    """A call of `emit` in minidl's source."""

    file: str  # relative to the folder that the package is in: "minidl/queues.py"
    line: int  # of the call, counted from 1
    function: str  # qualified name: "Queue.put"
    first: int  # the first line of that function ...
    last: int  # ... and its last


@functools.cache
def emit_sites() -> dict[str, list[Site]]:
    """The name of each kind -> the calls `emit(KIND, ...)` in minidl, in the order of file and line."""
    package = Path(events.__file__).parent
    sites: dict[str, list[Site]] = {}
    for path in sorted(package.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if "emit(" in source:
            file = path.relative_to(package.parent).as_posix()
            for kind, found in sites_in(source, file).items():
                sites.setdefault(kind, []).extend(found)
    return sites


def sites_in(source: str, file: str) -> dict[str, list[Site]]:
    """The same for the text of one file. SyntaxError: not Python."""
    sites: dict[str, list[Site]] = {}
    for name, function in _functions(ast.parse(source), ""):
        calls = [node for node in ast.walk(function) if isinstance(node, ast.Call) and _name(node.func) == "emit"]
        for call in calls:
            site = Site(file, call.lineno, name, function.lineno, function.end_lineno or 0)
            for kind in map(_name, ast.walk(call.args[0])):  # walked: `emit(A if x else B)` is a site of both
                if kind in Kind.__members__:
                    sites.setdefault(kind, []).append(site)
    return sites


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    """The functions under `node`, with their qualified names; not those within another function."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef):
            yield prefix + child.name, child
        else:
            yield from _functions(child, f"{prefix}{child.name}." if isinstance(child, ast.ClassDef) else prefix)


def _name(node: ast.AST) -> str:
    """`emit` of `emit` and of `events.emit`."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
