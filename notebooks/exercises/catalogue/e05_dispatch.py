"""Exercise 5: priming, and the dispatch of tasks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import minidl
from minidl.events import Kind
from notebooks.exercises.answers import Answer
from notebooks.exercises.attempts import with_real_processes
from notebooks.exercises.exercise import Exercise, Finding
from notebooks.exercises.failed_runs import explained
from notebooks.exercises.heartbeat import beat
from notebooks.exercises.programs import Keys, Stream, let_others_run, without_status_checks
from notebooks.exercises.protocol import (
    ALWAYS,
    IN_ORDER,
    Breach,
    Broken,
    Rule,
    Run,
    gives,
    in_turns,
    never_more_than,
    play,
)

WORKERS, PREFETCH = 2, 3
MOST = WORKERS * PREFETCH
OPTIONS: dict[str, Any] = {"num_workers": WORKERS, "prefetch_factor": PREFETCH, "batch_size": 1, "collate_fn": list}

CAUSES = {
    "primes prefetch_factor only": f"`prefetch_factor` counts the tasks of one worker; there are {WORKERS} workers.",
    "primes one task a worker": "A worker with only one task is idle until its batch has reached main and a new task "
    "has come back. Each should have `prefetch_factor` tasks from the start.",
    "does not prime": "No first task is ever sent: `_take` sends one only to replace a batch that it hands out.",
    "primes otherwise": f"At the start each of the {WORKERS} workers should get `prefetch_factor` tasks, {MOST} in "
    "all, or as many as the sampler has.",
    "fills worker 0 first": "One worker gets all its tasks before the next one gets any. Batches are handed out in "
    "task order, so main would wait for worker 0 alone while worker 1's batches pile up.",
    "always the same worker": "The turn never passes on: where does `_next_worker` change?",
    "the worker with the fewest": "The worker is chosen by how much it has to do, which depends on timing. With one "
    "seed, each run would give the workers different batches and random transforms different numbers. In order, "
    "only the turn decides.",
    "not in turns": "The first task goes to worker 0, the next to worker 1, and so on, round and round: "
    "`_next_worker` says whose turn it is, and is 0 when an epoch begins.",
    "the same number again": "A task's number is its place in the order. If two tasks share a number, their batches "
    "cannot be told apart. `_send_idx` is the number of the next task, so it grows by one with each.",
    "StopIteration escapes": "The sampler had no more keys, and its StopIteration escaped to the caller. From next() "
    "it looks like the end of the epoch, though batches are still on their way. Where should it be caught?",
    "no entry in _task_info": "Main looks in `_task_info` for what is still to come. A task without an entry is "
    "skipped as if it had been yielded. Add the entry when you send the task.",
    "does not count": "Count the tasks you send in `_tasks_outstanding`, and per worker in `_workers_num_tasks`; "
    "`_receive` counts them down again. After an epoch they should be 0.",
    "sends to an ended worker": "That worker's stream has ended: `_workers_status[worker_id]` is no longer "
    "WorkerState.ACTIVE. It ignores tasks; a persistent worker only waits for the next epoch.",
    "no worker is left": "When every worker's stream has ended, no worker can take a task. `_choose_worker` then "
    "returns None, and nothing is sent or recorded.",
    "no bound": "Each yield may send one new task, and no more: this bounds how much is under way.",
}


def many() -> tuple[list[Any], int, list[int]]:
    return _load(Keys(10))


def few() -> tuple[list[Any], int, list[int]]:
    return _load(Keys(4))


def streams() -> list[Any]:
    return _load(Stream(1, 4))[0]


@without_status_checks()
def _load(dataset: Any) -> tuple[list[Any], int, list[int]]:
    """The batches of an epoch, and the two counts after it."""
    iterator: Any = iter(minidl.DataLoader(dataset, **OPTIONS))
    found = []
    for batch in iterator:
        let_others_run()
        found.append(batch)
    return found, iterator._tasks_outstanding, iterator._workers_num_tasks


def right(tasks: int) -> tuple[list[list[int]], int, list[int]]:
    return [[key] for key in range(tasks)], 0, [0] * WORKERS


PROGRAMS = (
    (many, f"10 batches, {WORKERS} workers, prefetch_factor={PREFETCH}", right(10), 10, 90),
    (few, f"4 batches, {WORKERS} workers, prefetch_factor={PREFETCH}: fewer than could be under way", right(4), 4, 20),
    (streams, "2 workers whose streams have 1 and 4 samples", [[0], [1], [3], [5], [7]], MOST, 60),
)


def grade(answer: Answer) -> Finding | None:
    for program, words, expected, tasks, chance in PROGRAMS:
        call = f"a loader: {words}"
        beat(call)
        rules = [primed(min(tasks, MOST)), NUMBERED, NOT_ENDED, COMPLETE]
        if program is not streams:
            rules += [never_more_than(MOST), in_turns(WORKERS), IN_ORDER]
        with answer.at_work():
            broken = play(program, [*rules, *ALWAYS, gives(expected)], chance=chance)
        if broken is not None:
            return explained(answer, broken, _mistake(broken, program is streams), call, CAUSES)
    return with_real_processes(answer, many, right(10))


def _mistake(broken: Broken, ending: bool) -> str:
    """The name of the mistake that the run shows."""
    run = broken.run
    outcome = run.outcome
    workers = [worker for _, _, worker in run.tasks_sent()]
    if broken.rule == "primed":
        count = len(_before_asking(run))
        known = {PREFETCH: "primes prefetch_factor only", WORKERS: "primes one task a worker", 0: "does not prime"}
        return known.get(count, "primes otherwise")
    if broken.rule == "in turns":
        if not any(workers[:MOST]):
            return "always the same worker"
        if workers[:MOST] == sorted(workers[:MOST]):
            return "fills worker 0 first"
        in_turn = workers[:MOST] == [number % WORKERS for number in range(MOST)]
        return "the worker with the fewest" if in_turn else "not in turns"
    if isinstance(outcome.error, StopIteration):
        return "StopIteration escapes"
    if broken.rule == COMPLETE.name:
        last = run.events[broken.breach.events[0] - 1]
        return "StopIteration escapes" if last["kind"] == Kind.SAMPLER_END else "no entry in _task_info"
    if broken.rule == "the right batches" and isinstance(outcome.result, tuple) and outcome.result[1:] != right(0)[1:]:
        return "does not count"
    if ending and broken.rule == "no error":
        return "no worker is left"
    names = {NUMBERED.name: "the same number again", NOT_ENDED.name: "sends to an ended worker"}
    return {**names, "a bound on what is held": "no bound"}.get(broken.rule, broken.rule)


def _before_asking(run: Run) -> list[int]:
    """The positions of the tasks that were sent before main asked for the first batch."""
    asked = run.of(Kind.ASKED)
    return [position for position, _, _ in run.tasks_sent() if not len(asked) or position < asked[0]]


def primed(count: int) -> Rule:
    """`count` tasks are sent before main asks for the first batch."""

    def look(run: Run) -> Iterator[Breach]:
        found, asked = _before_asking(run), run.of(Kind.ASKED)
        if len(asked) and len(found) != count:
            yield Breach(f"{len(found)} tasks were sent before main asked for the first batch", [int(asked[0])])

    sentence = f"before main asks for a batch, it sends {count} tasks: prefetch_factor * num_workers, or all"
    return Rule("primed", sentence, look)


def _numbered(run: Run) -> Iterator[Breach]:
    for due, (position, task, _) in enumerate(run.tasks_sent()):
        if task != due:
            yield Breach(f"a task was sent with the number {task}; {due} was due", [position])


def _not_ended(run: Run) -> Iterator[Breach]:
    ended: dict[int, int] = {}  # worker -> when main learned that its stream had ended
    for position in run.of(Kind.WORKER_EXHAUSTED):
        ended.setdefault(run.worker(position), int(position))
    for position, task, worker in run.tasks_sent():
        if position > ended.get(worker, len(run.events)):
            yield Breach(f"task {task} was sent to worker {worker}, whose stream had ended", [position])


def _complete(run: Run) -> Iterator[Breach]:
    """Streams that end leave tasks unfulfilled, so their epochs do not count here."""
    if len(run.of(Kind.WORKER_EXHAUSTED)):
        return
    for position in run.of(Kind.EPOCH_END):
        there, yielded = len(list(run.tasks_sent())), len(run.of(Kind.YIELDED))
        if yielded < there:
            what = f"the epoch was over when only {yielded} of {there} tasks sent had been yielded"
            yield Breach(what, [int(position)])


NUMBERED = Rule("numbered", "the tasks of an epoch have the numbers 0, 1, 2, ...", _numbered)
NOT_ENDED = Rule("not to an ended worker", "a worker whose stream has ended gets no more tasks", _not_ended)
COMPLETE = Rule("complete", "an epoch is over when each task that was sent has been yielded", _complete)

EXERCISE = Exercise(
    number=5,
    name="dispatch",
    title="dispatch and priming",
    references=(
        "minidl.parallel:ParallelIterator._prime",
        "minidl.parallel:ParallelIterator._try_put_index",
        "minidl.parallel:ParallelIterator._choose_worker",
    ),
    task="""
    Main sends tasks to the workers, each through the worker's own index queue. Write the three methods that do this.
    `_prime` is called when an epoch begins, and gives each worker `prefetch_factor` tasks, in turn. `_try_put_index`
    sends one task: it draws the keys, records that the task is under way, and puts it on the queue of the worker that
    `_choose_worker` returns. Later the loader calls it once for each batch that it hands out.

    If the sampler has no more keys, nothing is sent, and the caller need not know. A worker whose iterable dataset has
    ended gets no more tasks: `_choose_worker` returns the next ACTIVE one in turn, or None if none is left. Then the
    drawn keys are dropped.

    `in_order=False` is exercise 8: here every loader is in order. (You may leave out the calls of `emit`.)
    """,
    legend={
        "self._next_keys()": "draws the keys of one task, [12, 13, 14, 15]; StopIteration if the sampler has no more",
        "self._prefetch_factor": "2: tasks per worker; self._num_workers is 2",
        "max_tasks": "4: prefetch_factor * num_workers; only in_order=False needs it",
        "self._next_worker": "0: the worker whose turn it is",
        "self._workers_status": "[WorkerState.ACTIVE, WorkerState.EXHAUSTED]: one per worker",
        "self._send_idx": "7: the number, task_id, of the next task to be sent",
        "self._task_info": "{4: TaskInfo(worker_id=0, keys=[8, 9]), ...}: an entry for each task that was sent and not "
        "yet yielded",
        "self._tasks_outstanding": "2: tasks that were sent and have no result yet; self._workers_num_tasks, [1, 1], "
        "is the same per worker. What you count up, `_receive` counts down",
        "self._index_queues": "one per worker: .put(Task(self._epoch_id, task_id, keys)) sends a task",
    },
    hints=(
        "Which of the three should deal with StopIteration? What must change after a task was sent, so that the next "
        "one is another task, for another worker?",
        "`_choose_worker`: look at each worker once, starting with `_next_worker`; whether it is chosen or not, the "
        "turn passes on (modulo `_num_workers`). `_prime` only calls `_try_put_index`, often enough.",
        "`_try_put_index`: keys = self._next_keys(), and return on StopIteration; worker_id = "
        "self._choose_worker(...), and return on None. Then the entry, self._task_info[self._send_idx] = "
        "TaskInfo(worker_id, keys); the two counts; self._index_queues[worker_id].put(Task(self._epoch_id, "
        "self._send_idx, keys)); and self._send_idx += 1.",
    ),
    grade=grade,
    notebook="04-the-index-queues.ipynb",
    protocol=True,
)
