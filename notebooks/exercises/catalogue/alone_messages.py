"""Exercises 10 and 11: a learner's functions called alone, with messages that a run seldom or never brings. Each must
do what minidl's own does with them."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
from torch._utils import ExceptionWrapper

from minidl import parallel, pinning
from minidl.messages import Died, Failed, Result, Resume, Resumed, StreamEnd
from minidl.queues import Stopped
from minidl.states import WorkerState
from notebooks.exercises.answers import Answer
from notebooks.exercises.attempts import attempt
from notebooks.exercises.catalogue.alone import instead
from notebooks.exercises.catalogue.pinning_programs import Batch
from notebooks.exercises.exercise import Finding

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


def _comes() -> list[Any]:
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


def _said(message: Any) -> str:
    if isinstance(message, Failed):
        return f"Failed({message.epoch_id}, {message.error!r})"
    if isinstance(message, Result):
        return f"Result({message.epoch_id}, {message.task_id}, {message.worker_id}, {_data(message.data)})"
    return repr(message) if isinstance(message, (Resumed, Died)) else type(message).__name__


def _data(data: Any) -> str:
    if isinstance(data, ExceptionWrapper):
        return f"an ExceptionWrapper of {getattr(data.exc_type, '__name__', data.exc_type)}"
    return f"batch {data}" if isinstance(data, Batch) else repr(data)


def _passed_on() -> list[str]:
    """What `pin_loop` puts into data_queue."""
    coming, found = _comes(), []

    def get() -> Any:
        if not coming:
            raise Stopped
        message = coming.pop(0)
        if isinstance(message, Exception):
            raise message
        return message

    queue = SimpleNamespace(put=lambda message: found.append(_said(message)))
    world = SimpleNamespace(name_thread=lambda name: None)
    threads = torch.get_num_threads()
    loop: Any = pinning.pin_loop
    try:
        loop(world, SimpleNamespace(get=get), queue, pinning.HOST, None, THREADS)
    finally:
        torch.set_num_threads(threads)
    return found


PASSES_ON = (
    "Each message leads to one in data_queue, whatever came before: as it is, or with the batch pinned, or with the "
    "exception in the batch's place and the Result's own three numbers. What get() raises becomes a Failed with "
    f"`pin_loop`'s epoch_id (here {THREADS}) and the exception itself, and the loop goes on until Stopped."
)


def passes_on(answer: Answer) -> Finding | None:
    expected = _passed_on()
    tried = attempt(answer, "pin_loop, with one message of each kind", _passed_on)
    if tried.error is not None:
        return tried.finding("a message is not passed on", f"{len(expected)} messages in data_queue", PASSES_ON)
    for number, wanted in enumerate(expected):
        got = tried.value[number] if number < len(tried.value) else "nothing"
        if got != wanted:
            came = _comes()[number]
            what = f"raises {came!r}" if isinstance(came, Exception) else f"returns {_said(came)}"
            tried.call, tried.got = f"pin_loop, when results.get() {what}", got
            return tried.finding("a message is not passed on", wanted, PASSES_ON)
    return None


def pins_alone(answer: Answer) -> Finding | None:
    """`pinned` with another device, and another epoch than the thread's."""

    def pinned(raises: bool) -> str:
        def pin_batch(batch: Any, device: Any, epoch_id: int, task_id: int, worker_id: int) -> str:
            if raises:
                raise ValueError("this batch cannot be pinned")
            return f"{batch} on {device}, of epoch {epoch_id}, task {task_id}, worker {worker_id}"

        with instead(answer, pinning, pin_batch=pin_batch):
            found = pinning.pinned(Result(9, 3, 1, "batch"), "host" if raises else "cuda")
        data = found.data.exc_type.__name__ if isinstance(found.data, ExceptionWrapper) else found.data
        return f"Result({found.epoch_id}, {found.task_id}, {found.worker_id}, {data})"

    for raises, words in ((False, ""), (True, ", where pin_batch raises ValueError")):
        expected = pinned(raises)
        device = "host" if raises else "cuda"
        call = f"pinned(Result(9, 3, 1, batch), {device!r}){words}"
        tried = attempt(answer, call, functools.partial(pinned, raises))
        if tried.value != expected and not (raises and isinstance(tried.error, ValueError)):  # the loop may catch it
            cause = "The device is `pinned`'s argument, and the three numbers are the Result's own, whatever happens."
            return tried.finding("other numbers, or another device", expected, cause)
    return None


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


def _handshakes() -> Iterator[Handshake]:
    yield Handshake("three workers, and nothing of the old epoch")
    results = (Result(OLD, 2, 0, [2]), Result(OLD, 3, 0, FAILED), Result(OLD, 4, 0, StreamEnd(0)))
    late = Resumed(OLD, 0)
    for order in ((0, 1, 2), (2, 1, 0), (1, 0, 2)):
        words = f"the workers {', '.join(map(str, order))} answer in this order; worker 0"
        yield Handshake(
            f"{words} still sends a batch, an exception and the end of its stream", "EAA", (results, (), ()), order
        )
        yield Handshake(f"{words} still sends a Resumed of the old epoch", "AEA", ((late,), (), ()), order, 30.0)
        yield Handshake(f"{words} and worker 2 send much of the old", "EEE", ((late, *results), (), results), order)
    for states in ("DAA", "AAD", "EDE"):
        yield Handshake(f"worker {states.index('D')} is DEAD", states)
    for call in (0, 2):
        yield Handshake("`_get_data` raises: nothing has come in time", raises_at=call, timeout=30.0)


SHAKES = (
    "A DEAD worker is reported first. Then all are ACTIVE before the first wait, each is sent one Resume of the new "
    "epoch, and main waits with the user's timeout until each has answered that one. What else comes is dropped, "
    "whatever is in it, and what `_get_data` raises goes on to the caller."
)


def shakes_hands(answer: Answer) -> Finding | None:
    for number, scene in enumerate(_handshakes()):
        expected = scene.shaken()
        mine = list(_handshakes())[number]
        tried = attempt(answer, f"_resume_workers(): {scene.words}", mine.shaken)
        if tried.value != expected:
            tried.got = "; ".join(tried.value) if tried.error is None else tried.got
            return tried.finding("the steps of the handshake", "; ".join(expected), SHAKES)
    return None
