"""Programs that go on in the same process: after Ctrl-C, an error or a death."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from minidl import world as worlds
from minidl.events import Kind
from minidl.world.simulated import machine as machines
from minidl.world.simulated.simulation import sleep
from tests.minidl.simulated.worth import Worth, once, slow, usual
from tests.minidl.simulated.worth_ending import STUCK, at, takes, until_it_fails
from tests.minidl.simulated.worth_exploring import Keys, Streams, epochs, kill, loader, seen, tries

IN_NEXT = (
    *(Kind.KEYS_BEGIN, Kind.DISPATCHED, Kind.PUT, Kind.WAIT, Kind.ARRIVED, Kind.GOT, Kind.RECEIVED),
    *(Kind.STORED, Kind.RELEASED, Kind.WORKER_EXHAUSTED, Kind.TASK_SKIPPED, Kind.CLOSED, Kind.YIELDED),
)


class Pressing(list[Any]):
    """The machine's events. Ctrl-C comes where main emits the n-th of a kind."""

    def __init__(self, events: list[Any], kind: Kind, number: int) -> None:
        super().__init__(events)
        self.kind, self.left = kind, number

    def append(self, event: Any) -> None:
        super().append(event)
        self.left -= event[1] == 0 and event[2] == self.kind
        if self.left == 0 and event[1] == 0 and event[2] == self.kind:
            raise KeyboardInterrupt


def pressed_at(number: int, **options: Any) -> list[Any]:
    """Ctrl-C in next(), once, wherever something happens: what comes then. At the end: which errors were
    repetitions."""
    found, machine = [], machines.current_machine()
    for kind in IN_NEXT:
        load = loader(**options)
        iterator = iter(load)
        machine.outcome.events = pressing = Pressing(machine.outcome.events, kind, number)
        found.append([kind.name, until_it_fails(iterator, [])])
        pressing.left = -1
        del iterator
    return [*found, [event[7] for event in machine.outcome.events if event[2] == Kind.ERROR_RAISED]]


def pressed_as_a_death_is_noticed(kind: Kind) -> list[Any]:
    """A worker dies in the training step, and Ctrl-C comes when that is half noted: no batch is missing in silence."""
    iterator, machine = iter(loader(Keys(8))), machines.current_machine()
    found = [next(iterator)]
    machine.outcome.events = pressing = Pressing(machine.outcome.events, kind, 1)
    kill(iterator, 0)
    found.append(tries(lambda: sleep(60), KeyboardInterrupt))
    pressing.left = -1
    return [*found, until_it_fails(iterator, []), until_it_fails(iterator, [])]


def resumed_in_another_thread() -> list[Any]:
    """Main trains, and another thread begins the next epoch: a death meanwhile is no business of main's."""
    world = worlds.current()
    box, found = world.mailbox(), []
    world.thread(lambda: found.append(tries(lambda: iter(box.get()))), (), "begins").start()
    load = loader(Keys(9, slow=STUCK), num_workers=3, persistent_workers=True)
    iterator = iter(load)
    next(iterator)
    at(2.0, do=lambda: kill(iterator, 1))
    sleep(0.5)
    box.put(load)
    found.append(takes(lambda: sleep(60)))
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


class EndsLate(Streams):
    """The first worker's stream ends while the second makes its first sample, and the third has made its own."""

    def samples(self, worker_id: int) -> Iterator[int]:
        sleep((1.0, 2.0, 0.0)[worker_id])
        yield from super().samples(worker_id)


class Slow(Streams):
    """Sample 2 of worker 0 takes long, and so do all of worker 1."""

    def samples(self, worker_id: int) -> Iterator[int]:
        for number in super().samples(worker_id):
            sleep({1: 9.0}.get(number // 10, 12.0 * (number == 2)))
            yield number


def as_they_come() -> list[Any]:
    """Without order a batch is yielded at the next next(), though it was taken in while main looked for deaths."""
    iterator = iter(loader(Slow((0, 2, 2, 2, 2)), num_workers=5, prefetch_factor=1, in_order=False))
    found = []
    for batch in iterator:
        found.append(batch)
        sleep(0.5)
    return found


RETURNS: dict[str, Worth] = {
    "pressed at every event": once(pressed_at, 1, dataset=Keys(6, (2,))).untraced(),
    "pressed at every event, when the first is late": once(pressed_at, 1, dataset=Keys(6, slow={0: 1.0})).untraced(),
    "pressed at every event, serial": once(pressed_at, 1, dataset=Keys(6, (3,)), num_workers=0).untraced(),
    "pressed as lost tasks are counted": once(pressed_as_a_death_is_noticed, Kind.TASK_LOST).untraced(),
    "resumed in another thread": once(resumed_in_another_thread),
    "a stream that ends late": slow(epochs, EndsLate((0, 3, 3)), num_workers=3, prefetch_factor=1),
    "it counts its epochs": usual(counts_epochs),
    "as they come": once(as_they_come),
    "no more than its share": once(epochs, Keys(20, slow={5: 50.0}), in_order=False, num_workers=3),
    "a health check when a stream has ended": once(epochs, Slow((4, 1))),
}
