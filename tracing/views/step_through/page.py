"""The page: which events it shows, and all that it needs in one file.

page.html   the skeleton          page.js       goes to an event, filters, shows its words and its line of source
page.css    the looks             board.js      draws one state
                                  controls.js   play, the slider, buttons and keys
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from tracing.trace.event_index import Lane
from tracing.trace.state_after_event import LABELS, states
from tracing.trace.trace import Trace
from tracing.views.html_page import COLOURS, as_data, made
from tracing.views.step_through.event_columns import EventColumns
from tracing.views.step_through.state_changes import StateChanges

MOST = 8_000  # events of one page: about 1 MB, wherever in a trace they are
AROUND = 2_000  # events of a page about one moment
SCRIPTS = ("board.js", "page.js", "controls.js")


@dataclass(frozen=True)
class Excerpt:
    """The events that are shown: positions in `trace.events`."""

    first: int
    last: int
    at: int  # the one to begin with
    note: str = ""  # one line that says which events these are, and how to get others; "" if all are shown


def choose(
    trace: Trace,
    *,
    start: float | None = None,
    end: float | None = None,
    at: float | None = None,
    batches: tuple[int, int] | None = None,
    epoch: int | None = None,
    loader: int | None = None,
    most: int | None = MOST,
) -> Excerpt:
    """The events that satisfy all of these.

    start, end: seconds after the first event.
    batches: (10, 30) is from the first event of batches 10 to 29 to the last. epoch, loader: from its first event to
    its last. at: a moment, in seconds after the first event; events around it are shown. most: at most this many, the
    first ones; None for all.

    Raises ValueError if there are none.
    """
    length = len(trace)
    if length == 0:
        raise ValueError("nothing to step through: the trace has no events")
    if most is not None and most < 1:
        raise ValueError(f"nothing to step through: at most {most} events")
    begin, until = 0, length - 1
    time = trace.events["time"]
    if start is not None:
        begin = max(begin, int(time.searchsorted(trace.start + round(start * 1e9), "left")))
    if end is not None:
        until = min(until, int(time.searchsorted(trace.start + round(end * 1e9), "right")) - 1)
    if batches is not None or epoch is not None or loader is not None:  # and all events in between
        found = np.flatnonzero(_concerns(trace, batches, epoch, loader))
        begin, until = (max(begin, int(found[0])), min(until, int(found[-1]))) if len(found) else (length, 0)
    if begin > until:
        raise ValueError(f"nothing to step through: none of the trace's {length:,} events is in this part")
    k = begin
    if at is not None:
        k = min(max(begin, int(time.searchsorted(trace.start + round(at * 1e9), "right")) - 1), until)
        most = None if most is None else min(most, AROUND)
    shown = until + 1 - begin if most is None else min(most, until + 1 - begin)
    first = min(max(begin, k - shown // 2), until + 1 - shown)
    last, asked = first + shown - 1, until + 1 - begin
    return Excerpt(first, last, k, _note(trace, first, last, asked))


def _concerns(trace: Trace, batches: tuple[int, int] | None, epoch: int | None, loader: int | None) -> np.ndarray:
    events = trace.events
    found = np.ones(len(events), bool)
    if loader is not None:
        found &= events["loader"] == loader
    if epoch is not None or batches is not None:
        found &= events["epoch"] == (epoch or 0)
    if batches is not None:
        found &= (events["task"] >= batches[0]) & (events["task"] < batches[1])
    return found


def _note(trace: Trace, first: int, last: int, asked: int) -> str:
    """`asked`: how many events were asked for."""
    if last + 1 - first == len(trace):
        return ""
    since, until = ((int(trace.events["time"][k]) - trace.start) / 1e9 for k in (first, last))
    note = f"A part of a run: events {first:,} to {last:,} of {len(trace):,}, from {since:.3f} to {until:.3f} s."
    if more := asked - (last + 1 - first):
        note += f" {more:,} more would be slow. To go on: --at {until:.3f}."
    return note


def render(trace: Trace, excerpt: Excerpt, title: str) -> str:
    """The page as HTML."""
    return page(title, as_data(content(trace, excerpt)))


def page(title: str, data: str) -> str:
    """The page as HTML. data: JSON of what `content` returns."""
    return made(__package__, SCRIPTS, {"title": escape(title), "data": data})


def content(trace: Trace, excerpt: Excerpt) -> dict[str, Any]:
    """What the page shows, for its scripts."""
    columns, changes = EventColumns(trace, excerpt.first, excerpt.last), StateChanges(trace)
    for state in states(trace, excerpt.first, excerpt.last):
        changes.add(state)
    return {
        "first": excerpt.first,
        "at": excerpt.at,
        "note": excerpt.note,
        "events": columns.as_json(),
        "names": columns.names,
        "pids": [actor.pid for actor in trace.actors],
        "threads": [actor.thread for actor in trace.actors],
        "marks": columns.marks(),
        "kinds": columns.kinds(),
        "iterators": iterators(trace),
        "labels": {str(task): name for task, name in LABELS.items()},
        "colours": COLOURS,
        "changes": changes.as_json(),
        "sites": columns.code.sites,
        "functions": columns.code.functions,
    }


def iterators(trace: Trace) -> list[dict[str, Any]]:
    """What the page needs to know of each iterator before it shows one."""
    found = []
    for number, each in enumerate(trace.loaders):
        pinned = len(trace.index.lane(number, Lane.PIN)) > 0
        package = each.config.get("package", "minidl")
        epochs = f"epoch {each.epochs[0]}" + (f" to {each.epochs[-1]}" if len(each.epochs) > 1 else "")
        found.append({"name": f"loader {each.loader}, {epochs}", "pinned": pinned, "package": package})
    return found
