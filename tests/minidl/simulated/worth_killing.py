"""Programs in which a process dies: each line of defence is tried with the others taken away."""

from __future__ import annotations

import functools
import sys
from typing import Any

from minidl import events
from minidl import world as worlds
from minidl.world.simulated import machine as machines
from minidl.world.simulated import step
from minidl.world.simulated.faults import KILLED
from minidl.world.simulated.simulation import sleep
from tests.minidl.simulated.programs import stays
from tests.minidl.simulated.worth import Worth, once, slow, usual
from tests.minidl.simulated.worth_exploring import Keys, Streams, dropped, exits, kill, loader, number_of, seen, tries
from tests.samples import Samples


def killed(
    how: str, after: int = 1, dataset: Any = None, again: bool = False, rest: float = 0, **options: Any
) -> list[Any]:
    """Worker 1 is ended from outside after some batches, and then the error, in full, and how long it took."""
    world, load = worlds.current(), loader(dataset, **options)
    iterator = iter(load)
    found: list[Any] = [next(iterator) for _ in range(after)]
    sleep(rest)
    worker = iterator._workers[1]
    if how == "hang up":
        machines.current_machine().send_end(worker, -1)
    else:
        getattr(worker, how)()
        worker.forced = False  # not by main
    sleep(rest)
    begin = world.now()
    try:
        for batch in iterator:
            found.append(batch)
            sleep(0.1)
    except RuntimeError as error:
        stays(iterator, error)
        found.append(str(error))
    if again:  # a persistent loader's next epoch cannot begin
        try:
            found.append(seen(iter(load)))
        except RuntimeError as error:
            found.append(str(error))
    return [*found, round(world.now() - begin, 1)]


def killed_in_training(dataset: Any = None, batches: int = 1, rest: float = 0, **options: Any) -> list[Any]:
    """The signal of a child's end comes while main trains: it is raised there."""
    iterator = iter(loader(dataset or Keys(9), **options))
    found: list[Any] = [tries(lambda: next(iterator)) for _ in range(batches)]
    sleep(rest)
    try:
        kill(iterator, 0)
        sleep(60)
        found.append("it trained to the end")
    except RuntimeError as error:
        found.append(str(error))
    told = machines.current_machine().outcome.events
    return [*found, [(event[4], event[7]) for event in told if event[2] == events.STORED]]


def killed_one_after_another() -> list[Any]:
    """Main knows of the first, and trains without the loader: the second death is no news."""
    iterator = iter(loader(Keys(9)))
    found: list[Any] = [next(iterator)]
    for worker in iterator._workers:
        worker.kill()
        found.append(tries(lambda: sleep(60)))
    return [*found, tries(lambda: next(iterator))]


class Nameless:
    """A key that cannot be printed."""

    def __init__(self, key: int) -> None:
        self.key = key

    def __repr__(self) -> str:
        raise LookupError("no words for it")


def killed_over_a_key_without_words() -> list[Any]:
    """Its batch is not missing in silence."""
    iterator = iter(loader(Keys(7, make=number_of), sampler=[Nameless(key) for key in range(7)]))
    found: list[Any] = [next(iterator)]
    kill(iterator, 0)
    return [*found, *(tries(lambda: sleep(60) or next(iterator)) for _ in range(3))]


def filling_a_pipe(key: int) -> bytes:
    return bytes(50_000)


def killed_with_much_sent() -> str:
    """What the worker had sent counts: its tasks are not called lost."""
    iterator = iter(loader(Samples(20, filling_a_pipe), prefetch_factor=4))
    next(iterator)
    sleep(1)
    kill(iterator, 1)
    sleep(1)
    try:
        for _ in iterator:
            pass
    except RuntimeError as error:
        return str(error)
    return "no error"


def leaving(code: int, at: int = 3) -> Keys:
    """At some sample the worker's process exits."""
    return Keys(6, at={at: functools.partial(sys.exit, code)})


def fork() -> None:
    """A worker has a child, which inherits its end of the pipe."""
    worlds.current().process(sleep, (0.5,), "child").start()


def left_by_a_worker(code: int, **options: Any) -> list[Any]:
    iterator, found = iter(loader(leaving(code), **options)), []
    try:
        for batch in iterator:
            found.append(batch)
            step()
    except RuntimeError as error:
        stays(iterator, error)
        found.append(str(error))
    return found


def main_is_killed(**options: Any) -> None:
    """The workers notice by themselves: none is left, and none needs force."""
    iterator = iter(loader(Keys(20), **options))
    next(iterator)
    machine = machines.current_machine()
    machine.end(machine.processes[0], -KILLED)
    machine.until()


OTHERS = ("SIGCHLD", "the health check")
DEATHS: dict[str, Worth] = {
    "killed: the health check notices": once(killed, "kill").without("SIGCHLD", "the waits"),
    "killed: the health check notices, in time": once(killed, "kill", timeout=3).without("SIGCHLD", "the waits"),
    "killed, with many tasks": once(killed, "kill", 1, Keys(20, slow={1: 5.0}), prefetch_factor=5).without(*OTHERS),
    "killed, with long keys": once(
        killed, "kill", 1, Keys(999, slow={150: 5.0}), batch_size=150, collate_fn=len
    ).without(*OTHERS),
    "killed by another signal": once(killed, "hang up"),
    "killed, and reaped by the program": once(killed, "terminate").without("exit codes"),
    "killed, and its exit code never comes": once(killed, "terminate").without("a fork server"),
    "killed: its end is seen before its bytes": once(killed, "kill", 2, Samples(9, at={3: fork}), rest=0.1).without(
        "order", "SIGCHLD"
    ),
    "killed in training: SIGCHLD": once(killed_in_training).without("the health check"),
    "killed over a key without words": once(killed_over_a_key_without_words),
    "killed one after another": once(killed_one_after_another),
    "killed in training, after an error": once(killed_in_training, Keys(9, (1,)), 2, 0.1),
    "killed with much sent": once(killed_with_much_sent).without(*OTHERS).torchs_way(capacity=1 << 20),
    "killed between epochs": once(killed, "kill", 7, again=True, persistent_workers=True).without(*OTHERS),
    "killed with its stream ended": once(killed, "kill", 4, Streams((9, 1))),
    "a worker exits": once(left_by_a_worker, 3),
    "a worker exits with 1": once(left_by_a_worker, 1, pin_memory="host"),
    "main is killed while a worker seeds": once(main_is_killed).without("quick seeds"),
    "dropped, without Stop": slow(dropped, 2, num_workers=3).without("Stop"),
    "dropped while a worker is stuck": once(dropped, 1, dataset=Keys(7, slow={3: 1e4})),
    "exits, where no thread starts any more": usual(exits, 0, dataset=Keys(2), num_workers=4)
    .without("threads")
    .torchs_way(),
}
