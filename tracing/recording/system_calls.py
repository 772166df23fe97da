"""System calls that keep Python's lock. Those of `os` and `select` give it up, so that another thread takes it; to have
it back the caller may have to wait for a core, or for that thread's turn to end (5 ms)."""

from __future__ import annotations

import ctypes
import os
import select

_libc = ctypes.PyDLL(None)

write = _libc.write  # (descriptor, data, bytes) -> bytes written, or -1
write.argtypes = ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t


class _PollFd(ctypes.Structure):
    """poll(2)'s."""

    _fields_ = (("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short))


poll = _libc.poll  # (readable(descriptor), 1, ms) -> 1 if it can be read, or 0, or -1


def readable(descriptor: int) -> object:
    """What to ask `poll` for."""
    return ctypes.byref(_PollFd(descriptor, select.POLLIN))


def read(path: str, size: int = 4096) -> bytes:
    """The beginning of a file that is at hand: one of /proc. Raises OSError."""
    buffer = ctypes.create_string_buffer(size)
    file = _libc.open(path.encode(), os.O_RDONLY | os.O_CLOEXEC)
    try:
        got = _libc.read(file, buffer, size)
    finally:
        _libc.close(file)
    if got < 0:
        raise OSError(f"cannot be read: {path}")
    return buffer.raw[:got]
