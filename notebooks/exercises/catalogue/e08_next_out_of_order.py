"""Exercise 8: the next batch, in_order=False."""

from __future__ import annotations

from minidl.events import Kind, Queue
from notebooks.exercises.answers import Answer
from notebooks.exercises.catalogue.out_of_order import (
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
from notebooks.exercises.failing import tell
from notebooks.exercises.heartbeat import beat
from notebooks.exercises.probes import real
from notebooks.exercises.protocol import ALWAYS, Run, gives, play

OPTIONS = f"{WORKERS} workers, prefetch_factor={PREFETCH}, in_order=False"
CALL = f"a loader with {TASKS} batches, {OPTIONS}"

CAUSES = {
    "still waits": "A batch has come, and was not handed out: main went on waiting for another one. Without order "
    "there is no batch that is due: whichever `_receive` brings is the next.",
    "leaks the task's entry": "A batch was handed out, and its task is still in `_task_info`: with its batch, which "
    "stays in memory, and where `_next_task` may find it again. What is yielded has to leave `_task_info`.",
    "ignores capacity": "A worker was given more than its share, `max_tasks // active` tasks. Without order a slow "
    "worker's batches are not waited for: each batch of a fast one brings one more task to whoever's turn it is, and "
    "they pile up with the slow one. Pass over a worker that has no room: `self._workers_num_tasks`.",
    "not in turns": "At the beginning of an epoch every worker has room, and the tasks go round: 0, 1, 0, 1. Begin to "
    "look at `self._next_worker`, and move it on.",
    "gives up at a full worker": "The keys of a task were drawn, and sent to nobody: they are dropped if "
    "`_choose_worker` returns None. The worker whose turn it is may be full, but another one has room.",
    "sends no new task": "The sampler has keys that nobody asked for. Every batch that is handed out makes room for "
    "one task: `_take` sends it.",
    "ends too early": "The epoch was over while a task was with a worker. `_rcvd_idx` may go past a task only when it "
    "has been yielded: out of order that need not be so for every task below the last one that was.",
    "never sees the end": "All batches are handed out, and main waits for one more. The epoch is over when "
    "`_rcvd_idx` has come to `_send_idx`. Is that asked before main waits? And does `_rcvd_idx` get there: who moves "
    "it past tasks that were yielded before their turn?",
    "looks for an entry that is gone": "The task at `_rcvd_idx` was yielded before its turn, and its entry went with "
    "it. Move `_rcvd_idx` past such tasks before you look.",
    "chooses nobody": "`_choose_worker` returned None, and no worker had any task. Does it come to a `return` with a "
    "worker?",
    "leaves the workers": "Before `_next_task` raises StopIteration it calls `self._shutdown_workers()`, unless the "
    "workers are to be there in the next epoch (`self._persistent_workers`).",
    "no batch": "What `_take` returns is what the training loop is given: `.data` of the task's entry.",
    "no number": "`_next_task` returned something that is no task's number. Does each way through it end with a "
    "task's number, or an exception? `_receive` returns None for a message that is no batch.",
    "twice": "A batch was handed out a second time.",
    "an error breaks the epoch": "The exception of one sample costs one batch, and the epoch goes on: a task whose "
    "exception is raised is done, as one whose batch is handed out. What is not done yet when you raise?",
    "hands out the error": "What `_take` finds in the entry may be an ExceptionWrapper, which a worker has sent in "
    "the batch's place: `.reraise()` raises it in main, where the training loop sees it.",
}


def grade(answer: Answer) -> Finding | None:
    with answer.at_work():
        beat(CALL)
        broken = play(program, RULES)
        if broken is not None:
            assert broken.outcome is not None
            mistake = _mistake(broken.rule, Run(broken.outcome))
            return tell(answer, broken, mistake, CALL, CAUSES)
        good = [each for each in BATCHES if each != [3]]
        broken = play(program_with_an_error, [NO_BATCH, *ALWAYS, gives(good)], chance=1)
        if broken is not None:
            call = f"{CALL}, whose sample 3 cannot be read"
            assert broken.outcome is not None
            mistake = "hands out the error" if broken.rule == "no batch" else "an error breaks the epoch"
            return tell(answer, broken, mistake, call, CAUSES)
    return real(answer, program, BATCHES)


def _mistake(rule: str, run: Run) -> str:
    """More exactly than the rule says it."""
    outcome = run.outcome
    yielded, sent = len(run.of(Kind.YIELDED)), (run.events["task"][run.of(Kind.PUT, queue=Queue.INDEX)] >= 0).sum()
    if (outcome.deadlock or outcome.endless) and yielded == sent:
        return "never sees the end"
    if rule == "gives up at a full worker" and not sent:
        return "chooses nobody"
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
    A training loop that does not mind the order need not wait for a slow worker: with `in_order=False` main hands
    out whichever batch comes next. Write the three methods in which that makes a difference. `_next_task` waits
    until some batch is there, and returns its task's number. `_take` is called with the number: it sends one new
    task, and hands the batch out, or raises the exception that came in its place; the task is forgotten.

    `_choose_worker` says which worker is sent a task: the next active one in turn that has room. Where batches are
    waited for in turn no worker can have too many; here, one that is slow would be sent more and more. Hence the
    bound: of the `max_tasks` that may be under way, each of the active workers has its equal share. It returns None
    if no worker can take a task; the keys are dropped then.

    Here every loader has `in_order=False`, all workers are active, and every task brings a batch. (The lines for
    other loaders may be left out, and so may the calls of `emit`.)
    """,
    legend={
        "self._receive(timeout)": "takes in one message (call it with self._timeout), puts a batch into its task's "
        "entry, and returns the task's number, 5; None for a message that was no batch",
        "self._task_info": "{4: TaskInfo(worker_id=0, keys=[8, 9]), ...}: the tasks that were sent and not yet "
        "yielded; .data is the batch, or an ExceptionWrapper in its place; .arrived says whether it is there",
        "self._rcvd_idx": "4: all tasks below it are yielded. self._skip_unfulfilled() moves it past tasks that have "
        "left _task_info, as long as it is one of these",
        "self._send_idx": "7: the next task to be sent. When _rcvd_idx has come to it, the epoch is over: call "
        "self._shutdown_workers() (unless self._persistent_workers), and raise StopIteration",
        "self._try_put_index()": "sends one task, if there is one: it draws keys, and calls _choose_worker",
        "max_tasks": "4: prefetch_factor * num_workers, the tasks that may be under way in all",
        "self._next_worker": "1: whose turn it is; _choose_worker moves it on, after the last back to 0",
        "self._workers_num_tasks": "[2, 1]: tasks that were sent to each worker, and no result received",
        "self._workers_status": "[WorkerState.ACTIVE, WorkerState.ACTIVE]",
    },
    hints=(
        "What does main wait for when no batch is due? And if worker 0 takes a minute for one task, and worker 1 none "
        "at all: to whom do the new tasks go?",
        "`_next_task` is a loop: move `_rcvd_idx` past what was yielded (`_skip_unfulfilled`); is the epoch over; "
        "`_receive`, and if that was a batch, return its number. `_choose_worker` looks at each worker once, "
        "beginning with `_next_worker`; one that has `max_tasks // active` tasks is passed over.",
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
