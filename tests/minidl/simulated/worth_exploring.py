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
from tests.minidl.simulated.programs import Keys, stays
from tests.minidl.simulated.worth import Worth, once, slow, timed, usual


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


class Over(Keys):
    """Map style: a StopIteration is an error like any other, though next() raises it, too."""

    def __getitem__(self, key: int) -> int:
        if key == 3:
            raise StopIteration
        return super().__getitem__(key)


def told(error: BaseException) -> str:
    """An error as the training loop tells it, without the lines of a traceback."""
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


def left_half_way(batches: int = 2, dataset: Any = None, **options: Any) -> list[Any]:
    """Persistent workers: some epochs are left half way, and the next begun."""
    load, found = loader(dataset, persistent_workers=True, **options), []
    for _ in range(2):
        iterator = iter(load)
        found.append([next(iterator) for _ in range(batches)])
        step()
    return [*found, seen(iter(load))]


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
    iterator = iter(loader(Named(7), sampler=[Sent(key) for key in range(7)], batch_size=None, collate_fn=None))
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


class Longer(Streams):
    """A stream that says it has three samples, and has more."""

    def __len__(self) -> int:
        return 3


# Most values are usual, or hardly any options would go together.
OPTIONS: dict[str, list[Any]] = {
    "dataset": [Keys(7), Keys(7), Streams((3, 4)), Longer((3, 4))],
    "num_workers": [0, 0, 0, 1, 2, -1],
    "batch_size": [1, 1, 1, 2, None, 0],
    "drop_last": [False, False, True],
    "shuffle": [None, None, None, False, True],
    "sampler": [None, None, None, [3, 1]],
    "batch_sampler": [None, None, None, [[1], [2, 3]]],
    "prefetch_factor": [None, None, None, -1, 0, 1, 2],
    "persistent_workers": [False, False, True],
    "timeout": [0, 0, 0, 0, 1, -1],
    "multiprocessing_context": [None, None, None, "fork", "pigeon"],
    "transport": [*[None] * 9, "pigeon"],
    "pin_memory": [*[False] * 9, "pigeon"],
    "in_order": [True, True, True, False, None],
}


def judged(dataset: Any, **options: Any) -> list[Any]:
    """What a loader tells of itself, and without workers its batches."""
    load = minidl.DataLoader(dataset, **options)
    found = [tries(lambda name=name: setattr(load, name, "fork")) for name in ("multiprocessing_context", "sampler")]
    found += [tries(lambda thing=thing: len(thing)) for thing in (load, load.batch_sampler)]
    found += [load.batch_size, load.drop_last, load.prefetch_factor, load.timeout, load.in_order, load.pin_memory]
    found += [type(load.sampler).__name__, type(load.batch_sampler).__name__]
    if load.num_workers == 0:
        found += [tries(lambda: len(iter(load))), tries(lambda: [str(batch) for batch in load])]
    return found


def options_that_are_drawn() -> list[Any]:
    """Many do not go together, and the error says so."""
    draw, found = random.Random(0), []
    for _ in range(1_500):
        options = {name: draw.choice(values) for name, values in OPTIONS.items()}
        found.append(tries(lambda options=options: judged(**options)))
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


NARROW = {"capacity": 128}
LOADS: dict[str, Worth] = {
    "more tasks than are primed": usual(epochs, Keys(9)),
    "no samples": usual(epochs, Keys(0), 2, persistent_workers=True),
    "three persistent epochs": usual(epochs, Keys(5), 3, persistent_workers=True),
    "empty streams": usual(epochs, Streams((0, 0)), 2),
    "uneven streams, torch's way": usual(epochs, Streams((0, 3, 5)), num_workers=3).torchs_way(),
    "streams in batches": usual(epochs, Streams((5, 2)), 2, batch_size=2, persistent_workers=True),
    "streams in whole batches": usual(epochs, Streams((5, 2)), batch_size=2, drop_last=True),
    "held, pinned, threads in any order": usual(held_tensors, pin_memory="host").but(options={"preempts": True}),
    "samples that fail": usual(epochs, Keys(8, (1, 2, 6)), 2, persistent_workers=True),
    "streams that fail": usual(epochs, Streams((4, 4), fails=(1, 12)), 2, persistent_workers=True),
    "a stream that refuses": usual(epochs, Streams((2, 3), refuses=(0,)), 2, persistent_workers=True),
    "a sampler that fails": usual(epochs, Keys(9), sampler=Refuses(6)),
    "a sampler that fails at once": usual(epochs, Keys(9), sampler=Refuses(1)),
    "an init function that fails, and so would the stream": usual(
        epochs, Streams((2, 3), refuses=(1,)), worker_init_fn=fails_in_worker_1
    ),
    "a StopIteration of a map-style dataset": usual(epochs, Over(7)).untraced(),
    "streams that go on after their end": usual(
        epochs, GoesOn((2, 4)), batch_size=None, collate_fn=None, prefetch_factor=3
    ),
    "keys and worker_init_fn fail": usual(epochs, sampler=[0, Cannot(1), Cannot(2)], worker_init_fn=fails_in_worker_1),
    "nothing is kept of a task": timed(nothing_is_kept),
    "in any order, one slow": slow(sorted_epochs, Keys(8, (5,), {0: 1.0}), num_workers=3, in_order=False).but(
        in_order=False
    ),
    "in any order, persistent": usual(sorted_epochs, Streams((1, 4)), 2, in_order=False, persistent_workers=True).but(
        in_order=False
    ),
    "left half way, streams": usual(left_half_way, 2, Streams((3, 1))),
    "asked on, streams": usual(asked_on, Streams((2, 1)), pin_memory="host"),
    "a loader inside a worker": usual(epochs, HasALoader(4)),
    "a sample that cannot be pickled": usual(epochs, Odd(functools.partial(Cannot, 1))),
    "a sample that cannot be unpickled, pinned": slow(lost, Odd(CannotBack), pin_memory="host"),
    "pinned inside": usual(epochs, Keys(4), pin_memory="host", collate_fn=pinned_inside),
    "a timeout": once(late, {2: 3.0}, timeout=0.6),
    "a timeout, pinned and short": once(late, {2: 3.0}, timeout=0.6, pin_memory="host"),
    "no timeout": once(late, {2: 3.0, 3: 12.0}, timeout=20),
    "slow, without a timeout": once(late, {1: 12.0}, pin_memory="host"),
    "random numbers, serial": usual(draws, num_workers=0),
    "random numbers, drawn at once": usual(epochs, Draws(4), sampler=DrawsAtOnce(), batch_size=None, collate_fn=None),
    "one persistent worker": usual(epochs, Keys(4), 2, num_workers=1, persistent_workers=True),
    "spawned": usual(draws).spawned(),
    "narrow pipes, many tasks": usual(held_tensors, prefetch_factor=8, dataset=Keys(24)).but(options=NARROW),
    "tensors held, pinned": usual(held_tensors, 2, pin_memory="host", persistent_workers=True),
    "slots left half way": usual(lent_halfway, prefetch_factor=1),
    "slots kept by collate_fn": usual(lambda: hold(2, Numbers((LARGE,) * 6), collate_fn=Keeps())),
    "slots and a fork": usual(a_fork_while_batches_are_held),
    "serial streams, pinned": usual(epochs, Streams((3,)), num_workers=0, pin_memory="host"),
    "a stream longer than it said": usual(warned, dataset=Longer((5,)), num_workers=1),
    "a stream longer than it said, serial": usual(warned, dataset=Longer((5,)), num_workers=0),
    "too many workers": usual(warned, dataset=Keys(3), num_workers=5),
    "nothing to pin for": usual(warned, dataset=Keys(3), pin_memory=True),
    "nothing to pin for, named": usual(warned, dataset=Keys(3), pin_memory=True, pin_memory_device="cuda"),
    "named, and not pinned": usual(warned, dataset=Keys(3), pin_memory_device="cuda"),
    "nothing to pin for on a Mac": usual(warned, dataset=Keys(3), pin_memory=True).without("no device", "no Mac"),
    "no memory to send": usual(held_tensors, 2).without("memory to send"),
    "no memory to lock": usual(held_tensors, pin_memory="host").without("page locking"),
    "options that are drawn": timed(options_that_are_drawn),
}
