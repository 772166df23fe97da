"""Exercise 12: noticing a dead worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from minidl.world.simulated import simulate
from minidl.world.simulated.faults import Fault
from notebooks.exercises.answers import Answer
from notebooks.exercises.attempts import with_real_processes
from notebooks.exercises.catalogue.alone import checks_alone
from notebooks.exercises.catalogue.death_programs import (
    both_unnoticed,
    finished,
    hit,
    long_finished,
    next_epoch,
    one_unnoticed,
    slow,
    struck,
    unpinned,
)
from notebooks.exercises.exercise import Exercise, Finding
from notebooks.exercises.failed_runs import explained, raised
from notebooks.exercises.heartbeat import beat
from notebooks.exercises.protocol import (
    COMES_TO_AN_END,
    LEAVES_NOTHING,
    RAISES_NOTHING,
    Breach,
    Broken,
    Rule,
    Run,
    gives,
    play,
)

STEPS = 1_000  # a run has 400 at most
SECOND = 1.01  # virtual seconds from a death to the program's end, at most: one, and a few steps
LATE = "the error came"  # N seconds after the death


# ---- rules


def _told(run: Run) -> Iterator[Breach]:
    """For runs of `hit`: all batches, or within a second an error that names the worker that was killed."""
    outcome = run.outcome
    workers = [move.number - 1 for move in outcome.schedule.moves if move.what is Fault.KILL]
    if run.never_ends or outcome.error is not None or not workers:
        return
    at = [max(0, int(np.searchsorted(run.events["time"], outcome.last_fault_at * 1e9)) - 1)]
    last = outcome.result[-1] if outcome.result else "nothing"
    if outcome.result == BATCHES:
        return
    if not isinstance(last, str):
        yield Breach(f"worker {workers[0]} was killed; the loader gave {outcome.result} and raised nothing", at)
    elif last != f"worker {workers[0]}, and again":
        yield Breach(f"worker {workers[0]} was killed; the error names {last}", at)
    elif max(outcome.ended.values()) - outcome.last_fault_at > SECOND:
        yield Breach(f"{LATE} {max(outcome.ended.values()) - outcome.last_fault_at:.1f} s after the death", at)


def _only_deaths(run: Run) -> Iterator[Breach]:
    if run.outcome.error is not None:
        yield Breach(f"it raised {type(run.outcome.error).__name__}: {run.outcome.error}", [len(run.events) - 1])


TOLD = Rule("a death is reported", "within a second an error names the worker, and so does every later next()", _told)


# ---- which mistake

CAUSES = {
    "a finished worker is a false alarm": "Worker 0 has no more samples: main told it to end, and it did. Its "
    "process is gone, and nothing is missing. What is its `_workers_status`?",
    "an empty queue is taken for a death": "Nothing came for five seconds because a sample is slow. check_health is "
    "called after every wait that brings nothing: ask each worker whether it is alive.",
    "waits until all are dead": "One worker is dead and the other alive, but the dead one's tasks are lost all the "
    "same. One death is enough.",
    "a death is overlooked": "An ACTIVE worker has ended and its tasks are lost, but the loader goes on as if "
    "nothing had happened. Which of the two functions should raise?",
    "the death is noticed late": "A death wakes main's waits, and worker_ended is called at once: raise there. "
    "check_health runs only five seconds later.",
    "the error names no worker": "The user needs to know which worker died, why, and with which keys. fail_for_death "
    "finds all that out.",
    "the error does not stay": "A program that catches the error and asks again gets batches, but never the lost "
    "ones. An error raised by `fail` or `fail_for_death` is raised again by every later next().",
    "the pin thread is forgotten": "The pin thread can also die, and then nothing will ever come. (If there is none, "
    "`_pin_memory_thread` is None.) Report its death with `fail(iterator, text)`.",
    "goes on watching an ended process": "`_endings` watches the processes, and one that has ended stays ready for "
    "ever, so every wait would report it again. Remove it, once.",
    "does not note the death": "When a worker's process has ended, set its status to DEAD, whatever it was before: "
    "the next epoch of persistent workers needs to know. Here main takes worker 0 for alive, and waits for it.",
}


NEXT_EPOCH = "persistent workers; worker 0 is killed after its stream has ended; a second epoch"


@dataclass(frozen=True)
class Case:
    """A program, its result, and the mistake behind an error, or behind a run that never ends."""

    program: Callable[[], Any]
    call: str
    expected: str
    gives: Any
    error: str
    endless: str = "a death is overlooked"


NOBODY_DIES = (
    Case(
        finished,
        "an iterable dataset: worker 0 has one sample, is told to end, and ends",
        "all batches, and no error",
        [[0], [1], [3], [5], [7]],
        "a finished worker is a false alarm",
        "goes on watching an ended process",
    ),
    Case(
        slow,
        "four batches, and one of them takes 12 s",
        "all batches, and no error",
        [[0], [1], [2], [3]],
        "an empty queue is taken for a death",
    ),
    Case(
        long_finished,
        "an iterable dataset: worker 0 has ended, and worker 1 takes 12 s for a sample",
        "all batches, and no error",
        [[0], [1], [3], [5]],
        "a finished worker is a false alarm",
    ),
)
SOMEBODY_DIES = (
    Case(
        one_unnoticed,
        "worker 1 was killed; check_health(iterator), and then next()",
        "a RuntimeError that names worker 1, both times",
        "worker 1, and again",
        "a death is overlooked",
    ),
    Case(
        unpinned,
        "pin_memory='host', and the pin thread has ended",
        "a RuntimeError that names the pin thread",
        "the pin thread, and again",
        "the pin thread is forgotten",
        "the pin thread is forgotten",
    ),
    Case(
        next_epoch,
        NEXT_EPOCH,
        "all batches of the first epoch, and a RuntimeError that names worker 0 at the beginning of the second",
        [[0], [1], [3], [5], [7], "worker 0, and again"],
        "does not note the death",
        "does not note the death",
    ),
)
HIT = "a worker is killed in an epoch of ten batches"
BATCHES = [[key] for key in range(10)]
KILLS = tuple(f"{step}.k{number}" for number in (1, 2) for step in range(20, 190, 7))
ONLY_DEATHS = Rule("no other error", "the only exception is a RuntimeError that reports a death", _only_deaths)


def grade(answer: Answer) -> Finding | None:
    with answer.at_work():
        for case in NOBODY_DIES:
            finding = _check(answer, case)
            if finding is not None:
                return finding
        broken = play(
            hit, [COMES_TO_AN_END, ONLY_DEATHS, LEAVES_NOTHING, TOLD], schedules=KILLS, chance=0, most_steps=STEPS
        )
        if broken is not None:
            both = "-".join(f"{broken.token.partition('.')[0]}.k{number}" for number in (1, 2))
            return _found(answer, broken, _overlooked(broken, hit, both), HIT, TOLD.sentence)
        for case in SOMEBODY_DIES:
            finding = _check(answer, case)
            if finding is not None:
                return finding
    return checks_alone(answer) or with_real_processes(answer, struck, "worker 1, and again")


def _check(answer: Answer, case: Case) -> Finding | None:
    error = RAISES_NOTHING if case in NOBODY_DIES else ONLY_DEATHS
    rules = [COMES_TO_AN_END, error, LEAVES_NOTHING, replace(gives(case.gives), sentence=case.expected)]
    broken = play(case.program, rules, chance=40, most_steps=STEPS)
    if broken is None:
        return None
    mistake = case.endless if broken.run.never_ends else case.error
    if case.program is one_unnoticed:
        mistake = _overlooked(broken, both_unnoticed, "0")
    return _found(answer, broken, mistake, case.call, case.expected)


def _overlooked(broken: Broken, with_both: Callable[[], Any], schedule: str) -> str:
    """The mistake, when a death is not reported as it should be. In `with_both` both workers die."""
    if "nobody" in broken.result:
        return "the error names no worker"
    if "and then" in broken.result:
        return "the error does not stay"
    if broken.breach.what.startswith(LATE):
        return "the death is noticed late"
    beat("a run in which both workers die")
    outcome = simulate(with_both, schedule=schedule, draws=False, most_steps=STEPS)
    return "waits until all are dead" if "worker" in str(outcome.result) else "a death is overlooked"


def _found(answer: Answer, broken: Broken, mistake: str, call: str, expected: str) -> Finding:
    error = raised(answer, broken)
    if error is not None and not isinstance(error, RuntimeError) and call != NEXT_EPOCH:
        mistake = RAISES_NOTHING.name
    return replace(explained(answer, broken, mistake, call, CAUSES), expected=expected)


EXERCISE = Exercise(
    number=12,
    name="dead_worker",
    title="noticing a dead worker",
    references=("minidl.deaths:check_health", "minidl.deaths:worker_ended"),
    task="""
    A worker may die at any moment: killed by the system when memory runs out, or by a crash in native code. Its tasks
    are lost, and unless main checks, it waits for them for ever. Write the two functions that check.

    `worker_ended` is called once a worker's process is known to have ended. If the worker was ACTIVE, its tasks are
    lost: fail_for_death raises an error that says so, now and at every later next(). A worker whose stream had ended
    was told to end, and nothing is missing. Either way mark it as DEAD, and remove its ending from those that
    `_endings` waits for.

    `check_health` is called when nothing has come for five seconds, or for the user's timeout. Usually the dataset is
    slow, and there is nothing to do. But check each ACTIVE worker, and the pin thread if there is one: without it
    nothing can arrive any more. (You may leave out the call of `emit`, and the check of `_failure`, which another
    thread could have set.)
    """,
    legend={
        "iterator._workers": "the processes, one per worker: process.is_alive()",
        "iterator._workers_status": "[WorkerState.ACTIVE, WorkerState.EXHAUSTED]: one per worker; or WorkerState.DEAD",
        "iterator._ending_of": "one per worker: becomes ready when its process ends",
        "iterator._endings": "waits for all of these: iterator._endings.remove(ending) removes one, and only once",
        "iterator._pin_memory_thread": "None, or the thread: thread.is_alive()",
        "fail_for_death": "fail_for_death(iterator, worker_id): raises a RuntimeError that says which worker died, "
        "why, and with which tasks",
        "fail": "fail(iterator, text): raises a RuntimeError with this text, now and at every later next()",
    },
    hints=(
        "A process may end without anything being lost. Which of a worker's three states tells the two cases apart?",
        "In worker_ended, keep the old status before you write the new one. In check_health, call worker_ended for a "
        "worker that is ACTIVE and not alive.",
        "worker_ended: status = the old one; set DEAD; _endings.remove(_ending_of[worker_id]); if status is ACTIVE: "
        "fail_for_death. check_health: for each worker that is ACTIVE and not is_alive(): worker_ended; then, if "
        "there is a pin thread and it is not alive, fail(iterator, 'Pin memory thread exited unexpectedly').",
    ),
    grade=grade,
    notebook="10-shutting-down.ipynb",
    protocol=True,
)
