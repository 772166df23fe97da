"""What a worker does with each message, as the events tell it: the rules of exercise 6."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from minidl.events import RESUME, STOP, Kind, Queue
from notebooks.exercises.failing import key
from notebooks.exercises.protocol import Breach, Rule, Run


def unanswered_resume(run: Run) -> bool:
    """Whether a worker took a Resume and has not answered it, when nothing more happened."""
    took, answered = (
        {int(run.events["worker"][at]) for at in run.of(kind, queue=queue) if run.events["task"][at] == RESUME}
        for kind, queue in ((Kind.GOT, Queue.INDEX), (Kind.PUT, Queue.RESULT))
    )
    return bool(took - answered)


def _same_task(run: Run) -> Iterator[Breach]:
    has: dict[int, tuple[int, int, int]] = {}  # worker -> the task that it took last
    for at in run.of(Kind.GOT, Kind.PUT):
        event = run.events[at]
        if event["kind"] == Kind.GOT and event["queue"] == Queue.INDEX:
            has[int(event["worker"])] = key(event)
        elif event["kind"] == Kind.PUT and event["queue"] == Queue.RESULT and event["task"] >= 0:
            _, task, worker = has[int(event["worker"])]
            if key(event) != has[worker]:
                what = f"worker {worker} had taken task {task}, and answered task {event['task']}"
                yield Breach(what, [int(at)])


def _no_fetch_after_stop(run: Run) -> Iterator[Breach]:
    """What a worker takes once a Stop was sent in the shutdown, it takes after the done event was set."""
    begin = run.of(Kind.DONE_SET)
    stops = [at for at in run.of(Kind.PUT, queue=Queue.INDEX) if run.events["task"][at] == STOP]
    stops = [at for at in stops if len(begin) and at > begin[0]]
    late = {key(run.events[at]) for at in run.of(Kind.GOT, queue=Queue.INDEX) if stops and at > stops[0]}
    for at in run.of(Kind.FETCH_BEGIN):
        if key(run.events[at]) in late:
            _, task, worker = key(run.events[at])
            yield Breach(f"worker {worker} began task {task}, which it took when the done event was set", [int(at)])


def _one_end(run: Run) -> Iterator[Breach]:
    ended = set()
    for at in run.of(Kind.WORKER_EXHAUSTED):
        epoch, _, worker = key(run.events[at])
        if (epoch, worker) in ended:
            yield Breach(f"worker {worker} said twice that its stream has ended", [int(at)])
        ended.add((epoch, worker))


def _nobody_dies(run: Run) -> Iterator[Breach]:
    for at in run.of(Kind.WORKER_DIED):
        yield Breach(f"worker {int(run.events['worker'][at])} has ended, and nobody had told it to", [int(at)])


def _all_have_ended(run: Run) -> Iterator[Breach]:
    ended = {key(run.events[at])[::2] for at in run.of(Kind.WORKER_EXHAUSTED)}
    for at in run.of(Kind.EPOCH_END):
        late = [worker for worker in range(2) if (int(run.events["epoch"][at]), worker) not in ended]
        if late:
            yield Breach(f"the epoch was over, and worker {late[0]} had not said that its stream has ended", [int(at)])


def _leaves(run: Run) -> Iterator[Breach]:
    """A second after main's death the system ends who has not left: exit code 1, and so has who raised."""
    outcome = run.outcome
    first = outcome.threads[0][0]
    late = [pid - first - 1 for pid, code in outcome.exitcodes.items() if pid != first and code]
    main = int(np.flatnonzero(run.events["thread"] == 0)[-1])  # what it did last
    if outcome.last_fault_at >= 0 and late:
        yield Breach(f"main was dead, and worker {late[0]} did not leave its loop", [main])


SAME_TASK = Rule("the task's own answer", "a worker answers the task that it has taken last", _same_task)
NO_FETCH_AFTER_STOP = Rule(
    "no fetch after the done event", "when main shuts down nothing is fetched", _no_fetch_after_stop
)
NOBODY_DIES = Rule("nobody dies", "a worker lives until it is told to end, whatever the dataset raises", _nobody_dies)
ONE_END = Rule("one end", "a worker whose stream has ended answers no more tasks of this epoch", _one_end)
ALL_HAVE_ENDED = Rule("both say their end", "an epoch is over when each worker has sent a StreamEnd", _all_have_ended)
LEAVES = Rule("leaves with main", "a worker whose main process has died leaves its loop", _leaves)
