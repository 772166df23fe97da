"""Programs about the end: a shutdown that is bounded, deaths that are raised where they should be, Ctrl-C, and what is
left when it is over. Those with a clock in them are `timed`: only by the default schedule.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import minidl
from minidl import events, signals
from minidl import world as worlds
from minidl.events import Kind
from minidl.world.simulated import machine as machines
from minidl.world.simulated import step
from minidl.world.simulated.faults import Fault, Move, inject
from minidl.world.simulated.simulation import leftovers, sleep
from tests.minidl.simulated.worth import Worth, once, slow, usual
from tests.minidl.simulated.worth_exploring import CannotBack, Keys, Refuses, Streams, kill, loader, odd, seen, tries
from tests.minidl.simulated.worth_killing import leaving
from tests.samples import Samples

HELD: list[Any] = []  # what outlives a program's frame, as a global variable does


def left() -> list[Any]:
    """What a loader has left in main: ends of pipes, watched iterators, threads, processes."""
    machine = machines.current_machine()
    return [len(machine.processes[0].ends), len(signals._watched), *leftovers(machine)]


def at(*seconds: float, do: Any) -> None:
    """Another thread does it, this many seconds from now, until it returns True."""

    def run() -> None:
        before = 0.0
        for second in seconds:
            sleep(second - before)
            before = second
            if do():
                return

    worlds.current().thread(run, (), "does it").start()


def press() -> None:
    """Ctrl-C for main alone."""

    def interrupt(frame: Any) -> None:
        raise KeyboardInterrupt

    machines.current_machine().threads[0].signals.append(interrupt)


def takes(what: Any) -> tuple[Any, float]:
    """What becomes of it, and how many seconds later."""
    begin = worlds.current().now()
    return tries(what, KeyboardInterrupt), round(worlds.current().now() - begin, 1)


# ---- the end


def over(**options: Any) -> list[Any]:
    """When an epoch is over nothing is left, though its iterator is still there; and so after an error at the start."""
    load = loader(**options)
    iterator = iter(load)
    found: list[Any] = [seen(iterator), left()]
    closable = iterator._endings, iterator._workers_done_event, iterator._pin_memory_thread_done_event
    found.append([each._closed for each in closable])
    del iterator
    return found


class Second:
    """A sampler that fails when it is iterated for the second time."""

    count = 0

    def __iter__(self) -> Iterator[int]:
        self.count += 1
        if self.count == 2:
            raise LookupError("a second time")
        return iter(range(5))


def never_began() -> list[Any]:
    """The error is kept, and with it the frame that made the iterator: it has been shut down nevertheless."""
    try:
        iter(loader(sampler=Second(), batch_size=None, collate_fn=None))
    except LookupError as error:
        HELD[:] = [error]
    found = left()
    HELD.clear()
    return found


STUCK = dict.fromkeys((3, 4, 5), 99.0)  # each of three workers is in one of these


def get_stuck_with_a_child() -> None:
    """It keeps the pipe open from which the worker does not read any more."""
    worlds.current().process(sleep, (60.0,), "child").start()
    sleep(99.0)


CLINGING = Keys(9, at=dict.fromkeys(STUCK, get_stuck_with_a_child))


def stuck(presses: tuple[float, ...] = (), dataset: Any = None, **options: Any) -> list[Any]:
    """How long the shutdown takes while all workers are busy. They end by themselves in the end."""
    iterator = iter(loader(dataset or Keys(9, slow=STUCK), num_workers=3, **options))
    next(iterator)
    sleep(0.5)
    if presses:
        at(*presses, do=press)
    found = [takes(iterator._shutdown_workers)]
    kinds = [event[2] for event in machines.current_machine().outcome.events]
    found += [kinds.count(kind) for kind in (Kind.WORKER_TERMINATED, Kind.WORKER_KILLED, Kind.SHUTDOWN_END)]
    found.append(tries(lambda: next(iterator)))
    sleep(120)
    return found


class SlowToPin:
    def __init__(self, samples: list[Any]) -> None:
        self.key = samples[0]

    def pin_memory(self) -> Any:
        sleep(20 if self.key == 2 else 0.5)
        return self.key


def stuck_in_the_pin_thread(*presses: float) -> list[Any]:
    """After Ctrl-C the workers get no Stop, nor the feeders their LAST: they are not waited for."""
    iterator = iter(loader(pin_memory="host", collate_fn=SlowToPin))
    next(iterator)
    sleep(2)
    if presses:
        at(*presses, do=press)
    found: list[Any] = [takes(iterator._shutdown_workers), left()]
    sleep(60)
    return found


class Exits:
    """The pin thread ends over batch 1."""

    def __init__(self, samples: list[Any]) -> None:
        self.key = samples[0]

    def pin_memory(self) -> Any:
        if self.key == 1:
            raise SystemExit
        return self.key


class Drops(Exits):
    """The garbage collector runs in the pin thread, and finds an iterator."""

    def pin_memory(self) -> Any:
        if self.key == 4:  # its task is sent when the first batch has been yielded
            machines.current_machine().garbage.clear()
        return self.key


def dropped_in_the_pin_thread() -> list[Any]:
    """It must not wait for itself."""
    iterator = iter(loader(pin_memory="host", collate_fn=Drops))
    found = [next(iterator)]
    machines.current_machine().garbage.append(iterator)
    begin = worlds.current().now()
    del iterator
    sleep(1)
    ended = [each.ended_at for each in machines.current_machine().processes[1:]]
    return [found, left(), max(ended) / 1e9 - begin < 0.1]


def exits_with_it(**options: Any) -> None:
    """The interpreter exits while a global variable has the iterator."""
    HELD[:] = [iter(loader(**options))]
    next(HELD[0])
    raise SystemExit(0)


def slowly(slow: Any) -> None:
    """From now on main's recorder takes as many seconds over an event as `slow` says."""
    recorder = events.installed()
    assert recorder is not None

    def record(kind: int, epoch_id: int, task: int, *others: Any) -> None:
        recorder(kind, epoch_id, task, *others)
        sleep(slow(kind, task))

    events.install(record)


def told_slowly() -> list[Any]:
    """Main takes its time to stop the workers: none of them begins another task meanwhile."""
    iterator = iter(loader(Keys(20, slow=dict.fromkeys(range(20), 0.3)), prefetch_factor=4))
    found = [next(iterator)]
    slowly(lambda kind, task: float((kind, task) == (Kind.PUT, events.STOP)))
    iterator._shutdown_workers()
    kinds = [event[2] for event in machines.current_machine().outcome.events]
    return [found, Kind.FETCH_BEGIN in kinds[kinds.index(Kind.DONE_SET) :]]


def shut_down_by_hand(**options: Any) -> list[Any]:
    iterator = iter(loader(**options))
    found = [next(iterator)]
    iterator._shutdown_workers()
    iterator._shutdown_workers()
    return [found, left(), tries(lambda: next(iterator)), tries(lambda: next(iterator))]


# ---- deaths, and where they are raised


def in_another_thread() -> list[Any]:
    """Main trains, and another thread loads: what happens there is no business of main's."""
    found: list[Any] = []
    world = worlds.current()
    box = world.mailbox()

    def loads() -> None:
        iterator = box.get()
        found.append(tries(lambda: seen(iterator)))

    world.thread(loads, (), "loads").start()  # before the workers, so that after their deaths main is the first to run
    iterator = iter(loader(Keys(9, slow=STUCK), num_workers=3))
    next(iterator)
    at(2.0, do=lambda: kill(iterator, 1))
    sleep(0.5)
    box.put(iterator)
    found.append(takes(lambda: sleep(60)))
    return found


def forked() -> list[Any]:
    """A process that main has forked has inherited the handler of SIGCHLD: that a worker of main's has died is none of
    its business."""
    world = worlds.current()
    iterator, slow = iter(loader()), iter(loader(Keys(5, slow={0: 4.0})))

    def forks() -> None:
        sleep(2)
        child = world.process(sleep, (0.5,), "grandchild")
        child.start()
        sleep(1)

    process = world.process(forks, (), "child")
    process.start()
    at(1.0, do=lambda: kill(iterator, 1))
    found = [tries(lambda: next(slow)), tries(lambda: seen(iterator))]
    process.join()
    return [*found, process.exitcode]


def another_childs_end() -> list[Any]:
    """It is no reason to keep main waiting."""
    iterator = iter(loader())
    found: list[Any] = [next(iterator)]
    child = worlds.current().process(sleep, (0.5,), "child")
    child.start()
    return [*found, takes(child.join), seen(iterator)]


def unreadable(dies: bool) -> Any:
    """If its worker has died, or does so a little later, that is why."""
    iterator = iter(loader(odd(CannotBack)))
    found = [next(iterator)]
    if dies:
        at(0.3, do=lambda: kill(iterator, 1))
    return [found, takes(lambda: next(iterator)), tries(lambda: next(iterator))]


def killed_after_another(epochs: int = 1, **options: Any) -> list[Any]:
    """A loader's worker dies in the training step, after other epochs whose iterators are still there."""
    load = loader(**options)
    found: list[Any] = []
    for _ in range(epochs):
        HELD.append(iter(load))
        found.append(seen(HELD[-1]))
    iterator = iter(load)
    kill(iterator, 0)
    found.append(takes(lambda: sleep(60)))
    HELD.clear()
    return [*found, tries(lambda: next(iterator))]


class Stumbles(minidl.DataLoader[int]):
    """Its sampler raises when a task is to be sent in place of the one that an ended stream did not fulfil."""

    @property
    def _index_sampler(self) -> Any:
        return Refuses(5)


def told_before() -> list[Any]:
    """A worker whose stream has ended gets its Stop at once, whatever else fails."""
    load = Stumbles(Streams((9, 0)), num_workers=2, batch_size=None, collate_fn=None)
    iterator = iter(load)
    found = [tries(lambda: next(iterator)) for _ in range(3)]
    sleep(1)
    return [*found, [each.is_alive() for each in iterator._workers]]


def left_in_training() -> list[Any]:
    """That is no reason to interrupt the training step, as it may be the end of all: the next next() raises."""
    iterator = iter(loader(leaving(0, at=4)))
    found = [next(iterator)]
    return [found, takes(lambda: sleep(9)), tries(lambda: seen(iterator))]


def replaced(how: str = "kill", dataset: Any = None, batches: int = 2, **options: Any) -> list[Any]:
    """Persistent workers: an epoch fails, the next one has new workers."""
    load = loader(dataset, persistent_workers=True, **options)
    iterator = iter(load)
    found: list[Any] = [[next(iterator) for _ in range(batches)]]
    sleep(0.1)
    with contextlib.suppress(RuntimeError):
        getattr(iterator._workers[1], how)()
        sleep(0.1)
    found += [tries(lambda: seen(iterator)), tries(lambda: seen(iter(load))), tries(lambda: seen(iter(load)))]
    return [*found, tries(lambda: next(iterator))]


def not_resumed() -> list[Any]:
    """A worker is too slow for the new epoch."""
    load = loader(Keys(5, slow={2: 9.0}), persistent_workers=True, timeout=3)
    iterator = iter(load)
    found: list[Any] = [next(iterator), next(iterator), takes(lambda: iter(load)), tries(lambda: next(iterator))]
    load.timeout = 20
    return [*found, takes(lambda: seen(iter(load)))]


def asked(key: int) -> Any:
    """A worker asks an iterator that it inherited."""
    return tries(lambda: next(HELD[0]))


def inherited() -> list[Any]:
    HELD[:] = [iter(loader(Keys(2)))]
    found = [seen(iter(loader(Samples(3, asked)))), seen(HELD[0])]
    HELD.clear()
    return found


# ---- Ctrl-C


OVER = ["end"], ["RuntimeError"]


def until_it_fails(iterator: Any, found: list[Any]) -> list[Any]:
    """Batches and errors, until the end, or an error that stays."""
    while found[-1:] not in OVER:
        try:
            found.append(next(iterator))
        except StopIteration:
            found.append("end")
        except (KeyboardInterrupt, LookupError, RuntimeError) as error:
            found.append(type(error).__name__)
    return found


def pressed(seconds: tuple[float, ...], dataset: Any, **options: Any) -> list[Any]:
    """What main has, though Ctrl-C comes again and again: while it waits nothing is lost, and elsewhere it says so."""
    iterator, found = iter(loader(dataset, **options)), []
    at(*seconds, do=lambda: found[-1:] in OVER or press())
    return until_it_fails(iterator, found)


def whole_in_the_end(**options: Any) -> list[Any]:
    """Ctrl-C for main alone, once, at any time. Whatever it interrupts, a later epoch is whole."""
    load, presses = loader(Keys(4), **options), worlds.current().thread(press_once, (), "presses")
    for attempt in range(4):
        try:
            if attempt == 0:
                presses.start()
            found = seen(iter(load))
            presses.join()
            return found
        except KeyboardInterrupt:
            step()
        except RuntimeError as error:
            if "interrupted" not in str(error) and "Interrupt" not in str(error):
                raise
    return ["interrupted again and again"]


def press_once() -> None:
    with contextlib.suppress(OSError):  # it may raise here
        step()
    press()


def ended_by_ctrl_c() -> list[Any]:
    """In the terminal: it goes to all. A worker ends, though main, which is still there, reads nothing of what the
    worker has to send."""
    machine, iterator = machines.current_machine(), iter(loader(Keys(20), prefetch_factor=4))
    found: list[Any] = [next(iterator)]
    sleep(1)
    inject(machine, Move(machine.step, Fault.INTERRUPT))
    found.append(takes(lambda: sleep(9)))
    sleep(1)
    return [*found, [each.is_alive() for each in iterator._workers]]


class Presses:
    """A sampler that is interrupted."""

    def __init__(self, after: int) -> None:
        self.after = after

    def __iter__(self) -> Iterator[int]:
        for number in range(8):
            if number == self.after:
                raise KeyboardInterrupt
            yield number


PRESSES = tuple(0.17 * number for number in range(1, 24))
ENDS: dict[str, Worth] = {
    "over, torch's way, pinned": usual(over, pin_memory="host").torchs_way(),
    "over, streams": usual(over, dataset=Streams((1, 3))),
    "never began": usual(never_began),
    "stuck, and deaf to SIGTERM": once(stuck).without("SIGTERM"),
    "stuck, with much to send": once(stuck, dataset=CLINGING, prefetch_factor=4).untraced().torchs_way(capacity=64),
    "stuck for good": once(stuck).without("force").untraced(),
    "stuck, interrupted": once(stuck, (1.0,)),
    "stuck, interrupted twice": once(stuck, (1.0, 3.0)).without("SIGTERM"),
    "stuck in the pin thread, interrupted": once(stuck_in_the_pin_thread, 1.0).untraced(),
    "stuck in the pin thread, interrupted, torch's way": once(stuck_in_the_pin_thread, 1.0).untraced().torchs_way(),
    "the pin thread exits": once(lambda: takes(lambda: seen(iter(loader(pin_memory="host", collate_fn=Exits))))),
    "dropped in the pin thread": once(dropped_in_the_pin_thread),
    "told slowly": once(told_slowly),
    "exits with it": usual(exits_with_it),
    "shut down by hand": usual(shut_down_by_hand),
    "shut down by hand, when a batch came early": once(shut_down_by_hand, dataset=Keys(4, slow={0: 1.0})),
    "loads in another thread": once(in_another_thread),
    "another child's end": once(another_childs_end),
    "forked": once(forked),
    "unreadable": once(unreadable, False),
    "unreadable, as its worker dies": once(unreadable, True).without("SIGCHLD"),
    "killed in a later epoch": once(killed_after_another, 2, persistent_workers=True),
    "told before the sampler fails": once(told_before),
    "left in training": once(left_in_training),
    "replaced, with its stream ended": once(replaced, "kill", Streams((9, 1)), 6),
    "not resumed": once(not_resumed),
    "inherited": usual(inherited).but(options={"draws": False}),
    "pressed, streams, pinned": once(
        pressed, PRESSES, Streams((1, 4, 4)), num_workers=3, pin_memory="host", collate_fn=SlowToPin
    ),
    "whole in the end": slow(whole_in_the_end, persistent_workers=True).untraced(),
    "ended by Ctrl-C, with much to send": once(ended_by_ctrl_c).untraced().torchs_way(capacity=64),
    "pressed in the sampler": once(pressed, (), Keys(8), sampler=Presses(6)),
}
