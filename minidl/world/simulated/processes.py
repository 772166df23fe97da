"""What the simulated system knows of processes, their threads, and the pipes between them."""

from __future__ import annotations

import itertools
import sys
import weakref
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import greenlet
import torch.utils.data

from minidl import events, shutdown, signals
from minidl.transport import filling
from minidl.world.simulated.chance import Chance

if TYPE_CHECKING:
    from minidl.world.simulated.machine import Machine

torchs_collate = torch.utils.data._utils.collate
FIRST_PID = 5_000_001  # above any real one: Linux ends at 4,194,304
NO_LIMIT = -1


class WeakSet(weakref.WeakKeyDictionary[Any, None]):
    """A weakref.WeakSet whose order is that in which things were added: it does not depend on their addresses."""

    def add(self, thing: Any) -> None:
        self[thing] = None


# What every process has for itself: (owner, name, what makes it for a new process).
OWN: list[tuple[Any, str, Callable[[], Any]]] = [
    (events, "_recorder", lambda: None),
    (events, "_loaders", lambda: itertools.count(1)),
    (torch.utils.data._utils.worker, "_worker_info", lambda: None),
    (torchs_collate, "default_collate_fn_map", torchs_collate.default_collate_fn_map.copy),
    (signals, "_watched", weakref.WeakValueDictionary),
    (shutdown, "_at_exit", WeakSet),
    (filling, "_current", lambda: None),
]
PLACES = {name: place for place, (_, name, _) in enumerate(OWN)}


class Pipe:
    """The bytes in a pipe, and how many processes have each of its ends open."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.data = bytearray()
        self.readers = self.writers = 0
        self.taken = 0  # bytes that were read
        self.memories: deque[tuple[int, Any]] = deque()  # (which byte it goes with, counted from the first; memory)

    def state(self) -> tuple[int, int, int]:
        return len(self.data), self.readers, self.writers

    def readable(self) -> bool:
        return bool(self.data) or self.writers == 0  # at the end of the stream a read returns b""

    def writable(self) -> bool:
        return len(self.data) < self.capacity or self.readers == 0  # ... and a write fails


End = tuple[Pipe, str]  # an open end of a pipe: "readers" or "writers"


class Luggage:
    """What is copied into a process that is being started."""

    def __init__(self) -> None:
        self.ends: list[End] = []  # ends of pipes that were pickled ...
        self.unpacked: list[Any] = []  # ... and what was unpickled from them
        self.functions: list[Any] = []


class Senders(deque[int]):
    """Which thread put each of the items of a mailbox: with its history, that says what the item is."""

    def state(self) -> tuple[int, ...]:
        return tuple(self)


Shared = Pipe | Senders
Memories = weakref.WeakValueDictionary[int, Any]  # by number; a memory is gone with the last that lies in it


def contents(memories: Memories) -> tuple[Any, ...]:
    """What these memories hold, and how many objects refer to each. (Asked at every step, so it must be quick.)"""
    there = [ref() for ref in memories.valuerefs()] if memories else ()
    return tuple([(sys.getrefcount(memory), memory.tobytes()) for memory in there if memory is not None])


class Process:
    """A simulated process, started or not: what the system knows of it."""

    def __init__(self, machine: Machine, run: Any, name: str) -> None:
        self.machine, self.run, self.name = machine, run, name
        self.number = -1  # until it is started
        self.pid: Any = None
        self.parent: Process | None = None
        self.threads: list[Thread] = []
        self.ends: dict[End, None] = {}  # the open ones, in the order in which they were opened
        self.code: int | None = None  # its exit code
        self.ended_at = -1  # ns
        self.own = [make() for _, _, make in OWN]
        self.chance: Chance | None = None  # its random numbers while another process runs
        self.at_exit: list[Callable[[], None]] = []
        self.before_fork = WeakSet()
        self.mapped: Memories = weakref.WeakValueDictionary()  # that it shares with others
        self.watches_parent = False
        self.exits_quietly = False  # with 0, when it is terminated
        self.forced = self.swept = False  # was sent a signal; and its parent removed what shared memory it had made
        self.on_child_exit: list[Callable[[Any], None]] = []  # the handlers of SIGCHLD, in the order of their calls
        self.on_interrupt: Callable[[], None] = lambda: None

    def begin(self, inherits: list[End]) -> None:
        """From now on it can run, with these ends of pipes open."""
        processes, running = self.machine.processes, self.machine.running
        self.number, self.pid = len(processes), FIRST_PID + len(processes)
        processes.append(self)
        if running is None:
            self.own[PLACES["_recorder"]] = self.machine.record
        else:
            self.parent = running.process
            self.chance = Chance.now().forked(self.number) if self.machine.options.draws else None
        for end in inherits:
            self.open(*end)
        Thread(self, lambda: self.machine.life_of(self), "MainThread").begin()

    @property
    def ended(self) -> bool:
        return self.code is not None

    def is_ready(self) -> bool:
        """As something that a waiter waits for."""
        return self.ended

    def open(self, pipe: Pipe, side: str) -> None:
        if (pipe, side) not in self.ends:
            self.ends[pipe, side] = None
            setattr(pipe, side, getattr(pipe, side) + 1)

    def close(self, pipe: Pipe, side: str) -> None:
        if (pipe, side) in self.ends:
            del self.ends[pipe, side]
            setattr(pipe, side, getattr(pipe, side) - 1)

    def inherit(self, parent: Process) -> None:
        """By a fork, from the running process: memory, the events' recorder, and the handler of SIGCHLD with what it
        looks after."""
        self.mapped.update(parent.mapped)
        self.on_child_exit = parent.on_child_exit.copy()
        self.own[PLACES["_watched"]].update(signals._watched)
        self.own[PLACES["_recorder"]] = events.installed()


class Thread:
    """A simulated thread, started or not."""

    def __init__(self, process: Process, run: Any, name: str) -> None:
        self.process, self.run, self.name = process, run, name
        self.machine = process.machine
        self.number = -1  # until it is started
        self.greenlet: Any = None
        self.alive = False
        self.ready: Callable[[], Any] | None = None
        self.deadline = NO_LIMIT  # ns; when it stops waiting
        self.timed_out = False
        self.signals: deque[Callable[[Any], None]] = deque()  # handlers that it must call next
        self.history = 0  # a hash of all its calls to the world and what they returned
        self.in_user_code = False  # in the dataset, the training step, ...
        self.cpu = 0  # ns
        self.error: BaseException | None = None  # what ended it

    def begin(self) -> None:
        """From now on it can run."""
        run, self.run = self.run, None  # only its stack has it: no reference cycle
        self.number, self.alive = len(self.machine.threads), True
        self.greenlet = greenlet.greenlet(lambda: self._live(run), self.machine.hub)
        self.process.threads.append(self)
        self.machine.threads.append(self)

    def _live(self, run: Callable[[], None]) -> None:
        try:
            run()
        except greenlet.GreenletExit:
            raise
        except SystemExit:  # ends a thread without a word
            pass
        except BaseException as error:  # Python would print it; the process continues
            self.error = error
        self.alive = False

    def saw(self, value: Any) -> None:
        """Add to its history what a call to the world returned."""
        self.history = hash((self.history, value))

    def can_run(self) -> bool:
        return self.alive and bool(self.ready is None or self.signals or self.timed_out or self.ready())
