"""Bugs that real loaders have had, put into minidl: each a small change, made in memory and undone again.

A bug is a program that shows it, decorated with what is changed; the program's docstring is the lesson.
Most replace a few lines of the loader's source. Three need something that minidl does not have, which its world then
provides: a lock that processes share, one pipe for all workers, a count of those that have finished.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
import textwrap
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import minidl
from minidl import deaths, queues, shutdown, signals, startup, worker
from minidl.parallel import ParallelIterator
from minidl.transport import VARIABLE
from minidl.world.simulated import Exploration, Outcome, explore, services, simulate, step
from minidl.world.simulated import machine as machines
from minidl.world.simulated.explore import what_must_hold
from minidl.world.simulated.faults import Fault
from notebooks.exercises.patching import replaced
from tests.minidl.simulated.programs import TORCHS_WAY, Keys, bytes_of_a_result, epoch, load
from tests.samples import Stream, first_of


@dataclass(frozen=True)
class Edit:
    """Lines of a function of the loader, and what replaces them."""

    where: Any  # a module, or a class
    function: str
    old: str
    new: str

    @property
    def name(self) -> str:
        module = self.where.__name__ if isinstance(self.where, ModuleType) else self.where.__module__
        owner = "" if isinstance(self.where, ModuleType) else f"{self.where.__name__}."
        return f"{module.removeprefix('minidl.')}.{owner}{self.function}"


@dataclass(frozen=True)
class Mutant:
    """A bug."""

    name: str
    program: Callable[[], Any]
    lesson: str  # what happens, and what prevents it
    broken: str  # a part of what the exploration reports
    edits: tuple[Edit, ...]
    seen_in: str = "—"  # PyTorch issues and pull requests
    world: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext  # provides what it needs
    delays: int = 0
    faults: int = 0
    transport: str = "torch"  # whose queues have feeders
    capacity: int = 1 << 16  # of a pipe (bytes)
    fault: Fault | None = None  # only runs with this fault count: the bug may also show without it

    @property
    def options(self) -> dict[str, Any]:
        """Of `simulate`."""
        return {"capacity": self.capacity, "environment": {VARIABLE: self.transport}}

    def judge(self) -> Callable[[Outcome], list[str]]:
        """What must hold, compared with the loader without the bug."""
        expected = simulate(self.program, draws=False, **self.options)

        def judge(outcome: Outcome) -> list[str]:
            if self.fault is not None and all(move.what is not self.fault for move in outcome.schedule.moves):
                return []
            return what_must_hold(outcome, expected)

        return judge

    def explored(self, bug: bool = True, most: int | None = None) -> Exploration:
        """Explore the loader with the bug until it is found; or without it, at most this many schedules."""
        judge, bounds = self.judge(), {"delays": self.delays, "faults": self.faults, "most": most}
        with at_work(self) if bug else contextlib.nullcontext():
            return explore(self.program, judge=judge, draws=False, **bounds, **self.options)


def mutant(broken: str, *edits: Edit, name: str = "", **others: Any) -> Callable[[Callable[[], Any]], Mutant]:
    """Makes a bug of a program that shows it; the docstring is the lesson."""

    def make(program: Callable[[], Any]) -> Mutant:
        lesson = " ".join((program.__doc__ or "").split())
        return Mutant(name or program.__name__.replace("_", " "), program, lesson, broken, edits, **others)

    return make


@contextlib.contextmanager
def at_work(mutant: Mutant) -> Iterator[None]:
    """The loader with the bug."""
    with contextlib.ExitStack() as stack:
        for edit in mutant.edits:
            stack.enter_context(_edited(edit))
        stack.enter_context(mutant.world())
        yield


@contextlib.contextmanager
def _edited(edit: Edit) -> Iterator[None]:
    function = getattr(edit.where, edit.function)
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(edit.old) == 1, f"{edit.name} has changed: {edit.old!r} is no longer in it"
    names = dict(function.__globals__)
    exec(compile(source.replace(edit.old, edit.new), edit.name, "exec"), names)
    edited = names[edit.function]
    edited = types.FunctionType(edited.__code__, function.__globals__, edited.__name__, edited.__defaults__)
    with replaced(function, edited, edit.where):
        yield


# ---- programs


def dropped(tasks: int = 6, **options: Any) -> list[Any]:
    """Return the first batch; the iterator is dropped."""
    iterator = iter(minidl.DataLoader(range(tasks), batch_size=1, num_workers=2, collate_fn=list, **options))
    batch = next(iterator)
    step()
    del iterator
    step()
    return batch


def with_its_worker(key: int) -> Any:
    info = minidl.get_worker_info()
    assert info is not None
    return key, info.id


def two_epochs_alike() -> None:
    loader: Any = minidl.DataLoader(Keys(make=with_its_worker), num_workers=2, collate_fn=list, persistent_workers=True)
    first, second = list(epoch(loader)), list(epoch(loader))
    assert first == second, f"epoch 0 was {first}, epoch 1 is {second}"


KEPT: list[Any] = []


def kept_until_exit() -> None:
    """An iterator that is alive when the interpreter exits."""
    loader: Any = minidl.DataLoader(Keys(), num_workers=2, collate_fn=list, persistent_workers=True, pin_memory="host")
    KEPT[:] = [iter(loader)]
    next(KEPT[0])
    sys.exit()


def begun_anew() -> list[Any]:
    """An epoch that is left halfway, and the next one."""
    loader: Any = minidl.DataLoader(Keys(10), num_workers=2, collate_fn=list, persistent_workers=True)
    first = next(iter(loader))
    return [first, *epoch(loader)]


# ---- what the world provides


@contextlib.contextmanager
def lock(machine: machines.Machine, name: str) -> Iterator[None]:
    """A lock that processes share. A process that is killed while it holds the lock keeps it."""
    held = of_this_run(machine).setdefault("held", set())
    machine.until(lambda: name not in held)
    held.add(name)
    yield
    held.remove(name)


def of_this_run(machine: machines.Machine) -> dict[str, Any]:
    """Where a mutant keeps its own state while this machine runs."""
    return vars(machine).setdefault("mutant", {})


class FlagWithALock(services.SimulatedFlag):
    """Made like multiprocessing.Event: looking at it or setting it takes a lock for a moment."""

    def _with_lock(self, what: Callable[[], bool]) -> bool:
        with lock(self._machine, f"flag {self._machine.shared.index(self._pipe)}"):
            self._machine.until()
            return what()

    def is_set(self) -> bool:
        return self._with_lock(self.is_ready)

    def set(self) -> None:
        self._with_lock(lambda: setattr(self._pipe, "data", bytearray(b"1")) is None)


def flags_with_locks() -> contextlib.AbstractContextManager[None]:
    return replaced(services.SimulatedFlag, FlagWithALock, services)


class SharedWriter(services.SimulatedWriter):
    """All workers write to one pipe, each message under a lock; a message takes two writes."""

    def write(self, data: memoryview, memory: Any = None) -> int:
        half = len(data) // 2
        with lock(self._machine, "writer"):
            return super().write(data[:half], memory) + super().write(data[half:])


def one_pipe_for_all_results() -> contextlib.AbstractContextManager[None]:
    """Every second pipe that the start-up makes is a worker's result pipe: all of them write to the first one."""
    pipe = services.SimulatedWorld.pipe

    def shared(world: Any) -> Any:
        machine, (reader, writer) = world.machine, pipe(world)
        made = of_this_run(machine).setdefault("writers", [])  # kept: one that is dropped would close its end
        if len(made) % 2:  # an index_queue has one already
            first = made[1]._pipe if len(made) > 1 else writer._pipe
            machine.running.process.open(first, "writers")
            writer = SharedWriter(machine, first, machine.running.process)
        made.append(writer)
        return reader, writer

    return replaced(pipe, shared, services.SimulatedWorld)


RUN, JOIN = startup.run, services.SimulatedProcess.join


def finished() -> set[Any]:
    return of_this_run(machines.current_machine()).setdefault("finished", set())


def reports_that_it_has_finished(*args: Any) -> None:
    RUN(*args)
    finished().add(machines.current_machine().running.process)


def join_waits_for_report(process: Any, timeout: float | None = None) -> None:
    if process.is_alive():  # one that died before the shutdown is known to be dead
        machines.current_machine().until(lambda: process in finished())
    JOIN(process, timeout)


@contextlib.contextmanager
def workers_that_report_that_they_have_finished() -> Iterator[None]:
    """Main waits for its workers' reports, and does not look at their processes."""
    with (
        replaced(RUN, reports_that_it_has_finished, startup),
        replaced(JOIN, join_waits_for_report, services.SimulatedProcess),
    ):
        yield


NOBODY_LOOKS = (
    Edit(queues.Consumer, "add", "    self._waiter.add(peer, (channel, ENDED))\n", "    pass\n"),
    Edit(deaths, "check_health", "not worker.is_alive()", "False"),
    Edit(deaths, "raise_deaths", "iterator._endings.wait(0)", "[]"),
    Edit(signals, "watch", "world.on_child_exit(_look)", "False"),
)


@mutant("goes on for ever", *NOBODY_LOOKS, seen_in="#1355", faults=1)
def nobody_looks_whether_the_worker_is_alive() -> Any:
    """A worker is killed, and main waits for its batch forever: nothing in a queue shows that no one will write to
    it again. minidl's waits also wake when the process that owes the message ends."""
    return load()


@mutant("deadlock", seen_in="#16608", faults=1, world=flags_with_locks)
def the_done_event_has_a_lock() -> Any:
    """multiprocessing.Event takes a lock whenever it is read. A worker killed at that moment holds it forever, and
    main waits for it when it wants to stop the workers. minidl's flag is a byte in a pipe: no lock to hold."""
    return load()


@mutant(
    "deadlock",
    Edit(
        queues.Channel,
        "read",
        "    self.gathered += data\n",
        "    self.gathered += data\n"
        "    while self.open and len(self.gathered) < LENGTH.size + LENGTH.unpack_from(self.gathered)[0]:\n"
        "        data = self.reader.read()\n"
        "        self.open = bool(data)\n"
        "        self.gathered += data\n",
    ),
    # The message says whose it is: its pipe no longer does.
    Edit(
        queues.Consumer,
        "take",
        "    self._got(channel, message.task_id)\n",
        "    self._waiting = False\n"
        "    sender = getattr(message, 'worker_id', channel.worker_id)\n"
        "    emit(events.GOT, self._epoch_id, message.task_id, sender, self._queue)\n",
    ),
    seen_in="#21554",
    faults=1,
    world=one_pipe_for_all_results,
)
def one_pipe_for_the_results_of_all_workers() -> Any:
    """The workers share a pipe and take turns by a lock. One is killed halfway through a message: half of it stays
    in the pipe, the lock is never released, and main waits for the rest. In minidl every worker has its own pipe,
    and main takes what is there without waiting for a whole message."""
    return load()


@mutant(
    "pin thread first",
    Edit(
        shutdown,
        "shut_down",
        "stop_pin_thread(iterator)\n            tell_workers_to_stop(iterator)\n            "
        "wait_for_workers(iterator)\n",
        "tell_workers_to_stop(iterator)\n            wait_for_workers(iterator)\n            "
        "stop_pin_thread(iterator)\n",
    ),
    seen_in="#11985, #24927",
)
def the_workers_are_stopped_before_the_pin_thread() -> Any:
    """The pin thread reads what the workers write. Stopped after them, it may wait for the rest of a message whose
    writer is gone. A law holds the loader to this order."""
    return load(pin_memory="host")


@mutant("deadlock", seen_in="#19421", faults=1, world=workers_that_report_that_they_have_finished, fault=Fault.KILL)
def a_worker_dies_during_the_shutdown_and_nobody_looks() -> Any:
    """Main waits until every worker has reported that it is done. One is killed before it can report, and main
    waits forever. It must wait for the end of the process, which the system announces however the process ended."""
    return load()


@mutant(
    "until all processes had ended",
    Edit(worker, "run", "    if end is End.STOPPED and not job.done.is_set():\n        ", "    "),
    seen_in="#48666",
    delays=1,
    capacity=bytes_of_a_result(TORCHS_WAY) - 1,
)
def process_exit_joins_a_feeder_that_is_blocked() -> Any:
    """Main has dropped its iterator and reads no more results. A worker that exits waits for its feeder thread to
    send the rest, and the feeder waits for room in the pipe: the worker has to be ended by force, five seconds
    later. So a stopped worker does not wait for its feeder."""
    return dropped()


@mutant(
    "deadlock",
    Edit(shutdown, "tell_to_stop", "    index_queue.put(Stop(iterator._epoch_id))\n", "    pass\n"),
    Edit(shutdown, "wait_for_workers", "worker.join(patience)", "worker.join(None)"),
    seen_in="#26072, #39869",
    name="the final message is lost, and nothing stands behind the join",
)
def the_final_message_is_lost_and_nothing_stands_behind_the_join() -> Any:
    """The message that stops a worker does not arrive: the pipe is broken, or its feeder has been ended. The worker
    waits for the message, main waits for the worker. minidl's waits at shutdown are bounded, with force as the last
    resort."""
    return load()


@mutant(
    "is left when the program returns",
    Edit(ParallelIterator, "__del__", "self._shutdown_workers()", "pass"),
    seen_in="#10366",
)
def the_iterator_is_dropped_half_way_and_the_workers_are_never_told() -> Any:
    """Nothing refers to the iterator any more, but its processes cannot know that: they wait for tasks until the
    program ends, and keep all their memory. A finalizer has to run the shutdown."""
    return dropped()


@mutant(
    "ended with exit code -15",
    Edit(shutdown, "shut_down_at_exit", "    world.on_exit(_shut_down_all)\n", ""),
    seen_in="#47445, #71579",
)
def at_interpreter_exit_the_workers_die_first() -> Any:
    """At exit, multiprocessing terminates the remaining daemon processes, whatever they are doing. Only then are
    objects finalized, and the loader's shutdown, which begins with the pin thread, finds its workers dead. minidl
    registers its shutdown to run earlier."""
    return kept_until_exit()


@mutant(
    "the program found that",
    Edit(
        ParallelIterator,
        "_reset",
        "self._next_worker = 0",
        "self._next_worker = getattr(self, '_next_worker', 0)",
    ),
    seen_in="#73603",
    name="the round-robin is not reset",
)
def the_round_robin_is_not_reset() -> Any:
    """Tasks go to the workers in turn. If the second epoch begins with whichever worker is next, its batches are
    made by different workers than in the first: with random augmentations, the same seed gives different data."""
    return two_epochs_alike()


@mutant(
    "it raised RuntimeError",
    Edit(deaths, "worker_ended", "if status is WorkerState.ACTIVE:", "if status is not WorkerState.DEAD:"),
    seen_in="#35795",
    delays=1,
)
def a_worker_is_marked_as_finished_twice() -> Any:
    """A worker whose stream has ended is stopped, and ends. Then its end is reported like a death. Counted as
    another finished worker, or taken for a crash, it spoils an epoch in which nothing went wrong. So a worker's
    status is a state: exhausted and then dead is expected, active and then dead is not."""
    return load(Stream(Keys(6), first_of(6, 0)))


@mutant(
    "3 tasks at a time",
    Edit(
        ParallelIterator,
        "_choose_worker",
        "self._in_order or self._workers_num_tasks[worker_id] < max_tasks // active",
        "True",
    ),
    seen_in="#105203",
    name="without order, nobody counts what a worker has",
    delays=1,
)
def without_order_nobody_counts_what_a_worker_has() -> Any:
    """With in_order=False a batch is yielded as soon as it arrives, and the next task goes to the next worker in
    turn, even if that one still has all its tasks to do: a slow worker collects tasks while a quick one runs dry. A
    count per worker prevents it."""
    return sorted(load(Keys(10), in_order=False)[0])


@mutant(
    "the program found that",
    Edit(deaths, "fail", "    iterator._failure = text\n", "    iterator._halfway = False\n"),
    faults=1,
)
def the_error_after_a_death_is_forgotten() -> Any:
    """A worker is killed, main raises, and the program catches that and asks for the next batch. If the loader has
    forgotten, it waits for the lost batch, or skips it and ends the epoch with batches missing. In minidl the same
    error is raised again until the iterator is dropped."""
    return load()


@mutant(
    "outstanding or held early, and 4 fit",
    Edit(ParallelIterator, "_take", "    self._try_put_index()  #", "    #"),
    Edit(
        ParallelIterator,
        "_receive",
        "    return result.task_id\n",
        "    self._try_put_index()\n    return result.task_id\n",
    ),
    delays=1,
)
def a_new_task_is_sent_on_receipt_instead_of_on_yield() -> Any:
    """It seems to keep the workers busy. But while one slow batch holds up the others, they pile up in the reorder
    buffer without a bound. One new task for each batch yielded keeps the number held constant."""
    return load(Keys(10))


@mutant(
    "it raised KeyError",
    Edit(
        ParallelIterator,
        "_resume_workers",
        "if isinstance(message, Resumed) and message.epoch_id == self._epoch_id:",
        "if True:",
    ),
    delays=1,
)
def any_message_is_taken_for_the_acknowledgement_of_a_new_epoch() -> Any:
    """An epoch was left halfway, and some of its results are still on their way when the next one begins. If one of
    them passes for its worker's acknowledgement, the next batch of the old epoch passes for one of the new.
    minidl's messages carry their epoch, and only a Resumed of the current one counts."""
    return begun_anew()


MUTANTS = [each for each in globals().values() if isinstance(each, Mutant)]
