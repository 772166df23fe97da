"""The playground's model against the simulated world: minidl's own loader, with the same durations, on the simulated
machine. The same events must come in the same order at the same times, for random settings.

Times: a tick of the model, 0.1 ms, is `TICK` of virtual time. In the simulated world the loader's own steps take a
microsecond each, in the model none; so whatever takes time here begins at the tick in which it is asked for and ends at
a whole one, and what happens within a tick counts as happening at its beginning. If anything happens later than a
`TOLERANCE` of a tick after that, 0.01 ms of the model, the comparison fails.

Ties: nothing is perturbed, so equal times are common. Both follow one rule: see tracing/views/playground/model.js.
"""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import dataclass
from typing import Any

from minidl import DataLoader, get_worker_info
from minidl.events import NO_TASK, Kind, Queue
from minidl.world import current
from minidl.world.simulated import simulate, sleep
from minidl.world.simulated.machine import BEGIN
from tests.samples import Samples
from tests.tracing.views.browser import Page

SECOND = 1_000_000_000  # ns
TICK = 20_000_000  # ns of virtual time
TOLERANCE = 0.1  # of a tick

# What is compared: each step of the protocol on the way of a batch. Left out are waits, which say nothing that the
# others don't, what happens outside of an epoch, slots, and a task's way through its pipe, which takes no time.
COMPARED = {
    (Kind.KEYS_DRAWN, 0), (Kind.DISPATCHED, 0), (Kind.PUT, Queue.INDEX), (Kind.GOT, Queue.INDEX), (Kind.PRIMED, 0),
    (Kind.FETCH_BEGIN, 0), (Kind.FETCH_END, 0), (Kind.COLLATE_BEGIN, 0), (Kind.COLLATE_END, 0),
    (Kind.PUT, Queue.RESULT), (Kind.SENT, Queue.RESULT), (Kind.ARRIVED, Queue.RESULT), (Kind.GOT, Queue.RESULT),
    (Kind.PIN_BEGIN, 0), (Kind.PIN_END, 0), (Kind.PUT, Queue.DATA), (Kind.GOT, Queue.DATA),
    (Kind.RECEIVED, 0), (Kind.STORED, 0), (Kind.RELEASED, 0), (Kind.ASKED, 0), (Kind.YIELDED, 0), (Kind.EPOCH_END, 0),
}  # fmt: skip

Setting = dict[str, Any]
Event = tuple[int, str, int, int]  # tick, kind and queue, task, worker


def spend(ticks: int) -> None:
    """Wait for this many ticks, counted from the beginning of the present one."""
    if ticks:
        now = round(current().now() * SECOND)
        end = BEGIN + ((now - BEGIN) // TICK + ticks) * TICK
        sleep((end - now + 0.5) / SECOND)  # the machine cuts off fractions of a ns


@dataclass
class Batch:
    """Takes its time to be pickled, unpickled and pinned."""

    times: dict[str, int]

    def __getstate__(self) -> dict[str, Any]:
        spend(self.times["move"])
        return vars(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        spend(self.times["move"])

    def pin_memory(self) -> Batch:
        spend(self.times["pinning"])
        return self


def in_the_world(setting: Setting, times: dict[str, Any]) -> list[Event]:
    """The events of minidl's loader."""

    def make(key: int) -> int:
        worker = get_worker_info()
        spend(times["samples"][key] * (times["slow"] if worker and worker.id == 0 else 1))
        return key

    def collate(samples: list[int]) -> Batch:
        spend(times["collate"])
        return Batch(times)

    def program() -> None:
        loader: DataLoader[Any] = DataLoader(
            Samples(len(times["samples"]), make), batch_size=setting["batch"], collate_fn=collate,
            in_order=setting["in_order"], pin_memory="host" if setting["pin"] else False,
            num_workers=setting["workers"], prefetch_factor=setting["prefetch"] if setting["workers"] else None,
        )  # fmt: skip
        for _ in loader:
            spend(times["train"])

    outcome = simulate(program, capacity=1 << 22, draws=False, most_steps=10**7)
    assert outcome.error is None and not outcome.deadlock and not outcome.endless, outcome.error
    found = list[Event]()
    for time, _, kind, _, task, worker, queue, *_ in outcome.events:
        if (kind, queue) in COMPARED and task >= NO_TASK:  # no STOP, with which the shutdown begins
            tick, rest = divmod(time - BEGIN, TICK)
            assert rest < TOLERANCE * TICK, f"too late to tell one tick from the next: {setting}"
            found.append((tick, f"{Kind(kind).name} {Queue(queue).name if queue else ''}".strip(), task, worker))
    return found


def in_the_model(page: Page, setting: Setting) -> tuple[list[Event], dict[str, Any]]:
    """The events of the model, and how long everything took. `page` has loaded the model."""
    asked = f"((setting) => [simulate(setting), durations(setting)])({json.dumps(setting)})"
    events, times = page.evaluate(asked)
    unknown = "ARRIVED RESULT"  # a consumer knows which task a message is of once it is unpickled
    return [(tick, kind, -1 if kind == unknown else task, worker) for tick, kind, task, worker in events], times


def compare(page: Page, setting: Setting) -> None:
    """Assert that they are the same."""
    theirs, times = in_the_model(page, setting)
    for number, (our, their) in enumerate(itertools.zip_longest(in_the_world(setting, times), theirs)):
        assert our == their, f"event {number}: the loader's is {our}, the model's {their}: {setting}"


def random_setting(chance: random.Random) -> Setting:
    """Few different times, 0 among them, so that many things happen at the same time. In some settings workers take no
    time at all: then several threads can go on at once, and the rule decides which does."""
    unit = chance.choice([0.1, 0.5, 1, 2.5])
    longest, instant = chance.choice([1, 3, 12]), chance.random() < 0.15

    def time(of_workers: bool) -> float:
        ms = round(unit * chance.randint(0, longest), 1)
        return 0 if of_workers and instant else ms

    return {
        "workers": chance.choice([0, 1, 2, 3, 4, 5, 6, 8, 12, 16]),
        "prefetch": chance.choice([1, 2, 2, 3, 4, 8]),
        "in_order": chance.random() < 0.6,
        "pin": chance.random() < 0.5,
        "batch": chance.choice([1, 1, 2, 4, 7]),
        "shape": chance.choice(["constant", "varied", "slow_sample", "slow_worker"]),
        "sample": time(of_workers=True),
        "every": chance.randint(2, 30),
        "factor": chance.randint(2, 20),
        "collate": time(of_workers=True),
        "move": time(of_workers=True),
        "pinning": time(of_workers=False),
        "train": time(of_workers=False),
        "batches": chance.choice([1, 5, 20, 40, 60]),
    }
