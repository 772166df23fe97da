"""What the timeline points at: the way of one batch, where main's time went, and the events that a
reader must not miss.

Legend
    hop     (12.1 ms, "worker", 0)          where the followed batch is at a time
    mark    12.1 ms, worker 0, "died"       drawn on a lane, and named above the lanes where there is room
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from minidl.events import Kind
from tracing.trace import event_words
from tracing.trace.event_index import Lane
from tracing.trace.state import MainStatus
from tracing.trace.words import STAGES
from tracing.views.timeline.spans import Look, Spans

if TYPE_CHECKING:
    from tracing.trace.trace import Trace

# ---- the way of one batch

# Where a batch is at each hop: the lane, and the column of trace.tasks that tells when.
WAY = (
    (Lane.MAIN, "index_put"),
    (Lane.WORKER, "index_got"),
    (Lane.WORKER, "result_put"),
    (Lane.PIN, "result_got"),
    (Lane.PIN, "data_put"),
    (Lane.MAIN, "data_got"),
    (Lane.MAIN, "yielded"),
)
# The stages between main's hands and main's hands, one after the other. (Pickling is part of being in a queue.)
ON_THE_WAY = [name for name in STAGES if name not in ("draw keys", "pickle", "unpickle", "training step")]


def way(task: np.void) -> list[tuple[int, Lane]]:
    """(time in ns, lane) of each hop that happened, in order. Without a pin thread main takes what workers put."""
    pinned = task["data_put"] >= 0
    hops = []
    for lane, column in WAY:
        if task[column] >= 0:
            hops.append((int(task[column]), lane if lane is not Lane.PIN or pinned else Lane.MAIN))
    return hops


def stages(task: np.void) -> list[tuple[str, int]]:
    """(what, ns) for each stage that the batch went through."""
    hops = [(name, *STAGES[name]) for name in ON_THE_WAY]
    return [(name, int(task[end] - task[begin])) for name, begin, end in hops if 0 <= task[begin] <= task[end]]


def most_instructive(tasks: np.ndarray, begin: int, end: int) -> np.void | None:
    """Of the tasks (rows of trace.tasks) whose way lies between two times (ns): the one that waited longest in the
    reorder buffer; when all came in order, the one that took longest from its fetch to main. None if there is none."""
    sent = np.where(tasks["index_put"] >= 0, tasks["index_put"], tasks["keys_begin"])
    whole = tasks[(sent >= begin) & (tasks["yielded"] >= 0) & (tasks["yielded"] <= end)]
    if len(whole) == 0:
        return None
    early = whole["stored"] >= 0
    if early.any():
        return whole[early][np.argmax((whole["released"] - whole["stored"])[early])]
    return whole[np.argmax(whole["yielded"] - whole["fetch_begin"])]


# ---- main's time


def main_in_words(main: Spans, begin: int, end: int) -> str:
    """How main's time between two (ns) is divided; the parts sum to 100 %, and what is no part of it is left out."""
    looks = main.shares(np.array([begin, end]))[:, 0]
    shares = {
        "start-up": main.share(MainStatus.STARTING, begin, end),
        "in the training step": looks[Look.TRAINING],
        "waiting for batches": looks[Look.WAITING],
        "at work in the loader": looks[[Look.BUSY, Look.FETCH, Look.COLLATE, Look.PIN]].sum(),
        "after an error": main.share(MainStatus.RAISED, begin, end),
        "shutdown": main.share(MainStatus.SHUTTING_DOWN, begin, end),
    }
    shares["outside the loader's life"] = max(0.0, 1 - sum(shares.values()))  # before it, after it, between epochs
    rounded = percent(list(shares.values()))
    return ", ".join(f"{number}% {what}" for what, number in zip(shares, rounded, strict=True) if number)


def percent(shares: list[float]) -> list[int]:
    """Shares that sum to 1 as whole percents that sum to 100: those that lose most by it are rounded up."""
    down = [int(share * 100) for share in shares]
    losses = sorted(range(len(shares)), key=lambda i: down[i] - shares[i] * 100)
    for i in losses[: 100 - sum(down)]:
        down[i] += 1
    return down


# ---- marks


@dataclass(frozen=True)
class Mark:
    """Something to be pointed at."""

    time: int  # ns
    kind: int  # Kind
    lane: Lane
    worker: int  # -1 but for a worker's lane
    text: str  # a few plain words
    rank: int  # 0 must be named, 1 should be, 2 may be


# Kind -> (whose lane, rank). Its text is the mark of tracing.trace.event_words.
MARKED: dict[int, tuple[Lane, int]] = {
    Kind.WORKER_DIED: (Lane.WORKER, 0),
    Kind.ERROR_RAISED: (Lane.MAIN, 0),
    Kind.EPOCH_BEGIN: (Lane.MAIN, 1),
    Kind.SHUTDOWN_BEGIN: (Lane.MAIN, 1),
    Kind.FETCH_FAILED: (Lane.WORKER, 1),
    Kind.PIN_FAILED: (Lane.PIN, 1),
    Kind.PARENT_DIED: (Lane.WORKER, 1),
    Kind.WORKER_TERMINATED: (Lane.WORKER, 1),
    Kind.WORKER_KILLED: (Lane.WORKER, 1),
    Kind.STREAM_END: (Lane.WORKER, 2),
    Kind.EPOCH_END: (Lane.MAIN, 2),
    Kind.PIN_STOPPING: (Lane.MAIN, 2),
    Kind.PIN_THREAD_END: (Lane.PIN, 2),
    Kind.PIN_JOINED: (Lane.MAIN, 2),
    Kind.DONE_SET: (Lane.MAIN, 2),
    Kind.WORKER_END: (Lane.WORKER, 2),
    Kind.JOIN_BEGIN: (Lane.MAIN, 2),
    Kind.WORKER_JOINED: (Lane.WORKER, 2),
    Kind.SHUTDOWN_END: (Lane.MAIN, 2),
}
NOTE = -1  # the kind of a mark that the caller has asked for
MOST_MARKS = 150


def marks(trace: Trace, loader: int, epochs: list[int], begin: int, end: int) -> list[Mark]:
    """All marks of these epochs of a loader between two times (ns), in time order."""
    events = trace.events
    first, last = np.searchsorted(events["time"], [begin, end + 1])
    seen = events[first:last]
    at = np.flatnonzero(np.isin(seen["kind"], list(MARKED)))
    at = at[(seen["loader"][at] == loader) & np.isin(seen["epoch"][at], epochs)]
    found = [_mark(trace, int(position)) for position in first + at]
    noticed = {mark.worker for mark in found if mark.kind == Kind.WORKER_DIED}
    found += [mark for mark in _kills(trace, loader) if begin <= mark.time <= end and mark.worker not in noticed]
    return sorted(_thin_out(found), key=lambda mark: mark.time)


def _kills(trace: Trace, loader: int) -> Iterator[Mark]:
    """Of a simulated run it is known when a process was killed, also if nobody has noticed."""
    killed = {int(pid): time for pid, time in trace.about.get("killed", {}).items()}
    started = trace.events[(trace.events["kind"] == Kind.WORKER_STARTED) & (trace.events["loader"] == loader)]
    for event in started[np.isin(started["value"], list(killed))]:
        worker, time = int(event["worker"]), killed[int(event["value"])]
        yield Mark(time, Kind.WORKER_DIED, Lane.WORKER, worker, f"worker {worker} is killed", 0)
    for actor in trace.actors:
        if actor.role == "main" and actor.pid in killed:
            yield Mark(killed[actor.pid], Kind.WORKER_DIED, Lane.MAIN, -1, "main is killed", 0)


def note(trace: Trace, position: int, words: str) -> Mark:
    """A mark at an event, of no lane. IndexError: there is no such event."""
    return Mark(int(trace.events["time"][position]), NOTE, Lane.FEEDER, -1, words, 0)


def _thin_out(found: list[Mark]) -> list[Mark]:
    """So many marks that they would hide the lanes are thinned out: first the steps, then epochs and shutdowns."""
    if len(found) > MOST_MARKS:
        found = [mark for mark in found if mark.rank < 2 or mark.kind == Kind.SHUTDOWN_END]
    if len(found) > MOST_MARKS:
        regions = (Kind.EPOCH_BEGIN, Kind.SHUTDOWN_BEGIN, Kind.SHUTDOWN_END)
        found = [mark for mark in found if mark.kind not in regions]
    return found


def _mark(trace: Trace, position: int) -> Mark:
    event = trace.events[position]
    lane, rank = MARKED[event["kind"]]
    text = event_words.mark(event, error=str(trace.text(position) or "error").split("(")[0])
    worker = int(event["worker"]) if lane is Lane.WORKER else -1
    return Mark(int(event["time"]), int(event["kind"]), lane, worker, text, rank)
