"""The lines that a process's threads were in: `trace.stacks`.

tracing.recording.watch looks when a process has run for an eighth of a second, whenever it has run for a quarter
longer, and from 2 s on every half second: once a second where a look is slow.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from tracing.recording import file_format as fmt
from tracing.recording.loader_text import LIBRARY

MAIN = "MainThread"  # the name that Python gives the main thread


class Line(NamedTuple):
    """A line of Python that was being executed."""

    file: str
    line: int  # counted from 1
    function: str  # qualified name from Python 3.11 on: "Images.__getitem__"
    source: str  # its text; "" if there is none

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line}, {self.function}" + f": {self.source}" * bool(self.source)


@dataclass(frozen=True)
class Stack:
    """The threads of a process at one moment."""

    time: int  # ns, the clock of the events
    pid: int
    threads: dict[str, list[Line]]  # name -> the lines it was in, innermost first; the main thread is the first
    cpu: dict[str, int] = field(default_factory=dict)  # name -> ns of a core that it had used

    def own_line(self, thread: str | None = None) -> Line | None:
        """The innermost line of the program's own code that a thread is in, by default the main thread; None if it is
        in none: a thread of the loader, a prompt."""
        return next(iter(self.own_lines(thread)), None)

    def own_lines(self, thread: str | None = None) -> list[Line]:
        """All of these, from the innermost to the outermost."""
        lines = itertools.takewhile(_is_of_process, self.lines(thread))
        # (A dataclass's own `__init__`, say, is in no file.)
        return [line for line in lines if not LIBRARY.search(line.file)]

    def with_first(self, names: set[str]) -> Stack:
        """The same, with a thread of these names first, if there is one."""
        first = {name: lines for name, lines in self.threads.items() if name in names}
        return replace(self, threads=first | self.threads)

    def together(self) -> Stack:
        """The program's own lines of all threads, as if they were of one."""
        lines = [line for name in self.threads for line in self.own_lines(name)]
        return replace(self, threads={MAIN: lines})

    def line(self, thread: str | None = None) -> Line | None:
        """The same; if it is in none, the innermost line of all."""
        return self.own_line(thread) or next(iter(self.lines(thread)), None)

    def called_by(self, line: Line) -> str:
        """The function that the main thread called on this line: "ZipFile.__init__"; "" if it called none."""
        called = [each.function for each in itertools.takewhile(lambda each: each != line, self.lines())]
        return called[-1] if called else ""

    def lines(self, thread: str | None = None) -> list[Line]:
        """All that a thread is in, from the innermost to the outermost."""
        return next(iter(self.threads.values()), []) if thread is None else self.threads.get(thread, [])


def _is_of_process(line: Line) -> bool:
    """Below the first line of a forked process is what its parent was doing at the fork."""
    return not (line.function.endswith("_bootstrap") and line.file.endswith("multiprocessing/process.py"))


def read(directory: Path) -> list[Stack]:
    """The stacks of all processes so far, in time order; empty if the trace has none."""
    found = []
    for path in map(fmt.stacks_file, fmt.events_files(directory)):
        with contextlib.suppress(OSError, ValueError):  # half a line at the end
            for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
                entry = json.loads(text)
                threads, cpu = dict[str, list[Line]](), dict[str, int]()
                for each in entry["threads"]:  # several may have one name
                    name = f"{each['name']} ({len(threads)})" if each["name"] in threads else each["name"]
                    threads[name], cpu[name] = [Line(*line) for line in each["frames"]], each["cpu"]
                found.append(Stack(entry["time"], entry["pid"], threads, cpu))
    return sorted(found, key=lambda each: each.time)
