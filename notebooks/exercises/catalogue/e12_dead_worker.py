"""Exercise 12: noticing a dead worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from minidl.world.simulated import simulate
from minidl.world.simulated.faults import Fault
from notebooks.exercises.answers import Answer
from notebooks.exercises.catalogue.dying_workers import (
    both_unheard,
    finished,
    hit,
    long_finished,
    next_epoch,
    one_unheard,
    slow,
    struck,
    unpinned,
)
from notebooks.exercises.exercise import Exercise, Finding
from notebooks.exercises.failing import raised, tell
from notebooks.exercises.heartbeat import beat
from notebooks.exercises.probes import real
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
SECOND = 1.01  # virtual seconds from a death until the program has ended: one, and a few steps
LATE = "the error came"  # so many seconds after the death


# ---- rules


def _told(run: Run) -> Iterator[Breach]:
    """For runs of `hit`: the batches, or an error that names who was hit. All of it within a second."""
    outcome = run.outcome
    workers = [move.number - 1 for move in outcome.schedule.moves if move.what is Fault.KILL]
    if outcome.deadlock or outcome.endless or outcome.error is not None or not workers:
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


TOLD = Rule("a death is told", "an error names the worker within a second, and every further next() raises it", _told)


# ---- which mistake

CAUSES = {
    "a finished worker is a false alarm": "Worker 0 has no more samples: main told it to end, and it did. Its process "
    "is gone, and nothing is missing. What does `_workers_status` say of it?",
    "an empty queue is taken for a death": "Nothing came for five seconds because a sample takes long. check_health is "
    "called whenever a wait has been in vain: ask each worker whether it is alive.",
    "waits until all are dead": "One worker is dead and the other alive: the tasks of the dead one are lost all the "
    "same. One death is enough.",
    "a death is overlooked": "An ACTIVE worker has ended, its tasks are lost, and the loader goes on as if nothing "
    "had been. Who has to be told, in which of the two functions?",
    "the death is noticed late": "The waits wake on a death: worker_ended is called at once, and can raise at once. "
    "What is left to check_health comes five seconds later.",
    "the error names nobody": "Whoever reads the error wants to know which worker died, of what, and with which keys. "
    "fail_for_death finds all that out.",
    "the error does not stay": "Whoever catches the error and asks again gets batches, and never those that were "
    "lost. An error that is raised by `fail`, or `fail_for_death`, is raised again at every further next().",
    "the pin thread is forgotten": "The pin thread can end, too, and then nothing will ever come. There may be none: "
    "`_pin_memory_thread` is None then. For a death without a worker there is `fail(iterator, text)`.",
    "goes on watching who has ended": "`_endings` watches the processes; one that has ended stays ready for ever, and "
    "whoever looks whether there is news will be told each time. Take it out, once.",
    "does not note the death": "When a worker's process has ended, its status is DEAD, whatever it was before: the "
    "next epoch of persistent workers has to know. Here main takes worker 0 for alive, and waits for it.",
}


NEXT_EPOCH = "persistent workers; worker 0 is killed when its stream has ended; a second epoch"


@dataclass(frozen=True)
class Case:
    """A program, what comes of it, and what it means if an error is raised, or if there is no end."""

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
        "goes on watching who has ended",
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
        "an iterable dataset: worker 0 has ended when worker 1 takes 12 s for a sample",
        "all batches, and no error",
        [[0], [1], [3], [5]],
        "a finished worker is a false alarm",
    ),
)
SOMEBODY_DIES = (
    Case(
        one_unheard,
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
ONLY_DEATHS = Rule("no other error", "nothing is raised but a RuntimeError that tells of a death", _only_deaths)


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
    return real(answer, struck, "worker 1, and again")


def _check(answer: Answer, case: Case) -> Finding | None:
    error = RAISES_NOTHING if case in NOBODY_DIES else ONLY_DEATHS
    rules = [COMES_TO_AN_END, error, LEAVES_NOTHING, replace(gives(case.gives), sentence=case.expected)]
    broken = play(case.program, rules, chance=40, most_steps=STEPS)
    if broken is None:
        return None
    assert broken.outcome is not None
    mistake = case.endless if broken.outcome.deadlock or broken.outcome.endless else case.error
    if case.program is one_unheard:
        mistake = _overlooked(broken, both_unheard, "0")
    return _found(answer, broken, mistake, case.call, case.expected)


def _overlooked(broken: Broken, with_both: Callable[[], Any], schedule: str) -> str:
    """Why a death is not told as it should be. `with_both` is a run in which both workers die."""
    if "nobody" in broken.result:
        return "the error names nobody"
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
    return replace(tell(answer, broken, mistake, call, CAUSES), expected=expected)


EXERCISE = Exercise(
    number=12,
    name="dead_worker",
    title="noticing a dead worker",
    references=("minidl.deaths:check_health", "minidl.deaths:worker_ended"),
    task="""
    A worker may be killed at any moment: by the system, when memory runs out; by a crash in native code. Its tasks are
    lost, and main, if it does not look, waits for them for ever. Write the two functions that look.

    `worker_ended` is called when it is known that a worker's process is no more. Was the worker ACTIVE, its tasks are
    lost: fail_for_death raises an error that says so, now and at every further next(). A worker whose stream had ended
    was told to end, and nothing is missing. Either way note that it is DEAD, and take its ending out of what `_endings`
    waits for.

    `check_health` is called when main has waited for five seconds in vain, or for the user's timeout. Most often the
    reason is a slow dataset, and nothing is to be done. But look at each worker, and at the pin thread, if there is
    one: without it nothing can come any more. (The call of `emit` may be left out, and so may the look at `_failure`,
    which another thread could have set.)
    """,
    legend={
        "iterator._workers": "the processes, one for each worker: process.is_alive()",
        "iterator._workers_status": "[WorkerState.ACTIVE, WorkerState.EXHAUSTED]: one for each worker; or "
        "WorkerState.DEAD",
        "iterator._ending_of": "one for each worker: what is ready once its process has ended",
        "iterator._endings": "waits for all of these: iterator._endings.remove(ending) takes one out, and only once",
        "iterator._pin_memory_thread": "None, or the thread: thread.is_alive()",
        "fail_for_death": "fail_for_death(iterator, worker_id): raises a RuntimeError that says who died, of what, "
        "with which tasks",
        "fail": "fail(iterator, text): raises a RuntimeError with this text, now and at every further next()",
    },
    hints=(
        "That a process has ended, and that something is lost by it, are two things. Which of a worker's three states "
        "tells them apart?",
        "In worker_ended, keep the old status before you write the new one. In check_health, whoever is ACTIVE and "
        "not alive is a case for worker_ended.",
        "worker_ended: status = the old one; set DEAD; _endings.remove(_ending_of[worker_id]); if status is ACTIVE: "
        "fail_for_death. check_health: for each worker that is ACTIVE and not is_alive(): worker_ended; then, if "
        "there is a pin thread and it is not alive, fail(iterator, 'Pin memory thread exited unexpectedly').",
    ),
    grade=grade,
    notebook="10-shutting-down.ipynb",
    protocol=True,
)
