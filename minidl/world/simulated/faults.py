"""What can go wrong on a simulated machine, and how to make it happen."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from minidl.world.simulated.cores import SECOND
from minidl.world.simulated.processes import Process

if TYPE_CHECKING:
    from minidl.world.simulated.machine import Machine

KILLED, TERMINATED = 9, 15  # signals


class Fault(enum.Enum):
    """What can go wrong. The value is its letter in a token."""

    RUN = ""  # nothing goes wrong: this thread runs next
    KILL = "k"  # kill -9 of this process
    INTERRUPT = "i"  # Ctrl-C in the terminal: SIGINT to every process
    RAISE = "r"  # the user's code raises in the running thread
    EXIT = "e"  # sys.exit() in the training loop
    TIMEOUT = "t"  # this thread's wait times out early
    COLLECT = "c"  # the garbage collector runs in this thread and finds what the program has dropped


@dataclass(frozen=True)
class Move:
    """One departure from the default schedule."""

    step: int
    what: Fault
    number: int = -1  # of the thread, or the process

    def __str__(self) -> str:
        return f"{self.step}.{self.what.value}{self.number if self.number >= 0 else ''}"


def inject(machine: Machine, move: Move) -> None:
    """Make this fault happen, now."""
    machine.outcome.last_fault_at = machine.clock / SECOND
    fault, number = move.what, move.number
    if fault is Fault.KILL and number < len(machine.processes):
        machine.end(machine.processes[number], -KILLED)
    elif fault is Fault.INTERRUPT:  # the terminal sends it to all processes
        for process in machine.processes:
            process.threads[0].signals.append(_interrupt_handler(process))
    elif fault is Fault.RAISE:
        machine.running.signals.append(_raise)
    elif fault is Fault.EXIT:
        machine.threads[0].signals.append(_exit)
    elif fault is Fault.TIMEOUT and number < len(machine.threads):
        machine.threads[number].timed_out = machine.threads[number].deadline >= 0
    elif fault is Fault.COLLECT and number < len(machine.threads):
        machine.threads[number].signals.append(lambda frame: machine.garbage.clear())


def _interrupt_handler(process: Process) -> Callable[[Any], None]:
    def handler(frame: Any) -> None:
        process.on_interrupt()
        raise KeyboardInterrupt

    return handler


def possible_faults(machine: Machine) -> list[Move]:
    """The faults that are possible at this step and make a difference."""
    found = [Move(machine.step, Fault.KILL, each.number) for each in machine.processes if not each.ended]
    if not machine.processes[0].ended:
        found.append(Move(machine.step, Fault.INTERRUPT))
        if machine.running.in_user_code:
            found.append(Move(machine.step, Fault.EXIT if machine.running.number == 0 else Fault.RAISE))
    waits = [each for each in machine.threads if each.alive and each.deadline >= 0 and not each.can_run()]
    found += [Move(machine.step, Fault.TIMEOUT, thread.number) for thread in waits]
    if machine.garbage:  # any thread of the program may happen to make the objects that start a collection
        able = [each for each in machine.processes[0].threads if each.can_run()]
        found += [Move(machine.step, Fault.COLLECT, thread.number) for thread in able]
    return found


def _raise(frame: Any) -> None:
    raise OSError("a simulated error in the user's code")


def _exit(frame: Any) -> None:
    raise SystemExit(3)
