"""Main's side: the free list, batches built upon slots, and what becomes of their memory."""

from __future__ import annotations

import pickle
import struct
import weakref
from typing import Any

from minidl.events import SLOT_FREE, SLOT_GRANTED, SLOT_LENT, emit
from minidl.transport.memory import HEADER, NO_SLOT, Pages
from minidl.transport.pickling import Region, Unpickler
from minidl.world import Memory, World

RECENT = 16  # batches; what these needed says how much memory is kept
KEPT = 1 << 25  # bytes; the pages of a larger batch go back at once


class Loan(weakref.ref[Any]):
    """A batch that is lent to the caller: a weak reference to the one object that all its large leaves lie in.

    When that is gone (a `.numpy()` or a view may outlive its tensor), the loan goes into a mailbox. That may happen in
    any thread and in the middle of anything, even of a put into the same mailbox. So the callback is that put itself,
    in C: a callback in Python would be interrupted by Ctrl-C, and lose it.
    """

    slot: int
    epoch_id: int
    task_id: int
    nbytes: int
    leaves: list[Any]  # that are lent, and whose pages have not gone back: see Region
    retired = False  # a forked child may still use its memory


class Unpacker:
    """Main's side of one worker's slots: the free list. `grant` is called by main, `unpack` by whichever thread reads
    the results: main, or the pin thread."""

    def __init__(self, world: World, worker_id: int, most: int) -> None:
        self._world = world
        self._worker_id = worker_id
        self._most = min(most, 1 << 15)  # slots; the header has 16 bits for their numbers
        self._count = 0  # of slots: each is free, granted or lent
        self._free: list[int] = []  # the one freed last is granted first: it may still be in the cache
        self._lent: dict[int, Loan] = {}
        self._fresh: set[int] = set()  # those whose memory must not be used again
        self._back = world.mailbox()  # loans that are over
        self._memories: dict[int, Memory] = {}
        self._pages = Pages(world)
        self._recent: list[Loan] = []  # that have come back since pages went back
        world.before_fork(self)

    def grant(self, epoch_id: int, task_id: int) -> tuple[int, bool]:
        """A slot for a task, and whether the worker must make new memory for it."""
        self._take_back()
        if not self._free or len(self._recent) >= RECENT:
            self._thin_out()
        if not self._free and self._count < self._most:
            self._free.append(self._count)
            self._count += 1
        slot = self._free.pop() if self._free else NO_SLOT
        emit(SLOT_GRANTED, epoch_id, task_id, self._worker_id, value=slot)
        return slot, slot in self._fresh

    def _take_back(self) -> None:
        while self._back.qsize():
            loan = self._back.get()
            emit(SLOT_FREE, loan.epoch_id, loan.task_id, self._worker_id, value=loan.slot)
            del self._lent[loan.slot]
            if loan.retired:
                self._fresh.add(loan.slot)
            self._recent.append(loan)
            self._free.append(loan.slot)

    def reclaim(self) -> None:
        """The worker has answered all its tasks, or never will: the slots granted to them are free again."""
        self._free = [slot for slot in range(self._count) if slot not in self._lent]

    def before_fork(self) -> None:
        """The child will have the same memory, and may use what is lent for as long as it likes: the worker must not
        write there again."""
        for loan in list(self._lent.values()):  # a list at once: the pin thread may lend another
            loan.retired = True

    # ---- batches

    def unpack(self, data: bytes, memory: Memory | None) -> Any:
        """A message from its bytes, and from the memory that came with them."""
        slot, is_new, storages, buffers, nbytes = HEADER.unpack_from(data)
        table = struct.unpack_from(f"<{3 * storages + 2 * buffers}Q", data, HEADER.size)
        stream = memoryview(data)[HEADER.size + 8 * len(table) :]
        if not table:
            if slot != NO_SLOT:
                self._free.append(slot)  # it was not needed
            return pickle.loads(stream)
        if is_new and memory is None:  # the slot's old memory, if it has any, would show an old batch
            raise OSError("memory could not be mapped: too many files are open (`ulimit -n`), or too much is mapped")
        if memory is None:
            memory = self._memories[slot]
        elif slot != NO_SLOT:  # else it is the batch's own
            self._memories[slot] = memory
            self._fresh.discard(slot)  # only now: the task that it was granted to may have been skipped
        owner = memory.bytes[:]  # all that is lent of the batch refers to this
        region = Region(owner, table, storages + buffers, self._world.lent)
        message = Unpickler(stream, region).load()
        emit(SLOT_LENT, message.epoch_id, message.task_id, self._worker_id, value=slot)
        if slot == NO_SLOT or nbytes > KEPT:  # the pages go with each leaf
            for leaf, first, end in region.leaves:
                self._pages.give_back_after(leaf(), memory, first, end)
        if slot != NO_SLOT:
            loan = Loan(owner, self._back.put)
            loan.slot, loan.epoch_id, loan.task_id = slot, message.epoch_id, message.task_id
            loan.nbytes, loan.leaves = nbytes, region.leaves
            self._lent[slot] = loan
        return message

    # ---- pages

    def _thin_out(self) -> None:
        """A slot is wanted, and keeps its pages for that. If none is free, the pages of leaves that are gone go back,
        of slots that are lent; and once in RECENT batches those of free ones that none of these has needed."""
        for slot, loan in () if self._free else list(self._lent.items()):
            leaves, loan.leaves = loan.leaves, []
            for leaf, first, end in leaves:
                if leaf() is None:
                    self._give_back(slot, first, end)
                else:
                    loan.leaves.append((leaf, first, end))
        if len(self._recent) >= RECENT:
            needed, used = max(each.nbytes for each in self._recent), {each.slot for each in self._recent}
            for slot in self._free:
                self._give_back(slot, needed if slot in used else 0)
            self._recent.clear()

    def rest(self) -> None:
        """The epoch is over, and its tasks are answered or never will be: only the pages of batches that the caller
        keeps are still needed, for as long as it keeps them."""
        self._take_back()
        for slot, memory in self._memories.items():
            loan = self._lent.get(slot)
            self._give_back(slot, loan.nbytes if loan else 0)
            if loan and not loan.retired:
                self._pages.give_back_after(loan(), memory, 0)

    def _give_back(self, slot: int, begin: int, end: int | None = None) -> None:
        """Pages of a slot, at which no child of main may look."""
        retired = slot in self._lent and self._lent[slot].retired
        if slot in self._memories and slot not in self._fresh and not retired:
            self._pages.give_back(self._memories[slot], begin, end)
