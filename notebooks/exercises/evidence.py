"""Exercise 15's answers to wrong names: for each bug a function that looks for what contradicts it in a run's trace. It
returns why the bug cannot be this one, with the event to look at, or "" if nothing contradicts it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from minidl.events import RESUME, STOP, Kind, Queue
from minidl.world.simulated import Outcome

FIELDS = ("time", "thread", "kind", "epoch", "task", "worker", "queue", "value")


class Run:
    """The events of a simulated run: one row each, in order of time; the fields are FIELDS, all int64."""

    def __init__(self, outcome: Outcome) -> None:
        self.texts = [event[8] for event in outcome.events]
        self.events = np.array([event[:8] for event in outcome.events], dtype=[(name, np.int64) for name in FIELDS])

    def of(self, *kinds: Kind, queue: Queue | None = None, task: int | None = None) -> np.ndarray:
        """The positions of the events of these kinds; only of one queue or task (STOP, say), if given."""
        seen = np.isin(self.events["kind"], kinds)
        if queue is not None:
            seen &= self.events["queue"] == queue
        if task is not None:
            seen &= self.events["task"] == task
        return np.flatnonzero(seen)


def last(run: Run, *kinds: Kind, thread: int = 0) -> int:
    """The position of a thread's last event (of these kinds, if any are given); by default main's. -1: none."""
    mine = run.events["thread"] == thread
    if kinds:
        mine &= np.isin(run.events["kind"], kinds)
    at = np.flatnonzero(mine)
    return int(at[-1]) if len(at) else -1


def named(run: Run, position: int) -> str:
    kind: int = run.events["kind"][position]
    return f"{Kind(kind).name}, event {position}"  # type: ignore[call-arg]


def one_epoch(run: Run) -> str:
    begins = run.of(Kind.EPOCH_BEGIN)
    return f"There is only one epoch: {named(run, int(begins[0]))}." if len(begins) < 2 else ""


def nobody_looks(run: Run) -> str:
    if len(noticed := run.of(Kind.WORKER_DIED)):
        return f"Main notices a worker that has ended: {named(run, int(noticed[0]))}."
    if not len(run.of(Kind.TIMED_OUT)):
        came = last(run, Kind.RECEIVED)
        return f"Main never waits for a batch in vain: the last one it received is {named(run, came)}."
    return ""


def workers_first(run: Run) -> str:
    pins, joined, done = (run.of(each) for each in (Kind.PIN_THREAD_BEGIN, Kind.PIN_JOINED, Kind.DONE_SET))
    if not len(pins):
        return f"There is no pin thread: main itself takes results from worker_result_queue: event {_result(run)}."
    if not len(done):
        return f"The workers are never told to stop: main's last event is {named(run, last(run))}."
    if len(joined) and joined[0] < done[0]:
        return f"The pin thread has ended, {named(run, int(joined[0]))}, before {named(run, int(done[0]))}."
    return ""


def _result(run: Run) -> int:
    """The position of the first GOT of a result."""
    return int(run.of(Kind.GOT, queue=Queue.RESULT)[0])


def message_lost(run: Run) -> str:
    if not len(run.of(Kind.JOIN_BEGIN)):
        return f"Main does not wait for the end of a worker: its last event is {named(run, last(run))}."
    stops = run.of(Kind.GOT, queue=Queue.INDEX, task=STOP)
    return f"The message that tells a worker to stop arrives: {named(run, int(stops[0]))}." if len(stops) else ""


def never_told(run: Run) -> str:
    if len(begins := run.of(Kind.SHUTDOWN_BEGIN)):
        return f"There is a shutdown: {named(run, int(begins[0]))}."
    asked = last(run, Kind.ASKED)
    if last(run, Kind.YIELDED, Kind.ERROR_RAISED, Kind.EPOCH_END) < asked:
        return f"Nothing was dropped: main is in the loader, waiting for the batch that it asked for in event {asked}."
    return ""


def not_reset(run: Run) -> str:
    epochs = run.of(Kind.EPOCH_BEGIN)
    firsts = run.of(Kind.DISPATCHED, task=0)
    if not one_epoch(run) and (run.events["worker"][firsts] != 0).any():
        return ""
    if not one_epoch(run):
        return f"The second epoch also begins with worker 0: {named(run, int(firsts[firsts > epochs[1]][0]))}."
    return one_epoch(run)


def finished_twice(run: Run) -> str:
    ended, died = run.of(Kind.WORKER_EXHAUSTED), run.of(Kind.WORKER_DIED)
    if not len(ended):
        drawn = int(run.of(Kind.KEYS_DRAWN)[0])
        return f"The dataset is map-style (its tasks have keys, {named(run, drawn)}), so no stream ends."
    if not set(run.events["worker"][ended].tolist()) & set(run.events["worker"][died].tolist()):
        return f"A worker has finished, {named(run, int(ended[0]))}, and its end is not mistaken for anything else."
    return ""


def on_receipt(run: Run) -> str:
    main = np.flatnonzero(run.events["thread"] == 0)
    kinds = run.events["kind"][main]
    landmarks = (Kind.PRIMED, Kind.YIELDED, Kind.RECEIVED, Kind.WORKER_EXHAUSTED, Kind.EPOCH_BEGIN)
    refills, before = [], int(Kind.EPOCH_BEGIN)
    for place, kind in enumerate(kinds):
        if kind == Kind.DISPATCHED and before not in (Kind.EPOCH_BEGIN, Kind.WORKER_EXHAUSTED):
            after = [each for each in kinds[place + 1 :] if each in (Kind.YIELDED, Kind.WAIT, Kind.RECEIVED)]
            if after and after[0] != Kind.YIELDED:
                return ""
            refills.append(int(main[place]))
        before = int(kind) if kind in landmarks else before
    if refills:
        return f"A task is sent when a batch is handed out: {named(run, refills[0])}, then YIELDED."
    return f"After the first tasks ({named(run, last(run, Kind.PRIMED))}) no batch is replaced by a new task."


def any_message(run: Run) -> str:
    if one_epoch(run):
        return one_epoch(run)
    got = run.of(Kind.GOT, queue=Queue.RESULT)
    for position in run.of(Kind.RESUME_ACKNOWLEDGED):
        taken = got[got < position][-1]
        if run.events["task"][taken] != RESUME:
            return ""
    first = int(run.of(Kind.RESUME_ACKNOWLEDGED)[0])
    return f"Each message taken for an acknowledgement is one: {named(run, first)}, and the GOT before it."


def error_forgotten(run: Run) -> str:
    raised, died = run.of(Kind.ERROR_RAISED), run.of(Kind.WORKER_DIED)
    if not len(raised):
        return f"Nothing raises in the training loop: main's last event is {named(run, last(run))}."
    if not len(died):
        return f"The error ({named(run, int(raised[0]))}) does not come from a death: there is no WORKER_DIED."
    again = raised[run.events["value"][raised] == 1]
    return f"The error is raised again when main asks again: {named(run, int(again[0]))}." if len(again) else ""


def nobody_counts(run: Run) -> str:
    position = int(run.of(Kind.LOADER)[0])
    if not run.texts[position].in_order:
        return ""
    return f"The loader is in order (in_order in the text of {named(run, position)}): main waits for batches in turn."


def joins_feeder(run: Run) -> str:
    if len(run.of(Kind.WORKER_TERMINATED)):
        return ""
    if len(joined := run.of(Kind.WORKER_JOINED)):
        return f"The workers exit by themselves, at once: {named(run, int(joined[0]))}."
    if len(ends := run.of(Kind.WORKER_END)):
        return f"A worker that has left its loop ({named(run, int(ends[0]))}) is not ended by force."
    waits = run.of(Kind.WAIT, queue=Queue.INDEX)
    worker_id = run.events["worker"][waits[-1]]
    wait = named(run, int(waits[-1]))
    return f"No worker is about to exit: worker {worker_id} is in its loop and waits ({wait})."


def lock(run: Run) -> str:
    done = run.of(Kind.DONE_SET)
    if not len(done):
        return f"Main never reaches the done event: its last event is {named(run, last(run))}."
    after = last(run)
    if after > done[0]:
        return f"Main gets past the done event ({named(run, int(done[0]))}), to {named(run, after)}."
    return ""


AGAINST: dict[str, Callable[[Run], str]] = {
    "nobody looks whether the worker is alive": nobody_looks,
    "the workers are stopped before the pin thread": workers_first,
    "the final message is lost, and nothing stands behind the join": message_lost,
    "the iterator is dropped half way and the workers are never told": never_told,
    "the round-robin is not reset": not_reset,
    "a worker is marked as finished twice": finished_twice,
    "a new task is sent on receipt instead of on yield": on_receipt,
    "any message is taken for the acknowledgement of a new epoch": any_message,
    "the error after a death is forgotten": error_forgotten,
    "without order, nobody counts what a worker has": nobody_counts,
    "process exit joins a feeder that is blocked": joins_feeder,
    "the done event has a lock": lock,
}
