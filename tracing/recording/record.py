"""`tracing.record()`: recording is ambient, so no call site changes.

with tracing.record("run.trace"):
    for batch in minidl.DataLoader(dataset, num_workers=2):
        ...
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

from minidl import events
from tracing.recording import file_format as fmt
from tracing.recording import trace_directory
from tracing.recording.event_writer import EventWriter
from tracing.recording.memory_sampler import MemorySampler


class record:  # in lower case because it reads as a function: `with record(path):`
    """Record what every loader in this process and its children does into the directory `path`.

    An earlier trace there is replaced, other files in it are left alone; a directory that holds anything but a trace
    is refused with FileExistsError. While another recording uses the directory, `run.trace-2` is used instead (then
    `path` and a warning say so).
    `capacity` is how many events each process can record (40 bytes each, on disk); later ones are dropped and
    counted. With `memory` the memory, open files and mappings of this process and its children are sampled too, by a
    separate process (Linux; see tracing.trace.memory). `start()` and `stop()` are what `with` calls. Both can be
    called twice; a `start()` after a `stop()` goes on recording into the same trace."""

    def __init__(self, path: str | os.PathLike[str], *, capacity: int = 1_000_000, memory: bool = False) -> None:
        if capacity < 1:
            raise ValueError(f"capacity is how many events a process can record: at least 1, not {capacity}")
        self.path = Path(path).absolute()
        self.capacity = capacity
        self.memory = memory
        self._sampler: MemorySampler | None = None
        self._writer: EventWriter | None = None
        self._previous: events.Recorder | None = None
        self._claimed = False
        self.failure: OSError | None = None  # once it is stopped: why this process could not record everything

    def start(self) -> record:
        """Begin to record. Returns itself. Raises FileExistsError as above, OSError if `path` cannot be made."""
        if self._writer is None:
            self._open_directory()
            self._writer = EventWriter(self.path, self.capacity)
            self._previous = events.install(self._writer.record)
            if self.memory and sys.platform == "linux":
                self._sampler = MemorySampler(self.path / fmt.MEMORY)
        return self

    def _open_directory(self) -> None:
        if self._claimed:
            trace_directory.describe(self.path)
        else:
            with trace_directory.claimed(self.path) as used:
                trace_directory.describe(used)
            if used != self.path:
                warnings.warn(f"{self.path} is being recorded into: recording into {used}", stacklevel=3)
            self.path, self._claimed = used, True
        trace_directory.recorded_here.add(self.path)

    def stop(self) -> None:
        """End recording here and in everything started from now on; workers that live on go on recording."""
        writer, self._writer = self._writer, None
        if writer is not None:
            trace_directory.note_the_stop(self.path)
            trace_directory.recorded_here.discard(self.path)
            if events.installed() == writer.record:  # else another recorder has been installed since: leave it
                events.install(self._previous)
            writer.close()
            self.failure = writer.failure
            if self._sampler is not None:
                self._sampler.stop()
            trace_directory.cut_files_of_the_dead(self.path)

    def __enter__(self) -> record:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
