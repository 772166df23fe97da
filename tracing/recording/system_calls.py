"""System calls that keep Python's lock. Those of `os` and `select` give it up, so that another thread takes it; to get
it back the caller may have to wait for a core, or for that thread's turn to end (5 ms)."""

from __future__ import annotations

import ctypes
import fcntl
import functools
import mmap
import os
import select
import struct
import weakref

_libc = ctypes.PyDLL(None, use_errno=True)


poll = _libc.poll  # (readable(descriptor), 1, ms) -> 1 if it can be read, or 0, or -1


def readable(descriptor: int) -> object:
    """What to ask `poll` for: poll(2)'s `struct pollfd`."""
    return ctypes.create_string_buffer(struct.pack("ihh", descriptor, select.POLLIN, 0))


# glibc exports fstat since 2.33.
_fstat = _libc.fstat if hasattr(_libc, "fstat") else functools.partial(_libc["__fxstat"], 1)


def file_of(descriptor: int) -> bytes:
    """Which file it is: what `struct stat` begins with, its device and inode. b"" if none."""
    about = ctypes.create_string_buffer(256)
    return about.raw[:16] if _fstat(descriptor, about) == 0 else b""


LEAST = 100  # of our descriptors: see tracing.recording.own_files


_libc.fcntl.argtypes = ctypes.c_int, ctypes.c_int  # the third one is variadic


def above_others(descriptor: int) -> int:
    """The same file under a number that the program does not use: LEAST or above; if there is none, itself."""
    above = int(_libc.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, LEAST))
    if above < 0:  # no more are allowed, or none that high (`ulimit -n`)
        return descriptor
    _libc.close(descriptor)
    return above


def open_above(path: str) -> int:
    """A descriptor of a file, to read it: above the program's. -1: it cannot be opened."""
    return above_others(_libc.open(path.encode(), os.O_RDONLY | os.O_CLOEXEC))


_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long
_libc.munmap.argtypes = ctypes.c_void_p, ctypes.c_size_t


def mapped(descriptor: int, size: int) -> ctypes.Array[ctypes.c_char]:
    """A file as memory, shared; until it is let go of. Raises OSError. (Python's own mmap keeps a descriptor.)"""
    address = _libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, descriptor, 0)
    if address == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    memory = (ctypes.c_char * size).from_address(address)
    weakref.finalize(memory, _libc.munmap, address, size).atexit = False  # daemon threads may still record then
    return memory
