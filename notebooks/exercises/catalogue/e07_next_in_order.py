"""Exercise 7: the next batch, in order."""

from __future__ import annotations

from minidl.events import Kind, Queue
from notebooks.exercises.answers import Answer
from notebooks.exercises.exercise import Exercise, Finding
from notebooks.exercises.failing import tell
from notebooks.exercises.probes import real
from notebooks.exercises.programs import Keys, load, waiting_for_ever
from notebooks.exercises.protocol import ALWAYS, IN_ORDER, Run, gives, never_more_than, play

TASKS, WORKERS, PREFETCH = 8, 2, 2
BATCHES = [[key] for key in range(TASKS)]
CALL = f"a loader with {TASKS} batches, {WORKERS} workers, prefetch_factor={PREFETCH}"

CAUSES = {
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


def grade(answer: Answer) -> Finding | None:
    rules = [IN_ORDER, never_more_than(WORKERS * PREFETCH), *ALWAYS, gives(BATCHES)]
    with answer.at_work():
        broken = play(program, rules)
        if broken is None:
            return real(answer, program, BATCHES)
        mistake = {IN_ORDER.name: "no buffer", rules[1].name: "refills on receipt"}.get(broken.rule, broken.rule)
        assert broken.outcome is not None
        if (broken.outcome.deadlock or broken.outcome.endless) and _has_come(Run(broken.outcome)):
            mistake = "never looks into the buffer"
    return tell(answer, broken, mistake, CALL, CAUSES)


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
    brings a batch. (The lines for both may be left out, and so may the calls of `emit`: without them the timeline shows
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
