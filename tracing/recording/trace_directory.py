"""The directory of a trace: made empty, described, closed; and whether a living process still records into it."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import sys
import time
from pathlib import Path

from tracing.recording import file_format as fmt
from tracing.recording.source_lines import sources_as_json


def prepare(directory: Path) -> None:
    """Make `directory` an empty trace."""
    if directory.exists() and not directory.is_dir():
        raise FileExistsError(f"{directory} is a file: a trace is a directory, record into another path")
    directory.mkdir(parents=True, exist_ok=True)
    if not fmt.is_trace(directory) and any(directory.iterdir()):
        raise FileExistsError(f"{directory} is neither empty nor a trace: record into another directory")
    # Unlinked, never cut: a worker of an earlier recording may still write to its mapping of such a file.
    for path in fmt.files_of(directory):
        path.unlink(missing_ok=True)
    (directory / fmt.SOURCES).write_text(sources_as_json(), encoding="utf-8")


def describe(directory: Path) -> None:
    """Write trace.json. `stopped` is when the recording was stopped (ns, the events' clock)."""
    description = {
        "format": fmt.VERSION,
        "recorded_by": "minidl",
        "pid": os.getpid(),
        "wall_clock": time.time_ns(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "command": sys.argv,
        "stopped": None,
    }
    (directory / fmt.DESCRIPTION).write_text(json.dumps(description, indent=1), encoding="utf-8")


def note_the_stop(directory: Path) -> None:
    """Write down when the recording stopped. From then on half of what happens is missing: an iterator that is still
    open goes on, and its workers still record. `tracing.check` judges what came before."""
    path = directory / fmt.DESCRIPTION
    with contextlib.suppress(OSError, ValueError):  # the directory is gone, or the file is damaged
        description = {**json.loads(path.read_bytes()), "stopped": time.monotonic_ns()}
        path.write_text(json.dumps(description, indent=1), encoding="utf-8")


def cut_files_of_the_dead(directory: Path) -> None:
    """Cut the files of processes that ended without closing them. A living process still writes to its mapping, and a
    cut would kill it by SIGBUS: its file keeps its full length, which costs no disk (it is sparse)."""
    for path in directory.glob("events-*-*.bin"):
        if not is_alive(int(path.name.split("-")[1])):
            with contextlib.suppress(OSError):
                _cut(path)


def _cut(path: Path) -> None:
    header = fmt.read_header(path)
    if header is not None and header.used < 0:
        with open(path, "r+b") as file:
            used = fmt.count_records(file.fileno(), header.capacity)
            file.seek(fmt.USED_AT)
            file.write(fmt.COUNT.pack(used))
            file.truncate(fmt.HEADER_SIZE + used * fmt.RECORD.size)


def in_progress(directory: Path) -> bool:
    """Whether a living process records into the trace in `directory`."""
    files = list(directory.glob("events-*-*.bin"))
    if not files:  # a process makes its file at its first event
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):  # no description, or a damaged one
            return is_alive(int(json.loads((directory / fmt.DESCRIPTION).read_bytes())["pid"]))
    for path in files:
        with contextlib.suppress(OSError):
            header = fmt.read_header(path)
            if header is not None and header.used < 0 and is_alive(header.pid):
                return True
    return False


def is_alive(pid: int) -> bool:
    """Whether there is a process with this pid, whichever user owns it."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it lives, and is another user's
        return True
    return True
