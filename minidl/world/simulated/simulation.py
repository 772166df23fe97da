"""`simulate(program)`: one run of a program on a simulated machine, and its outcome."""

from __future__ import annotations

import contextlib
import copyreg
import gc
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy.random
import torch

from minidl import world as worlds
from minidl.laws import Event
from minidl.world.simulated import machine as machines
from minidl.world.simulated.chance import FIRST, Chance
from minidl.world.simulated.copying import reduce_storage
from minidl.world.simulated.cores import SECOND, never
from minidl.world.simulated.machine import Machine, Options
from minidl.world.simulated.processes import OWN, Process
from minidl.world.simulated.schedule import Random, Schedule, parse
from minidl.world.simulated.services import SimulatedWorld

SETTLED = 0.5  # virtual seconds for a program's threads and processes to end after it


@dataclass
class Outcome:
    """What a run did, and how it ended."""

    program: Callable[[], Any]
    schedule: Schedule
    options: dict[str, Any]  # of `simulate`
    events: list[Event] = field(default_factory=list)
    threads: list[tuple[int, str]] = field(default_factory=list)  # (pid, name) of each
    parents: dict[int, int] = field(default_factory=dict)  # pid of a process -> of its parent, 0 for the first
    exitcodes: dict[int, int | None] = field(default_factory=dict)  # None: it never ended
    ended: dict[int, float] = field(default_factory=dict)  # pid -> when (s)
    last_fault_at: float = 0.0  # when the last fault was injected (s); 0: none was
    result: Any = None  # what the program returned
    error: BaseException | None = None  # what it raised
    errors: list[tuple[str, BaseException]] = field(default_factory=list)  # what ended other threads: (name, error)
    swallowed: list[str] = field(default_factory=list)  # errors that Python could only print, as in a __del__
    deadlock: bool = False  # no thread could run, and there was no timeout left
    endless: bool = False  # it was cut short after `most_steps`
    open_pipes: int = 0  # ends of pipes, when the program had returned and its process had not exited
    left: list[str] = field(default_factory=list)  # threads and processes that it had started, and had not ended then
    unswept: list[str] = field(default_factory=list)  # processes ended by force whose shared memory nobody removed
    steps: int = 0

    @property
    def token(self) -> str:
        """The schedule, for `simulate(program, schedule=token)` to repeat the run."""
        return self.schedule.token

    @property
    def exitcode(self) -> int | None:
        """Of the program's process."""
        return self.exitcodes[self.threads[0][0]]

    @property
    def lasted(self) -> float:
        """Virtual seconds until the program's process ended."""
        return self.ended[self.threads[0][0]] - machines.BEGIN / SECOND


def simulate(
    program: Callable[[], Any],
    *,
    seed: int | None = None,
    schedule: str | Schedule = "0",
    faults: int = 0,
    texts: Callable[[int, object], object] = machines.in_brief,
    **options: Any,
) -> Outcome:
    """Run `program()`, which builds loaders and iterates, on a simulated machine. `options`: see machine.Options.

    `schedule` is a token or a Schedule; `seed` chooses a random one instead, with at most `faults` faults.
    Raises ValueError for an invalid token, RuntimeError within a simulation; what the program raises is in the
    outcome.
    """
    if machines.is_running():
        raise RuntimeError("a simulation within a simulation")
    if seed is not None:
        schedule = Random(seed, faults)
    elif isinstance(schedule, str):
        schedule = parse(schedule)
    settings = Options(**options)
    outcome = Outcome(program, schedule, dict(vars(settings)))
    machine = Machine(outcome, settings, texts)
    machine.world = SimulatedWorld(machine)

    def main() -> None:
        result = program()
        if machine.off:  # main was killed in a `__del__`, which swallowed what unwinds its stack
            return
        outcome.result = result
        if leftovers(machine) or machine.processes[0].ends:  # it may be about to end by itself
            machine.until(never, SETTLED)
        outcome.open_pipes, outcome.left = len(machine.processes[0].ends), leftovers(machine)
        children = [each for each in machine.processes if each.parent is machine.processes[0] and each.ended]
        outcome.unswept = [each.name for each in children if (each.forced or each.code) and not each.swept]

    with on(machine):
        Process(machine, main, "main").begin([])
        machine.run()
        outcome.threads = [(thread.process.pid, thread.name) for thread in machine.threads]
        outcome.error = machine.threads[0].error
        outcome.errors = [(each.name, each.error) for each in machine.threads[1:] if each.error is not None]
        outcome.parents = {each.pid: each.parent.pid if each.parent else 0 for each in machine.processes}
        outcome.exitcodes = {each.pid: each.code for each in machine.processes}
        outcome.ended = {each.pid: each.ended_at / SECOND for each in machine.processes if each.ended}
        outcome.steps = machine.step
        machine.switch_off()
    return outcome


def leftovers(machine: Machine) -> list[str]:
    """The names of the threads and processes that the program started and that have not ended."""
    main, *threads = machine.processes[0].threads
    processes = [each.name for each in machine.processes if each.parent is main.process and not each.ended]
    return [*processes, *(each.name for each in threads if each.alive)]


@contextlib.contextmanager
def on(machine: Machine) -> Iterator[None]:
    """While this lasts the machine has what the real process has only one of: the events' recorder, the world. Garbage
    is not collected: nothing may happen behind the scheduler's back."""
    places = [
        (machines, "_running", machine),
        (worlds, "_installed", machine.world),
        (sys, "unraisablehook", machine.swallow),
        (torch, "manual_seed", torch.default_generator.manual_seed),  # no devices are to be seeded
    ]
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in (*places, *OWN)]
    collects, threads, drawn = gc.isenabled(), torch.get_num_threads(), Chance.now()
    gc.disable()
    FIRST.put()
    numpy.random.seed(0)
    copyreg.dispatch_table[torch.TypedStorage] = reduce_storage
    try:
        for owner, name, value in places:
            setattr(owner, name, value)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)
        del copyreg.dispatch_table[torch.TypedStorage]
        drawn.put()
        torch.set_num_threads(threads)
        if collects:
            gc.enable()


# ---- for programs


def step() -> None:
    """For a dataset, a collate_fn, a training step: here other threads can run, and faults can happen. It takes ten
    times as long as a step of the loader, so that a picture shows it."""
    with in_user_code() as machine:
        machine.until()
        machine.clock += 10 * machines.STEP


def sleep(seconds: float) -> None:
    """Wait in virtual time, without using a core."""
    with in_user_code() as machine:
        machine.until(never, seconds)


def compute(seconds: float, helpers: float = 0.0) -> None:
    """Use a core for `seconds` of virtual time; longer by the clock if more threads compute than there are cores. So
    many `helpers` compute with it: other threads, for which it waits."""
    with in_user_code() as machine:
        machine.cores.compute(seconds, helpers)


def drop(thing: Any) -> None:
    """Leave `thing` to the garbage collector, like a cycle that nothing refers to. The scheduler chooses when it is
    found: at the latest when the program's process ends."""
    machines.current_machine().garbage.append(thing)


@contextlib.contextmanager
def in_user_code() -> Iterator[Machine]:
    """Here the user's code can raise."""
    machine = machines.current_machine()
    thread = machine.running
    thread.in_user_code = True
    try:
        yield machine
    finally:
        thread.in_user_code = False
