"""`simulate(program)`: one run of a program on a simulated machine, and what became of it."""

from __future__ import annotations

import contextlib
import copyreg
import gc
import math
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from minidl import events
from minidl import world as worlds
from minidl.world.simulated import machine as machines
from minidl.world.simulated.chance import Chance
from minidl.world.simulated.copying import reduce_storage
from minidl.world.simulated.cores import SECOND, never
from minidl.world.simulated.machine import Machine
from minidl.world.simulated.processes import OWN
from minidl.world.simulated.schedule import Random, Schedule, parse
from minidl.world.simulated.services import SimulatedWorld

PIPE = 1 << 16  # bytes, as on Linux
SETTLED = 0.5  # virtual seconds that the threads of a program have to end after it


@dataclass
class Outcome:
    """What became of a run."""

    program: Callable[[], Any]
    schedule: Schedule
    options: dict[str, Any]  # of `simulate`
    events: list[tuple[Any, ...]]  # see Machine.events
    threads: list[tuple[int, str]]  # of each: pid, name
    parents: dict[int, int]  # pid of a process -> of its parent, 0 for the first
    exitcodes: dict[int, int | None]  # None: it never ended
    ended: dict[int, float]  # pid -> when (s)
    struck_at: float  # when the last fault struck (s); negative: none did
    result: Any  # what the program returned
    error: BaseException | None  # what it raised
    errors: list[tuple[str, BaseException]]  # what other threads died of
    swallowed: list[str]  # what was raised in a __del__, where Python can only print it
    deadlock: bool
    endless: bool
    open_pipes: int  # when the program had returned, before its process exited
    left: list[str]  # threads and processes that the program had started, and that were there then
    steps: int

    @property
    def token(self) -> str:
        """The schedule: `simulate(program, schedule=token)` does it all again."""
        return self.schedule.token

    @property
    def exitcode(self) -> int | None:
        """Of the program's process."""
        return self.exitcodes[self.threads[0][0]]

    @property
    def lasted(self) -> float:
        """How long the program's process did, in virtual seconds."""
        return self.ended[self.threads[0][0]] - machines.BEGIN / SECOND


def simulate(
    program: Callable[[], Any],
    *,
    seed: int | None = None,
    schedule: str | Schedule = "0",
    faults: int = 0,
    capacity: int = PIPE,
    start_method: str = "fork",
    cpus: float = 2,
    draws: bool = True,
    texts: bool = False,
    most_steps: int = machines.TOO_MANY,
) -> Outcome:
    """Run `program()`, which builds loaders and iterates, on a simulated machine.

    `schedule` is a token, or a Schedule; `seed` one by chance in its place, with at most `faults` faults. `capacity` of
    a pipe in bytes: with less than a message has, a write takes several steps. Of the last of `cpus` cores there may be
    only a part: others have the rest. Without `draws` all processes share
    their random numbers, which is faster; a program that draws none need not care. After `most_steps` a run is cut
    short, and said to be endless. Raises ValueError for a token that is none, RuntimeError within a simulation; what
    the program raises is in the outcome.
    """
    if machines.is_running():
        raise RuntimeError("a simulation within a simulation")
    chosen = Random(seed, faults) if seed is not None else parse(schedule) if isinstance(schedule, str) else schedule
    options: dict[str, Any] = {"capacity": capacity, "start_method": start_method, "cpus": cpus, "draws": draws}
    options["most_steps"] = most_steps
    machine = Machine(chosen, capacity, cpus, texts, draws, most_steps)
    machine.world = SimulatedWorld(machine, start_method, math.ceil(cpus))
    found: dict[str, Any] = {"result": None, "pipes": 0, "left": []}

    def main() -> None:
        found["result"] = program()
        if leftovers(machine) or machine.processes[0].ends:  # what nobody waited for is about to end by itself
            machine.until(never, SETTLED)
        found["pipes"], found["left"] = len(machine.processes[0].ends), leftovers(machine)

    with on(machine):
        machine.new_process("main", main, [])
        machine.run()
        outcome = Outcome(
            program,
            chosen,
            options,
            machine.events,
            [(thread.process.pid, thread.name) for thread in machine.threads],
            {each.pid: each.parent.pid if each.parent else 0 for each in machine.processes},
            {each.pid: each.exitcode for each in machine.processes},
            {each.pid: each.ended_at / SECOND for each in machine.processes if each.ended},
            machine.struck_at / SECOND,
            found["result"],
            machine.threads[0].error,
            [(each.name, each.error) for each in machine.threads[1:] if each.error is not None],
            machine.swallowed,
            machine.deadlock,
            machine.endless,
            found["pipes"],
            found["left"],
            machine.step,
        )
        found.clear()
        machine.switch_off()
    return outcome


def leftovers(machine: Machine) -> list[str]:
    """What the program has started and is still there."""
    main, *threads = machine.processes[0].threads
    processes = [each.name for each in machine.processes if each.parent is main.process and not each.ended]
    return [*processes, *(each.name for each in threads if each.alive)]


@contextlib.contextmanager
def on(machine: Machine) -> Iterator[None]:
    """What the real process has once is the machine's: the events' recorder, the world. And nothing happens behind the
    scheduler's back: no garbage collection."""
    own = [getattr(owner, name) for owner, name, _ in OWN]
    collects, threads, chance = gc.isenabled(), torch.get_num_threads(), Chance.now()
    gc.disable()
    Chance.put_seeded()
    seed, torch.manual_seed = torch.manual_seed, torch.default_generator.manual_seed  # there are no devices to seed
    copyreg.dispatch_table[torch.TypedStorage] = reduce_storage
    hook, sys.unraisablehook = sys.unraisablehook, machine.swallow
    previous = worlds.use(machine.world), events.install(machine.record)
    machines.install(machine)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        machines.install(None)
        worlds.use(previous[0])
        events.install(previous[1])
        sys.unraisablehook = hook
        torch.manual_seed = seed
        del copyreg.dispatch_table[torch.TypedStorage]
        chance.put()
        torch.set_num_threads(threads)
        for (owner, name, _), value in zip(OWN, own, strict=True):
            setattr(owner, name, value)
        if collects:
            gc.enable()


# ---- for programs


def step() -> None:
    """In a dataset, a collate_fn, a training step: others may go on here, and faults may strike. It takes ten times as
    long as a step of the loader, so that a picture shows it."""
    with in_user_code() as machine:
        machine.until()
        machine.clock += 10 * machines.STEP


def sleep(seconds: float) -> None:
    """Wait in virtual time, without using a core."""
    with in_user_code() as machine:
        machine.until(never, seconds)


def compute(seconds: float) -> None:
    """Use a core for so long, in virtual time; longer by the clock, if more processes compute than there are cores."""
    with in_user_code() as machine:
        machine.cores.compute(seconds)


def drop(thing: Any) -> None:
    """Leave `thing` to the garbage collector, as a cycle that nobody refers to: when it is found is a choice of the
    scheduler; at the latest it is at the end of the program's process."""
    machines.current_machine().garbage.append(thing)


@contextlib.contextmanager
def in_user_code() -> Iterator[Machine]:
    """Where faults of the user's code strike."""
    machine = machines.current_machine()
    thread = machine.running
    thread.in_user_code = True
    try:
        yield machine
    finally:
        thread.in_user_code = False
