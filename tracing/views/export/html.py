"""A trace as one page, to send with a bug report: the verdict, how the loader was built, the timeline and a
step-through of the part that shows it best. By default it is made from a redacted copy of the trace."""

from __future__ import annotations

import base64
import io
import os
import tempfile
from html import escape
from pathlib import Path
from typing import Any

from tracing.analysis.hang.explain import explain
from tracing.analysis.report.report import Report, report
from tracing.trace.trace import Trace, load
from tracing.views.export import open_for_writing, redacted
from tracing.views.html_page import made
from tracing.views.step_through import step
from tracing.views.timeline import timeline

DOTS = 150  # of the timeline, per inch
AROUND = 0.5  # s shown before and after the part that the report points at
MOST_EVENTS, STEPS = 2_000, 1_500_000  # of the step-through, and its bytes


def write(trace: Trace, path: str | os.PathLike[str], content: bool = False) -> None:
    """Write the page, at most 2 MB, into the file `path`, which is replaced. content: with what the samples' keys and
    errors say, and with the user's paths. Raises ValueError if the trace has no events, OSError."""
    with open_for_writing(path) as file:
        file.write(page(trace, content))


def page(trace: Trace, content: bool = False) -> str:
    if content:
        return _page(trace)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "trace")
        redacted.copy(trace.path, copy)
        return _page(load(copy)).replace(escape(f"{folder}/"), "")


def _page(trace: Trace) -> str:
    found, hang = report(trace), explain(trace)
    start, end, loader = _part(trace, found)
    pieces = {
        "title": escape(f"{trace.path.name}: {found.loaders[0].verdict_line if found.loaders else 'no loader'}"),
        "verdict": escape(str(hang) if hang else "\n".join(found.first_lines())),
        "report": escape(str(found)),
        "about": _table(_about(trace)),
        "options": "".join(_table(each) for each in _options(trace)),
        "timeline": _picture(trace, start, end, loader),
        "steps": _steps(trace, end - AROUND / 10 if found.notes else (start + end) / 2),
    }
    return made(__package__, (), pieces)


def _steps(trace: Trace, at: float) -> str:
    """As many events as there is room for: the keys of large batches take much."""
    most = MOST_EVENTS
    while len((shown := step(trace, at=at, most=most)._repr_html_()).encode()) > STEPS and most > 1:
        most //= 2
    return shown


def _part(trace: Trace, found: Report) -> tuple[float, float, int | None]:
    """What the report points at, or the end of a run that did not finish: seconds after the first event, and the number
    of the loader."""
    first, whole = next(iter(found.loaders), None), trace.duration / 1e9
    if first is None or first.look is None or first.hung or first.ended_early:
        latest = max(trace.index.iterators, key=lambda each: each.last(len(trace)), default=None)
        return whole - 2 * AROUND, whole, latest.loader if latest else None
    begin, end = (ns / 1e9 for ns in found.at(first.look))
    return begin - AROUND, end + AROUND, int(trace.events["loader"][first.look[1]])


def _picture(trace: Trace, start: float, end: float, loader: int | None) -> str:
    file = io.BytesIO()
    timeline(trace, start=max(0.0, start), end=end, loader=loader).savefig(file, format="png", dpi=DOTS)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def _about(trace: Trace) -> dict[str, Any]:
    about = trace.about
    versions = {name: about.get(name, "not recorded") for name in ("python", "torch", "system")}
    ranked = {"rank": f"{about['rank']} of {about.get('world_size')}"} if about.get("rank") is not None else {}
    return ranked | {"cores": about.get("cpus"), "events": f"{len(trace):,}"} | versions


def _options(trace: Trace) -> list[dict[str, Any]]:
    """Each loader's, once, however often it was iterated."""
    of = {each.loader: each.config for each in trace.loaders}
    return [{"loader": loader} | {k: v for k, v in config.items() if v is not None} for loader, config in of.items()]


def _table(rows: dict[str, Any]) -> str:
    cells = (f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>" for name, value in rows.items())
    return f"<table>{''.join(cells)}</table>"
