"""What a program worth exploring is, and the lines of defence that can be taken away from the loader while it runs."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

import tracing
from minidl import parallel, shutdown
from minidl.events import STOP, Kind
from minidl.laws import LAWS
from minidl.messages import Task
from minidl.world.real import RealWorld
from minidl.world.simulated import Outcome, pipes, processes, services, simulate
from minidl.world.simulated import machine as machines
from minidl.world.simulated.cores import never
from minidl.world.simulated.explore import what_must_hold
from minidl.world.simulated.faults import Fault
from minidl.world.simulated.schedule import Schedule
from minidl.world.simulated.simulation import sleep
from tests.minidl.simulated.programs import TORCHS_WAY


@dataclass(frozen=True)
class Worth:
    """A program, how to run it, and what of it is usual."""

    program: Callable[[], Any]
    slow: bool = False  # somebody is slow or stuck: a wait may time out, and force may be needed
    timed: bool = False  # what it returns depends on when: only by the default schedule
    lacks: tuple[str, ...] = ()  # lines of defence that are taken away: see LINES
    traced: bool = True  # whether the laws hold (Ctrl-C may come between an event and what it announces)
    options: dict[str, Any] = field(default_factory=dict)  # of `simulate`

    def but(self, **changes: Any) -> Worth:
        """The same with these fields."""
        return dataclasses.replace(self, **changes)

    def without(self, *lines: str) -> Worth:
        return self.but(lacks=lines)

    def untraced(self) -> Worth:
        return self.but(traced=False)

    def spawned(self) -> Worth:
        return self.but(options={"start_method": "spawn"})

    def torchs_way(self, **options: Any) -> Worth:
        return self.but(options={"environment": TORCHS_WAY, **options})

    @contextlib.contextmanager
    def changed_world(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for name in self.lacks:
                stack.enter_context(LINES[name]())
            yield

    def run(self, schedule: str | Schedule, most_steps: int = 20_000) -> Outcome:
        with self.changed_world():
            return simulate(self.program, schedule=schedule, most_steps=most_steps, **self.options)

    def broken(self, outcome: Outcome, expected: Outcome, checks: bool = True) -> list[str]:
        """What does not hold, compared with a run of the loader as it is. With `checks` also the trace's invariants,
        which takes three times as long."""
        found = what_must_hold(outcome, expected, self.slow, LAWS if self.traced else ())
        faults = any(move.what is not Fault.RUN for move in outcome.schedule.moves)
        if not (found or faults or self.slow) and told(outcome) != told(expected):
            found = [f"main reports {told(outcome)} instead of {told(expected)}"]
        found = found or strange(outcome)
        if found or not checks or not self.traced:
            return found
        with self.changed_world():
            return [str(each) for each in tracing.check(tracing.load(outcome))]


ERRORS = {Kind.ERROR_RAISED, Kind.FETCH_FAILED}
ALWAYS = {Kind.LOADER, Kind.EPOCH_BEGIN, Kind.ASKED, Kind.YIELDED, Kind.EPOCH_END, *ERRORS}
FAILED = {Kind.FETCH_FAILED, Kind.STREAM_END}


def told(outcome: Outcome) -> Any:
    """What main reports of its epochs: the same on every schedule."""
    of_main = (each for each in outcome.events if not each.thread and each.kind in ALWAYS)
    return [(each.kind, each.epoch_id, each.value, each.kind in ERRORS and each.text) for each in of_main]


def strange(outcome: Outcome) -> list[str]:
    """Epochs that no loader has begun, and what failed and was pinned nevertheless."""
    failed = {each[3:5] for each in outcome.events if each.kind in FAILED}
    pinned = {each[3:5] for each in outcome.events if each.kind == Kind.PIN_BEGIN}
    named = {0, *(each.epoch_id for each in outcome.events if each.kind in (Kind.LOADER, Kind.EPOCH_BEGIN))}
    unknown = {each.epoch_id for each in outcome.events} - named if len(named) > 1 else ()
    return [f"{each} is unknown, or failed and is pinned" for each in (*unknown, *(failed & pinned))]


def usual(program: Callable[..., Any], *arguments: Any, **options: Any) -> Worth:
    """A row of the tables: a program, which is called with these arguments."""
    return Worth(functools.partial(program, *arguments, **options))


def slow(*arguments: Any, **options: Any) -> Worth:
    return usual(*arguments, **options).but(slow=True)


def timed(*arguments: Any, **options: Any) -> Worth:
    return usual(*arguments, **options).but(timed=True)


def once(*arguments: Any, **options: Any) -> Worth:
    return usual(*arguments, **options).but(slow=True, timed=True)


# Lines of defence, and how each is taken away, so that the one before it has to hold.


@contextlib.contextmanager
def changed(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def nothing(*arguments: Any, **options: Any) -> None:
    pass


def unheard(epoch_id: int) -> Task:
    """A Stop that wakes nobody: the worker takes it for a task that it may skip."""
    return Task(epoch_id, STOP, None)


def no_thread(self: Any) -> None:
    raise RuntimeError("can't create new thread at interpreter shutdown")


def no_answer(self: Any, timeout: float | None = None) -> None:
    machines.current_machine().until(never, timeout)


waits = services.SimulatedWaiter.wait


def last_first(self: Any, timeout: float | None) -> list[Any]:
    """What is ready, in another order: the system promises none."""
    return waits(self, timeout)[::-1]


def no_memory(self: Any, nbytes: int) -> Any:
    raise OSError(f"no memory for {nbytes} bytes")


seeding = torch.utils.data._utils.worker
words_of = seeding._generate_state


def late_words(base_seed: int, worker_id: int) -> list[int]:
    """Worker 1 hangs while it seeds."""
    sleep(1e4 * worker_id)
    return words_of(base_seed, worker_id)


pid_of = services.SimulatedWorld.pid


def late_pid(self: Any) -> int:
    """Other threads run before the answer comes."""
    if not self.machine.off:
        sleep(0.03)
    return pid_of(self)


@contextlib.contextmanager
def a_device() -> Iterator[None]:
    """Main has several accelerators. A thread begins with the first of them."""
    chosen: dict[int, int] = {}

    def number() -> int:
        return machines.current_machine().running.number

    has = {
        "is_available": lambda: True,
        "current_accelerator": lambda: torch.device("cuda"),
        "current_device_index": lambda: chosen.get(number(), 0),
        "set_device_index": lambda index: chosen.update({number(): index}),
    }
    with contextlib.ExitStack() as stack:
        for name, value in has.items():
            stack.enter_context(changed(torch.accelerator, name, value))
        yield


@contextlib.contextmanager
def fork_server_hangs() -> Iterator[None]:
    with changed(services.SimulatedProcess, "exitcode", None), changed(services.SimulatedProcess, "join", no_answer):
        yield


LINES: dict[str, Callable[[], Any]] = {
    "SIGCHLD": lambda: changed(services.SimulatedWorld, "on_child_exit", lambda self, look: False),
    "the waits": lambda: changed(processes.Process, "is_ready", lambda self: False),
    "the health check": lambda: changed(parallel, "STATUS_CHECK_INTERVAL", 1e6),
    "force": lambda: changed(services.SimulatedProcess, "_end", nothing),
    "the end of patience": lambda: changed(shutdown, "PATIENCE", 1e6),
    "the end by force after main": lambda: changed(machines, "GRACE", 10**15),
    "Stop": lambda: changed(shutdown, "Stop", unheard),
    "the done event": lambda: changed(services.SimulatedFlag, "is_set", lambda self: False),
    "no device": a_device,
    "a driver": lambda: changed(torch.accelerator, "is_available", lambda: False),
    "no Mac": lambda: changed(torch.accelerator, "current_accelerator", lambda: torch.device("mps")),
    "quick seeds": lambda: changed(seeding, "_generate_state", late_words),
    "a quick pid": lambda: changed(services.SimulatedWorld, "pid", late_pid),
    "SIGTERM": lambda: changed(services.SimulatedProcess, "terminate", nothing),
    "exit codes": lambda: changed(services.SimulatedProcess, "exitcode", None),  # the program has reaped the child
    "a fork server": fork_server_hangs,  # which passes on the exit codes
    "threads": lambda: changed(services.SimulatedThread, "start", no_thread),
    "order": lambda: changed(services.SimulatedWaiter, "wait", last_first),
    "memory": lambda: changed(services.SimulatedWorld, "memory", no_memory),
    "the lending of small ones": lambda: changed(services.SimulatedWorld, "lent", RealWorld.lent),
    "mapping": lambda: changed(pipes.SimulatedReader, "memory", lambda self: None),
    "memory to send": lambda: changed(services.SimulatedWorld, "can_send_memory", lambda self: False),
    "page locking": lambda: changed(services.SimulatedWorld, "page_locked", lambda self, nbytes: None),
}
