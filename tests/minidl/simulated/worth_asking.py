"""Programs that ask for the small print: what crosses between processes in odd cases, and what a loader says of itself.

Those whose memory is counted are `timed`: only by the default schedule.
"""

from __future__ import annotations

import contextlib
import functools
import io
import pickle
import random
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import minidl
from minidl import events
from minidl import world as worlds
from minidl.events import Kind
from minidl.messages import Result
from minidl.transport import NO_SLOT, Packer, Unpacker
from minidl.world.simulated import machine as machines
from minidl.world.simulated import step
from minidl.world.simulated.simulation import sleep
from tests.minidl.simulated.worth import Worth, changed, once, timed, usual
from tests.minidl.simulated.worth_ending import HELD
from tests.minidl.simulated.worth_exploring import Cannot, Keys, Streams, epochs, loader, one, seen, tries
from tests.minidl.test_loader import AXES

# ---- what crosses


def tensors(sizes: tuple[int, ...], key: int) -> Any:
    """Full of k, of this many bytes each."""
    return [torch.full((size,), key, dtype=torch.uint8) for size in sizes]


def of_tensors(sizes: tuple[int, ...] = (20_000, 40), tasks: int = 7) -> Keys:
    return Keys(tasks, make=functools.partial(tensors, sizes))


class Keeps:
    """A collate_fn that looks at a number of the batches that it returned last. At first it keeps none."""

    def __init__(self, most: int, after: int = 0) -> None:
        self.most, self.left = most, after
        self.kept: list[Any] = []

    def __call__(self, samples: list[Any]) -> Any:
        batch = minidl.default_collate(samples)
        self.left -= 1
        self.kept = [*self.kept, (batch, int(samples[0][0][0]))][-self.most :] if self.left < 0 else []
        for tensors, key in self.kept:
            assert {int(each[0][0]) for each in tensors} == {key}, f"what it kept of batch {key} has changed"
        return batch


def collated(dataset: Any = None, keep: int = 0, **options: Any) -> list[Any]:
    """Batches of several samples, made by default_collate; with `keep` also the memory that was made for them."""
    options = {"batch_size": 2, "collate_fn": Keeps(keep) if keep else None, **options}
    load = minidl.DataLoader(of_tensors() if dataset is None else dataset, **{"num_workers": 2, **options})
    found = [[[*each.tolist()[-1][-2:], len(each)] for each in batch] for batch in load]
    events = machines.current_machine().outcome.events
    return [found, [event[7] for event in events if event[2] == Kind.SLOT_MADE and keep]]


class Kinds(Keys):
    """Views of a storage, small and large; the same tensor twice; an array; one element, and none."""

    def __getitem__(self, key: int) -> Any:
        large, small = torch.arange(9_000) + key, torch.arange(60) + key
        views = [large, large[100:], large.reshape(90, 100).T, small, small[9:], small.reshape(6, 10).T]
        return [*views, small, large, np.arange(90.0) + key, torch.tensor(key), torch.empty(0, 3)]


def kinds() -> list[Any]:
    found = []
    for batch in minidl.DataLoader(Kinds(4), None, collate_fn=list, num_workers=2):
        storages = [each.untyped_storage().nbytes() for each in batch if isinstance(each, torch.Tensor)]
        same = [number for number, each in enumerate(batch) if each is batch[0] or each is batch[3]]
        found.append([[(each.sum().item(), tuple(each.shape), str(each.dtype)) for each in batch], storages, same])
    return found


def in_gaps(samples: list[Any]) -> list[Any]:
    """The first that is collated is not sent, and others are: they come into its place."""
    gone = minidl.default_collate(samples)
    batch = minidl.default_collate(samples)
    del gone
    return [*batch, *(torch.full((2, 1_500), 9 - number, dtype=torch.uint8) for number in range(4))]


class Forks:
    """A collate_fn that also forks a process: it has all that its worker has then."""

    def __call__(self, samples: list[Any]) -> Any:
        batch = minidl.default_collate(samples)
        if samples[0][0][0] in (2, 8):
            child = worlds.current().process(sleep, (0.01,), "a worker's child")
            child.start()
            child.join()
        return batch


def memory_of_its_own() -> list[int]:
    """How many pieces of memory there are while such a batch is held, and when it is gone."""
    world, machine = worlds.current(), machines.current_machine()
    packer, unpacker = Packer(world, 0), Unpacker(world, 0, 2)
    pieces, memory = packer.pack(Result(1, 0, 0, torch.arange(9), packer.room(NO_SLOT, False)))
    message = unpacker.unpack(b"".join(map(bytes, pieces)), memory)
    packer.room(NO_SLOT, False)  # the worker's next batch
    del memory
    found = [len(machine.memories)]
    del message
    return [*found, len(machine.memories)]


def some_cannot_be_pickled(key: int) -> Any:
    return [Cannot(key)] if key < 12 and key % 2 else tensors((20_000, 40), key)


def memory_made(iterators: Any) -> list[Any]:
    """The memory that is made for some iterators, each with the number of batches to load."""
    found = []
    for iterator, batches in iterators:
        for _ in range(batches):
            found.append(type(tries(lambda iterator=iterator: next(iterator))).__name__)
            step()
    return [found, [event[7] for event in machines.current_machine().outcome.events if event[2] == Kind.SLOT_MADE]]


def memory_after_errors() -> list[Any]:
    load = loader(Keys(30, make=some_cannot_be_pickled), collate_fn=one, num_workers=1)
    return memory_made([(iter(load), 30)])


class TensorStream(Streams):
    def samples(self, worker_id: int) -> Iterator[Any]:
        for number in super().samples(worker_id):
            yield torch.full((20_000,), number, dtype=torch.uint8)


def memory_after_streams() -> list[Any]:
    """In each epoch a worker is sent tasks that it skips, as its stream has ended."""
    load = loader(TensorStream((3,)), collate_fn=one, persistent_workers=True, num_workers=1)
    return memory_made((iter(load), 4) for _ in range(6))


class Stumbles:
    """A sampler that raises once, in the second epoch, and goes on."""

    epochs = 0  # it is iterated twice in the first

    def __iter__(self) -> Iterator[int]:
        self.epochs, self.numbers = self.epochs + 1, iter(range(6))
        return self

    def __next__(self) -> int:
        if (number := next(self.numbers)) == 2 and self.epochs == 3:
            raise LookupError("once")
        return number


def stumbled() -> list[Any]:
    """The turns of the workers go on where they were."""
    load = loader(Keys(6), sampler=Stumbles(), batch_size=None, collate_fn=None, persistent_workers=True, num_workers=3)
    return [seen(iter(load)), tries(lambda: iter(load)), seen(load._iterator)]


def memory_after_a_fork() -> list[Any]:
    """Memory that another process has is given up once, and not again."""
    load = minidl.DataLoader(of_tensors(tasks=24), num_workers=1)
    iterator = iter(load)
    held = [next(iterator) for _ in range(2)]
    other = iter(loader(Keys(2)))
    found = [seen(other), len(held)]
    held.clear()
    for batch in iterator:
        del batch
        step()
    return [found, [event[7] for event in machines.current_machine().outcome.events if event[2] == Kind.SLOT_MADE]]


# ---- what it says


def feeders(**options: Any) -> list[Any]:
    """Which queues have a feeder thread: in a worker only torch's way needs one."""
    list(loader(**options))
    found = {event[6] for event in machines.current_machine().outcome.events if event[2] == Kind.FEEDER_BEGIN}
    return sorted(int(queue) for queue in found)


class SlowToPickle(Keys):
    def __reduce__(self) -> Any:
        sleep(0.1)
        return SlowToPickle, (7,)


class Noting(TorchDispatchMode):
    """Which of torch's operators are called."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def operators_of_next(profiles: bool = False) -> list[Any]:
    """Without a profiler a loader calls none of its own: each costs more than a small batch."""
    iterator = iter(loader(Keys(2), num_workers=0))
    with changed(torch.autograd, "_profiler_enabled", lambda: profiles), Noting() as noting:
        batch = next(iterator)
    return [batch, noting.names]


def recorded_by_what_raises() -> list[Any]:
    """It is removed, which is said where there is a stderr, and the load goes on."""

    def raises(*event: Any) -> None:
        raise LookupError("a recorder")

    found, closed = [], io.StringIO()
    closed.close()
    for stderr in (io.StringIO(), closed):
        before = events.install(raises)
        try:
            with contextlib.redirect_stderr(stderr):
                found += [seen(iter(loader(Keys(2), num_workers=0))), events.installed() is None]
        finally:
            events.install(before)
        found += [] if stderr.closed else stderr.getvalue().splitlines()[:1]
    return found


class Nested(Keys):
    """A worker iterates over a loader that main has iterated over before."""

    def __init__(self, inner: Any) -> None:
        super().__init__(3)
        self.inner = inner

    def __getitem__(self, key: int) -> Any:
        return seen(iter(self.inner))


def nested() -> list[Any]:
    inner = loader(Keys(2), num_workers=0)
    return [seen(iter(inner)), seen(iter(loader(Nested(inner)))), seen(iter(inner))]


class Noted:
    """It notes in main that it is gone."""

    def __init__(self, samples: list[Any]) -> None:
        self.key = samples[0]

    def pin_memory(self) -> Noted:
        return self

    def __del__(self) -> None:
        if machines.current_machine().running.process.number == 0:
            HELD.append(self.key)


def let_go() -> list[Any]:
    """Nobody in main keeps a batch that has been pinned."""
    HELD.clear()
    iterator = iter(loader(Keys(3), pin_memory="host", collate_fn=Noted))
    found = [next(iterator).key for _ in range(3)]
    sleep(1)
    return [found, sorted(HELD)]


class OnDevice:
    """Which device it is pinned for; batch 1 cannot be."""

    def __init__(self, samples: list[Any]) -> None:
        self.key = samples[0]

    def pin_memory(self) -> Any:
        if self.key == 1:
            raise LookupError("not to be pinned")
        return self.key, torch.accelerator.current_device_index()


def warned(dataset: Any, **options: Any) -> list[Any]:
    """What comes, and what the loader warns of, in which file."""
    came: Any = "no worker was started"
    with warnings.catch_warnings(record=True) as heard, contextlib.suppress(AttributeError, pickle.PicklingError):
        warnings.simplefilter("always")
        load = loader(dataset, **options)
        length = tries(lambda: len(load))
        came = [each if isinstance(each, (str, tuple)) else "a batch" for each in seen(iter(load))]
    said = [(re.sub(" at 0x[0-9a-f]+", "", str(each.message)), Path(each.filename).name) for each in heard]
    return [length, came, said]


def on_a_device(**options: Any) -> list[Any]:
    """Main has chosen the second of its devices."""
    torch.accelerator.set_device_index(1)
    return warned(Keys(4), pin_memory=True, collate_fn=OnDevice, **options)


class Longer(Streams):
    """A stream that says it has three samples, and has more."""

    def __len__(self) -> int:
        return 3


def refused() -> list[Any]:
    """What an iterator does not do, and when it says so: before the dataset is iterated."""
    found = [tries(lambda load=load: pickle.dumps(iter(load))) for load in (loader(), loader(num_workers=0))]
    for dataset in (Keys(1), Streams((2,), refuses=(0,))):
        found += [tries(lambda: iter(loader(dataset, num_workers=0, timeout=1))), loader(dataset)._dataset_kind]  # noqa: B023
    load = loader(persistent_workers=True)
    load.num_workers = 0  # it may be set, as in torch
    found += [tries(lambda: setattr(load, "batch_size", 3)), seen(iter(load)), seen(iter(load))]
    load.num_workers, load.prefetch_factor = 1, 0
    return [*found, tries(lambda: iter(load))]


def judged(dataset: Any, **options: Any) -> list[Any]:
    """What a loader says of itself, and without workers its batches."""
    load = minidl.DataLoader(dataset, **options)
    found = [type(load.sampler).__name__, load.batch_size, load.prefetch_factor]
    found += [tries(lambda thing=thing: len(thing)) for thing in (load, load.batch_sampler)]
    return [*found, *(() if load.num_workers else (tries(lambda: len(iter(load))), tries(lambda: [*map(str, load)])))]


def options_that_are_drawn() -> list[Any]:
    """Most do not go together, and the error says so."""
    draw, found = random.Random(0), []
    axes = {**AXES, "timeout": [0, 0, 0, 1, -1], "prefetch_factor": [None, 0, 1, -1], "in_order": [True, None]}
    axes["transport"] = [None, "pigeon"]
    for _ in range(12_000):
        options = {name: draw.choice(values) for name, values in axes.items()}
        found.append(tries(lambda options=options: judged(draw.choice([Keys(7), Longer((3,))]), **options)))
    return found


QUESTIONS: dict[str, Worth] = {
    "collated": usual(collated),
    "collated, small ones are copied": usual(collated, of_tensors((9_000, 40, 600))).without(
        "the lending of small ones"
    ),
    "kinds": usual(kinds).without("the lending of small ones"),
    "collated, the second does not fit": once(collated, of_tensors((20_000, 60_000)), 1, num_workers=1),
    "collated and kept": once(collated, of_tensors((20_000, 8_192), 40), 6),
    "collated, and others in the gaps": once(collated, None, 1, collate_fn=in_gaps),
    "collated, and its worker forks": once(collated, of_tensors(tasks=24), 1, collate_fn=Forks()),
    "memory of its own": usual(memory_of_its_own),
    "memory after errors": once(memory_after_errors),
    "memory after streams": once(memory_after_streams),
    "a sampler that stumbles": usual(stumbled).untraced(),  # an epoch that did not quite begin is gone on with
    "memory after a fork": once(memory_after_a_fork),
    "feeders": once(feeders),
    "feeders, torch's way": once(feeders, transport="torch"),
    "slow to spawn, pinned": usual(epochs, SlowToPickle(7), pin_memory="host").spawned(),
    "a stream longer than it said": usual(warned, Longer((5,)), num_workers=1),
    "a stream longer than it said, serial": usual(warned, Longer((5,)), num_workers=0),
    "what it refuses": usual(refused),
    "too many workers": usual(warned, Keys(3), num_workers=5),
    "no job can be pickled": usual(warned, Keys(2), collate_fn=lambda samples: samples).spawned(),
    "options that are drawn": timed(options_that_are_drawn),
    "not profiled": usual(operators_of_next),
    "profiled": usual(operators_of_next, True),
    "recorded by what raises": usual(recorded_by_what_raises).untraced(),
    "let go": once(let_go),
    "nested": usual(nested),
    "pinned for a device": usual(on_a_device).without("no device"),
    "pinned for a device, serial": usual(on_a_device, num_workers=0).without("no device"),
    "pinned by name": usual(warned, Keys(2), pin_memory=True, pin_memory_device="cuda").without("no device"),
    "nothing is pinned on a Mac": usual(on_a_device).without("no device", "no Mac"),
    "nothing is pinned without a driver": usual(on_a_device).without("no device", "a driver"),
}
