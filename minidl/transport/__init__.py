"""How a batch crosses from a worker to main: as a small pickle, with its tensors in memory that both have mapped.

    worker (filling.py)                                  main (lending.py)
    Packer.room() <----- Task(slot=3) <----------------- Unpacker.grant() <- the last object in slot 3 is gone
    Room.reserve() <- collate                            (the same pages)
    Packer.pack() -----> pickle, where its bytes lie --> Unpacker.unpack() -> batch -> the caller
                         (pickling.py, memory.py)

Principles
1. Out of band (PEP 574): the memory of tensors and arrays is not pickled but laid into a slot, and the pickle says
   where. Only a small tensor's is pickled with it.
2. A slot is memory that a worker makes and main maps too. It has no name, so nothing is left of it after any death;
   it needs no descriptor once it is mapped; it is reused, so its pages are already there.
3. Main owns the free list. A Task grants a slot, and the worker writes to no other: a slot has one writer. Main reads
   it without the worker's help. (torch: a thread of the worker hands over each tensor, when it gets to it.)
4. Large tensors are lent, each by itself; small ones are copied, so that keeping a label does not keep its images.
   A slot is free when the last object in it is gone, wherever that was: see Loan.
5. When all slots are lent, because the caller keeps its batches, a batch gets memory of its own.
6. Memory goes back to the system when nobody needs it, and never while a batch that fits is on its way: see Pages.
7. Where a process may still read memory (a worker that keeps its batch, a forked child), no worker writes to it.

Legend
    slot      3            counts from 0 for each worker; NO_SLOT: none was free
    span      (64, 4000)   where in a slot something lies: its first byte, its bytes
    storage   0            the memory of a tensor, numbered within a message: several tensors may lie in one
    leaf                   a storage or an array in the batch that main has built

torch: torch.multiprocessing.reductions
"""

from minidl.transport.choice import VARIABLE, Handles, transport_of
from minidl.transport.filling import DIRECT, Packer, Room, reserve
from minidl.transport.lending import Loan, Unpacker
from minidl.transport.memory import NO_SLOT

__all__ = ["DIRECT", "NO_SLOT", "VARIABLE", "Handles", "Loan", "Packer", "Room", "Unpacker", "reserve", "transport_of"]
