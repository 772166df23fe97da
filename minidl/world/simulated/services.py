"""The world's services on a simulated machine; minidl.world.World says what each guarantees.

An object that processes share (an end of a pipe, a flag) is pickled as a number, and stands for the same thing in each
of them. The process that unpickles it has it open from then on.
"""

from __future__ import annotations

import copyreg
import math
import pickle
import queue
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from minidl.world.real import RealWorld
from minidl.world.simulated import machine as machines
from minidl.world.simulated.chance import Chance
from minidl.world.simulated.copying import duplicate
from minidl.world.simulated.cores import SECOND
from minidl.world.simulated.faults import KILLED, TERMINATED
from minidl.world.simulated.machine import Machine
from minidl.world.simulated.pipes import Closable, SimulatedMemory, SimulatedReader, SimulatedWriter
from minidl.world.simulated.processes import Flag, Pipe, Process, Senders, Thread


class SimulatedFlag(Closable):
    """In the real world it is a pipe, and set when that is readable; so it is also set when no process can write to it
    any more. A forked process can; a spawned one has only the reading end."""

    def __init__(self, machine: Machine, flag: Flag) -> None:
        self._machine, self._flag = machine, flag
        self._known = False  # to be set, as it was set here

    def set(self) -> None:
        self._machine.until()
        if not self._known:
            self.check()
        self._flag.is_set = self._known = True

    def is_set(self) -> bool:
        self._machine.until()
        if not self._known:
            self.check()
        self._machine.running.saw(self.is_ready())
        return self.is_ready()

    def close(self) -> None:
        self._closed = True
        if not self._inherited() and self._machine.running.process is self._flag.maker:
            self._flag.is_set = True

    def is_ready(self) -> bool:
        return self._flag.is_set or (self._flag.maker.ended and not self._inherited())

    def _inherited(self) -> bool:
        return self._machine.options.start_method == "fork"

    def __reduce__(self) -> tuple[Any, ...]:
        return _flag, (self._machine.shared.index(self._flag),)


def _flag(number: int) -> SimulatedFlag:
    machine = machines.current_machine()
    return SimulatedFlag(machine, machine.shared[number])  # type: ignore[arg-type]


class SimulatedEnding(Closable):
    """Ready once a process has ended."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def is_ready(self) -> bool:
        return self._process.ended


class SimulatedWaiter:
    """Waits for several things at once."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._things: dict[int, tuple[Any, Any]] = {}
        self._closed = False

    def add(self, thing: Any, label: Any) -> None:
        thing.check()
        if id(thing) in self._things:
            raise KeyError("it was added before")
        self._things[id(thing)] = thing, label

    def remove(self, thing: Any) -> None:
        del self._things[id(thing)]

    def wait(self, timeout: float | None) -> list[Any]:
        if self._closed:
            raise ValueError("I/O operation on closed epoll object")
        self._machine.until(self._any_ready, timeout)
        ready = [thing.is_ready() for thing, _ in self._things.values()]
        self._machine.running.saw(tuple(ready))
        return [label for (_, label), is_ready in zip(self._things.values(), ready, strict=True) if is_ready]

    def _any_ready(self) -> bool:
        ready = False  # (called often, and `any` of a generator takes twice as long)
        for thing, _ in self._things.values():
            ready = ready or thing.is_ready()
        return ready

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
            if self._machine.options.preempts and not isinstance(item, weakref.ref):
                self._machine.until()

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if block and timeout is not None and timeout < 0:
            raise ValueError("'timeout' must be a non-negative number")
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


class SimulatedThread:
    """A thread, not yet started or started."""

    def __init__(self, machine: Machine, run: Callable[[], None], name: str) -> None:
        self._machine, self._name = machine, name
        self._run: Callable[[], None] | None = run
        self.thread: Thread | None = None

    def start(self) -> None:
        if self._run is None:
            raise RuntimeError("threads can only be started once")
        run, self._run = self._run, None  # only the thread's stack has it now: no reference cycle
        self.thread = self._machine.new_thread(self._machine.running.process, self._name, run)
        self._machine.until()

    def __repr__(self) -> str:
        return f"<Thread({self._name})>"

    def is_alive(self) -> bool:
        return self.thread is not None and self.thread.alive

    def join(self, timeout: float | None = None) -> None:
        if self.thread is None:
            raise RuntimeError("cannot join thread before it is started")
        self._machine.until(lambda: not self.is_alive(), timeout)


class SimulatedProcess:
    """A child process, not yet started or started."""

    def __init__(self, world: SimulatedWorld, target: Callable[..., None], args: Sequence[Any], name: str) -> None:
        self._world, self._target, self._args, self._name = world, target, args, name
        self.process: Process | None = None

    @property
    def pid(self) -> int | None:
        return None if self.process is None else self.process.pid

    @property
    def exitcode(self) -> int | None:
        return None if self.process is None else self.process.exitcode

    def start(self) -> None:
        machine = self._world.machine
        spawned = machine.options.start_method != "fork"
        assert self.process is None, "cannot start a process twice"
        machine.until()
        if not spawned:
            for thing in list(machine.running.process.before_fork):
                thing.before_fork()
        target, args = duplicate((self._target, self._args), by_pickle_only=spawned)
        # A fork inherits whatever its parent has open, a spawned process only what it is given.
        inherits = machine.luggage.ends if spawned else machine.running.process.ends
        self.process = machine.new_process(self._name, lambda: target(*args), list(inherits))
        if not spawned:
            self.process.inherit(machine.running.process)
        if spawned and machine.options.draws:  # seeded anew, not copied from its parent
            self.process.chance = Chance.spawned(self.process.number)
        for end in machine.luggage.unpacked:
            end.process = self.process

    def is_alive(self) -> bool:
        self._world.machine.until()
        self._world.machine.running.saw(self.process is not None and self.process.ended)
        return self.process is not None and not self.process.ended

    def join(self, timeout: float | None = None) -> None:
        process = self.process
        assert process is not None, "can only join a started process"
        self._world.machine.until(lambda: process.ended, timeout)
        self._world.machine.running.saw(process.exitcode)

    def terminate(self) -> None:
        # After report_crashes, torch's handler exits without an error if SIGTERM comes from the parent.
        self._end(0 if self.process is not None and self.process.exits_quietly else -TERMINATED)

    def kill(self) -> None:
        self._end(-KILLED)

    def _end(self, exitcode: int) -> None:
        assert self.process is not None, "it was not started"
        self._world.machine.until()
        self.process.forced = True
        self._world.machine.send_end(self.process, exitcode)


class SimulatedWorld:
    """See `minidl.world.World`. All processes of a machine share one: the caller is the machine's running process."""

    inline = 0
    lent = 1

    signal_name = RealWorld.signal_name
    signal_id = RealWorld.signal_id

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def __reduce__(self) -> tuple[Any, ...]:
        return _world, ()

    def pid(self) -> int:
        # Once the machine is off no process owns the iterators that are left, so none shuts them down.
        return -1 if self.machine.off else self.machine.running.process.pid

    def now(self) -> float:
        return self.machine.clock / SECOND

    def pipe(self) -> tuple[SimulatedReader, SimulatedWriter]:
        machine = self.machine
        pipe = Pipe(machine.options.capacity)
        machine.shared.append(pipe)
        for side in ("readers", "writers"):
            machine.running.process.open(pipe, side)
        process = machine.running.process
        return SimulatedReader(machine, pipe, process), SimulatedWriter(machine, pipe, process)

    def memory(self, nbytes: int) -> SimulatedMemory:
        return SimulatedMemory(self.machine, nbytes)

    def can_send_memory(self) -> bool:
        return True

    def flag(self) -> SimulatedFlag:
        flag = Flag(self.machine.running.process)
        self.machine.shared.append(flag)
        return SimulatedFlag(self.machine, flag)

    def waiter(self) -> SimulatedWaiter:
        return SimulatedWaiter(self.machine)

    def mailbox(self) -> SimulatedMailbox:
        return SimulatedMailbox(self.machine)

    def thread(self, target: Callable[..., None], args: Sequence[Any], name: str) -> SimulatedThread:
        return SimulatedThread(self.machine, lambda: target(*args), name)

    def is_current(self, thread: SimulatedThread) -> bool:
        return thread.thread is self.machine.running

    def thread_id(self) -> tuple[int, int]:
        return self.pid(), self.machine.running.number

    def name_thread(self, name: str) -> None:
        pass

    def process(self, target: Callable[..., None], args: Sequence[Any], name: str) -> SimulatedProcess:
        return SimulatedProcess(self, target, args, name)

    def end_of(self, process: SimulatedProcess) -> SimulatedEnding:
        assert process.process is not None, "it was not started"
        return SimulatedEnding(process.process)

    def parent(self) -> SimulatedEnding:
        process = self.machine.running.process
        process.watches_parent = True
        if process.parent.ended:
            self.machine.alarms.append((self.machine.clock + machines.GRACE, process))
        return SimulatedEnding(process.parent)

    def on_child_exit(self, look: Callable[[Any], None]) -> bool:
        thread = self.machine.running
        if thread is not thread.process.threads[0]:
            return False
        if look not in thread.process.on_child_exit:
            thread.process.on_child_exit.insert(0, look)
        return True

    def raised_by_handler(self, error: BaseException) -> bool:
        return False  # those that there are raise no Exception

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

    def pickle(self, message: Any) -> memoryview:
        return memoryview(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))

    def reducers(self) -> Any:
        return copyreg.dispatch_table

    def remove_shared_memory_of(self, pid: int) -> None:
        """Tensors travel by value here; but it is noted."""
        (process,) = [each for each in self.machine.processes if each.pid == pid]
        assert process.ended, f"{process.name} may still make shared memory"
        process.swept = True

    def environment(self) -> Mapping[str, str]:
        return self.machine.options.environment or {}

    def cpu_count(self) -> int:
        return math.ceil(self.machine.options.cpus)

    def page_locked(self, nbytes: int) -> bytearray:
        return bytearray(nbytes)


def _world() -> Any:
    return machines.current_machine().world
