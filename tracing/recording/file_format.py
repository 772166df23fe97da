"""The files of a trace, byte by byte: what event_writer writes and tracing.trace.file_reader reads.

A trace is a directory. One file describes it, one names the source lines, and each process adds a pair:

    trace.json             format version, when and where it was recorded
    sources.json           kind -> the line of minidl that emits it (see tracing.recording.source_lines)
    events-1234-0.bin      process 1234: a header, then fixed-size records, in a sparse file
    text-1234-0.jsonl      its texts, a JSON value per line: `[7, {...}]` is text 7, `{"actor": 1, ...}` names a thread
    usage-1234-0.bin       samples of its CPU time: the last one tells how long it lived (see tracing.recording.watch)
    stacks-1234-0.jsonl    where its threads were, now and then and when no event came for long
    memory.bin             samples of memory, if they were asked for (see tracing.recording.memory_sampler)

A record whose last field, `kind`, is 0 is not there: never written, or its process died while writing it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

VERSION = 1
MAGIC = b"minidl\r\n"  # the line end reveals a file that was copied as text
DESCRIPTION, SOURCES = "trace.json", "sources.json"
OWN_ITERATORS = "own_iterators"  # in trace.json: the classes of loaders that make their iterators themselves
UNSEEN_CHILDREN = "unseen_children"  # in trace.json: [command, why] of processes that were started, and not recorded
MEMORY = "memory.bin"
_EVENTS_NAME = re.compile(r"events-\d+-\d+\.bin")

# time ns, epoch_id, value, text (0: none, else 1 + its number), task, worker, actor, queue, kind
RECORD = struct.Struct("<qqqIihHBB2x")
RECORD_DTYPE = np.dtype(
    [
        ("time", "<i8"),
        ("epoch", "<u4"),  # epoch_id is `loader << 32 | epoch`: read back, it falls into its two halves
        ("loader", "<u4"),
        ("value", "<i8"),
        ("text", "<u4"),
        ("task", "<i4"),
        ("worker", "<i2"),
        ("actor", "<u2"),
        ("queue", "u1"),
        ("kind", "u1"),
        ("pad", "<u2"),
    ]
)
MAX_ACTORS = 1 << 16
CAPACITY = 20_000_000  # records that a file can hold, if nothing else is said: a file without them costs no disk

# magic, version, record size, pid, parent's pid, monotonic ns, wall-clock ns, capacity, used, dropped
HEADER = struct.Struct("<8sIIqqqqqqq")
HEADER_SIZE = 128
COUNT = struct.Struct("<q")
USED_AT, DROPPED_AT = HEADER.size - 2 * COUNT.size, HEADER.size - COUNT.size  # where these two are in it

# One of usage-*.bin (an older samples-*.bin has two numbers less): time, pid, then as in tracing.trace.samples
SAMPLE = struct.Struct("<11q")


class Header(NamedTuple):
    """The header of an events file."""

    magic: bytes
    version: int
    record_size: int
    pid: int
    parent: int
    start: int  # ns, the clock of the events
    wall: int  # ns since 1970, the same moment: to show a time of day
    capacity: int  # records the file can hold
    used: int  # records in it; -1 while its process records, and for ever if it was killed
    dropped: int  # events after it was full


def events_file(directory: Path, pid: int, number: int) -> Path:
    """The events file of a process; `number` tells apart its recordings, and processes that shared a pid."""
    return directory / f"events-{pid}-{number}.bin"


def text_file(events: Path) -> Path:
    """The text file beside an events file."""
    return events.with_name(events.name.replace("events-", "text-", 1)).with_suffix(".jsonl")


def samples_file(events: Path) -> Path:
    """The file of samples beside an events file."""
    return events.with_name(events.name.replace("events-", "usage-", 1))


def stacks_file(events: Path) -> Path:
    """The file of stacks beside an events file."""
    return events.with_name(events.name.replace("events-", "stacks-", 1)).with_suffix(".jsonl")


def events_files(directory: Path) -> list[Path]:
    """What is named as an events file is, sorted by name; not a user's own "events-my-notes.bin"."""
    return sorted(path for path in directory.glob("events-*-*.bin") if _EVENTS_NAME.fullmatch(path.name))


def description(directory: Path) -> dict[str, Any]:
    """What trace.json says, {} if it cannot be read or is another program's: torch.profiler's export has that name."""
    with contextlib.suppress(OSError, ValueError):
        about = json.loads((directory / DESCRIPTION).read_bytes())
        if isinstance(about, dict) and "format" in about:
            return about
    return {}


def parts_directory(directory: Path) -> Path:
    """Where a run of several processes keeps the traces of the others: see tracing.trace.parts."""
    return directory / "parts"


def is_trace(directory: Path) -> bool:
    """Whether a directory holds a trace, finished or not: known by what is in its files, not by their names."""
    return bool(description(directory)) or bool(_own_events(directory))


def _own_events(directory: Path) -> list[Path]:
    found = []
    for path in events_files(directory):
        with contextlib.suppress(OSError):
            if read_header(path) is not None:
                found.append(path)
    return found


def files_of(directory: Path) -> list[Path]:
    """Every file of the trace in `directory` that is known to be one, and no other file that may be there."""
    own = [named(path) for path in _own_events(directory) for named in (Path, text_file, samples_file, stacks_file)]
    if "recorded_by" in description(directory):
        own += [directory / name for name in (DESCRIPTION, SOURCES, MEMORY)]
    return sorted(path for path in own if path.is_file())


def read_header(path: Path) -> Header | None:
    """The header of an events file; None until its process has written it. Raises OSError."""
    with open(path, "rb") as file:
        data = file.read(HEADER.size)
    header = Header(*HEADER.unpack(data)) if len(data) == HEADER.size else None
    return header if header is not None and header.magic == MAGIC else None


def has_events(directory: Path) -> bool:
    """Whether any process has recorded an event into it."""
    for path in _own_events(directory):
        with open(path, "rb") as file:
            file.seek(HEADER_SIZE)
            if any(file.read(RECORD.size)):
                return True
    return False


def count_records(fd: int, capacity: int, chunk: int = 1 << 14) -> int:
    """How many records are in an events file whose process did not write that down: up to the first stretch of
    `chunk` empty ones. Threads that died between claim and write leave shorter gaps."""
    used = 0
    for first in range(0, capacity, chunk):
        data = os.pread(fd, chunk * RECORD.size, HEADER_SIZE + first * RECORD.size)
        kinds = np.frombuffer(data, RECORD_DTYPE, len(data) // RECORD.size)["kind"]
        written = np.flatnonzero(kinds)
        if len(written) == 0:
            break
        used = first + int(written[-1]) + 1
    return used
