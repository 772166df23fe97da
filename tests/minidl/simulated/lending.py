"""Small programs whose batches lie in slots: the caller holds them, and lets go of them late, or somewhere else.

A batch of key k consists of the number k. Each program looks at what it holds until the end, also when something goes
wrong: a slot that was written while it was lent shows as a wrong batch.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import torch

import minidl
from minidl import world as worlds
from minidl.transport import DIRECT
from minidl.world.simulated import drop, step
from tests.minidl.simulated.programs import epoch

TASKS = 6  # two more than there are slots for a worker that has two tasks at a time


class Numbers(minidl.Dataset[Any]):
    """Sample k is the number k, this many times."""

    def __init__(self, sizes: tuple[int, ...] = (1,) * TASKS) -> None:
        self.sizes = sizes

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, key: int) -> torch.Tensor:
        step()
        return torch.full((self.sizes[key],), key, dtype=torch.uint8)


class Held(deque[Any]):
    """Batches that the caller has: (batch, its key)."""

    def check(self) -> None:
        for batch, key in self:
            found = set(batch.reshape(-1).tolist())
            assert found == {key}, f"batch {key} holds {sorted(found)}"


@contextlib.contextmanager
def holding(most: int | None = None) -> Iterator[Held]:
    """The last batches, this many; None: all."""
    held = Held(maxlen=most)
    try:
        yield held
    finally:
        held.check()
        held.clear()


def loader_of(dataset: Any = None, **options: Any) -> Any:
    defaults = {"num_workers": 1, "collate_fn": only, "batch_size": 1}
    return minidl.DataLoader(Numbers() if dataset is None else dataset, **{**defaults, **options})


def only(samples: list[Any]) -> Any:
    return samples[0]


def hold(most: int | None = None, dataset: Any = None, **options: Any) -> int:
    """One pass, in which the caller has its last `most` batches. Returns how many there were."""
    count = 0
    with holding(most) as held:
        for count, batch in enumerate(epoch(loader_of(dataset, **options)), 1):
            held.append((batch, count - 1))
            del batch
            held.check()
            step()
    return count


def in_another_thread() -> int:
    """It lets go of them, one after another."""
    world = worlds.current()
    box, done = world.mailbox(), world.mailbox()

    def lets_go() -> None:
        while (item := box.get()) is not None:
            held = Held([item])
            del item
            with contextlib.suppress(OSError):  # it may raise here
                step()
            held.check()
        done.put(None)

    world.thread(lets_go, (), "lets go").start()
    count = 0
    try:
        for count, batch in enumerate(epoch(loader_of()), 1):
            box.put((batch, count - 1))
            del batch
    finally:
        box.put(None)
        done.get()
    return count


def by_the_garbage_collector() -> int:
    count = 0
    with holding(1) as held:
        for count, batch in enumerate(epoch(loader_of()), 1):
            held.append((batch, count - 1))
            drop(batch)
            del batch
            step()
            held.check()
    return count


def an_epoch_left_halfway(**options: Any) -> int:
    """Persistent workers: tasks that were granted slots are never answered."""
    loader = loader_of(persistent_workers=True, num_workers=2, **options)
    with holding() as held:
        iterator = iter(loader)
        held.append((next(iterator), 0))
        step()
        del iterator
        for key, batch in enumerate(epoch(loader)):
            held.append((batch, key))
            del batch
            held.check()
        return len(held)


class Keeps:
    """A collate_fn that keeps what it returned the last three times."""

    def __init__(self) -> None:
        self.held = Held(maxlen=3)

    def __call__(self, samples: list[Any]) -> Any:
        batch = minidl.default_collate(samples)
        self.held.check()
        self.held.append((batch, int(samples[0][0])))
        step()
        return batch


KEPT = Held(maxlen=4)  # main's


def _kept(numbers: torch.Tensor, key: int) -> torch.Tensor:
    KEPT.append((numbers, key))
    return numbers


class Keepsake:
    """A batch that is kept by the process that unpickles it, as by a class that has a list of its instances."""

    def __init__(self, samples: list[Any]) -> None:
        self.numbers = samples[0]

    def __reduce__(self) -> tuple[Any, ...]:
        return _kept, (self.numbers, int(self.numbers[0]))


def an_epoch_left_halfway_is_kept() -> int:
    """Batches of the old epoch still come during the resume handshake: the loader drops them, but they have been
    unpickled."""
    KEPT.clear()  # of a run in which main was killed
    loader = loader_of(persistent_workers=True, collate_fn=Keepsake)
    count = 0
    try:
        iterator = iter(loader)
        next(iterator)
        step()
        del iterator
        for batch in epoch(loader):
            del batch
            KEPT.check()
            count += 1
    finally:
        KEPT.check()
        KEPT.clear()
    return count


class Looks(Numbers):
    """A dataset that has a batch of another loader, and looks at it."""

    def __init__(self, held: Held) -> None:
        super().__init__((1,) * 3)
        self.held = held

    def __getitem__(self, key: int) -> torch.Tensor:
        self.held.check()
        return super().__getitem__(key)


def a_fork_while_batches_are_held() -> tuple[int, int]:
    """The second loader's worker has the first one's batch, and main lets go of it."""
    iterator = epoch(loader_of())
    with holding() as held:
        held.append((next(iterator), 0))
        other = epoch(loader_of(Looks(held)))
        next(other)
        held.check()
        held.clear()
        return sum(1 for _ in iterator), sum(1 for _ in other)


SMALL, LARGE = 1, DIRECT  # bytes; so large a batch is collated in its slot


def lendings() -> dict[str, Callable[[], Any]]:
    """By name."""
    return {
        "held to the end": hold,
        "dropped late": lambda: hold(2, prefetch_factor=1),
        "dropped late two workers": lambda: hold(2, num_workers=2, prefetch_factor=1),
        "dropped late persistent": lambda: an_epoch_left_halfway(prefetch_factor=1),
        "pinned": lambda: hold(2, pin_memory="host"),
        "pinned persistent": lambda: an_epoch_left_halfway(prefetch_factor=1, pin_memory="host"),
        "in another thread": in_another_thread,
        "by the garbage collector": by_the_garbage_collector,
        "growing and shrinking": lambda: hold(2, Numbers((SMALL, 40, SMALL, LARGE, SMALL, 40, SMALL))),
        "an old epoch's are kept": an_epoch_left_halfway_is_kept,
        "kept by collate_fn": lambda: hold(2, Numbers((LARGE,) * TASKS), collate_fn=Keeps()),
        "a fork while held": a_fork_while_batches_are_held,
    }
