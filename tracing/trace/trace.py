"""Read side: a directory of files -> one trace in time order.

trace = tracing.load("run.trace")     # finished, still growing, or left behind by a crash
trace.events                          # numpy structured array, tracing.recording.file_format.RECORD_DTYPE
trace.tasks                           # numpy structured array, TASK_DTYPE: a row per batch
trace.state(k)                        # everything after event k: tracing.trace.state.State
"""

from __future__ import annotations

import bisect
import os
import tempfile
import warnings
import weakref
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from minidl.events import Kind
from tracing.recording import file_format as fmt
from tracing.trace import stacks, state_after_event
from tracing.trace.event_index import Index, Iterator, Lane, Role
from tracing.trace.file_reader import ProcessFiles, TraceDamage, TraceError, not_ours
from tracing.trace.parts import choose
from tracing.trace.stacks import Stack
from tracing.trace.state import State
from tracing.trace.tasks import task_table

if TYPE_CHECKING:
    from minidl.world.simulated import Outcome


class Actor:
    """A thread that emitted events."""

    def __init__(self, pid: int, thread: str, role: Role, of: Iterator | None) -> None:
        self.pid = pid
        self.thread = thread  # its name
        # "main", "worker", "pin" or "feeder": what it is to the first loader it had to do with.
        self.role = Lane(role.lane).name.lower()
        self.loader = -1 if of is None else of.loader  # for all but main: the loader it belongs to, else -1
        self.epoch = -1 if of is None else of.epochs[0]  # the epoch in which it began, -1 for main
        self.worker = role.worker  # for a worker, and for a feeder of one worker's queue, else -1
        self.queue = role.queue  # for a feeder: minidl.events.Queue; else 0


class Loader:
    """One iterator of a DataLoader: with persistent workers it serves several epochs, else one."""

    def __init__(self, trace: Trace, iterator: Iterator) -> None:
        self.loader = iterator.loader  # number of the DataLoader
        self.epochs = tuple(iterator.epochs)  # the epochs it served
        self.num_workers = iterator.num_workers
        self.config = trace.config(iterator.number)  # as LOADER's text has it; {} if it was not recorded
        self.first = iterator.first()  # position of its first event
        self.last = iterator.last()  # position of its last event


def load(path: str | os.PathLike[str] | Outcome, strict: bool = False, *, part: int | str | None = None) -> Trace:
    """Read the trace in directory `path`, which may be finished, still growing, or left behind by a crash. Or, given
    what `minidl.world.simulated.simulate()` returned, the trace of that run; its temporary files are removed with it.

    Of a run of several processes one part is read: the first of `tracing.trace.parts.parts(path)`, or `part`, a rank
    or a name ("rank 1", "process 4711").

    Of a damaged trace, everything before the damage is kept; a TraceDamage warning is issued, and `trace.damage`
    shows where. With `strict` the first damage is raised instead.

    Raises TraceError: not a trace, of a newer format, or nothing in it can be read; LookupError: no such part.
    """
    if isinstance(path, (str, os.PathLike)):
        trace = Trace(choose(path, part).path)
    else:
        from tracing.recording.simulated_run import write  # imports minidl's loader: few need it

        folder = tempfile.TemporaryDirectory(prefix="simulated-", ignore_cleanup_errors=True)
        write(path, Path(folder.name))
        trace = Trace(folder.name)
        weakref.finalize(trace, folder.cleanup)
    if strict and trace.damage:
        raise trace.damage[0]
    for error in trace.damage:
        warnings.warn(str(error), TraceDamage, stacklevel=2)
    return trace


class Trace:
    """Everything recorded so far. `refresh()` reads what has been recorded since."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if not fmt.is_trace(self.path):
            raise TraceError("not a trace: pass the folder that `run` or tracing.record() has named", self.path)
        self.about = fmt.description(self.path)  # when and where it was recorded
        if not self.about and (self.path / fmt.DESCRIPTION).exists():
            raise TraceError("damaged, or of another program", self.path / fmt.DESCRIPTION)
        if (version := self.about.get("format", fmt.VERSION)) != fmt.VERSION:
            raise TraceError(not_ours(version), self.path / fmt.DESCRIPTION)
        self._files: dict[Path, ProcessFiles] = {}
        self._buffer = np.empty(0, fmt.RECORD_DTYPE)
        self._length = 0
        self._actor_of: dict[tuple[ProcessFiles, int], int] = {}  # a file, and the number of an actor in it
        self.index = Index()  # where to find which events
        self.refresh()
        if self._files and all(files.unreadable for files in self._files.values()):
            raise self.damage[0]

    # ---- what is in it

    @property
    def events(self) -> np.ndarray:
        """All events in time order, shape (n,), RECORD_DTYPE. A read-only view: `refresh()` may change its end."""
        view = self._buffer[: self._length]
        view.flags.writeable = False
        return view

    def __len__(self) -> int:
        return self._length

    @cached_property
    def tasks(self) -> np.ndarray:
        """A row per task, epochs in the order in which they began, shape (n,), tracing.trace.tasks.TASK_DTYPE."""
        return task_table(self.events, self.index)

    @cached_property
    def samples(self) -> np.ndarray:
        """Samples of the processes' CPU time so far, shape (m,), SAMPLE_DTYPE of the file format, in time order.

        A process is sampled from its first event on, up to ten times a second for a minute, then every second; and when
        its recording stops. The last sample shows how long it lived. Where samples are missing, the watching thread
        could not run: other code held Python's lock, or the process was stopped or got no core."""
        paths = map(fmt.samples_file, fmt.events_files(self.path))
        found = [np.fromfile(path, fmt.SAMPLE_DTYPE) for path in paths if path.is_file()]  # without half a last one
        return _in_time_order(np.concatenate([np.empty(0, fmt.SAMPLE_DTYPE), *found]))

    @cached_property
    def stacks(self) -> list[Stack]:
        """The lines that processes were in, in time order. Of each process the last 8 MB, one look after the other."""
        return stacks.read(self.path)

    @property
    def actors(self) -> list[Actor]:
        """The threads; an event's field `actor` is an index into this list."""
        found = []
        for role, (files, local) in zip(self.index.roles, self._actors, strict=True):
            of = None if role.iterator < 0 else self.index.iterators[role.iterator]
            found.append(Actor(files.header.pid if files.header else 0, files.thread_name(local), role, of))
        return found

    @property
    def loaders(self) -> list[Loader]:
        """The iterators, in the order of their first events; a LoaderState's `iterator` is an index into this list."""
        return [Loader(self, each) for each in self.index.iterators]

    def config(self, iterator: int) -> dict[str, Any]:
        """The configuration that an iterator was built with; {} if it was not recorded."""
        announced = self.index.group(iterator, Kind.LOADER)
        text = self.text(int(announced.array[0])) if len(announced) else None
        return text if isinstance(text, dict) else {}

    def text(self, event: int | np.void) -> Any:
        """The text of an event (given the event or its position), decoded from JSON. None if it has none."""
        found = self._buffer[: self._length][event] if isinstance(event, (int, np.integer)) else event
        files, _ = self._actors[found["actor"]]
        return files.text(int(found["text"]))

    @property
    def start(self) -> int:
        """Time of the first event (ns); of a trace without events, when its recording began."""
        return int(self._buffer["time"][0] if self._length else self.about.get("monotonic", 0))

    @property
    def duration(self) -> int:
        """From the first event to the last (ns)."""
        return int(self._buffer["time"][self._length - 1]) - self.start if self._length else 0

    @property
    def dropped(self) -> int:
        """Events that were not recorded because their process's file was full."""
        return sum(files.header.dropped for files in self._files.values() if files.header)

    @property
    def damage(self) -> list[TraceError]:
        """What could not be read, and where."""
        return [error for files in self._files.values() for error in files.damage]

    @property
    def complete(self) -> int:
        """How many events, from the first on, are without a gap. Later ones may be missing because a file was full or
        damaged, or because the recording was stopped while workers went on. The whole length for a sound trace."""
        ends = [files.last_time for files in self._files.values() if files.incomplete]
        stopped = self.about.get("stopped")
        if isinstance(stopped, int):
            ends.append(stopped)
        return bisect.bisect_right(self._buffer["time"][: self._length], min(ends)) if ends else self._length

    def state(self, k: int = -1) -> State:
        """The state after event `k`; a negative `k` counts from the end, so -1 is the last event."""
        if not -self._length <= k < max(self._length, 1) and not (self._length == 0 and k == -1):
            raise IndexError(f"event {k} of {self._length}")
        return state_after_event.state(self, k + self._length if k < 0 else k)

    # ---- reading what is new

    def refresh(self) -> int:
        """Read what was recorded since the last time; return how many events that is. Raises TraceError for a newer
        format; any other damage is added to `damage`."""
        for name in ("tasks", "samples", "stacks"):
            vars(self).pop(name, None)  # else they stay what they were when they were first asked for
        for path in fmt.events_files(self.path):
            if path not in self._files:
                self._files[path] = ProcessFiles(path)
        events = np.concatenate([self._buffer[:0], *map(self._read, self._files.values())])
        self._actors = list(self._actor_of)
        if len(events):
            self._insert(_in_time_order(events))
        return len(events)

    def _read(self, files: ProcessFiles) -> np.ndarray:
        events = files.read(self._length)
        if len(events):
            there = np.flatnonzero(np.bincount(events["actor"]))
            actors = np.zeros(int(there[-1]) + 1, np.uint32)
            for local in there.tolist():
                actors[local] = self._actor_of.setdefault((files, local), len(self._actor_of))
            events["actor"] = actors[events["actor"]]
        return events

    def _insert(self, new: np.ndarray) -> None:
        """Insert `new`, in time order, where it belongs: usually at the end. Processes are read one after the other, so
        one that is read late may have events from before some that are already here."""
        first = bisect.bisect_right(self._buffer["time"][: self._length], new["time"][0])
        tail = self._buffer[first : self._length]
        if len(tail):
            self.index.remove(self._buffer[: self._length], first)
            new = _in_time_order(np.concatenate([tail, new]))
        length = first + len(new)
        if length > len(self._buffer):
            more = np.empty(max(length, 2 * first) - first, fmt.RECORD_DTYPE)
            self._buffer = np.concatenate([self._buffer[:first], more]) if first else new
        if self._buffer is not new:
            self._buffer[first:length] = new
        self._length = length
        if not self.index.add(self._buffer[:length], first, len(self._actors)):
            self.index = Index()
            self.index.add(self._buffer[:length], 0, len(self._actors))


def _in_time_order(events: np.ndarray) -> np.ndarray:
    return np.take(events, np.argsort(events["time"], kind="stable"))  # ten times as quick as events[...]
