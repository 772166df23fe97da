"""Whether a process that recorded runs, is stopped or is gone, according to the operating system."""

from __future__ import annotations

import contextlib
import enum
from pathlib import Path

import numpy as np

from tracing.recording import file_format as fmt
from tracing.recording.linux import machine, state_of
from tracing.recording.trace_directory import is_alive


class ProcessStatus(enum.Enum):
    """What became of a process."""

    LIVES = "lives"  # it computes or sleeps
    STOPPED = "stopped"  # by SIGSTOP, Ctrl-Z or a debugger: it does nothing until it is continued
    GONE = "gone"  # none has this pid; or it is a zombie: dead, and its parent has not yet collected its exit code
    CLOSED = "closed"  # it ended normally, or its recording was stopped: what it does now is unknown


# What the system calls it. A process of another state, or none, is taken to live.
STATES = {"T": ProcessStatus.STOPPED, "t": ProcessStatus.STOPPED, "Z": ProcessStatus.GONE, "X": ProcessStatus.GONE}


def processes(directory: Path) -> dict[int, ProcessStatus]:
    """The present status of each process that recorded into this trace: pid -> status."""
    found: dict[int, ProcessStatus] = {}
    here = fmt.description(directory).get("machine", machine()) == machine()
    for header in fmt.headers(directory).values():
        if header.used < 0:
            found[header.pid] = look_at(header.pid) if here else ProcessStatus.GONE
        else:
            found.setdefault(header.pid, ProcessStatus.CLOSED)
    return found


def look_at(pid: int) -> ProcessStatus:
    """The present status of the process with this pid."""
    if not is_alive(pid):
        return ProcessStatus.GONE
    return STATES.get(state_of(pid), ProcessStatus.LIVES)


def has_unread(directory: Path, pid: int, known: int) -> bool:
    """Whether a process has recorded more than the `known` events that were read."""
    with contextlib.suppress(OSError):
        files = directory.glob(f"events-{pid}-*.bin")
        kinds = (np.fromfile(path, fmt.RECORD_DTYPE, offset=fmt.HEADER_SIZE)["kind"] for path in files)
        return known < sum(map(np.count_nonzero, kinds))  # a thread that was interrupted has left a hole for ever
    return False
