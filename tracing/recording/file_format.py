"""The files of a trace, byte by byte: what event_writer writes and tracing.trace.file_reader reads.

A trace is a directory. One file describes it, and each process adds a pair, and what it saw of itself:

    trace.json             format version, when and where it was recorded
    events-1234-0.bin      process 1234: a header, then fixed-size records; room for more until it is closed
    text-1234-0.jsonl      its texts, a JSON value per line: `[7, {...}]` is text 7, `{"actor": 1, ...}` names a thread;
                           zeros where none is written yet
    cpu-1234-0.bin         samples of its CPU time: the last one shows how long it lived (see tracing.recording.watch)
    stacks-1234-0.jsonl    the lines its threads were in, and how long each had had a core: often at first, and then
                           twice a second

A record whose last field, `kind`, is 0 is not there: never written, or its process died while writing it.
"""

from __future__ import annotations

import contextlib
import json
import re
import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

VERSION = 8
MAGIC = b"minidl\r\n"  # the line end reveals a file that was copied as text
DESCRIPTION = "trace.json"
PARTS = "parts"  # where a run of several processes keeps the traces of the others: see tracing.trace.parts
CTRL_C = "KeyboardInterrupt"  # how its `ended_by` begins then: the type of the error, and the line that raised it

# time, epoch_id, value, text, task, actor, worker, queue, kind
RECORD = struct.Struct("<qqqIiH2xhBB")
RECORD_DTYPE = np.dtype(
    [
        ("time", "<i8"),  # ns
        ("epoch", "<u4"),  # epoch_id is `loader << 32 | epoch`: read back, it falls into its two halves
        ("loader", "<u4"),  # number of the DataLoader
        ("value", "<i8"),  # see minidl.events.Kind
        ("text", "<u4"),  # 0: none, else 1 + its number; for trace.text()
        ("task", "<i4"),  # negative: none, or a message without a task
        ("actor", "<u4"),  # a thread of its process; in trace.events: index into trace.actors
        ("worker", "<i2"),  # -1: none
        ("queue", "u1"),  # minidl.events.Queue
        ("kind", "u1"),  # minidl.events.Kind
    ]
)
MAX_ACTORS = 1 << 16
CAPACITY = 20_000_000  # records that a file can hold

# magic, version, record size, pid, monotonic ns, used, dropped
HEADER = struct.Struct("<8sIIqqqq")
HEADER_SIZE = 128
COUNT = struct.Struct("<q")
USED_AT, DROPPED_AT = HEADER.size - 2 * COUNT.size, HEADER.size - COUNT.size  # where these two are in it

# One of cpu-*.bin.
_OF_SAMPLE = (
    "time", "pid",  # ns, the clock of the events
    "cpu",  # ns that all threads of the process have used so far
    "main_cpu",  # ns of these that its main thread has used; -1: unknown
    "children",  # ns that its own children have used, of those that it has waited for
    # All cores of the machine together, ns since it started; -1: unknown, and for all but the main process
    "busy", "idle",  # the first: by programs on this machine, or taken by other machines on the same host
    "read",  # bytes that it had read a second ago or more, from files and pipes; 0: unknown
    "memory",  # bytes, as of then; shared ones are shared out, but in main; 0: unknown
)  # fmt: skip
SAMPLE_DTYPE = np.dtype([(name, "<i8") for name in _OF_SAMPLE])
SAMPLE = struct.Struct(f"<{len(_OF_SAMPLE)}q")


class Header(NamedTuple):
    """The header of an events file."""

    magic: bytes
    version: int
    record_size: int
    pid: int
    start: int  # ns, the clock of the events
    used: int  # records in it; -1 while its process records, and for ever if it was killed
    dropped: int  # events after it was full


def events_file(directory: Path, pid: int, number: int) -> Path:
    """The events file of a process; `number` distinguishes its recordings, and processes that shared a pid."""
    return directory / f"events-{pid}-{number}.bin"


def text_file(events: Path) -> Path:
    """The text file beside an events file."""
    return events.with_name(events.name.replace("events-", "text-", 1)).with_suffix(".jsonl")


def samples_file(events: Path) -> Path:
    """The file of samples beside an events file."""
    return events.with_name(events.name.replace("events-", "cpu-", 1))


def stacks_file(events: Path) -> Path:
    """The file of stacks beside an events file."""
    return events.with_name(events.name.replace("events-", "stacks-", 1)).with_suffix(".jsonl")


def events_files(directory: Path) -> list[Path]:
    """What is named like an events file, sorted by name; not a user's own "events-my-notes.bin"."""
    return sorted(path for path in directory.glob("events-*") if re.fullmatch(r"events-\d+-\d+\.bin", path.name))


def description(directory: Path) -> dict[str, Any]:
    """What trace.json says, {} if it cannot be read or is another program's: torch.profiler's export has that name."""
    with contextlib.suppress(OSError, ValueError):
        about = json.loads((directory / DESCRIPTION).read_bytes())
        if isinstance(about, dict) and isinstance(about.get("format"), int):
            return about
    return {}


def headers(directory: Path) -> dict[Path, Header]:
    """Of each events file, known by its contents: a process that has not written its header yet has none."""
    found = {}
    for path in events_files(directory):
        with contextlib.suppress(OSError), open(path, "rb") as file:
            data = file.read(HEADER.size)
            if len(data) == HEADER.size and data.startswith(MAGIC):
                found[path] = Header(*HEADER.unpack(data))
    return found


def is_trace(directory: Path) -> bool:
    """Whether a directory holds a trace, finished or not: known by what is in its files, not by their names."""
    return bool(description(directory)) or bool(headers(directory))


def files_of(directory: Path) -> list[Path]:
    """Every file of the trace in `directory` that is known to be one, and no other file that may be there."""
    own = [named(path) for path in headers(directory) for named in (Path, text_file, samples_file, stacks_file)]
    if "recorded_by" in description(directory):
        own.append(directory / DESCRIPTION)
    return sorted(path for path in own if path.is_file())


def has_events(directory: Path) -> bool:
    """Whether any process has recorded an event into it."""
    return any(count_records(path, among=64) for path in headers(directory))


def count_records(path: Path, among: int = -1) -> int:
    """How many records are in an events file, up to the last that was written; of the first `among`, -1: of all.
    Raises OSError."""
    written = np.flatnonzero(np.fromfile(path, RECORD_DTYPE, among, offset=HEADER_SIZE)["kind"])
    return int(written[-1]) + 1 if len(written) else 0
