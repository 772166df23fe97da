"""More programs for both worlds: exits, kills and Ctrl-C; spawned processes; what the world forbids.

A process that cannot return what it observed, as it is a child or about to die, reports it.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from typing import Any

import numpy.random
import torch

import minidl
from minidl.events import Queue
from minidl.messages import Died, Result
from minidl.queues import Consumer, Producer
from minidl.world.simulated import machine as machines
from minidl.world.simulated.faults import Fault, Move, inject
from tests.minidl.simulated.both_worlds import (
    LONG,
    PROGRAMS,
    SOON,
    SPAWNS,
    VARIES,
    WAITS,
    Keys,
    Stream,
    die,
    drawn,
    ended,
    loads,
    nap,
    program,
    raises,
    read_all,
    report,
    spawns,
    started,
    varies,
    waits,
    write_all,
)

__all__ = ["PROGRAMS", "SPAWNS", "VARIES", "WAITS"]


def ctrl_c() -> None:
    """As in the terminal: it goes to every process of the program."""
    if machines.is_running():
        machine = machines.current_machine()
        inject(machine, Move(machine.step, Fault.INTERRUPT))
        machine.until()
    else:
        os.killpg(0, signal.SIGINT)


def until_gone(world: Any, thing: Any, timeout: float | None = LONG) -> bool:
    waiter = world.waiter()
    waiter.add(thing, "gone")
    return waiter.wait(timeout) == ["gone"]


# ---- a process exits, or dies, and others live on


def stays(writer: Any) -> None:
    writer.write(memoryview(b"here"))
    nap(LONG)
    report("it is still there")


@program
def an_exit_ends_the_children(world: Any) -> Any:
    reader, writer = world.pipe()
    started(world, stays, writer)
    return reader.read()


def outlives(reader: Any, writer: Any) -> None:
    writer.close()
    report(("after its parent", reader.read()))


@program
def a_child_outlives_a_parent_that_is_killed(world: Any) -> Any:
    reader, writer = world.pipe()
    started(world, outlives, reader, writer)
    die()


def sees(world: Any, flag: Any, reader: Any) -> None:
    reader.read()
    report(("set", flag.is_set(), until_gone(world, flag)))


@program
def a_flag_stays_set_after_its_maker_has_died(world: Any) -> Any:
    flag = world.flag()
    reader, writer = world.pipe()

    def closes_and_sees() -> None:
        writer.close()
        sees(world, flag, reader)

    started(world, closes_and_sees)
    flag.set()
    die()


def watches(world: Any, writer: Any) -> None:
    parent = world.parent()
    writer.write(memoryview(b"I watch"))
    report(("it is gone", until_gone(world, parent)))


@program
def a_child_notices_the_death_of_its_parent(world: Any) -> Any:
    reader, writer = world.pipe()
    started(world, watches, world, writer)
    reader.read()
    die()


def is_busy(world: Any, writer: Any) -> None:
    watches(world, writer)
    nap(2 * SOON)
    report("it has a moment left")
    nap(LONG)
    report("it was forgotten")


@waits
def a_busy_child_is_ended_soon_after_its_parent(world: Any) -> Any:
    reader, writer = world.pipe()
    started(world, is_busy, world, writer)
    reader.read()
    die()


def asks_late(world: Any, reader: Any, writer: Any) -> None:
    writer.close()
    reader.read()
    report(until_gone(world, world.parent()))
    nap(LONG)
    report("it was forgotten")


@waits
def a_child_asks_for_a_parent_that_is_dead(world: Any) -> Any:
    started(world, asks_late, world, *world.pipe())
    die()


def asks_for_calls(world: Any) -> None:
    def fails() -> None:
        report("fails")
        raise OSError("as it should")

    first, last = (lambda: report("first")), (lambda: report("last"))
    for call in (first, fails, last, first):
        world.on_exit(call)
    report("returns")


@program
def at_exit_the_last_comes_first_and_each_once(world: Any) -> Any:
    """One that fails changes nothing, not even the exit code."""
    return ended(world, asks_for_calls, world)


@program
def at_exit_of_a_child_its_parent_s_are_not_called(world: Any) -> Any:
    world.on_exit(lambda: report("the parent's"))
    return ended(world, nap, 0.0)


def says_bye_and(world: Any, how: Any) -> None:
    world.on_exit(lambda: report("bye"))
    how()


@program
def at_exit_after_an_error(world: Any) -> Any:
    return [ended(world, says_bye_and, world, how) for how in (raises, lambda: sys.exit(3))]


@program
def an_exit_code_of_the_program(world: Any) -> Any:
    world.on_exit(lambda: report("bye"))
    sys.exit(3)


def sends_at_exit(world: Any, writer: Any) -> None:
    results = Producer(world, writer, Queue.RESULT, 0)
    for number in range(3):
        results.put(Result(1, number, 0, b"x" * 100_000))

    def join() -> None:
        results.close()
        results.join_thread()

    world.on_exit(join)


@program
def a_feeder_is_joined_at_exit(world: Any) -> Any:
    reader, writer = world.pipe()
    child = started(world, sends_at_exit, world, writer)
    writer.close()
    return received(world, reader, world.end_of(child))


def received(world: Any, reader: Any, end: Any) -> list[Any]:
    """The sizes of all messages until the news of their sender's death."""
    results = Consumer(world, Queue.RESULT, 1)
    results.add(0, reader, end)
    found: list[Any] = []
    while not isinstance(message := results.get(LONG), Died):
        found.append(len(message.data))
    return found


# ---- kills


def sends_much(world: Any, writer: Any) -> None:
    results = Producer(world, writer, Queue.RESULT, 0)
    for size in (10, 300_000):
        results.put(Result(1, 0, 0, b"x" * size))
    nap(LONG)


@program
def a_process_killed_while_it_writes_leaves_half_a_message(world: Any) -> Any:
    reader, writer = world.pipe()
    child = started(world, sends_much, world, writer)
    writer.close()
    until_gone(world, reader)  # something has come
    child.kill()
    child.join(LONG)
    return received(world, reader, world.end_of(child)), child.exitcode


@varies
def a_killed_process_may_live_for_a_moment(world: Any) -> Any:
    child = started(world, nap, LONG)
    child.kill()
    alive = child.is_alive()
    child.join(LONG)
    return alive, child.is_alive(), child.exitcode


def is_quiet(world: Any, writer: Any) -> None:
    world.report_crashes()
    writer.write(memoryview(b"ready"))
    nap(LONG)


@program
def a_worker_that_its_parent_terminates_is_quiet(world: Any) -> Any:
    reader, writer = world.pipe()
    codes = []
    for end in ("terminate", "kill"):
        child = started(world, is_quiet, world, writer)
        reader.read()
        getattr(child, end)()
        child.join(LONG)
        codes.append(child.exitcode)
    return codes


@program
def a_reader_leaves_while_its_writer_waits(world: Any) -> Any:
    reader, writer = world.pipe()
    found: list[str] = []

    def writes() -> None:
        try:
            write_all(writer, b"x" * 1_000_000)
        except BrokenPipeError:
            found.append("broken pipe")

    thread = world.thread(writes, (), "writer")
    thread.start()
    thread.join(SOON)
    reader.close()
    thread.join(LONG)
    return found, thread.is_alive()


@program
def every_handler_is_called_at_a_child_s_end(world: Any) -> Any:
    called: list[str] = []
    for each in ("first", "second"):
        world.on_child_exit(lambda frame, each=each: called.append(each))
    child = started(world, nap, SOON)
    while len(called) < 2:
        nap(SOON)
    child.join(LONG)
    return called


@program
def the_same_handler_is_called_once(world: Any) -> Any:
    frames: list[Any] = []
    look = frames.append
    installed = [world.on_child_exit(look), world.on_child_exit(look)]
    child = started(world, nap, SOON)
    while not frames:
        nap(SOON)
    child.join(LONG)
    return installed, len(frames)


@program
def a_handler_raises_where_main_waits(world: Any) -> Any:
    def look(frame: Any) -> None:
        raise OSError("a child has ended")

    world.on_child_exit(look)
    try:
        started(world, nap, SOON)
        world.mailbox().get(timeout=LONG)
    except OSError as error:
        return str(error)


# ---- Ctrl-C


@program
def ctrl_c_ends_every_wait(world: Any) -> Any:
    reader, writer = world.pipe()
    child = started(world, sleeps_through, world, writer)
    reader.read()
    stuck = world.thread(nap, (LONG,), "stuck")
    stuck.start()
    calls = {
        "nap": lambda: nap(LONG),
        "waiter": lambda: until_gone(world, world.flag(), None),
        "mailbox": world.mailbox().get,
        "mailbox for a while": lambda: world.mailbox().get(timeout=LONG),
        "thread": stuck.join,
        "process": child.join,
        "process for a while": lambda: child.join(LONG),
    }
    found = []
    for name, wait in calls.items():
        try:
            world.thread(interrupts, (), "ctrl-c").start()
            wait()
        except KeyboardInterrupt:
            found.append(name)
    child.kill()
    return found


def sleeps_through(world: Any, writer: Any) -> None:
    ready = False
    while True:
        try:
            if not ready:
                writer.write(memoryview(b"ready"))
                ready = True
            nap(LONG)
        except KeyboardInterrupt:
            continue


def interrupts() -> None:
    nap(SOON)
    ctrl_c()


def notes(world: Any, writer: Any) -> None:
    world.on_interrupt(lambda: report("noted"))
    try:
        writer.write(memoryview(b"ready"))
        nap(LONG)
    except KeyboardInterrupt:
        report("interrupted")
        raise


@program
def ctrl_c_is_noted_in_a_child_before_it_is_raised(world: Any) -> Any:
    reader, writer = world.pipe()
    child = started(world, notes, world, writer)
    reader.read()
    try:
        ctrl_c()
        nap(LONG)
    except KeyboardInterrupt:
        child.join(LONG)
    return child.exitcode


@program
def ctrl_c_in_a_load(world: Any) -> Any:
    iterator = iter(minidl.DataLoader(Keys(), num_workers=2, collate_fn=list))
    workers, batches = iterator._workers, []
    try:
        for batch in iterator:
            batches.append(batch)
            if len(batches) == 2:  # both workers have begun
                ctrl_c()
                nap(LONG)
    except KeyboardInterrupt:
        del iterator
    return batches, [(worker.is_alive(), worker.exitcode) for worker in workers]


# ---- spawned processes


def begins_anew(ours: Any, go_on: Any) -> None:
    write_all(ours, repr(drawn()).encode())
    go_on.read()


@spawns
def a_spawned_child_has_only_what_it_was_given(world: Any) -> Any:
    """Only the pipes that it was given, and not its parent's random numbers."""
    (reader, writer), (other_reader, other_writer), (go_on, go) = world.pipe(), world.pipe(), world.pipe()
    random.seed(11)
    numpy.random.seed(11)
    torch.manual_seed(11)
    child = started(world, begins_anew, writer, go_on)
    other_writer.close()
    before = other_reader.read(), child.is_alive()  # it has no copy of this one
    writer.close()
    its = eval(read_all(reader))
    go.close()
    child.join(LONG)
    return before, [one == other for one, other in zip(its, drawn(), strict=True)], child.exitcode


def waits_for_flag(world: Any, flag: Any, writer: Any) -> None:
    write_all(writer, b"before" if flag.is_set() else b"")
    sys.exit(3 if until_gone(world, flag) and flag.is_set() else 4)


@spawns
def a_flag_that_no_process_can_set_any_more_counts_as_set(world: Any) -> Any:
    """In a spawned child, which has no copy of the writing end of the flag's pipe."""
    reader, writer = world.pipe()
    flag = world.flag()
    child = started(world, waits_for_flag, world, flag, writer)
    writer.close()
    before = read_all(reader)
    flag.close()
    child.join(LONG)
    return before, child.exitcode


@spawns
def what_cannot_be_pickled_is_not_spawned(world: Any) -> Any:
    child = world.process(lambda: None, (), "child")
    try:
        child.start()
    except Exception as error:
        return type(error).__name__, child.pid, child.exitcode


@spawns
def what_was_closed_is_not_spawned(world: Any) -> Any:
    _reader, writer = world.pipe()
    writer.close()
    return error_of(world.process(write_all, (writer, b""), "child").start)


# ---- what the world forbids


def error_of(call: Any, *args: Any) -> str:
    try:
        call(*args)
    except Exception as error:
        return type(error).__name__
    return "nothing"


@program
def what_was_never_started(world: Any) -> Any:
    process = world.process(nap, (0.0,), "child")
    thread = world.thread(nap, (0.0,), "thread")
    alive = process.is_alive(), thread.is_alive()
    return alive, process.pid, process.exitcode, [error_of(call) for call in (process.join, thread.join)]


@program
def what_was_started_before(world: Any) -> Any:
    process = world.process(nap, (0.0,), "child")
    thread = world.thread(nap, (0.0,), "thread")
    errors = [[error_of(call), error_of(call)] for call in (process.start, thread.start)]
    process.join(LONG)
    return errors


@program
def what_was_closed(world: Any) -> Any:
    reader, writer = world.pipe()
    waiter, flag = world.waiter(), world.flag()
    reader.close()
    writer.close()
    flag.close()
    waiter.close()
    uses = (reader.read, flag.set, flag.is_set, reader.close, writer.close, flag.close, waiter.close)
    found = [error_of(use) for use in uses]
    return found, error_of(writer.write, memoryview(b"x")), error_of(world.waiter().add, reader, "x")


@program
def what_was_closed_is_so_in_a_fork(world: Any) -> Any:
    reader, writer = world.pipe()
    reader.close()
    writer.close()

    def child() -> None:
        report([error_of(reader.read), error_of(writer.write, memoryview(b"x"))])

    return ended(world, child)


@program
def a_flag_that_was_set_and_closed(world: Any) -> Any:
    flag = world.flag()
    flag.set()
    flag.close()
    return flag.is_set(), error_of(flag.set), error_of(world.waiter().add, flag, "x")


@program
def a_waiter_is_given_a_thing_twice(world: Any) -> Any:
    waiter, flag, other = world.waiter(), world.flag(), world.flag()
    return error_of(waiter.add, flag, 1), error_of(waiter.add, flag, 2), error_of(waiter.remove, other)


@program
def a_negative_timeout(world: Any) -> Any:
    waiter, thread = world.waiter(), world.thread(nap, (LONG,), "thread")
    thread.start()
    box = world.mailbox()
    box.put(1)
    child = started(world, nap, LONG)
    calls = waiter.wait, thread.join, child.join, lambda timeout: box.get(timeout=timeout)
    return [error_of(call, -1.0) for call in calls]


# ---- whole loads


def fails_at(keys: list[int]) -> Any:
    if keys[0] == 2:
        raises()
    return keys


class Faulty(Keys):
    """A sampler."""

    def __iter__(self) -> Any:
        yield from range(3)
        raises()


@program
def a_load_whose_sampler_raises(world: Any) -> Any:
    return loads(Keys(), sampler=Faulty())


@program
def a_load_whose_init_fn_raises(world: Any) -> Any:
    return loads(Keys(), worker_init_fn=lambda worker_id: raises())


@program
def a_load_in_which_a_worker_exits(world: Any) -> Any:
    return loads(Keys(0, "exit"))


@program
def a_load_in_which_each_worker_knows_itself(world: Any) -> Any:
    """Its worker info; its parent has none."""
    return loads(Knowing()), minidl.get_worker_info()


class Knowing(Keys):
    def __getitem__(self, key: int) -> Any:
        info = minidl.get_worker_info()
        assert info is not None
        info.dataset.asked += 1  # its own copy
        return key, info.id, info.num_workers, self.asked


@program
def a_load_that_main_leaves_to_its_exit(world: Any) -> Any:
    left: list[Any] = []
    world.on_exit(lambda: report([(worker.is_alive(), worker.exitcode) for worker in left[0]._workers]))
    left.append(iter(minidl.DataLoader(Stream(), num_workers=2, collate_fn=list)))  # its own callback is called first
    return next(left[0])
