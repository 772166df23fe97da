"""Exercise 14: the queue's writing side."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterator

from minidl.events import Kind
from minidl.world.simulated import simulate
from minidl.world.simulated.schedule import Random, Schedule
from notebooks.exercises import standstill
from notebooks.exercises.answers import Answer
from notebooks.exercises.catalogue.queue_alone import SMALL, TRIALS, got
from notebooks.exercises.exercise import Exercise, Finding
from notebooks.exercises.failing import tell
from notebooks.exercises.heartbeat import beat
from notebooks.exercises.probes import MISSPELT, SLIPS, real
from notebooks.exercises.programs import Keys, load
from notebooks.exercises.protocol import ALWAYS, Breach, Rule, Run, Slow, gives, play

TASKS, WORKERS = 6, 2
BATCHES = [[key] for key in range(TASKS)]
STEPS = 3_000  # of a run that gets on: it takes some hundreds


def program() -> list[list[int]]:
    return load(Keys(TASKS), num_workers=WORKERS, prefetch_factor=2)


def grade(answer: Answer) -> Finding | None:
    with answer.at_work():
        finding = _alone(answer)
        broken = play(program, [STOPS_ARRIVE, *ALWAYS, gives(BATCHES)], capacity=SMALL, chance=60, most_steps=STEPS)
        if broken is not None:
            cause = "Alone the queue does its work; a loader that uses it does not. See what comes before the red line."
            told = tell(answer, broken, broken.rule, LOADER, {broken.rule: cause})
            if finding is None:
                return told
            if finding.mistake != "raises":
                finding.broken = told.broken
                finding.seen.append(f"What it does to {LOADER}, stands below.")
        if finding is not None:
            return finding
    return real(answer, program, BATCHES)


LOADER = f"a loader with {WORKERS} workers, whose pipes hold {SMALL} bytes"


def _alone(answer: Answer) -> Finding | None:
    for trial, number in itertools.product(TRIALS, range(14)):
        beat(trial.call)
        # As it comes, with each thread slow, and by chance.
        schedule = Schedule() if number == 0 else Slow(number - 1) if number < 4 else Random(number)
        outcome = simulate(trial.run, schedule=schedule, capacity=SMALL, draws=False)
        errors = [each for each in (outcome.error, *(error for _, error in outcome.errors)) if each is not None]
        wrong = [each for each in errors if not isinstance(each, (OSError, pickle.UnpicklingError))]
        if wrong:
            cause = MISSPELT if isinstance(wrong[0], SLIPS) else "No exception should come of it."
            return Finding("raises", trial.call, answer.raised(wrong[0]), trial.expected, cause)
        mistake = trial.judge(outcome)
        if mistake:
            finding = Finding(mistake, trial.call, got(outcome), trial.expected, CAUSES[mistake])
            finding.seen += standstill.where(trial.run, outcome.token, answer.path, **outcome.options).values()
            return finding
    return None


CAUSES = {
    "writes in the caller's thread and can block it": "The pipe was full, and `put` waited until somebody reads. If "
    "the other side waits in a put of its own meanwhile, nobody will. Who else in this process could do the writing?",
    "loses what was buffered at close": "`close` says that nothing more will be put. What was put before it still "
    "has to be sent, and perhaps none of it has been yet: how does the feeder learn that it has come to the last "
    "message?",
    "the feeder outlives the queue": "The feeder waits for the next message, and there will be none: a thread, and all "
    "that it refers to, for every queue and every epoch. What could `close` put where the feeder waits?",
    "the pipe stays open": "Who reads learns of the end from the pipe: it ends when its writing end is closed. Who "
    "is the last to use the writer? And if nothing was ever put, there is no feeder to close it.",
    "an error ends the feeder": "The reader was gone, and the write raised OSError. Nobody needs the rest any more: "
    "that is no error of the feeder, which ends as it does after close, the writer closed.",
    "a feeder for each message": "Several threads write to one pipe: their messages change places, and the parts of "
    "two can mix. One feeder, started at the first put, sends them all.",
    "not marked as closed": "`closed` looks at `self._closed`: the shutdown asks it whether Stop was sent already.",
    "never sends": "Nothing has come out of the pipe. Is the feeder started, and does it take what is in the buffer?",
    "the order is lost": "Messages must leave in the order in which they were put.",
}


def _stops_arrive(run: Run) -> Iterator[Breach]:
    """Looked at from outside: a worker that got its Stop ends, and need not be ended."""
    for position in run.of(Kind.WORKER_TERMINATED):
        worker_id = int(run.events["worker"][position])
        joins = run.of(Kind.JOIN_BEGIN)
        since = joins[run.events["worker"][joins] == worker_id]
        yield Breach(
            f"worker {worker_id} had to be ended by force: its Stop has not come", [int(each) for each in since]
        )


STOPS_ARRIVE = Rule("what is put arrives", "a worker that was sent a Stop gets it, and ends by itself", _stops_arrive)

EXERCISE = Exercise(
    number=14,
    name="queue",
    title="the queue: buffer, feeder, pipe",
    references=(
        "minidl.queues:Producer.put",
        "minidl.queues:Producer.close",
        "minidl.queues:Producer._feed",
    ),
    task="""
    The writing side of a queue between processes. What is put has to be pickled and written to a pipe, and a pipe that
    is full makes the writer wait. Main cannot afford to: it may be the one who should read what another process waits
    to write. So `put(message)` never blocks: it leaves the message in a buffer, and a thread, the feeder, sends it.

    `put` starts the feeder when it is called for the first time, and not earlier: the workers are forked before.
    `_feed` is what the feeder runs: it takes messages off the buffer and sends them, in the order of the puts, and
    ends when the queue is closed, but not before all that was put is sent. Whoever uses the writer last closes it: the
    reader learns from it that nothing more comes. If the reader is gone, `self._send` raises OSError: then the feeder
    ends, too, quietly.

    `close()` says that nothing more will be put, and does not wait. Nothing may have been put at all: then there is no
    feeder. It may be called twice; from the first time on `self._closed` is True.

    The calls of `emit` may be left out, and so may `_epoch_id` and what is done when no thread can be started any more.
    But without `emit(PUT, ...)`, the first line of `put`, a timeline does not show what is in a queue.
    """,
    legend={
        "message": "Task(epoch_id=..., task_id=3, keys=[12, 13]), or Stop(epoch_id=...)",
        "self._buffer": "a mailbox between threads, unbounded: put(thing), get() waits for the next thing, qsize()",
        "self._feeder": "None; then self._world.thread(function, (), name), which has start(), join(), is_alive()",
        "self._send(message)": "pickles it, and writes it to the pipe: waits while that is full; OSError if the "
        "reader is gone",
        "self._writer": "the pipe's writing end: close()",
        "self._closed": "False; after close() True",
        "emit(PUT, message.epoch_id, message.task_id, worker_id, queue)": "says that the message is put; "
        "queue, worker_id = self._name",
        "LAST": "what can stand in the buffer behind the last message: it is no message",
    },
    hints=(
        "Three lives: the caller's, the feeder's, the pipe's. Which calls may wait, and in whose life do they stand? "
        "How does each of the three learn that it is over?",
        "The feeder is a loop over `self._buffer.get()` that ends when it gets LAST. `close` puts LAST there: behind "
        "everything that was put before.",
        "put: self._buffer.put(message); if there is no feeder, make one with self._world.thread(self._feed, (), "
        "'feeder'), and start it. _feed: try: while (message := self._buffer.get()) is not LAST: "
        "self._send(message); except OSError: pass; finally: self._writer.close(). close: return if closed; without "
        "a feeder close the writer, else put LAST; self._closed = True.",
    ),
    grade=grade,
    notebook="04-the-index-queues.ipynb",
    protocol=True,
)
