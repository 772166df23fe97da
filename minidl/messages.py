"""What travels on the queues, as small dataclasses. (All are frozen but the two that every batch needs: making a frozen
one takes three times as long.)

torch tells these apart by their shape: `(idx, index)`, `(idx, data)`, `(r, None)`, `None`, `(None, None)`.
Here each has a name. All of them have an `epoch_id` and a `task_id`, so that a queue can report which message it moves
without knowing its type; the `task_id` of one that carries no task is its negative code.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch._utils import ExceptionWrapper

from minidl.events import DIED, RESUME, STOP, WAKE
from minidl.transport import NO_SLOT


def _with_traceback(error: Exception) -> tuple[Any, Any, Any]:
    return type(error), error, error.__traceback__


@dataclass
class Task:
    """index_queue: make a batch of these keys. torch: `(idx, index)`"""

    epoch_id: int
    task_id: int
    keys: Any
    slot: int = NO_SLOT  # for its batch; see minidl.transport
    fresh: bool = False  # whether the slot needs new memory

    def unsendable(self, error: Exception) -> Task:
        """What to send when the keys cannot be pickled: the worker hands the error back as the task's result."""
        return replace(self, keys=ExceptionWrapper(_with_traceback(error), "in the index queue's feeder thread"))


@dataclass(frozen=True)
class Resume:
    """index_queue: a new epoch of a persistent worker begins. torch: `_ResumeIteration`"""

    epoch_id: int
    task_id = RESUME


@dataclass(frozen=True)
class Stop:
    """index_queue: nothing more comes, leave the loop. torch: `None`"""

    epoch_id: int
    task_id = STOP


@dataclass
class Result:
    """worker_result_queue, data_queue: what became of a task. torch: `(idx, data)`

    `data` is the batch, an `ExceptionWrapper` in its place, or a `StreamEnd`. In the worker, `room` is where its memory
    is: see minidl.transport.
    """

    epoch_id: int
    task_id: int
    worker_id: int
    data: Any
    room: Any = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Result, (self.epoch_id, self.task_id, self.worker_id, self.data)

    def unsendable(self, error: Exception) -> Result:
        """What to send when the batch cannot be pickled."""
        where = f"in DataLoader worker process {self.worker_id}, pickling its batch"
        return replace(self, data=ExceptionWrapper(_with_traceback(error), where))


@dataclass(frozen=True)
class StreamEnd:
    """In a Result: the worker's iterable dataset has no more samples. torch: `_IterableDatasetStopIteration`"""

    worker_id: int


@dataclass(frozen=True)
class Resumed:
    """worker_result_queue, data_queue: a worker acknowledges a Resume. torch: `(_ResumeIteration, None)`"""

    epoch_id: int
    worker_id: int
    task_id = RESUME


@dataclass(frozen=True)
class Died:
    """Never crosses a pipe: a Consumer makes it when the process at the other end has ended (in main: a worker; in a
    worker: main). The pin thread passes it on. torch has none; see docs/differences.md."""

    epoch_id: int
    worker_id: int
    task_id = DIED


@dataclass(frozen=True)
class Failed:
    """data_queue: the pin thread itself failed; `error` is why. torch: main polls `is_alive()`"""

    epoch_id: int
    error: BaseException
    task_id = WAKE
