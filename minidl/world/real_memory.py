"""The real world's memory: what processes share and send to each other, and what the system does not swap out."""

from __future__ import annotations

import collections
import ctypes
import errno
import mmap
import os
import select
import socket
import struct
import time
from multiprocessing.connection import Connection as Descriptor  # the owner of any descriptor, which it closes
from typing import Any

import torch

LIBC = ctypes.CDLL(None)
# A program may have reset SIGPIPE to its default: then a write to a dead worker would end main, too.
NO_SIGPIPE = getattr(socket, "MSG_NOSIGNAL", 0)
AT_ONCE = int(NO_SIGPIPE | socket.MSG_DONTWAIT)  # as a number: with an enum `|` and `&` take longer than a whole read
TRUNCATED = int(socket.MSG_CTRUNC)
FD = struct.Struct("i")


def is_ready(fd: Any, timeout: float | None = 0) -> bool:
    poll = select.poll()  # not select(), which is limited to descriptors below 1024
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(None if timeout is None else timeout * 1000))


class MappedMemory:
    """An anonymous file, mapped. Its descriptor is needed only until the other process has it: then it is closed, and
    the file lasts as long as any process has it mapped."""

    def __init__(self, fd: int, nbytes: int = 0) -> None:
        self.file = Descriptor(fd)
        if nbytes:
            os.ftruncate(fd, nbytes)
        # torch maps a file, and unmaps it when the last array upon it is gone, without keeping a descriptor. (Python's
        # mmap keeps one, before 3.13 in any case.)
        size = os.fstat(fd).st_size
        self.bytes = torch.from_file(f"/proc/self/fd/{fd}", shared=True, size=size, dtype=torch.uint8).numpy()

    def forget(self) -> None:
        pass

    def give_back(self, begin: int, end: int) -> None:
        address = self.bytes.ctypes.data
        first, last = address + begin + -begin % mmap.PAGESIZE, address + end - end % mmap.PAGESIZE
        if first < last:  # if this fails, nothing is lost but the pages
            LIBC.madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), mmap.MADV_REMOVE)


class SocketEnd:
    """An end of a pair of Unix sockets, used one way: a pipe that descriptors can travel through. A socket can travel
    to a process that is being started, whatever the start method."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._memories: collections.deque[MappedMemory | None] = collections.deque()  # a reader's: that have come
        end.settimeout(None)  # a program may have set a default timeout for its sockets

    def __reduce__(self) -> tuple[Any, ...]:
        self.fileno()  # what is closed cannot travel
        return type(self), (self._socket,)

    def fileno(self) -> int:
        if (fd := self._socket.fileno()) < 0:
            raise OSError("this end of a pipe is closed")
        return fd

    def close(self) -> None:
        self._socket.close()

    __del__ = close  # as a Connection does; a socket that is left open brings a warning


class SocketReader(SocketEnd):
    def read(self) -> bytes:
        data, beside, flags, _ = self._socket.recvmsg(1 << 16, socket.CMSG_SPACE(FD.size))
        if flags & TRUNCATED:  # this process has too many files open: the system has dropped it
            self._memories.append(None)
        for _, _, fd in beside:
            self._memories.append(mapped(*FD.unpack(fd)))
        return data

    def memory(self) -> MappedMemory | None:
        return self._memories.popleft()


def mapped(fd: int) -> MappedMemory | None:
    """None if it cannot be mapped: this process has too many mappings already."""
    try:
        memory = MappedMemory(fd)
    except (OSError, RuntimeError):
        return None
    memory.file.close()
    return memory


class SocketWriter(SocketEnd):
    def try_write(self, data: Any, memory: MappedMemory | None = None, flags: int = AT_ONCE) -> int:
        try:
            if memory is None:
                return self._socket.send(data, flags)
            fd = FD.pack(memory.file.fileno())
            written = self._socket.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fd)], flags)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.ETOOMANYREFS):
                raise
            return 0  # the pipe is full, or more descriptors are on their way than this user may have open
        memory.file.close()
        return written

    def write(self, data: Any, memory: MappedMemory | None = None) -> int:
        while not (written := self.try_write(data, memory, NO_SIGPIPE)):  # waits if the pipe is full
            time.sleep(0.01)  # else until other descriptors have arrived: that cannot be waited for
        return written


def page_locked(nbytes: int) -> mmap.mmap | None:
    """See minidl.world.World."""
    pages = mmap.mmap(-1, nbytes)  # its own pages: they are unlocked when they are unmapped, with the tensor
    address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    return pages if LIBC.mlock(ctypes.c_void_p(address), ctypes.c_size_t(nbytes)) == 0 else None
