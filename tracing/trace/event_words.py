"""What an event is called in words, the same in every view: its sentence is `Kind.when`.

Legend
    sentence   ("hands ", 3, " to the training loop")   follows the thread's name; a view draws the batch in its colour
    mark       "worker 1 died (SIGKILL)"                stands alone, at a point of the timeline
"""

from __future__ import annotations

import signal
from typing import NamedTuple

import numpy as np

from minidl.events import NO_TASK, Kind, Queue
from tracing.trace.kinds import TRAITS
from tracing.trace.state import Label
from tracing.trace.state_after_event import label
from tracing.trace.trace import Actor
from tracing.trace.words import QUEUE_NAMES, size

KINDS = {kind.value: kind for kind in Kind}


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
    """`error`: as in `sentence`."""
    return TRAITS[int(event["kind"])].mark.format(**_fields(event, error))


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
        "exit": exit_in_words(value),
        "size": size(value),
        "slot": f"slot {value} of worker {worker}" if value >= 0 else "memory of its own",
        "error": error,
    }


def exit_in_words(code: int) -> str:
    """An exit code: "SIGKILL" for -9, else "exit code 1"."""
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}" if code < 0 else f"exit code {code}"
