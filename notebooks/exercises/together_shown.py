"""What `together` shows: one picture with both timelines on one scale of time, and one table."""

from __future__ import annotations

import textwrap
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import imsave
from rich.table import Table

import tracing
from notebooks.exercises.together import Load, chosen
from notebooks.exercises.together_load import MAIN, NOT_HERE, WORKER, rewritten
from tracing.analysis.measure.measures import measure
from tracing.analysis.report.verdicts import judge
from tracing.trace.thread_activity import MainTime
from tracing.trace.trace import Trace
from tracing.trace.words import duration
from tracing.views.timeline.figure import RULER

WIDTH = 9.0  # inches
LETTERS = 105  # of the title's lines
CAPTION = "(…): a function that this load did not call. What is not yours comes from minidl."
AWAITED = {"made": "to be made", "moved": "to be moved"}
RAN = {0: "–", MAIN: "main", WORKER: "workers", MAIN | WORKER: "main, workers"}


def whose(load: Load, answers: Path) -> dict[str, str]:
    """For each exercise whose functions can be at work: "yours", or "minidl's", with the reason if the learner's could
    not be put to work."""
    at_work = chosen(answers)
    found = {}
    for each in rewritten():
        why = load.refused.get(each.id, "")
        if each.id not in NOT_HERE:
            found[each.id] = "yours" if each.id in at_work and not why else f"minidl's{f' ({why})' if why else ''}"
    return found


def same(ours: Load, torchs: Load) -> str:
    """Whether the batches are the same, in words that begin with yes or no."""
    pairs = list(zip(ours.digests, torchs.digests, strict=False))
    first = next((k for k, (one, other) in enumerate(pairs) if one != other), None)
    if first is not None:
        return f"no: they differ from batch {first} on"
    if len(ours.digests) != len(torchs.digests):
        return f"no: {len(ours.digests)} and {len(torchs.digests)}, of which the first {len(pairs)} are the same"
    return f"yes, all {len(pairs)}"


# ---- the table


def table(ours: Load, torchs: Load, answers: Path) -> Table:
    found = Table(box=None, pad_edge=False, header_style="bold", caption=CAPTION, caption_justify="left")
    for name in ("exercise", "its functions", "whose", "ran in"):
        found.add_column(name, overflow="fold", min_width=15)
    owners = whose(ours, answers)
    for each in rewritten():
        owner = owners.get(each.id, "not in this load")  # its functions are those of other exercises, too
        places = {name: ours.ran.get(name, 0) if each.id in owners else 0 for name in each.references}
        short = {name: name.rpartition(":")[2].rpartition(".")[2] for name in places}
        names = ", ".join(short[name] if place else f"({short[name]})" for name, place in places.items())
        ran = RAN[int(np.bitwise_or.reduce(list(places.values())))]
        title = f"{each.id} {each.name.replace('_', ' ')}"
        found.add_row(title, names, owner, ran, style="" if owner == "yours" else "dim")
    found.add_section()
    found.add_row("", "", _ours(owners), "torch's loader", style="bold")
    for row in rows(ours, torchs):
        found.add_row(*row)
    found.add_row("same batches", "", same(ours, torchs))
    return found


def _ours(owners: dict[str, str]) -> str:
    mine = sum(owner == "yours" for owner in owners.values())
    return f"minidl's loader, {mine} of {len(owners)} exercises yours"


def rows(ours: Load, torchs: Load) -> list[tuple[str, str, str, str]]:
    """(what, more of it, of minidl's loader, of torch's)."""
    one, other = (_numbers(tracing.load(each.trace)) for each in (ours, torchs))
    return [(*name, one[name], other[name]) for name in one]


def _numbers(trace: Trace) -> dict[tuple[str, str], str]:
    measures = measure(trace)[0]
    yielded = measures.tasks["yielded"][measures.tasks["yielded"] >= 0]
    spent, total = measures.spent, measures.total
    found = {
        ("batches", ""): f"{len(yielded)}",
        ("batches a second", ""): f"{len(yielded) * 1e9 / total:.1f}",
        ("first batch", "after"): duration(int(yielded.min()) - trace.start),
    }
    times = {"start-up": spent[MainTime.STARTUP], "waiting": spent[MainTime.WAITING]}
    found |= {("main", name): f"{duration(ns)}, {ns / total:.0%}" for name, ns in times.items()}
    for name, words in AWAITED.items():
        begin, end = measures.awaited[name]
        found["waited for batches", words] = duration(int((end - begin).sum()))
    found["main", "training"] = f"{duration(spent[MainTime.TRAINING])}, {spent[MainTime.TRAINING] / total:.0%}"
    found["verdict", ""] = judge(measures).verdict.value
    return found


# ---- the picture


def title(ours: Load, torchs: Load, answers: Path) -> str:
    owners = whose(ours, answers)
    yours = [number for number, owner in owners.items() if owner == "yours"]
    others = [number for number in owners if number not in yours]
    words = f"Yours: {', '.join(yours) or 'nothing yet'}"
    words += f"; from minidl: {', '.join(others)}" if others else ""
    return f"{words}. The same batches as torch's: {same(ours, torchs)}."


def save_picture(ours: Load, torchs: Load, answers: Path, path: Path) -> None:
    """Both timelines, as `python -m tracing timeline` draws them, one above the other: as wide, and from 0 to the same
    second."""
    traces = [tracing.load(each.trace) for each in (ours, torchs)]
    end = max(trace.duration for trace in traces) / 1e9
    parts = [_heading(title(ours, torchs, answers), 10.0)]
    for trace, name in zip(traces, (_ours(whose(ours, answers)), "torch's loader"), strict=True):
        figure = tracing.timeline(trace, start=0.0, end=end, follow=False, width=WIDTH)
        words = f"{name}: {len(trace.tasks)} batches in {duration(trace.duration)}"
        # Its own title speaks of the window, which of one of them is longer than the run.
        titled = (1 - figure.axes[0].get_position().y1) * figure.bbox.height - RULER * figure.dpi
        parts += [_heading(words, 11.0, "#1f4e79"), _pixels(figure)[round(titled) :]]
    imsave(path, np.vstack(parts))


def _heading(text: str, size: float, colour: str = "black") -> np.ndarray:
    lines = textwrap.wrap(text, LETTERS)
    figure = Figure(figsize=(WIDTH, 0.16 + 0.18 * len(lines)), dpi=200)
    figure.text(0.12 / WIDTH, 0.5, "\n".join(lines), size=size, weight="bold", va="center", color=colour)
    return _pixels(figure)


def _pixels(figure: Figure) -> np.ndarray:
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())
