"""What an event is called in words, the same in every view: its sentence is `Kind.when`.

Legend
    sentence   ("hands ", 3, " to the training loop")   follows the thread's name; a view draws the batch in its colour
    mark       "worker 1 died (SIGKILL)"                stands alone, at a point of the timeline
    slice      "fetch 3"                                what the thread does from this event on, in a Perfetto trace
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, NamedTuple

from minidl.events import NO_TASK, Kind, Queue
from tracing.trace.state_after_event import label
from tracing.trace.words import QUEUE_NAMES, size

if TYPE_CHECKING:
    import numpy as np

    from tracing.trace.state import Label
    from tracing.trace.trace import Actor

KINDS = {kind.value: kind for kind in Kind}
# Errors and deaths: what a view draws in red.
ALARMING = {
    Kind.WORKER_DIED, Kind.TASK_LOST, Kind.ERROR_RAISED, Kind.PARENT_DIED, Kind.FETCH_FAILED, Kind.PIN_FAILED,
    Kind.WORKER_TERMINATED, Kind.WORKER_KILLED,
}  # fmt: skip


class Words(NamedTuple):
    """Templates for one kind of event, with the fields of `Kind.when`."""

    mark: str = ""
    slice: str = ""


WORDS: dict[int, Words] = {
    Kind.FETCH_BEGIN: Words(slice="fetch {batch}"),
    Kind.COLLATE_BEGIN: Words(slice="collate {batch}"),
    Kind.PIN_BEGIN: Words(slice="pin {batch}"),
    Kind.FETCH_FAILED: Words("fetch failed"),
    Kind.PIN_FAILED: Words("pin failed"),
    # queues
    Kind.PUT: Words(slice="put {batch}"),
    Kind.SEND_BEGIN: Words(slice="pickle {batch}"),
    Kind.WAIT: Words(slice="wait"),
    Kind.ARRIVED: Words(slice="get {batch}"),
    Kind.GOT: Words(slice="get {batch}"),
    # main
    Kind.ASKED: Words(slice="next batch"),
    Kind.YIELDED: Words(slice="training step {batch}"),
    Kind.KEYS_BEGIN: Words(slice="draw keys {batch}"),
    # epochs and start-up
    Kind.LOADER: Words(slice="start-up"),
    Kind.WORKER_STARTING: Words(slice="start worker {worker}"),
    Kind.WORKER_BEGIN: Words(slice="start-up"),
    Kind.INIT_FN_BEGIN: Words(slice="worker_init_fn"),
    Kind.EPOCH_BEGIN: Words("epoch {epoch}", "begin the epoch"),
    Kind.STREAM_END: Words("stream ended"),
    Kind.EPOCH_END: Words("epoch ends"),
    # errors and deaths
    Kind.ERROR_RAISED: Words("{error} raised"),
    Kind.WORKER_DIED: Words("worker {worker} died ({exit})"),
    Kind.PARENT_DIED: Words("main is dead"),
    # shutdown
    Kind.SHUTDOWN_BEGIN: Words("shutdown", "shutdown"),
    Kind.PIN_STOPPING: Words("stop pin thread", "stop the pin thread"),
    Kind.PIN_THREAD_END: Words("pin thread ends"),
    Kind.PIN_JOINED: Words("pin thread joined"),
    Kind.DONE_SET: Words("done event set"),
    Kind.WORKER_END: Words("worker {worker} leaves its loop"),
    Kind.JOIN_BEGIN: Words("wait for worker {worker}", "join worker {worker}"),
    Kind.WORKER_JOINED: Words("worker {worker} joined"),
    Kind.WORKER_TERMINATED: Words("SIGTERM to worker {worker}"),
    Kind.WORKER_KILLED: Words("SIGKILL to worker {worker}"),
    Kind.SHUTDOWN_END: Words("shutdown complete"),
    # stopping in the middle and going on
    Kind.STATE_TAKEN: Words("state after {value}"),
    Kind.GOES_ON: Words("epoch {epoch} goes on after {value}"),
    # slots
}


class Sentence(NamedTuple):
    """What a thread does, to follow its name. Without a batch, all of it is in `before`."""

    before: str
    batch: Label | None = None
    after: str = ""

    def text(self, batch: str = "{}") -> str:
        """In one piece; `batch` is how the batch is written: "batch {}", say."""
        return self.before + ("" if self.batch is None else batch.format(self.batch)) + self.after


def sentence(event: np.void, error: str = "an error") -> Sentence:
    """`error`: what an ERROR_RAISED raises."""
    kind = KINDS[int(event["kind"])]
    before, batch, after = kind.when.partition("{batch}")
    fields = _fields(event, error)
    before, after = before.format(**fields), after.format(**fields)
    if batch and event["task"] == NO_TASK:  # a message that could not be read, say
        return Sentence(f"{before}a message{after}")
    return Sentence(before, label(int(event["task"])) if batch else None, after)


def mark(event: np.void, error: str) -> str:
    """`error`: as of `sentence`."""
    return WORDS[int(event["kind"])].mark.format(**_fields(event, error))


def thread_name(actor: Actor) -> str:
    """ "main", "pin thread", "worker 0", "feeder index 0"."""
    if actor.role == "feeder":
        return f"feeder {Queue(actor.queue).name.lower()} {actor.worker}"
    return {"worker": f"worker {actor.worker}", "pin": "pin thread"}.get(actor.role, "main")


def _fields(event: np.void, error: str) -> dict[str, object]:
    worker, number, value = int(event["worker"]), int(event["queue"]), int(event["value"])
    queue = QUEUE_NAMES.get(Queue(number), "the queues")
    if worker >= 0 and number in (Queue.INDEX, Queue.RESULT):
        queue += f" {worker}"
    return {
        "worker": worker,
        "epoch": int(event["epoch"]),
        "queue": queue,
        "value": value,
        "exit": _exit(value),
        "size": size(value),
        "slot": f"slot {value} of worker {worker}" if value >= 0 else "memory of its own",
        "error": error,
    }


def _exit(code: int) -> str:
    """A worker's exit code: "SIGKILL" of -9, else "exit code 1"."""
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}" if code < 0 else f"exit code {code}"
