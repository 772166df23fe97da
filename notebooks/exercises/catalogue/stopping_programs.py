"""Exercise 18's programs: a loader is stopped, one goes on from its state, and what came is put together.

Legend
    stops    [3, 2]      after three things have come (after BEGUN) the loader is stopped; the next one after two more
    came     [[(0, 4, 3)], "ValueError", "the end"]    batches, errors and ends of epochs, one after the other
    sample   (0, 4, 3)   worker 0 has made the sample with key 4, its third
"""

from __future__ import annotations

import itertools
import pickle
import random
import time
from collections.abc import Generator, Iterator
from typing import Any

import minidl
from minidl.world.simulated import machine as machines
from minidl.world.simulated import sleep
from notebooks.exercises.programs import Keys, let_others_run
from notebooks.exercises.use_programs import every_key

BEGUN, END = "the beginning", "the end"
Sample = tuple[int, int, int]


def wait_for_the_others() -> None:
    """So long that all that was handed out meanwhile is made."""
    sleep(0.0003) if machines.is_running() else time.sleep(0.05)


def own_id() -> int:
    info = minidl.get_worker_info()
    return info.id if info else 0


class Counted(Keys):
    """Map style, with a place: how many samples this copy of it has made, but for those from `until` on. These may draw
    a random number instead, which changes another part of the place. Sample 0 takes long."""

    def __init__(self, length: int, unreadable: list[int], until: int, draws: bool = False) -> None:
        super().__init__(length)
        self.all_unreadable, self.until, self.draws = unreadable, until, draws
        self.made = 0

    def __getitem__(self, key: int) -> Any:
        if key < self.until:
            self.made += 1
        elif self.draws:
            random.random()
        if key == 0:
            wait_for_the_others()
        if key in self.all_unreadable:
            raise ValueError(f"sample {key} cannot be read")
        return own_id(), super().__getitem__(key), self.made

    def state_dict(self) -> dict[str, Any]:
        return {"made": self.made}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.made = state["made"]


class Shares(minidl.IterableDataset[Sample]):
    """Streams: worker k has lengths[k] samples. Its place, and that of its iterator: the epoch, and the next sample."""

    def __init__(self, *lengths: int) -> None:
        self.lengths = lengths
        self.epoch = 0

    def __iter__(self) -> Iterator[Sample]:
        return Share(self)

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.epoch = state["epoch"]


class Share(Iterator[Sample]):
    def __init__(self, dataset: Shares) -> None:
        self.dataset, self.number = dataset, 0

    def __next__(self) -> Sample:
        if self.number == self.dataset.lengths[own_id()]:
            self.dataset.epoch += 1
            raise StopIteration
        if own_id() == self.number == self.dataset.epoch == 0:
            wait_for_the_others()
        let_others_run()
        self.number += 1
        return own_id(), self.number - 1, self.number + 100 * self.dataset.epoch

    def state_dict(self) -> dict[str, Any]:
        return {"number": self.number}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.number = state["number"]


def what_comes(loader: Any, epochs: int) -> Generator[Any, None, None]:
    """In each epoch BEGUN, then batches and the names of errors, then END."""
    iterator = iter(loader)
    try:
        yield BEGUN
        while epochs:
            let_others_run()
            try:
                came = next(iterator)
            except StopIteration:
                came, epochs = END, epochs - 1
            except ValueError as error:
                came = type(error).__name__
            yield came
            if came == END and epochs:
                iterator = iter(loader)
                yield BEGUN
    finally:
        if loader.persistent_workers:
            iterator._shutdown_workers()  # an exception that was raised may keep it alive


def stopped_and_gone_on(dataset: Any, stops: list[int], epochs: int = 1, **options: Any) -> Any:
    """{"came": all that came in so many epochs, "states": [[batches of the epoch, says a state; how many there were;
    tasks since its snapshot; tasks left in `arrived` when an epoch is over; workers of whose place parts are missing],
    ...]}. It is always the same loader, which one picture shows: after `load_state_dict` it begins like another."""
    loader: Any = minidl.DataLoader(dataset, **{"batch_size": 1, "collate_fn": every_key, **options})
    came: list[Any] = []
    states = []
    for stop in stops:
        coming = what_comes(loader, epochs - came.count(END))
        begun = next(coming)
        came += [begun] * (came[-1:] == [END])  # or it goes on in the middle
        came += itertools.islice(coming, stop)
        state = loader.state_dict()
        coming.close()
        counted, since = counts_of(state)
        left = len(loader._position.arrived) if came[-1:] == [END] else 0
        states.append([counted, batches_of_the_epoch(came), since, left, without_generators(state)])
        loader.load_state_dict(pickle.loads(pickle.dumps(state)))
    came += what_comes(loader, epochs - came.count(END))
    return {"came": [each for each in came if each != BEGUN], "states": states}


def counts_of(state: dict[str, Any]) -> tuple[int, int]:
    """How many batches of the epoch were yielded, says a state, and how many tasks have passed since its snapshot."""
    if "_snapshot" not in state:  # without workers
        return state["_num_yielded"], 0
    batches, tasks = state["_steps_since_snapshot"], state["minidl"]["since"]
    return state["_snapshot"]["_snapshot_step"] + batches, max(batches, tasks)


def without_generators(state: dict[str, Any]) -> list[int]:
    """The workers of whose place a state knows a part, but not the random generators, which it always has."""
    places = state["_snapshot"]["_worker_snapshots"].values() if "_snapshot" in state else ()
    known = [each for each in places if each and (each["dataset_state"], each["fetcher_state"]) != (None, None)]
    return [each["worker_id"] for each in known if not each["minidl"]["random"]]


def batches_of_the_epoch(came: list[Any]) -> int:
    """Of the last one that has begun, whether or not it has ended."""
    *_, last = [0, *(number for number, each in enumerate(came[:-1], start=1) if each == END)]
    return sum(isinstance(each, list) for each in came[last:])


def stopped_counted(
    length: int,
    stops: list[int],
    unreadable: list[int],
    epochs: int = 1,
    until: int = 100,
    draws: bool = False,
    **options: Any,
) -> Any:
    return stopped_and_gone_on(Counted(length, unreadable, until, draws), stops, epochs, **options)


def stopped_shares(lengths: list[int], stops: list[int], epochs: int = 1, **options: Any) -> Any:
    return stopped_and_gone_on(Shares(*lengths), stops, epochs, **options)


def stopped_in_any_order(length: int, stops: list[int], **options: Any) -> Any:
    """Without order: which worker makes a batch is left to chance, and so is its place."""
    found = stopped_and_gone_on(Counted(length, [], 0), stops, in_order=False, **options)
    return {**found, "came": [[(0, key, 0)] for key in sorted(each[0][1] for each in found["came"] if each != END)]}
