"""Programs that go on in the same process: after Ctrl-C, an error or a death."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from minidl import world as worlds
from minidl.events import Kind
from minidl.world.simulated import machine as machines
from minidl.world.simulated.simulation import sleep
from tests.minidl.simulated.programs import TORCHS_WAY
from tests.minidl.simulated.worth import Worth
from tests.minidl.simulated.worth_ending import STUCK, at, takes, tries
from tests.minidl.simulated.worth_exploring import Draws, Keys, Longer, Streams, loader, seen

IN_NEXT = (
    *(Kind.KEYS_BEGIN, Kind.DISPATCHED, Kind.PUT, Kind.WAIT, Kind.ARRIVED, Kind.GOT, Kind.RECEIVED),
    *(Kind.STORED, Kind.RELEASED, Kind.WORKER_EXHAUSTED, Kind.TASK_SKIPPED, Kind.CLOSED, Kind.YIELDED),
)


class Pressing(list[Any]):
    """The machine's events. Ctrl-C comes where main emits so many of a kind."""

    def __init__(self, events: list[Any], kind: Kind, number: int) -> None:
        super().__init__(events)
        self.kind, self.left = kind, number

    def append(self, event: Any) -> None:
        super().append(event)
        self.left -= event[1] == 0 and event[2] == self.kind
        if self.left == 0 and event[1] == 0 and event[2] == self.kind:
            raise KeyboardInterrupt


def until_it_fails(iterator: Any) -> list[Any]:
    found: list[Any] = []
    while found[-1:] not in (["RuntimeError"], ["end"]):
        try:
            found.append(next(iterator))
        except StopIteration:
            found.append("end")
        except (KeyboardInterrupt, LookupError, RuntimeError) as error:
            found.append(type(error).__name__)
    return found


def pressed_at(number: int, **options: Any) -> list[Any]:
    """Ctrl-C in next(), once, wherever something happens: what comes then. At the end: which errors were
    repetitions."""
    found, machine = [], machines.current_machine()
    for kind in IN_NEXT:
        load = loader(**options)
        iterator = iter(load)
        machine.events = pressing = Pressing(machine.events, kind, number)
        found.append([kind.name, until_it_fails(iterator)])
        pressing.left = -1
        del iterator
    return [*found, [event[7] for event in machine.events if event[2] == Kind.ERROR_RAISED]]


def pressed_as_a_death_is_noticed(kind: Kind) -> list[Any]:
    """A worker dies in the training step, and Ctrl-C comes when that is half noted: no batch is missing in silence."""
    iterator, machine = iter(loader(Keys(8))), machines.current_machine()
    found = [next(iterator)]
    machine.events = pressing = Pressing(machine.events, kind, 1)
    iterator._workers[0].kill()
    found.append(tries(lambda: sleep(60), KeyboardInterrupt))
    pressing.left = -1
    return [*found, until_it_fails(iterator), until_it_fails(iterator)]


def longer_than_it_said(between: Callable[[Any], Any], **options: Any) -> list[Any]:
    """The length is asked for when an iterator is there: it counts from the next one on."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        load = loader(Longer((5,)), num_workers=1, **options)
        iterator = iter(load)
        found = [next(iterator) for _ in range(2)]
        load = between(load)
        found.append(seen(iter(load)))
    return [found, ["was reported to be" in str(each.message) for each in heard]]


def asks(load: Any) -> Any:
    len(load)
    return load


def resumed_in_another_thread() -> list[Any]:
    """Main trains, and another thread begins the next epoch: a death meanwhile is no business of main's."""
    world = worlds.current()
    box, found = world.mailbox(), []
    world.thread(lambda: found.append(tries(lambda: iter(box.get()))), (), "begins").start()
    load = loader(Keys(9, slow=STUCK), num_workers=3, persistent_workers=True)
    iterator = iter(load)
    next(iterator)
    at(2.0, do=lambda: iterator._workers[1].kill())
    sleep(0.5)
    box.put(load)
    found.append(takes(lambda: sleep(60)))
    return [*found, tries(lambda: next(iterator))]


def opened_late(key: int) -> int:
    sleep(1.0)
    return key


class SlowToOpen:
    """It takes a second to unpickle."""

    def __init__(self, samples: list[Any]) -> None:
        self.key = samples[0]

    def __reduce__(self) -> Any:
        return opened_late, (self.key,)


def heard_of_by_another() -> list[Any]:
    """Main trains, and its handler takes in what a dead worker has sent when another thread asks for the next batch:
    that thread waits for as long as this takes, and no longer."""
    found: list[Any] = []
    iterator = iter(loader(Keys(9, slow={2: 9.0, 3: 9.0}), collate_fn=SlowToOpen))
    found.append(next(iterator))
    world = worlds.current()
    world.thread(lambda: (sleep(2.5), found.append(takes(lambda: next(iterator)))), (), "asks").start()
    at(2.0, do=lambda: iterator._workers[1].kill())
    found.append(takes(lambda: sleep(60)))
    sleep(60)
    return [*found, tries(lambda: next(iterator))]


class Epochs(Streams):
    """It counts how often it was begun."""

    begun = 0

    def samples(self, worker_id: int) -> Iterator[int]:
        self.begun += 1
        return (100 * self.begun + each for each in super().samples(worker_id))


def counts_epochs() -> list[Any]:
    load = loader(Epochs((3, 1)), persistent_workers=True)
    found = [seen(iter(load)) for _ in range(3)]
    return [*found, len(load._iterator._task_info)]


def stumbles(key: int) -> int:
    if key == 5:
        raise LookupError("no key 5")
    return key


class Stumbles:
    """A sampler whose iterator raises once, and could go on."""

    def __iter__(self) -> Iterator[int]:
        return map(stumbles, range(6))


def stumbled_in_next() -> list[Any]:
    """The batch that had come by then is still to be yielded."""
    options: dict[str, Any] = {"sampler": Stumbles(), "batch_size": None, "collate_fn": None}
    iterator = iter(loader(Keys(8), **options))
    found: list[Any] = [next(iterator), tries(lambda: next(iterator))]
    return [*found, seen(iterator)]


def left_for_a_shorter_one() -> list[Any]:
    """What was under way when an epoch was left is not taken for a part of the next, which has fewer tasks."""
    keys = list(range(9))
    options: dict[str, Any] = {"dataset": Draws(9), "sampler": keys, "persistent_workers": True}
    load = loader(**options)
    found: list[Any] = [next(iter(load))]
    del keys[2:]
    found.append(seen(iter(load)))
    return [*found, seen(iter(load))]


class EndsLate(Streams):
    """The first worker's stream ends while the second makes its first sample, and the third has made its own."""

    def samples(self, worker_id: int) -> Iterator[int]:
        sleep((1.0, 2.0, 0.0)[worker_id])
        yield from super().samples(worker_id)


class SlowOne(Streams):
    """The second worker takes long."""

    def samples(self, worker_id: int) -> Iterator[int]:
        for number in super().samples(worker_id):
            sleep(9.0 if worker_id == 1 else 0.0)
            yield number


def as_they_come() -> list[Any]:
    """Without order a batch is yielded at the next next(), though it was taken in while main looked for deaths."""
    iterator = iter(loader(SlowOne((0, 2, 2, 2, 2)), num_workers=5, prefetch_factor=1, in_order=False))
    found = []
    for batch in iterator:
        found.append(batch)
        sleep(0.5)
    return found


class Slow(Streams):
    def samples(self, worker_id: int) -> Iterator[int]:
        for number in super().samples(worker_id):
            sleep(12 if number == 2 else 0)
            yield number


def returning() -> dict[str, Worth]:
    """By name."""
    part = functools.partial
    once = functools.partial(Worth, slow=True, timed=True)
    torch_way = {"environment": TORCHS_WAY}
    return {
        "pressed at every event": once(part(pressed_at, 1, dataset=Keys(6, (2,))), traced=False),
        "pressed at every second event, pinned": once(
            part(pressed_at, 2, dataset=Keys(6), pin_memory="host"), traced=False, options=torch_way
        ),
        "pressed at every event, when the first is late": once(
            part(pressed_at, 1, dataset=Keys(6, slow={0: 1.0})), traced=False
        ),
        "pressed at every event of streams, pinned": once(
            part(pressed_at, 1, dataset=Streams((3, 1)), pin_memory="host"), traced=False
        ),
        "pressed at every event, serial": once(part(pressed_at, 1, dataset=Keys(6, (3,)), num_workers=0), traced=False),
        "pressed as a death is noticed": once(part(pressed_as_a_death_is_noticed, Kind.WORKER_DIED), traced=False),
        "pressed as lost tasks are counted": once(part(pressed_as_a_death_is_noticed, Kind.TASK_LOST), traced=False),
        "longer than it said, and asked late": once(part(longer_than_it_said, asks, persistent_workers=True)),
        "resumed in another thread": once(resumed_in_another_thread),
        "heard of by another": once(heard_of_by_another),
        "a sampler that stumbles in next()": Worth(stumbled_in_next),
        "left for a shorter one": Worth(left_for_a_shorter_one),
        "a stream that ends late": Worth(
            lambda: seen(iter(loader(EndsLate((0, 3, 3)), num_workers=3, prefetch_factor=1))), slow=True
        ),
        "it counts its epochs": Worth(counts_epochs),
        "as they come": once(as_they_come, in_order=False),
        "no more than its share": once(
            lambda: seen(iter(loader(Keys(20, slow={5: 50.0}), in_order=False, num_workers=3))), in_order=False
        ),
        "a health check when a stream has ended": once(lambda: seen(iter(loader(Slow((4, 1)))))),
    }
