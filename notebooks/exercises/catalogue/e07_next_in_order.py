"""Exercise 7: the next batch, in order."""

from __future__ import annotations

from typing import Any

import minidl
from minidl.events import Kind, Queue
from notebooks.exercises.answers import Answer
from notebooks.exercises.exercise import Exercise, Finding
from notebooks.exercises.failing import tell
from notebooks.exercises.probes import real
from notebooks.exercises.programs import Keys, elsewhere, load, waiting_for_ever
from notebooks.exercises.protocol import ALWAYS, IN_ORDER, Broken, Run, gives, never_more_than, play

TASKS, WORKERS, PREFETCH = 8, 2, 2
BATCHES = [[key] for key in range(TASKS)]
CALL = f"a loader with {TASKS} batches, {WORKERS} workers, prefetch_factor={PREFETCH}"

CAUSES = {
    "hands out an exception": "What came for this task is no batch, but the exception that the dataset raised in its "
    "worker, wrapped in an ExceptionWrapper. Whoever asks for the batch has to be told: reraise() raises it.",
    "keeps what it has handed out": "The entries of batches that were handed out are still in `self._task_info`, and "
    "the batches with them: an epoch's worth of memory. An entry goes when its batch does.",
    "loses count of a worker's tasks": "`self._workers_num_tasks` says how many tasks each worker still has. One less "
    "with every result of that worker.",
    "sends too much": "`_try_put_index` was called when as many tasks were out as may be. It is called once for each "
    "batch that is handed out; and a result that has come is no longer outstanding: was it counted?",
    "sends nothing new": "Only the first tasks were ever sent, those of the beginning of the epoch. Who sends a new "
    "one when a batch is handed out?",
    "no buffer": "A batch was handed out because it had come, and not because it was its turn. One that comes early "
    "has to wait in `self._task_info` until `self._rcvd_idx` is its task.",
    "never looks into the buffer": "The batch whose turn it is has come already, and lies in `self._task_info`; "
    "`_next_task` waits for a message all the same, and for a task that is done none will come. Look there before you "
    "wait: `.arrived` of the task's entry.",
    "refills on receipt": "A new task is sent whenever a batch comes in. While one slow batch is waited for, the "
    "others then pile up without end. Send one when a batch is handed out: in `_take`, and nowhere else.",
}


@waiting_for_ever()
def program() -> list[list[int]]:
    return load(Keys(TASKS), num_workers=WORKERS, prefetch_factor=PREFETCH)


class Failing(Keys):
    """Sample 2 cannot be had."""

    def __getitem__(self, key: int) -> int:
        if key == 2:
            raise ValueError("no sample 2")
        return super().__getitem__(key)


AFTERWARDS: tuple[list[Any], list[int], list[int]] = [[0], [1], "ValueError", *BATCHES[3:]], [], [0] * WORKERS


@waiting_for_ever()
def afterwards() -> tuple[list[Any], list[int], list[int]]:
    """Each batch, or what was raised in its place; the tasks that are still noted; those that each worker still has."""
    loader: Any = minidl.DataLoader(
        Failing(TASKS), batch_size=1, collate_fn=list, num_workers=WORKERS, prefetch_factor=PREFETCH
    )
    batches, found = iter(loader), list[Any]()
    while True:
        try:
            batch = next(batches)
        except StopIteration:
            return found, sorted(batches._task_info), batches._workers_num_tasks
        except ValueError as error:
            batch = type(error).__name__
        elsewhere()
        found.append(batch if isinstance(batch, (list, str)) else type(batch).__name__)


def grade(answer: Answer) -> Finding | None:
    rules = [IN_ORDER, never_more_than(WORKERS * PREFETCH), *ALWAYS, gives(BATCHES)]
    with answer.at_work():
        broken = play(program, rules)
        if broken is None:
            broken = play(afterwards, [*ALWAYS, gives(AFTERWARDS)], chance=20)
            if broken is None:
                return real(answer, program, BATCHES)
            return tell(answer, broken, _left(broken), f"{CALL}; sample 2 raises", CAUSES)
        mistake = {IN_ORDER.name: "no buffer", rules[1].name: "refills on receipt"}.get(broken.rule, broken.rule)
        assert broken.outcome is not None
        if "more tasks outstanding" in broken.error:
            mistake = "sends too much"
        elif broken.rule == gives().name and len(Run(broken.outcome).of(Kind.KEYS_DRAWN)) <= WORKERS * PREFETCH:
            mistake = "sends nothing new"
        if (broken.outcome.deadlock or broken.outcome.endless) and _has_come(Run(broken.outcome)):
            mistake = "never looks into the buffer"
    return tell(answer, broken, mistake, CALL, CAUSES)


def _left(broken: Broken) -> str:
    """What is wrong after an epoch in which a sample failed."""
    result = broken.outcome.result if broken.outcome is not None else None
    if not isinstance(result, tuple):
        return broken.rule
    if "ExceptionWrapper" in result[0]:
        return "hands out an exception"
    return "keeps what it has handed out" if result[1] else "loses count of a worker's tasks"


def _has_come(run: Run) -> bool:
    """Whether main had taken the batch that it waited for from the queue."""
    due = len(run.of(Kind.YIELDED))
    return bool((run.events["task"][run.of(Kind.GOT, queue=Queue.RESULT)] == due).any())


EXERCISE = Exercise(
    number=7,
    name="next_in_order",
    title="the next batch, in order",
    references=(
        "minidl.parallel:ParallelIterator._receive",
        "minidl.parallel:ParallelIterator._next_task",
        "minidl.parallel:ParallelIterator._take",
    ),
    task="""
    Batches come back from the workers in any order; main yields them in the sampler's. Write the three methods that do
    it. `_next_task` waits until the batch of task `_rcvd_idx` is there, and returns that number. It waits by calling
    `_receive`, which takes in one message; a batch that came too early stays in `_task_info`: that is the reorder
    buffer. Then `_take` is called with the number: it hands the batch out, and sends one new task in its place.

    `in_order=False` is exercise 8, streams that end are exercise 9: here every loader is in order, and every task
    brings a batch, or the exception that was raised in the worker: an ExceptionWrapper in the batch's place, which
    `_take` raises. (The lines for both may be left out, and so may the calls of `emit`: without them the timeline shows
    no reorder buffer, and nothing else depends on them.)
    """,
    legend={
        "self._rcvd_idx": "4: the next task to be yielded",
        "self._send_idx": "7: the next task to be sent. When the two are equal, the epoch is over: call "
        "self._shutdown_workers() (unless self._persistent_workers), and raise StopIteration",
        "self._task_info": "{4: TaskInfo(worker_id=0, keys=[8, 9]), ...}: the tasks that were sent and not yet "
        "yielded. A batch is put into .data of its task; .arrived says whether it is there",
        "self._get_data(timeout)": "the next message: Result(task_id=5, worker_id=1, data=batch), or Died, which "
        "needs nothing done",
        "self._tasks_outstanding": "2: tasks that were sent, and no result received. _workers_num_tasks is the same "
        "for each worker",
        "self._try_put_index()": "sends one task, if there is one",
        "data.reraise()": "of an ExceptionWrapper: raises what it holds",
        "self._timeout": "what _receive is called with",
    },
    hints=(
        "Which of the three methods may wait? What has to be looked at before it does?",
        "`_next_task` is a loop: is the epoch over; is the batch of `_rcvd_idx` there "
        "(`self._task_info[...].arrived`); if neither, `_receive` one message, and look again.",
        "`_receive`: result = self._get_data(timeout); count `_tasks_outstanding` and `_workers_num_tasks` down; "
        "self._task_info[result.task_id].data = result.data; return result.task_id. `_take`: self._try_put_index(), "
        "then pop the entry of the task from `_task_info`, move `_rcvd_idx` on, and return its data. (An "
        "ExceptionWrapper in its place is raised: data.reraise().)",
    ),
    grade=grade,
    notebook="06-out-of-order-back-in-order.ipynb",
    protocol=True,
)
