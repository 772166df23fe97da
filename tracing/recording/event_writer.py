"""Writes events to disk: `EventWriter.record` is what `minidl.events.emit` calls.

What it guarantees:
1. An event's place in the file is claimed by `next()` on a counter, which is atomic under Python's lock, and the last
   byte written of a record is its kind. No lock, no system call; a reader never takes half a record for a whole one.
2. Records are in a shared mapping of a file: a process killed with -9 loses no event that it has recorded.
3. Every process has its own files, so tracing adds no order to the protocol it watches. A forked child opens its own
   at its first event; a spawned one unpickles the writer and does the same.
4. Any failure (a full file, a full disk, a deleted directory) costs events, never the load.
5. The file ends at most twice as far from its beginning as the last event, whenever its process is killed.

Legend
    offset  808           where in the file an event goes (bytes): 128 + 40 * the number of events before it
    limit   1048576       offsets below it are writable: the file is that long, and has disk space for them
    actor   2             which thread of this process recorded the event; the first to do so is 0
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import struct
import threading
import time
import weakref
from pathlib import Path
from typing import Any

from minidl.events import CLOCKED, LOADER, describe
from tracing.recording import file_format as fmt
from tracing.recording import watch
from tracing.recording.loader_text import configuration
from tracing.recording.own_files import OwnFile
from tracing.recording.system_calls import mapped

PAGE, CHUNK = 1 << 12, 1 << 20  # a file doubles, but grows by no less and no more than these (bytes)
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
MAX_TEXT = 1 << 16  # longer texts are cut

_pack_into = fmt.RECORD.pack_into
_clock, _cpu_clock = time.monotonic_ns, time.thread_time_ns  # ns; the first is one clock for all processes


def render(text: object) -> str:
    """`text` as JSON; the `repr` of what JSON cannot hold. Never raises: these are the user's objects."""
    try:
        # A batch's keys. For plain ints Python's own notation is JSON, in a third of the encoder's time.
        rendered = str(text) if type(text) is list and set(map(type, text)) == _INT else _encode(text)
    except Exception:
        rendered = _encode(describe(text))
    return rendered if len(rendered) <= MAX_TEXT else _encode(rendered[:MAX_TEXT] + "…")


_encode = json.JSONEncoder(default=describe).encode
_INT = {int}  # not bool, whose instances are ints too


class EventWriter:
    """Writes the events of this process into the trace in `directory`.

    Install its method `record`. That can be pickled, and then records in the process that unpickles it.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)
        self._closed = False  # stopped, or its files cannot be made, or are just being made: events are dropped
        self._files: _Files | None = None
        self.forget_process()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self.directory),)

    def forget_process(self) -> None:
        """Let go of everything that belongs to one process, in a forked child to its parent, which goes on writing: the
        next event opens files."""
        self._limit = 0  # first: nothing is written until files are open
        if self._files is not None:
            self._files.text.close()
        self._files = None
        self._lock = threading.RLock()  # for opening and growing, never for recording
        self._watch = watch.NoWatch()
        self._memory: Any = None  # the mapping of the events file
        self._threads = threading.local()  # its `actor`: the number of the calling thread
        self._texts, self._actors = itertools.count(), itertools.count()
        self._offsets = itertools.count(fmt.HEADER_SIZE, fmt.RECORD.size)
        self.failure: OSError | None = None  # why events of this process are missing: it has no files, or a full disk

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
            value = _cpu_clock()
        _pack_into(self._memory, offset, _clock(), epoch_id, value, text_id, task, actor, worker, queue, kind)

    def _extend_to(self, offset: int) -> bool:
        """Make `offset`, at or beyond the limit, one that can be written to; the first one opens the files. False: the
        event is dropped."""
        if self._files is None:
            with self._lock:  # other threads wait here until the files are open ...
                # ... but a signal handler that interrupts its own thread while that opens them drops its event.
                self.open()
        files = self._files
        if files is None or self._closed:
            return False
        if offset < files.end:
            with self._lock:
                if offset >= self._limit and not self._closed:
                    self._limit, self.failure = files.reserve(offset)
            if offset < self._limit:
                return True
        fmt.COUNT.pack_into(files.memory, fmt.DROPPED_AT, (offset - files.end) // fmt.RECORD.size + 1)
        return False

    def open(self) -> None:
        """Make the files, unless they are there; from then on the process is watched. The first event does so at the
        latest; called earlier, it shows what the process does until then."""
        with self._lock:
            if self._files is not None or self._closed:
                return
            self._closed = True
            try:
                files = _Files(self.directory)
            except OSError as error:  # the load goes on unrecorded
                self.failure = error
                return
            self._files, self._memory = files, files.memory  # before the limit, which lets `record` write to it
            self._limit = files.limit
            with contextlib.suppress(OSError, RuntimeError):  # else nothing is watched: there may be no more threads
                self._watch = watch.Watch(files.events.path)
            weakref.finalize(self, self._watch.stop)
            self._closed = False

    def _new_actor(self) -> int:
        """Number the calling thread at its first event. (Not by its ident: those are reused.)"""
        actor = min(next(self._actors), fmt.MAX_ACTORS - 1)
        self._threads.actor = actor
        self._write_line(json.dumps({"actor": actor, "name": threading.current_thread().name}))
        return actor

    def _write_text(self, text: object) -> int:
        """Append `text` to the text file; return the id that the record gives it: 1 + its number, 0 if it is lost."""
        number = next(self._texts)
        return number + 1 if self._write_line(f"[{number}, {render(text)}]") else 0

    def _write_line(self, line: str) -> bool:
        """At once: a text is in the kernel's hands before the event that points to it is written."""
        assert self._files is not None
        return self._files.text.append(line.encode() + b"\n")

    def close(self) -> None:
        """Stop, and cut this process's file to what is used. Can be called twice."""
        with self._lock:
            self._watch.stop()
            was_closed, self._closed = self._closed, True
            if not was_closed and self._files is not None:
                self._limit = 0
                # Another thread may have claimed its offset and be about to write. It can: the mapping stays until
                # the writer is collected, and the file keeps every offset claimed so far. (Beyond its end: SIGBUS.)
                self._files.cut(min(next(self._offsets), self._files.end))


class _Files:
    """One process's pair of files, made."""

    def __init__(self, directory: Path) -> None:
        """Raises OSError, also if not even a header fits."""
        self.events = self._create(directory)
        self.text = OwnFile(fmt.text_file(self.events.path))
        # Offsets below it can be written to. Lowered once the disk is full.
        self.end = fmt.HEADER_SIZE + fmt.CAPACITY * fmt.RECORD.size
        with self.events.opened() as file:
            self.memory = mapped(file, self.end)  # beyond the file's end it cannot be written to
        self.limit, failure = self.reserve(fmt.HEADER_SIZE)
        if failure is not None:
            raise failure
        about = (os.getpid(), _clock(), -1, 0)
        fmt.HEADER.pack_into(self.memory, 0, bytes(len(fmt.MAGIC)), fmt.VERSION, fmt.RECORD.size, *about)
        struct.pack_into("8s", self.memory, 0, fmt.MAGIC)  # last: a reader leaves the file alone until it is there

    @staticmethod
    def _create(directory: Path) -> OwnFile:
        for number in itertools.count():
            with contextlib.suppress(FileExistsError):  # an earlier recording of this process, or of one with its pid
                file = OwnFile(fmt.events_file(directory, os.getpid(), number))
                file.let_go()  # a mapping needs no descriptor
                return file
        raise AssertionError("count() does not end")

    def reserve(self, offset: int) -> tuple[int, OSError | None]:
        """Make the file longer, so that `offset` can be written to; return the limit. If the disk is full, `offset` and
        the error.

        Reserved: otherwise a full disk would show as SIGBUS at a write to the mapping, which kills the process."""
        end = min(offset + min(max(offset, PAGE), CHUNK), self.end)
        try:
            self._allocate(offset, end)
        except OSError as error:
            self.end = min(self.end, offset)
            return offset, error
        return end - (end - fmt.HEADER_SIZE) % fmt.RECORD.size, None  # no record lies across the end

    def _allocate(self, offset: int, end: int) -> None:
        with self.events.opened() as file:
            try:
                os.posix_fallocate(file, offset, end - offset)
            except (AttributeError, OSError) as error:  # a system, or a disk, that reserves nothing
                if getattr(error, "errno", None) in FULL:
                    raise
                os.ftruncate(file, end)

    def cut(self, end: int) -> None:
        """Write down the number of records, and end the file after the last."""
        fmt.COUNT.pack_into(self.memory, fmt.USED_AT, (end - fmt.HEADER_SIZE) // fmt.RECORD.size)
        self.text.close()
        with contextlib.suppress(OSError), self.events.opened() as file:  # unless it is gone
            os.ftruncate(file, end)
