"""More programs for both worlds: memory that is sent through a pipe, and news of forks."""

from __future__ import annotations

from typing import Any

from tests.minidl.simulated.both_worlds import LONG, die, ended, error_of, killed, nap, program, started


def sends(world: Any, writer: Any, values: list[int], dies: bool = False) -> None:
    for value in values:
        memory = world.memory(64)
        memory.bytes[:] = value
        writer.write(memoryview(b"x"), memory)
    if dies:
        die()


@program
def memory_comes_with_the_bytes_it_was_written_with(world: Any, reader: Any, writer: Any) -> Any:
    code = ended(world, sends, world, writer, [1])
    data, memory = reader.read(), reader.memory()
    return code, data, memory.bytes.tolist()


@program
def memory_outlives_a_sender_that_is_killed(world: Any, reader: Any, writer: Any) -> Any:
    code = ended(world, sends, world, writer, [1, 2], True)
    writer.close()
    data, found = b"", []
    while piece := reader.read():
        data += piece
        found += [int(reader.memory().bytes[0]) for _ in piece]
    return code, data, found


@program
def a_reader_that_is_killed_with_memory_in_the_pipe(world: Any, reader: Any, writer: Any) -> Any:
    child = started(world, nap, LONG)
    reader.close()
    sends(world, writer, [1])
    killed(child)
    return error_of(sends, world, writer, [2])


def writes(world: Any, reader: Any, writer: Any) -> None:
    reader.read()
    reader.memory().bytes[:3] = 7
    writer.write(memoryview(b"done"))


@program
def what_one_process_writes_the_other_reads(world: Any, reader: Any, writer: Any) -> Any:
    back, answer = world.pipe()
    memory = world.memory(64)
    memory.bytes[:] = 1
    array = memory.bytes
    child = started(world, writes, world, reader, answer)
    writer.write(memoryview(b"x"), memory)
    data = back.read()
    child.join(LONG)
    return data, array[:5].tolist()


class Counts:
    forks = 0

    def before_fork(self) -> None:
        self.forks += 1


@program
def whoever_asks_is_told_of_each_fork(world: Any) -> Any:
    counts, other = Counts(), Counts()
    world.before_fork(counts)
    world.before_fork(other)
    gone = Counts()
    world.before_fork(gone)
    del gone
    ended(world, lambda: None)
    ended(world, lambda: None)
    return counts.forks, other.forks
