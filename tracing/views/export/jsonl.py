"""A trace as lines of JSON, for other programs: a header, then one event per line. docs/exports.md lists every field.

SCHEMA and VERSION are in the header. A field may be added without a new version; when one is removed or means
something else, VERSION goes up.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Iterator
from typing import IO, TYPE_CHECKING, Any

from minidl.events import CLOCKED, Kind, Queue
from tracing.trace.event_words import thread_name
from tracing.trace.state_after_event import LABELS
from tracing.views.export import open_for_writing

if TYPE_CHECKING:
    from tracing.trace.trace import Trace

SCHEMA, VERSION = "minidl.tracing.events", 1
CHUNK = 1 << 13  # events that are held as Python objects at a time

# Field of an event -> what it is. None of them is ever left out.
FIELDS = {
    "k": "position of the event in the trace, from 0",
    "time": "ns, on the header's `clock`",
    "kind": "what happened: a name from docs/events.md, such as `FETCH_BEGIN`",
    "loader": "number of the DataLoader",
    "epoch": "of that loader, from 0",
    "task": "the batch, from 0 in every epoch; negative for none, or a message without one (the header's `messages`)",
    "worker": "worker_id, -1 for none",
    "queue": "`INDEX`, `RESULT`, `DATA`, or null",
    "value": "an integer; docs/events.md has its meaning for this kind",
    "actor": "the thread that emitted it: an index into the header's `actors`",
    "who": "that thread in words: `main`, `worker 0`, `pin thread`, `feeder`",
    "text": "keys, an error or the like; docs/events.md has its meaning for this kind: any JSON, null for none",
}
# Field of the header -> what it is.
HEADER = {
    "schema": f"always `{SCHEMA}`",
    "version": "the version of this schema",
    "package": "whose loader it is: `minidl`, `torch.utils.data`, or null",
    "clock": "`time.monotonic_ns`: ns, the same for all processes",
    "start": "time of the first event (ns)",
    "wall_clock": "the time of day then (ns since 1970, UTC)",
    "events": "how many lines follow",
    "complete": "how many events, from the first, have none missing among them",
    "dropped": "events that were not recorded because a file was full",
    "clocked": "kinds with a number below this one carry the thread's CPU time (ns) in `value`",
    "kinds": "the number of each kind",
    "messages": "what a negative `task` is: STOP, RESUME, WAKE or DIED",
    "actors": "the threads: `pid`, `thread` (its name), `role`, `loader`, `epoch`, `worker`, `queue` (by number)",
    "loaders": "the iterators: `loader`, `epochs`, `num_workers`, `config`, `first` and `last` (positions)",
    "sources": "for each kind the lines that emit it: `file`, `line`, `function`, `first` and `last` line of that",
}


def write(trace: Trace, target: str | os.PathLike[str] | IO[str]) -> None:
    """Write `trace` into a file, which is replaced, or a text stream, which stays open. The file is compressed if its
    name ends in `.gz`. Of a growing trace it writes what has been read so far.

    Raises OSError when the file cannot be written.
    """
    if isinstance(target, (str, os.PathLike)):
        with open_for_writing(target) as file:
            _write(trace, file)
    else:
        _write(trace, target)


def _write(trace: Trace, file: IO[str]) -> None:
    encode = json.JSONEncoder(separators=(",", ":")).encode
    file.write(encode(header(trace)) + "\n")
    for event in lines(trace):
        file.write(encode(event) + "\n")


def header(trace: Trace) -> dict[str, Any]:
    """The first line; its fields are those of HEADER."""
    loaders = trace.loaders
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "package": next((each.config["package"] for each in loaders if "package" in each.config), None),
        "clock": "time.monotonic_ns",
        "start": trace.start,
        "wall_clock": trace.wall_clock(trace.start),
        "events": len(trace),
        "complete": trace.complete,
        "dropped": trace.dropped,
        "clocked": CLOCKED,
        "kinds": {kind.name: kind.value for kind in Kind},
        "messages": {str(task): name for task, name in LABELS.items()},
        "actors": [dataclasses.asdict(actor) for actor in trace.actors],
        "loaders": [dataclasses.asdict(loader) for loader in loaders],
        "sources": trace.sources,
    }


def lines(trace: Trace) -> Iterator[dict[str, Any]]:
    """The other lines, one per event; their fields are those of FIELDS."""
    kinds = {kind.value: kind.name for kind in Kind}
    queues = {queue.value: queue.name if queue else None for queue in Queue}
    who = ["feeder" if actor.role == "feeder" else thread_name(actor) for actor in trace.actors]
    events = trace.events
    for start in range(0, len(events), CHUNK):
        part = events[start : start + CHUNK]
        columns: dict[str, Iterable[Any]] = {name: part[name].tolist() for name in FIELDS.keys() - {"k", "who"}}
        columns["k"] = range(start, start + len(part))
        columns["who"] = [who[actor] for actor in columns["actor"]]
        columns["kind"] = [kinds[kind] for kind in columns["kind"]]
        columns["queue"] = [queues[queue] for queue in columns["queue"]]
        columns["text"] = [trace.text(k) if text else None for k, text in enumerate(columns["text"], start)]
        for row in zip(*(columns[name] for name in FIELDS), strict=True):
            yield dict(zip(FIELDS, row, strict=True))
