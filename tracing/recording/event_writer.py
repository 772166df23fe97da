"""Writes events to disk: `EventWriter.record` is what `minidl.events.emit` calls.

What it guarantees:
1. An event's place in the file is claimed by `next()` on a counter, which is atomic under Python's lock, and the last
   byte written of a record is its kind. No lock, no system call (but for a turn that the watching thread is given, a
   few times a second); a reader never takes half a record for a whole one.
2. Records are in a shared mapping of a file: a process killed with -9 loses no event that it has recorded.
3. Every process has its own files, so tracing adds no order to the protocol it watches. A forked child opens its own
   at its first event; a spawned one unpickles the writer and does the same.
4. Any failure (a full file, a full disk, a deleted directory) costs events, never the load.

Legend
    offset  808           where in the file an event goes (bytes): 128 + 40 * the number of events before it
    limit   1048576       offsets below it can be written to: the file has disk space for them
    actor   2             which thread of this process recorded the event; the first to do so is 0
"""

from __future__ import annotations

import contextlib
import enum
import errno
import itertools
import json
import mmap
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minidl.events import CLOCKED, LOADER
from tracing.recording import file_format as fmt
from tracing.recording import system_calls, watch
from tracing.recording.loader_text import configuration

CHUNK = 1 << 20  # disk space is reserved in pieces of this size (bytes)
MAX_TEXT = 1 << 16  # longer texts are cut

_pack_into = fmt.RECORD.pack_into
_write = system_calls.write


def _thread_name() -> str:
    return threading.current_thread().name


@dataclass(frozen=True)
class Host:
    """What a writer asks of its surroundings. A simulated world passes its own."""

    clock: Callable[[], int] = time.monotonic_ns  # ns; one clock for all processes
    cpu_clock: Callable[[], int] = time.thread_time_ns  # ns of CPU that the calling thread has used
    wall_clock: Callable[[], int] = time.time_ns  # ns since 1970
    pid: Callable[[], int] = os.getpid
    parent: Callable[[], int] = os.getppid
    threads: Callable[[], Any] = threading.local  # makes an object whose attributes each thread has for itself
    thread_name: Callable[[], str] = _thread_name
    is_real: bool = True  # there is a process to watch


def render(text: object) -> str:
    """`text` as JSON; the `repr` of what JSON cannot hold. Never raises: these are the user's objects."""
    try:
        # A batch's keys. Of plain ints Python's own notation is JSON, at a third of what the encoder takes.
        rendered = str(text) if type(text) is list and set(map(type, text)) == _INT else _encode(text)
    except Exception:
        rendered = _encode(_repr(text))
    return rendered if len(rendered) <= MAX_TEXT else _encode(rendered[:MAX_TEXT] + "…")


def _repr(thing: object) -> str:
    try:
        return repr(thing)
    except Exception:
        return f"<{type(thing).__name__}, whose repr raises>"


_encode = json.JSONEncoder(default=_repr).encode
_INT = {int}  # not bool, whose instances are ints too


class Phase(enum.Enum):
    """How far a writer has come in this process."""

    NEW = "new"  # no event yet, so no files
    OPENING = "opening"
    OPEN = "open"
    CLOSED = "closed"  # stopped, or its files could not be made: every event is dropped


class EventWriter:
    """Writes the events of this process into the trace in `directory`.

    Install its method `record`. That can be pickled, and then records in the process that unpickles it.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        capacity: int = fmt.CAPACITY,
        host: Host | None = None,
        first: Callable[[], None] | None = None,
    ) -> None:
        self.directory = Path(directory)
        self.capacity = capacity
        self.host = host or Host()
        self._first = first  # called at the first event of this process, and of no other
        self._clock, self._cpu_clock = self.host.clock, self.host.cpu_clock
        self._unopened: OSError | None = None
        self._forget_process()
        _writers.add(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self.directory), self.capacity, self.host)

    def _forget_process(self) -> None:
        """Drop everything that belongs to one process: the next event opens files."""
        self._limit = 0  # first: nothing is written until files are open
        self._phase = Phase.NEW
        self._lock = threading.RLock()  # for opening and growing, never for recording
        self._files: _Files | None = None
        self._watch = watch.NoWatch()
        self._memory: Any = None  # the mapping of the events file
        self._threads: Any = None
        self._offsets = itertools.count(fmt.HEADER_SIZE, fmt.RECORD.size)

    def after_fork(self) -> None:
        """In the child. The open files are the parent's, which goes on writing to them: let go of our copies."""
        if self._files is not None:
            self._files.release()
        self._first = None
        if self._phase is not Phase.CLOSED:
            self._forget_process()

    def record(self, kind: int, epoch_id: int, task: int, worker: int, queue: int, value: int, text: object) -> None:
        """Write one event. The hot path: every step of the loader pays for each line of it (some 400 ns in all)."""
        offset = next(self._offsets)  # ours alone, whichever threads record at this moment
        if offset >= self._limit and not self._extend_to(offset):
            return  # dropped, and counted
        try:
            actor = self._threads.actor
        except AttributeError:  # this thread's first event
            actor = self._new_actor()
        text_id = 0 if text is None else self._write_text(configuration(text) if kind == LOADER else text)
        if kind < CLOCKED:
            value = self._cpu_clock()
        now = self._clock()
        _pack_into(self._memory, offset, now, epoch_id, value, text_id, task, worker, actor, queue, kind)
        if now >= self._watch.wanted:  # a few times a second
            self._watch.give_turn(now)

    def _extend_to(self, offset: int) -> bool:
        """Make `offset`, at or beyond the limit, one that can be written to; the first one opens the files. False: the
        event is dropped."""
        if self._phase in (Phase.NEW, Phase.OPENING) or self._first is not None:
            with self._lock:  # other threads wait here until the files are open ...
                # ... but a signal handler that interrupts its own thread while that opens them drops its event.
                self.open()
                first, self._first = self._first, None
                if first is not None and self._phase is Phase.OPEN:
                    first()
        files = self._files
        if files is None or self._phase is not Phase.OPEN:
            return False
        if offset < files.end and self._grow(files, offset):
            return True
        if offset == files.end and files.failure is None and self.host.is_real:  # only one thread has this offset
            _say_full(files.capacity)
        fmt.COUNT.pack_into(files.memory, fmt.DROPPED_AT, (offset - files.end) // fmt.RECORD.size + 1)
        return False

    def open(self) -> None:
        """Make the files, unless they are there; from then on the process is watched. The first event does that, at the
        latest: called before, what the process does until then is seen."""
        with self._lock:
            if self._phase is Phase.NEW:
                self._phase = Phase.OPENING
                self._phase = Phase.OPEN if self._open() else Phase.CLOSED

    @property
    def failure(self) -> OSError | None:
        """Why events of this process are missing: its files could not be made, or the disk became full."""
        return self._unopened or (self._files.failure if self._files is not None else None)

    def _open(self) -> bool:
        """Make this process's pair of files. False where that is impossible: the load goes on unrecorded."""
        self._texts, self._actors = itertools.count(), itertools.count()
        self._threads = self.host.threads()
        try:
            self._files = _Files(self.directory, self.capacity, self.host)
        except OSError as error:
            self._unopened = error
            return False
        self._memory = self._files.memory  # before `_grow` raises the limit, from which on `record` writes to it
        if self.host.is_real:
            self._watch = watch.begin(self._files.path, progress=self._offsets.__repr__)
            weakref.finalize(self, self._watch.stop)
        return True

    def _grow(self, files: _Files, offset: int) -> bool:
        """Reserve disk space up to `offset` and beyond. False if the disk is full."""
        with self._lock:
            if offset >= self._limit and self._phase is not Phase.CLOSED:
                self._limit = files.reserve(offset)
        return offset < self._limit

    def _new_actor(self) -> int:
        """Number the calling thread at its first event. (Not by its ident: those are reused.)"""
        actor = min(next(self._actors), fmt.MAX_ACTORS - 1)
        self._threads.actor = actor
        self._write_line(json.dumps({"actor": actor, "name": self.host.thread_name()}))
        return actor

    def _write_text(self, text: object) -> int:
        """Append `text` to the text file; return the id that the record gives it: 1 + its number, 0 if it is lost."""
        number = next(self._texts)
        return number + 1 if self._write_line(f"[{number}, {render(text)}]") else 0

    def _write_line(self, line: str) -> bool:
        # One write on a descriptor opened to append: whole and in one place, whichever thread it comes from, and
        # in the kernel's hands before the event that points to it is written.
        assert self._files is not None
        data = line.encode() + b"\n"
        return bool(_write(self._files.text, data, len(data)) == len(data))

    def close(self) -> None:
        """Stop, and cut this process's file to what is used. Can be called twice."""
        with self._lock:
            self._watch.stop()
            was, self._phase = self._phase, Phase.CLOSED
            if was is Phase.OPEN and self._files is not None:
                self._limit = 0
                # Another thread may have claimed its offset and be about to write. It can: the mapping stays until
                # the writer is collected, and the file keeps every offset claimed so far. (Beyond its end: SIGBUS.)
                self._files.cut(min(next(self._offsets), self._files.end))


class _Files:
    """One process's pair of open files. They stay open until their writer is collected: see `EventWriter.close`."""

    def __init__(self, directory: Path, capacity: int, host: Host) -> None:
        self._events, self.path = self._create(directory, host.pid())
        self.text = os.open(fmt.text_file(self.path), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self.release = weakref.finalize(self, _close, self._events, self.text)
        self.release.atexit = False  # daemon threads may still record then
        self.failure: OSError | None = None  # of the disk, once it is full
        self.memory, self.capacity = self._mapped(capacity)
        # Offsets below it can be written to. Lowered once the disk is full.
        self.end = fmt.HEADER_SIZE + self.capacity * fmt.RECORD.size
        if self.reserve(fmt.HEADER_SIZE) == fmt.HEADER_SIZE and self.failure is not None:
            raise self.failure  # not even the header has a place
        about = (fmt.VERSION, fmt.RECORD.size, host.pid(), host.parent(), host.clock(), host.wall_clock())
        # The magic comes last: a reader leaves the file alone until it is there.
        fmt.HEADER.pack_into(self.memory, 0, bytes(len(fmt.MAGIC)), *about, self.capacity, -1, 0)
        self.memory[: len(fmt.MAGIC)] = fmt.MAGIC

    @staticmethod
    def _create(directory: Path, pid: int) -> tuple[int, Path]:
        for number in itertools.count():
            path = fmt.events_file(directory, pid, number)
            with contextlib.suppress(FileExistsError):  # an earlier recording of this process, or of one with its pid
                return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644), path
        raise AssertionError("count() does not end")

    def _mapped(self, capacity: int) -> tuple[mmap.mmap, int]:
        """The file as memory, and how many records it can hold: fewer where files, or the memory that a process may
        have (`ulimit -f`, `ulimit -v`), are not allowed to be so large."""
        while True:
            end = fmt.HEADER_SIZE + capacity * fmt.RECORD.size
            try:
                os.ftruncate(self._events, end)
                return mmap.mmap(self._events, end), capacity
            except OSError as error:
                if error.errno not in (errno.EFBIG, errno.ENOMEM) or capacity < 10_000:
                    raise
            capacity //= 10

    def reserve(self, offset: int) -> int:
        """Reserve disk space from `offset` to the end of its chunk; return the limit, `offset` if the disk is full.

        Without this, a full disk would show as SIGBUS at a write to the mapping, which kills the process."""
        end = min((offset + fmt.RECORD.size) // CHUNK * CHUNK + CHUNK, self.end)
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self._events, offset, end - offset)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                self.end, self.failure = min(self.end, offset), error
                return offset
        return end - (end - fmt.HEADER_SIZE) % fmt.RECORD.size  # a record that straddles two chunks goes in the next

    def cut(self, end: int) -> None:
        """Write down the number of records, and end the file after the last."""
        fmt.COUNT.pack_into(self.memory, fmt.USED_AT, (end - fmt.HEADER_SIZE) // fmt.RECORD.size)
        os.ftruncate(self._events, end)


def _say_full(capacity: int) -> None:
    line = (
        f"tracing: process {os.getpid()} has recorded {capacity:,} events, as many as it may: what follows is not in "
        f"the trace (--capacity, or tracing.record(capacity=...), allows more)"
    )
    with contextlib.suppress(Exception):  # of a program that has closed its stderr, say
        print(line, file=sys.stderr, flush=True)


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


_writers: weakref.WeakSet[EventWriter] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for writer in list(_writers):
        writer.after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)
