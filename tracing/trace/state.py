"""What a loader looks like after one event: the vocabulary of `trace.state(k)`. Every view reads this.

tracing.trace.state_after_event computes it; this only defines it.

Legend
    k           1234               position of an event in `trace.events`
    label       7, or "STOP"       what a message is: the task it carries, or the name of a message that has none
    task_id     7                  counts from 0 in every epoch
    time, since 81_234_000_000     ns, the clock of the events
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

Label = int | str  # a task id, or "STOP", "RESUME", "WAKE", "DIED"; "?" for one that could not be unpickled


class WorkerStatus(enum.Enum):
    """What a worker's main thread is doing. (Its feeder thread sends at the same time.)"""

    STARTING = "starting"  # main has asked for the process; it runs, imports, seeds, calls worker_init_fn
    IDLE = "idle"  # between two tasks, about to look at its index_queue
    WAITING = "waiting"  # nothing in its index_queue
    TAKING = "taking"  # unpickles a message, or has just done so
    FETCHING = "fetching"  # asks the dataset for samples
    COLLATING = "collating"  # makes a batch of them
    SENDING = "sending"  # has a result and is about to put it on its result queue
    RESUMING = "resuming"  # has taken Resume and makes a new fetcher
    STREAM_ENDED = "stream ended"  # its iterable dataset has no more samples; waits for Resume or Stop
    STOPPED = "stopped"  # has left its loop
    DEAD = "dead"  # main has noticed that it died
    REAPED = "reaped"  # it has exited and main has joined it


class PinStatus(enum.Enum):
    """What the pin thread is doing."""

    NONE = "none"  # this loader has no pin thread
    STARTING = "starting"  # has run its first line, and taken nothing yet
    WAITING = "waiting"  # nothing in any worker's result queue
    TAKING = "taking"  # unpickles a message, or has just done so
    PINNING = "pinning"  # copies a batch into page-locked memory
    PASSING_ON = "passing on"  # puts it on data_queue
    ENDED = "ended"


class MainStatus(enum.Enum):
    """What the thread that iterates is doing."""

    STARTING = "starting"  # builds the iterator, starts workers, hands out the first tasks
    RESUMING = "resuming"  # waits for the workers to acknowledge a new epoch
    TRAINING = "training"  # is not in the loader: the training step has the batch
    DRAWING = "drawing"  # asks the sampler for keys
    DISPATCHING = "dispatching"  # chooses a worker and puts a task on its queue
    WAITING = "waiting"  # nothing to take: waits for a result
    TAKING = "taking"  # unpickles a result, or has just done so
    HANDLING = "handling"  # in the loader, between two of the others: notes what came, chooses what to do
    FETCHING = "fetching"  # without workers: asks the dataset for samples
    COLLATING = "collating"  # without workers: makes the batch
    PINNING = "pinning"  # without workers: copies it into page-locked memory
    RAISED = "raised"  # has raised an error to the training loop
    ENDED = "epoch ended"  # has raised StopIteration
    SHUTTING_DOWN = "shutting down"
    CLOSED = "closed"  # the shutdown is complete


# Not in any code of this loader.
OUTSIDE = (MainStatus.TRAINING, MainStatus.RAISED, MainStatus.ENDED, MainStatus.CLOSED)


class TaskStatus(enum.Enum):
    """Why a task is in `task_info`."""

    OUTSTANDING = "outstanding"  # sent to its worker; its result has not been received
    STORED = "stored"  # received early: its batch is in the reorder buffer
    STREAM_ENDED = "stream ended"  # its worker had no more samples: it will be passed over when its turn comes
    LOST = "lost"  # its worker died


@dataclass
class TaskState:
    """An entry of `task_info`."""

    worker: int  # the worker it was sent to
    status: TaskStatus


class SlotStatus(enum.Enum):
    """Who has a slot: memory for a batch, which a worker and main share (see minidl.transport)."""

    FREE = "free"  # main may grant it
    GRANTED = "granted"  # its worker may put the batch of one task there
    FILLED = "filled"  # the batch is there, and is on its way
    LENT = "lent"  # main, or the caller, has the batch


@dataclass
class SlotState:
    """One slot of a worker."""

    status: SlotStatus
    task: int  # that it is granted to, or whose batch is there (perhaps of an earlier epoch), else -1


@dataclass
class QueueState:
    """What is in one queue, in order: the next to be taken first."""

    buffer: list[Label] = field(default_factory=list)  # put, and not yet written to the pipe by the feeder thread
    pipe: list[Label] = field(default_factory=list)  # written to the pipe, and not yet taken (data_queue has no pipe)
    pickling: bool = False  # the feeder thread is pickling buffer[0]

    def __len__(self) -> int:
        return len(self.buffer) + len(self.pipe)

    @property
    def messages(self) -> list[Label]:
        """Everything in the queue, the next to be taken first."""
        return self.pipe + self.buffer


@dataclass
class WorkerState:
    """One worker process."""

    worker: int  # worker_id: 0 to num_workers - 1
    pid: int  # 0 until it is known
    status: WorkerStatus
    task: int  # the task in its hands, from GOT to its result's PUT; else -1
    since: int  # when the status began (ns)
    exit_code: int | None = None  # None until it is known; negative for a signal
    done: int = 0  # results it has put in this epoch
    slots: list[SlotState] = field(default_factory=list)  # those that it has been granted so far


@dataclass
class PinState:
    """The pin thread."""

    status: PinStatus
    task: int  # the task whose batch it holds, else -1
    since: int  # when the status began (ns)


@dataclass
class MainState:
    """The thread that iterates."""

    status: MainStatus
    since: int  # when the status began (ns)
    waits_for: int  # the task it waits for (any other that comes is stored), else -1
    in_hand: int  # the task whose batch it holds and has not yielded yet, else -1
    actor: int  # its index in trace.actors


@dataclass
class LoaderState:
    """One iterator of a loader: a fresh one each epoch, or with persistent workers the same in every epoch."""

    iterator: int  # which iterator of the trace: index into trace.loaders
    loader: int  # number of the DataLoader
    epoch: int  # the epoch it is in
    num_workers: int
    alive: bool  # False once it is shut down (without workers: once its epoch ended, or a later one took its place)
    send_idx: int  # the next task to be sent = how many were sent in this epoch
    rcvd_idx: int  # the first task that was neither yielded, nor skipped, nor is in main's hands
    tasks_outstanding: int  # sent, and their results not received
    yielded: int  # batches yielded in this epoch
    index_queues: list[QueueState]  # of each worker
    workers: list[WorkerState]  # each worker
    result_queues: list[QueueState]  # of each worker; together they are torch's worker_result_queue
    pin_thread: PinState
    data_queue: QueueState  # empty without a pin thread
    reorder_buffer: list[int]  # tasks whose batches came early, in ascending order
    waits_for_task: int  # the task that keeps them there (== rcvd_idx), -1 when the reorder buffer is empty
    task_info: dict[int, TaskState]  # as torch's _task_info: sent, and neither yielded nor in main's hands, ascending
    main: MainState
    shutdown_step: str  # name of the last step of the shutdown (a Kind), "" before it
    error: Any  # text of the last error raised to the training loop, None if there was none
    config: dict[str, Any]  # the loader's configuration, {} if it was not recorded


@dataclass
class State:
    """Everything after event `k`."""

    k: int  # position of the event; -1 for a trace without events
    time: int  # its time (ns)
    loaders: list[LoaderState]  # each iterator that is alive; if none is, the one that ended last
