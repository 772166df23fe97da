"""The world's services on a simulated machine; minidl.world.World says what each guarantees.

An object that processes share (an end of a pipe, a flag) is pickled as a number, and stands for the same thing in each
of them. The process that unpickles it has it open from then on.
"""

from __future__ import annotations

import copyreg
import queue
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from minidl.world.real import RealWorld
from minidl.world.simulated import machine as machines
from minidl.world.simulated.chance import Chance
from minidl.world.simulated.copying import duplicate
from minidl.world.simulated.cores import SECOND
from minidl.world.simulated.faults import KILLED, TERMINATED
from minidl.world.simulated.machine import Machine
from minidl.world.simulated.pipes import SimulatedMemory, SimulatedReader, SimulatedWriter
from minidl.world.simulated.processes import Pipe, Process, Senders, Thread


class SimulatedFlag(SimulatedReader):
    """As in the real world: the reading end of a pipe, set when that is readable. So it is also set when no process can
    write to it any more. A forked process can; a spawned one has only the reading end."""

    def set(self) -> None:
        self._machine.until()
        if not self._pipe.data:
            self.check()
        self._pipe.data[:] = b"1"

    def is_set(self) -> bool:
        self._machine.until()
        if not self._pipe.data:
            self.check()
        self._machine.running.saw(self.is_ready())
        return self.is_ready()

    def close(self) -> None:
        self._closed = True
        self.__del__()

    def __del__(self) -> None:
        """In the process that made it, it has the writing end, too."""
        super().__del__()
        if self.process is not None and not self._machine.off:
            self.process.close(self._pipe, "writers")


class SimulatedWaiter:
    """Waits for several things at once."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._things: dict[int, tuple[Any, Any]] = {}
        self._closed = False

    def add(self, thing: Any, label: Any) -> None:
        if not isinstance(thing, Process):
            thing.check()
        self._things[id(thing)] = thing, label

    def remove(self, thing: Any) -> None:
        del self._things[id(thing)]

    def wait(self, timeout: float | None) -> list[Any]:
        if self._closed:
            raise ValueError("I/O operation on closed epoll object")
        self._machine.until(lambda: any(self._ready()), timeout)
        ready = self._ready()
        self._machine.running.saw(tuple(ready))
        return [label for (_, label), is_ready in zip(self._things.values(), ready, strict=True) if is_ready]

    def _ready(self) -> list[bool]:
        return [thing.is_ready() for thing, _ in self._things.values()]

    def close(self) -> None:
        self._things.clear()
        self._closed = True


class SimulatedMailbox:
    """Between threads of one process."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._items: deque[Any] = deque()
        self._senders = Senders()
        machine.shared.append(self._senders)

    def put(self, item: Any) -> None:
        if not isinstance(item, weakref.ref):  # one is put when its object goes, in the middle of any step
            self._machine.until()
        if not self._machine.off:
            self._items.append(item)
            self._senders.append(self._machine.running.number)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        self._machine.until(self._items.__len__, timeout if block else 0.0)
        self._machine.running.saw(tuple(self._senders))
        if not self._items:
            raise queue.Empty
        self._senders.popleft()
        return self._items.popleft()

    def qsize(self) -> int:
        if not self._machine.off:
            self._machine.running.saw(len(self._items))
        return len(self._items)


class SimulatedThread(Thread):
    """What the loader may ask of a thread."""

    def start(self) -> None:
        self.begin()
        self.machine.until()

    def is_alive(self) -> bool:
        return self.alive

    def join(self, timeout: float | None = None) -> None:
        if self.number < 0:
            raise RuntimeError("cannot join thread before it is started")
        self.machine.until(lambda: not self.alive, timeout)


class SimulatedProcess(Process):
    """What the loader may ask of a child process."""

    @property
    def exitcode(self) -> int | None:
        return self.code

    def start(self) -> None:
        assert self.number < 0, "cannot start a process twice"
        machine, parent = self.machine, self.machine.running.process
        spawned = machine.options.start_method != "fork"
        machine.until()
        if not spawned:
            for thing in list(parent.before_fork):
                thing.before_fork()
        target, args = duplicate(self.run, by_pickle_only=spawned)
        self.run = lambda: target(*args)
        # A forked process has what its parent has open, a spawned process only what it is given.
        self.begin(list(machine.luggage.ends if spawned else parent.ends))
        if not spawned:
            self.inherit(parent)
        elif machine.options.draws:  # freshly seeded, not copied from its parent
            self.chance = Chance.spawned(self.number)
        for end in machine.luggage.unpacked:
            end.process = self

    def is_alive(self) -> bool:
        self.machine.until()
        self.machine.running.saw(self.ended)
        return self.number >= 0 and not self.ended

    def join(self, timeout: float | None = None) -> None:
        assert self.number >= 0, "can only join a started process"
        self.machine.until(lambda: self.ended, timeout)
        self.machine.running.saw(self.code)

    def terminate(self) -> None:
        # After report_crashes, torch's handler exits without an error if SIGTERM comes from the parent.
        self._end(0 if self.exits_quietly else -TERMINATED)

    def kill(self) -> None:
        self._end(-KILLED)

    def _end(self, exitcode: int) -> None:
        assert self.number >= 0, "it was not started"
        self.machine.until()
        self.forced = True
        self.machine.send_end(self, exitcode)


class SimulatedWorld:
    """See `minidl.world.World`. All processes of a machine share one: the caller is the machine's running process."""

    lent = 1

    signal = RealWorld.signal
    reducers = copyreg.dispatch_table

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.environment = machine.options.environment or {}

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (self.machine, "world")

    def pid(self) -> int:
        # Once the machine is off no process owns the iterators that are left, so none shuts them down.
        return -1 if self.machine.off else self.machine.running.process.pid

    def now(self) -> float:
        return self.machine.clock / SECOND

    def pipe(self) -> tuple[SimulatedReader, SimulatedWriter]:
        pipe = self._new_pipe()
        return SimulatedReader(*pipe), SimulatedWriter(*pipe)

    def _new_pipe(self) -> tuple[Machine, Pipe, Process]:
        """What both ends of a pipe are made of."""
        pipe, process = Pipe(self.machine.options.capacity), self.machine.running.process
        self.machine.shared.append(pipe)
        process.open(pipe, "readers")
        process.open(pipe, "writers")
        return self.machine, pipe, process

    def memory(self, nbytes: int) -> SimulatedMemory:
        return SimulatedMemory(self.machine, nbytes)

    def can_send_memory(self) -> bool:
        return True

    def flag(self) -> SimulatedFlag:
        return SimulatedFlag(*self._new_pipe())

    def waiter(self) -> SimulatedWaiter:
        return SimulatedWaiter(self.machine)

    def mailbox(self) -> SimulatedMailbox:
        return SimulatedMailbox(self.machine)

    def thread(self, target: Callable[..., None], args: Sequence[Any], name: str) -> SimulatedThread:
        return SimulatedThread(self.machine.running.process, lambda: target(*args), name)

    def current_thread(self) -> SimulatedThread:
        return self.machine.running

    def name_thread(self, name: str) -> None:
        pass

    def process(self, target: Callable[..., None], args: Sequence[Any], name: str) -> SimulatedProcess:
        return SimulatedProcess(self.machine, (target, args), name)

    def end_of(self, process: SimulatedProcess) -> Process:
        return process

    def parent(self) -> Process:
        process = self.machine.running.process
        process.watches_parent = True
        if process.parent.ended:
            self.machine.alarms.append((self.machine.clock + machines.GRACE, process))
        return process.parent

    def on_child_exit(self, look: Callable[[Any], None]) -> bool:
        thread = self.machine.running
        if thread is not thread.process.threads[0]:
            return False
        if look not in thread.process.on_child_exit:
            thread.process.on_child_exit.insert(0, look)
        return True

    def on_exit(self, call: Callable[[], None]) -> None:
        at_exit = self.machine.running.process.at_exit
        if call not in at_exit:
            at_exit.append(call)

    def before_fork(self, thing: Any) -> None:
        self.machine.running.process.before_fork.add(thing)

    def on_interrupt(self, note: Callable[[], None]) -> None:
        self.machine.running.process.on_interrupt = note

    def report_crashes(self) -> None:
        self.machine.running.process.exits_quietly = True

    def remove_shared_memory_of(self, pid: int) -> None:
        """Tensors travel by value here; but it is noted."""
        (process,) = [each for each in self.machine.processes if each.pid == pid]
        assert process.ended, f"{process.name} may still make shared memory"
        process.swept = True

    def page_locked(self, nbytes: int) -> bytearray:
        return bytearray(nbytes)
