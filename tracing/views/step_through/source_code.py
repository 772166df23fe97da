"""The lines of minidl's source that emitted the events, each with the function around it, coloured for the page.

Legend
    site        3    a line that emits: its index in `sites`; -1 if there is no source
    function    2    a function: its index in `functions`, where its text is kept once
"""

from __future__ import annotations

import functools
import itertools
from html import escape
from pathlib import Path
from typing import Any

from pygments.lexers.python import PythonLexer
from pygments.token import Comment, Keyword, Operator, String

from minidl import events
from minidl.events import Kind, Queue
from tracing.trace.source_lines import Site, emit_sites, sites_in

TAGS = {Keyword: "b", Operator.Word: "b", Comment: "i", String: "u"}  # what page.css colours
IN_ONE_PROCESS = "ThreadQueue."  # data_queue, which has no pipe, has lines of its own


class EmittingLines:
    """Finds the line that emitted an event, and keeps the functions that are needed."""

    def __init__(self, replaced: dict[str, Any] | None = None) -> None:
        # of a simulated run: the file whose functions were at work in place of minidl's of the same names
        self.file, self.text = (replaced[name] if replaced else "" for name in ("file", "text"))
        self.functions_of_file = set(replaced["functions"]) if replaced else set()
        self.sites: list[list[int]] = []  # [function, line]
        self.functions: list[dict[str, Any]] = []
        self._sites: dict[tuple[Kind, bool], int] = {}
        self._functions: dict[tuple[str, int], int] = {}

    def site(self, kind: Kind, queue: int) -> int:
        key = kind, queue == Queue.DATA
        if key not in self._sites:
            self._sites[key] = self._find(*key)
        return self._sites[key]

    def _find(self, kind: Kind, in_one_process: bool) -> int:
        """The line in the installed minidl: only its source can be shown."""
        sites = emit_sites().get(kind.name, [])
        of_queue = [site for site in sites if site.function.startswith(IN_ONE_PROCESS) == in_one_process]
        site = next(iter(of_queue or sites), None)
        if site is None:
            return -1
        if site.function in self.functions_of_file:  # unless what emitted this was not one of them
            site = next(iter(sites_in(self.text, self.file).get(kind.name, [])), site)
        self.sites.append([self._function(site), site.line])
        return len(self.sites) - 1

    def _function(self, site: Site) -> int:
        key = site.file, site.first
        if key not in self._functions:
            self._functions[key] = len(self.functions)
            about = {"file": site.file, "name": site.function, "first": site.first}
            text = self.text if site.file == self.file else text_of(site.file)
            self.functions.append({**about, "lines": coloured(text)[site.first - 1 : site.last]})
        return self._functions[key]


@functools.cache
def text_of(file: str) -> str:
    """A file of the installed minidl."""
    return (Path(events.__file__).parents[1] / file).read_text(encoding="utf-8")


@functools.cache
def coloured(source: str) -> list[str]:
    """A file's lines as HTML: <b> around keywords, <i> around comments, <u> around strings."""
    tokens = PythonLexer(stripnl=False).get_tokens(source)
    html = ""
    for tag, run in itertools.groupby(tokens, key=lambda token: _tag(token[0])):
        text = escape("".join(text for _, text in run), quote=False)
        html += "\n".join(f"<{tag}>{line}</{tag}>" for line in text.split("\n")) if tag else text
    return html.split("\n")


def _tag(token: tuple[str, ...]) -> str:
    return next((tag for kind, tag in TAGS.items() if token in kind), "")
