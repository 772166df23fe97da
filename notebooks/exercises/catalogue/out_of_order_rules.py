"""Programs and rules of exercise 8: loaders with in_order=False."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import minidl
from minidl.events import Kind, Queue
from notebooks.exercises.programs import Keys, batches_or_errors, without_status_checks
from notebooks.exercises.protocol import ALWAYS, Breach, Rule, Run, gives, never_more_than

TASKS, WORKERS, PREFETCH = 8, 2, 2
BATCHES = [[key] for key in range(TASKS)]


class Wrong(str):
    """What a program returns instead of batches when it has noticed a mistake."""

    def __new__(cls, mistake: str, text: str) -> Wrong:
        self = super().__new__(cls, text)
        self.mistake = mistake  # type: ignore[attr-defined]
        return self


def program() -> Any:
    """All batches, sorted."""
    return _load(Keys(TASKS))


@without_status_checks()
def _load(dataset: Any) -> Any:
    loader: Any = minidl.DataLoader(
        dataset, batch_size=1, collate_fn=list, num_workers=WORKERS, prefetch_factor=PREFETCH, in_order=False
    )
    iterator: Any = iter(loader)
    found: list[Any] = []
    for batch in batches_or_errors(iterator):
        if batch == "ValueError":
            continue
        if not isinstance(batch, list):
            return Wrong("no batch", f"the training loop was given a {type(batch).__name__}")
        for task_id, info in iterator._task_info.items():
            if info.keys in found:
                text = f"batch {task_id} was yielded, but its task was still in _task_info when the next one was"
                return Wrong("leaks the task's entry", text)
        found.append(batch)
    if not iterator._shutdown:
        return Wrong("leaves the workers", "the epoch is over, but the workers still wait for tasks")
    return sorted(found)


def program_with_an_error() -> Any:
    return _load(Keys(TASKS, unreadable=3))


# ---- rules


def _held_back(run: Run) -> Iterator[Breach]:
    here: list[int] = []  # tasks whose batch main has received and not yielded
    for position in run.of(Kind.GOT, Kind.WAIT, Kind.YIELDED):
        event = run.events[position]
        if event["kind"] == Kind.YIELDED:
            here = [task for task in here if task != event["task"]]
        elif event["queue"] == Queue.RESULT:
            if here:
                waits = "waits for another" if event["kind"] == Kind.WAIT else "takes another from the queue"
                yield Breach(f"batch {here[0]} has arrived, but main {waits} before it hands it out", [int(position)])
            if event["kind"] == Kind.GOT and event["task"] >= 0:
                here.append(int(event["task"]))


def _too_many(run: Run) -> Iterator[Breach]:
    has = [0] * WORKERS
    for position in run.of(Kind.PUT, Kind.GOT):
        event = run.events[position]
        worker = int(event["worker"])
        if event["task"] < 0:
            continue
        if event["kind"] == Kind.GOT and event["queue"] == Queue.RESULT:
            has[worker] -= 1
        elif event["kind"] == Kind.PUT and event["queue"] == Queue.INDEX:
            has[worker] += 1
            if has[worker] > PREFETCH:
                what = f"task {event['task']} was sent to worker {worker}, which had {has[worker] - 1} already"
                yield Breach(what, [int(position)])


def _seen(mistake: str, sentence: str) -> Rule:
    """A rule that the program itself checks."""

    def look(run: Run) -> Iterator[Breach]:
        if getattr(run.outcome.result, "mistake", "") == mistake:
            yield Breach(str(run.outcome.result), run.of(Kind.YIELDED)[-1:].tolist())

    return Rule(mistake, sentence, look)


def _dropped(run: Run) -> Iterator[Breach]:
    drawn: list[int] = []  # where keys were drawn that are not sent yet
    for position in run.of(Kind.KEYS_DRAWN, Kind.PUT, Kind.YIELDED):
        event = run.events[position]
        if event["kind"] == Kind.PUT:
            if event["queue"] == Queue.INDEX and event["task"] >= 0:
                drawn.clear()
            continue
        if drawn:
            yield Breach("the keys of a task were drawn and not sent", drawn)
        if event["kind"] == Kind.KEYS_DRAWN:
            drawn.append(int(position))


def _primed_in_turns(run: Run) -> Iterator[Breach]:
    asked = run.of(Kind.ASKED)
    for position in run.of(Kind.PUT, queue=Queue.INDEX):
        event = run.events[position]
        if len(asked) and position < asked[0] and event["worker"] != event["task"] % WORKERS:
            yield Breach(f"task {event['task']} was sent to worker {event['worker']}", [int(position)])


def _once(run: Run) -> Iterator[Breach]:
    seen = set()
    for position in run.of(Kind.YIELDED):
        task = int(run.events["task"][position])
        if task in seen:
            yield Breach(f"batch {task} was yielded twice", [int(position)])
        seen.add(task)


NO_BATCH = _seen("no batch", "the training loop is given batches")
RULES = [
    Rule("ignores capacity", f"a worker has at most max_tasks // active = {PREFETCH} tasks", _too_many),
    Rule("gives up at a full worker", "a task whose keys are drawn is sent to a worker", _dropped),
    Rule("still waits", "out of order, a batch that has arrived is handed out at once", _held_back),
    _seen("leaks the task's entry", "_task_info holds only tasks that were sent and not yet yielded"),
    _seen("leaves the workers", "when the epoch is over, the workers are told to end"),
    NO_BATCH,
    Rule("twice", "every batch is yielded once", _once),
    Rule("not in turns", "the first tasks go round the workers: 0, 1, 0, 1", _primed_in_turns),
    never_more_than(WORKERS * PREFETCH),
    *ALWAYS,
    gives(BATCHES),
]
