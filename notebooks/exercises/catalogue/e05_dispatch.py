"""Exercise 5: priming, and the dispatch of tasks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import minidl
from minidl.events import Kind
from notebooks.exercises.answers import Answer
from notebooks.exercises.exercise import Exercise, Finding
from notebooks.exercises.failing import sent, tell
from notebooks.exercises.heartbeat import beat
from notebooks.exercises.probes import real
from notebooks.exercises.programs import Keys, Stream, elsewhere, waiting_for_ever
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
    "primes one task a worker": "While a worker's only batch is on its way to main and back it has nothing to do: each "
    "should have `prefetch_factor` tasks from the start.",
    "does not prime": "Nobody sends a first task: `_take` sends one only in the place of a batch that is handed out.",
    "primes otherwise": f"At the start each of the {WORKERS} workers should get `prefetch_factor` tasks, {MOST} in "
    "all, or as many as the sampler has.",
    "fills worker 0 first": "One worker gets all its tasks before the next gets any. Batches are handed out in the "
    "order of the tasks: main would wait for worker 0 alone, while what worker 1 makes piles up.",
    "always the same worker": "Nothing says that the turn has passed on: where does `_next_worker` change?",
    "whoever has the fewest": "The worker is chosen by how much it has to do, and that depends on who is quick today: "
    "the same seed would give other batches to the workers in every run, and random transforms other numbers. In "
    "order, the turn alone decides.",
    "not in turns": "The first task is worker 0's, the next worker 1's, and so on, round and round: `_next_worker` is "
    "whose turn it is, and is 0 when an epoch begins.",
    "the same number again": "A task's number is its place in the order. Two with one number cannot be told apart when "
    "their batches come back: `_send_idx` is the number of the next task, so it moves on with each.",
    "StopIteration escapes": "The sampler had no more keys, and its StopIteration went on to whoever called. In next() "
    "it looks like the end of the epoch, though batches are still on their way. Who should hear of it?",
    "no entry in _task_info": "Main looks into `_task_info` for what is still to come. A task without an entry there "
    "is passed over as if it had been yielded: what `_take` should find has to be put there when the task is sent.",
    "does not count": "What is sent is counted in `_tasks_outstanding`, and for each worker in `_workers_num_tasks`; "
    "`_receive` counts them down again. After an epoch they should be 0.",
    "sends to an ended worker": "That worker's stream has ended: `_workers_status[worker_id]` is no longer "
    "WorkerState.ACTIVE. It does nothing with a task, and a persistent one only waits for the next epoch.",
    "no worker is left": "When every worker's stream has ended there is nobody to send to. `_choose_worker` says so by "
    "returning None, and then nothing is sent or noted.",
    "no bound": "Each yield may bring one new task, and no more: then what is under way stays bounded.",
}


def many() -> tuple[list[Any], int, list[int]]:
    return _load(Keys(10))


def few() -> tuple[list[Any], int, list[int]]:
    return _load(Keys(4))


def streams() -> list[Any]:
    return _load(Stream(1, 4))[0]


@waiting_for_ever()
def _load(dataset: Any) -> tuple[list[Any], int, list[int]]:
    """The batches of an epoch, and the two counts after it."""
    iterator: Any = iter(minidl.DataLoader(dataset, **OPTIONS))
    found = []
    for batch in iterator:
        elsewhere()
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
            return tell(answer, broken, _mistake(broken, program is streams), call, CAUSES)
    return real(answer, many, right(10))


def _mistake(broken: Broken, ending: bool) -> str:
    """Its name, from the run."""
    outcome = broken.outcome
    assert outcome is not None
    run = Run(outcome)
    workers = [worker for _, _, worker in sent(run)]
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
        return "whoever has the fewest" if in_turn else "not in turns"
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
    return [position for position, _, _ in sent(run) if not len(asked) or position < asked[0]]


def primed(count: int) -> Rule:
    """So many tasks are sent before the first batch is asked for."""

    def look(run: Run) -> Iterator[Breach]:
        found, asked = _before_asking(run), run.of(Kind.ASKED)
        if len(asked) and len(found) != count:
            yield Breach(f"{len(found)} tasks were sent before the first batch was asked for", [int(asked[0])])

    sentence = f"before the first batch is asked for, {count} tasks are sent: prefetch_factor * num_workers, or all"
    return Rule("primed", sentence, look)


def _numbered(run: Run) -> Iterator[Breach]:
    for due, (position, task, _) in enumerate(sent(run)):
        if task != due:
            yield Breach(f"a task was sent with the number {task}, where {due} was due", [position])


def _not_ended(run: Run) -> Iterator[Breach]:
    ended: dict[int, int] = {}  # worker -> when main had learned that its stream has ended
    for position in run.of(Kind.WORKER_EXHAUSTED):
        ended.setdefault(int(run.events["worker"][position]), int(position))
    for position, task, worker in sent(run):
        if position > ended.get(worker, len(run.events)):
            yield Breach(f"task {task} was sent to worker {worker}, whose stream had ended", [position])


def _complete(run: Run) -> Iterator[Breach]:
    """A stream ends with tasks that nobody fulfils: there main learns of the end from each worker."""
    if len(run.of(Kind.WORKER_EXHAUSTED)):
        return
    for position in run.of(Kind.EPOCH_END):
        there, yielded = len(list(sent(run))), len(run.of(Kind.YIELDED))
        if yielded < there:
            what = f"the epoch was over when {yielded} of the {there} tasks that were sent had been yielded"
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
    Main sends tasks to the workers, each over the worker's own index queue. Write the three methods that do it.
    `_prime` is called when an epoch begins, and gives each worker `prefetch_factor` tasks, in turns. `_try_put_index`
    sends one task: it draws the keys, notes that the task is under way, and puts it on the queue of the worker that
    `_choose_worker` names. From then on the loader calls it once for each batch that it hands out.

    The sampler may have no more keys: then nothing is sent, and the caller need not know. A worker may be out of the
    game, since its iterable dataset has ended: `_choose_worker` returns the next one in turn that is not, or None if
    none is left. Then the keys that were drawn are dropped.

    `in_order=False` is exercise 8: here every loader is in order. (The calls of `emit` may be left out.)
    """,
    legend={
        "self._next_keys()": "draws the keys of one task, [12, 13, 14, 15]; StopIteration if the sampler has no more",
        "self._prefetch_factor": "2: tasks a worker should have; self._num_workers is 2",
        "max_tasks": "4: prefetch_factor * num_workers, which `_choose_worker` is given; only in_order=False needs it",
        "self._next_worker": "0: the worker whose turn it is",
        "self._workers_status": "[WorkerState.ACTIVE, WorkerState.EXHAUSTED]: of each worker",
        "self._send_idx": "7: the number, task_id, of the next task to be sent",
        "self._task_info": "{4: TaskInfo(worker_id=0, keys=[8, 9]), ...}: an entry for each task that was sent and not "
        "yet yielded",
        "self._tasks_outstanding": "2: tasks that were sent, and no result received; self._workers_num_tasks, [1, 1], "
        "is the same for each worker. What you count up is counted down when a result comes in",
        "self._index_queues": "one a worker; .put(Task(self._epoch_id, task_id, keys)) sends",
    },
    hints=(
        "Which of the three should know of StopIteration? What has to be different after a task was sent, so that the "
        "next one is another task, for another worker?",
        "`_choose_worker`: look at no more workers than there are, beginning with `_next_worker`; whether it is chosen "
        "or not, the turn passes on (modulo `_num_workers`). `_prime` only calls `_try_put_index`, often enough.",
        "`_try_put_index`: keys = self._next_keys(), and return at StopIteration; worker_id = "
        "self._choose_worker(...), and return at None. Then the entry, self._task_info[self._send_idx] = "
        "TaskInfo(worker_id, keys); the two counts; self._index_queues[worker_id].put(Task(self._epoch_id, "
        "self._send_idx, keys)); and self._send_idx += 1.",
    ),
    grade=grade,
    notebook="04-the-index-queues.ipynb",
    protocol=True,
)
