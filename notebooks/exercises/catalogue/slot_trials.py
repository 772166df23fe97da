"""Trials of exercise 16: what may happen to the slots of one worker, step by step, and which grants are then right.

Legend
    steps   "grant, batch 0, drop 0, grant"     a trial; the numbers are tasks
    batch 0      the batch of task 0 comes, and is lent to the caller; twice: Ctrl-C, and it is unpacked again
    unused 0     an exception comes in its place: the slot was granted and not used
    again 0      the number of its slot comes back again, as Ctrl-C has interrupted what put it there
    drop 0       the last object in it is gone
    fork         main forks: what is lent is retired
    reclaim      the worker has answered all that it will: the other tasks were skipped
    fill         grants until all slots are out, and two more
"""

from __future__ import annotations

import enum
import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from minidl import world as worlds
from minidl.messages import Result
from minidl.transport import NO_SLOT, Packer, Unpacker

MOST = 3  # slots
SHOWN = 12  # steps of a trial that are told

STEPS = (
    "fill",
    "grant, batch 0, drop 0, fill",
    "grant, unused 0, fill",
    "grant, batch 0, drop 0, grant, unused 1, fill",
    "grant, grant, batch 0, batch 1, drop 1, fill",
    "grant, grant, grant, batch 1, batch 0, drop 0, grant, batch 2, drop 2, batch 3, drop 1, drop 3, fill",
    "grant, grant, reclaim, fill",
    "grant, grant, batch 0, reclaim, fill",
    "grant, grant, batch 0, reclaim, drop 0, fill",
    "grant, grant, unused 1, batch 0, drop 0, reclaim, fill",
    "grant, batch 0 twice, fill",
    "grant, batch 0 twice, drop 0, fill",
    "grant, unused 0 twice, fill",
    "grant, unused 0, grant, batch 1, again 0, fill",
    "grant, batch 0, fork, drop 0, fill",
    "grant, batch 0, fork, drop 0, grant, batch 1, drop 1, fill",
    "grant, batch 0, fork, reclaim, drop 0, grant, batch 1, drop 1, fill",
    "grant, batch 0, fork, drop 0, grant, reclaim, grant, batch 2, fill",  # its task was skipped
)


class State(enum.Enum):
    GRANTED = "was granted and has not come back"
    LENT = "is lent"
    FREE = "is free"


@dataclass
class Slot:
    """What must be true of a slot."""

    state: State
    task_id: int
    why: str = ""  # the last thing that happened to it, which a wrong answer may have got wrong
    retired: bool | None = (
        False  # None: perhaps, as it came back before main forked and may have been taken back later,
    )
    # or as the worker was told so and sent no new memory


@dataclass
class Mistake:
    name: str
    got: str
    expected: str


LOST = {
    "drop": "never takes a batch's slot back",
    "unused": "loses slots that were not used",
    "reclaim": "loses the slots of skipped tasks",
    "retired": "loses retired slots",
}
STOLEN = {"twice": "an old loan ends a new one", "reclaim": "reclaim frees what is lent"}


class Table:
    """Both sides of one worker's slots in one process, and what must be true of them."""

    last: Table  # of the latest run, to see how far it came

    def __init__(self, packer: Any = None, unpacker: Any = None) -> None:
        """Without these: minidl's, and the learner's."""
        Table.last = self
        world = worlds.current()
        self.packer, self.unpacker = packer or Packer(world, 0), unpacker or Unpacker(world, 0, MOST)
        self.told: list[str] = []
        self.mistake: Mistake | None = None
        self.slots: dict[int, Slot] = {}
        self.granted: dict[int, tuple[int, bool]] = {}  # task -> what was granted
        self.slot_of: dict[int, int] = {}  # task -> the slot that its message came with
        self.batches: dict[int, Any] = {}  # task -> its batch, if the caller has it
        self.unused = False  # a slot that was not used has come back
        self.child: list[tuple[Any, Any]] = []  # memory that a forked child sees, and what was in it

    def run(self, steps: str) -> None:
        for step in steps.split(", "):
            self.do(step)
            if self.mistake is not None:
                return
        self._look_at_the_child()

    def run_by_chance(self, seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(40):
            under_way = [f"{what} {task}" for task in self.granted for what in ("batch", "batch", "unused")]
            choices = ["grant", "grant", *under_way, *[f"drop {task}" for task in self.batches] * 2]
            step = chance.choice(choices)
            self.do(step + " twice" if step[0] in "bu" and chance.random() < 0.1 else step)
            if chance.random() < 0.05:
                self.do("fork")
            if self.mistake is not None:
                return
        self.run("reclaim, fill")

    def do(self, step: str) -> None:
        what, *rest = step.split()
        if what == "fill":
            for _ in range(MOST + 2):
                self.do("grant")
            return
        if self.mistake is None:
            self.told.append(step)
            getattr(self, f"_{what}")(*[int(each) if each.isdigit() else True for each in rest])

    def _grant(self) -> None:
        task_id = sum(each.startswith("grant") for each in self.told) - 1
        granted: Any = self.unpacker.grant(0, task_id)  # the learner's
        if not (isinstance(granted, tuple) and len(granted) == 2 and isinstance(granted[0], int)):
            self.mistake = Mistake("grants no pair", f"grant returned {granted!r}", "a slot, and whether it is fresh")
            return
        slot, fresh = granted
        self.told[-1] = f"grant -> {'NO_SLOT' if slot == NO_SLOT else slot}{' (fresh)' * bool(fresh)}"
        self.mistake = self._judged(slot, bool(fresh))
        self.granted[task_id] = slot, bool(fresh)
        if slot != NO_SLOT:
            was = self.slots.get(slot, Slot(State.GRANTED, task_id))
            self.slots[slot] = Slot(State.GRANTED, task_id, was.why, was.retired)

    def _judged(self, slot: int, fresh: bool) -> Mistake | None:
        free = [number for number, each in self.slots.items() if each.state is State.FREE]
        was = self.slots.get(slot)
        if slot == NO_SLOT and free:
            return Mistake(LOST[self.slots[free[-1]].why], "NO_SLOT", f"slot {free[-1]}, which is free")
        if slot == NO_SLOT:
            few = f"a new slot: there are {len(self.slots)}, and there may be {MOST}"
            return Mistake("too few slots", "NO_SLOT", few) if len(self.slots) < MOST else None
        if not 0 <= slot < MOST:
            return Mistake("more slots than there may be", f"slot {slot}", f"NO_SLOT: all {MOST} slots are out")
        if was is None:
            if free:
                return Mistake(self._wasted(free[-1]), f"slot {slot}, a new one", f"slot {free[-1]}, which is free")
            return None
        if was.state is State.LENT:
            got = f"slot {slot}, in which batch {was.task_id} still lies"
            return Mistake(STOLEN.get(was.why, "grants what is out"), got, "a slot that is free, or NO_SLOT")
        if was.state is State.GRANTED:
            got = f"slot {slot}, which task {was.task_id} was granted and has not given back"
            name = "a slot is free twice" if was.why else "grants what is out"
            return Mistake(name, got, "a slot that is free, or NO_SLOT")
        if was.retired is True and not fresh:
            return Mistake("a retired slot's memory is used again", f"slot {slot}, not fresh", f"slot {slot}, fresh")
        if fresh and was.retired is False:
            return Mistake("makes new memory without need", f"slot {slot}, fresh", f"slot {slot}, not fresh")
        return None

    def _wasted(self, free: int) -> str:
        """A new slot, though one is free. Does it come back at all?"""
        for _ in range(MOST + 1):
            if self.unpacker.grant(0, 99)[0] == free:
                return "makes a slot while one is free"
        return LOST[self.slots[free].why]

    def _batch(self, task_id: int, twice: bool = False) -> None:
        slot = self._come(task_id, torch.full((4,), task_id), twice)
        if slot != NO_SLOT:
            self.slots[slot] = Slot(State.LENT, task_id, "twice" if twice else "")

    def _unused(self, task_id: int, twice: bool = False) -> None:
        slot = self._come(task_id, "an exception, which needs no memory", twice)
        del self.batches[task_id]
        if slot != NO_SLOT:
            self.unused = True
            retired = None if self.slots[slot].retired is not False else False  # has the worker given up its memory?
            self.slots[slot] = Slot(State.FREE, task_id, "unused", retired)

    def _again(self, task_id: int) -> None:
        self.unpacker._back.put(self.slot_of[task_id])

    def _come(self, task_id: int, data: Any, twice: bool) -> int:
        """A worker answers: its side packs the message, and main's unpacks it."""
        slot, fresh = self.granted.pop(task_id)
        self.slot_of[task_id] = slot
        room = self.packer.room(slot, fresh)
        pieces, memory = self.packer.pack(Result(0, task_id, 0, data, room))
        for _ in range(1 + twice):
            self.batches.pop(task_id, None)  # the first is gone before the second comes
            self.batches[task_id] = self.unpacker.unpack(b"".join(pieces), memory).data
        return slot

    def _drop(self, task_id: int) -> None:
        right = bool((self.batches.pop(task_id) == task_id).all())
        if not right:
            self.mistake = Mistake("a batch changes while it is lent", "something else in it", f"batch {task_id}")
        for each in self.slots.values():
            if each.state is State.LENT and each.task_id == task_id:
                each.state, each.why = State.FREE, "retired" if each.retired else "drop"

    def _fork(self) -> None:
        self.unpacker.before_fork()
        for slot, each in self.slots.items():
            if each.state is State.LENT:
                each.retired = True
                pages = self.unpacker._memories[slot].bytes
                self.child.append((pages, pages.copy()))
            elif each.why == "drop":
                each.retired = None

    def _reclaim(self) -> None:
        self.granted.clear()
        self.unpacker.reclaim()
        for each in self.slots.values():
            if each.state is not State.FREE:
                each.why = "reclaim"
            if each.state is State.GRANTED:
                each.state = State.FREE

    def _look_at_the_child(self) -> None:
        if not all(np.array_equal(pages, before) for pages, before in self.child):
            name = "a retired slot's memory is used again"
            self.mistake = Mistake(name, "memory that a forked child sees was written to", "it stays as it was")


def by_steps(steps: str) -> None:
    Table().run(steps)


def by_chance(seed: int) -> None:
    Table().run_by_chance(seed)
