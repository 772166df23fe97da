"""Small programs for the simulated world, which show by what they return or raise whether their loader works.

They are at module level, where a spawned worker could import them.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import minidl
from minidl.events import Kind, Queue
from minidl.queues import LENGTH
from minidl.transport import VARIABLE
from minidl.world.simulated import simulate, sleep, step
from tests.samples import Samples, Stream, dealt

TASKS = 3


class Keys(Samples):
    """Others may run before each sample. Some samples raise, some take long."""

    def __init__(
        self, tasks: int = TASKS, fails: tuple[int, ...] = (), slow: dict[int, float] | None = None, **others: Any
    ) -> None:
        super().__init__(tasks, **others)
        self.fails, self.slow = fails, slow or {}

    def __getitem__(self, key: Any) -> Any:
        step()
        if key in self.slow:
            sleep(self.slow[key])
        if key in self.fails:
            raise LookupError(f"sample {key}")
        return super().__getitem__(key)


def stream() -> Stream:
    """Iterable style: the workers divide the samples among them."""
    return Stream(Keys(), dealt)


STYLES = {"keys": Keys, "stream": stream}


def load(dataset: Any = None, epochs: int = 1, **options: Any) -> list[list[Any]]:
    """The batches of each epoch, one sample each. An error that lost a task must be raised again."""
    loader: minidl.DataLoader[Any] = minidl.DataLoader(
        Keys() if dataset is None else dataset, batch_size=1, collate_fn=list, **{"num_workers": 2, **options}
    )
    return [list(epoch(loader)) for _ in range(epochs)]


def epoch(loader: minidl.DataLoader[Any]) -> Iterator[Any]:
    """One pass over a loader, with a training step after each batch."""
    iterator = iter(loader)
    while True:
        try:
            batch = next(iterator)
        except StopIteration:
            return
        except RuntimeError as error:
            stays(iterator, error)
            raise
        step()  # here a death is raised, too: it may be that of another loader's worker
        yield batch


def stays(iterator: Any, error: RuntimeError) -> None:
    """AssertionError: the iterator goes on after this error, which lost a task."""
    try:
        next(iterator)
    except RuntimeError as second:
        assert str(second) == str(error), f"raised {error!r} and then {second!r}"
    else:
        raise AssertionError(f"raised {error!r}, and then continued") from error


TORCHS_WAY = {VARIABLE: "torch"}  # the environment in which loaders move batches as torch does: with feeders


def bytes_of_a_result(environment: dict[str, str] | None = None) -> int:
    """What a batch of `load` takes up in a pipe."""
    sent = (
        event
        for event in simulate(load, environment=environment).events
        if event[2] == Kind.SENT and event[6] == Queue.RESULT
    )
    return LENGTH.size + int(next(sent)[7])


def configurations() -> dict[str, Callable[[], Any]]:
    """A program for each combination of map and iterable style, pin thread or none, persistent workers or not, slots or
    torch's way."""
    found = {}
    for way, style, pins, persists in itertools.product(("slots", "torch"), STYLES, (False, True), (False, True)):
        name = [style, *["pinned"] * pins, *["persistent"] * persists, *["torch"] * (way == "torch")]
        found[" ".join(name)] = functools.partial(
            load,
            STYLES[style](),
            1 + persists,
            transport=way,
            pin_memory="host" if pins else False,
            persistent_workers=persists,
        )
    return found
