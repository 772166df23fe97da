"""Exercise 6: the worker loop."""

from __future__ import annotations

from typing import Any

import minidl
from minidl.events import Kind
from minidl.messages import Task
from notebooks.exercises.answers import Answer
from notebooks.exercises.attempts import with_real_processes
from notebooks.exercises.catalogue.alone import works_alone
from notebooks.exercises.catalogue.worker_rules import (
    ALL_HAVE_ENDED,
    LEAVES,
    NO_FETCH_AFTER_STOP,
    NOBODY_DIES,
    ONE_END,
    SAME_TASK,
    unanswered_resume,
)
from notebooks.exercises.exercise import Exercise, Finding
from notebooks.exercises.failed_runs import explained
from notebooks.exercises.heartbeat import beat
from notebooks.exercises.programs import Keys, Stream, batches_or_errors, let_others_run, load, without_status_checks
from notebooks.exercises.protocol import ALWAYS, COMES_TO_AN_END, Broken, gives, play

OPTIONS: dict[str, Any] = {"num_workers": 2, "prefetch_factor": 3, "collate_fn": list}

CAUSES = {
    "an exception kills the worker": "The dataset raised, and nothing caught it: the worker's process ended, and its "
    "remaining tasks are lost. An exception has to travel to main in the batch's place.",
    "an exception is not answered": "The dataset raised, and this task got no result: main waits for it for ever. "
    "Each task needs an answer. What could you send in the batch's place?",
    "the exception as a batch": "Main took the exception for a batch, and passed it to the training loop. Main "
    "raises what comes as an ExceptionWrapper, which also carries the traceback.",
    "loses the task id": "A result has to say which task it answers: each worker has several, and main orders their "
    "batches by these numbers. Send a Result with the epoch_id and task_id of the message.",
    "goes on fetching after the done event": "Main sets the done event before it sends Stop, so that a worker skips "
    "the tasks still in its queue; otherwise long fetches could delay the shutdown by minutes. Check `self.job.done` "
    "after each message, before you fetch.",
    "fetches after its stream's end": "This worker had reported the end of its stream, and then did another task of "
    "this epoch. A stream that has ended may raise when it is asked again, or start anew. How does the loop know "
    "that it has ended?",
    "ends with its stream": "The worker ended together with its stream. With persistent workers another epoch "
    "follows: keep waiting for messages until Stop comes.",
    "leaves the loop too early": "The worker ended without being told to. Which messages end the loop?",
    "the end of a stream as an error": "StopIteration from an iterable dataset is not an error: there are no more "
    "samples. Main expects a StreamEnd in the batch's place.",
    "a task is not answered": "Main waits for the result of a task, but the workers only wait for messages. Each task "
    "needs one Result, unless main is shutting down or this worker's stream has ended.",
    "no batch": "Main got None where a batch was due: does `data_of` return something on every path?",
    gives().name: "Main got something else than the dataset's batches and errors. Go through the cases of `data_of`: "
    "a failure, keys that are an error, a batch, the end of a stream, any other exception. When does each apply?",
    "never starts": "`self.start()` calls worker_init_fn and makes the fetcher. Without it no sample can be fetched.",
    "ignores Resume": "Before main sends the first task of a new epoch, it waits until each worker has answered its "
    "Resume. `self.resume(message)` makes a new fetcher and sends the answer.",
    "ignores the end of main": "Main was killed, and the worker got a Died in place of a message. Nothing more will "
    "come: leave the loop, and return the reason.",
    "ignores self.failure": "worker_init_fn raised, so there is no fetcher: answer every task with `self.failure`.",
    "takes an error for keys": "The keys could not be pickled, and an ExceptionWrapper came in their place. Do not "
    "pass it to the dataset: it is already the answer.",
}


class Unsendable:
    """A key that cannot be pickled."""

    def __reduce__(self) -> Any:
        raise ValueError("this key cannot be pickled")


def no_licence(worker_id: int) -> None:
    raise ValueError("no licence for this worker")


@without_status_checks()
def _collect(loader: Any) -> list[Any]:
    return list(batches_or_errors(iter(loader)))


def damaged() -> list[Any]:
    return _collect(minidl.DataLoader(Keys(8, unreadable=3), batch_size=1, **OPTIONS))


@without_status_checks()
def dropped() -> Any:
    """Leave the loop after the first batch, while the workers still have tasks."""
    for batch in minidl.DataLoader(Keys(9), batch_size=1, **OPTIONS):
        let_others_run()
        return batch


@without_status_checks()
def epochs() -> list[Any]:
    return load(Stream(1, 3), epochs=2, persistent_workers=True, num_workers=2, prefetch_factor=3)


def prepared() -> list[Any]:
    return _collect(minidl.DataLoader(Keys(2), batch_size=1, worker_init_fn=no_licence, **OPTIONS))


def sent_badly() -> list[Any]:
    keys: Any = [[0], [Unsendable()], [2]]
    return _collect(minidl.DataLoader(Keys(3), batch_sampler=keys, **OPTIONS))


def orphaned() -> list[Any]:
    return load(Keys(8), num_workers=2, prefetch_factor=3)


DAMAGED = [[0], [1], [2], "ValueError", [4], [5], [6], [7]]
KILLS = tuple(f"{step}.k0" for step in (100, 50, 75, 130))  # kill -9 of main at this step
PROGRAMS = (
    (damaged, "a loader with 8 batches and 2 workers; sample 3 raises ValueError", DAMAGED, 60, ()),
    (dropped, "a loader that is dropped after its first batch", [0], 60, ()),
    (epochs, "2 persistent workers, whose streams have 1 and 3 samples, two epochs", [[0], [1], [3], [5]] * 2, 40, ()),
    (prepared, "a loader whose worker_init_fn raises ValueError", ["ValueError"] * 2, 5, ()),
    (sent_badly, "a loader with three batches; the second's key cannot be pickled", [[0], "ValueError", [2]], 5, ()),
    (orphaned, "a loader whose main process is killed", [[key] for key in range(8)], 0, KILLS),
)


def grade(answer: Answer) -> Finding | None:
    for program, words, expected, chance, schedules in PROGRAMS:
        beat(words)
        rules = [SAME_TASK, NO_FETCH_AFTER_STOP, ONE_END, NOBODY_DIES, LEAVES, *ALWAYS]
        rules += [ALL_HAVE_ENDED] if program is epochs else []
        rules.append(gives(expected, None))  # None: main was killed
        with answer.at_work():
            broken = play(program, rules, chance=chance, schedules=schedules, most_steps=4000)
        if broken is not None:
            return explained(answer, broken, _mistake(broken, program), words, CAUSES)
    return works_alone(answer) or with_real_processes(answer, damaged, DAMAGED)


def _mistake(broken: Broken, program: Any) -> str:
    """The name of the mistake that the run shows."""
    run = broken.run
    outcome = run.outcome
    errors = [error for _, error in outcome.errors]
    died = next((error for error in errors if not isinstance(error, (KeyboardInterrupt, OSError))), None)
    if outcome.last_fault_at >= 0:
        return "ignores the end of main"
    if program is epochs and unanswered_resume(run):
        return "ignores Resume"
    if not len(run.of(Kind.WORKER_READY)):
        return "never starts"
    if isinstance(died, (ValueError, StopIteration)):  # the datasets raise these
        return "an exception kills the worker"
    if isinstance(died, AttributeError) and died.name in ("data", "epoch_id") and not isinstance(died.obj, Task):
        return "loses the task id"  # what was put is not a message
    if died is not None:
        return "raises"
    if len(run.of(Kind.WORKER_DIED)):
        return "ends with its stream" if program is epochs else "leaves the loop too early"
    if broken.rule == COMES_TO_AN_END.name:
        return "an exception is not answered" if len(run.of(Kind.FETCH_FAILED)) else "a task is not answered"
    if isinstance(outcome.result, list) and None in outcome.result:
        return "no batch"
    if program is damaged and any(isinstance(each, BaseException) for each in outcome.result or ()):
        return "the exception as a batch"
    special = {prepared: "ignores self.failure", sent_badly: "takes an error for keys"}
    if broken.rule == ALL_HAVE_ENDED.name or (program is epochs and outcome.error is not None):
        return "the end of a stream as an error"
    names = {
        SAME_TASK.name: "loses the task id",
        NO_FETCH_AFTER_STOP.name: "goes on fetching after the done event",
        ONE_END.name: "fetches after its stream's end",
    }
    return names.get(broken.rule) or special.get(program, broken.rule)


EXERCISE = Exercise(
    number=6,
    name="worker_loop",
    title="the worker loop",
    references=("minidl.worker:Worker.loop", "minidl.worker:Worker.data_of"),
    task="""
    A worker is a process that runs a loop: it takes a message from its index queue and, if it is a task, does it and
    puts the result on the result queue. Write the loop, and `data_of`, which makes the batch of one task, or what takes
    its place. The worker survives whatever Exception the dataset raises: it travels to main as an ExceptionWrapper,
    made in the `except` block, and main raises it when the task's turn comes. (What is no Exception, like SystemExit,
    may end the worker.)

    There are four kinds of message. Answer a task (it has epoch_id, task_id and keys) with a Result; but skip it if
    main is shutting down (the done event is set) or if this worker's stream has ended. On Stop and on Died (main is
    dead) leave the loop, and return the End that says why. Resume begins a new epoch: `self.resume(message)` does what
    is needed. Call `self.start()` before the first message.

    If the dataset is an IterableDataset, StopIteration means that its stream has ended: `data_of` sets
    `self.stream_ended` and returns a StreamEnd. If `self.failure` is set, no task can be done: return it for each. If a
    task's keys are an ExceptionWrapper, they could not be pickled: return the wrapper. (You may leave out the calls of
    `emit`.)
    """,
    legend={
        "self.index_queue": ".get() waits for the next message and returns it: a Stop, a Died, a Resume (isinstance "
        "tells which), or else a task, with .epoch_id, .task_id, .keys, .slot and .fresh",
        "self.result_queue": ".put(Result(epoch_id=0, task_id=3, worker_id=0, data=batch, room=room))",
        "self.job": ".worker_id is 0; .done.is_set() says whether main is shutting down; .dataset is the dataset",
        "self.transport": ".room(message.slot, message.fresh), called before a task's batch is made, returns the "
        "memory for it: pass it on as the Result's `room`",
        "load(...)": "load(self.fetcher, keys, epoch_id, task_id, worker_id) fetches and collates: it returns the "
        "batch, or raises what the dataset raised",
        "self.failure": "None; or an ExceptionWrapper: worker_init_fn raised, or iter(dataset) did",
        "self.stream_ended": "False; a new epoch sets it to False again",
        "self.interrupted": "False; a signal handler sets it to True on Ctrl-C: look at it before each get()",
        "End": "End.STOPPED after a Stop, End.PARENT_DIED after a Died, End.INTERRUPTED after Ctrl-C",
        "StreamEnd": "StreamEnd(worker_id)",
        "ExceptionWrapper": "ExceptionWrapper(where='in worker 0') wraps the exception that is being handled, with its "
        "traceback",
    },
    hints=(
        "Which messages end the loop, and which tasks need no answer? Where can the user's code raise, and who "
        "should learn of it?",
        "`loop`: while not self.interrupted, get a message and check its class (isinstance): Stop, Died, Resume, "
        "else a task. Check self.job.done and self.stream_ended after the get(), not before. `data_of`: only the "
        "call of load belongs in a try.",
        "A task: room = self.transport.room(message.slot, message.fresh), and then "
        "self.result_queue.put(Result(message.epoch_id, message.task_id, self.job.worker_id, "
        "self.data_of(message), room)). In `data_of`, except Exception as error: if it is a StopIteration and "
        "self.job.dataset is an IterableDataset, set self.stream_ended and return StreamEnd(worker_id); otherwise "
        "return ExceptionWrapper(where='in DataLoader worker process 0').",
    ),
    grade=grade,
    notebook="05-the-worker.ipynb",
    protocol=True,
    forbidden=("_worker_loop", "_utils"),
)
