"""How a batch crosses from a worker to main: as a small pickle, with its tensors in memory that both have mapped.

    worker                                                main
    Packer.room() <----- Task(slot=3) <------------------ Unpacker.grant() <- the last object in slot 3 is gone
    Room.reserve() <- collate                             (the same pages)
    Packer.pack() -----> pickle, and where its bytes lie -> Unpacker.unpack() -> batch -> the caller

Principles
1. Out of band (PEP 574): the memory of tensors and arrays is not pickled but laid into a slot, and the pickle says
   where. If it is little altogether, it follows the pickle in the pipe.
2. A slot is memory that a worker makes and main maps too. It has no name, so nothing is left of it after any death;
   it needs no descriptor once it is mapped; it is used again and again, so its pages are there.
3. Main owns the free list. A Task grants a slot, and the worker writes to no other: a slot has one writer. To read
   it main needs no help of the worker. (torch: a thread of the worker hands over each tensor, when it gets to it.)
4. A slot is free when the last object in it is gone, wherever that was: see Loan.
5. When all slots are lent, since the caller keeps its batches, a batch gets memory of its own.

Legend
    slot      3            counts from 0 for each worker; NO_SLOT: none was free
    span      (64, 4000)   where in a slot something lies: its first byte, its bytes
    storage   0            the memory of a tensor, numbered within a message: several tensors may lie in one

torch: torch.multiprocessing.reductions
"""

from __future__ import annotations

import ctypes
import errno
import struct
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from minidl.events import SLOT_FILLED, SLOT_FREE, SLOT_GRANTED, SLOT_LENT, SLOT_MADE, SLOT_RETIRED, emit
from minidl.pickling import ALIGNED, Pickled, Unpickler, address_of, upon
from minidl.world import Memory, World

NO_SLOT = -1
DIRECT = 1 << 12  # bytes; a tensor of at least these is collated in the slot itself, a smaller one is copied there
RECENT = 16  # batches; what these needed says how large a slot is made
TOO_LARGE = 8  # a slot so many times larger than any of them needed is replaced

VARIABLE = "MINIDL_TRANSPORT"  # the environment variable that decides for a whole program

# Slot granted, whether new memory comes with it, storages, buffers, bytes in memory (0: inline), bytes of the pickle
HEADER = struct.Struct("<h?xIIQQ")


class Handles:
    """Both sides of torch's own way, which is also that of the index queues: each tensor goes as a handle to shared
    memory of its own, and there are no slots."""

    def __init__(self, world: World) -> None:
        self._world = world

    def room(self, slot: int, fresh: bool) -> None:
        return None

    def pack(self, message: Any) -> tuple[list[Any], Memory | None]:
        return [self._world.pickle(message)], None

    def unpack(self, data: bytes, memory: Memory | None) -> Any:
        return self._world.unpickle(data)

    def grant(self, epoch_id: int, task_id: int) -> tuple[int, bool]:
        return NO_SLOT, False

    def reclaim(self) -> None:
        pass


# ---- in the worker

_room: Room | None = None  # for the batch that is being made


def reserve(nbytes: int, device: torch.device) -> torch.UntypedStorage | None:
    """In a worker: where to make a tensor of `nbytes`, so that it need not be copied to be sent. None: anywhere."""
    if _room is None or device.type != "cpu":  # torch's way; this may even be one of torch's workers
        return torch.UntypedStorage._new_shared(nbytes, device=device)
    return _room.reserve(nbytes) if nbytes >= DIRECT else None


class Room:
    """The memory for one batch. Pieces are taken from its front, until it is closed."""

    def __init__(self, slot: int, memory: Memory | None, make: Callable[[int], Memory]) -> None:
        self.slot = slot
        self._make = make
        self._end = deque([0])  # the first byte that is not taken; nothing while a thread takes some, or if closed
        self._use(memory)

    def _use(self, memory: Memory | None) -> None:
        self.memory = memory
        self.owner = None if memory is None else memory.bytes[:]  # all that lies in the memory refers to this

    def reserve(self, nbytes: int) -> torch.UntypedStorage | None:
        """A piece of the memory. None: it does not fit, or another thread is in here."""
        try:
            begin = self._end.pop()
        except IndexError:
            return None
        end, fits = begin + aligned(nbytes), False
        try:
            owner = self.with_bytes(end) if self.owner is None else self.owner
            fits = end <= owner.nbytes
        finally:  # also when there is no memory to be had
            self._end.append(end if fits else begin)
        return upon(memoryview(owner)[begin : begin + nbytes], torch.uint8).untyped_storage() if fits else None

    def emptied(self) -> Room:
        """For what is sent in the place of a batch that cannot be: this one may be closed by then."""
        return Room(self.slot, None, self._make)

    def close(self) -> int:
        """Take no more pieces. Returns the first byte after those that were taken."""
        try:
            return self._end.pop()
        except IndexError:
            raise RuntimeError("a thread is still collating the batch that collate_fn has returned") from None

    def with_bytes(self, nbytes: int) -> Any:
        """The memory; new memory, if it has fewer bytes than these."""
        if self.owner is None or self.owner.nbytes < nbytes:
            self._use(self._make(nbytes))
        return self.owner


class Packer:
    """A worker's side: the memory of its slots, and messages as bytes. `room` is called by the worker's main thread,
    `pack` by its feeder."""

    def __init__(self, world: World, worker_id: int) -> None:
        self._world = world
        self._worker_id = worker_id
        self._reducers = world.reducers()
        self._slots: dict[int, tuple[Memory, weakref.ref[Any]]] = {}  # its memory, and the owner of its last batch
        self._recent = deque([0], maxlen=RECENT)  # bytes that batches needed

    def room(self, slot: int, fresh: bool) -> Room:
        """For the next batch. A slot's memory is not used again if main says so (`fresh`), if something in this process
        still lies there (a collate_fn may keep what it returned), or if it is far too large."""
        global _room
        _room = None
        if slot in self._slots:
            memory, owner = self._slots[slot]
            most = max(*self._recent, self._world.inline) if len(self._recent) == RECENT else memory.bytes.nbytes
            if fresh or owner() is not None or memory.bytes.nbytes > TOO_LARGE * most:
                del self._slots[slot]
            else:
                memory.forget()
                _room = Room(slot, memory, self._make)
                self._slots[slot] = memory, weakref.ref(_room.owner)
        _room = _room or Room(slot, None, self._make)
        return _room

    def _make(self, nbytes: int) -> Memory:
        """Twice as large: the next batch may need more, and pages that are never touched cost nothing."""
        return self._world.memory(aligned(2 * max(nbytes, *self._recent)))

    def pack(self, message: Any) -> tuple[list[Any], Memory | None]:
        """A message as pieces of bytes, and memory that main has not mapped yet, to be sent with them."""
        room = getattr(message, "room", None) or Room(NO_SLOT, None, self._make)
        pickled = Pickled(message, self._reducers)
        taken = room.close()
        begins, needed = lay_out(pickled.spans, room.owner, taken)
        inline = not taken and needed <= self._world.inline
        region = np.empty(needed, dtype=np.uint8) if inline else room.with_bytes(needed)
        base = address_of(region)
        for begin, (address, nbytes) in zip(begins, pickled.spans, strict=True):
            if address != base + begin:
                ctypes.memmove(base + begin, address, nbytes)
        stream = pickled.stream.getbuffer()
        sizes = [nbytes for _, nbytes in pickled.spans]
        table = [*begins, *sizes, *pickled.firsts]
        spans = struct.pack(f"<{len(table)}Q", *table)
        if inline:
            return [HEADER.pack(room.slot, False, *pickled.counts, 0, len(stream)), spans, stream, region.data], None
        self._recent.append(needed)
        emit(SLOT_FILLED, message.epoch_id, message.task_id, self._worker_id, value=needed)
        new = self._new_to_main(message, room)
        return [HEADER.pack(room.slot, new is not None, *pickled.counts, needed, len(stream)), spans, stream], new

    def _new_to_main(self, message: Any, room: Room) -> Memory | None:
        """The memory, if main does not have it. Last: had anything failed after this, main would never get it."""
        assert room.memory is not None
        if room.slot in self._slots and self._slots[room.slot][0] is room.memory:
            return None
        if room.slot != NO_SLOT:
            self._slots[room.slot] = room.memory, weakref.ref(room.owner)
        emit(SLOT_MADE, message.epoch_id, message.task_id, self._worker_id, value=room.memory.bytes.nbytes)
        return room.memory


def lay_out(spans: list[tuple[int, int]], owner: Any, taken: int) -> tuple[list[int], int]:
    """Where in the memory each of these (address, bytes) is to begin, and how many bytes are needed in all. What lies
    in it already stays there; the rest follows what is taken."""
    base, size = (0, 0) if owner is None else (address_of(owner), owner.nbytes)
    begins, end = [], taken
    for address, nbytes in spans:
        if base <= address < base + size:
            begins.append(address - base)
        else:
            begins.append(end)
            end += aligned(nbytes)
    return begins, end


# ---- in main


class Loan(weakref.ref[Any]):
    """A batch that is lent to the caller: a weak reference to the one object that all its tensors and arrays lie in.

    When that is gone (a `.numpy()` or a view may outlive its tensor), the loan goes into a mailbox. That may happen in
    any thread and in the middle of anything, even of a put into the same mailbox. So the callback is that put itself,
    in C: a callback in Python would be interrupted by Ctrl-C, and lose it.
    """

    slot: int
    epoch_id: int
    task_id: int
    retired = False  # a forked child may still use its memory


class Unpacker:
    """Main's side of one worker's slots: the free list. `grant` is called by main, `unpack` by whichever thread reads
    the results: main, or the pin thread."""

    def __init__(self, world: World, worker_id: int, most: int) -> None:
        self._world = world
        self._worker_id = worker_id
        self._pid = world.pid()
        self._most = min(most, 1 << 15)  # slots; the header has 16 bits for their numbers
        self._count = 0  # slots that there are. Each is free, or out: granted or lent
        self._free: list[int] = []  # the one freed last is granted first: it may still be in the cache
        self._out: set[int] = set()
        self._lent: dict[int, Loan] = {}
        self._fresh: set[int] = set()  # those whose memory is not to be used again
        self._back = world.mailbox()  # loans that are over, and slots that were granted and not used
        self._memories: dict[int, Memory] = {}
        world.before_fork(self)

    def grant(self, epoch_id: int, task_id: int) -> tuple[int, bool]:
        """A slot for a task, and whether the worker must make new memory for it."""
        self._take_back()
        if not self._free and self._count < self._most:
            self._free.append(self._count)
            self._count += 1
        slot = self._free.pop() if self._free else NO_SLOT
        emit(SLOT_GRANTED, epoch_id, task_id, self._worker_id, value=slot)
        if slot == NO_SLOT:
            return slot, False
        self._out.add(slot)
        return slot, slot in self._fresh

    def _take_back(self) -> None:
        while self._back.qsize():
            back = self._back.get()
            slot = back.slot if isinstance(back, Loan) else back
            if slot not in self._out or self._lent.get(slot, back) is not back:
                continue  # it has come back before: an interrupted `unpack` was called again
            if isinstance(back, Loan):
                emit(SLOT_FREE, back.epoch_id, back.task_id, self._worker_id, value=slot)
                del self._lent[slot]
                if back.retired:
                    self._fresh.add(slot)
            self._out.remove(slot)
            self._free.append(slot)

    def reclaim(self) -> None:
        """The worker has answered all tasks that it was sent, or will never: what they were granted is free again."""
        self._take_back()
        self._out = set(self._lent)
        self._free = [slot for slot in range(self._count) if slot not in self._out]

    def before_fork(self) -> None:
        """The child will have the same memory, and may use what is lent for as long as it likes: the worker must not
        write there again."""
        if self._world.pid() != self._pid:
            return  # this process is such a child itself
        for loan in list(self._lent.values()):  # a list at once: the pin thread may lend another
            if not loan.retired:
                loan.retired = True
                emit(SLOT_RETIRED, loan.epoch_id, loan.task_id, self._worker_id, value=loan.slot)

    def unpack(self, data: bytes, memory: Memory | None) -> Any:
        """A message from its bytes, and from the memory that came with them. Called again with the same, after Ctrl-C,
        it does the same again."""
        slot, is_new, storages, buffers, nbytes, length = HEADER.unpack_from(data)
        count = storages + buffers
        table = struct.unpack_from(f"<{2 * count + storages}Q", data, HEADER.size)
        begin = HEADER.size + 8 * len(table)
        stream = memoryview(data)[begin : begin + length]
        if is_new and memory is None:  # the slot's old memory, if it has any, would show an old batch
            raise OSError(errno.EMFILE, "a batch's memory could not be mapped")
        owner = self._owner(slot, memory) if nbytes else copied(memoryview(data)[begin + length :])
        view = memoryview(owner)
        pieces = [
            view[first : first + size] for first, size in zip(table[:count], table[count : 2 * count], strict=True)
        ]
        message = Unpickler(stream, pieces[:storages], table[2 * count :], pieces[storages:]).load()
        if nbytes:
            emit(SLOT_LENT, message.epoch_id, message.task_id, self._worker_id, value=slot)
        if slot != NO_SLOT and nbytes:
            loan = Loan(owner, self._back.put)
            loan.slot, loan.epoch_id, loan.task_id = slot, message.epoch_id, message.task_id
            self._lent[slot] = loan  # last: if unpickling is interrupted, nothing has been lent
        elif slot != NO_SLOT:
            self._back.put(slot)
        return message

    def _owner(self, slot: int, memory: Memory | None) -> Any:
        """A new object upon a slot's memory, or upon memory of the batch's own."""
        if memory is not None and slot != NO_SLOT:
            self._memories[slot] = memory
            self._fresh.discard(slot)  # only now: the task that it was granted to may have been skipped
        return (memory or self._memories[slot]).bytes[:]


# ---- on both sides


def aligned(nbytes: int) -> int:
    return nbytes + -nbytes % ALIGNED


def copied(data: memoryview) -> Any:
    """An array of these bytes, in memory that is aligned as torch's is."""
    array = torch.empty(data.nbytes, dtype=torch.uint8, device="cpu").numpy()
    array[:] = data
    return array


def transport_of(name: str | None, world: World) -> str:
    """What DataLoader's argument stands for: "slots" or "torch".

    ValueError: it is neither, or the environment variable is. RuntimeError: slots are asked for, and cannot be had.
    """
    asked = name or world.environment().get(VARIABLE)
    if asked not in (None, "", "slots", "torch"):
        where = "transport option" if name else VARIABLE
        raise ValueError(f'{where} should be "slots" or "torch", but got {asked!r}')
    if asked == "slots" and not world.can_send_memory():
        raise RuntimeError('transport="slots" needs memfd_create and /proc, which this system lacks: use "torch"')
    return asked or ("slots" if world.can_send_memory() else "torch")
