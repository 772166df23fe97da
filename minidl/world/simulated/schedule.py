"""Schedules: the steps at which a run departs from the default, and how to write them down.

    12.3-40.k2      at step 12 thread 3 runs next, at step 40 process 2 is killed

Any run can be written as such a token. A random run is written down as it goes, so it can be repeated exactly. The
empty schedule, written "0", is the default one.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import TYPE_CHECKING

from minidl.world.simulated.faults import Fault, Move, inject, possible_faults

if TYPE_CHECKING:
    from minidl.world.simulated.machine import Machine, Thread


class Schedule:
    """Decides what a machine does at each step."""

    compares = False  # states: if so, what each thread has seen is hashed, step by step

    def __init__(self, moves: Iterable[Move] = ()) -> None:
        self.moves = sorted(moves, key=lambda move: move.step)
        self._threads = {move.step: move.number for move in self.moves if move.what is Fault.RUN}
        self.faults_at: dict[int, list[Move]] = {}  # step -> what goes wrong there
        for move in self.moves:
            if move.what is not Fault.RUN:
                self.faults_at.setdefault(move.step, []).append(move)

    @property
    def token(self) -> str:
        return "-".join(map(str, self.moves)) or "0"

    def choose(self, machine: Machine) -> Thread | None:
        """The thread that runs next; None if all wait."""
        number = self._threads.get(machine.step)
        if number is not None and number < len(machine.threads) and machine.threads[number].can_run():
            return machine.threads[number]
        return self.by_default(machine)

    def by_default(self, machine: Machine) -> Thread | None:
        running = machine.running
        return running if running.can_run() else machine.next_able(running.number + 1)


def parse(token: str) -> Schedule:
    """The schedule that a token stands for. ValueError: it is not a token."""
    moves = []
    for part in token.split("-") if token != "0" else []:
        step, dot, rest = part.partition(".")
        letter = rest[:1] if rest[:1].isalpha() else ""
        digits = rest[len(letter) :]
        if not (step.isdigit() and dot and (digits.isdigit() or (letter and not digits))):
            raise ValueError(f"{token!r} is no schedule: {part!r} should read like 12.3 or 40.k2")
        try:
            moves.append(Move(int(step), Fault(letter), int(digits or -1)))
        except ValueError:
            raise ValueError(f"{token!r} is no schedule: {letter!r} names no fault") from None
    return Schedule(moves)


class Recorded(Schedule):
    """Decides as it goes, and records each departure from the default."""

    def __init__(self, seed: int, faults: int, horizon: int) -> None:
        """`faults` at most, spread over the first `horizon` steps."""
        super().__init__()
        self.chance = random.Random(seed)  # its own: the program's random numbers stay as they are
        self.fault_steps = {1 + self.chance.randrange(horizon) for _ in range(self.chance.randint(0, faults))}

    def inject_any(self, machine: Machine) -> None:
        """Inject one of the faults that are possible now, if there are any."""
        if possible := possible_faults(machine):
            fault = self.chance.choice(possible)
            self.moves.append(fault)
            inject(machine, fault)

    def choose(self, machine: Machine) -> Thread | None:
        if machine.step in self.fault_steps:
            self.inject_any(machine)
        default = self.by_default(machine)
        if default is None:
            return None
        chosen = self.pick(machine, default)
        if chosen is not default:
            self.moves.append(Move(machine.step, Fault.RUN, chosen.number))
        return chosen

    def pick(self, machine: Machine, default: Thread) -> Thread:
        raise NotImplementedError


class Random(Recorded):
    """At each step, with some probability, any of the threads that can run."""

    def __init__(self, seed: int, faults: int = 0, horizon: int = 300) -> None:
        super().__init__(seed, faults, horizon)
        self.restless = self.chance.choice([0.02, 0.1, 0.3, 1.0])

    def pick(self, machine: Machine, default: Thread) -> Thread:
        if self.chance.random() >= self.restless:
            return default
        return self.chance.choice([thread for thread in machine.threads if thread.can_run()])


class Priorities(Recorded):
    """PCT: every thread has a random priority, and of those that can run, the highest runs. At `changes`
    random steps the running one falls to the bottom. A bug that needs d such changes is found with a probability of
    about 1 / (n k^d) for n threads and k steps. (Burckhardt, Kothari, Musuvathi, Nagarakatte: A Randomized Scheduler
    with Probabilistic Guarantees of Finding Bugs, ASPLOS 2010.)"""

    def __init__(self, seed: int, faults: int = 0, horizon: int = 300, changes: int = 3) -> None:
        super().__init__(seed, faults, horizon)
        self.change_steps = {1 + self.chance.randrange(horizon) for _ in range(changes)}
        self.ranking: list[Thread] = []  # the highest priority first
        self.fallen: set[Thread] = set()  # those at its end

    def pick(self, machine: Machine, default: Thread) -> Thread:
        for thread in machine.threads[len(self.ranking) :]:
            self.ranking.insert(self.chance.randint(0, len(self.ranking) - len(self.fallen)), thread)
        if machine.step in self.change_steps:
            self.fallen.add(machine.running)
            self.ranking.remove(machine.running)
            self.ranking.append(machine.running)
        for thread in self.ranking:
            if thread.can_run():
                return thread
        return default
