"""Exercises 10 to 13: a learner's functions called alone, on what has only the fields in the legend. What they call
is written down, and may raise. (`answer` is anything whose `names` are the learner's.)"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
from torch._utils import ExceptionWrapper

from minidl import deaths, parallel, pinning, shutdown
from minidl.messages import Died, Failed, Result, Resume, Resumed, StreamEnd
from minidl.queues import Stopped
from minidl.states import WorkerState
from notebooks.exercises.catalogue.pinning_programs import Batch


@contextlib.contextmanager
def instead(answer: Any, module: Any, **functions: Any) -> Iterator[None]:
    """These functions in place of minidl's, for the answer and for minidl."""
    places = [(names, name) for names in (vars(module), answer.names) for name in functions if name in names]
    before = [names[name] for names, name in places]
    for names, name in places:
        names[name] = functions[name]
    try:
        yield
    finally:
        for (names, name), old in zip(places, before, strict=True):
            names[name] = old


# ---- exercise 10

THREADS = 7  # the epoch in which the pin thread was started; the messages are of a later one


class RaisesWhenPinned(Batch):
    """Pinning it raises an error of this type."""

    def __init__(self, error: type[Exception]) -> None:
        super().__init__([0])
        self.error = error

    def pin_memory(self) -> Any:
        raise self.error("no memory is left to lock")

    def __str__(self) -> str:
        return f"whose pin_memory raises {self.error.__name__}"


def comes() -> list[Any]:
    """What `results.get()` returns or raises, one after the other."""
    missing = ExceptionWrapper((KeyError, KeyError("a sample is missing"), None), "in worker 0")
    return [
        Result(9, 0, 1, Batch([0])),
        FileNotFoundError("the shared memory is gone"),
        Result(9, 1, 0, RaisesWhenPinned(ValueError)),
        Result(9, 5, 0, RaisesWhenPinned(KeyError)),
        EOFError("half a message"),
        Result(9, 6, 1, RaisesWhenPinned(RuntimeError)),
        Result(9, 7, 1, RaisesWhenPinned(OSError)),
        Resumed(9, 1),
        AttributeError("no such class"),
        Result(9, 2, 1, StreamEnd(1)),
        Died(9, 1),
        Result(9, 3, 0, missing),
        Result(8, 4, 0, Batch([4])),
    ]


def said(message: Any) -> str:
    if isinstance(message, Failed):
        return f"Failed({message.epoch_id}, {message.error!r})"
    if isinstance(message, Result):
        return f"Result({message.epoch_id}, {message.task_id}, {message.worker_id}, {_data(message.data)})"
    return repr(message) if isinstance(message, (Resumed, Died)) else type(message).__name__


def _data(data: Any) -> str:
    if isinstance(data, ExceptionWrapper):
        return f"an ExceptionWrapper of {getattr(data.exc_type, '__name__', data.exc_type)}"
    return f"batch {data}" if isinstance(data, Batch) else repr(data)


def passed_on() -> list[str]:
    """What `pin_loop` puts into data_queue."""
    coming, found = comes(), []

    def get() -> Any:
        if not coming:
            raise Stopped
        message = coming.pop(0)
        if isinstance(message, Exception):
            raise message
        return message

    queue = SimpleNamespace(put=lambda message: found.append(said(message)))
    world = SimpleNamespace(name_thread=lambda name: None)
    threads = torch.get_num_threads()
    loop: Any = pinning.pin_loop
    try:
        loop(world, SimpleNamespace(get=get), queue, pinning.HOST, None, THREADS)
    finally:
        torch.set_num_threads(threads)
    return found


# ---- exercise 11

OLD, NEW = 4, 5  # epochs
FAILED = ExceptionWrapper((ValueError, ValueError("this sample cannot be read"), None), "in worker 0")


@dataclass
class Handshake:
    """A loader at the beginning of an epoch. Worker k answers a Resume after old[k]; `first` comes first."""

    words: str
    states: str = "AAA"  # A: ACTIVE, E: EXHAUSTED, D: DEAD
    old: tuple[tuple[Any, ...], ...] = ((), (), ())
    order: tuple[int, ...] = (0, 1, 2)  # in which the workers' messages come, in turn
    timeout: float = 0
    raises_at: int | None = None  # the call of _get_data that raises
    coming: dict[int, list[Any]] = field(default_factory=dict)
    answered: set[int] = field(default_factory=set)
    waits: list[str] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)

    def iterator(self) -> Any:
        """A real one, for an answer may have methods of its own; but nothing is built."""
        states = {"A": WorkerState.ACTIVE, "E": WorkerState.EXHAUSTED, "D": WorkerState.DEAD}
        loader: Any = object.__new__(parallel.ParallelIterator)
        self.coming = {worker_id: list(self.old[worker_id]) for worker_id in self.order}
        vars(loader).update(
            _shutdown=True,
            _failure=None,
            _epoch_id=NEW,
            _timeout=self.timeout,
            _num_workers=len(self.states),
            _workers_status=[states[each] for each in self.states],
            _index_queues=[
                SimpleNamespace(put=functools.partial(self.put, worker_id)) for worker_id in range(len(self.states))
            ],
            _transports=[SimpleNamespace(reclaim=lambda: None) for _ in self.states],
            _get_data=lambda timeout: self.get(loader, timeout),
            _task_info={},
            _workers=[SimpleNamespace(join=lambda timeout: None, exitcode=-9, pid=100 + k) for k in range(3)],
            _world=SimpleNamespace(signal_name=lambda number: "SIGKILL", signal_id=lambda number: "SIGKILL"),
        )
        return loader

    def put(self, worker_id: int, message: Any) -> None:
        self.sent.append(f"{message!r} to worker {worker_id}")
        if message == Resume(NEW):
            self.coming[worker_id].append(Resumed(NEW, worker_id))

    def get(self, loader: Any, timeout: float) -> Any:
        active = all(each is WorkerState.ACTIVE for each in loader._workers_status)
        with_timeout = "" if timeout == self.timeout else f", with the timeout {timeout} instead of {self.timeout}"
        self.waits.append(f"waits while {'all are' if active else 'not all are'} ACTIVE{with_timeout}")
        if len(self.waits) - 1 == self.raises_at:
            raise RuntimeError("DataLoader timed out")
        for worker_id in self.order:
            if self.coming[worker_id]:
                message = self.coming[worker_id].pop(0)
                self.order = (*(each for each in self.order if each != worker_id), worker_id)
                self.answered |= {worker_id} if message == Resumed(NEW, worker_id) else set()
                return message
        raise RuntimeError("nothing can come any more: main waits for ever")

    def shaken(self) -> list[str]:
        try:
            self.iterator()._resume_workers()
        except (RuntimeError, ValueError) as error:
            dead = [f"raises: worker {k} is dead" for k in range(3) if f"This was worker {k}" in str(error)]
            waited = "before it waits" if not self.waits else "having waited"
            return [f"{dead[0]}, {waited}"] if dead else [f"raises {error}"]
        told = sorted(set(self.sent)) if len(self.sent) == 3 else self.sent
        ended = f"returns when workers {sorted(self.answered)} have answered"
        return [*told, *sorted(set(self.waits)), ended]


# ---- exercise 12


@dataclass
class Watched:
    """An iterator whose workers have these states, and are alive or not; and its pin thread: None for none."""

    states: str  # A: ACTIVE, E: EXHAUSTED, D: DEAD; in capitals if alive
    pin: bool | None = None
    exitcode: int | None = -9  # of those that have ended
    failed: list[str] = field(default_factory=list)
    removed: list[int] = field(default_factory=list)

    def iterator(self) -> Any:
        states = {"a": WorkerState.ACTIVE, "e": WorkerState.EXHAUSTED, "d": WorkerState.DEAD}
        return SimpleNamespace(
            _workers=[self.worker(each) for each in self.states],
            _workers_status=[states[each.lower()] for each in self.states],
            _ending_of=list(range(len(self.states))),
            _endings=SimpleNamespace(remove=self.remove),
            _pin_memory_thread=None if self.pin is None else SimpleNamespace(is_alive=lambda: self.pin),
            _failure=None,
            _epoch_id=7,
        )

    def worker(self, state: str) -> Any:
        return SimpleNamespace(is_alive=state.isupper, exitcode=None if state.isupper() else self.exitcode)

    def remove(self, ending: int) -> None:
        if ending in self.removed or self.states[ending].lower() == "d":
            raise KeyError(f"the ending of worker {ending} was removed before")
        self.removed.append(ending)

    def fail(self, iterator: Any, what: Any) -> None:
        self.failed.append("the pin thread" if isinstance(what, str) else f"worker {what}")
        raise RuntimeError(self.failed[-1])

    def checked(self, answer: Any, check: Callable[[Any], Any]) -> str:
        """What is reported, and of which workers it is then noted that they are dead."""
        iterator = self.iterator()
        with instead(answer, deaths, fail=self.fail, fail_for_death=self.fail), contextlib.suppress(RuntimeError):
            check(iterator)
        noted = [k for k, each in enumerate(iterator._workers_status) if each is WorkerState.DEAD]
        new = [k for k in noted if self.states[k].lower() != "d"]
        matter = [k for k in new if self.states[k] == "a"]  # a worker whose stream had ended may be noted, or not
        amiss = " (noted, but its ending was not removed, or the other way round)" * (sorted(self.removed) != new)
        moved = " (and _ending_of was changed)" * (iterator._ending_of != list(range(len(self.states))))
        return f"reports {' and '.join(self.failed) or 'nothing'}; noted as dead: {matter}{amiss}{moved}"


def checked_health(iterator: Any) -> None:
    deaths.check_health(iterator)


def noticed_end(number: int, iterator: Any) -> None:
    deaths.worker_ended(iterator, number)


# ---- exercise 13

NEVER = math.inf


@dataclass
class Loader:
    """An iterator that is to be shut down. Its workers end so many seconds after they were told to."""

    ends: tuple[float, ...]
    raises_in: str = ""  # this step, or a join
    error: type[BaseException] = KeyboardInterrupt
    own: bool = True  # it was built by this process
    pin_takes: float = 0.0  # seconds until the pin thread has ended
    status: WorkerState = WorkerState.ACTIVE  # of all workers, which are persistent
    again: bool = False  # in the first join it is shut down once more, as by a finalizer
    did: list[str] = field(default_factory=list)
    now: float = 100.0
    told: dict[int, float] = field(default_factory=dict)
    built: Any = None

    def iterator(self) -> Any:
        return SimpleNamespace(
            _shutdown=False,
            _owner_pid=1 if self.own else 2,
            _epoch_id=7,
            _task_info={},
            _joined=set(),
            _world=SimpleNamespace(pid=lambda: 1, now=lambda: self.now),
            _workers=[self.worker(k) for k in range(len(self.ends))],
            _workers_status=[self.status] * len(self.ends),
            _persistent_workers=True,
            _workers_done_event=SimpleNamespace(
                set=lambda: self.does("sets the done event"), is_set=lambda: "sets the done event" in self.did
            ),
        )

    def worker(self, number: int) -> Any:
        def join(timeout: float | None = None) -> None:
            self.does("", "join")
            if self.again:
                self.again = False
                shutdown.shut_down(self.built)
            until = self.told.get(number, NEVER) + self.ends[number]
            self.now = max(self.now, min(until, self.now + (NEVER if timeout is None else timeout)))

        def is_alive() -> bool:
            return self.now < self.told.get(number, NEVER) + self.ends[number]

        class Worker:
            exitcode = property(lambda self: None if is_alive() else 0)

        worker: Any = Worker()
        worker.join, worker.is_alive = join, is_alive
        return worker

    def does(self, what: str, step: str = "") -> None:
        if what:
            self.did.append(what)
        self.now += self.pin_takes if what == "stop_pin_thread" else 0.0
        if self.raises_in and self.raises_in in (what, step):
            self.raises_in = ""
            raise self.error

    def tell(self, iterator: Any, worker_id: int) -> None:
        self.told.setdefault(worker_id, self.now)
        self.does(f"tells worker {worker_id} to stop", "tell_to_stop")

    def shut_down(self, answer: Any) -> list[str]:
        steps = ("stop_pin_thread", "use_force", "close_queues", "end_pin_thread")
        recorded = {step: lambda _, step=step: self.does(step) for step in steps}
        signals = SimpleNamespace(unwatch=lambda _: self.does("signals.unwatch"))
        iterator = self.built = self.iterator()
        with instead(answer, shutdown, tell_to_stop=self.tell, signals=signals, **recorded):
            for _ in range(2):
                try:
                    shutdown.shut_down(iterator)
                except BaseException as error:
                    if not isinstance(error, self.error):
                        raise
                    self.did.append(f"raises {type(error).__name__}")
        return self.did


def in_order(loader: Loader, answer: Any) -> list[str]:
    """What the shutdown does; the workers may be told in any order."""
    did = [each for each in loader.shut_down(answer) if each != "end_pin_thread"]
    told = sorted({each for each in did if each.startswith("tells")})  # a second call is harmless
    first = next((k for k, each in enumerate(did) if each.startswith("tells")), len(did))
    rest = [each for each in did if not each.startswith("tells")]
    return [*rest[:first], *told, *rest[first:], f"after {min(loader.now, 1e9) - 100.0:.1f} s"]


def after_an_error(loader: Loader, answer: Any) -> list[str]:
    """What must be done whatever was raised."""
    step = loader.raises_in
    did = loader.shut_down(answer)
    last = [each for each in did if each in ("use_force", "close_queues", "signals.unwatch") or "raises" in each]
    return ["end_pin_thread"] * (step == "stop_pin_thread" and "end_pin_thread" in did) + last


def in_the_last_steps(loader: Loader, answer: Any) -> list[str]:
    """Main must stop watching. (Whether step 5 is done after an exception in step 4 is left open.)"""
    return sorted({each for each in loader.shut_down(answer) if each == "signals.unwatch" or "raises" in each})
