"""What an event is called in words: one table, which every view reads.

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
    """Templates for one kind of event. An empty sentence means `Kind.when`."""

    sentence: str = ""
    mark: str = ""
    slice: str = ""


# The fields: {batch}, {worker}, {epoch}, {queue}, {value}; {exit}, {size} and {slot}, which are values that are an exit
# code, bytes and a slot; {error}.
# A line of the live view has 46 columns for a sentence in a window of 100.
WORDS: dict[int, Words] = {
    Kind.FETCH_BEGIN: Words("fetches {batch}", slice="fetch {batch}"),
    Kind.FETCH_END: Words("has the samples of {batch}"),
    Kind.COLLATE_BEGIN: Words("starts to collate {batch}", slice="collate {batch}"),
    Kind.COLLATE_END: Words("has collated {batch}"),
    Kind.PIN_BEGIN: Words("pins {batch}", slice="pin {batch}"),
    Kind.PIN_END: Words("has pinned {batch}"),
    Kind.FETCH_FAILED: Words("passes on an error instead of {batch}", "fetch failed"),
    Kind.PIN_FAILED: Words("passes on an error instead of {batch}", "pin failed"),
    # queues
    Kind.PUT: Words("puts {batch} on {queue}", slice="put {batch}"),
    Kind.SEND_BEGIN: Words("takes {batch} off the buffer of {queue} and pickles it", slice="pickle {batch}"),
    Kind.SENT: Words("writes {batch} to the pipe of {queue}"),
    Kind.WAIT: Words("finds nothing in {queue} and waits", slice="wait"),
    Kind.ARRIVED: Words("has read a message off the pipe of {queue} and unpickles it", slice="get {batch}"),
    Kind.GOT: Words("has taken {batch} from {queue}", slice="get {batch}"),
    Kind.TIMED_OUT: Words("stops waiting for {queue}: time is up"),
    Kind.SEND_FAILED: Words("could not send {batch}"),
    Kind.FEEDER_BEGIN: Words("starts: it will send what is put on {queue}"),
    Kind.FEEDER_END: Words("ends: {queue} is closed and its buffer is empty"),
    Kind.CLOSED: Words("closes {queue}: nothing more will be put on it"),
    Kind.FEEDER_JOINED: Words("has waited for its feeder to send everything"),
    Kind.JOIN_CANCELLED: Words("will exit without waiting for its feeder"),
    # main
    Kind.ASKED: Words(slice="next batch"),
    Kind.YIELDED: Words("hands {batch} to the training loop", slice="training step {batch}"),
    Kind.KEYS_BEGIN: Words("asks the sampler for the keys of {batch}", slice="draw keys {batch}"),
    Kind.KEYS_DRAWN: Words("has drawn the keys of {batch}"),
    Kind.RECEIVED: Words("receives {batch}: {value} still outstanding"),
    Kind.STORED: Words("keeps {batch} for later: {value} comes first"),
    Kind.RELEASED: Words("takes {batch} out of the reorder buffer"),
    Kind.DISPATCHED: Words("sends {batch} to worker {worker}"),
    Kind.NO_CAPACITY: Words("has no worker for a task: drops its keys"),
    # epochs and start-up
    Kind.LOADER: Words(slice="start-up"),
    Kind.WORKER_STARTING: Words("starts worker {worker}", slice="start worker {worker}"),
    Kind.WORKER_STARTED: Words("has started worker {worker}"),
    Kind.WORKER_BEGIN: Words(slice="start-up"),
    Kind.INIT_FN_BEGIN: Words(slice="worker_init_fn"),
    Kind.EPOCH_BEGIN: Words("begins epoch {epoch}", "epoch {epoch}", "begin the epoch"),
    Kind.PRIMED: Words("has sent every worker its first tasks"),
    Kind.WORKER_RESUMED: Words("has resumed, with a new fetcher"),
    Kind.RESUME_ACKNOWLEDGED: Words("learns that worker {worker} has resumed: {value} to go"),
    Kind.STREAM_END: Words("has no more samples: its stream has ended", "stream ended"),
    Kind.WORKER_EXHAUSTED: Words("learns that worker {worker}'s stream has ended"),
    Kind.TASK_SKIPPED: Words("skips {batch}: its worker's stream has ended"),
    Kind.EPOCH_END: Words("ends the epoch: {value} batches", "epoch ends"),
    # errors and deaths
    Kind.ERROR_RAISED: Words("raises {error}", "{error} raised"),
    Kind.WORKER_DIED: Words("notices that worker {worker} died ({exit})", "worker {worker} died ({exit})"),
    Kind.TASK_LOST: Words("gives up {batch}: worker {worker} had it"),
    Kind.PARENT_DIED: Words(mark="main is dead"),
    Kind.HEALTH_CHECK: Words("has waited long: are all workers alive?"),
    # shutdown
    Kind.SHUTDOWN_BEGIN: Words("starts to shut the loader down", "shutdown", "shutdown"),
    Kind.PIN_STOPPING: Words(mark="stop pin thread", slice="stop the pin thread"),
    Kind.PIN_THREAD_END: Words(mark="pin thread ends"),
    Kind.PIN_JOINED: Words(mark="pin thread joined"),
    Kind.DONE_SET: Words(mark="done event set"),
    Kind.WORKER_END: Words(mark="worker {worker} leaves its loop"),
    Kind.JOIN_BEGIN: Words("waits for worker {worker} to exit", "wait for worker {worker}", "join worker {worker}"),
    Kind.WORKER_JOINED: Words("reaps worker {worker} ({exit})", "worker {worker} joined"),
    Kind.WORKER_TERMINATED: Words("sends SIGTERM to worker {worker}: it did not exit", "SIGTERM to worker {worker}"),
    Kind.WORKER_KILLED: Words("sends SIGKILL to worker {worker}", "SIGKILL to worker {worker}"),
    Kind.SHUTDOWN_END: Words("has shut the loader down", "shutdown complete"),
    # stopping in the middle and going on
    Kind.STATE_TAKEN: Words("is asked for its state after {value} batches", "state after {value}"),
    Kind.GOES_ON: Words("goes on where {value} batches had been yielded", "epoch {epoch} goes on after {value}"),
    # slots
    Kind.SLOT_GRANTED: Words("grants {slot} to {batch}"),
    Kind.SLOT_FILLED: Words("has laid {batch} into its memory: {size}"),
    Kind.SLOT_MADE: Words("will send new memory with {batch}: {size}"),
    Kind.SLOT_LENT: Words("has built {batch} upon {slot}"),
    Kind.SLOT_FREE: Words("finds {slot} free: {batch} is gone"),
    Kind.SLOT_RETIRED: Words("forks: {slot} will not be used as it is"),
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
    words = WORDS[kind].sentence if kind in WORDS else ""
    before, batch, after = (words or kind.when).partition("{batch}")
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
