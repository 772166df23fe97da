"""Programs that go on elsewhere: with other workers or ranks, with another dataset, from states of torchdata's."""

from __future__ import annotations

import functools
import itertools
import warnings
from typing import Any

import torch

import minidl
from minidl.events import Kind
from minidl.world.simulated import machine as machines
from minidl.world.simulated import step
from minidl.world.simulated.simulation import sleep
from tests.minidl.simulated.stopping import seed, steps_of
from tests.minidl.simulated.worth import Worth
from tests.minidl.simulated.worth_ending import tries
from tests.minidl.simulated.worth_exploring import Keys, Streams, loader, seen
from tests.minidl.simulated.worth_stopping import Counting, Ordered, OwnPlace, Places


def state_after(batches: int | None, load: Any) -> Any:
    """None: after the whole epoch."""
    iterator = iter(load)
    for _ in itertools.islice(iterator, batches):
        step()
    return load.state_dict()


def going_on(load: Any, state: Any, strict: bool = True) -> Any:
    """What comes, and the warnings; or the words of the error."""

    def goes_on() -> Any:
        load.load_state_dict(state, strict=strict)
        return seen(iter(load))

    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            return [goes_on(), *(str(each.message) for each in heard if "wound forward" in str(each.message))]
        except (AssertionError, RuntimeError, ValueError) as error:
            return [type(error).__name__, str(error)]


def other_workers(then: int, now: int, **options: Any) -> list[Any]:
    """And datasets that this state is none of."""
    found = []
    for dataset in (Keys(7), Streams((4, 4, 4))):
        state = state_after(3, loader(dataset, num_workers=then, **options))
        for other in (Keys(7), Streams((4, 4, 4))):
            for strict in (True, False):
                found.append(going_on(loader(other, num_workers=now), state, strict))
    return found


def share(ranks: int, rank: int, keys: int = 11, **options: Any) -> Any:
    sampler = minidl.DistributedSampler(Keys(keys), ranks, rank, seed=3, **options)
    sampler.set_epoch(2)
    return loader(Keys(keys), sampler=sampler, batch_size=2)


def other_ranks(then: int, now: int, **options: Any) -> list[Any]:
    """A state of the first rank serves them all, whether none, few or all of the keys are gone."""
    found = []
    for batches in (0, 2, None):
        state = state_after(batches, share(then, 0, **options))
        for rank in range(now):
            found += [going_on(share(now, rank, **options), state, strict) for strict in (True, False)]
    return found


def not_of_ranks() -> list[Any]:
    """One of the two samplers is none that ranks share."""
    alone = functools.partial(loader, Keys(11), batch_size=2)
    ways = ((alone(), share(2, 1)), (share(2, 0), alone()), (alone(), share(1, 0)))
    return [going_on(now, state_after(1, then), strict) for then, now in ways for strict in (True, False)]


def without_ours(state: Any) -> Any:
    """A state as torchdata's loader would write it."""
    if not isinstance(state, dict):
        return state
    return type(state)({name: without_ours(each) for name, each in state.items() if name != "minidl"})


def from_torchdata(build: Any) -> list[Any]:
    """After every batch and at the end: what comes, how many batches that makes, and a second epoch."""
    found = []
    for batches in (*range(4), None):
        seed(1)
        state = without_ours(state_after(batches, build()))
        seed(2)
        load = build()
        found += [going_on(load, state), steps_of(load.state_dict()), seen(iter(load))]
    return found


class Slow(Streams):
    def samples(self, worker_id: int) -> Any:
        for number in super().samples(worker_id):
            sleep(0.4)
            yield number


def wound_forward() -> list[Any]:
    """It takes less than a second, and more; and a place that is found takes none."""
    found = []
    for batches in (0, 2, 3):
        state = state_after(batches, loader(Slow((5,)), num_workers=0))
        found.append(going_on(loader(Slow((5,)), num_workers=0), state))
    found.append(going_on(loader(Keys(2), num_workers=0), state_after(3, loader(Keys(7), num_workers=0))))
    return found


def says_where() -> list[Any]:
    """Where it goes on, as the trace tells it: after how many batches, and which keys come first; and after a whole
    epoch nowhere."""
    for workers in (2, 0):
        going_on(loader(Keys(7), num_workers=workers), state_after(2, loader(Keys(7), num_workers=workers)))
        whole = loader(Keys(7), num_workers=workers)
        list(whole)
        going_on(loader(Keys(7), num_workers=workers), whole.state_dict())
    return [event[7:9] for event in machines.current_machine().events if event[2] == Kind.GOES_ON]


class NoPlace(Counting):
    """From so many samples on."""

    begin = 0

    def state_dict(self) -> dict[str, Any]:
        if self.asked < self.begin:
            return super().state_dict()
        raise LookupError("no place")


class NoPlaceLater(NoPlace):
    begin = 3


def asked_in_vain() -> list[Any]:
    """What main raises, and raises again; and in which epoch a worker could not tell its place, as the trace has it."""
    iterator = iter(loader(NoPlace(2), num_workers=1))
    found = [tries(lambda: next(iterator)) for _ in range(2)]
    load = loader(NoPlaceLater(4), num_workers=1, persistent_workers=True)
    next(iter(load))
    found.append(tries(lambda: len(iter(load))))
    return found + [event[3:7] for event in machines.current_machine().events if event[2] == Kind.FETCH_FAILED]


def before_the_next() -> list[Any]:
    """An epoch is over, and a process that goes on from its state is stopped before the first batch of the next."""
    build = functools.partial(loader, Counting(4), num_workers=3, persistent_workers=True)
    between = build()
    between.load_state_dict(state_after(None, build()))
    return going_on(build(), state_after(0, between))


def refused() -> list[Any]:
    """What is no state, and a loader that still has the one that did not fit."""
    found = [tries(lambda state=state: loader().load_state_dict(state)) for state in ({"a": 1}, {"_snapshot": None})]
    state = state_after(2, loader(Keys(4)))
    load = loader(Keys(4), num_workers=1)
    return [*found, going_on(load, state), load.state_dict() == state, len(iter(loader(Keys(4), batch_size=3)))]


def own() -> torch.Generator:
    return torch.Generator().manual_seed(7)


def fitting() -> dict[str, Worth]:
    """By name."""
    part = functools.partial
    once = functools.partial(Worth, timed=True)
    shuffled = {"dataset": Keys(5), "shuffle": True}
    return {
        "stopping: two workers, then none": once(part(other_workers, 2, 0)),
        "stopping: two workers, then three": once(part(other_workers, 2, 3, snapshot_every_n_steps=2)),
        "stopping: no worker, then two": once(part(other_workers, 0, 2)),
        "stopping: two ranks, then three": once(part(other_ranks, 2, 3)),
        "stopping: three ranks, then two": once(part(other_ranks, 3, 2, drop_last=True)),
        "stopping: one rank": once(part(other_ranks, 2, 2)),
        "stopping: not of ranks": once(not_of_ranks),
        "stopping: torchdata's, shuffled": once(part(from_torchdata, lambda: loader(**shuffled))),
        "stopping: torchdata's, unbatched": once(
            part(from_torchdata, lambda: loader(**shuffled, batch_size=None, num_workers=0, collate_fn=None))
        ),
        "stopping: torchdata's, a generator": once(
            part(from_torchdata, lambda: loader(**shuffled, batch_size=2, num_workers=0, generator=own()))
        ),
        "stopping: torchdata's, streams": once(part(from_torchdata, lambda: loader(Streams((2, 2, 1)), num_workers=3))),
        "stopping: torchdata's, streams, serial": once(
            part(from_torchdata, lambda: loader(Streams((5,)), num_workers=0))
        ),
        "stopping: torchdata's, places": once(part(from_torchdata, lambda: loader(Places((3, 3))))),
        "stopping: torchdata's, own places": once(part(from_torchdata, lambda: loader(OwnPlace(), num_workers=0))),
        "stopping: torchdata's, a sampler": once(
            part(from_torchdata, lambda: loader(Counting(4), sampler=Ordered(4), num_workers=0))
        ),
        "stopping: wound forward": once(wound_forward, slow=True),
        "stopping: it says where": once(says_where, options={"texts": True}),
        "stopping: asked in vain": once(asked_in_vain),
        "stopping: before the next epoch": once(before_the_next),
        "stopping: refused": once(refused),
    }
