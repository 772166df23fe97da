"""What the simulated system knows of processes, their threads, and the pipes between them."""

from __future__ import annotations

import itertools
import sys
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import greenlet
import torch.utils.data

from minidl import events, shutdown, signals
from minidl.transport import filling
from minidl.world.simulated.chance import Chance

torchs_collate = torch.utils.data._utils.collate
FIRST_PID = 5_000_001  # above any real one: Linux ends at 4,194,304
NO_DEADLINE = -1


class WeakSet(weakref.WeakKeyDictionary[Any, None]):
    """A weakref.WeakSet whose order is that in which things were added: it does not depend on their addresses."""

    def add(self, thing: Any) -> None:
        self[thing] = None

    def discard(self, thing: Any) -> None:
        self.pop(thing, None)


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

    def readable(self) -> bool:
        return bool(self.data) or self.writers == 0  # at the end of the stream a read returns b""

    def writable(self) -> bool:
        return len(self.data) < self.capacity or self.readers == 0  # ... and a write fails


End = tuple[Pipe, str]  # an open end of a pipe: "readers" or "writers"


class Memories:
    """Memory by number, gone with the last that lies in it. (A WeakValueDictionary would do, but is looked at in every
    step: its iteration took a tenth of the time.)"""

    def __init__(self) -> None:
        self.refs: dict[int, weakref.ref[Any]] = {}

    def __setitem__(self, number: int, memory: Any) -> None:
        self.refs[number] = weakref.ref(memory)

    def __getitem__(self, number: int) -> Any:
        return dict(self.items())[number]

    def __len__(self) -> int:
        return len(self.items())

    def items(self) -> list[tuple[int, Any]]:
        return [(number, memory) for number, ref in self.refs.items() if (memory := ref()) is not None]

    def contents(self) -> tuple[Any, ...]:
        """What these memories hold, and how many objects refer to each."""
        if not self.refs:
            return ()
        return tuple([(sys.getrefcount(memory), memory.tobytes()) for _, memory in self.items()])


class Process:
    """A simulated process: what the system knows of it."""

    def __init__(self, number: int, parent: Process | None, name: str) -> None:
        self.number, self.parent, self.name = number, parent, name
        self.pid = FIRST_PID + number
        self.threads: list[Thread] = []
        self.ends: dict[End, None] = {}  # the open ones, in the order in which they were opened
        self.exitcode: int | None = None
        self.ended_at = -1  # ns
        self.own = [make() for _, _, make in OWN]
        if parent is None:
            self.own[PLACES["_recorder"]] = events.installed()
        self.chance: Chance | None = None  # its random numbers while another process runs
        self.at_exit: list[Callable[[], None]] = []
        self.before_fork = WeakSet()
        self.mapped = Memories()  # that it shares with others
        self.watches_parent = False
        self.forced = self.swept = False  # was sent a signal; and its parent removed what shared memory it had made
        self.on_child_exit: Callable[[Any], None] | None = None
        self.on_interrupt: Callable[[], None] | None = None

    @property
    def ended(self) -> bool:
        return self.exitcode is not None

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
        self.mapped.refs.update(parent.mapped.refs)
        self.on_child_exit = parent.on_child_exit
        self.own[PLACES["_watched"]].update(signals._watched)
        self.own[PLACES["_recorder"]] = events.installed()

    def map(self, number: int, memory: Any) -> None:
        self.mapped[number] = memory


class Thread:
    """A simulated thread."""

    def __init__(self, number: int, process: Process, name: str, run: Callable[[], None], hub: Any) -> None:
        self.number, self.process, self.name = number, process, name
        self.greenlet: Any = greenlet.greenlet(run, hub)
        self.alive = True
        self.ready: Callable[[], Any] | None = None
        self.deadline = NO_DEADLINE  # ns; when it stops waiting
        self.timed_out = False
        self.signals: deque[Callable[[Any], None]] = deque()  # handlers that it must call next
        self.history = 0  # a hash of all its calls to the world and what they returned
        self.in_user_code = False  # in the dataset, the training step, ...
        self.cpu = 0  # ns
        self.error: BaseException | None = None  # what ended it

    def saw(self, value: Any) -> None:
        """Add to its history what a call to the world returned."""
        self.history = hash((self.history, value))

    def can_run(self) -> bool:
        return self.alive and bool(self.ready is None or self.signals or self.timed_out or self.ready())
