"""Rules of exercise 6: what a worker must do with each message."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from minidl.events import RESUME, STOP, Kind, Queue
from notebooks.exercises.protocol import Breach, Rule, Run


def unanswered_resume(run: Run) -> bool:
    """Whether a worker took a Resume and never answered it."""
    took, answered = (
        {run.worker(at) for at in run.of(kind, queue=queue, task=RESUME)}
        for kind, queue in ((Kind.GOT, Queue.INDEX), (Kind.PUT, Queue.RESULT))
    )
    return bool(took - answered)


def _same_task(run: Run) -> Iterator[Breach]:
    has: dict[int, tuple[int, int, int]] = {}  # worker -> the last task it took
    for at in run.of(Kind.GOT, Kind.PUT):
        event = run.events[at]
        if event["kind"] == Kind.GOT and event["queue"] == Queue.INDEX:
            has[int(event["worker"])] = run.key(at)
        elif event["kind"] == Kind.PUT and event["queue"] == Queue.RESULT and event["task"] >= 0:
            _, task, worker = has[int(event["worker"])]
            if run.key(at) != has[worker]:
                what = f"worker {worker} had taken task {task}, and answered task {event['task']}"
                yield Breach(what, [int(at)])


def _no_fetch_after_stop(run: Run) -> Iterator[Breach]:
    """Messages that a worker takes after the shutdown's first Stop are taken after the done event was set."""
    begin = run.of(Kind.DONE_SET)
    stops = [at for at in run.of(Kind.PUT, queue=Queue.INDEX, task=STOP) if len(begin) and at > begin[0]]
    late = {run.key(at) for at in run.of(Kind.GOT, queue=Queue.INDEX) if stops and at > stops[0]}
    for at in run.of(Kind.FETCH_BEGIN):
        if run.key(at) in late:
            _, task, worker = run.key(at)
            yield Breach(f"worker {worker} began task {task}, which it took after the done event was set", [int(at)])


def _one_end(run: Run) -> Iterator[Breach]:
    ended = set()
    for at in run.of(Kind.WORKER_EXHAUSTED):
        epoch, _, worker = run.key(at)
        if (epoch, worker) in ended:
            yield Breach(f"worker {worker} reported the end of its stream twice", [int(at)])
        ended.add((epoch, worker))


def _none_dies(run: Run) -> Iterator[Breach]:
    for at in run.of(Kind.WORKER_DIED):
        yield Breach(f"worker {run.worker(at)} ended without being told to", [int(at)])


def _all_have_ended(run: Run) -> Iterator[Breach]:
    ended = {run.key(at)[::2] for at in run.of(Kind.WORKER_EXHAUSTED)}
    for at in run.of(Kind.EPOCH_END):
        late = [worker for worker in range(2) if (int(run.events["epoch"][at]), worker) not in ended]
        if late:
            yield Breach(f"the epoch was over before worker {late[0]} had reported the end of its stream", [int(at)])


def _leaves(run: Run) -> Iterator[Breach]:
    """A worker still there a second after main's death is killed: exit code 1, as after an exception."""
    outcome = run.outcome
    first = outcome.threads[0][0]
    late = [pid - first - 1 for pid, code in outcome.exitcodes.items() if pid != first and code]
    main = int(np.flatnonzero(run.events["thread"] == 0)[-1])  # its last event
    if outcome.last_fault_at >= 0 and late:
        yield Breach(f"main was dead, but worker {late[0]} did not leave its loop", [main])


SAME_TASK = Rule("the task's own answer", "a worker answers the task that it took last", _same_task)
NO_FETCH_AFTER_STOP = Rule(
    "no fetch after the done event", "nothing is fetched while main shuts down", _no_fetch_after_stop
)
NOBODY_DIES = Rule("no worker dies", "a worker lives until it is told to end, whatever the dataset raises", _none_dies)
ONE_END = Rule("one end", "a worker whose stream has ended answers no more tasks of this epoch", _one_end)
ALL_HAVE_ENDED = Rule(
    "both report their end", "an epoch is over when each worker has sent a StreamEnd", _all_have_ended
)
LEAVES = Rule("leaves with main", "a worker whose main process has died leaves its loop", _leaves)
