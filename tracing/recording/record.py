"""`tracing.record()`: recording is ambient, so no call site changes.

with tracing.record("run.trace"):
    for batch in minidl.DataLoader(dataset, num_workers=2):
        ...
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import sys
import time
from pathlib import Path
from types import TracebackType

from minidl import events
from tracing.recording import file_format as fmt
from tracing.recording.event_writer import Recorder
from tracing.recording.memory_sampler import Sampler
from tracing.recording.source_lines import sources_as_json


class record:  # in lower case because it reads as a function: `with record(path):`
    """Record what every loader in this process and its children says into the directory `path`.

    A trace that is already there is replaced; a directory that holds anything else is refused with FileExistsError.
    `capacity` is how many events each process can record (40 bytes each, on disk); what comes after them is dropped and
    counted. With `memory` the memory, open files and mappings of this process and its children are sampled too, by a
    process of its own (Linux; see tracing.trace.memory). `start()` and `stop()` are what `with` calls. Both can be
    called twice; a `start()` after a `stop()` goes on recording into the same trace."""

    def __init__(self, path: str | os.PathLike[str], *, capacity: int = 1_000_000, memory: bool = False) -> None:
        if capacity < 1:
            raise ValueError(f"capacity is how many events a process can record: at least 1, not {capacity}")
        self.path = Path(path).absolute()
        self.capacity = capacity
        self.memory = memory
        self._sampler: Sampler | None = None
        self._recorder: Recorder | None = None
        self._previous: events.Recorder | None = None
        self._prepared = False

    def start(self) -> record:
        """Begin to record. Returns itself. Raises FileExistsError as said above, OSError if `path` can't be made."""
        if self._recorder is None:
            if not self._prepared:
                prepare(self.path)
                self._prepared = True
            describe(self.path)
            self._recorder = Recorder(self.path, self.capacity)
            self._previous = events.install(self._recorder.record)
            if self.memory and sys.platform == "linux":
                self._sampler = Sampler(self.path / fmt.MEMORY)
        return self

    def stop(self) -> None:
        """End recording here and in whatever is started from now on; workers that live on go on recording."""
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            note_the_stop(self.path)
            if events.installed() == recorder.record:  # else another one took over, and minds its own business
                events.install(self._previous)
            recorder.close()
            if self._sampler is not None:
                self._sampler.stop()
            cut_files_of_the_dead(self.path)

    def __enter__(self) -> record:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.stop()


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
    """Write down what the trace is of. `stopped` is when its recording was stopped (ns, the events' clock)."""
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
    """From now on half of what happens is missing: an iterator that is still open goes on, and its workers still
    record. `tracing.check` judges what was before."""
    path = directory / fmt.DESCRIPTION
    with contextlib.suppress(OSError, ValueError):  # the directory is gone, or somebody has spoilt the file
        description = {**json.loads(path.read_bytes()), "stopped": time.monotonic_ns()}
        path.write_text(json.dumps(description, indent=1), encoding="utf-8")


def cut_files_of_the_dead(directory: Path) -> None:
    """Cut the files of processes that are gone without having closed theirs. One that lives still writes to its
    mapping, and would be killed by SIGBUS: its file stays as long as it may grow, which costs no disk."""
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
    if not files:  # a process makes its file when it has something to say
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):  # no description, or a damaged one
            return is_alive(int(json.loads((directory / fmt.DESCRIPTION).read_bytes())["pid"]))
    for path in files:
        with contextlib.suppress(OSError):
            header = fmt.read_header(path)
            if header is not None and header.used < 0 and is_alive(header.pid):
                return True
    return False


def is_alive(pid: int) -> bool:
    """Whether there is a process with this pid, whoever it belongs to."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it lives, and is another user's
        return True
    return True
