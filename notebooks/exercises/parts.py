"""Programs that use one part of the loader: its shutdown, a queue, the slots of a worker.

Legend, of the slots
    steps   "grant, batch 0, drop 0, grant"     what happens to them; the numbers are tasks
    batch 0      the batch of task 0 comes, and is lent to the caller
    unused 0     an exception comes in its place: the slot was granted and not used
    drop 0       the last object in it is gone
    fork         main forks: what is lent is retired
    reclaim      the worker has answered all that it will: the other tasks were skipped
    fill         grants until all slots are out, and two more
"""

from __future__ import annotations

import contextlib
import functools
import pickle
import random
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import minidl
from minidl import world as worlds
from minidl.events import Queue
from minidl.messages import Result, Stop, Task
from minidl.queues import Channel, Producer
from minidl.transport import NO_SLOT, Handles, Packer, Unpacker
from minidl.world.simulated.cores import never
from minidl.world.simulated.faults import Fault, Move, inject
from minidl.world.simulated.machine import current_machine
from minidl.world.simulated.schedule import Recorded
from minidl.world.simulated.simulation import in_user_code
from notebooks.exercises.programs import (
    PIN,
    Samples,
    Stream,
    dropped,
    iterate,
    let_others_run,
    load,
    loader_of,
    pins,
    program,
    wait,
    without_status_checks,
)

# ---- the shutdown


class Stuck(Samples):
    """All but the first two samples never come: a server that does not answer. Ctrl-C does not end the wait, either."""

    def __getitem__(self, key: int) -> int:
        while key >= 2:
            try:
                with in_user_code() as machine:
                    machine.until(never)
            except KeyboardInterrupt:
                continue
        return key


class NoFile:
    """A batch sampler that raises: its file of keys does not exist."""

    def __iter__(self) -> Any:
        raise OSError("no such file")


def never_built() -> None:
    """Its constructor raises; then it is collected."""
    with contextlib.suppress(OSError):
        iter(minidl.DataLoader(Samples(6), batch_sampler=NoFile(), num_workers=2))


def shut_down_again() -> dict[str, Any]:
    """At the end of the epoch, by hand, and when the iterator goes."""
    iterator = iter(loader_of(Samples(6)))
    batches = list(iterator)
    flag = iterator._workers_done_event = iterator._world.flag()
    iterator._shutdown_workers()
    found = {"batches": batches, "the done event is set again": flag.is_set()}
    flag.close()
    return found


def shut_down_by_hand(dataset: Any, **options: Any) -> dict[str, Any]:
    iterator = iter(loader_of(dataset, **options))
    next(iterator)
    reaches = False
    try:
        iterator._shutdown_workers()
    except KeyboardInterrupt:
        reaches = True
    return {"Ctrl-C reaches the caller": reaches, "workers left": sum(each.is_alive() for each in iterator._workers)}


def reaches_the_caller(outcome: Any, expected: Any) -> str:
    """If there was one."""
    wanted = {"Ctrl-C reaches the caller": True, "workers left": 0}
    return "" if not outcome.schedule.moves or outcome.result == wanted else str(outcome.result)


def shut_down_within() -> dict[str, Any]:
    """Once more in the middle of it, as a finalizer may."""
    iterator = iter(loader_of(Samples(6)))
    batch, flag, calls = next(iterator), iterator._workers_done_event, [0]

    class Again:
        def set(self) -> None:
            calls[0] += 1
            if calls[0] < 3:
                iterator._shutdown_workers()
            flag.set()

        def __getattr__(self, name: str) -> Any:
            return getattr(flag, name)

    iterator._workers_done_event = Again()
    iterator._shutdown_workers()
    return {"batch": batch, "times that the done event is set": calls[0]}


def still_held() -> dict[str, Any]:
    """After an epoch, with the iterator still referred to."""
    iterator = iter(loader_of(Samples(6), pin_memory="host"))
    list(iterator)
    return {"ends of pipes that main has open": len(current_machine().processes[0].ends)}


KEPT: list[Any] = []


def inherited() -> dict[str, Any]:
    """A process forked from main shuts down its copy of the iterator; main goes on with the iterator."""
    KEPT[:] = [iter(loader_of(Samples(6)))]
    first = next(KEPT[0])
    child = worlds.current().process(lambda: KEPT[0]._shutdown_workers(), (), "a child")
    child.start()
    child.join()
    return {"batches": [first, *KEPT.pop()]}


def persistent_and_dropped() -> dict[str, Any]:
    """Persistent workers, whose streams have ended."""
    loader = loader_of(Stream(1, 1), persistent_workers=True)
    return {"batches": sorted(loader)}


class CtrlCInTheWait(Recorded):
    """Ctrl-C as soon as every thread waits, but for `others` such moments before it: main is in the middle of the
    shutdown."""

    def __init__(self, others: int = 0) -> None:
        super().__init__(seed=0, faults=0, horizon=1)
        self.others = others

    def choose(self, machine: Any) -> Any:
        if not self.moves and self.by_default(machine) is None:
            self.others -= 1
        if not self.moves and self.others < 0:
            self.moves.append(Move(machine.step, Fault.INTERRUPT))
            inject(machine, self.moves[0])
        return self.by_default(machine)


class Swallows(Samples):
    """Ctrl-C in a sample is lost: in a finalizer Python can only print it."""

    def __getitem__(self, key: int) -> int:
        with contextlib.suppress(KeyboardInterrupt):
            wait(1.0)
        return key


def ends_after_ctrl_c() -> dict[str, Any]:
    """Main goes on after Ctrl-C, and sends nothing."""
    iterator = iter(loader_of(Swallows(8), num_workers=1, prefetch_factor=1))
    with contextlib.suppress(KeyboardInterrupt), without_status_checks():
        next(iterator)
    worker = iterator._workers[0]
    worker.join(5)
    ended = not worker.is_alive()
    iterator._shutdown_workers()
    return {"the worker has ended": ended}


def it_has_ended(outcome: Any, expected: Any) -> str:
    """If there was a Ctrl-C."""
    ended = not outcome.schedule.moves or outcome.result == {"the worker has ended": True}
    return "" if ended else "5 s after Ctrl-C the worker waits for another message"


SWALLOWED = program("Ctrl-C is swallowed", ends_after_ctrl_c, schedules=(CtrlCInTheWait,), chance=0,
                    accepts=it_has_ended, wanted="it leaves its loop before the next wait")  # fmt: skip
SLOW_ENDS = {0: 0.0, 1: 0.0, 2: 2.0, 3: 4.0}
SHUTDOWN = [
    program("an epoch with a pin thread", load, Samples(6), pin_memory="host", chance=40, real=True),
    program("workers that end late", dropped, Samples(20, slow=SLOW_ENDS), chance=0),
    program("a sample that never comes", dropped, Stuck(20), chance=10),
    program("Ctrl-C in the shutdown", dropped, Stuck(20), schedules=(CtrlCInTheWait,), chance=0),
    program("Ctrl-C in step 1", dropped, Samples(20, slow={0: 0.0, 1: 0.0, -1: 7.0}), **pins(takes=3.0),
            schedules=(functools.partial(CtrlCInTheWait, others=1),), chance=0),
    program("Ctrl-C in a shutdown by hand", shut_down_by_hand, Stuck(20), schedules=(CtrlCInTheWait,), chance=0,
            accepts=reaches_the_caller, wanted="Ctrl-C reaches the caller, and no worker is left"),
    program("Ctrl-C in step 1, by hand", shut_down_by_hand, Stuck(20),
            **pins(takes=3.0), schedules=(functools.partial(CtrlCInTheWait, others=1),), chance=0,
            accepts=reaches_the_caller, wanted="Ctrl-C reaches the caller, and no worker is left"),
    program("shut down within", shut_down_within),
    program("still held", still_held, chance=10),
    program("shut down again", shut_down_again),
    program("never built", never_built),
    program("inherited", inherited),
    program("a slow pin thread", dropped, Samples(20, slow={0: 0.0, 1: 0.0, -1: 7.0}), **pins(takes=3.0), chance=0),
    program("persistent, and dropped", persistent_and_dropped),
    program("interrupted", iterate, Samples(5), faults=1, chance=50),
    program("interrupted, with a pin thread", iterate, Samples(4), **PIN, faults=1, chance=50),
]  # fmt: skip

# ---- a queue

PUTS = 5
SMALL = 64  # bytes that a pipe holds: less than a message has


class Wires:
    """A queue's writing side, and the reading end of its pipe."""

    def __init__(self, puts: int = 0) -> None:
        self.world = worlds.current()
        reader, writer = self.world.pipe()
        self.producer = Producer(self.world, writer, Queue.INDEX, 0)
        self.channel = Channel(0, reader, self.world.flag(), Handles(self.world))
        for task_id in range(puts):
            self.producer.put(Task(0, task_id, [task_id]))

    def read(self, count: int = PUTS + 1) -> list[int]:
        """`count` messages, or all until the pipe ends."""
        while self.channel.open and len(self.channel.whole) < count:
            self.channel.read()
        return [pickle.loads(whole[0]).task_id for whole in self.channel.whole if whole is not None]


def not_read() -> dict[str, Any]:
    wires = Wires(PUTS)
    wires.channel.reader.close()  # the write that waits fails, and so the feeder ends
    wires.producer.close()
    wires.producer.join_thread()
    wires.channel.peer.close()  # type: ignore[attr-defined]
    return {"ends of pipes that are open": len(current_machine().processes[0].ends)}


def not_read_and_more_put() -> dict[str, Any]:
    """Not closed."""
    wires = Wires(PUTS)
    wires.channel.reader.close()
    wires.producer.join_thread()
    wires.producer.put(Task(0, 9, [9]))
    return {"feeders": len(current_machine().threads) - 1}


def reset() -> None:
    """The write fails, but not since the reader is gone."""
    wires = Wires()

    def send(message: Any) -> None:
        raise ConnectionResetError("the connection was reset")

    wires.producer._send = send  # type: ignore[method-assign]
    wires.producer.put(Task(0, 0, [0]))
    wires.producer.close()
    wires.producer.join_thread()
    wires.channel.reader.close()


def closed_and_read(puts: int, stop_first: bool = False) -> dict[str, Any]:
    wires = Wires()
    if stop_first:
        wires.producer.put(Stop(0))
    for task_id in range(puts):
        wires.producer.put(Task(0, task_id, [task_id]))
    let_others_run()
    before = wires.producer.closed
    wires.producer.close()
    wires.producer.close()
    return {"closed": [before, wires.producer.closed], "messages": wires.read()}


def read_and_closed() -> dict[str, Any]:
    wires = Wires(PUTS)
    messages = wires.read(PUTS)
    wires.producer.close()
    return {"messages": messages, "feeders": len(current_machine().threads) - 1}


QUEUE = [
    program("put, and not read", not_read, chance=20, options=SMALL),
    program("put, read and closed", read_and_closed, chance=20, options=SMALL),
    program("put, closed twice and read", closed_and_read, PUTS, chance=20, options=SMALL),
    program("a Stop is put first", closed_and_read, PUTS - 1, stop_first=True, chance=20, options=SMALL),
    program("nothing is put", closed_and_read, 0, chance=20, options=SMALL),
    program("one is put", closed_and_read, 1, chance=20, options=SMALL),
    program("not read, and more is put", not_read_and_more_put, chance=20, options=SMALL),
    program("the connection is reset", reset, chance=20, options=SMALL),
    program("a loader with small pipes", load, Samples(6), transport="torch", chance=30, options=SMALL, real=True),
]

# ---- slots

MOST = 3  # slots
FLOATS = 10_000  # of a batch: too many to follow a pickle through a real pipe


class SlotsBroken(AssertionError):
    """What happens to the slots of a worker breaks their law: one is granted that is not free, or is lost."""

    def __init__(self, steps: list[str], got: str, expected: str) -> None:
        super().__init__(got)
        self.steps, self.got, self.expected = steps, got, expected


@dataclass
class Slot:
    """What must be true of a slot."""

    state: str  # "granted", "lent", "free"
    task_id: int
    # None: perhaps, as it came back before main forked, or as the worker was told so and sent no new memory
    retired: bool | None = False


class Table:
    """Both sides of one worker's slots in one process, and what must be true of them."""

    def __init__(self) -> None:
        world = worlds.current()
        self.packer, self.unpacker = Packer(world, 0), Unpacker(world, 0, MOST)  # minidl's, and the learner's
        self.steps: list[str] = []  # so far
        self.grants = 0
        self.slots: dict[int, Slot] = {}
        self.granted: dict[int, tuple[int, bool]] = {}  # task -> what was granted
        self.batches: dict[int, Any] = {}  # task -> its batch, if the caller has it
        self.child: list[tuple[Any, Any]] = []  # memory that a forked child sees, and what was in it

    def run(self, steps: str) -> None:
        for step in steps.split(", "):
            self.do(step)
        if not all(np.array_equal(pages, before) for pages, before in self.child):
            self.broken("memory that a forked child sees was written to", "it stays as it was")

    def do(self, step: str) -> None:
        what, *rest = step.split()
        if what == "fill":
            for _ in range(MOST + 2):
                self.do("grant")
            return
        self.steps.append(step)
        getattr(self, what)(*map(int, rest))

    def broken(self, got: str, expected: str) -> None:
        raise SlotsBroken(self.steps[-12:], got, expected)

    def grant(self) -> None:
        task_id, self.grants = self.grants, self.grants + 1
        granted: Any = self.unpacker.grant(0, task_id)
        if not (isinstance(granted, tuple) and len(granted) == 2 and isinstance(granted[0], int)):
            self.broken(f"grant returned {granted!r}", "a pair: the slot, and whether it is fresh")
        slot, fresh = granted
        self.steps[-1] = f"grant -> {'NO_SLOT' if slot == NO_SLOT else slot}{' (fresh)' * bool(fresh)}"
        self.judge(slot, bool(fresh))
        self.granted[task_id] = slot, bool(fresh)
        if slot != NO_SLOT:
            self.slots[slot] = Slot("granted", task_id, self.slots[slot].retired if slot in self.slots else False)

    def judge(self, slot: int, fresh: bool) -> None:
        free = [number for number, each in self.slots.items() if each.state == "free"]
        was = self.slots.get(slot)
        if slot == NO_SLOT and free:
            self.broken("NO_SLOT", f"slot {free[-1]}, which is free")
        if slot == NO_SLOT and len(self.slots) < MOST:
            self.broken("NO_SLOT", f"a new slot: there are {len(self.slots)}, and there may be {MOST}")
        if slot != NO_SLOT and not 0 <= slot < MOST:
            self.broken(f"slot {slot}", f"NO_SLOT: all {MOST} slots are out")
        if slot != NO_SLOT and was is None and free:
            self.broken(f"slot {slot}, a new one", f"slot {free[-1]}, which is free")
        if was is not None and was.state == "lent":
            self.broken(f"slot {slot}, in which batch {was.task_id} still lies", "a slot that is free, or NO_SLOT")
        if was is not None and was.state == "granted":
            task = f"task {was.task_id} was granted and has not given back"
            self.broken(f"slot {slot}, which {task}", "a slot that is free, or NO_SLOT")
        if was is not None and was.retired is not None and fresh != was.retired:
            self.broken(f"slot {slot}{'' if fresh else ', not'} fresh", f"slot {slot}{', not' if fresh else ','} fresh")

    def batch(self, task_id: int) -> None:
        slot = self.come(task_id, torch.full((4,), task_id))
        if slot != NO_SLOT:
            self.slots[slot] = Slot("lent", task_id)

    def unused(self, task_id: int) -> None:
        slot = self.come(task_id, "an exception, which needs no memory")
        del self.batches[task_id]
        if slot != NO_SLOT:
            # Has the worker given up its memory?
            self.slots[slot] = Slot("free", task_id, None if self.slots[slot].retired is not False else False)

    def come(self, task_id: int, data: Any) -> int:
        """A worker answers: its side packs the message, and main's unpacks it."""
        slot, fresh = self.granted.pop(task_id)
        pieces, memory = self.packer.pack(Result(0, task_id, 0, data, self.packer.room(slot, fresh)))
        self.batches[task_id] = self.unpacker.unpack(b"".join(pieces), memory).data
        return slot

    def drop(self, task_id: int) -> None:
        if not bool((self.batches.pop(task_id) == task_id).all()):
            self.broken("something else is in the batch", f"batch {task_id}, as it came")
        for each in self.slots.values():
            if each.state == "lent" and each.task_id == task_id:
                each.state = "free"

    def fork(self) -> None:
        self.unpacker.before_fork()
        for slot, each in self.slots.items():
            if each.state == "lent":
                each.retired = True
                pages = self.unpacker._memories[slot].bytes
                self.child.append((pages, pages.copy()))
            elif each.state == "free":
                each.retired = None if each.retired is False else each.retired

    def reclaim(self) -> None:
        self.granted.clear()
        self.unpacker.reclaim()
        for each in self.slots.values():
            if each.state == "granted":
                each.state = "free"


def by_steps(steps: str) -> None:
    Table().run(steps)


def by_chance(seed: int) -> None:
    table, chance = Table(), random.Random(seed)
    for _ in range(40):
        under_way = [f"{what} {task}" for task in table.granted for what in ("batch", "batch", "unused")]
        step = chance.choice(["grant", "grant", *under_way, *[f"drop {task}" for task in table.batches] * 2])
        table.do(step)
        if chance.random() < 0.05:
            table.do("fork")
    table.run("reclaim, fill")


def filled(keys: list[int]) -> torch.Tensor:
    return torch.full((FLOATS,), float(keys[0]))


def keep(keeps: int, *lengths: int) -> dict[str, Any]:
    """Epochs of so many batches; an earlier one may be given up. The caller keeps the last `keeps` batches, and looks
    at each when it is about to drop it. What each is full of; -1: it is not all the same."""
    loader = loader_of(Samples(lengths[-1]), num_workers=1, collate_fn=filled, persistent_workers=True)
    seen: list[float] = []
    kept: deque[Any] = deque()
    with without_status_checks():
        for length in lengths:
            iterator = iter(loader)
            for _ in range(length):
                kept.append(next(iterator))
                if len(kept) > keeps:
                    seen.append(_filling(kept.popleft()))
    return {"batches": seen + [_filling(batch) for batch in kept]}


def _filling(batch: torch.Tensor) -> float:
    return float(batch[0]) if bool((batch == batch[0]).all()) else -1.0


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
    "grant, batch 0, fork, drop 0, fill",
    "grant, batch 0, fork, drop 0, grant, batch 1, drop 1, fill",
    "grant, batch 0, fork, reclaim, drop 0, grant, batch 1, drop 1, fill",
    "grant, batch 0, fork, drop 0, grant, reclaim, grant, batch 2, fill",  # its task was skipped
)
SLOTS = [
    *(program(steps, by_steps, steps, chance=0) for steps in STEPS),
    *(program(f"forty steps by chance, {seed}", by_chance, seed, chance=0) for seed in range(40)),
    program("two batches are kept", keep, 2, 2, 6, chance=30, real=True),
    program("no batch is kept", keep, 0, 8, chance=20),
]
