"""The directory of a trace: claimed, emptied, described, closed; and whether a living process still records into it.

Legend
    run          "4711-1764…"             one recording, in trace.json; its parts name it as `part_of`
In trace.json, of the process that records
    rank         1                        in torch.distributed: of all processes of the training; null outside of it
    machine      "6f… time:[4026531834]/pid:[4026531836]"
                                          where CLOCK_MONOTONIC and pids are valid: a boot of a host, and a container
    wall_clock   1764000000000000000      ns since 1970
    monotonic    52000000000              ns, the events' clock, at the same moment
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
import sys
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from tracing.recording import file_format as fmt
from tracing.recording.linux import cpus, machine


def claim(directory: Path, number: int = 1, **about: Any) -> Path:
    """Begin a trace to record into: in `directory`, or, while another recording uses that, in one beside it with a
    `number`. Returns which. `about` are more entries of its trace.json.

    An earlier trace is replaced, but only the files that are known to be its own. Raises FileExistsError if the
    directory holds anything else, OSError if it cannot be made."""
    used = directory if number == 1 else directory.with_name(f"{directory.name}-{number}")
    if used.exists() and not used.is_dir():
        raise FileExistsError(f"{used} is a file: a trace is a directory, record into another path")
    used.mkdir(parents=True, exist_ok=True)
    with locked(used):
        if not being_recorded(used):
            _empty(used)
            _write(used, _description() | about)
            return used
    return claim(directory, number + 1, **about)


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the directory's lock, if the system has locks: two programs may start at the same moment."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def being_recorded(directory: Path, elsewhere: bool = True) -> bool:
    """Whether a living process still records into it or one of its parts; `elsewhere` if it began on another
    machine, whose processes cannot be seen from here. (After its stop, workers that live on may still write:
    that is not read again.)"""
    for about in map(fmt.description, (directory, *parts_of(directory))):
        if isinstance(about.get("pid"), int) and about.get("stopped") is None:
            is_here = about.get("machine", machine()) == machine()
            if is_alive(about["pid"]) if is_here else elsewhere:
                return True
    return False


def parts_of(directory: Path) -> list[Path]:
    """The parts that belong to the recording in `directory`, and not to an earlier one, or to the user."""
    run = fmt.description(directory).get("run")
    found = sorted((directory / fmt.PARTS).glob("*")) if run is not None else []
    return [part for part in found if fmt.description(part).get("part_of") == run]


def _empty(directory: Path) -> None:
    own = set(fmt.files_of(directory))
    parts = parts_of(directory)
    others = [path for path in directory.iterdir() if path not in {*own, *(part.parent for part in parts)}]
    if (others and not own) or directory / fmt.DESCRIPTION in others:  # torch.profiler's export has that name
        raise FileExistsError(f"{directory} is neither empty nor a trace: record into another directory")
    # Unlinked, never cut: a worker of an earlier recording may still write to its mapping of such a file.
    for path in (*own, *(path for part in parts for path in fmt.files_of(part))):
        path.unlink(missing_ok=True)
    for folder in (*parts, directory / fmt.PARTS):
        with contextlib.suppress(OSError):  # it does not exist, or something of the user's is in it
            folder.rmdir()


def _description() -> dict[str, Any]:
    """What trace.json says at the start. `stopped`: when the recording was stopped (ns, the events' clock)."""
    pid, monotonic, wall_clock = os.getpid(), time.monotonic_ns(), time.time_ns()
    return {
        "format": fmt.VERSION,
        "recorded_by": "minidl",
        "run": f"{pid}-{wall_clock}",
        **rank_of_this_process(),
        "machine": machine(),
        "pid": pid,
        "wall_clock": wall_clock,
        "monotonic": monotonic,
        "cpus": cpus(),
        "python": platform.python_version(),
        "torch": next((each.version for each in metadata.distributions(name="torch")), None),
        "system": platform.platform(),
        "stopped": None,
    }


def _write(directory: Path, description: dict[str, Any]) -> None:
    """Replace trace.json: a reader finds the old one or the new one, whole."""
    new = directory / f"{fmt.DESCRIPTION}.{os.getpid()}"
    try:
        new.write_text(json.dumps(description, indent=1), encoding="utf-8")
        new.replace(directory / fmt.DESCRIPTION)
    except OSError:
        new.unlink(missing_ok=True)
        raise


def note_the_stop(directory: Path, ended_by: str = "") -> None:
    """Write down when the recording stopped, and by which error, unless another process records into this directory
    now. From then on half of what happens is missing: an iterator that is still open goes on, and its workers still
    record. `tracing.check` judges what came before."""
    about = fmt.description(directory)
    if about.get("pid") != os.getpid():
        return
    # Learned, or changed, since the recording began, perhaps.
    about |= {name: each for name, each in rank_of_this_process().items() if each is not None} | {"cpus": cpus()}
    about |= {"stopped": time.monotonic_ns(), "ended_by": ended_by}
    with contextlib.suppress(OSError):  # the directory is gone
        _write(directory, about)


def cut_files_of_the_dead(directory: Path) -> None:
    """Cut the files of processes that ended without closing them, as workers do. (A living one still writes to its
    mapping: a cut kills it with SIGBUS.)"""
    for path, of_process in fmt.headers(directory).items():
        if of_process.used < 0 and not is_alive(of_process.pid):
            with contextlib.suppress(OSError), open(path, "r+b") as file:
                used = fmt.count_records(path)
                file.seek(fmt.USED_AT)
                file.write(fmt.COUNT.pack(used))
                file.truncate(fmt.HEADER_SIZE + used * fmt.RECORD.size)
                texts = fmt.text_file(path)
                os.truncate(texts, len(texts.read_bytes().rstrip(b"\0")))


def is_alive(pid: int) -> bool:
    """Whether there is a process with this pid, whichever user owns it."""
    try:
        os.kill(pid, 0)
    except PermissionError:  # another user's
        return True
    except (OSError, OverflowError):
        return False
    return pid > 0  # others are groups of processes


# ---- the process that records

# The process whose rank RANK is: its children inherit the variable, but are not that process.
RANKED = "TRACING_RANKED"


def rank_of_this_process() -> dict[str, int | None]:
    """Its rank and the world_size, as of now."""
    found = (os.environ.get(name, "") for name in ("RANK", "WORLD_SIZE", RANKED))
    rank, world_size, ranked_by = (int(text) if text.isdecimal() else None for text in found)
    distributed = sys.modules.get("torch.distributed")
    if ranked_by not in (None, os.getpid()):
        rank = world_size = None
    elif distributed is not None and distributed.is_available() and distributed.is_initialized():
        rank, world_size = distributed.get_rank(), distributed.get_world_size()
    if rank is not None and ranked_by is None:
        os.environ[RANKED] = str(os.getpid())
    return {"rank": rank, "world_size": world_size}
