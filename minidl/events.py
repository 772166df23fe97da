"""The lowest layer: the events that a loader reports while it works, and `emit()`, which reports them.

Principles
1. An event is emitted before any other thread can see what it announces (a put before the message is in the
   buffer, a take after it has left), so that sorting by time never shows an effect before its cause.
2. Without a recorder `emit` costs a call and a test. With one it must not disturb what it describes: no lock,
   and no system call except to read the CPU clock. It takes a lock only when its file opens or grows
   (tracing.recording.event_writer).
3. A recorder that raises is removed and reported once; it never breaks the loader.
4. Each kind is emitted by exactly one line of minidl (a test checks this; data_queue, the one queue without a
   pipe, has lines of its own), so the line that emitted an event follows from its kind and its queue and need
   not be recorded: walking the frames would double the cost.

Legend, the same everywhere
    task_id    3                  one batch to be made; counts from 0 in every epoch (torch: idx)
    keys       [12, 13, 14, 15]   what the sampler drew for that task (torch: index)
    batch      {"x": Tensor}      what the task becomes
    worker_id  0                  0 to num_workers - 1
    epoch      0                  counts the passes over one DataLoader
    epoch_id   1 << 32 | 0        which epoch of which loader, in one number: `loader << 32 | epoch`
"""

from __future__ import annotations

import contextlib
import enum
import itertools
import sys
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING

NO_TASK = -1  # the event concerns no task ...
STOP, RESUME, WAKE, DIED = -2, -3, -4, -5  # ... or a message that carries none: see minidl.messages
NO_WORKER = -1


class Queue(enum.IntEnum):
    """Which queue an event concerns. The names are torch's."""

    NONE = 0
    INDEX = 1  # index_queue: main to one worker; `worker` says which
    RESULT = 2  # worker_result_queue: one worker to main, or to the pin thread; `worker` says which
    DATA = 3  # data_queue: pin thread to main, inside one process: no feeder, no pipe


class Kind(enum.IntEnum):
    """What happened. Each member: its number, what emits it, when (words that follow the thread's name, with the fields
    {batch}, {worker}, {queue}, {epoch}, {error}, {value}, and {exit}, {size} or {slot}, which a value is), and what
    `value` and `text` hold.

    Every event also has a time, the thread that emitted it, an epoch_id, and, where they apply, a task, a
    worker and a queue. Kinds below `CLOCKED` carry in `value` the CPU time (ns) that their thread had used:
    the difference between a begin and its end, next to the wall time, shows how much was computing and how much waiting.
    """

    who: str
    when: str
    value_is: str
    text_is: str

    def __new__(cls, number: int, who: str, when: str, value_is: str = "", text_is: str = "") -> Kind:
        kind = int.__new__(cls, number)
        kind._value_ = number
        kind.who, kind.when, kind.value_is, kind.text_is = who, when, value_is, text_is
        return kind

    # fmt: off
    # The work itself: the thread's CPU time rides along in `value`.
    FETCH_BEGIN = 1, "worker, or main without workers", "fetches {batch}", "CPU ns"
    FETCH_END = 2, "worker, or main without workers", "has the samples of {batch}", "CPU ns"
    COLLATE_BEGIN = 3, "worker, or main without workers", "starts to collate {batch}", "CPU ns"
    COLLATE_END = 4, "worker, or main without workers", "has collated {batch}", "CPU ns", "in torch's loader, of the first batch of an epoch: its tensors, their bytes, other objects, how much is padding, and caches, generators and files that it has used; of a stream in a worker also a digest of its first samples"
    PIN_BEGIN = 5, "pin thread, or main without workers", "pins {batch}", "CPU ns"
    PIN_END = 6, "pin thread, or main without workers", "has pinned {batch}", "CPU ns"
    FETCH_FAILED = 7, "worker, or main without workers", "passes on an error instead of {batch}", "CPU ns", "the exception of the dataset, collate_fn or worker_init_fn"
    PIN_FAILED = 8, "pin thread", "passes on an error instead of {batch}", "CPU ns", "the exception"

    # Any queue. A message without a task has a negative `task`: STOP, RESUME, WAKE or DIED.
    PUT = 16, "producer", "puts {batch} on {queue}"
    SEND_BEGIN = 17, "producer, or its feeder thread", "pickles {batch} for {queue}"
    SENT = 18, "producer, or its feeder thread", "writes {batch} to the pipe of {queue}", "bytes"
    WAIT = 19, "consumer", "finds nothing in {queue} and waits", "timeout in ns, 0 for none"
    ARRIVED = 20, "consumer", "has read a message off the pipe of {queue} and unpickles it", "bytes"
    GOT = 21, "consumer", "has taken {batch} from {queue}", "", "the error, if it could not be unpickled"
    TIMED_OUT = 22, "consumer", "stops waiting for {queue}: time is up"
    SEND_FAILED = 23, "producer, or its feeder thread", "could not send {batch}", "", "the error: in pickling, and one is sent in its place; or the reading end is closed"
    FEEDER_BEGIN = 24, "feeder thread", "starts: it will send what is put on {queue}"
    FEEDER_END = 25, "feeder thread", "ends: {queue} is closed and its buffer is empty"
    CLOSED = 26, "producer", "closes {queue}: nothing more will be put on it", "messages still buffered, which its feeder sends before it ends"

    # Main, one step of the iteration.
    ASKED = 32, "main", "asks for the next batch"
    YIELDED = 33, "main", "hands {batch} to the training loop", "batches yielded in this epoch so far"
    KEYS_BEGIN = 34, "main", "asks the sampler for the keys of {batch}"
    KEYS_DRAWN = 35, "main", "has drawn the keys of {batch}", "", "the keys"
    SAMPLER_END = 36, "main", "has drawn all keys that the sampler had", "tasks drawn in this epoch"
    RECEIVED = 37, "main", "receives {batch}: {value} still outstanding", "tasks still outstanding: `_tasks_outstanding`"
    STORED = 38, "main", "keeps {batch} for later: {value} comes first", "the task that comes first: `_rcvd_idx`"
    RELEASED = 39, "main", "takes {batch} out of the reorder buffer"
    DISPATCHED = 40, "main", "sends {batch} to worker {worker}", "tasks now outstanding; `_send_idx` goes up"
    NO_CAPACITY = 41, "main", "has no worker for a task: drops its keys"

    # Epochs and start-up.
    LOADER = 48, "main", "builds an iterator", "num_workers", "the loader; in a trace its configuration, as a mapping"
    WORKER_STARTING = 49, "main", "starts worker {worker}"
    WORKER_STARTED = 50, "main", "has started worker {worker}", "pid"
    WORKER_BEGIN = 51, "worker", "runs its first line", "pid"
    WORKER_SEEDED = 52, "worker", "has seeded torch, random and numpy", "the seed"
    INIT_FN_BEGIN = 53, "worker", "calls worker_init_fn"
    INIT_FN_END = 54, "worker", "has returned from worker_init_fn"
    WORKER_READY = 55, "worker", "waits for its first task"
    PIN_THREAD_BEGIN = 56, "pin thread", "runs its first line"
    EPOCH_BEGIN = 57, "main", "begins epoch {epoch}", "the previous epoch_id of a persistent iterator, else -1", "in torch's loader, attributes of the dataset that main has changed since its workers started"
    PRIMED = 58, "main", "has sent every worker its first tasks", "tasks sent: prefetch_factor for each worker"
    WORKER_RESUMED = 59, "worker", "is done with the old epoch"
    RESUME_ACKNOWLEDGED = 60, "main", "learns that worker {worker} has resumed: {value} to go", "workers still to acknowledge"
    STREAM_END = 61, "worker", "has no more samples: its stream has ended"
    WORKER_EXHAUSTED = 62, "main", "learns that worker {worker}'s stream has ended"
    TASK_SKIPPED = 63, "main", "skips {batch}: its worker's stream has ended"
    EPOCH_END = 64, "main", "ends the epoch: {value} batches", "batches yielded", "in torch's loader, that an itertools.cycle has them all"

    # Errors and deaths.
    ERROR_RAISED = 72, "main", "raises {error}", "1 if it repeats an earlier error that lost a task, else 0", "the error"
    WORKER_DIED = 73, "main", "notices that worker {worker} died ({exit})", "exit code, negative for a signal", "what is known of the death"
    TASK_LOST = 74, "main", "gives up {batch}: worker {worker} had it"
    PARENT_DIED = 75, "worker", "has noticed that main is dead"

    # Shutdown, in the order of its steps.
    SHUTDOWN_BEGIN = 80, "main", "starts to shut the loader down", "batches not yet yielded"
    PIN_STOPPING = 81, "main", "tells the pin thread to end"
    PIN_THREAD_END = 82, "pin thread", "runs its last line"
    PIN_JOINED = 83, "main", "has waited for the pin thread to end", "1 if it has ended, 0 if the bounded wait ran out"
    DONE_SET = 84, "main", "sets the workers' done event"
    WORKER_END = 85, "worker", "leaves its loop", "0 stopped, 1 main is dead, 2 interrupted, 3 an error", "in torch's loader, that error"
    JOIN_BEGIN = 86, "main", "waits for worker {worker} to exit", "the bound in ns"
    WORKER_JOINED = 87, "main", "reaps worker {worker} ({exit})", "exit code, negative for a signal"
    WORKER_TERMINATED = 88, "main", "sends SIGTERM to worker {worker}: it did not exit"
    WORKER_KILLED = 89, "main", "sends SIGKILL to worker {worker}"
    SHUTDOWN_END = 90, "main", "has shut the loader down"

    # Resuming in mid-epoch: see minidl.stateful.
    STATE_TAKEN = 104, "main", "is asked for its state after {value} batches", "batches yielded in this epoch", "the keys that are in flight: `state_dict()`"
    GOES_ON = 105, "main", "goes on where {value} batches had been yielded", "batches yielded before", "the keys that were in flight: `load_state_dict()`"

    # Slots: see minidl.transport.
    SLOT_GRANTED = 96, "main", "grants {slot} to {batch}", "the slot, -1 if none is free"
    SLOT_FILLED = 97, "producer", "has laid {batch} into its memory: {size}", "bytes"
    SLOT_MADE = 98, "producer", "will send new memory with {batch}: {size}", "bytes; its slot's from now on, or the batch's own"
    SLOT_LENT = 99, "main or pin thread", "has built {batch} upon {slot}", "the slot, -1 for memory of its own"
    SLOT_FREE = 100, "main", "finds {slot} free: {batch} is gone", "the slot"
    # fmt: on


# Each kind's number is also a name of this module, so that a call reads `emit(PUT, ...)`: before Python 3.12 looking
# a member up in its enum takes longer than a whole `emit` without a recorder; and a recorder packs a plain int faster
# than a member.
globals().update({kind.name: kind.value for kind in Kind})
if TYPE_CHECKING:

    def __getattr__(name: str) -> int: ...


CLOCKED = 16  # kinds below this one carry the thread's CPU time


# What `emit` passes its arguments to. Pickled with a worker's arguments, so that a process started by spawn or
# forkserver records too.
Recorder = Callable[[int, int, int, int, int, int, object], None]

_recorder: Recorder | None = None


def emit(
    kind: int,
    epoch_id: int = 0,
    task: int = NO_TASK,
    worker: int = NO_WORKER,
    queue: int = 0,
    value: int = 0,
    text: object = None,
) -> None:
    """Report that something happened. `text` is anything that JSON or `repr` can render; only a recorder renders it."""
    if _recorder is None:
        return
    try:
        _recorder(kind, epoch_id, task, worker, queue, value, text)
    except Exception as error:
        if raised_by_handler(error):
            raise  # as it would have been without a recorder
        install(None)  # first: stderr may be the program's own, and emit again
        with contextlib.suppress(Exception):  # or be closed
            print("minidl: the event recorder failed and was removed; the load goes on.", file=sys.stderr)
            traceback.print_exc()


def install(recorder: Recorder | None) -> Recorder | None:
    """Make `recorder` the one that `emit` calls in this process; return the one it replaces."""
    global _recorder
    previous, _recorder = _recorder, recorder
    return previous


def installed() -> Recorder | None:
    """The recorder in use, which a worker process is given, too."""
    return _recorder


def describe(error: object, as_repr: bool = True) -> str:
    """`repr(error)`, or its type and text. Never raises: that would hide the error, or end the thread that reports it.
    The same of any other object."""
    try:
        return repr(error) if as_repr else f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def raised_by_handler(error: BaseException) -> bool:
    """Whether a signal's handler raised it, one that is written in Python: it is given the frame that it interrupts, which
    is the one before its own."""
    for before, frame in itertools.pairwise(frame for frame, _ in traceback.walk_tb(error.__traceback__)):
        for value in frame.f_locals.values():
            given = value if isinstance(value, tuple) else (value,)  # a tuple: `*args`
            if any(each is before for each in given):
                return True
    return False


_loaders = itertools.count(1)


def new_loader() -> int:
    """The epoch_id of a new loader's first epoch. (The next epoch has the next one.) No two loaders in a trace share."""
    return next(_loaders) << 32


def number_loaders_from(pid: int) -> None:
    """A worker numbers the loaders nested in its dataset from its pid, so that no two get the same."""
    global _loaders
    _loaders = itertools.count((pid & 0x1FFFFF) << 10)
