"""Write side: events to files.

`Recorder.record` is what `minidl.events.emit` calls. What it guarantees:
1. A place is claimed by `next()` on a counter, which is atomic under Python's lock, and the record's last
   byte written is its kind. No lock, no system call; a reader never takes half a record for a whole one.
2. Records lie in a shared mapping of a file: a process killed with -9 loses nothing that it had said.
3. Every process has files of its own, so that tracing adds no order to the protocol it watches. A forked
   child opens its own at its first event; one that was spawned unpickles the recorder and does the same.
4. Whatever fails (a full file, a full disk, the directory gone) costs events, never the load.

Legend
    place  808           where in the file an event goes (bytes): 128 + 40 * how many came before it
    limit  1048576       places below it may be written to: the file has room on disk for them
    actor  2             which thread of this process spoke; the first to speak is 0
"""

from __future__ import annotations

import contextlib
import enum
import errno
import itertools
import json
import mmap
import os
import threading
import time
import types
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minidl.events import CLOCKED
from tracing.recording import file_format as fmt

CHUNK = 1 << 20  # the file is given room on disk in pieces of this size (bytes)
MAX_TEXT = 1 << 16  # longer texts are cut


def _thread_name() -> str:
    return threading.current_thread().name


@dataclass(frozen=True)
class Host:
    """What a recorder asks of its surroundings. A simulated world passes its own."""

    clock: Callable[[], int] = time.monotonic_ns  # ns; one clock for all processes
    cpu_clock: Callable[[], int] = time.thread_time_ns  # ns of CPU that the calling thread has used
    wall_clock: Callable[[], int] = time.time_ns  # ns since 1970
    pid: Callable[[], int] = os.getpid
    parent: Callable[[], int] = os.getppid
    threads: Callable[[], Any] = threading.local  # makes an object whose attributes each thread has for itself
    thread_name: Callable[[], str] = _thread_name


def render(text: object) -> str:
    """`text` as JSON; what JSON cannot hold as its `repr`. Never raises: these are the user's objects."""
    try:
        rendered = _encode(text)
    except Exception:
        rendered = _encode(_repr(text))
    return rendered if len(rendered) <= MAX_TEXT else _encode(rendered[:MAX_TEXT] + "…")


def _repr(thing: object) -> str:
    try:
        return repr(thing)
    except Exception:
        return f"<{type(thing).__name__}, whose repr raises>"


_encode = json.JSONEncoder(default=_repr).encode


class Phase(enum.Enum):
    """How far a recorder is in this process."""

    NEW = "new"  # nothing was recorded yet: there are no files
    OPENING = "opening"
    OPEN = "open"
    CLOSED = "closed"  # stopped, or its files could not be made: every event is dropped


class Recorder:
    """Writes the events of this process into the trace in `directory`.

    Install `recorder.record`. It can be pickled, and then records in the process that unpickles it.
    """

    def __init__(self, directory: str | os.PathLike[str], capacity: int = 1_000_000, host: Host | None = None) -> None:
        self.directory = Path(directory)
        self.capacity = capacity
        self.host = host or Host()
        function, self._bind = _hot_path(self, self.host)
        # The method is bound by hand: the function is a closure, whose variables Python reads faster than attributes.
        # Pickled, a method becomes `getattr(recorder, "record")`, which is what we want in the other process.
        self.record = types.MethodType(function, self)
        self._reset()
        _recorders.add(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self.directory), self.capacity, self.host)

    def _reset(self) -> None:
        """Forget everything that belongs to the process: the next event opens files."""
        self._phase = Phase.NEW
        self._lock = threading.RLock()  # for opening and growing, never for recording
        self._files: _Files | None = None
        self._places = itertools.count(fmt.HEADER_SIZE, fmt.RECORD.size)
        self._limit = 0
        self._bind(self._places, 0, None, None)

    def after_fork(self) -> None:
        """In the child. What was open is the parent's, who goes on writing to it: our copies are let go."""
        if self._files is not None:
            self._files.release()
        if self._phase is not Phase.CLOSED:
            self._reset()

    def no_room(self, place: int) -> bool:
        """Called for a place beyond the limit, as the first is: whether it can be used now, or the event is dropped."""
        if self._phase in (Phase.NEW, Phase.OPENING):
            with self._lock:  # other threads wait here until the files are open ...
                # ... but a signal handler that interrupts its own thread while that opens them drops its event.
                if self._phase is Phase.NEW:
                    self._phase = Phase.OPENING
                    self._phase = Phase.OPEN if self._open() else Phase.CLOSED
        files = self._files
        if files is None or self._phase is not Phase.OPEN:
            return False
        if place < files.end and self._grow(files, place):
            return True
        fmt.COUNT.pack_into(files.memory, fmt.DROPPED_AT, (place - files.end) // fmt.RECORD.size + 1)
        return False

    def _open(self) -> bool:
        """Make this process's pair of files. False where that is impossible: the load goes on unrecorded."""
        self._texts, self._actors = itertools.count(), itertools.count()
        self._threads = self.host.threads()
        try:
            self._files = _Files(self.directory, self.capacity, self.host)
        except OSError:
            return False
        return self._grow(self._files, fmt.HEADER_SIZE)

    def _grow(self, files: _Files, place: int) -> bool:
        """Give the file room on disk up to `place` and some more. False if the disk is full."""
        with self._lock:
            if place >= self._limit and self._phase is not Phase.CLOSED:
                self._limit = files.make_room(place)
                self._bind(self._places, self._limit, files.memory, self._threads)
        return place < self._limit

    def new_actor(self) -> int:
        """Number the calling thread at its first event. (Not by its ident: those are used again.)"""
        actor = min(next(self._actors), fmt.MAX_ACTORS - 1)
        self._threads.actor = actor
        self._write_line(json.dumps({"actor": actor, "name": self.host.thread_name()}))
        return actor

    def write_text(self, text: object) -> int:
        """Append `text` to the text file; return what the record says to find it: 1 + its number, 0 if it is lost."""
        number = next(self._texts)
        return number + 1 if self._write_line(f"[{number}, {render(text)}]") else 0

    def _write_line(self, line: str) -> bool:
        # One write on a descriptor opened to append: whole and in one place, whichever thread it comes from, and
        # in the kernel's hands before the event that points to it is written.
        assert self._files is not None
        try:
            os.write(self._files.text, line.encode() + b"\n")
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Stop, and cut this process's file to what is used. Can be called twice."""
        with self._lock:
            was, self._phase = self._phase, Phase.CLOSED
            if was is Phase.OPEN and self._files is not None:
                self._bind(self._places, -1, self._files.memory, self._threads)
                # Another thread may have claimed its place and be about to write. It can: the mapping stays until the
                # recorder is collected, and the file keeps every place claimed so far. (Beyond its end: SIGBUS.)
                self._files.cut(min(next(self._places), self._files.end))


class _Files:
    """One process's pair of open files. They stay open until their recorder is collected: see `Recorder.close`."""

    def __init__(self, directory: Path, capacity: int, host: Host) -> None:
        # Places before it can be written to: fewer once the disk is full.
        self.end = fmt.HEADER_SIZE + capacity * fmt.RECORD.size
        self._events, path = self._create(directory, host.pid())
        self.text = os.open(fmt.text_file(path), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self.release = weakref.finalize(self, _close, self._events, self.text)
        self.release.atexit = False  # daemon threads may still record then
        os.ftruncate(self._events, self.end)
        self.make_room(fmt.HEADER_SIZE)
        self.memory = mmap.mmap(self._events, self.end)
        about = (fmt.VERSION, fmt.RECORD.size, host.pid(), host.parent(), host.clock(), host.wall_clock())
        # The magic comes last: a reader leaves the file alone until it is there.
        fmt.HEADER.pack_into(self.memory, 0, bytes(len(fmt.MAGIC)), *about, capacity, -1, 0)
        self.memory[: len(fmt.MAGIC)] = fmt.MAGIC

    @staticmethod
    def _create(directory: Path, pid: int) -> tuple[int, Path]:
        for number in itertools.count():
            path = fmt.events_file(directory, pid, number)
            with contextlib.suppress(FileExistsError):  # an earlier recording of this process, or of one with its pid
                return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644), path
        raise AssertionError("count() does not end")

    def make_room(self, place: int) -> int:
        """Reserve disk for `place` and what follows it in its chunk; return the limit, `place` if the disk is full.

        Without this a full disk would show as SIGBUS at a write to the mapping, which kills the process."""
        end = min((place + fmt.RECORD.size) // CHUNK * CHUNK + CHUNK, self.end)
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self._events, place, end - place)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                self.end = min(self.end, place)
                return place
        return end - (end - fmt.HEADER_SIZE) % fmt.RECORD.size  # a record that straddles two chunks: in the next

    def cut(self, end: int) -> None:
        """Say how many records there are, and end the file behind the last."""
        fmt.COUNT.pack_into(self.memory, fmt.USED_AT, (end - fmt.HEADER_SIZE) // fmt.RECORD.size)
        os.ftruncate(self._events, end)


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _hot_path(recorder: Recorder, host: Host) -> tuple[Callable[..., None], Callable[..., None]]:
    """The function that records an event, and the one that tells it where to."""
    places: Any = itertools.count()
    limit = 0
    memory: Any = None
    threads: Any = None
    clock, cpu_clock, pack = host.clock, host.cpu_clock, fmt.RECORD.pack_into

    def record(
        _self: Recorder, kind: int, epoch_id: int, task: int, worker: int, queue: int, value: int, text: object
    ) -> None:
        place = next(places)
        if place >= limit and not recorder.no_room(place):
            return
        try:
            actor = threads.actor
        except AttributeError:
            actor = recorder.new_actor()
        where = 0 if text is None else recorder.write_text(text)
        if kind < CLOCKED:
            value = cpu_clock()
        pack(memory, place, clock(), epoch_id, value, where, task, worker, actor, queue, kind)

    def bind(new_places: Any, new_limit: int, new_memory: Any, new_threads: Any) -> None:
        nonlocal places, limit, memory, threads
        limit = -1  # while the rest changes, events of other threads go through no_room()
        places, memory, threads = new_places, new_memory, new_threads
        limit = new_limit

    return record, bind


_recorders: weakref.WeakSet[Recorder] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for recorder in list(_recorders):
        recorder.after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)
