"""Exercise 8: the next batch, in_order=False."""

from __future__ import annotations

from minidl.events import Kind, Queue
from notebooks.exercises.answers import Answer
from notebooks.exercises.attempts import with_real_processes
from notebooks.exercises.catalogue.out_of_order_rules import (
    BATCHES,
    NO_BATCH,
    PREFETCH,
    RULES,
    TASKS,
    WORKERS,
    program,
    program_with_an_error,
)
from notebooks.exercises.exercise import Exercise, Finding
from notebooks.exercises.failed_runs import explained
from notebooks.exercises.heartbeat import beat
from notebooks.exercises.protocol import ALWAYS, Run, gives, play

OPTIONS = f"{WORKERS} workers, prefetch_factor={PREFETCH}, in_order=False"
CALL = f"a loader with {TASKS} batches, {OPTIONS}"

CAUSES = {
    "still waits": "A batch arrived and was not handed out: main went on waiting for another one. Out of order no "
    "particular batch is due: whichever `_receive` brings is the next.",
    "leaks the task's entry": "A batch was handed out, but its task is still in `_task_info`: the batch stays in "
    "memory, and `_next_task` may find it again. Remove the entry when you hand out the batch.",
    "ignores capacity": "A worker was given more than its share, `max_tasks // active` tasks. Out of order main does "
    "not wait for a slow worker: each batch of a fast worker sends one more task to the worker whose turn it is, so "
    "tasks pile up at the slow one. Skip a worker that has no room: see `self._workers_num_tasks`.",
    "not in turns": "At the beginning of an epoch every worker has room, and the tasks go round: 0, 1, 0, 1. Start "
    "looking at `self._next_worker`, and move it on.",
    "gives up at a full worker": "The keys of a task were drawn and never sent: they are dropped if `_choose_worker` "
    "returns None. The worker whose turn it is may be full, but another one has room.",
    "sends no new task": "The sampler still has keys. Every batch that is handed out makes room for one task: "
    "`_take` sends it.",
    "ends too early": "The epoch ended while a worker still had a task. `_rcvd_idx` may move past a task only when "
    "that task has been yielded; out of order, a later task may be yielded first.",
    "never sees the end": "All batches are handed out, yet main waits for one more. The epoch is over when "
    "`_rcvd_idx` has reached `_send_idx`. Do you check that before main waits? And does `_rcvd_idx` get there: what "
    "moves it past tasks that were yielded early?",
    "looks for an entry that is gone": "The task at `_rcvd_idx` was yielded early, and its entry is gone. Move "
    "`_rcvd_idx` past such tasks before you look.",
    "chooses no worker": "`_choose_worker` returned None although no worker had a task. Does it ever return a worker?",
    "leaves the workers": "Before `_next_task` raises StopIteration, it must call `self._shutdown_workers()`, unless "
    "the workers stay for the next epoch (`self._persistent_workers`).",
    "no batch": "`_take` must return what the training loop gets: `.data` of the task's entry.",
    "no number": "`_next_task` returned something that is not a task's number. Does every path through it end with a "
    "task's number, or an exception? `_receive` returns None for a message that is not a batch.",
    "twice": "A batch was handed out a second time.",
    "an error breaks the epoch": "An exception in one sample costs one batch, and the epoch goes on: once its "
    "exception is raised, a task is as finished as one whose batch is handed out. What have you not yet done when "
    "you raise?",
    "hands out the error": "The entry's data may be an ExceptionWrapper that a worker sent in the batch's place: "
    "`.reraise()` raises the exception in main, where the training loop sees it.",
}


def grade(answer: Answer) -> Finding | None:
    with answer.at_work():
        beat(CALL)
        broken = play(program, RULES)
        if broken is not None:
            mistake = _mistake(broken.rule, broken.run)
            return explained(answer, broken, mistake, CALL, CAUSES)
        good = [each for each in BATCHES if each != [3]]
        broken = play(program_with_an_error, [NO_BATCH, *ALWAYS, gives(good)], chance=1)
        if broken is not None:
            call = f"{CALL}, whose sample 3 cannot be read"
            mistake = "hands out the error" if broken.rule == "no batch" else "an error breaks the epoch"
            return explained(answer, broken, mistake, call, CAUSES)
    return with_real_processes(answer, program, BATCHES)


def _mistake(rule: str, run: Run) -> str:
    """The mistake behind the broken rule."""
    outcome = run.outcome
    yielded, sent = len(run.of(Kind.YIELDED)), (run.events["task"][run.of(Kind.PUT, queue=Queue.INDEX)] >= 0).sum()
    if run.never_ends and yielded == sent:
        return "never sees the end"
    if rule == "gives up at a full worker" and not sent:
        return "chooses no worker"
    if isinstance(outcome.error, KeyError):
        return "no number" if not isinstance([*outcome.error.args, None][0], int) else "looks for an entry that is gone"
    if rule == "the right batches":
        return "sends no new task" if sent < TASKS else "ends too early"
    return rule


EXERCISE = Exercise(
    number=8,
    name="next_out_of_order",
    title="the next batch, in_order=False",
    references=(
        "minidl.parallel:ParallelIterator._choose_worker",
        "minidl.parallel:ParallelIterator._next_task",
        "minidl.parallel:ParallelIterator._take",
    ),
    task="""
    A training loop that does not care about the order need not wait for a slow worker: with `in_order=False` main hands
    out whichever batch arrives next. Write the three methods in which that makes a difference. `_next_task` waits until
    any batch is there (one may be already), and returns its task's number. `_take` is called with the number: it sends
    one new task, forgets the old one, and hands out its batch, or raises the exception that came in its place.

    `_choose_worker` returns the worker that gets the next task: the next active one in turn that has room. In order,
    main waits for each batch in turn, so no worker can have too many tasks; here a slow one would be sent more and
    more. Hence the limit: each active worker gets an equal share of the `max_tasks` that may be under way. If no worker
    can take a task, it returns None, and the keys are dropped.

    Here every loader has `in_order=False`, all workers are active, and every task brings a batch. (You may leave out
    the lines for other loaders, and the calls of `emit`.)
    """,
    legend={
        "self._receive(timeout)": "takes in one message (call it with self._timeout), stores a batch in its task's "
        "entry, and returns the task's number, 5; None for a message that is not a batch",
        "self._task_info": "{4: TaskInfo(worker_id=0, keys=[8, 9]), ...}: the tasks that were sent and not yet "
        "yielded; .data is the batch, or an ExceptionWrapper in its place; .arrived says whether it is there",
        "self._rcvd_idx": "4: all tasks below it have been yielded. self._skip_unfulfilled() moves it past tasks "
        "that are no longer in _task_info",
        "self._send_idx": "7: the next task to be sent. When _rcvd_idx reaches it, the epoch is over: call "
        "self._shutdown_workers() (unless self._persistent_workers), and raise StopIteration",
        "self._try_put_index()": "sends one task, if there is one: it draws keys, and calls _choose_worker",
        "max_tasks": "4: prefetch_factor * num_workers, the tasks that may be under way in all",
        "self._next_worker": "1: whose turn it is; _choose_worker moves it on, from the last back to 0",
        "self._workers_num_tasks": "[2, 1]: how many tasks each worker was sent that have no result yet",
        "self._workers_status": "[WorkerState.ACTIVE, WorkerState.ACTIVE]",
    },
    hints=(
        "What does main wait for when no particular batch is due? And if worker 0 takes a minute for one task, and "
        "worker 1 no time at all, where do the new tasks go?",
        "`_next_task` is a loop: move `_rcvd_idx` past what was yielded (`_skip_unfulfilled`); check whether the "
        "epoch is over; `_receive`, and if that was a batch, return its number. `_choose_worker` looks at each "
        "worker once, starting with `_next_worker`, and skips one that has `max_tasks // active` tasks.",
        "`_choose_worker`: active = self._workers_status.count(WorkerState.ACTIVE); num_workers times: worker_id = "
        "self._next_worker; move that on, modulo num_workers; return worker_id if it is active and "
        "self._workers_num_tasks[worker_id] < max_tasks // active. After the loop None. `_take`: "
        "self._try_put_index(); pop the entry; if its task is _rcvd_idx, that goes up by one; data.reraise() if it is "
        "an ExceptionWrapper; else return data.",
    ),
    grade=grade,
    notebook="06-out-of-order-back-in-order.ipynb",
    protocol=True,
)
