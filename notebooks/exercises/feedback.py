"""A verdict in words: for a terminal (rich), for a notebook and for pytest, from the same lines."""

from __future__ import annotations

import base64
import html as escape
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.columns import Columns
from rich.console import Console, Group
from rich.panel import Panel
from rich.syntax import Syntax
from rich.text import Text

from notebooks.exercises.exercise import exercise
from notebooks.exercises.verdict import Status, Verdict

COLOURS = {Status.PASSED: "green", Status.FAILED: "red", Status.NOT_ATTEMPTED: "yellow"}


def lines(verdict: Verdict) -> Iterator[tuple[str, str]]:
    """(label, text) of everything except the verdict itself."""
    finding = verdict.finding
    if verdict.missing:
        yield "to write", verdict.missing
    if finding is not None:
        yield "did", finding.call
        yield "got", finding.got
        yield "expected", finding.expected
        yield "why", finding.cause
        for each in finding.seen:
            yield "", each
        if finding.trace:
            yield "run", f"python -m tracing step {short_path(finding.trace)} -o run.html"
            if finding.schedule != "0":
                yield "schedule", f"{finding.schedule}: not the usual one"
        if finding.picture:
            yield "timeline", short_path(finding.picture)
    if verdict.printed:
        yield "printed", "\n".join(verdict.printed)


def short_path(path: str | Path) -> str:
    """Relative to the current folder, if it is inside."""
    try:
        return str(Path(path).absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def title(verdict: Verdict) -> str:
    which = exercise(verdict.exercise)
    return f"{which.id} {which.title}: {verdict.status.value}"


def plain(verdict: Verdict) -> str:
    """As text."""
    shown = [f"  {label:<9} {text}".replace("\n", "\n" + " " * 12) for label, text in lines(verdict)]
    return "\n".join([title(verdict), *shown])


def in_one_line(verdict: Verdict) -> str:
    """What the learner is told, for a table."""
    finding = verdict.finding
    if finding is None:
        return f"to write: {verdict.missing}" if verdict.missing else ""
    return " ".join(f"{finding.call}: {finding.got}; expected: {finding.expected}. {finding.cause}".split())


def show(verdict: Verdict, path: Path, console: Console) -> None:
    """Print it in a terminal; after a pass, with the reference beside the answer."""
    console.print(Text(title(verdict), f"bold {COLOURS[verdict.status]}"), Text(f"({verdict.seconds:.1f} s)", "dim"))
    for label, text in lines(verdict):
        first, *rest = text.splitlines() or [""]
        console.print(Text(f"  {label:<9} ", "cyan"), Text(first), sep="", soft_wrap=True)
        for line in rest:
            console.print(Text(" " * 12 + line), soft_wrap=True)
    if verdict.missing:
        console.print(Text("  in        ", "cyan"), Text(short_path(path)), sep="", soft_wrap=True)
    if verdict.passed:
        console.print(beside(verdict, path, console.width))


def beside(verdict: Verdict, path: Path, width: int) -> Any:
    """The learner's version, and minidl's."""
    own = path.read_text(encoding="utf-8").partition('"""\n\n')[2] or path.read_text(encoding="utf-8")
    half = (width - 2) // 2 if width >= 120 else width  # beside each other, or one below the other
    panels = [
        Panel(Syntax(text.strip(), "python", word_wrap=True, background_color="default"), title=name, width=half)
        for name, text in (("yours", own), ("minidl's", verdict.reference))
    ]
    return Columns(panels) if half < width else Group(*panels)


class VerdictInNotebook(Verdict):
    """A verdict as the last value of a notebook's cell: with the timeline of the failing run."""

    def _repr_html_(self) -> str:
        style = f"color: {COLOURS[self.status]}; font-weight: bold"
        parts = [f"<p style='{style}'>{escape.escape(title(self))}</p>", "<table>"]
        for label, text in lines(self):
            shown = f"<pre style='white-space: pre-wrap; margin: 0'>{escape.escape(text)}</pre>"
            parts.append(
                f"<tr><td style='vertical-align: top'><b>{label}</b></td><td style='text-align: left'>{shown}</td></tr>"
            )
        parts.append("</table>")
        if self.finding is not None and self.finding.picture:
            data = base64.b64encode(Path(self.finding.picture).read_bytes()).decode()
            parts.append(f"<img alt='timeline of the failing run' src='data:image/png;base64,{data}'>")
        if self.passed:
            parts.append(f"<p>minidl's version:</p><pre>{escape.escape(self.reference)}</pre>")
        return "\n".join(parts)
