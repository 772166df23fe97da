"""A trace as lines of JSON, for other programs: a header, then one event per line. docs/exports.md lists every field.

SCHEMA and VERSION are in the header. A field may be added without a new version; when one is removed or means
something else, VERSION goes up.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from typing import Any

from minidl.events import CLOCKED, Kind, Queue
from tracing.trace.event_words import thread_name
from tracing.trace.source_lines import emit_sites
from tracing.trace.state_after_event import LABELS
from tracing.trace.trace import Trace
from tracing.views.export import open_for_writing

SCHEMA, VERSION = "minidl.tracing.events", 1
CHUNK = 1 << 13  # events that are held as Python objects at a time

# The fields of an event. None of them is ever left out.
FIELDS = ("k", "time", "kind", "loader", "epoch", "task", "worker", "queue", "value", "actor", "who", "text")


def write(trace: Trace, path: str | os.PathLike[str]) -> None:
    """Write `trace` into the file `path`, which is replaced; compressed if its name ends in `.gz`. A growing trace is
    written as far as it was read. Raises OSError when the file cannot be written."""
    encode = json.JSONEncoder(separators=(",", ":")).encode
    with open_for_writing(path) as file:
        file.write(encode(header(trace)) + "\n")
        for event in lines(trace):
            file.write(encode(event) + "\n")


def header(trace: Trace) -> dict[str, Any]:
    """The first line."""
    loaders = trace.loaders
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "package": next((each.config["package"] for each in loaders if "package" in each.config), None),
        "clock": "time.monotonic_ns",
        "start": trace.start,
        "wall_clock": trace.start + trace.about.get("wall_clock", 0) - trace.about.get("monotonic", 0),
        "events": len(trace),
        "complete": trace.complete,
        "dropped": trace.dropped,
        "clocked": CLOCKED,
        "kinds": {kind.name: kind.value for kind in Kind},
        "messages": {str(task): name for task, name in LABELS.items()},
        "actors": [vars(actor) for actor in trace.actors],
        "loaders": [vars(loader) for loader in loaders],
        "sources": {kind: [site._asdict() for site in sites] for kind, sites in emit_sites().items()},
    }


def lines(trace: Trace) -> Iterator[dict[str, Any]]:
    """The other lines, one per event; their fields are those of FIELDS."""
    kinds = {kind.value: kind.name for kind in Kind}
    queues = {queue.value: queue.name if queue else None for queue in Queue}
    who = ["feeder" if actor.role == "feeder" else thread_name(actor) for actor in trace.actors]
    events = trace.events
    for start in range(0, len(events), CHUNK):
        part = events[start : start + CHUNK]
        columns: dict[str, Iterable[Any]] = {name: part[name].tolist() for name in set(FIELDS) - {"k", "who"}}
        columns["k"] = range(start, start + len(part))
        columns["who"] = [who[actor] for actor in columns["actor"]]
        columns["kind"] = [kinds[kind] for kind in columns["kind"]]
        columns["queue"] = [queues[queue] for queue in columns["queue"]]
        columns["text"] = [trace.text(k) if text else None for k, text in enumerate(columns["text"], start)]
        for row in zip(*(columns[name] for name in FIELDS), strict=True):
            yield dict(zip(FIELDS, row, strict=True))
