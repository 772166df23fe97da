"""Exercise 18: what main keeps, so that another process can go on."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from minidl.events import Kind
from minidl.world.simulated import simulate
from notebooks.exercises.answers import Answer
from notebooks.exercises.attempts import with_real_processes
from notebooks.exercises.catalogue.stopping_programs import (
    END,
    Sample,
    stopped_counted,
    stopped_in_any_order,
    stopped_shares,
)
from notebooks.exercises.exercise import Exercise, Finding
from notebooks.exercises.failed_runs import explained
from notebooks.exercises.heartbeat import beat
from notebooks.exercises.programs import without_status_checks
from notebooks.exercises.protocol import ALWAYS, COMES_TO_AN_END, RAISES_NOTHING, Breach, Broken, Rule, Run, play

CHANCE = 2  # random schedules for each program
NAME = "what would have come"

LOST = "loses what was in flight"
AGAIN = "yields batches again"
AHEAD = "a place that is ahead"
BEHIND = "a place that is behind"
TURN = "forgets whose turn it is"
ERROR_AGAIN = "raises an error again"
ERROR_LOST = "loses an error"
COUNTS = "counts what is no batch"
PARTS = "loses parts of a place"
OLD = "no snapshot"
KEPT = "keeps what has passed"
LOST_PARTS = "no random generators in the place"
IN_ARRIVED = "still in `arrived` at the end of the epoch"
CAUSES = {
    LOST: "A batch that a worker had made or was to make when the loader was stopped came neither before nor after. "
    "Its keys must stay in `in_flight` until the batch is part of a snapshot: not until it is sent, or has arrived.",
    AGAIN: "A batch that had been yielded came once more. Its keys were still in `in_flight`, or the snapshot was of "
    "an earlier moment.",
    AHEAD: "A worker has begun after samples that were never yielded. It is ahead of the training loop, and so is the "
    "place that came with a batch that waits for its turn. A place counts when its batch is yielded, not before; and "
    "what is in a snapshot must not change any more.",
    BEHIND: "A worker has begun at an older place than that of its last batch. What a yielded batch brings belongs "
    "into `places`. If it brings None, nothing has changed: the place before it stays.",
    TURN: "The right batch, but from another worker. `last_worker` is the one whose task was passed last, be it by a "
    "batch or by an error: the next task is the next worker's.",
    ERROR_AGAIN: "The exception of a task had been raised, and was raised once more after the stop: its keys were "
    "still in `in_flight`. Its turn is over, as if a batch had been yielded.",
    ERROR_LOST: "A task that raises an exception raised it neither before the stop nor after it. Until it has been "
    "raised its keys are in flight, like those of a batch.",
    PARTS: "With a batch come only those parts of a place that have changed. The others are what they were: put the "
    "new ones into the place that you have (into a copy of it, as the old one may be in a snapshot).",
    OLD: "The snapshot is older than it should be: after every `interval` tasks there is a new one. With an old one "
    "the new process must load all batches since then once more.",
    COUNTS: "`steps` is how many batches of this epoch have been yielded, before the stop and after it. An error is "
    "none, and `begin` begins where the snapshot was.",
    KEPT: "A task that has passed is still in `arrived`, with the place that came with it: an epoch has many. "
    "Take it out when its turn is over.",
    "between two snapshots": "With `snapshot_every_n_steps=3` a snapshot is taken after every third task. Between two "
    "of them it stays as it is, and everything since then is loaded again: so keys stay in `in_flight` until the next "
    "snapshot. And what is in a snapshot must not be changed by what comes later: copy `places`.",
    "the second stop": "After one stop all is right, after two it is not: what does `begin` leave behind? It is called "
    "with the snapshot that is gone on from, and all the fields begin there.",
    "the second epoch": "Persistent workers have answered the Resume with their places: these count at once, "
    "also in the snapshot: it is of the beginning of the epoch, and no batch will be yielded for them.",
    "the end of an epoch": "After the end of an epoch nothing is in flight and the iterator has finished. The last "
    "messages, of streams that have ended, are still in `arrived`; they bring places, too.",
    "without workers": "There are no messages then: `passed` is called with a task that is not in `arrived`.",
    COMES_TO_AN_END.name: "Main waits for what never comes. It goes on with what `heard` returns: is that the message?",
    "without order": "Tasks are passed in any order. What is in flight is every task whose turn is not over, not those "
    "after the last one.",
}


@dataclass(frozen=True)
class Trial:
    """A program; what is special about it, in words; and the mistake, if this is the first one to go wrong."""

    program: Callable[..., Any]
    words: str
    stops: tuple[tuple[int, ...], ...]
    args: dict[str, Any]
    mistake: str = ""
    only: tuple[str, ...] = field(default=())  # mistakes whose own name says more

    def with_stops(self, stops: tuple[int, ...]) -> Callable[[], Any]:
        return without_status_checks()(functools.partial(self.program, **self.args, stops=list(stops)))


def each(*numbers: int) -> tuple[tuple[int, ...], ...]:
    return tuple((number,) for number in numbers)


TWO: dict[str, Any] = {"num_workers": 2}
TRIALS = (
    Trial(
        stopped_counted,
        "a loader with 2 workers and 8 batches, of which batch 0 is slow",
        each(1, 3, 5),
        {"length": 8, "unreadable": [], **TWO},
    ),
    Trial(
        stopped_shares,
        "a loader with 2 workers, whose streams have 5 and 3 samples, of which the first is slow",
        each(2, 4, 7),
        {"lengths": [5, 3], **TWO},
    ),
    Trial(
        stopped_counted,
        "a loader with 2 workers and 8 batches; from batch 4 on, samples only draw random numbers",
        each(5, 7),
        {"length": 8, "unreadable": [], "until": 4, "draws": True, **TWO},
        PARTS,
    ),
    Trial(
        stopped_counted,
        "a loader with 2 workers and 8 batches; from batch 4 on, samples do not change the place of their dataset",
        each(5, 6),
        {"length": 8, "unreadable": [], "until": 4, **TWO},
    ),
    Trial(
        stopped_counted,
        "a loader with 3 workers and 8 batches, of which batches 2 and 5 raise",
        each(2, 3, 4, 6),
        {"length": 8, "unreadable": [2, 5], "num_workers": 3},
    ),
    Trial(
        stopped_counted,
        "a loader with 2 workers and 8 batches, of which batch 3 raises, stopped twice",
        ((1, 0), (1, 1), (2, 3), (4, 1)),
        {"length": 8, "unreadable": [3], **TWO},
        "the second stop",
        (COUNTS,),
    ),
    Trial(
        stopped_counted,
        "snapshot_every_n_steps=3, 2 workers and 9 batches, of which batch 4 raises",
        (*each(1, 2, 4, 5, 6), (4, 1)),
        {"length": 9, "unreadable": [4], "snapshot_every_n_steps": 3, **TWO},
        "between two snapshots",
        (COUNTS, OLD),
    ),
    Trial(
        stopped_shares,
        "2 persistent workers, whose streams have 1 and 3 samples; two epochs",
        each(5),
        {"lengths": [1, 3], "epochs": 2, "persistent_workers": True, **TWO},
        "the end of an epoch",
    ),
    Trial(
        stopped_counted,
        "2 persistent workers, three epochs of 3 batches",
        each(4, 5, 6, 9),
        {"length": 3, "unreadable": [], "epochs": 3, "persistent_workers": True, **TWO},
        "the second epoch",
    ),
    Trial(
        stopped_counted,
        "num_workers=0, two epochs of 4 batches, of which batch 1 raises",
        each(1, 2, 3, 6),
        {"length": 4, "unreadable": [1], "epochs": 2, "num_workers": 0},
        "without workers",
        (COUNTS, ERROR_AGAIN),
    ),
    Trial(
        stopped_in_any_order,
        "in_order=False, 2 workers and 8 batches, of which batch 0 is slow",
        each(1, 3, 6),
        {"length": 8, **TWO},
        "without order",
        (COUNTS, OLD),
    ),
)


def grade(answer: Answer) -> Finding | None:
    for trial in TRIALS:
        expected = simulate(trial.with_stops(()), draws=False).result
        for stops in trial.stops:
            words = f"{trial.words}; stopped after {' and '.join(map(str, stops))}"
            beat(words)
            with answer.at_work():
                rule = as_without(expected, trial.args.get("snapshot_every_n_steps", 1))
                broken = play(trial.with_stops(stops), [*ALWAYS, rule], chance=CHANCE)
            if broken is not None:
                return explained(answer, broken, _mistake(trial, expected, broken), words, CAUSES)
    real = functools.partial(stopped_counted, **TRIALS[0].args)
    return with_real_processes(answer, lambda: real(stops=[3])["came"], real(stops=[])["came"])


# ---- what came


def as_without(expected: Any, interval: int) -> Rule:
    """Nothing but what comes without a stop, and no state that counts wrong."""

    def look(run: Run) -> Iterator[Breach]:
        result = run.outcome.result
        if run.outcome.error is not None or run.never_ends or result is None:
            return
        for number, (counted, true, since, *_) in enumerate(result["states"]):
            if counted != true:
                yield Breach(f"the state says that {counted} batches were yielded: it was {true}", _state(run, number))
                return
            if since >= interval:
                yield Breach(f"tasks that have passed since the snapshot of this state: {since}", _state(run, number))
                return
        for came, due in itertools.zip_longest(result["came"], expected["came"]):
            if came != due:
                yield Breach(f"with this state {_words(came)} came, not {_words(due)}", _state(run, -1))
                return
        for number, (*_, left, without) in enumerate(result["states"]):
            if left:
                yield Breach(f"tasks {IN_ARRIVED}: {left}", _state(run, number))
                return
            if without:
                yield Breach(f"the state has {LOST_PARTS} of worker {without[0]}", _state(run, number))
                return

    return Rule(NAME, "what comes before a stop and after it is what comes without one", look)


def _state(run: Run, number: int) -> list[int]:
    """The position of a state that was taken."""
    taken = run.of(Kind.STATE_TAKEN)
    return [int(taken[number])] if len(taken) else [len(run.events) - 1]


def _words(came: Any) -> str:
    if isinstance(came, list):
        return " and ".join(_sample(*each) for each in came)
    return "nothing" if came is None else str(came)


def _sample(worker: int, key: int, count: int) -> str:
    return f"sample {key} of worker {worker} (its number {count})"


def _mistake(trial: Trial, expected: Any, broken: Broken) -> str:
    result = broken.run.outcome.result
    if broken.rule == RAISES_NOTHING.name and trial.mistake == PARTS:
        return PARTS
    if broken.rule != NAME:
        return broken.rule
    if any(counted != true for counted, true, *_ in result["states"]):
        found = COUNTS
    elif IN_ARRIVED in broken.breach.what:
        return KEPT
    elif LOST_PARTS in broken.breach.what:
        return PARTS
    else:
        found = OLD if "since the snapshot" in broken.breach.what else _of(result["came"], expected["came"])
    return found if not trial.mistake or found in trial.only else trial.mistake


def _of(came: list[Any], due: list[Any]) -> str:
    """The mistake that makes this of that."""
    errors, ours = (Counter(each for each in some if isinstance(each, str)) for some in (due, came))
    if ours - errors:
        return ERROR_AGAIN if set(ours - errors) != {END} else AGAIN
    keys, of_ours = (Counter(key for _, key, _ in samples(some)) for some in (due, came))
    if of_ours - keys:
        return AGAIN
    if keys - of_ours:
        return LOST
    if errors - ours:
        return ERROR_LOST
    for ours_is, is_due in zip(samples(came), samples(due), strict=True):
        if ours_is != is_due:
            return TURN if ours_is[:2] != is_due[:2] else AHEAD if ours_is[2] > is_due[2] else BEHIND
    return NAME


def samples(came: list[Any]) -> list[Sample]:
    return [sample for batch in came if isinstance(batch, list) for sample in batch]


EXERCISE = Exercise(
    number=18,
    name="stop_in_the_middle",
    title="stop in the middle",
    references=(
        "minidl.checkpoint.position:Position.begin",
        "minidl.checkpoint.position:Position.heard",
        "minidl.checkpoint.position:Position.passed",
        "minidl.checkpoint.position:Position.finish",
    ),
    task="""
    A loader is stopped after some batches, and a new process goes on from its `state_dict()`. The new one must yield
    what would have come: nothing is lost, nothing comes twice, though at every moment some batches are in flight. Write
    what main keeps for this. The result is `snapshot`: what is true after the batches that were *yielded*. `state_dict`
    makes a state of it.

    Each worker's dataset has a *place*: its own state, its stream's, and the random generators. Only the worker knows
    it, and says with each batch what has changed.

    Every epoch has a Position of its own. `begin` is called when the epoch begins, with Snapshot(0, 1, [None, None]) if
    there are two workers, and when a stopped one goes on, with the snapshot that it goes on from: everything is then as
    it was.

    `heard` is called with each message when it arrives, in whatever order, and returns it. A Result brings what has
    changed in its worker's place up to and including that batch. A Resumed, from a persistent worker at the beginning
    of an epoch, brings the whole place: this one counts at once, also in the snapshot.

    `passed` is called when a task's turn is over: its batch is yielded, or the exception that came instead is raised
    (then `yielded` is False). After every `interval` tasks that have passed a new snapshot replaces the old one.
    In between the old one stays as it is: the new process will load once more, for nobody, all that came since. So a
    task stays in `in_flight` until a snapshot is taken in which it has passed. (Mostly `interval` is 1, and always with
    streams and with persistent workers.)

    `finish` is called at the end of the epoch: the iterator is `finished`. What is left in `arrived` comes from streams
    that have ended. It is no batch, but treat it like a task that has passed: it may bring a place, too.

    Without workers there are no messages, and `passed` is called with tasks that are not in `arrived`; their worker is
    0. (You may use fields of your own. You may leave out the case that a dataset's `state_dict()` has failed in a
    worker, and `place` is an ExceptionWrapper.)
    """,
    legend={
        "Snapshot(4, 1, places)": "steps: batches yielded in this epoch; last_worker: the worker whose task passed "
        "last; places: [{...}, None], the place of each worker, None if it is not known yet",
        "self.snapshot": "the last one. The fields self.steps and self.places are for the same two as they are now; "
        "`state_dict` reads self.snapshot, self.steps and the length of self._passed",
        "message": "Result(task_id=5, worker_id=1, place=...), or Resumed(worker_id=1, place=...), whose task_id is "
        "negative",
        "message.place": '{"place": b"...", "torch": b"..."}: what has changed of a place, in parts; at first all of '
        "them. None: nothing has",
        "self.arrived": "{5: (1, place)}: task -> worker and place, until the task has passed. Main reads it, too",
        "self.in_flight": "{4: ..., 5: ...}: the tasks whose keys were drawn; you only take them out. Those of a "
        "stream are not in it: their keys say nothing",
        "self._passed": "[3]: the tasks that have passed since the snapshot",
        "self.interval": "1: tasks from one snapshot to the next",
        "self.finished": "False",
    },
    hints=(
        "Worker 1 may have made batches 1 and 3 before batch 0 is yielded. Which of its places belongs into the state "
        "after batch 0? Where do the others wait until their time has come?",
        "`heard` only puts (worker_id, place) into `arrived`, unless it is a Resumed. `passed` takes it out: now the "
        "place counts, and so do the batch and the worker. Then perhaps a snapshot is due.",
        "passed: worker_id, place = self.arrived.pop(task_id, (0, None)); if place, then self.places[worker_id] = "
        "{**(self.places[worker_id] or {}), **place}; self.steps += yielded; self._passed.append(task_id). If "
        "there are `interval` of these: self.snapshot = Snapshot(self.steps, worker_id, [*self.places]), take each of "
        "them out of `in_flight` (if it is there), and empty the list. finish: self.passed(task_id, False) for each "
        "task in a copy of `arrived`, and self.finished = True. begin: the snapshot, and the two fields from it, with "
        "a copy of the list.",
    ),
    grade=grade,
    notebook="19-stop-in-the-middle.ipynb",
    protocol=True,
)
