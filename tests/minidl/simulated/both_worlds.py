"""Small programs that run both in the real world and in a simulated one, and must observe the same in both.

A program takes its world, and the two ends of a pipe if it likes. It returns what it observed, as a value that can be
compared. It may be marked: one that `varies` may observe one thing or another; one that `spawns` starts its processes
by spawn, all others by fork; one that `waits` takes more than a second of real time. `both_worlds_ends` has more.
"""

from __future__ import annotations

import inspect
import os
import queue
import random
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy.random
import torch

import minidl
from minidl.events import Queue
from minidl.messages import Died
from minidl.queues import Consumer
from minidl.world.simulated import machine as machines
from minidl.world.simulated import sleep
from minidl.world.simulated.faults import KILLED
from tests.samples import Stream, dealt

SOON = 0.05  # seconds: long enough for another process to run
NAP = 0.01  # seconds
LONG = 60.0  # seconds: longer than a test may take


class Program(NamedTuple):
    run: Callable[[Any], Any]
    marks: tuple[str, ...]


PROGRAMS: dict[str, Program] = {}

reports: list[Any] = []  # in a simulation
report_pipe: Any = None  # in the real world: its writing end, in all the processes that a program forks


def marked(*marks: str) -> Callable[[Any], Any]:
    def program(run: Any) -> Any:
        takes_pipe = len(inspect.signature(run).parameters) == 3
        PROGRAMS[run.__name__] = Program(lambda world: run(world, *world.pipe()) if takes_pipe else run(world), marks)
        return run

    return program


program, varies, waits = marked(), marked("varies"), marked("waits")
spawns = marked("spawns", "waits")  # for the imports


def report(what: Any) -> None:
    """Report an observation to the test. A program's result is reported, too."""
    (reports.append if machines.is_running() else report_pipe.send)(what)


def nap(seconds: float) -> None:
    """Short sleeps in the real world: Python handles a signal that comes just before time.sleep() only after it."""
    if machines.is_running():
        return sleep(seconds)
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, NAP))


def die() -> None:
    """kill -9 of the calling process."""
    if machines.is_running():
        machine = machines.current_machine()
        machine.end(machine.running.process, -KILLED)
        machine.until()
    os.kill(os.getpid(), signal.SIGKILL)


def started(world: Any, target: Any, *args: Any) -> Any:
    process = world.process(target, args, "child")
    process.start()
    return process


def ended(world: Any, target: Any, *args: Any) -> int:
    """Run a child to its end, and return its exit code."""
    process = started(world, target, *args)
    process.join(LONG)
    return int(process.exitcode)


def killed(child: Any, how: str = "kill") -> Any:
    """End a child from outside, and return its exit code."""
    getattr(child, how)()
    child.join(LONG)
    return child.exitcode


def error_of(call: Any, *args: Any) -> str:
    try:
        call(*args)
    except Exception as error:
        return type(error).__name__
    return "nothing"


def read_all(reader: Any) -> bytes:
    return b"".join(iter(reader.read, b""))


# ---- pipes


def write_all(writer: Any, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[writer.write(rest) :]
    writer.close()


@program
def a_read_takes_all_that_is_there_and_then_comes_the_end(world: Any, reader: Any, writer: Any) -> Any:
    writer.write(memoryview(b"ab"))
    writer.write(memoryview(b"cd"))
    before = reader.read()
    writer.write(memoryview(b"last"))
    writer.close()
    return before, reader.read(), reader.read(), reader.read()


@program
def a_write_that_has_no_reader(world: Any, reader: Any, writer: Any) -> Any:
    reader.close()
    return error_of(writer.write, memoryview(b"lost"))


@program
def a_pipe_fills_and_its_writer_waits(world: Any, reader: Any, writer: Any) -> Any:
    thread = world.thread(write_all, (writer, b"x" * 1_000_000), "writer")
    thread.start()
    thread.join(SOON)
    waits = thread.is_alive()
    size = len(read_all(reader))
    thread.join(LONG)
    return waits, size, thread.is_alive()


def holds(world: Any, done: Any) -> None:
    waiter = world.waiter()
    waiter.add(done, "done")
    waiter.wait(LONG)


@program
def a_copy_that_a_fork_inherited_keeps_a_pipe_open(world: Any, reader: Any, writer: Any) -> Any:
    done = world.flag()
    child = started(world, holds, world, done)
    writer.close()
    waiter = world.waiter()
    waiter.add(reader, "end")
    before = waiter.wait(SOON)
    done.set()
    child.join(LONG)
    return before, waiter.wait(LONG), reader.read()


def writes_and_dies(writer: Any) -> None:
    writer.write(memoryview(b"begun"))
    try:
        die()
    finally:
        writer.write(memoryview(b"never"))


@program
def what_a_process_wrote_outlives_it(world: Any, reader: Any, writer: Any) -> Any:
    codes = [ended(world, writes_and_dies, writer), ended(world, write_all, writer, b"from a child")]
    writer.close()
    return codes, read_all(reader)


@program
def a_reader_that_is_killed_breaks_the_pipe(world: Any, reader: Any, writer: Any) -> Any:
    child = started(world, holds, world, world.flag())
    reader.close()
    writer.write(memoryview(b"it is still open there"))
    killed(child)
    return error_of(writer.write, memoryview(b"lost"))


# ---- processes


def raises() -> None:
    raise OSError("as it should")


@program
def exit_codes(world: Any) -> Any:
    exits = [ended(world, sys.exit, code) for code in (3, None, "a message")]
    return ended(world, nap, 0.0), exits, ended(world, raises)


@program
def exit_codes_of_processes_that_are_ended(world: Any) -> Any:
    child = started(world, nap, LONG)
    child.join(SOON)  # too short
    before = child.is_alive(), child.exitcode
    over = started(world, nap, 0.0)
    over.join(LONG)
    ends = [killed(each, how) for each in (started(world, nap, LONG), over) for how in ("terminate", "kill")]
    return before, killed(child), child.is_alive(), ends


def drawn() -> list[float]:
    return [random.random(), float(numpy.random.rand()), float(torch.rand(()))]


def draws(writer: Any) -> None:
    write_all(writer, repr(drawn()).encode())


@program
def a_forked_child_draws_what_its_parent_would_have_drawn(world: Any, reader: Any, writer: Any) -> Any:
    """Except from Python's random, which gets a new seed."""
    random.seed(11)
    numpy.random.seed(11)
    torch.manual_seed(11)
    ended(world, draws, writer)
    writer.close()
    mains = drawn()
    return mains, [one == other for one, other in zip(eval(read_all(reader)), mains, strict=True)]


@program
def a_signal_announces_a_child_s_end(world: Any) -> Any:
    interrupted: list[str] = []
    installed = world.on_child_exit(lambda frame: interrupted.append(frame.f_code.co_name))
    reader, writer = world.pipe()
    child = started(world, ends_after_a_read, reader)
    writer.write(memoryview(b"end"))  # not earlier, or the signal could come while the process is being started
    try:
        while not interrupted:
            nap(SOON)
    finally:
        child.join(LONG)
    return installed, len(interrupted), interrupted[0] in ("nap", "write", "a_signal_announces_a_child_s_end")


def ends_after_a_read(reader: Any) -> None:
    reader.read()


@program
def only_the_main_thread_may_ask_for_signals(world: Any) -> Any:
    found: list[bool] = []
    thread = world.thread(lambda: found.append(world.on_child_exit(print)), (), "other")
    thread.start()
    thread.join(LONG)
    return found


# ---- flags, and waiting for several things


def waits_for(world: Any, flag: Any) -> None:
    waiter = world.waiter()
    waiter.add(flag, "set")
    sys.exit((waiter.wait(LONG) == ["set"]) + 2 * flag.is_set())


@program
def a_flag_wakes_a_child(world: Any) -> Any:
    flag = world.flag()
    child = started(world, waits_for, world, flag)
    child.join(SOON)
    waits = child.is_alive()
    flag.set()
    flag.set()
    child.join(LONG)
    return waits, child.exitcode, flag.is_set()


@program
def a_child_that_ends_wakes_its_waiter(world: Any) -> Any:
    child = started(world, nap, SOON)
    waiter = world.waiter()
    waiter.add(world.end_of(child), "ended")
    waiter.add(world.flag(), "never")
    return waiter.wait(LONG), child.is_alive()


@program
def a_wait_that_times_out(world: Any) -> Any:
    waiter, before = world.waiter(), world.now()
    waiter.add(world.flag(), "never")
    return waiter.wait(SOON), waiter.wait(0), SOON <= world.now() - before < LONG


@program
def several_are_ready(world: Any, reader: Any, writer: Any) -> Any:
    flag, waiter = world.flag(), world.waiter()
    waiter.add(reader, "bytes")
    waiter.add(flag, "flag")
    flag.set()
    writer.write(memoryview(b"x"))
    both = sorted(waiter.wait(0))
    waiter.remove(flag)
    return both, waiter.wait(0), reader.read(), waiter.wait(0)


@program
def the_end_of_a_pipe_is_ready(world: Any, reader: Any, writer: Any) -> Any:
    waiter = world.waiter()
    waiter.add(reader, "end")
    before = waiter.wait(0)
    writer.close()
    return before, waiter.wait(LONG), waiter.wait(LONG), reader.read()


# ---- threads


@program
def items_come_in_order(world: Any) -> Any:
    box = world.mailbox()
    thread = world.thread(lambda: [box.put(number) for number in range(5)], (), "writer")
    thread.start()
    found = [box.get(timeout=LONG) for _ in range(5)]
    thread.join(LONG)
    return found, box.qsize()


@program
def no_item_comes(world: Any) -> Any:
    box, found = world.mailbox(), []
    for how in ({"block": False}, {"timeout": SOON}, {"timeout": 0.0}):
        try:
            box.get(**how)
        except queue.Empty:
            found.append("empty")
    return found


@program
def the_life_of_a_thread(world: Any) -> Any:
    seen: list[Any] = []
    thread = world.thread(lambda: seen.append(world.current_thread() is thread), (), "thread")
    before = thread.is_alive(), world.current_thread() is thread
    thread.start()
    thread.join(LONG)
    return before, seen, thread.is_alive()


# ---- queues


def received(world: Any, reader: Any, child: Any) -> tuple[list[Any], int]:
    """Numbers and sizes of the messages until the news of the sender's death, and its exit code."""
    results = Consumer(world, Queue.RESULT, 1)
    results.add(0, reader, world.end_of(child))
    found: list[Any] = []
    while not isinstance(message := results.get(), Died):
        found.append((message.task_id, len(message.data)))
    child.join(LONG)
    return found, child.exitcode


# ---- whole loads


class Keys(minidl.Dataset[int]):
    def __init__(self, bad: int = -1, what: str = "") -> None:
        self.bad, self.what, self.asked = bad, what, 0

    def __len__(self) -> int:
        return 6

    def __getitem__(self, key: int) -> int:
        self.asked += 1
        if key == self.bad:
            {"die": die, "raise": raises, "nap": lambda: nap(LONG), "exit": lambda: sys.exit(4)}[self.what]()
        return key


def loads(dataset: Any = None, **options: Any) -> Any:
    """The batches of an epoch; and the first words of an error, if one was raised."""
    loader = minidl.DataLoader(dataset or Keys(), **{"num_workers": 2, "collate_fn": list, **options})
    batches: list[Any] = []
    try:
        for batch in loader:
            batches.append(batch)
    except Exception as error:
        return batches, type(error).__name__, " ".join(word for word in str(error).split()[:3] if word != "(pid")
    return batches, getattr(dataset, "asked", 0), minidl.get_worker_info()


LOADS: dict[str, dict[str, Any]] = {
    "a load": {"batch_size": 2},
    "a stream": {"dataset": Stream(range(6), dealt)},
    "through the pin thread": {"pin_memory": "host"},
    "a worker is killed": {"dataset": Keys(0, "die")},
    "a worker exits": {"dataset": Keys(0, "exit")},
    "its dataset raises": {"dataset": Keys(3, "raise")},
    "it takes too long": {"dataset": Keys(0, "nap"), "timeout": 0.5},
}
for each, options in LOADS.items():
    marks = ("waits",) if "timeout" in options else ()
    PROGRAMS[each] = Program(lambda world, options=options: loads(**options), marks)
