"""The lines of minidl's source that emitted the events, each inside its whole function, ready to be shown.

Legend
    site        3        one line that emits; 0 to len(sites) - 1, -1 where there is no source
    function    2        one function, whose text is stored once, however many of its lines emit
"""

from __future__ import annotations

import functools
import importlib.util
import io
import keyword
import token
import tokenize
from collections import defaultdict
from html import escape
from pathlib import Path
from typing import Any

from minidl.events import Kind, Queue
from tracing.recording.source_lines import Site, emit_sites

IN_ONE_PROCESS = "ThreadQueue."  # data_queue, the one queue without a pipe, has lines of its own


class Code:
    """Finds the line of an event, and keeps the functions that are needed."""

    def __init__(self, recorded: dict[str, list[dict[str, Any]]]) -> None:
        self.recorded = recorded  # trace.sources
        self.sites: list[list[Any]] = []  # [function, line, whether it has moved since the trace was recorded]
        self.functions: list[dict[str, Any]] = []
        self._sites: dict[tuple[Kind, bool], int] = {}
        self._functions: dict[tuple[str, int], int] = {}

    def site(self, kind: Kind, queue: int) -> int:
        key = kind, queue == Queue.DATA
        if key not in self._sites:
            self._sites[key] = self._find(*key)
        return self._sites[key]

    def _find(self, kind: Kind, in_one_process: bool) -> int:
        """The line in the minidl that is installed: its source is the one that can be shown."""
        sites = emit_sites().get(kind.name, [])
        of_queue = [site for site in sites if site.function.startswith(IN_ONE_PROCESS) == in_one_process]
        for site in of_queue or sites:
            if _says(site, kind):
                recorded = [(each["file"], each["line"]) for each in self.recorded.get(kind.name, [site._asdict()])]
                self.sites.append([self._function(site), site.line, (site.file, site.line) not in recorded])
                return len(self.sites) - 1
        return -1

    def _function(self, site: Site) -> int:
        key = site.file, site.first
        if key not in self._functions:
            self._functions[key] = len(self.functions)
            about = {"file": site.file, "name": site.function, "first": site.first}
            self.functions.append({**about, "lines": coloured(site.file)[site.first - 1 : site.last]})
        return self._functions[key]


def _says(site: Site, kind: Kind) -> bool:
    """Whether that line emits that kind: the sites were looked up when this process began to record, and somebody
    may have edited the file since."""
    lines = text_of(site.file).splitlines()[site.line - 1 : site.line + 2]
    return bool(lines) and "emit(" in lines[0] and any(kind.name in line for line in lines)


@functools.cache
def text_of(file: str) -> str:
    """A file of the installed minidl, "" if it is not there."""
    spec = importlib.util.find_spec("minidl")
    folders = spec.submodule_search_locations if spec else None
    path = Path(folders[0]).parent / file if folders else Path(file)
    return path.read_text(encoding="utf-8") if folders and path.is_file() else ""


@functools.cache
def coloured(file: str) -> list[str]:
    """Its lines as HTML: <b> around keywords, <i> around comments, <u> around strings."""
    lines = text_of(file).splitlines()
    spans: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
    for found in tokenize.generate_tokens(io.StringIO(text_of(file)).readline):
        tag = _tag(found)
        (row, begin), (last, end) = found.start, found.end
        for line in range(row, last + 1) if tag else ():
            spans[line].append((begin if line == row else 0, end if line == last else len(lines[line - 1]), tag))
    return [_marked(line, spans[number]) for number, line in enumerate(lines, start=1)]


STRINGS = {token.STRING, *(getattr(token, f"FSTRING_{part}", token.STRING) for part in ("START", "MIDDLE", "END"))}


def _tag(found: tokenize.TokenInfo) -> str:
    if found.type == token.NAME and keyword.iskeyword(found.string):
        return "b"
    return {tokenize.COMMENT: "i"}.get(found.type, "u" if found.type in STRINGS else "")


def _marked(line: str, spans: list[tuple[int, int, str]]) -> str:
    parts: list[str] = []
    at = 0
    for begin, end, tag in spans:
        begin = max(begin, at)  # Python 3.12 counts the columns of an f-string with {{ wrong
        parts += escape(line[at:begin], quote=False), f"<{tag}>", escape(line[begin:end], quote=False), f"</{tag}>"
        at = end
    return "".join([*parts, escape(line[at:], quote=False)])
