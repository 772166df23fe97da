"""Exercise 16: the free list.

A worker lays its batches into slots: memory that main sees too, and that is used again. Main owns
the list of the free ones, one list per worker, and with each task it sends the number of a slot. If
main grants a slot while the caller still has what lies in it, the next batch is written over it,
and nothing raises.

`grant` returns (slot, fresh) for a task that is about to be sent. It first takes back what has come
back; then it grants a slot that is free. Only if none is free does it make a new one: 0, 1, 2, ...,
at most `_most` of them. If all are out, it grants NO_SLOT: it never waits, as the caller may keep
its batches for ever.

`_take_back` empties the mailbox `_back`. In it are loans that are over: all of that batch is gone.
And bare numbers: slots that were granted and not used, since what the worker sent needed no memory.
Ctrl-C can interrupt an `unpack`, which is then called again, so beware: the same thing may come
back twice, and a loan may be an old one, whose slot has been lent anew (see `_lent`).

If main has forked while a batch was lent, its loan is `retired`: the child still sees that memory.
The slot is free when it comes back, but it is granted as `fresh`: the worker must make new memory
for it. It stays in `_fresh` until that memory has come: `unpack` takes it out, as the task it was
granted to may be skipped.

`reclaim` is called when the worker will answer no more of the tasks it was sent: a new epoch has
begun, and it has said so. What they were granted is free again; what is lent is not, and a late
batch of theirs may still be.

(You may use `_count`, `_free` and `_out` in any way, or fields of your own; the other fields belong
to others, too: `unpack`, which the pin thread may call, and whatever lets go of a batch. You may
leave out the calls of `emit`, without which a timeline does not show the slots, and `_thin_out` and
`_recent`, which give pages to the system.)

Legend
    self._count              how many slots there are so far: 0 at the beginning
    self._most               how many there may be: 3, or any other number
    self._free               [2, 0]: the slots that are free
    self._out                {1}: the others: granted or lent
    self._lent               {1: loan}: slot -> the loan that counts. `unpack` writes it when a
                             batch comes; remove it when the loan is over
    self._fresh              {2}: slots whose memory must not be used again. `unpack` takes one out
                             when new memory comes
    self._back               a mailbox: qsize() is how many things are in it, get() takes one, and
                             waits if there is none
    loan                     a Loan: .slot, .retired, and for `emit` .epoch_id, .task_id
    emit(SLOT_GRANTED, ...)  ..., epoch_id, task_id, self._worker_id, value=slot) records a grant,
                             and SLOT_FREE, with the loan's epoch_id and task_id, that it is over

Your methods, and helpers, are put into minidl's class. Its __init__ stays: make a field of your own
when you first need it.

Check it with `python -m notebooks.exercises check 16`; `hint 16` helps.
It goes with notebooks/14-what-moving-a-batch-costs.ipynb.
"""

from __future__ import annotations

from minidl.events import SLOT_FREE, SLOT_GRANTED, emit
from minidl.transport.lending import RECENT, Loan
from minidl.transport.memory import NO_SLOT


class Unpacker:
    def grant(self, epoch_id: int, task_id: int) -> tuple[int, bool]:
        """A slot for a task, and whether the worker must make new memory for it."""
        raise NotImplementedError

    def _take_back(self) -> None:
        raise NotImplementedError

    def reclaim(self) -> None:
        """The worker has answered all tasks that it was sent, or will never: what they were granted is free again."""
        raise NotImplementedError
