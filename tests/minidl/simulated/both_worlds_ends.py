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
from minidl.messages import Result
from minidl.queues import Producer
from minidl.world.simulated import machine as machines
from minidl.world.simulated.faults import Fault, Move, inject
from tests.minidl.simulated.both_worlds import (
    LONG,
    SOON,
    die,
    drawn,
    ended,
    error_of,
    killed,
    nap,
    program,
    raises,
    read_all,
    received,
    report,
    spawns,
    started,
    varies,
    waits,
    write_all,
)
from tests.samples import Stream, dealt


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
def an_exit_ends_the_children(world: Any, reader: Any, writer: Any) -> Any:
    started(world, stays, writer)
    return reader.read()


def outlives(reader: Any, writer: Any) -> None:
    writer.close()
    report(("after its parent", reader.read()))


@program
def a_child_outlives_a_parent_that_is_killed(world: Any, reader: Any, writer: Any) -> Any:
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
def a_child_notices_the_death_of_its_parent(world: Any, reader: Any, writer: Any) -> Any:
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
def a_busy_child_is_ended_soon_after_its_parent(world: Any, reader: Any, writer: Any) -> Any:
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
def at_exit_however_it_ends(world: Any) -> Any:
    return [ended(world, says_bye_and, world, how) for how in (die, raises, lambda: sys.exit(3))]


@program
def an_exit_code_of_the_program(world: Any) -> Any:
    says_bye_and(world, lambda: sys.exit(3))


# ---- kills


def sends_much(world: Any, writer: Any) -> None:
    results = Producer(world, writer, Queue.RESULT, 0)
    for size in (10, 300_000):
        results.put(Result(1, 0, 0, b"x" * size))
    nap(LONG)


@program
def a_process_killed_while_it_writes_leaves_half_a_message(world: Any, reader: Any, writer: Any) -> Any:
    child = started(world, sends_much, world, writer)
    writer.close()
    until_gone(world, reader)  # something has come
    return killed(child), received(world, reader, child)


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
def a_worker_that_its_parent_terminates_is_quiet(world: Any, reader: Any, writer: Any) -> Any:
    codes = []
    for end in ("terminate", "kill"):
        child = started(world, is_quiet, world, writer)
        reader.read()
        codes.append(killed(child, end))
    return codes


@program
def a_reader_leaves_while_its_writer_waits(world: Any, reader: Any, writer: Any) -> Any:
    found: list[str] = []
    thread = world.thread(lambda: found.append(error_of(write_all, writer, b"x" * 1_000_000)), (), "writer")
    thread.start()
    thread.join(SOON)
    reader.close()
    thread.join(LONG)
    return found, thread.is_alive()


@program
def every_handler_is_called_at_a_child_s_end_and_each_once(world: Any) -> Any:
    called: list[str] = []
    first, second = [lambda frame, name=name: called.append(name) for name in ("first", "second")]
    installed = [world.on_child_exit(look) for look in (first, first, second)]
    child = started(world, nap, SOON)
    while len(called) < 2:
        nap(SOON)
    child.join(LONG)
    return installed, called


@program
def a_handler_raises_where_main_waits(world: Any) -> Any:
    world.on_child_exit(lambda frame: raises())
    started(world, nap, SOON)
    return error_of(lambda: world.mailbox().get(timeout=LONG))


# ---- Ctrl-C


@program
def ctrl_c_ends_every_wait(world: Any, reader: Any, writer: Any) -> Any:
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
def ctrl_c_is_noted_in_a_child_before_it_is_raised(world: Any, reader: Any, writer: Any) -> Any:
    child = started(world, notes, world, writer)
    reader.read()
    try:
        ctrl_c()
        nap(LONG)
    except KeyboardInterrupt:
        child.join(LONG)
    return child.exitcode


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
def a_flag_that_no_process_can_set_any_more_counts_as_set(world: Any, reader: Any, writer: Any) -> Any:
    """In a spawned child, which has no copy of the writing end of the flag's pipe."""
    flag = world.flag()
    child = started(world, waits_for_flag, world, flag, writer)
    writer.close()
    before = read_all(reader)
    flag.close()
    child.join(LONG)
    return before, child.exitcode


@spawns
def what_cannot_be_pickled_or_was_closed_is_not_spawned(world: Any, reader: Any, writer: Any) -> Any:
    child = world.process(lambda: None, (), "child")
    error = error_of(child.start)
    writer.close()
    return error, child.pid, child.exitcode, error_of(world.process(write_all, (writer, b""), "child").start)


# ---- what the world forbids


@program
def what_was_closed(world: Any, reader: Any, writer: Any) -> Any:
    waiter, flag = world.waiter(), world.flag()
    reader.close()
    writer.close()
    flag.close()
    waiter.close()
    uses = (reader.read, flag.set, flag.is_set, reader.close, writer.close, flag.close, waiter.close)
    found = [error_of(use) for use in uses]
    return found, error_of(writer.write, memoryview(b"x")), error_of(world.waiter().add, reader, "x")


@program
def a_flag_that_was_set_and_closed(world: Any) -> Any:
    flag = world.flag()
    flag.set()
    flag.close()
    return flag.is_set(), error_of(flag.set), error_of(world.waiter().add, flag, "x")


# ---- whole loads


@program
def a_load_that_main_leaves_to_its_exit(world: Any) -> Any:
    left: list[Any] = []
    world.on_exit(lambda: report([(worker.is_alive(), worker.exitcode) for worker in left[0]._workers]))
    left.append(
        iter(minidl.DataLoader(Stream(range(6), dealt), num_workers=2, collate_fn=list))
    )  # its own callback is called first
    return next(left[0])
