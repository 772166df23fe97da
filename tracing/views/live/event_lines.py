"""The last events of the live view in words: who, and what, each in one line; and a hang in two.

0.412 s main       keeps  8  for later: it waits for 7
"""

from __future__ import annotations

from pathlib import Path

from minidl.events import Kind, Queue
from tracing.analysis.hang.explain import Hang
from tracing.analysis.hang.stuck_moments import Ending
from tracing.trace.state import LoaderState
from tracing.trace.words import QUEUE_NAMES
from tracing.views.live.recent import Said
from tracing.views.terminal.cells import DIM, Line, cell, text

# What an event says, after who says it; {} is the batch. Any other kind says what minidl.events says of it, where that
# is short: a line has some 46 columns for it in a window of 100.
WORDS = {
    Kind.DISPATCHED: "sends {} to worker {worker}",
    Kind.PRIMED: "has sent every worker its first tasks",
    Kind.FETCH_BEGIN: "fetches {}",
    Kind.FETCH_FAILED: "raised an error: it goes on instead of {}",
    Kind.SEND_FAILED: "could not send {}",
    Kind.FEEDER_JOINED: "waited for its feeder to send everything",
    Kind.JOIN_CANCELLED: "will leave without waiting for its feeder",
    Kind.PIN_BEGIN: "pins {}",
    Kind.PIN_FAILED: "raised an error: it goes on instead of {}",
    Kind.STORED: "keeps {} for later: it waits for {value}",
    Kind.RELEASED: "takes {} out of the reorder buffer",
    Kind.ASKED: "asks for the next batch",
    Kind.YIELDED: "hands {} to training",
    Kind.NO_CAPACITY: "has no worker for a task: drops its keys",
    Kind.EPOCH_BEGIN: "begins an epoch",
    Kind.EPOCH_END: "ends the epoch: {value} batches",
    Kind.WORKER_STARTING: "starts worker {worker}",
    Kind.WORKER_STARTED: "has started worker {worker}",
    Kind.STREAM_END: "has no more samples: its stream ended",
    Kind.WORKER_EXHAUSTED: "learns that the stream of worker {worker} ended",
    Kind.WORKER_RESUMED: "has a new fetcher, and tells main",
    Kind.TASK_SKIPPED: "passes over {}: its worker's stream ended",
    Kind.WORKER_DIED: "notices the death of worker {worker}: exit code {value}",
    Kind.TASK_LOST: "gives {} up: it was with worker {worker}",
    Kind.HEALTH_CHECK: "waited for long: are all workers alive?",
    Kind.SHUTDOWN_BEGIN: "begins to shut the loader down",
    Kind.JOIN_BEGIN: "waits for worker {worker} to exit",
    Kind.WORKER_JOINED: "reaps worker {worker}: exit code {value}",
    Kind.WORKER_TERMINATED: "sends SIGTERM to worker {worker}: it did not exit",
    Kind.WORKER_KILLED: "sends SIGKILL to worker {worker}",
    Kind.SHUTDOWN_END: "has shut the loader down",
}


def in_words(said: Said, loader: LoaderState, start: int) -> Line:
    """When, after `start` (ns), who did what."""
    who = said.kind.who.split(",")[0].split(" or ")[0].removesuffix(" thread" if "feeder" in said.kind.who else "")
    if said.kind is Kind.PUT:
        who = {Queue.INDEX: "main", Queue.DATA: "pin thread"}.get(said.queue, "worker")
    if who == "worker":
        who = f"worker {said.worker}" if loader.workers and said.worker >= 0 else "main"
    words = WORDS.get(said.kind)
    if said.kind is Kind.PUT:
        words = f"puts {{}} on {QUEUE_NAMES.get(said.queue, 'a queue')}"
    elif words is None:
        words = f"{said.kind.when} {{}}" if said.task >= 0 else said.kind.when
    before, batch, after = words.format("\0", worker=said.worker, value=said.value).partition("\0")
    shown = [cell(said.task) if said.task >= 0 else text("a message")] if batch else []
    return [text(f"{(said.time - start) / 1e9:8.3f} s ", DIM), text(f"{who:11}"), text(before), *shown, text(after)]


def stuck_in_words(hang: Hang | None, path: Path) -> tuple[str, ...]:
    """Who keeps whom waiting, and which command says more of it; () if nobody does."""
    if hang is None:
        return ()
    first, last = hang.links[0], hang.links[-1]
    told = f"{last.who} {last.what}"
    if first is not last:
        told = f"{first.who.partition(' (pid')[0]} waits for {last.who}, which {last.what}"
    said = "it looks stuck" if hang.ending is Ending.NOT else "it was stuck"
    return f"{said}: {told}", f"why, and what to do: python -m tracing check {path}"
