"""Reads one process's pair of files as far as they are written: finished, growing, cut off or damaged.

No file is changed here, and none is mapped: if its process truncated a mapped file, the reader would be killed.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np

from minidl.events import DIED, Kind, Queue
from tracing.recording import file_format as fmt

FIRST_READ, LONGEST_READ = 1 << 10, 1 << 16  # records read at once: few at first, then more and more
MAX_HOLES = 64  # records claimed but not yet written that are looked at again: each thread claims one at a time
MAX_WORKERS = 1 << 12  # of one loader; a state has a row for each
MAX_SLOTS = 1 << 20

GONE = "gone: the trace was removed, or recorded again"

# A line of a text file: a text, a thread's name, not (or not wholly) written yet, or damaged.
LINE = re.compile(rb"""\[(\d+), ([^\n\0]*)\] *\n|\{"actor": (\d+), "name": ("(?:[^"\\]|\\.)*")\} *\n|[^\n\0]*\0|.*\n""")

KNOWN_KINDS = np.zeros(256, bool)
KNOWN_KINDS[[0, *Kind]] = True
OF_SLOTS = np.zeros(256, bool)  # [kind] -> whether its `value` is a slot
OF_SLOTS[[Kind.SLOT_GRANTED, Kind.SLOT_LENT, Kind.SLOT_FREE]] = True


class TraceError(ValueError):
    """A trace that cannot be read. The message is one line and names the file, and the offset in it (bytes)."""

    def __init__(self, what: str, path: Path, offset: int | None = None) -> None:
        super().__init__(f"{path}: {what}" if offset is None else f"{path}, byte {offset}: {what}")
        self.path, self.offset = path, offset


def not_ours(version: int) -> str:
    """Why another version fails."""
    how = "update it" if version > fmt.VERSION else "record it again"
    return f"it has format {version}, and this program reads {fmt.VERSION}: {how}"


class TraceDamage(UserWarning):
    """Part of a trace cannot be read; everything before the damage was kept."""


class ProcessFiles:
    """What one process recorded. `read()` returns what is new."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text_path = fmt.text_file(path)
        self.header: fmt.Header | None = None  # None: its process has not written it yet
        self.damage: list[TraceError] = []
        self.texts: dict[int, bytes] = {}  # number -> JSON
        self.thread_names: dict[int, bytes] = {}  # actor -> JSON
        self.last_time = 0  # of the last record read; before the first, the header's start (ns)
        self._known = 0
        self._next = 0  # the record to read next
        self._holes: list[int] = []
        self._text_at = 0  # where the text file is read next (bytes)
        self._broken = False  # damaged: nothing more is read

    @property
    def incomplete(self) -> bool:
        """Whether its process emitted more than can be read: its file was full, or is damaged."""
        return self._broken or (self.header is not None and self.header.dropped > 0)

    @property
    def unreadable(self) -> bool:
        """Whether it is damaged from its start."""
        return self._broken and self._next == 0

    def read(self, known: int) -> np.ndarray:
        """The records written since the last time (RECORD_DTYPE), in the order of the file.
        `known` is how many events the whole trace has so far: which task ids are plausible depends on it.

        Raises TraceError for another format. Other damage is appended to `damage`, and reading stops before it.
        """
        if self._broken:
            return np.empty(0, fmt.RECORD_DTYPE)
        self._known = known
        try:
            records = self._read_events()
        except FileNotFoundError:
            self._damaged(GONE, 0)
            return np.empty(0, fmt.RECORD_DTYPE)
        # The texts last: a text is written before the record that points to it.
        self._read_texts()
        self._check_texts(records)
        if len(records):
            self.last_time = max(self.last_time, int(records["time"].max()))
        return records

    def _read_events(self) -> np.ndarray:
        with open(self.path, "rb") as file:
            # The size first: a process that closes its file writes how many records there are, then truncates it.
            size = os.fstat(file.fileno()).st_size
            if not self._read_header(file.read(fmt.HEADER.size), size):
                return np.empty(0, fmt.RECORD_DTYPE)
            records = np.concatenate([self._read_holes(file.fileno()), *self._read_records(file.fileno())])
            assert self.header is not None
            # A file that its process has closed has the size that its header promises.
            if not self._broken and size < fmt.HEADER_SIZE + self.header.used * fmt.RECORD.size:
                self._damaged(f"cut off: {self.header.used} records were promised, {self._next} are there", size)
            return records

    def _damaged(self, what: str, offset: int) -> None:
        self.damage.append(TraceError(what, self.path, offset))
        self._broken = True

    def _read_header(self, data: bytes, size: int) -> bool:
        """Whether there is a header that can be read."""
        if size == 0 or (size >= fmt.HEADER_SIZE and not any(data[: len(fmt.MAGIC)])):
            return False  # being written; or its process was killed while it wrote
        if size < fmt.HEADER_SIZE:
            self._damaged(f"cut off: a header has {fmt.HEADER_SIZE} bytes", size)
            return False
        header = fmt.Header(*fmt.HEADER.unpack(data))
        if header.magic != fmt.MAGIC:
            self._damaged("not an events file: it begins differently", 0)
        elif header.version != fmt.VERSION:
            raise TraceError(not_ours(header.version), self.path, 8)
        elif self.header is not None and header.start != self.header.start:
            self._damaged(GONE, 0)
        elif header.record_size != fmt.RECORD.size:
            self._damaged("damaged header", 12)
        if not self._broken:
            self.last_time = self.last_time or header.start
            self.header = header
        return not self._broken

    def _read_records(self, fd: int) -> list[np.ndarray]:
        """Block by block, until one ends in records that are not written yet.

        Not until there is nothing more: a process that keeps recording would keep its reader here for ever.
        """
        blocks, length = [], FIRST_READ
        while not self._broken:
            data = os.pread(fd, length * fmt.RECORD.size, fmt.HEADER_SIZE + self._next * fmt.RECORD.size)
            block = np.frombuffer(data, fmt.RECORD_DTYPE, len(data) // fmt.RECORD.size)
            written = np.flatnonzero(block["kind"])
            if len(written) == 0:
                break
            block = block[: int(written[-1]) + 1]
            if len(written) < len(block):
                holes = self._next + np.flatnonzero(block["kind"] == 0)
                self._holes = [*self._holes, *holes.tolist()][-MAX_HOLES:]
            blocks.append(self._valid(block, self._next))
            self._next += len(block)
            if len(block) + MAX_HOLES < length:  # more empty records than threads can have claimed
                break
            length = min(2 * length, LONGEST_READ)
        return blocks

    def _read_holes(self, fd: int) -> np.ndarray:
        """A thread that had claimed a record may have written it since."""
        found, still = [np.empty(0, fmt.RECORD_DTYPE)], []
        for number in self._holes:
            data = os.pread(fd, fmt.RECORD.size, fmt.HEADER_SIZE + number * fmt.RECORD.size)
            record = np.frombuffer(data, fmt.RECORD_DTYPE, len(data) // fmt.RECORD.size)
            if len(record) and record["kind"][0]:
                found.append(self._valid(record, number))
            else:
                still.append(number)
        self._holes = still
        return np.concatenate(found)

    def _valid(self, block: np.ndarray, first: int) -> np.ndarray:
        """The written records of a block, up to the first impossible one; `first` is the number of its first record."""
        impossible = (
            ~KNOWN_KINDS[block["kind"]]
            | (block["queue"] > max(Queue))
            | (block["worker"] < -1)
            | (block["time"] < 0)
            | (block["actor"] >= fmt.MAX_ACTORS)
            # Task ids count from 0, and each task has several events. Tables are as long as the largest id.
            | (block["task"] < DIED)
            | (block["task"] > 8 * (self._known + first) + 8192)
            | ((block["kind"] == Kind.LOADER) & ((block["value"] < 0) | (block["value"] > MAX_WORKERS)))
            | (OF_SLOTS[block["kind"]] & ((block["value"] < -1) | (block["value"] > MAX_SLOTS)))
        ) & (block["kind"] != 0)
        if impossible.any():
            where = int(np.argmax(impossible))
            self._damaged("not a record", fmt.HEADER_SIZE + (first + where) * fmt.RECORD.size)
            block = block[:where]
        return block if block["kind"].all() else block[block["kind"] != 0]

    # ---- texts

    def _read_texts(self) -> None:
        try:
            with open(self.text_path, "rb") as file:
                file.seek(self._text_at)
                data = file.read()
        except FileNotFoundError:
            return
        whole = data.rfind(b"\n") + 1
        for found in LINE.finditer(data, 0, whole):
            number, text, actor, name = found.groups()
            if number is not None:
                self.texts[int(number)] = text
            elif actor is not None:
                self.thread_names[int(actor)] = name
            elif not found[0].endswith(b"\0"):
                self._text_damaged("not a text", self._text_at + found.start())
        # From where a thread had claimed a place, but not yet written, it is all read again.
        unwritten = data.find(b"\0", 0, whole)
        self._text_at += whole if unwritten < 0 else data.rfind(b"\n", 0, unwritten) + 1

    def _check_texts(self, records: np.ndarray) -> None:
        wanted = records["text"]
        for number in wanted[wanted > 0].tolist():
            if number - 1 not in self.texts:
                self._text_damaged(f"text {number - 1} is missing, and perhaps others", self._text_at)
                break

    def _text_damaged(self, what: str, offset: int) -> None:
        """Reported once. The events are sound; only their texts are not."""
        if not any(error.path == self.text_path for error in self.damage):
            self.damage.append(TraceError(what, self.text_path, offset))

    def text(self, number: int) -> Any:
        """The text that a record's field `text` points to; None if it has none or it is lost."""
        return _decoded(self.texts.get(number - 1, b""))

    def thread_name(self, actor: int) -> str:
        """The name of a thread; "" if it is lost."""
        return str(_decoded(self.thread_names.get(actor, b"")) or "")


def _decoded(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
