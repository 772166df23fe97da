"""Exercise 6: a worker alone. It is handed one message after another, and all that it does is written down."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from torch._utils import ExceptionWrapper

import minidl
from minidl.messages import Died, Result, Resume, Resumed, Stop, StreamEnd, Task
from minidl.worker import Worker

WORKER, EPOCH = 1, 7  # the worker's number, and the epoch's id


@dataclass
class Alone:
    """A worker's surroundings: what it asks for comes from here."""

    messages: list[Any]  # the next ones; a function is called first, and returns one
    did: list[str] = field(default_factory=list)
    worker: Any = None
    is_done: bool = False
    has_fetched: bool = False  # since the last message

    def get(self) -> Any:
        if not self.messages:
            raise RuntimeError("the worker waits for another message, and none comes")
        self.has_fetched = False
        message = self.messages.pop(0)
        message = message(self) if callable(message) else message
        self.did.append(f"takes {_name(message)}")
        return message

    def room(self, slot: int, fresh: bool) -> str:
        if self.has_fetched:
            self.did.append("asks for a room too late")
        return f"room {slot}"

    def fetches(self, sample: int) -> None:
        self.has_fetched = True
        self.did.append(f"fetches {sample}")

    def put(self, message: Any) -> None:
        self.did.append(f"puts {_name(message)}")


def _name(message: Any) -> str:
    if isinstance(message, Result):
        return f"the result of task {message.task_id} of worker {message.worker_id}: {_what(message.data)}"
    if isinstance(message, (Stop, Died, Resume, Resumed)):
        return f"a {type(message).__name__}"
    return f"task {message.task_id}" if isinstance(message, Task) else repr(message)


def _what(data: Any) -> str:
    if isinstance(data, ExceptionWrapper):
        of_another = [number for number in re.findall(r"\d+", str(data.where)) if int(number) != WORKER]
        said = f"{data.exc_type.__name__} ({data.exc_msg.strip().splitlines()[-1]})"
        return said + " of another worker" * bool(of_another)
    return f"StreamEnd({data.worker_id})" if isinstance(data, StreamEnd) else repr(data)


class Samples(minidl.Dataset[int]):
    """Map style: sample 3 raises ValueError, sample 5 StopIteration; at sample 8 Ctrl-C comes."""

    def __init__(self, around: Alone) -> None:
        self.around = around

    def __getitem__(self, key: int) -> int:
        self.around.fetches(key)
        if key in (3, 5):
            raise ValueError("sample 3") if key == 3 else StopIteration
        self.around.worker.interrupted |= key == 8
        return key


class Stream(minidl.IterableDataset[int]):
    """Two samples."""

    def __init__(self, around: Alone) -> None:
        self.around = around

    def __iter__(self) -> Iterator[int]:
        for sample in (10, 11):
            self.around.fetches(sample)
            yield sample


def task(number: int, *keys: int) -> Task:
    return Task(EPOCH, number, list(keys), slot=number)


def when_done(message: Any) -> Callable[[Alone], Any]:
    def call(around: Alone) -> Any:
        around.is_done = True
        return message

    return call


def at_ctrl_c(message: Any) -> Callable[[Alone], Any]:
    def call(around: Alone) -> Any:
        around.worker.note_interrupt()
        return message

    return call


def fails(around: Alone) -> None:
    around.did.append("calls worker_init_fn")
    raise ValueError("no licence")


def ctrl_c(around: Alone) -> None:
    around.did.append("calls worker_init_fn")
    around.worker.note_interrupt()


def counts(around: Alone) -> None:
    around.did.append("calls worker_init_fn")


UNSENT = ExceptionWrapper((StopIteration, StopIteration("in the keys"), None), "in the index queue's feeder thread")
STOP = Stop(EPOCH)
ENDS = task(0, 0, 0), task(1, 0)  # of Stream
NEW_EPOCH = (*ENDS, task(2, 0), Resume(EPOCH), task(0, 0), STOP)
SCRIPTS: tuple[tuple[str, Any, Callable[[Alone], None], tuple[Any, ...]], ...] = (
    ("two tasks, Stop, and a task behind it", Samples, counts, (task(0, 0, 1), task(1, 2), STOP, task(2, 4))),
    ("a task that raises between two others", Samples, counts, (task(0, 0), task(1, 3), task(2, 4), STOP)),
    ("a map-style dataset that raises StopIteration", Samples, counts, (task(0, 5), task(1, 1), STOP)),
    ("main shuts down: two tasks, then Stop", Samples, counts, (task(0, 0), when_done(task(1, 1)), task(2, 2), STOP)),
    ("main shuts down, and dies", Samples, counts, (task(0, 0), when_done(task(1, 1)), Died(EPOCH, WORKER), STOP)),
    ("Ctrl-C during a task", Samples, counts, (task(0, 8), task(1, 1), STOP)),
    ("Ctrl-C during a Resume", Samples, counts, (task(0, 0), at_ctrl_c(Resume(EPOCH)), task(0, 1), STOP)),
    ("Ctrl-C in worker_init_fn", Samples, ctrl_c, (task(0, 0), STOP)),
    ("worker_init_fn raises; two tasks", Samples, fails, (task(0, 0), task(1, 1), STOP)),
    ("keys that could not be pickled", Samples, counts, (Task(EPOCH, 0, UNSENT), task(1, 1), STOP)),
    ("a stream, and keys that could not be pickled", Stream, counts, (Task(EPOCH, 0, UNSENT), task(1, 0), STOP)),
    ("a stream's end, two more tasks, a new epoch", Stream, counts, NEW_EPOCH),
    ("Ctrl-C after a stream's end", Stream, counts, (*ENDS, at_ctrl_c(task(2, 0)), task(3, 0), STOP)),
)


def run(dataset: Any, init: Callable[[Alone], None], messages: tuple[Any, ...]) -> list[str]:
    """All that the worker does, and why it leaves its loop."""
    around = Alone(list(messages))
    job = SimpleNamespace(
        worker_id=WORKER,
        epoch_id=EPOCH,
        done=SimpleNamespace(is_set=lambda: around.is_done),
        dataset=dataset(around),
        init_fn=lambda _: init(around),
        auto_collation=True,
        collate_fn=list,
        drop_last=False,
        place=None,
        keys=None,
    )
    surroundings: Any = around
    around.worker = Worker(job, surroundings, surroundings, surroundings)  # type: ignore[arg-type]
    end = around.worker.loop()
    return [*around.did, f"leaves: {end!r}"]
