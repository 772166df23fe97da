"""Programs worth exploring: each does something that the others do not, so that some bug shows in it alone.

A program returns everything that it saw: batches, errors, random numbers. A bug shows if that differs from what it sees
of the loader as it is, or if something does not hold (`what_must_hold`).
"""

from __future__ import annotations

import contextlib
import functools
import random
import re
import warnings
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
from tests.minidl.simulated.programs import TORCHS_WAY, stays
from tests.minidl.simulated.worth import Worth


class Keys(minidl.Dataset[int]):
    """Map style: sample k is k. Some raise, some take long."""

    def __init__(self, tasks: int = 7, fails: tuple[int, ...] = (), slow: dict[int, float] | None = None) -> None:
        self.tasks, self.fails, self.slow = tasks, fails, slow or {}

    def __len__(self) -> int:
        return self.tasks

    def __getitem__(self, key: int) -> int:
        step()
        if key in self.slow:
            sleep(self.slow[key])
        if key in self.fails:
            raise LookupError(f"sample {key}")
        return key


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
    """Its iterator has more after its end: whoever asks again gets it."""

    def samples(self, worker_id: int) -> Iterator[int]:
        self.numbers, self.worker_id = iter(range(100)), worker_id
        return self  # type: ignore[return-value]

    def __next__(self) -> int:
        step()
        if (number := next(self.numbers)) == self.lengths[self.worker_id]:
            raise StopIteration
        return 10 * self.worker_id + number


def told(error: BaseException) -> str:
    """An error as the training loop tells it, without the lines of a traceback."""
    lines = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]} … {lines[-1]}"


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


def lost_in_full(dataset: Any) -> str:
    """The error that lost a task, in full."""
    try:
        list(loader(dataset))
    except RuntimeError as error:
        return str(error)
    return "nothing was lost"


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
    return minidl.DataLoader(Keys() if dataset is None else dataset, **{**defaults, **options})


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


def left_half_way(batches: int = 2, dataset: Any = None, **options: Any) -> list[Any]:
    """Persistent workers: some epochs are left half way, and the next begun."""
    load, found = loader(dataset, persistent_workers=True, **options), []
    for _ in range(2):
        iterator = iter(load)
        found.append([next(iterator) for _ in range(batches)])
        step()
    return [*found, seen(iter(load))]


def two_at_once(**options: Any) -> list[Any]:
    one, other = iter(loader(**options)), iter(loader(Streams((3, 2)), **options))
    found = [(next(one), next(other)) for _ in range(3)]
    return [found, seen(one), seen(other)]


class HasALoader(Keys):
    """Each sample comes from a loader of the worker's own."""

    def __getitem__(self, key: int) -> Any:
        return seen(iter(loader(Keys(key), num_workers=0)))


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


class Odd(Keys):
    """Sample 1 cannot be pickled, or not unpickled."""

    def __init__(self, what: Callable[[], Any]) -> None:
        super().__init__(5)
        self.what = what

    def __getitem__(self, key: int) -> Any:
        return self.what() if key == 1 else super().__getitem__(key)


class Unpinned:
    """A batch that cannot be pinned."""

    def __init__(self, key: int) -> None:
        self.key = key

    def pin_memory(self) -> Any:
        if self.key in (1, 4):
            raise LookupError(f"batch {self.key} cannot be pinned")
        return f"pinned {self.key}"


def one(samples: list[Any]) -> Any:
    return samples[0]


def unpinned(samples: list[Any]) -> Any:
    return Unpinned(samples[0])


def pinned_inside(samples: list[Any]) -> Any:
    """What is in containers is pinned, too."""
    unpinned = Unpinned(samples[0])
    return {"a": unpinned, "b": (unpinned, [unpinned, "text", b"bytes"])}


def fails_in_worker_1(worker_id: int) -> None:
    step()
    if worker_id == 1:
        raise LookupError("worker_init_fn of worker 1")


class Over(Keys):
    """Map style: a StopIteration is an error like any other, though next() raises it, too."""

    def __getitem__(self, key: int) -> int:
        if key == 3:
            raise StopIteration
        return super().__getitem__(key)


def over_twice() -> list[Any]:
    iterator = iter(loader(Over()))
    return [seen(iterator), seen(iterator)]


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


class Named(Keys):
    def __getitem__(self, key: Any) -> int:
        return super().__getitem__(key.key)


def nothing_is_kept() -> list[Any]:
    """Of a task, by a worker that waits for the next one."""
    Sent.living = 0
    iterator = iter(loader(Named(), sampler=[Sent(key) for key in range(7)], batch_size=None, collate_fn=None))
    found = [next(iterator), next(iterator)]
    sleep(1)
    return [*found, Sent.living]


class Draws(Keys):
    """What random numbers a worker draws, and what it knows of itself."""

    def __getitem__(self, key: int) -> Any:
        info = minidl.get_worker_info()
        known = None if info is None else (info.id, info.num_workers, info.seed, len(info.dataset))
        drawn = random.random(), float(np.random.rand()), float(torch.rand(())), torch.get_num_threads()
        return key, known, drawn


def draws(**options: Any) -> list[Any]:
    found = epochs(Draws(4), 2, shuffle=True, **options)
    return [*found, float(torch.rand(())), epochs(Draws(3), generator=torch.Generator().manual_seed(7), **options)]


class DrawsAtOnce:
    """A sampler that draws as soon as it is iterated."""

    def __iter__(self) -> Iterator[int]:
        return iter(torch.randperm(4).tolist())


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


def invalid() -> list[str]:
    """What DataLoader says to options that do not go together."""
    found = []
    stream = Streams((2, 2))
    for dataset, options in (
        *((None, {"num_workers": -1}), (None, {"timeout": -1}), (None, {"prefetch_factor": -1})),
        *((None, {"num_workers": 0, "prefetch_factor": 2}), (None, {"num_workers": 0, "persistent_workers": True})),
        *((None, {"num_workers": 0, "timeout": 1}), (None, {"sampler": [1], "shuffle": True})),
        *((stream, {"shuffle": True}), (stream, {"sampler": [1]}), (stream, {"batch_sampler": [[1]]})),
        *((None, {"batch_sampler": [[1]]}), (None, {"batch_sampler": [[1]], "batch_size": 1, "drop_last": True})),
        *((None, {"batch_size": None, "drop_last": True}), (None, {"batch_size": 0}), (None, {"transport": "pigeon"})),
        *((None, {"multiprocessing_context": "pigeon"}), (None, {"num_workers": 0, "multiprocessing_context": "fork"})),
        *((None, {"pin_memory": "pigeon"}), (None, {"prefetch_factor": 0}), (None, {"in_order": None})),
        *((None, {"num_workers": 2, "prefetch_factor": number}) for number in (-1, 0, 1)),
        *((None, {"num_workers": -1, "timeout": -1}), (None, {"timeout": -1, "prefetch_factor": -1})),
        *((None, {"snapshot_every_n_steps": 0}), (None, {"num_workers": -1, "transport": "pigeon"})),
        (None, {"snapshot_every_n_steps": 0, "persistent_workers": True}),
        *((None, {"batch_sampler": [[1]], "sampler": [1]}), (None, {"batch_sampler": [[1]], "shuffle": True})),
        *((None, {"sampler": [1], "shuffle": True, "batch_sampler": [[1]]}), (stream, {"shuffle": False})),
        *((stream, {"sampler": [1], "shuffle": True}), (None, {"batch_sampler": [[1]], "batch_size": 2})),
    ):
        try:
            minidl.DataLoader(Keys() if dataset is None else dataset, **options)
        except Exception as error:
            found.append(told(error))
        else:
            found.append("taken")
    return found


class Longer(Streams):
    """A stream that says it has three samples, and has more."""

    def __len__(self) -> int:
        return 3


def lengths_and_attributes() -> list[Any]:
    found: list[Any] = []
    for dataset, options in (
        *((None, {"batch_size": 2}), (None, {"batch_size": 2, "drop_last": True}), (None, {"batch_size": None})),
        *((Longer((3, 4)), {"batch_size": None}), (Longer((4,)), {"batch_size": 2, "drop_last": True})),
        *(
            (Streams((3, 4)), {"batch_size": 2}),
            (Longer((3, 4)), {"batch_size": 2}),
            (None, {"batch_sampler": [[1], [2, 3]]}),
            (None, {"sampler": [3, 1]}),
        ),
    ):
        load = minidl.DataLoader(Keys() if dataset is None else dataset, **options)
        for thing in (load, iter(load)):
            with contextlib.suppress(TypeError):
                found.append(len(thing))
        try:
            load.multiprocessing_context = "fork"
        except ValueError as error:
            found.append(told(error))
        try:
            load.batch_size = 5
        except ValueError as error:
            found.append(told(error))
        found.append([load.batch_size, load.drop_last, type(load.sampler).__name__, type(load.batch_sampler).__name__])
        found.append([load.num_workers, load.prefetch_factor, load.timeout, load.pin_memory, load.in_order])
        found.append([batch if isinstance(batch, int) else batch.tolist() for batch in load])
    return found


def warned(**options: Any) -> list[Any]:
    """What the loader warns of."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        load = loader(**options)
        with contextlib.suppress(TypeError):
            len(load)
        found = seen(iter(load))
    texts = [re.sub("0x[0-9a-f]+", "", str(each.message)) for each in heard]
    return [found, texts, [(each.filename.rsplit("/", 1)[-1], each.lineno) for each in heard]]


def programs() -> dict[str, Worth]:
    """By name."""
    part = functools.partial
    torch_way = {"environment": TORCHS_WAY}
    narrow = {"capacity": 128}
    return {
        "more tasks than are primed": Worth(part(epochs, Keys(9))),
        "no samples": Worth(part(epochs, Keys(0), 2, persistent_workers=True)),
        "three persistent epochs": Worth(part(epochs, Keys(5), 3, persistent_workers=True)),
        "empty streams": Worth(part(epochs, Streams((0, 0)), 2)),
        "uneven streams, torch's way": Worth(part(epochs, Streams((0, 3, 5)), num_workers=3), options=torch_way),
        "streams in batches": Worth(part(epochs, Streams((5, 2)), 2, batch_size=2, persistent_workers=True)),
        "streams in whole batches": Worth(part(epochs, Streams((5, 2)), batch_size=2, drop_last=True)),
        "streams that go on after their end": Worth(
            part(epochs, GoesOn((2, 4)), batch_size=None, collate_fn=None, prefetch_factor=3)
        ),
        "held, pinned, threads in any order": Worth(part(held_tensors, pin_memory="host"), options={"preempts": True}),
        "samples that fail": Worth(part(epochs, Keys(8, (1, 2, 6)), 2, persistent_workers=True)),
        "streams that fail": Worth(part(epochs, Streams((4, 4), fails=(1, 12)), 2, persistent_workers=True)),
        "a stream that refuses": Worth(part(epochs, Streams((2, 3), refuses=(0,)), 2, persistent_workers=True)),
        "a sampler that fails": Worth(part(epochs, Keys(9), sampler=Refuses(6))),
        "a sampler that fails at once": Worth(part(epochs, Keys(9), sampler=Refuses(1))),
        "an init function that fails, and so would the stream": Worth(
            part(epochs, Streams((2, 3), refuses=(1,)), worker_init_fn=fails_in_worker_1)
        ),
        "a StopIteration of a map-style dataset": Worth(over_twice, traced=False),
        "nothing is kept of a task": Worth(nothing_is_kept, timed=True),
        "in any order, one slow": Worth(
            part(sorted_epochs, Keys(8, (5,), {0: 1.0}), num_workers=3, in_order=False), slow=True, in_order=False
        ),
        "in any order, persistent": Worth(
            part(sorted_epochs, Streams((1, 4)), 2, in_order=False, persistent_workers=True), in_order=False
        ),
        "left half way, streams": Worth(part(left_half_way, 2, Streams((3, 1)))),
        "asked on, streams": Worth(part(asked_on, Streams((2, 1)), pin_memory="host")),
        "two at once": Worth(two_at_once),
        "a loader inside a worker": Worth(part(epochs, HasALoader(4))),
        "a sample that cannot be pickled": Worth(part(epochs, Odd(part(Cannot, 1)))),
        "a sample that cannot be unpickled, pinned": Worth(part(lost, Odd(CannotBack), pin_memory="host"), slow=True),
        "batches that cannot be pinned": Worth(part(epochs, Keys(6), pin_memory="host", collate_fn=unpinned)),
        "pinned inside": Worth(part(epochs, Keys(4), pin_memory="host", collate_fn=pinned_inside)),
        "a timeout": Worth(part(late, {2: 3.0}, timeout=0.6), slow=True, timed=True),
        "a timeout, pinned and short": Worth(
            part(late, {2: 3.0}, timeout=0.6, pin_memory="host"), slow=True, timed=True
        ),
        "no timeout": Worth(part(late, {2: 3.0, 3: 12.0}, timeout=20), slow=True, timed=True),
        "slow, without a timeout": Worth(part(late, {1: 12.0}, pin_memory="host"), slow=True, timed=True),
        "random numbers, serial": Worth(part(draws, num_workers=0)),
        "random numbers, drawn at once": Worth(
            lambda: epochs(Draws(4), sampler=DrawsAtOnce(), batch_size=None, collate_fn=None)
        ),
        "one persistent worker": Worth(part(epochs, Keys(4), 2, num_workers=1, persistent_workers=True)),
        "spawned": Worth(part(draws), options={"start_method": "spawn"}),
        "narrow pipes, many tasks": Worth(part(held_tensors, prefetch_factor=8, dataset=Keys(24)), options=narrow),
        "tensors held, pinned": Worth(part(held_tensors, 2, pin_memory="host", persistent_workers=True)),
        "slots left half way": Worth(part(lent_halfway, prefetch_factor=1)),
        "slots kept by collate_fn": Worth(lambda: hold(2, Numbers((LARGE,) * 6), collate_fn=Keeps())),
        "slots and a fork": Worth(a_fork_while_batches_are_held),
        "serial streams, pinned": Worth(part(epochs, Streams((3,)), num_workers=0, pin_memory="host")),
        "a stream longer than it said": Worth(part(warned, dataset=Longer((5,)), num_workers=1)),
        "a stream longer than it said, serial": Worth(part(warned, dataset=Longer((5,)), num_workers=0)),
        "too many workers": Worth(part(warned, dataset=Keys(3), num_workers=5)),
        "nobody knows how many cores": Worth(part(warned, dataset=Keys(3)), without=("cores",)),
        "nobody knows how many cores, one worker": Worth(
            part(warned, dataset=Keys(3), num_workers=1), without=("cores",)
        ),
        "nobody knows how many cores, serial": Worth(part(warned, dataset=Keys(3), num_workers=0), without=("cores",)),
        "nothing to pin for": Worth(part(warned, dataset=Keys(3), pin_memory=True)),
        "nothing to pin for, named": Worth(part(warned, dataset=Keys(3), pin_memory=True, pin_memory_device="cuda")),
        "named, and not pinned": Worth(part(warned, dataset=Keys(3), pin_memory_device="cuda")),
        "nothing to pin for on a Mac": Worth(
            part(warned, dataset=Keys(3), pin_memory=True), without=("no device", "no Mac")
        ),
        "no memory to send": Worth(part(held_tensors, 2), without=("memory to send",)),
        "no memory to lock": Worth(part(held_tensors, pin_memory="host"), without=("page locking",)),
        "nine more files, too few as in torch": Worth(
            part(lost_in_full, Odd(CannotBack)), slow=True, timed=True, without=("files but nine",)
        ),
        "ten more files": Worth(part(lost_in_full, Odd(CannotBack)), slow=True, timed=True, without=("files but ten",)),
        "invalid options": Worth(invalid),
        "lengths and attributes": Worth(lengths_and_attributes),
    }
