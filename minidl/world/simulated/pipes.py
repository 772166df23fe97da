"""The pipes of a simulated machine, and the memory that can travel through them.

An object that processes share is pickled as a number, and stands for the same thing in each of them. The process that
unpickles it has it open from then on.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from minidl.world.simulated import machine as machines
from minidl.world.simulated.machine import Machine
from minidl.world.simulated.processes import Pipe, Process

READ_SIZE = 1 << 16
RUBBISH = 0xA5  # what memory is filled with before and after its use


class PipeEnd:
    """An end of a pipe, in one process."""

    side: str
    _closed = False

    def __init__(self, machine: Machine, pipe: Pipe, process: Process | None) -> None:
        self._machine, self._pipe = machine, pipe
        self.process = process  # that has it open; None on its way to a process that is being started

    def check(self) -> None:
        """OSError: it is closed."""
        if self._closed:
            raise OSError("handle is closed")

    def close(self) -> None:
        self._machine.until()
        self._closed = True
        self.__del__()

    def __del__(self) -> None:
        """An end that nothing refers to any more is closed, as a Connection is."""
        if self.process is not None and not self._machine.off:
            self.process.close(self._pipe, self.side)

    def __reduce__(self) -> tuple[Any, ...]:
        if self._machine.options.start_method != "fork":
            self.check()
        ends = self._machine.luggage.ends
        ends.append((self._pipe, self.side))
        return receive, (type(self), len(ends) - 1, self._closed)


class SimulatedReader(PipeEnd):
    side = "readers"

    def __init__(self, machine: Machine, pipe: Pipe, process: Process | None) -> None:
        super().__init__(machine, pipe, process)
        self.is_ready = pipe.readable  # called at every step while a thread waits for it
        self._memories: deque[SimulatedMemory] = deque()  # that came with what was read

    def read(self) -> bytes:
        pipe = self._pipe
        self.check()
        self._machine.until(pipe.readable)
        data = bytes(pipe.data[:READ_SIZE])
        del pipe.data[:READ_SIZE]
        pipe.taken += len(data)
        while pipe.memories and pipe.memories[0][0] < pipe.taken:
            self._memories.append(pipe.memories.popleft()[1])
        self._machine.running.saw(data)
        return data

    def memory(self) -> SimulatedMemory:
        memory = self._memories.popleft()
        self._machine.running.process.mapped[memory.number] = memory.bytes
        return memory


class SimulatedWriter(PipeEnd):
    side = "writers"

    def write(self, data: Any, memory: SimulatedMemory | None = None) -> int:
        """Write as much as there is room for. The rest takes another step, before which the writer may be killed."""
        pipe = self._pipe
        self.check()
        self._machine.until(pipe.writable)
        if pipe.readers == 0:
            raise BrokenPipeError("no reading end is left")
        if memory is not None:
            pipe.memories.append((pipe.taken + len(pipe.data), memory))
        written = min(len(data), pipe.capacity - len(pipe.data))
        pipe.data += data[:written]
        self._machine.running.saw(written)
        return written

    def try_write(self, data: bytes, memory: SimulatedMemory | None = None) -> int:
        has_room = self._pipe.writable()
        self._machine.running.saw(has_room)
        return self.write(data, memory) if has_room else 0


def receive(kind: type[PipeEnd], number: int, closed: bool) -> PipeEnd:
    """Unpickle an end of a pipe, for the process that is being started."""
    machine = machines.current_machine()
    end = kind(machine, machine.luggage.ends[number][0], None)
    end._closed = closed
    machine.luggage.unpacked.append(end)
    return end


class SimulatedMemory:
    """Memory that processes share: here they are one process, so it is the same array for all."""

    def __init__(self, machine: Machine, nbytes: int) -> None:
        self.number = next(machine.memory_numbers)
        self.bytes = np.full(nbytes, RUBBISH, dtype=np.uint8)
        machine.memories[self.number] = machine.running.process.mapped[self.number] = self.bytes

    def forget(self) -> None:
        """A batch that still lies in it is wrong from now on."""
        self.give_back(0, self.bytes.nbytes)

    def give_back(self, begin: int, end: int) -> None:
        self.bytes[begin:end] = RUBBISH
