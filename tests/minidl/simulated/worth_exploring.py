"""Programs worth exploring: each does something that the others do not, so that some bug shows in it alone.

A program returns everything that it saw: batches, errors, random numbers. A bug shows if that differs from what it sees
of the loader as it is, or if something does not hold (`what_must_hold`).
"""

from __future__ import annotations

import functools
import operator
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

import minidl
from minidl import world as worlds
from minidl.world.simulated import step
from minidl.world.simulated.simulation import sleep
from tests.minidl.simulated.lending import LARGE, Keeps, Numbers, a_fork_while_batches_are_held, hold
from tests.minidl.simulated.lending import an_epoch_left_halfway as lent_halfway
from tests.minidl.simulated.programs import Keys, stays
from tests.minidl.simulated.worth import Worth, once, slow, timed, usual
from tests.samples import Samples


class Streams(minidl.IterableDataset[int]):
    """Iterable style: how many samples each worker has; it may raise at one, or before the first."""

    def __init__(self, lengths: tuple[int, ...], fails: tuple[int, ...] = (), refuses: tuple[int, ...] = ()) -> None:
        self.lengths, self.fails, self.refuses = lengths, fails, refuses

    def __iter__(self) -> Iterator[int]:
        info = minidl.get_worker_info()
        worker_id = info.id if info is not None else 0
        if worker_id in self.refuses:
            raise LookupError(f"no stream for worker {worker_id}")
        return self.samples(worker_id)

    def samples(self, worker_id: int) -> Iterator[int]:
        for number in range(self.lengths[worker_id]):
            step()
            if 10 * worker_id + number in self.fails:
                raise LookupError(f"sample {number} of worker {worker_id}")
            yield 10 * worker_id + number


class GoesOn(Streams):
    """Its iterator has more after its end, for a caller that asks again."""

    def samples(self, worker_id: int) -> Iterator[int]:
        self.numbers, self.worker_id = iter(range(100)), worker_id
        return self  # type: ignore[return-value]

    def __next__(self) -> int:
        step()
        if (number := next(self.numbers)) == self.lengths[self.worker_id]:
            raise StopIteration
        return 10 * self.worker_id + number


def told(error: BaseException) -> str:
    """An error as the training loop sees it, without the lines of a traceback."""
    lines = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]} … {lines[-1]}"


def kill(iterator: Any, worker_id: int) -> None:
    """As `kill -9`, from outside."""
    iterator._workers[worker_id].kill()


def tries(what: Any, *others: type[BaseException]) -> Any:
    """What becomes of it."""
    try:
        return what()
    except (Exception, *others) as error:
        return told(error)


EXPECTED = (LookupError, TypeError)  # what these programs' own datasets, samplers and batches raise


def seen(iterator: Any, most: int = 40) -> list[Any]:
    """What comes from an iterator, errors among the batches: a caller may go on after one. What loses a task must be
    raised again."""
    found: list[Any] = []
    while len(found) < most:
        try:
            found.append(next(iterator))
        except StopIteration:
            return [*found, "end"]
        except EXPECTED as error:
            found.append(told(error))
        except RuntimeError as error:
            stays(iterator, error)
            raise
        step()
    return found


def lost(*arguments: Any, **options: Any) -> str:
    """An epoch that ends with an error that lost a task."""
    iterator = iter(loader(*arguments, **options))
    try:
        for _ in iterator:
            step()
    except RuntimeError as error:
        stays(iterator, error)
        if "unpickled" not in str(error):
            raise
        return told(error)
    return "nothing was lost"


def loader(dataset: Any = None, **options: Any) -> minidl.DataLoader[Any]:
    defaults = {"num_workers": 2, "batch_size": 1, "collate_fn": list}
    return minidl.DataLoader(Keys(7) if dataset is None else dataset, **{**defaults, **options})


def epochs(dataset: Any = None, count: int = 1, **options: Any) -> list[Any]:
    """Each epoch, or what its iterator could not even be made for."""
    load, found = loader(dataset, **options), []
    for _ in range(count):
        try:
            iterator = iter(load)
        except EXPECTED as error:
            found.append(told(error))
        else:
            found.append(seen(iterator))
    return found


def sorted_epochs(dataset: Any = None, count: int = 1, **options: Any) -> list[Any]:
    """Where the order is free."""
    return [sorted(each, key=str) for each in epochs(dataset, count, **options)]


# ---- orders and ends


def asked_on(dataset: Any = None, **options: Any) -> list[Any]:
    """After its end an iterator stays at its end; and so does one after it was dropped and made again."""
    iterator = iter(loader(dataset, **options))
    found = [seen(iterator), seen(iterator), seen(iterator)]
    del iterator
    return found


def dropped(batches: int, **options: Any) -> list[Any]:
    iterator = iter(loader(**options))
    found = [next(iterator) for _ in range(batches)]
    del iterator
    step()
    return found


def exits(batches: int, **options: Any) -> None:
    """The interpreter exits with a loader half way."""
    iterator = iter(loader(**options))
    for _ in range(batches):
        next(iterator)
    raise SystemExit(0)


# ---- errors


class Refuses:
    """A sampler that has had enough."""

    def __init__(self, after: int) -> None:
        self.after = after

    def __iter__(self) -> Iterator[int]:
        yield from range(self.after)
        raise LookupError(f"no key after {self.after}")


class Cannot:
    """It cannot be pickled."""

    def __init__(self, key: int) -> None:
        self.key = key

    def __index__(self) -> int:
        return self.key

    def __reduce__(self) -> Any:
        raise TypeError(f"{self.key} cannot be pickled")


class CannotBack:
    """It can be pickled, and not unpickled."""

    def __reduce__(self) -> Any:
        return _never, ()


def _never() -> None:
    raise LookupError("cannot be unpickled")


def odd(what: Callable[[], Any]) -> Keys:
    """Sample 1 cannot be pickled, or not unpickled."""
    return Keys(5, make=lambda key: what() if key == 1 else key)


def one(samples: list[Any]) -> Any:
    return samples[0]


def fails_in_worker_1(worker_id: int) -> None:
    step()
    if worker_id == 1:
        raise LookupError("worker_init_fn of worker 1")


def late(seconds: dict[int, float], **options: Any) -> list[Any]:
    """When what came, in virtual seconds: a timeout must fire when it is due, and not before."""
    world, iterator = worlds.current(), iter(loader(Keys(5, slow=seconds), **options))
    found: list[Any] = []
    for _ in range(5):
        begin = world.now()
        try:
            what: Any = next(iterator)
        except RuntimeError as error:
            if "timed out" not in str(error):
                raise
            what = told(error)
        found.append((what, round(world.now() - begin, 1)))
    return found


# ---- what a worker is given

number_of = operator.attrgetter("key")  # of a key that is an object


class Sent:
    """A key. How many of those that have reached a worker are still there?"""

    living = 0

    def __init__(self, key: int, arrived: bool = False) -> None:
        self.key, self.arrived = key, arrived
        Sent.living += arrived

    def __reduce__(self) -> Any:
        return Sent, (self.key, True)

    def __del__(self) -> None:
        Sent.living -= self.arrived


def nothing_is_kept() -> list[Any]:
    """Of a task, by a worker that waits for the next one."""
    Sent.living = 0
    iterator = iter(
        loader(Keys(7, make=number_of), sampler=[Sent(key) for key in range(7)], batch_size=None, collate_fn=None)
    )
    found = [next(iterator), next(iterator)]
    sleep(1)
    return [*found, Sent.living]


def drawn(key: int) -> Any:
    return key, random.random(), float(np.random.rand()), float(torch.rand(()))


def tensors(samples: list[Any]) -> Any:
    return {"key": torch.tensor(samples), "many": torch.full((LARGE // 4,), samples[0]), "array": np.array(samples)}


def as_lists(batch: Any) -> Any:
    if not isinstance(batch, dict):
        return batch
    return {name: np.asarray(value).reshape(-1)[-2:].tolist() for name, value in batch.items()}


def held_tensors(count: int = 1, **options: Any) -> list[Any]:
    """All batches are held, and looked at when the loader is gone."""
    load = loader(collate_fn=tensors, **options)
    held = [batch for _ in range(count) for batch in load]
    del load
    return [as_lists(batch) for batch in held]


NARROW = {"capacity": 128}
LOADS: dict[str, Worth] = {
    "no samples": usual(epochs, Keys(0), 2, persistent_workers=True),
    "three persistent epochs": usual(epochs, Keys(5), 3, persistent_workers=True),
    "empty streams": usual(epochs, Streams((0, 0)), 2),
    "uneven streams, torch's way": usual(epochs, Streams((0, 3, 5)), num_workers=3).torchs_way(),
    "streams in batches": usual(epochs, Streams((5, 2)), 2, batch_size=2, persistent_workers=True),
    "streams in whole batches": usual(epochs, Streams((5, 2)), batch_size=2, drop_last=True),
    "samples that fail": usual(epochs, Keys(8, (1, 2, 6)), 2, persistent_workers=True),
    "streams that fail": usual(epochs, Streams((4, 4), fails=(1, 12)), 2, persistent_workers=True),
    "a stream that refuses": usual(epochs, Streams((2, 3), refuses=(0,)), 2, persistent_workers=True),
    "a sampler that fails": usual(epochs, Keys(9), sampler=Refuses(6)),
    "a sampler that fails at once": usual(epochs, Keys(9), sampler=Refuses(1)),
    "an init function that fails, and so would the stream": usual(
        epochs, Streams((2, 3), refuses=(1,)), worker_init_fn=fails_in_worker_1
    ),
    "streams that go on after their end": usual(
        epochs, GoesOn((2, 4)), batch_size=None, collate_fn=None, prefetch_factor=3
    ),
    "keys and worker_init_fn fail": usual(epochs, sampler=[0, Cannot(1), Cannot(2)], worker_init_fn=fails_in_worker_1),
    "nothing is kept of a task": timed(nothing_is_kept),
    "in any order, one slow": slow(sorted_epochs, Keys(8, (5,), {0: 1.0}), num_workers=3, in_order=False),
    "in any order, persistent": usual(sorted_epochs, Streams((1, 4)), 2, in_order=False, persistent_workers=True),
    "asked on, streams": usual(asked_on, Streams((2, 1)), pin_memory="host"),
    "a sample that cannot be pickled": usual(epochs, odd(functools.partial(Cannot, 1))),
    "a sample that cannot be unpickled, pinned": slow(lost, odd(CannotBack), pin_memory="host"),
    "a timeout": once(late, {2: 3.0}, timeout=0.6),
    "a timeout, pinned and short": once(late, {2: 3.0}, timeout=0.6, pin_memory="host"),
    "no timeout": once(late, {2: 3.0, 3: 12.0}, timeout=20),
    "slow, without a timeout": once(late, {1: 12.0}, pin_memory="host"),
    "random numbers": usual(epochs, Samples(4, drawn), 2, shuffle=True),
    "spawned": usual(epochs, Keys(4), 2).spawned(),
    "narrow pipes, many tasks": usual(held_tensors, prefetch_factor=8, dataset=Keys(24)).but(options=NARROW),
    "tensors held, pinned": usual(held_tensors, 2, pin_memory="host", persistent_workers=True),
    "slots left half way": usual(lent_halfway, prefetch_factor=1),
    "slots kept by collate_fn": usual(lambda: hold(2, Numbers((LARGE,) * 6), collate_fn=Keeps())),
    "slots and a fork": usual(a_fork_while_batches_are_held),
    "serial streams, pinned": usual(epochs, Streams((3,)), num_workers=0, pin_memory="host"),
    "no memory to send": usual(held_tensors, 2).without("memory to send"),
    "no memory to lock": usual(held_tensors, pin_memory="host").without("page locking"),
}
