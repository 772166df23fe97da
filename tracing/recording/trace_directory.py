"""The directory of a trace: claimed, emptied, described, closed; and whether a living process still records into it.

Legend
    run      "4711-1764000000000000000"   one recording, in trace.json; its parts name it as `part_of`
    launch   "node1/4700/29500"           what started several processes that are each run by `tracing run` into one
                                          directory, as torchrun does; None for a run of one process
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tracing.recording import file_format as fmt
from tracing.recording.process_header import RANKS, header, machine
from tracing.recording.source_lines import sources_as_json


@contextlib.contextmanager
def claimed(directory: Path, launch: str | None = None) -> Iterator[Path]:
    """A trace to record into: `directory`, or, while another recording uses that, one beside it with a number. It is
    empty, unless another process of the same `launch` has begun it.

    An earlier trace is replaced, and of it only the files that are known to be its own. Within the context it cannot be
    claimed by another process. Raises FileExistsError if the directory holds anything else, OSError if it cannot be
    made."""
    beside = (directory.with_name(f"{directory.name}-{number}") for number in itertools.count(2))
    for used in itertools.chain([directory], beside):
        if used.exists() and not used.is_dir():
            raise FileExistsError(f"{used} is a file: a trace is a directory, record into another path")
        used.mkdir(parents=True, exist_ok=True)
        with locked(used):
            joins = launch is not None and _is_of(launch, used)
            if not joins and being_recorded(used):
                continue
            if not joins:
                _empty(used)
            yield used
            return


def _is_of(launch: str, directory: Path) -> bool:
    """Whether a launch has begun this trace, and this process has no part in it yet. (If it has, a shell has launched
    the same again.)"""
    me = header()
    same = (part for part in map(fmt.description, parts_of(directory)) if part.get("rank") == me["rank"])
    again = any(part.get("restart") == me["restart"] for part in same)
    return fmt.description(directory).get("launch") == launch and not again


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the directory's lock, where the system has any: two programs may start at the same moment."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def being_recorded(directory: Path) -> bool:
    """Whether a recording of a living process into it or one of its parts goes on. (After its stop, workers that live
    on may still write: nothing that is read again.)"""
    return any(_records(each) for each in (directory, *parts_of(directory)))


def _records(directory: Path) -> bool:
    about = fmt.description(directory)
    if not isinstance(about.get("pid"), int) or about.get("stopped") is not None:
        return False
    if about.get("machine", machine()) != machine():
        return True  # as far as can be seen from here
    # An earlier process may have had this pid: in a container they are few.
    return is_alive(about["pid"]) and not _began_after(about["pid"], about.get("wall_clock", 0))


def parts_of(directory: Path) -> list[Path]:
    """The parts that belong to the recording in `directory`, and not to an earlier one, or to the user."""
    run = fmt.description(directory).get("run")
    found = sorted(fmt.parts_directory(directory).glob("*")) if run is not None else []
    return [part for part in found if fmt.description(part).get("part_of") == run]


MOST_NOTES = 4  # of a kind: a program may start thousands of children


def _began_after(pid: int, wall_clock: int) -> bool:
    """Whether a process began after a time of day (ns since 1970), so that it only has the pid of an earlier one."""
    with contextlib.suppress(OSError, IndexError, ValueError):  # where there is no /proc
        ticks = int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[19])  # since boot
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
        return time.time() - age > wall_clock / 1e9 + 1
    return False


def whole(directory: Path) -> Path:
    """The trace that `directory` is a part of; itself if it is none."""
    return directory.parent.parent if "part_of" in fmt.description(directory) else directory


def _empty(directory: Path) -> None:
    own = set(fmt.files_of(directory))
    parts = parts_of(directory)
    others = [path for path in directory.iterdir() if path not in {*own, *(part.parent for part in parts)}]
    if others and not own:
        raise FileExistsError(f"{directory} is neither empty nor a trace: record into another directory")
    for path in others:
        if path.name in (fmt.DESCRIPTION, fmt.SOURCES, fmt.MEMORY):
            raise FileExistsError(f"{path} is another program's, and would be replaced: record into another directory")
    # Unlinked, never cut: a worker of an earlier recording may still write to its mapping of such a file.
    for path in (*own, *(path for part in parts for path in fmt.files_of(part))):
        path.unlink(missing_ok=True)
    for folder in (*parts, fmt.parts_directory(directory)):
        with contextlib.suppress(OSError):  # it does not exist, or something of the user's is in it
            folder.rmdir()
    (directory / fmt.SOURCES).write_text(sources_as_json(), encoding="utf-8")


def describe(directory: Path, **more: Any) -> None:
    """Write trace.json. `stopped` is when the recording was stopped (ns, the events' clock)."""
    process = header()
    description = {
        "format": fmt.VERSION,
        "recorded_by": "minidl",
        "run": f"{process['pid']}-{process['wall_clock']}",
        **process,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "command": sys.argv,
        "stopped": None,
        **more,
    }
    _write(directory, description)


def _write(directory: Path, description: dict[str, Any]) -> None:
    """Replace trace.json: whoever reads it finds the old or the new one, whole."""
    new = directory / f"{fmt.DESCRIPTION}.{os.getpid()}"
    try:
        new.write_text(json.dumps(description, indent=1), encoding="utf-8")
        new.replace(directory / fmt.DESCRIPTION)
    except OSError:
        new.unlink(missing_ok=True)
        raise


def new_part(directory: Path, run: Any, loader: dict[str, Any] | None = None) -> Path:
    """Make a part for this process in the trace in `directory`, and describe it. `loader` is the configuration of the
    loader that it is about to iterate. Raises OSError; FileNotFoundError if another run has replaced the trace."""
    if fmt.description(directory).get("run") != run:
        raise FileNotFoundError(f"{directory} is no longer the trace of the run that this process belongs to")
    process = header(loader)
    ranked = "" if process["rank"] is None else f"rank{process['rank']}-"
    for number in itertools.count(1):
        name = f"{ranked}{process['pid']}" + (f"-{number}" if number > 1 else "")
        path = fmt.parts_directory(directory) / name
        with contextlib.suppress(FileExistsError):  # an earlier process had this pid
            path.mkdir(parents=True)
            break
    describe(path, **process, part_of=run)
    shutil.copyfile(directory / fmt.SOURCES, path / fmt.SOURCES)
    return path


def update(directory: Path, **entries: Any) -> None:
    """Change entries of trace.json."""
    with contextlib.suppress(OSError, ValueError):  # the directory is gone, or the file is damaged
        _write(directory, {**json.loads((directory / fmt.DESCRIPTION).read_bytes()), **entries})


def update_own(directory: Path, **entries: Any) -> None:
    """The same, unless another process has recorded anew into this directory."""
    if fmt.description(directory).get("pid") == os.getpid():
        update(directory, **entries)


def note_the_rank(directory: Path) -> None:
    """Write down the rank, which a process may have learned since its recording began."""
    now = header()
    update_own(directory, **{name: now[name] for name in RANKS if now[name] is not None})


def note_the_stop(directory: Path, interrupted: bool = False) -> None:
    """Write down when the recording stopped, and whether by Ctrl-C. From then on half of what happens is missing: an
    iterator that is still open goes on, and its workers still record. `tracing.check` judges what came before."""
    note_the_rank(directory)
    by_whom = {"interrupted": True} if interrupted else {}
    update_own(directory, stopped=time.monotonic_ns(), **by_whom)


def is_last(directory: Path) -> bool:
    """Whether every process of a launch has begun and ended its recording, this one included. Within `locked`."""
    expected = os.environ.get("LOCAL_WORLD_SIZE") or os.environ.get("WORLD_SIZE") or "1"
    restart = header()["restart"]
    parts = [part for part in parts_of(directory) if fmt.description(part).get("restart") == restart]
    return len(parts) >= int(expected) and not any(_records(part) for part in parts)


def note(directory: Path, entry: str, new: Any) -> None:
    """Write down, for the whole run, one more of OWN_ITERATORS or UNSEEN_CHILDREN (see file_format)."""
    run = whole(directory)
    with contextlib.suppress(OSError), locked(run):
        known = fmt.description(run).get(entry, [])
        if new not in known and len(known) < MOST_NOTES:
            update(run, **{entry: [*known, new]})


def cut_files_of_the_dead(directory: Path) -> None:
    """Cut the files of processes that ended without closing them. (A living process still writes to its mapping: a cut
    would kill it by SIGBUS.)"""
    for path, of_process in fmt.headers(directory).items():
        if of_process.used < 0 and not is_alive(of_process.pid):
            with contextlib.suppress(OSError), open(path, "r+b") as file:
                used = fmt.count_records(path)
                file.seek(fmt.USED_AT)
                file.write(fmt.COUNT.pack(used))
                file.truncate(fmt.HEADER_SIZE + used * fmt.RECORD.size)


def in_progress(directory: Path) -> bool:
    """Whether a living process records into the trace in `directory`."""
    headers = fmt.headers(directory).values()
    recording = [each.pid for each in headers if each.used < 0]
    if not headers and isinstance(pid := fmt.description(directory).get("pid"), int):
        recording = [pid]  # it is about to make its file
    return any(map(is_alive, recording))


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
