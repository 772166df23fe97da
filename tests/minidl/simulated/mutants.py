"""Bugs that real loaders have had, put into minidl: each a small change, made in memory and undone again.

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
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import minidl
import tracing
from minidl import deaths, parallel, queues, shutdown, signals, startup
from minidl.transport import VARIABLE
from minidl.world.simulated import Exploration, Outcome, explore, services, simulate, step, what_must_hold
from minidl.world.simulated import machine as machines
from minidl.world.simulated.faults import Fault
from notebooks.exercises.patching import replaced
from tests.minidl.simulated.programs import TORCHS_WAY, Keys, Stream, bytes_of_a_result, epoch, load


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
    seen_in: str  # PyTorch issues and pull requests
    program: Callable[[], Any]
    lesson: str  # what happens, and what prevents it
    broken: str  # a part of what the exploration reports
    edits: tuple[Edit, ...] = ()
    world: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext  # provides what it needs
    bounds: dict[str, int] = field(default_factory=lambda: {"delays": 0, "faults": 0})
    transport: str = "torch"  # whose queues have feeders
    capacity: int = 1 << 16  # of a pipe (bytes)
    in_order: bool = True
    checks: bool = False  # also check every trace: slower
    drawn: bool = True  # False: its program has no loader, so a timeline would show nothing
    fault: Fault | None = None  # only runs with this fault count: the bug may also show without it

    @property
    def options(self) -> dict[str, Any]:
        """Of `simulate`."""
        return {"capacity": self.capacity, "environment": {VARIABLE: self.transport}}

    def judge(self) -> Callable[[Outcome], list[str]]:
        """What must hold, compared with the loader without the bug; with `checks` also the trace's invariants."""
        expected = simulate(self.program, draws=False, **self.options)

        def judge(outcome: Outcome) -> list[str]:
            if self.fault is not None and all(move.what is not self.fault for move in outcome.schedule.moves):
                return []
            broken = what_must_hold(outcome, expected, self.in_order)
            if not broken and self.checks:
                broken = [str(each) for each in tracing.check(tracing.load(outcome))]
            return broken

        return judge

    def explored(self) -> Exploration:
        """Explore the loader with the bug until it is found."""
        judge = self.judge()
        with at_work(self):
            return explore(self.program, judge=judge, draws=False, **self.bounds, **self.options)


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


class TenKeys(Keys):
    def __len__(self) -> int:
        return 10


class Uneven(Stream):
    """Worker 0 has all the samples, so worker 1 ends at once."""

    def __iter__(self) -> Iterator[int]:
        info = minidl.get_worker_info()
        assert info is not None
        for key in range(0 if info.id else 6):
            step()
            yield key


class Named(Keys):
    """A sample shows which worker made it."""

    def __getitem__(self, key: int) -> Any:
        info = minidl.get_worker_info()
        assert info is not None
        return key, info.id


def two_epochs_alike() -> None:
    loader: Any = minidl.DataLoader(Named(), num_workers=2, collate_fn=list, persistent_workers=True)
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
    loader: Any = minidl.DataLoader(TenKeys(), num_workers=2, collate_fn=list, persistent_workers=True)
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
        with lock(self._machine, f"flag {self._number}"):
            self._machine.until()
            return what()

    def is_set(self) -> bool:
        return self._with_lock(self.is_ready)

    def set(self) -> None:
        self._with_lock(lambda: self._machine.flags.__setitem__(self._number, True) is None)


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
        reader, writer = pipe(world)
        pipes = of_this_run(world.machine).setdefault("pipes", [])
        pipes.append(None)
        if len(pipes) % 2:
            return reader, writer  # an index_queue
        if len(pipes) == 2:
            pipes[0] = writer._pipe
        else:
            world.machine.running.process.open(pipes[0], "writers")
        return reader, SharedWriter(world.machine, pipes[0], world.machine.running.process)

    return replaced(pipe, shared, services.SimulatedWorld)


RUN, JOIN = startup.run, services.SimulatedProcess.join


def finished() -> set[Any]:
    return of_this_run(machines.current_machine()).setdefault("finished", set())


def reports_that_it_has_finished(*args: Any) -> None:
    RUN(*args)
    finished().add(machines.current_machine().running.process)


def join_waits_for_report(process: Any, timeout: float | None = None) -> None:
    if process.is_alive():  # one that died before the shutdown is known to be dead
        machines.current_machine().until(lambda: process.process in finished())
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

MUTANTS = [
    Mutant(
        "nobody looks whether the worker is alive",
        "#1355",
        load,
        "A worker is killed, and main waits for its batch for ever: nothing in a queue shows that no process will "
        "write to it any more. minidl's waits also wake on the end of the process that owes the message.",
        "goes on for ever",
        NOBODY_LOOKS,
        bounds={"delays": 0, "faults": 1},
    ),
    Mutant(
        "the done event has a lock",
        "#16608",
        load,
        "multiprocessing.Event takes a lock whenever it is looked at. A worker that is killed at that moment holds "
        "it for ever, and main, which wants to stop all workers, waits for it. minidl's flag is a byte in a pipe: "
        "there is no lock to hold.",
        "deadlock",
        world=flags_with_locks,
        bounds={"delays": 0, "faults": 1},
    ),
    Mutant(
        "one pipe for the results of all workers",
        "#21554",
        load,
        "The workers share a pipe, and take turns by a lock. One is killed halfway through a message: its half "
        "stays in the pipe, and the lock is never released. Main has begun to read the message, and waits for a "
        "rest that will never be written. In minidl every worker has its own pipe, and main reads what is there "
        "without waiting for the whole message.",
        "deadlock",
        (
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
        ),
        world=one_pipe_for_all_results,
        bounds={"delays": 0, "faults": 1},
    ),
    Mutant(
        "the workers are stopped before the pin thread",
        "#11985, #24927",
        lambda: load(pin_memory="host"),
        "The pin thread reads what the workers write. If it is stopped after them, it may wait for the rest of a "
        "message whose writer is gone. A check of the trace holds the loader to this order.",
        "pin thread first",
        checks=True,
        edits=(
            Edit(
                shutdown,
                "shut_down",
                "stop_pin_thread(iterator)\n            tell_workers_to_stop(iterator)\n            "
                "wait_for_workers(iterator)\n",
                "tell_workers_to_stop(iterator)\n            wait_for_workers(iterator)\n            "
                "stop_pin_thread(iterator)\n",
            ),
        ),
    ),
    Mutant(
        "a worker dies during the shutdown and nobody looks",
        "#19421",
        load,
        "Main waits until every worker has reported that it is done. One is killed before it can report, and main "
        "waits for ever. It must wait for the end of the process, of which the system notifies it however the "
        "process ended.",
        "deadlock",
        world=workers_that_report_that_they_have_finished,
        bounds={"delays": 0, "faults": 1},
        fault=Fault.KILL,
    ),
    Mutant(
        "process exit joins a feeder that is blocked",
        "#48666",
        dropped,
        "Main has dropped its iterator and reads no more results. A worker that exits waits for its feeder thread "
        "to send what is left, and the feeder waits for room in the pipe, which no process makes: the worker has "
        "to be ended by force, five seconds later. So a worker that was told to stop first calls "
        "cancel_join_thread().",
        "until all processes had ended",
        (Edit(queues.Producer, "cancel_join_thread", "    self._join_cancelled = True\n", ""),),
        bounds={"delays": 1, "faults": 0},
        capacity=bytes_of_a_result(TORCHS_WAY) - 1,
    ),
    Mutant(
        "the final message is lost, and nothing stands behind the join",
        "#26072, #39869",
        load,
        "The message that tells a worker to stop does not arrive: the pipe is broken, or its feeder was ended. The "
        "worker waits for the message, main waits for the worker. minidl's waits at shutdown are bounded, with "
        "force as the last resort.",
        "deadlock",
        (
            Edit(shutdown, "tell_to_stop", "    index_queue.put(Stop(iterator._epoch_id))\n", "    pass\n"),
            Edit(shutdown, "wait_for_workers", "worker.join(patience)", "worker.join(None)"),
        ),
    ),
    Mutant(
        "the iterator is dropped half way and the workers are never told",
        "#10366",
        dropped,
        "Nothing refers to the iterator any more, but its processes cannot know that: they wait for tasks until "
        "the program ends, and keep all their memory. A finalizer has to run the shutdown.",
        "is left when the program returns",
        (Edit(parallel.ParallelIterator, "__del__", "self._shutdown_workers()", "pass"),),
    ),
    Mutant(
        "at interpreter exit the workers die first",
        "#47445, #71579",
        kept_until_exit,
        "At exit multiprocessing terminates the remaining daemon processes, whatever they are doing. Only then are "
        "objects finalized, and the loader's shutdown, which begins with the pin thread, finds its workers dead. "
        "minidl registers its shutdown to run before that.",
        "ended with exit code -15",
        (Edit(shutdown, "shut_down_at_exit", "    world.on_exit(_shut_down_all)\n", ""),),
    ),
    Mutant(
        "the round-robin is not reset",
        "#73603",
        two_epochs_alike,
        "The tasks of an epoch go round the workers in turn. If the second epoch begins with whichever worker "
        "happened to be next, its batches are made by other workers than in the first: with random augmentations "
        "the same seed gives different data.",
        "the program found that",
        (
            Edit(
                parallel.ParallelIterator,
                "_reset",
                "self._next_worker = 0",
                "self._next_worker = getattr(self, '_next_worker', 0)",
            ),
        ),
    ),
    Mutant(
        "a worker is marked as finished twice",
        "#35795",
        lambda: load(Uneven()),
        "A worker whose stream has ended is told to stop, and ends. Then its end arrives as the news of a death. "
        "Counted as another finished worker, or taken for a crash, it spoils an epoch in which nothing went wrong. "
        "A worker's status is a state: exhausted and then dead is expected, active and then dead is not.",
        "it raised RuntimeError",
        (Edit(deaths, "worker_ended", "if status is WorkerState.ACTIVE:", "if status is not WorkerState.DEAD:"),),
        bounds={"delays": 1, "faults": 0},
    ),
    Mutant(
        "without order, nobody counts what a worker has",
        "#105203",
        lambda: sorted(load(TenKeys(), in_order=False)[0]),
        "With in_order=False a batch is yielded as soon as it arrives, and the next task goes to the next worker "
        "in turn, even if that is still busy with all its tasks: a slow worker collects tasks while a quick one "
        "runs dry. A count per worker prevents it.",
        "3 tasks at a time",
        in_order=False,
        checks=True,
        edits=(
            Edit(
                parallel.ParallelIterator,
                "_choose_worker",
                "self._in_order or self._workers_num_tasks[worker_id] < max_tasks // active",
                "True",
            ),
        ),
        bounds={"delays": 1, "faults": 0},
    ),
    Mutant(
        "the error after a death is forgotten",
        "—",
        load,
        "A worker is killed, main raises, and the program catches that and asks for the next batch. If the loader "
        "does not remember, it waits for the lost batch, or skips it and ends the epoch with batches missing. In "
        "minidl the same error is raised again until the iterator is dropped.",
        "the program found that",
        (
            Edit(deaths, "fail", "    iterator._failure = text\n", "    iterator._halfway = False\n"),
            Edit(deaths, "fail_for_death", 'iterator._failure = f"DataLoader worker {worker_id} has died"', "pass"),
        ),
        bounds={"delays": 0, "faults": 1},
    ),
    Mutant(
        "a new task is sent on receipt instead of on yield",
        "—",
        lambda: load(TenKeys()),
        "It seems to keep the workers busy. But while one slow batch holds up the others, these pile up in the "
        "reorder buffer without a bound, and so does memory. One new task for each batch that is yielded keeps the "
        "number held constant.",
        "is the limit",
        (
            Edit(parallel.ParallelIterator, "_take", "    self._try_put_index()  #", "    #"),
            Edit(
                parallel.ParallelIterator,
                "_receive",
                "    return result.task_id\n",
                "    self._try_put_index()\n    return result.task_id\n",
            ),
        ),
        bounds={"delays": 1, "faults": 0},
    ),
    Mutant(
        "any message is taken for the acknowledgement of a new epoch",
        "—",
        begun_anew,
        "An epoch was left halfway, and some of its results are still on their way when the next one begins. If "
        "one of them is taken for its worker's word that it has left the old epoch, the next batch of the old "
        "epoch is taken for one of the new. minidl's messages carry their epoch, and only a Resumed of the current "
        "one counts.",
        "it raised KeyError",
        (
            Edit(
                parallel.ParallelIterator,
                "_resume_workers",
                "if isinstance(message, Resumed) and message.epoch_id == self._epoch_id:",
                "if True:",
            ),
        ),
        bounds={"delays": 1, "faults": 0},
    ),
]
