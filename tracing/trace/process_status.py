"""What the operating system says of a process that records, or did: it runs, it is stopped, it is gone."""

from __future__ import annotations

import contextlib
import enum
from pathlib import Path
from typing import Any

from tracing.recording import file_format as fmt
from tracing.recording.trace_directory import is_alive


class Process(enum.Enum):
    """How a process is."""

    LIVES = "lives"  # it computes or sleeps
    STOPPED = "stopped"  # by SIGSTOP, Ctrl-Z or a debugger: it does nothing until it is continued
    GONE = "gone"  # there is none with this pid; or it is dead, and its parent has not yet asked for its exit code
    CLOSED = "closed"  # it ended in order, or its recording was stopped: what it does now is not known


# The letter in /proc/PID/stat. Where there is no /proc, a process that exists is taken to live.
STATES = {"T": Process.STOPPED, "t": Process.STOPPED, "Z": Process.GONE, "X": Process.GONE}


def processes(directory: Path) -> dict[int, Process]:
    """How each process that recorded into this trace is now."""
    found: dict[int, Process] = {}
    for path in sorted(directory.glob("events-*-*.bin")):
        with contextlib.suppress(OSError):
            header = fmt.read_header(path)
            if header is not None and header.used < 0:
                found[header.pid] = look_at(header.pid)
            elif header is not None:
                found.setdefault(header.pid, Process.CLOSED)
    return found


def processes_of_a_simulation(about: dict[str, Any]) -> dict[int, Process]:
    """How each process of a simulated run was when that ended in a deadlock, from the trace's description; else {}."""
    return {int(pid): Process(how) for pid, how in about.get("processes", {}).items()}


def look_at(pid: int) -> Process:
    """How the process with this pid is now."""
    if not is_alive(pid):
        return Process.GONE
    with contextlib.suppress(OSError, IndexError):
        # "12 (name) S 1 ...": the name may hold spaces and parentheses.
        letter = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
        return STATES.get(letter, Process.LIVES)
    return Process.LIVES


def has_unread(directory: Path, pid: int, known: int) -> bool:
    """Whether a process has recorded more than the `known` events of it that were read."""
    said = 0
    for path in directory.glob(f"events-{pid}-*.bin"):
        with contextlib.suppress(OSError):
            header = fmt.read_header(path)
            with open(path, "rb") as file:
                said += fmt.count_records(file.fileno(), header.capacity) if header is not None else 0
    return said > known
