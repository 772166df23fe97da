"""Exercise 18's programs: a loader is stopped, another goes on from its state, and what came is put together.

Legend
    stops    [3, 2]      after three things have come the loader is stopped; the next one after two more
    came     [[(0, 4, 3)], "ValueError", "the end"]    batches, errors and ends of epochs, one after the other
    sample   (0, 4, 3)   worker 0 has made the sample with key 4, its third
"""

from __future__ import annotations

import pickle
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import minidl
from minidl.world.simulated import machine as machines
from minidl.world.simulated import sleep
from notebooks.exercises.programs import Keys, let_others_run
from notebooks.exercises.use_programs import every_key

END = "the end"
Sample = tuple[int, int, int]


def wait_for_the_others() -> None:
    """So long that all that was handed out meanwhile is made."""
    sleep(1.0) if machines.is_running() else time.sleep(0.05)


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


def what_comes(loader: Any, most: int | None, epochs: int) -> Iterator[Any]:
    """Batches, the names of errors, and END; until `most` have come, or so many epochs have ended."""
    iterator = iter(loader)
    while epochs and most != 0:
        let_others_run()
        try:
            came = next(iterator)
        except StopIteration:
            came, epochs = END, epochs - 1
        except ValueError as error:
            came = type(error).__name__
        yield came
        most = None if most is None else most - 1
        if came == END and epochs and most != 0:
            iterator = iter(loader)
    if loader.persistent_workers:
        iterator._shutdown_workers()  # an exception that was raised may keep it alive


def stopped_and_gone_on(dataset: Callable[[], Any], stops: list[int], epochs: int = 1, **options: Any) -> Any:
    """{"came": all that came in so many epochs, "states": [[batches of the epoch, says a state; how many there were;
    batches since its snapshot], ...]}"""
    came: list[Any] = []
    states, state = [], None
    for stop in [*stops, None]:
        loader: Any = minidl.DataLoader(dataset(), **{"batch_size": 1, "collate_fn": every_key, **options})
        if state is not None:
            loader.load_state_dict(pickle.loads(state))
        came += what_comes(loader, stop, epochs - came.count(END))
        if stop is not None:
            saved = loader.state_dict()
            state = pickle.dumps(saved)
            if came[-1:] != [END]:
                counted, since = counts_of(saved)
                states.append([counted, batches_of_the_epoch(came), since])
        del loader
    return {"came": came, "states": states}


def counts_of(state: dict[str, Any]) -> tuple[int, int]:
    """How many batches of the epoch had been yielded, says a state, and how many of them since its snapshot."""
    if "_snapshot" not in state:  # without workers
        return state["_num_yielded"], 0
    since = state["_steps_since_snapshot"]
    return state["_snapshot"]["_snapshot_step"] + since, since


def batches_of_the_epoch(came: list[Any]) -> int:
    begin = len(came) - came[::-1].index(END) if END in came else 0
    return sum(isinstance(each, list) for each in came[begin:])


def stopped_counted(
    length: int,
    stops: list[int],
    unreadable: list[int],
    epochs: int = 1,
    until: int = 100,
    draws: bool = False,
    **options: Any,
) -> Any:
    return stopped_and_gone_on(lambda: Counted(length, unreadable, until, draws), stops, epochs, **options)


def stopped_shares(lengths: list[int], stops: list[int], epochs: int = 1, **options: Any) -> Any:
    return stopped_and_gone_on(lambda: Shares(*lengths), stops, epochs, **options)


def stopped_in_any_order(length: int, stops: list[int], **options: Any) -> Any:
    """Without order: which worker makes a batch is left to chance, and so is its place."""
    found = stopped_and_gone_on(lambda: Counted(length, [], 0), stops, in_order=False, **options)
    return {**found, "came": [[(0, key, 0)] for key in sorted(each[0][1] for each in found["came"] if each != END)]}
