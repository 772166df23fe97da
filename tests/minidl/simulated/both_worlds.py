"""Small programs that run both in the real world and in a simulated one, and must observe the same in both.

A program takes its world and returns what it observed, as a value that can be compared. Those in `VARIES` may observe
one thing or another; those in `SPAWNS` start their processes by spawn, all others by fork; those in `WAITS` take more
than a second of real time. `both_worlds_ends` has more of them.
"""

from __future__ import annotations

import contextlib
import os
import queue
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy.random
import torch

import minidl
from minidl.events import Queue
from minidl.messages import Died, Result, Task
from minidl.queues import LENGTH, Consumer, Producer, Stopped
from minidl.world.simulated import machine as machines
from minidl.world.simulated import sleep
from minidl.world.simulated.faults import KILLED

SOON = 0.05  # seconds: long enough for another process to run
NAP = 0.01  # seconds
LONG = 60.0  # seconds: longer than a test may take

Program = Callable[[Any], Any]
PROGRAMS: dict[str, Program] = {}
VARIES = set[str]()
SPAWNS = set[str]()
WAITS = set[str]()

reports: list[Any] = []  # in a simulation
report_pipe: Any = None  # in the real world: its writing end, in all the processes that a program forks


def program(run: Program) -> Program:
    PROGRAMS[run.__name__] = run
    return run


def varies(run: Program) -> Program:
    VARIES.add(run.__name__)
    return program(run)


def waits(run: Program) -> Program:
    WAITS.add(run.__name__)
    return program(run)


def spawns(run: Program) -> Program:
    SPAWNS.add(run.__name__)
    return waits(run)  # for the imports


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


def read_all(reader: Any) -> bytes:
    parts = []
    while data := reader.read():
        parts.append(data)
    return b"".join(parts)


# ---- pipes


def write_all(writer: Any, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[writer.write(rest) :]
    writer.close()


@program
def a_read_takes_all_that_is_there(world: Any) -> Any:
    reader, writer = world.pipe()
    writer.write(memoryview(b"ab"))
    writer.write(memoryview(b"cd"))
    return reader.read()


@program
def what_was_written_comes_before_the_end(world: Any) -> Any:
    reader, writer = world.pipe()
    writer.write(memoryview(b"last"))
    writer.close()
    return reader.read(), reader.read(), reader.read()


@program
def a_write_that_has_no_reader(world: Any) -> Any:
    reader, writer = world.pipe()
    reader.close()
    try:
        writer.write(memoryview(b"lost"))
    except BrokenPipeError:
        return "broken pipe"


@program
def a_pipe_fills_and_its_writer_waits(world: Any) -> Any:
    reader, writer = world.pipe()
    thread = world.thread(write_all, (writer, b"x" * 1_000_000), "writer")
    thread.start()
    thread.join(SOON)
    waits = thread.is_alive()
    size = len(read_all(reader))
    thread.join(LONG)
    return waits, size, thread.is_alive()


@program
def a_child_s_bytes_outlive_it(world: Any) -> Any:
    reader, writer = world.pipe()
    code = ended(world, write_all, writer, b"from a child")
    writer.close()
    return code, read_all(reader)


def holds(world: Any, done: Any) -> None:
    waiter = world.waiter()
    waiter.add(done, "done")
    waiter.wait(LONG)


@program
def a_copy_that_a_fork_inherited_keeps_a_pipe_open(world: Any) -> Any:
    reader, writer = world.pipe()
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
def a_killed_process_leaves_what_it_wrote(world: Any) -> Any:
    reader, writer = world.pipe()
    code = ended(world, writes_and_dies, writer)
    writer.close()
    return code, read_all(reader)


@program
def a_reader_that_is_killed_breaks_the_pipe(world: Any) -> Any:
    reader, writer = world.pipe()
    child = started(world, holds, world, world.flag())
    reader.close()
    writer.write(memoryview(b"it is still open there"))
    child.kill()
    child.join(LONG)
    try:
        writer.write(memoryview(b"lost"))
    except BrokenPipeError:
        return "broken pipe"


# ---- processes


@program
def exit_code_of_a_return(world: Any) -> Any:
    return ended(world, nap, 0.0)


@program
def exit_code_of_sys_exit(world: Any) -> Any:
    return ended(world, sys.exit, 3), ended(world, sys.exit, None), ended(world, sys.exit, "a message")


def raises() -> None:
    raise OSError("as it should")


@program
def exit_code_of_an_exception(world: Any) -> Any:
    return ended(world, raises)


@program
def exit_code_of_a_kill(world: Any) -> Any:
    child = started(world, nap, LONG)
    child.kill()
    child.join(LONG)
    return child.exitcode, child.is_alive()


@program
def exit_code_of_a_terminate(world: Any) -> Any:
    child = started(world, nap, LONG)
    child.terminate()
    child.join(LONG)
    return child.exitcode


@program
def a_join_that_is_too_short(world: Any) -> Any:
    child = started(world, nap, LONG)
    child.join(SOON)
    alive, code = child.is_alive(), child.exitcode
    child.kill()
    child.join()
    return alive, code, child.exitcode


@program
def a_kill_of_a_process_that_has_ended(world: Any) -> Any:
    child = started(world, nap, 0.0)
    child.join(LONG)
    child.terminate()
    child.kill()
    return child.exitcode


@program
def a_child_has_a_pid_of_its_own(world: Any) -> Any:
    reader, writer = world.pipe()
    child = world.process(lambda: write_all(writer, str(world.pid()).encode()), (), "child")
    before = child.pid
    child.start()
    child.join(LONG)
    writer.close()
    return before, int(read_all(reader)) == child.pid != world.pid()


def says_bye(world: Any, writer: Any, dies: bool) -> None:
    world.on_exit(lambda: writer.write(memoryview(b"bye")))
    if dies:
        die()


@program
def at_exit_in_a_child(world: Any) -> Any:
    reader, writer = world.pipe()
    codes = [ended(world, says_bye, world, writer, dies) for dies in (True, False)]
    writer.close()
    return codes, read_all(reader)


@program
def a_forked_child_shares_nothing(world: Any) -> Any:
    reader, writer = world.pipe()
    kept = [1]

    def changes() -> None:
        kept.append(2)
        write_all(writer, repr(kept).encode())

    code = ended(world, changes)
    writer.close()
    return code, kept, read_all(reader)


def drawn() -> list[float]:
    return [random.random(), float(numpy.random.rand()), float(torch.rand(()))]


def draws(writer: Any) -> None:
    write_all(writer, repr(drawn()).encode())


@program
def a_forked_child_draws_what_its_parent_would_have_drawn(world: Any) -> Any:
    """Except from Python's random, which is seeded anew."""
    reader, writer = world.pipe()
    random.seed(11)
    numpy.random.seed(11)
    torch.manual_seed(11)
    ended(world, draws, writer)
    writer.close()
    mains = drawn()
    return mains, [one == other for one, other in zip(eval(read_all(reader)), mains, strict=True)]


def lets_a_thread_go_on(world: Any, writer: Any) -> None:
    def late() -> None:
        nap(LONG)
        writer.write(memoryview(b"late"))

    world.thread(late, (), "late").start()


@program
def a_thread_ends_with_its_process(world: Any) -> Any:
    reader, writer = world.pipe()
    before = world.now()
    code = ended(world, lets_a_thread_go_on, world, writer)
    writer.close()
    return code, read_all(reader), world.now() - before < LONG / 2


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
def several_are_ready(world: Any) -> Any:
    reader, writer = world.pipe()
    flag, waiter = world.flag(), world.waiter()
    waiter.add(reader, "bytes")
    waiter.add(flag, "flag")
    flag.set()
    writer.write(memoryview(b"x"))
    both = sorted(waiter.wait(0))
    waiter.remove(flag)
    return both, waiter.wait(0), reader.read(), waiter.wait(0)


@program
def the_end_of_a_pipe_is_ready(world: Any) -> Any:
    reader, writer = world.pipe()
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
    thread = world.thread(lambda: seen.append(world.is_current(thread)), (), "thread")
    before = thread.is_alive(), world.is_current(thread)
    thread.start()
    thread.join(LONG)
    return before, seen, thread.is_alive()


# ---- queues


def produces(world: Any, writer: Any, messages: int, size: int, how: str) -> None:
    result_queue = Producer(world, writer, Queue.RESULT, 0)
    for number in range(messages):
        result_queue.put(Result(1, number, 0, b"x" * size))
    if how == "cancel":
        result_queue.cancel_join_thread()
    result_queue.close()
    result_queue.join_thread()
    if how == "die":
        die()


def consumes(world: Any, messages: int, size: int, how: str = "") -> Any:
    """What arrives of `messages` from a child, until the news of its death."""
    reader, writer = world.pipe()
    child = started(world, produces, world, writer, messages, size, how)
    writer.close()
    results = Consumer(world, Queue.RESULT, 1)
    results.add(0, reader, world.end_of(child))
    found: list[Any] = []
    while not isinstance(message := results.get(LONG), Died):
        found.append((message.task_id, len(message.data)))
    child.join(LONG)
    return found, child.exitcode


@program
def messages_come_in_order_and_then_the_death(world: Any) -> Any:
    return consumes(world, 20, 10)


@program
def a_message_larger_than_a_pipe(world: Any) -> Any:
    return consumes(world, 2, 300_000)


@program
def messages_sent_before_a_death_arrive(world: Any) -> Any:
    return consumes(world, 3, 100_000, "die")


@program
def a_child_that_sends_nothing(world: Any) -> Any:
    return consumes(world, 0, 0)


@program
def a_cancelled_feeder_does_not_hold_up_the_exit(world: Any) -> Any:
    _reader, writer = world.pipe()
    before = world.now()
    code = ended(world, produces, world, writer, 3, 100_000, "cancel")
    return code, world.now() - before < LONG / 2


@varies
def a_cancelled_feeder_may_lose_messages(world: Any) -> Any:
    found, code = consumes(world, 2, 10, "cancel")
    return len(found), code


def writes_half(writer: Any) -> None:
    writer.write(memoryview(LENGTH.pack(1000, False) + b"half of it"))


@program
def half_a_message_and_a_death(world: Any) -> Any:
    reader, writer = world.pipe()
    child = started(world, writes_half, writer)
    writer.close()
    results = Consumer(world, Queue.RESULT, 1)
    results.add(0, reader, world.end_of(child))
    return type(results.get(LONG)).__name__


@program
def a_queue_on_which_nothing_comes(world: Any) -> Any:
    reader, _writer = world.pipe()
    flag = world.flag()
    results = Consumer(world, Queue.RESULT, 1, until=flag)
    results.add(0, reader, world.flag())
    with contextlib.suppress(queue.Empty):
        return results.get(SOON)
    flag.set()
    try:
        return results.get(LONG)
    except Stopped:
        return "empty, then stopped"


@program
def a_message_that_cannot_be_pickled(world: Any) -> Any:
    reader, writer = world.pipe()
    index_queue = Producer(world, writer, Queue.INDEX, 0)
    index_queue.put(Task(1, 0, threading.Lock()))
    index_queue.put(Task(1, 1, [5]))
    tasks = Consumer(world, Queue.INDEX, 1)
    tasks.add(0, reader, world.flag())
    return [(task.task_id, type(task.keys).__name__) for task in (tasks.get(LONG), tasks.get(LONG))]


@program
def a_queue_whose_reader_is_gone(world: Any) -> Any:
    reader, writer = world.pipe()
    reader.close()
    index_queue = Producer(world, writer, Queue.INDEX, 0)
    index_queue.put(Task(1, 0, [5]))
    index_queue.close()
    index_queue.wait_for_feeder(LONG)
    return index_queue.closed


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


class Stream(minidl.IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        info = minidl.get_worker_info()
        assert info is not None
        return iter(range(info.id, 6, info.num_workers))


def loads(dataset: Any, **options: Any) -> Any:
    """The batches of an epoch; and the first words of an error, if one was raised."""
    loader = minidl.DataLoader(dataset, num_workers=2, collate_fn=list, **options)
    batches: list[Any] = []
    try:
        for batch in loader:
            batches.append(batch)
    except Exception as error:
        return batches, type(error).__name__, " ".join(word for word in str(error).split()[:3] if word != "(pid")
    return batches, getattr(dataset, "asked", 0), minidl.get_worker_info()


@program
def a_load(world: Any) -> Any:
    return loads(Keys(), batch_size=2)


@program
def a_load_of_a_stream(world: Any) -> Any:
    return loads(Stream())


@program
def a_load_through_the_pin_thread(world: Any) -> Any:
    return loads(Keys(), pin_memory="host")


@program
def a_load_whose_order_is_free(world: Any) -> Any:
    batches, *rest = loads(Keys(), in_order=False)
    return sorted(batches), rest


@program
def a_load_in_which_a_worker_is_killed(world: Any) -> Any:
    return loads(Keys(0, "die"))


@program
def a_load_whose_dataset_raises(world: Any) -> Any:
    return loads(Keys(3, "raise"))


@waits
def a_load_that_takes_too_long(world: Any) -> Any:
    return loads(Keys(0, "nap"), timeout=0.5)


@program
def a_load_that_is_dropped_half_way(world: Any) -> Any:
    iterator = iter(minidl.DataLoader(Keys(), num_workers=2, collate_fn=list))
    first, workers = next(iterator), iterator._workers
    del iterator
    return first, [worker.is_alive() for worker in workers], {worker.exitcode for worker in workers}


@program
def two_epochs_of_the_same_workers(world: Any) -> Any:
    loader = minidl.DataLoader(Keys(), num_workers=2, collate_fn=list, persistent_workers=True)
    first = list(loader)
    pids = [worker.pid for worker in loader._iterator._workers]
    return first == list(loader), pids == [worker.pid for worker in loader._iterator._workers]
