"""The directory of a trace: claimed, emptied, described, closed; and whether a living process still records into it."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import platform
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tracing.recording import file_format as fmt
from tracing.recording.source_lines import sources_as_json


@contextlib.contextmanager
def claimed(directory: Path) -> Iterator[Path]:
    """An empty trace to record into: `directory`, or, while another recording uses that, one beside it with a number.

    An earlier trace is replaced, and of it only the files that are known to be its own. Within the context it cannot be
    claimed by another process. Raises FileExistsError if the directory holds anything else, OSError if it cannot be
    made."""
    beside = (directory.with_name(f"{directory.name}-{number}") for number in itertools.count(2))
    for used in itertools.chain([directory], beside):
        if used.exists() and not used.is_dir():
            raise FileExistsError(f"{used} is a file: a trace is a directory, record into another path")
        used.mkdir(parents=True, exist_ok=True)
        with _locked(used):
            if not _being_recorded(used):
                _empty(used)
                yield used
                return


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold the directory's lock, where the system has any: two programs may start at the same moment."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _being_recorded(directory: Path) -> bool:
    """Whether a recording of a living process into it goes on. (After its stop, workers that live on may still write:
    nothing that is read again.)"""
    about = fmt.description(directory)
    if not isinstance(about.get("pid"), int) or about.get("stopped") is not None:
        return False
    if about["pid"] == os.getpid():  # or an earlier process had this pid: in a container they are few
        return directory in recorded_here
    return is_alive(about["pid"]) and not _began_after(about["pid"], about.get("wall_clock", 0))


# The directories that this process records into.
recorded_here: set[Path] = set()


def _began_after(pid: int, wall_clock: int) -> bool:
    """Whether a process began after a time of day (ns since 1970), so that it only has the pid of an earlier one."""
    with contextlib.suppress(OSError, IndexError, ValueError):  # where there is no /proc
        ticks = int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[19])  # since boot
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
        return time.time() - age > wall_clock / 1e9 + 1
    return False


def _empty(directory: Path) -> None:
    own = set(fmt.files_of(directory))
    others = [path for path in directory.iterdir() if path not in own]
    if others and not own:
        raise FileExistsError(f"{directory} is neither empty nor a trace: record into another directory")
    for path in others:
        if path.name in (fmt.DESCRIPTION, fmt.SOURCES, fmt.MEMORY):
            raise FileExistsError(f"{path} is another program's, and would be replaced: record into another directory")
    # Unlinked, never cut: a worker of an earlier recording may still write to its mapping of such a file.
    for path in own:
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
    for path in fmt.events_files(directory):
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
    files = fmt.events_files(directory)
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
