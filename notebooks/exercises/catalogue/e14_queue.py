"""Exercise 14: the queue's writing side."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterator

from minidl.events import Kind
from minidl.world.simulated import simulate
from minidl.world.simulated.schedule import Random, Schedule
from notebooks.exercises import waiting_lines
from notebooks.exercises.answers import Answer
from notebooks.exercises.attempts import MISSPELT, SLIPS, with_real_processes
from notebooks.exercises.catalogue.queue_trials import SMALL, TRIALS, got
from notebooks.exercises.exercise import Exercise, Finding
from notebooks.exercises.failed_runs import explained
from notebooks.exercises.heartbeat import beat
from notebooks.exercises.programs import Keys, load
from notebooks.exercises.protocol import ALWAYS, Breach, OneSlowThread, Rule, Run, gives, play

TASKS, WORKERS = 6, 2
BATCHES = [[key] for key in range(TASKS)]
STEPS = 3_000  # at most in a run; a right one takes some hundreds


def program() -> list[list[int]]:
    return load(Keys(TASKS), num_workers=WORKERS, prefetch_factor=2, transport="torch")  # whose queues have feeders


def grade(answer: Answer) -> Finding | None:
    with answer.at_work():
        finding = _alone(answer)
        broken = play(program, [STOPS_ARRIVE, *ALWAYS, gives(BATCHES)], capacity=SMALL, chance=60, most_steps=STEPS)
        if broken is not None:
            cause = "The queue works alone, but not in a loader. Look at what comes before the red line."
            told = explained(answer, broken, broken.rule, LOADER, {broken.rule: cause})
            if finding is None:
                return told
            if finding.mistake != "raises":
                finding.broken = told.broken
                finding.seen.append(f"Below: what it does to {LOADER}.")
        if finding is not None:
            return finding
    return with_real_processes(answer, program, BATCHES)


LOADER = f"a loader with {WORKERS} workers, whose pipes hold {SMALL} bytes"


def _alone(answer: Answer) -> Finding | None:
    for trial, number in itertools.product(TRIALS, range(24)):
        beat(trial.call)
        # By default, with each thread slow in turn, and by chance.
        schedule = Schedule() if number == 0 else OneSlowThread(number - 1) if number < 4 else Random(number)
        outcome = simulate(trial.run, schedule=schedule, capacity=SMALL, draws=False)
        errors = [each for each in (outcome.error, *(error for _, error in outcome.errors)) if each is not None]
        wrong = [each for each in errors if not isinstance(each, (OSError, pickle.UnpicklingError))]
        if wrong:
            cause = MISSPELT if isinstance(wrong[0], SLIPS) else "Nothing should raise here."
            return Finding("raises", trial.call, answer.raised(wrong[0]), trial.expected, cause)
        mistake = trial.judge(outcome)
        if mistake:
            finding = Finding(mistake, trial.call, got(outcome), trial.expected, CAUSES[mistake])
            finding.seen += waiting_lines.where(trial.run, outcome.token, answer.path, **outcome.options).values()
            return finding
    return None


CAUSES = {
    "writes in the caller's thread and can block it": "The pipe was full, and `put` waited for a reader. If the "
    "reader is itself waiting in a put, it never reads. What else in this process could do the writing?",
    "loses what was buffered at close": "After `close` nothing more will be put, but what was put before must still "
    "be sent, perhaps all of it. How does the feeder know that it has reached the last message?",
    "the feeder outlives the queue": "The feeder waits for a next message that never comes. Each epoch leaves a "
    "thread per queue, and all that it refers to. What could `close` put where the feeder waits?",
    "goes on without a reader": "The reader is gone, and the write raised OSError: nothing can be sent any more. The "
    "feeder should close the writer and end, though `close` may never be called.",
    "the pipe stays open": "The reader learns of the end from the pipe, which ends when its writing end is closed. "
    "What uses the writer last? And if nothing was ever put, there is no feeder to close it.",
    "an error ends the feeder": "The reader was gone, and the write raised OSError. The rest is no longer needed, so "
    "this is not an error: the feeder should close the writer and end, as after close.",
    "a feeder for each message": "Several threads write to one pipe, so messages can change places, or even mix. One "
    "feeder, started by the first put, should send them all.",
    "not marked as closed": "`closed` returns `self._closed`: the shutdown uses it to see whether Stop was already "
    "sent.",
    "never sends": "Nothing came out of the pipe. Is the feeder started, and does it take messages from the buffer?",
    "the order is lost": "Messages must leave in the order in which they were put.",
}


def _stops_arrive(run: Run) -> Iterator[Breach]:
    """Seen from outside: a worker that got its Stop ends without force."""
    for position in run.of(Kind.WORKER_TERMINATED):
        worker_id = int(run.events["worker"][position])
        joins = run.of(Kind.JOIN_BEGIN)
        since = joins[run.events["worker"][joins] == worker_id]
        yield Breach(
            f"worker {worker_id} had to be ended by force: its Stop did not arrive", [int(each) for each in since]
        )


STOPS_ARRIVE = Rule("what is put arrives", "a worker that was sent a Stop gets it, and ends by itself", _stops_arrive)

EXERCISE = Exercise(
    number=14,
    name="queue",
    title="the queue: buffer, feeder, pipe",
    references=(
        "minidl.queues:Producer._forward",
        "minidl.queues:Producer.close",
        "minidl.queues:Producer._feed",
    ),
    task="""
    This is the writing side of a queue between processes. What is put has to be pickled and written to a pipe, and a
    full pipe makes the writer wait. Main must not wait: another process may in turn be waiting for main to read. So
    `put(message)` never blocks: all that it does is call `_forward`, which leaves the message in a buffer, and a
    thread, the feeder, sends it.

    The first message starts the feeder, the only one; no earlier, because the workers must be forked first. `_feed` is
    what the feeder runs: it takes messages from the buffer and sends them, in the order of the puts. When the queue is
    closed, it ends, but only after everything that was put is sent. The last user of the writer closes it: this tells
    the reader that nothing more comes. If the reader is gone, `self._send` raises OSError: then, too, the feeder ends
    quietly.

    `close()` declares that nothing more will be put, and does not wait. If nothing was ever put, there is no feeder. It
    may be called twice; after the first call `self._closed` is True, in any case.

    You may leave out the calls of `emit`, and the case in which no thread can be started any more.
    """,
    legend={
        "message": "Task(epoch_id=..., task_id=3, keys=[12, 13]), or Stop(epoch_id=...)",
        "self._buffer": "a mailbox between threads, unbounded: put(thing), get() waits for the next thing, qsize()",
        "self._feeder": "None; then self._world.thread(function, (), name), which has start(), join(), is_alive()",
        "self._send(message)": "pickles it and writes it to the pipe: waits while that is full; OSError if the "
        "reader is gone",
        "self._writer": "the pipe's writing end: close()",
        "self._closed": "False; after close() True",
        "LAST": "not a message: put it in the buffer after the last one",
    },
    hints=(
        "There are the caller, the feeder and the pipe. Which calls may wait, and in which thread? How does each of "
        "the three learn that it is over?",
        "The feeder is a loop over `self._buffer.get()` that ends when it gets LAST. `close` puts LAST there, after "
        "everything that was put before.",
        "_forward: self._buffer.put(message); if there is no feeder, make one with self._world.thread(self._feed, (), "
        "'feeder'), and start it. _feed: try: while (message := self._buffer.get()) is not LAST: "
        "self._send(message); except OSError: pass; finally: self._writer.close(). close: return if closed; without "
        "a feeder close the writer, else put LAST; self._closed = True.",
    ),
    grade=grade,
    notebook="04-the-index-queues.ipynb",
    protocol=True,
)
