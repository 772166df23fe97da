"""Exercise 7: the next batch, in order."""

from __future__ import annotations

from typing import Any

import minidl
from minidl.events import Kind, Queue
from notebooks.exercises.answers import Answer
from notebooks.exercises.attempts import with_real_processes
from notebooks.exercises.exercise import Exercise, Finding
from notebooks.exercises.failed_runs import explained
from notebooks.exercises.programs import Keys, batches_or_errors, load, without_status_checks
from notebooks.exercises.protocol import ALWAYS, IN_ORDER, Broken, Run, gives, never_more_than, play

TASKS, WORKERS, PREFETCH = 8, 2, 2
BATCHES = [[key] for key in range(TASKS)]
CALL = f"a loader with {TASKS} batches, {WORKERS} workers, prefetch_factor={PREFETCH}"

CAUSES = {
    "hands out an exception": "This task brought not a batch but an ExceptionWrapper, with the exception that the "
    "dataset raised in the worker. The training loop must see it: reraise() raises it.",
    "keeps what it has handed out": "Batches that were handed out still have their entries in `self._task_info`, "
    "which keeps a whole epoch in memory. Remove the entry when you hand out its batch.",
    "an error out of turn": "An ExceptionWrapper is in its task's place, and waits in the buffer like a batch: it is "
    "raised when `_rcvd_idx` has reached its task, neither earlier nor later.",
    "loses count of a worker's tasks": "`self._workers_num_tasks` says how many tasks each worker still has. Count "
    "it down with every result from that worker.",
    "sends too much": "`_try_put_index` was called when the limit of outstanding tasks was reached. Call it once for "
    "each batch you hand out. And once its result has come, a task is no longer outstanding: did you count it down?",
    "sends nothing new": "Only the tasks at the beginning of the epoch were ever sent. What sends a new one when a "
    "batch is handed out?",
    "ends too early": "StopIteration came before all batches were handed out. Some may be in the buffer still, though "
    "no worker has a task: the epoch is over when `_rcvd_idx` has reached `_send_idx`.",
    "hands out no batch": "The training loop got None. What `_take` returns is what next() returns.",
    "no buffer": "A batch was handed out because it had arrived, not because it was its turn. A batch that arrives "
    "early must wait in `self._task_info` until `self._rcvd_idx` reaches its task.",
    "never looks into the buffer": "The batch whose turn it is has already arrived, and is in `self._task_info`. Yet "
    "`_next_task` waits for a message that will never come. Check `.arrived` of the task's entry before you wait.",
    "refills on receipt": "A new task is sent whenever a batch arrives. While main waits for one slow batch, the "
    "others pile up without limit. Send a task when you hand out a batch: in `_take`, and nowhere else.",
}


@without_status_checks()
def program() -> list[list[int]]:
    return load(Keys(TASKS), num_workers=WORKERS, prefetch_factor=PREFETCH)


AFTERWARDS: tuple[list[Any], list[int], list[int]] = [[0], [1], "ValueError", *BATCHES[3:]], [], [0] * WORKERS


@without_status_checks()
def afterwards() -> tuple[list[Any], list[int], list[int]]:
    """Each batch, or what was raised in its place; the tasks still in _task_info; how many each worker still has."""
    dataset = Keys(TASKS, unreadable=2)
    loader: Any = minidl.DataLoader(
        dataset, batch_size=1, collate_fn=list, num_workers=WORKERS, prefetch_factor=PREFETCH
    )
    iterator = iter(loader)
    found = [each if isinstance(each, (list, str)) else type(each).__name__ for each in batches_or_errors(iterator)]
    return found, sorted(iterator._task_info), iterator._workers_num_tasks


def grade(answer: Answer) -> Finding | None:
    rules = [IN_ORDER, never_more_than(WORKERS * PREFETCH), *ALWAYS, gives(BATCHES)]
    with answer.at_work():
        broken = play(program, rules)
        if broken is None:
            broken = play(afterwards, [*ALWAYS, gives(AFTERWARDS)], chance=20)
            if broken is None:
                return with_real_processes(answer, program, BATCHES)
            return explained(answer, broken, _left(broken), f"{CALL}; sample 2 raises", CAUSES)
        mistake = {IN_ORDER.name: "no buffer", rules[1].name: "refills on receipt"}.get(broken.rule, broken.rule)
        if "more tasks outstanding" in broken.error:
            mistake = "sends too much"
        elif broken.rule == gives().name and len(broken.run.of(Kind.KEYS_DRAWN)) <= WORKERS * PREFETCH:
            mistake = "sends nothing new"
        elif broken.rule == gives().name and None in broken.run.outcome.result:
            mistake = "hands out no batch"
        elif broken.rule == gives().name and broken.run.outcome.result == BATCHES[: len(broken.run.of(Kind.YIELDED))]:
            mistake = "ends too early"
        if broken.run.never_ends and _has_come(broken.run):
            mistake = "never looks into the buffer"
    return explained(answer, broken, mistake, CALL, CAUSES)


def _left(broken: Broken) -> str:
    """The mistake, after an epoch in which a sample raised."""
    result = broken.run.outcome.result
    if not isinstance(result, tuple):
        return broken.rule
    if "ExceptionWrapper" in result[0]:
        return "hands out an exception"
    if result[1]:
        return "keeps what it has handed out"
    if sorted(result[0], key=str) == sorted(AFTERWARDS[0], key=str) and result[0] != AFTERWARDS[0]:
        return "an error out of turn"
    return "loses count of a worker's tasks" if result[2] != AFTERWARDS[2] else broken.rule


def _has_come(run: Run) -> bool:
    """Whether main had already received the batch that it waits for."""
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
    Batches come back from the workers in any order; main yields them in the sampler's order. Write the three methods
    that do this. `_next_task` waits until the batch of task `_rcvd_idx` is there, and returns that number. To wait, it
    calls `_receive`, which takes in one message. A batch that arrives early stays in `_task_info`: that is the reorder
    buffer. Then `_take` is called with the number: it hands the batch out, and sends one new task in its place.

    `in_order=False` is exercise 8, and streams that end are exercise 9. Here every loader is in order, and every task
    brings a batch, or an ExceptionWrapper with the exception that the worker raised: `_take` raises it. (You may leave
    out the lines for those two exercises, and the calls of `emit`: without them only the timeline's reorder buffer is
    missing.)
    """,
    legend={
        "self._rcvd_idx": "4: the next task to be yielded",
        "self._send_idx": "7: the next task to be sent. When the two are equal, the epoch is over: call "
        "self._shutdown_workers() (unless self._persistent_workers), and raise StopIteration",
        "self._task_info": "{4: TaskInfo(worker_id=0, keys=[8, 9]), ...}: the tasks that were sent and not yet "
        "yielded. Store a batch in .data of its task; .arrived says whether it is there",
        "self._get_data(timeout)": "the next message: Result(task_id=5, worker_id=1, data=batch), or Died, which you "
        "can ignore",
        "self._tasks_outstanding": "2: tasks that were sent and have no result yet. _workers_num_tasks is the same "
        "per worker",
        "self._try_put_index()": "sends one task, if there is one",
        "data.reraise()": "raises the exception in an ExceptionWrapper",
        "self._timeout": "the argument for _receive",
    },
    hints=(
        "Which of the three methods may wait? What must it check before it does?",
        "`_next_task` is a loop. Is the epoch over? Is the batch of `_rcvd_idx` there "
        "(`self._task_info[...].arrived`)? If neither, `_receive` one message, and check again.",
        "`_receive`: result = self._get_data(timeout); count `_tasks_outstanding` and `_workers_num_tasks` down; "
        "self._task_info[result.task_id].data = result.data; return result.task_id. `_take`: self._try_put_index(), "
        "then pop the task's entry from `_task_info`, add 1 to `_rcvd_idx`, and return the entry's data. (If it is "
        "an ExceptionWrapper: data.reraise().)",
    ),
    grade=grade,
    notebook="06-out-of-order-back-in-order.ipynb",
    protocol=True,
)
