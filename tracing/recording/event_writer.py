"""Writes events to disk: `EventWriter.record` is what `minidl.events.emit` calls.

What it guarantees:
1. An event's place in the file is claimed by `next()` on a counter, which is atomic under Python's lock, and the last
   byte written of a record is its kind. No lock, no system call; a reader never takes half a record for a whole one.
   So is a text's place: as many steps of another counter as it needs, taken at once.
2. Both are in shared mappings of files: a process killed with -9 loses no event that it has recorded.
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
MOST_TEXT = 1 << 30  # bytes of texts that a process can record; later ones are lost
STEP = 16  # bytes: a text has a multiple of it

_pack_into = fmt.RECORD.pack_into
_clock, _cpu_clock = time.monotonic_ns, time.thread_time_ns  # ns; the first is one clock for all processes


def render(text: object) -> str:
    """`text` as JSON; the `repr` of what JSON cannot hold. Never raises: these are the user's objects."""
    try:
        # A batch's keys. For ints (not bools) Python's own notation is JSON, in a third of the encoder's time.
        rendered = str(text) if type(text) is list and set(map(type, text)) == {int} else _encode(text)
    except Exception:
        rendered = _encode(describe(text))
    return rendered if len(rendered) <= MAX_TEXT else _encode(rendered[:MAX_TEXT] + "…")


_encode = json.JSONEncoder(default=describe).encode


class EventWriter:
    """Writes the events of this process into the trace in `directory`.

    Install its method `record`. That can be pickled, and then records in the process that unpickles it.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)
        self._closed = False  # stopped, or its files cannot be made, or are just being made: events are dropped
        self.forget_process()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self.directory),)

    def forget_process(self) -> None:
        """Let go of everything that belongs to one process, in a forked child to its parent, which goes on writing: the
        next event opens files."""
        self._events: _Mapped | None = None  # nothing is written until it is there
        self._lock = threading.RLock()  # for opening and growing, never for recording
        self._stop_watching: weakref.finalize | None = None
        self._threads = threading.local()  # its `actor`: the number of the calling thread
        self._texts, self._actors = itertools.count(), itertools.count()
        self._places = itertools.count(0, STEP)  # in the text file
        self._offsets = itertools.count(fmt.HEADER_SIZE, fmt.RECORD.size)
        self.failure: OSError | None = None  # why events of this process are missing: it has no files, or a full disk

    def record(self, kind: int, epoch_id: int, task: int, worker: int, queue: int, value: int, text: object) -> None:
        """Write one event. The hot path: every step of the loader pays for each line of it (some 400 ns in all)."""
        # An offset of our own, whichever threads record at this moment; a handler that interrupts us may fork.
        offset, events = next(self._offsets), self._events
        if (events is None or offset >= events.limit) and (events := self._extend_to(offset)) is None:
            return  # dropped, and counted
        try:
            actor = self._threads.actor
        except AttributeError:  # this thread's first event
            actor = self._new_actor()
        text_id = 0 if text is None else self._write_text(configuration(text) if kind == LOADER else text)
        if kind < CLOCKED:
            value = _cpu_clock()
        _pack_into(events.memory, offset, _clock(), epoch_id, value, text_id, task, actor, worker, queue, kind)

    def _extend_to(self, offset: int) -> _Mapped | None:
        """The file, made long enough for `offset`, which is at or beyond its limit; the first one opens it. None: the
        event is dropped."""
        if self._events is None:
            # Other threads wait here until the files are open, but a signal handler that interrupts its own thread
            # while that opens them drops its event.
            self.open()
        events = self._events
        if events is None or self._closed:
            return None
        if offset < events.end and self._grow(events, offset + fmt.RECORD.size):
            return events
        # (Not beyond the end, but closed meanwhile: none.)
        fmt.COUNT.pack_into(events.memory, fmt.DROPPED_AT, max(0, (offset - events.end) // fmt.RECORD.size + 1))
        return None

    def _grow(self, file: _Mapped, needed: int) -> bool:
        """Whether a file can be written to up to `needed` now."""
        with self._lock:
            if not self._closed:
                try:
                    file.reserve(needed)
                except OSError as error:
                    self.failure = error
                    file.end = file.limit
        return needed <= file.limit

    def open(self) -> None:
        """Make the files, unless they are there; from then on the process is watched. The first event does so at the
        latest; called earlier, it shows what the process does until then."""
        with self._lock:
            if self._events is not None or self._closed:
                return
            self._closed = True
            try:
                # An earlier recording of this process, or of one with its pid, may have left such a file.
                paths = (fmt.events_file(self.directory, os.getpid(), number) for number in itertools.count())
                path = next(path for path in paths if not path.exists())
                events = _Mapped(path, fmt.HEADER_SIZE + fmt.CAPACITY * fmt.RECORD.size)
                self._text = _Mapped(fmt.text_file(path), MOST_TEXT)
            except OSError as error:  # the load goes on unrecorded
                self.failure = error
                return
            fmt.HEADER.pack_into(events.memory, 0, b"", fmt.VERSION, fmt.RECORD.size, os.getpid(), _clock(), -1, 0)
            struct.pack_into("8s", events.memory, 0, fmt.MAGIC)  # last: until then a reader leaves the file alone
            self._events = events  # from now on `record` writes to it
            with contextlib.suppress(OSError, RuntimeError):  # else nothing is watched: there may be no more threads
                self._stop_watching = weakref.finalize(self, watch.Watch(path).stop)
            self._closed = False

    def _new_actor(self) -> int:
        """Number the calling thread at its first event. (Not by its ident: those are reused.)"""
        actor = min(next(self._actors), fmt.MAX_ACTORS - 1)
        self._threads.actor = actor
        self._write_line(json.dumps({"actor": actor, "name": threading.current_thread().name}))
        return actor

    def _write_text(self, text: object) -> int:
        """Write `text` to the text file; return the id that the record gives it: 1 + its number, 0 if it is lost."""
        number = next(self._texts)
        return number + 1 if self._write_line(f"[{number}, {render(text)}]") else 0

    def _write_line(self, line: str) -> bool:
        """Whole, before the event that points to it is written. False: there is no room for it."""
        data, text = line.encode(), self._text
        begin, *more = list(itertools.islice(self._places, len(data) // STEP + 1))  # at once, ours alone: see `record`
        size = STEP + STEP * len(more)
        if begin + size > text.limit and not self._grow(text, begin + size):
            return False
        struct.pack_into(f"{size}s", text.memory, begin, data.ljust(size - 1) + b"\n")
        return True

    def close(self) -> None:
        """Stop, and cut this process's file to what is used. Can be called twice."""
        with self._lock:
            if self._stop_watching is not None:
                self._stop_watching()
            was_closed, self._closed = self._closed, True
            if not was_closed and self._events is not None:
                self._events.limit = self._text.limit = 0  # first: what is claimed from now on is dropped
                # Another thread may have claimed its offset and be about to write. It can: the mapping stays until
                # the writer is collected, and the file keeps every offset claimed so far. (Beyond its end: SIGBUS.)
                end = min(next(self._offsets), self._events.end)
                fmt.COUNT.pack_into(self._events.memory, fmt.USED_AT, (end - fmt.HEADER_SIZE) // fmt.RECORD.size)
                self._events.cut(end)
                self._text.cut(next(self._places))


class _Mapped(OwnFile):
    """A file as memory. It grows as it is written to."""

    def __init__(self, path: Path, end: int) -> None:
        """Make it. Raises OSError, also if it cannot grow at all."""
        super().__init__(path)
        self.let_go()  # a mapping needs no descriptor
        self.limit = 0  # bytes: what is below can be written to
        self.end = end  # up to where it may grow. Lowered once the disk is full
        with self.opened() as file:
            self.memory = mapped(file.fileno(), end)  # beyond the file's end it cannot be written to
        self.reserve(fmt.HEADER_SIZE)

    def reserve(self, needed: int) -> None:
        """Raise the limit to `needed` or more, unless that is above `self.end`. Raises OSError if the disk is full.

        Reserved: otherwise a full disk would show as SIGBUS at a write to the mapping, which kills the process."""
        if self.limit < needed <= self.end:
            end = min(needed + min(max(needed, PAGE), CHUNK), self.end)
            with self.opened() as file:
                try:
                    os.posix_fallocate(file.fileno(), self.limit, end - self.limit)
                except (AttributeError, OSError) as error:  # a system, or a disk, that reserves nothing
                    if getattr(error, "errno", None) in FULL:
                        raise
                    file.truncate(end)
            self.limit = end - (end - fmt.HEADER_SIZE) % fmt.RECORD.size  # no record lies across it

    def cut(self, end: int) -> None:
        """End the file after what is used."""
        with contextlib.suppress(OSError), self.opened() as file:  # unless it is gone
            file.truncate(end)
