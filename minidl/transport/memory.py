"""What both sides know of a slot's memory: how it is laid out, who may still look at it, and how its pages go back.

| byte 0       | 4032          | and so on                     | the last byte    |
|--------------|---------------|-------------------------------|------------------|
| a first leaf | a second leaf | pages that were never touched | is it looked at? |
"""

from __future__ import annotations

import struct
import weakref
from typing import Any

from minidl.world import Memory, World

NO_SLOT = -1
ALIGNED = 64  # bytes: each tensor begins at a multiple of these, as torch's own memory does
LOOKED_AT = -1  # the byte that says whether the worker, or a child that it has forked, may look at what lies here

# Slot granted, whether new memory comes with it, storages, buffers, bytes in memory
HEADER = struct.Struct("<h?xIIQ")


def aligned(nbytes: int) -> int:
    return nbytes + -nbytes % ALIGNED


def address_of(array: Any) -> int:
    return array.__array_interface__["data"][0]


Place = tuple[int, int]  # in a memory: its first byte, and the first one after it


def lay_out(spans: list[tuple[int, int]], memory: Memory | None, taken: list[Place]) -> tuple[list[int], int]:
    """Where each of these (address, bytes) is to begin, and how many bytes are needed in all. What lies in the memory
    already stays there; the rest goes before what is taken, as far as there is room, or behind it."""
    base, size = (0, 0) if memory is None else (address_of(memory.bytes), memory.bytes.nbytes)
    begins, front, room = [], 0, min(taken)[0] if taken else 0
    end, stay = max((end for _, end in taken), default=0), list[Place]()
    for address, nbytes in spans:
        begin = address - base
        if 0 <= begin < size and not any(begin < last and first < begin + nbytes for first, last in stay):
            begins.append(begin)
            stay.append((begin, begin + nbytes))  # another that lies there is copied, as with torch
        elif front + aligned(nbytes) <= room:
            begins.append(front)
            front += aligned(nbytes)
        else:
            begins.append(end)
            end += aligned(nbytes)
    return begins, end


class Pages:
    """Main's: gives pages of slots back to the system, for both sides at once. The next write finds new ones, which
    takes 1.6 times as long."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._pid = world.pid()
        self.forks = 0  # of main, so far
        world.before_fork(self)

    def before_fork(self) -> None:
        self.forks += 1

    def give_back(self, memory: Memory, begin: int, end: int | None = None, forks: int | None = None) -> None:
        """Those that lie wholly between two bytes, unless a worker, a child of one or one of main may look at them.
        `forks`: how many there were when the batch came, if it may still be in a child."""
        if self._world.pid() == self._pid and forks in (None, self.forks) and not memory.bytes[LOOKED_AT]:
            memory.give_back(begin, memory.bytes.nbytes - ALIGNED if end is None else end)

    def give_back_after(self, thing: Any, memory: Memory, begin: int, end: int | None = None) -> None:
        """When `thing` is gone. (The callback added last is called first: this one, before a Loan's frees the slot.)"""
        if thing is None:  # just now
            self.give_back(memory, begin, end, self.forks)
        else:
            weakref.finalize(thing, self.give_back, memory, begin, end, self.forks).atexit = False
