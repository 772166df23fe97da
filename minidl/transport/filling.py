"""The worker's side: a room for each batch, whose pieces collate fills, and messages as bytes."""

from __future__ import annotations

import ctypes
import functools
import weakref
from typing import Any

import torch

from minidl.events import SLOT_FILLED, SLOT_MADE, emit
from minidl.transport.memory import ALIGNED, LOOKED_AT, NO_SLOT, Place, address_of, aligned, lay_out
from minidl.transport.pickling import Pickled, upon
from minidl.world import Memory, World

DIRECT = 1 << 14  # bytes; a tensor of at least these is collated in the slot itself, a smaller one is copied there

_current: Room | None = None  # for the batch that is being made


def reserve(nbytes: int, device: torch.device) -> torch.UntypedStorage | None:
    """In a worker: where to make a tensor of `nbytes`, so that it need not be copied to be sent. None: anywhere."""
    if _current is None or device.type != "cpu":  # torch's way; this may even be one of torch's workers
        return torch.UntypedStorage._new_shared(nbytes, device=device)
    return _current.reserve(nbytes) if nbytes >= DIRECT else None


class Room:
    """The memory for one batch. Pieces are taken from its front by the thread that makes the batch, until it is packed.

    A piece is looked at as long as anything in this process refers to it; and forever, if it was when this process
    forked, because the child may do anything. What is looked at is not written again, and its pages do not go back.
    """

    def __init__(self, packer: Packer, slot: int, memory: Memory | None = None) -> None:
        self.slot = slot
        self.memory = memory
        self.is_new = memory is None  # then main does not have it
        self.is_open = True
        self.looked_at: dict[Place, weakref.ref[Any] | None] = {}  # where a piece lies -> the piece; None: for ever
        self._end = 0  # the first byte that is not taken
        self._packer = packer
        packer._world.before_fork(self)

    def reserve(self, nbytes: int) -> torch.UntypedStorage | None:
        """A piece of the memory. None if it does not fit, or is not for this batch: the caller is another thread, which
        makes a batch ahead, or a forked child."""
        if not self.is_open or not self._packer.makes_batches_here():
            return None
        begin, end = self._end, self._end + aligned(nbytes)
        if self.memory is None:
            self.memory = self._packer.make(end)
        if end > self.memory.bytes.nbytes - ALIGNED:
            return None
        self._end = end
        piece = self.memory.bytes[begin : begin + nbytes]
        self.looked_at[begin, end] = weakref.ref(piece, functools.partial(self._gone, (begin, end)))
        return upon(memoryview(piece), torch.uint8).untyped_storage()

    def with_bytes(self, nbytes: int) -> Memory:
        """The memory; new memory, if it has fewer bytes than these."""
        if self.memory is None or self.memory.bytes.nbytes - ALIGNED < nbytes:
            self.memory, self.is_new, self.looked_at = self._packer.make(nbytes), True, {}
        return self.memory

    def close(self) -> list[Place]:
        """Take no more pieces. Returns those that are looked at: what collate has reserved and the batch does not
        consist of is written over by the rest."""
        self.is_open = False
        return list(self.looked_at)

    def say_whether_looked_at(self) -> None:
        """To main: before the message is sent, and when the last piece has gone. (True is written before the pieces are
        looked at: the last may go in another thread in between, and its False must come last.)"""
        if self.memory is not None and not self.is_open:
            self.memory.bytes[LOOKED_AT] = True
            if not self.looked_at:
                self.memory.bytes[LOOKED_AT] = False

    def _gone(self, place: Place, piece: weakref.ref[Any]) -> None:
        """Runs in any thread, in the middle of anything."""
        if self.looked_at.get(place) is piece:
            del self.looked_at[place]
            if not self.looked_at:
                self.say_whether_looked_at()

    def thin_out(self) -> None:
        """Main does not look here any more: the pages at which nothing in this process does go back."""
        begin, looked_at = 0, dict(self.looked_at)
        if self.memory is not None and None not in looked_at.values():
            for first, end in [*sorted(looked_at), (self.memory.bytes.nbytes - ALIGNED, 0)]:
                self.memory.give_back(begin, first)
                begin = end

    def before_fork(self) -> None:
        """In the child, too, everything is then looked at for ever, so the child never reports to main."""
        if self.is_open or self.looked_at:
            self.looked_at[0, self._end] = None


class Packer:
    """The memory of a worker's slots, and messages as bytes. One thread calls `room`, makes the batch, and packs it."""

    def __init__(self, world: World, worker_id: int) -> None:
        self._world = world
        self._worker_id = worker_id
        self._maker = world.pid(), world.current_thread()  # the thread that makes the batches
        self._reducers = world.reducers
        self._slots: dict[int, Room] = {}  # of those that main has the memory of, the last batch's room
        self._largest = 0  # bytes of a batch

    def room(self, slot: int, fresh: bool) -> Room:
        """For the next batch. A slot's memory is not used again if main says so (`fresh`), or if something in this
        process, or in a child, still lies there (a collate_fn may keep what it returned)."""
        global _current
        last = self._slots.pop(slot, None)
        if last is None or last.memory is None or last.looked_at or fresh:
            if last is not None and not fresh:
                last.thin_out()
            _current = Room(self, slot)
        else:
            last.memory.forget()
            _current = self._slots[slot] = Room(self, slot, last.memory)
        return _current

    def make(self, nbytes: int) -> Memory:
        """Twice as large: the next batch may need more, and pages that are never touched cost nothing."""
        return self._world.memory(aligned(2 * max(nbytes, self._largest)) + ALIGNED)

    def makes_batches_here(self) -> bool:
        return self._maker == (self._world.pid(), self._world.current_thread())

    def pack(self, message: Any) -> tuple[list[Any], Memory | None]:
        """A message as pieces of bytes, and memory that main has not mapped yet, to be sent with them."""
        room = getattr(message, "room", None) or Room(self, NO_SLOT)
        taken = room.close()
        pickled = Pickled(message, self._reducers, self._world.lent)
        if not pickled.spans:
            room.say_whether_looked_at()
            return pickled.pieces([], room.slot), None
        begins, nbytes = lay_out(pickled.spans, room.memory, taken)
        base = address_of(room.with_bytes(nbytes).bytes)
        for begin, (address, size) in zip(begins, pickled.spans, strict=True):
            if address != base + begin:
                ctypes.memmove(base + begin, address, size)
        room.say_whether_looked_at()
        self._largest = max(self._largest, nbytes)
        emit(SLOT_FILLED, message.epoch_id, message.task_id, self._worker_id, value=nbytes)
        new = self._new_to_main(message, room) if room.is_new else None
        return pickled.pieces(begins, room.slot, nbytes, new is not None), new

    def _new_to_main(self, message: Any, room: Room) -> Memory | None:
        """Memory that main does not have. Last: had anything failed after this, main would never get it."""
        assert room.memory is not None
        room.is_new = False
        if room.slot != NO_SLOT:
            self._slots[room.slot] = room
        emit(SLOT_MADE, message.epoch_id, message.task_id, self._worker_id, value=room.memory.bytes.nbytes)
        return room.memory
