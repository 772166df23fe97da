"""A verdict in words: for a terminal (rich), and for a notebook, from the same lines."""

from __future__ import annotations

import base64
import html as escape
import inspect
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.columns import Columns
from rich.console import Console, Group
from rich.panel import Panel
from rich.syntax import Syntax
from rich.text import Text

from minidl.world.simulated.schedule import parse
from notebooks.exercises.exercise import Exercise, Finding, exercise, find
from notebooks.exercises.verdict import PRINTED, Status, Verdict

MOVES = 5  # of a schedule that are shown
LOOKS = {Status.PASSED: "bold green", Status.FAILED: "bold red", Status.NOT_ATTEMPTED: "bold yellow"}


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
        yield from _run(finding)
    if verdict.printed:
        shown = verdict.printed[:PRINTED]
        more = ["..."] if len(verdict.printed) > PRINTED else []
        yield "printed", "\n".join([*shown, *more])


def _run(finding: Finding) -> Iterator[tuple[str, str]]:
    broken = finding.broken
    if broken is None:
        return
    yield "rule", broken.rule if broken.sentence == finding.expected else f"{broken.rule}: {broken.sentence}"
    if broken.breach.what != finding.got:
        yield "broken", broken.breach.what
    if broken.waits:
        yield "waits", broken.waits
    if broken.trace is not None:
        yield "run", f"python -m tracing step {short_path(broken.trace)} -o run.html"
        if broken.token != "0":
            moves = [move.words for move in parse(broken.token).moves]
            others = [f"and {len(moves) - MOVES} more"] if len(moves) > MOVES else []
            yield "unusual", f"{'; '.join([*moves[:MOVES], *others])} (schedule {broken.token})"
    if broken.picture is not None:
        yield "timeline", short_path(broken.picture)


def short_path(path: Path) -> str:
    """Relative to the current folder, if it is inside."""
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def title(verdict: Verdict) -> str:
    which = exercise(verdict.exercise)
    return f"{which.id} {which.title}: {verdict.status.value}"


def show(verdict: Verdict, path: Path, console: Console) -> None:
    """Print it in a terminal; after a pass, with the reference beside the answer."""
    console.print(Text(title(verdict), LOOKS[verdict.status]), Text(f"({verdict.seconds:.1f} s)", "dim"))
    for what, text in lines(verdict):
        first, *rest = text.splitlines() or [""]
        console.print(Text(f"  {what:<9} ", "cyan"), Text(first), sep="", soft_wrap=True)
        for line in rest:
            console.print(Text(" " * 12 + line), soft_wrap=True)
    if verdict.passed:
        console.print(beside(exercise(verdict.exercise), path, console.width))


def beside(which: Exercise, path: Path, width: int) -> Any:
    """The learner's version, and minidl's."""
    own = path.read_text(encoding="utf-8").partition('"""\n\n')[2] or path.read_text(encoding="utf-8")
    half = (width - 2) // 2 if width >= 120 else width  # beside each other, or one below the other
    panels = [
        Panel(Syntax(text.strip(), "python", word_wrap=True, background_color="default"), title=name, width=half)
        for name, text in (("yours", own), ("minidl's", reference(which)))
    ]
    return Columns(panels) if half < width else Group(*panels)


def reference(which: Exercise) -> str:
    """The source of what the exercise asks for."""
    if which.text is not None:
        return which.text(True)
    texts = []
    for each in which.references:
        function = find(each)[2]
        name = each.partition(":")[0].replace(".", "/")
        texts.append(f"# {name}.py\n{textwrap.dedent(inspect.getsource(function))}")
    return "\n".join(texts)


def html(verdict: Verdict) -> str:
    """For a notebook: with the timeline of the failing run."""
    colour = {Status.PASSED: "#137333", Status.FAILED: "#c02020", Status.NOT_ATTEMPTED: "#8a6d00"}[verdict.status]
    parts = [f"<p style='color: {colour}; font-weight: bold'>{escape.escape(title(verdict))}</p>", "<table>"]
    for what, text in lines(verdict):
        shown = escape.escape(text)
        parts.append(
            f"<tr><td style='vertical-align: top'><b>{what}</b></td>"
            f"<td style='text-align: left'><pre style='white-space: pre-wrap; margin: 0'>{shown}</pre></td></tr>"
        )
    parts.append("</table>")
    broken = verdict.finding.broken if verdict.finding is not None else None
    if broken is not None and broken.picture is not None and broken.picture.exists():
        data = base64.b64encode(broken.picture.read_bytes()).decode()
        parts.append(f"<img alt='timeline of the failing run' src='data:image/png;base64,{data}'>")
    if verdict.passed:
        parts.append(f"<p>minidl's version:</p><pre>{escape.escape(reference(exercise(verdict.exercise)))}</pre>")
    return "\n".join(parts)


class VerdictInNotebook(Verdict):
    """A verdict as the last value of a notebook's cell."""

    def _repr_html_(self) -> str:
        return html(self)
