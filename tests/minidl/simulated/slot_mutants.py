"""Bugs of slots: each would let a batch be written over while the caller has it, or lose slots."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import minidl
from minidl import queues
from minidl.parallel import ParallelIterator
from minidl.transport import Packer, Unpacker
from minidl.world.simulated import machine as machines
from minidl.world.simulated import step
from minidl.world.simulated.pipes import RUBBISH
from notebooks.exercises.patching import replaced
from tests.minidl.simulated.lending import (
    LARGE,
    TASKS,
    Held,
    Keeps,
    Numbers,
    a_fork_while_batches_are_held,
    an_epoch_left_halfway_is_kept,
    hold,
    holding,
    loader_of,
)
from tests.minidl.simulated.mutants import MUTANTS, Edit, Mutant, mutant
from tests.minidl.simulated.programs import epoch
from tests.samples import Stream, dealt

slot_mutant = functools.partial(mutant, transport="slots")

# ---- programs


def views() -> int:
    """The caller keeps all batches, but not the tensors that it was given."""
    with holding() as held:
        for key, batch in enumerate(epoch(loader_of(prefetch_factor=1))):
            held.append((batch.data, key))
            del batch
            step()
            held.check()
    return TASKS


def unpicklable(samples: list[Any]) -> Any:
    """Batch 1 is collated, and cannot be sent."""
    return minidl.default_collate(samples), (lambda: None) if samples[0][0] == 1 else "fine"


def goes_on_after_an_error() -> int:
    iterator = iter(loader_of(Numbers((LARGE,) * TASKS), collate_fn=unpicklable))
    held, key = Held(maxlen=2), 0
    while key < TASKS:
        with contextlib.suppress(AttributeError):
            held.append((next(iterator)[0], key))
            held.check()
        key += 1
    return key


def no_slot_is_lost() -> None:
    """Streams end before their workers' last tasks, which are never answered."""
    loader = loader_of(Stream(Numbers(), dealt), num_workers=2, persistent_workers=True)
    for _ in range(3):
        for batch in epoch(loader):
            del batch
    for number, slots in enumerate(loader._iterator._transports):
        slots._take_back()
        out = slots._count - len(slots._free)
        assert out <= 2, f"{out} slots of worker {number} are out, and its last tasks were two"


HANDSHAKE = """    waiting_for = set(range(self._num_workers))
    self._in_use = True
    try:
        while waiting_for:
            message = self._get_data(self._timeout)
            if isinstance(message, Resumed) and message.epoch_id == self._epoch_id:
                waiting_for.discard(message.worker_id)
"""
RECLAIM = "                self._transports[message.worker_id].reclaim()\n"
RECLAIM_EARLY = "    for slots in self._transports:\n        slots.reclaim()\n"

PACK, WRITE = Packer.pack, queues.Producer._write


def packs_and_keeps_the_bytes(packer: Packer, message: Any) -> Any:
    packed = PACK(packer, message)
    if message.room is not None and message.room.memory is not None:
        memory = message.room.memory.bytes
        vars(packer)["late"] = memory, memory.copy()
        memory[:] = RUBBISH
    return packed


def writes_and_then_fills(producer: queues.Producer, pieces: list[Any], memory: Any) -> None:
    WRITE(producer, pieces, memory)
    if late := vars(producer._transport).pop("late", None):
        machines.current_machine().until()
        late[0][:] = late[1]


@contextlib.contextmanager
def slots_that_are_filled_late() -> Iterator[None]:
    """A batch's bytes are copied into its slot after the message was sent."""
    with (
        replaced(PACK, packs_and_keeps_the_bytes, Packer),
        replaced(WRITE, writes_and_then_fills, queues.Producer),
    ):
        yield


@slot_mutant(
    "the program found that batch",
    Edit(Unpacker, "unpack", "Loan(owner, self._back.put)", "Loan(message.data, self._back.put)"),
)
def a_batch_counts_as_gone_when_its_tensor_is() -> Any:
    """The finalizer that gives a slot back is attached to the tensor. But the caller has kept its `.data`, which
    outlives the tensor, and the worker writes the next batch under it. minidl attaches it to the one object that
    all of a batch's memory refers to."""
    return views()


@slot_mutant(
    "the program found that batch",
    Edit(
        Unpacker,
        "grant",
        "    self._take_back()\n",
        "    for loan in list(self._lent.values()):\n        self._back.put(loan)\n    self._take_back()\n",
    ),
)
def a_batch_counts_as_gone_when_the_next_one_is_asked_for() -> Any:
    """The loader takes back the slot of the batch before whenever the caller asks for another. A caller that keeps two
    batches, to compare them or to copy one in the background, sees the older one change. Only the end of the last
    object in a slot says that it is free."""
    return hold(2, prefetch_factor=1)


@slot_mutant(
    "batch", Edit(Packer, "room", "last.looked_at or fresh", "fresh"), name="what collate_fn keeps is written over"
)
def what_collate_fn_keeps_is_written_over() -> Any:
    """Main has let go of a batch, but the worker has not: its collate_fn remembers what it returned last, and that
    lies in the slot, too. So a worker whose slot is still referred to leaves it alone, and makes a new one in its
    place."""
    return hold(1, Numbers((LARGE,) * TASKS), collate_fn=Keeps(), prefetch_factor=1)


@slot_mutant("batch 0 holds", Edit(Unpacker, "before_fork", "loan.retired = True", "pass"))
def nobody_thinks_of_forks() -> Any:
    """Main forks, for a second loader, while it has a batch. The child has the same pages, and main cannot know for
    how long: when main lets go of the batch, a worker writes the next one under the child's eyes. What is lent at a
    fork is retired: its memory is never written again."""
    return a_fork_while_batches_are_held()


@slot_mutant("batch 0 holds", Edit(Unpacker, "grant", "return slot, slot in self._fresh", "return slot, False"))
def the_worker_is_not_told_that_a_slot_needs_new_memory() -> Any:
    """Main knows that the memory of a slot was retired by a fork, and grants the slot as if it were any other. It is
    the worker that would have to make new memory for it. So the grant says so."""
    return a_fork_while_batches_are_held()


@slot_mutant("the program found that batch", delays=1, world=slots_that_are_filled_late)
def a_message_is_sent_before_its_batch_is_in_the_slot() -> Any:
    """The message overtakes what it speaks of. Main reads it in between, or the worker is killed there, and main
    yields rubbish. The message must be the last thing that a worker does: then a slot that was half filled when the
    worker died is never looked at."""
    return hold(2, prefetch_factor=1)


@slot_mutant(
    "it raised",
    Edit(
        Packer,
        "pack",
        "    pickled = Pickled(message, self._reducers, self._world.lent)\n",
        "    if room.memory is not None and room.is_new:\n        self._new_to_main(message, room)\n"
        "    pickled = Pickled(message, self._reducers, self._world.lent)\n",
    ),
)
def the_worker_believes_that_main_has_what_was_never_sent() -> Any:
    """The worker notes a slot's new memory as known to main when it begins to pack the batch. Packing fails, as
    something in the batch cannot be pickled, and the error is sent without the memory. The next batch in that slot
    goes to pages that main has never seen. The note is made last, when nothing can fail any more."""
    return goes_on_after_an_error()


@slot_mutant(
    "the program found that",
    Edit(ParallelIterator, "_resume_workers", "self._transports[message.worker_id].reclaim()", "pass"),
)
def slots_of_tasks_that_are_never_answered_are_lost() -> Any:
    """A stream ends before the tasks that its worker was sent: they were granted slots, and are never answered. With
    persistent workers each epoch loses some, until every batch gets memory of its own. When a worker has
    acknowledged the new epoch, none of the old tasks is under way, and their slots are taken back."""
    return no_slot_is_lost()


@slot_mutant(
    "the program found that batch",
    Edit(
        ParallelIterator,
        "_receive",
        "    self._tasks_outstanding -= 1\n",
        "    self._tasks_outstanding -= 1\n    self._transports[result.worker_id].reclaim()\n",
    ),
)
def slots_are_taken_back_while_tasks_are_under_way() -> Any:
    """The same, too early: when a worker answers one task, the slots of all its tasks count as free again. The next
    task is granted a slot that an earlier one has and is about to fill. Only when a worker can have no task left
    may its slots be counted again."""
    return hold(2)


@slot_mutant(
    "the program found that batch",
    Edit(ParallelIterator, "_resume_workers", HANDSHAKE + RECLAIM, RECLAIM_EARLY + HANDSHAKE),
)
def slots_are_taken_back_before_the_new_epoch_is_acknowledged() -> Any:
    """Too early again: when the new epoch is announced, its worker may still send batches of the old one, in slots
    that already count as free. Main unpacks them and drops them, so there is usually nobody to see them written
    over. But unpickling is the caller's code, and here it keeps what it makes. Behind the acknowledgement nothing
    of the old epoch can come any more, and what it lent is known."""
    return an_epoch_left_halfway_is_kept()


ALL_MUTANTS = MUTANTS + [each for each in globals().values() if isinstance(each, Mutant)]
