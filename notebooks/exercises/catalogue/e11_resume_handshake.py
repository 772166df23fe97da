"""Exercise 11: the resume handshake."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import minidl
from minidl.events import RESUME, Kind, Queue
from notebooks.exercises.answers import Answer
from notebooks.exercises.attempts import with_real_processes
from notebooks.exercises.catalogue.alone_messages import shakes_hands
from notebooks.exercises.catalogue.death_programs import next_epoch
from notebooks.exercises.exercise import Exercise, Finding
from notebooks.exercises.failed_runs import explained
from notebooks.exercises.programs import Keys, Stream, let_others_run, load
from notebooks.exercises.protocol import ALWAYS, Breach, Broken, Rule, Run, gives, play

WORKERS = 2
STEPS = 800  # a run has half as many
OPTIONS: dict[str, Any] = {
    "batch_size": 1,
    "collate_fn": list,
    "num_workers": WORKERS,
    "prefetch_factor": 2,
    "persistent_workers": True,
}


def abandoned() -> list[Any]:
    """One batch of the first epoch, then the whole second epoch."""
    loader: Any = minidl.DataLoader(Keys(8), **OPTIONS)
    found = [next(iter(loader))]
    let_others_run()
    for batch in loader:
        let_others_run()
        found.append(batch)
    return found


def complete() -> list[Any]:
    return load(Keys(4), epochs=2, **OPTIONS)


def streams() -> list[Any]:
    return sorted(load(Stream(1, 3), epochs=2, **OPTIONS))


ABANDONED = [[0], *([key] for key in range(8))]
COMPLETE = [[key] for key in range(4)] * 2
STREAMS = sorted([[0], [1], [3], [5]] * 2)
NEXT_EPOCH = [[0], [1], [3], [5], [7], "worker 0, and again"]


def until_death() -> list[Any]:
    """Two epochs of streams, in which a worker may die."""
    found: list[Any] = []
    try:
        found += load(Stream(1, 3), epochs=2, **OPTIONS)
    except RuntimeError as error:
        found.append(str(error))
    return found


# ---- rules


def _acknowledged(run: Run) -> Iterator[Breach]:
    """Between an epoch's Resume and its task 0 main reads every worker's acknowledgement."""
    messages = _messages_read(run)
    for k in run.of(Kind.PUT, queue=Queue.INDEX, task=0):
        epoch = run.key(k)[0]
        if epoch & 0xFFFFFFFF == 0:  # the first epoch needs no Resume
            continue
        before = [worker for position, worker in messages.get(epoch, []) if position < k]
        missing = [f"worker {each}" for each in range(WORKERS) if each not in before]
        if missing:
            acknowledged = sum(worker >= 0 for worker in before)
            read = f"main had read {len(before)} messages since its Resume, {acknowledged} of them acknowledgements"
            who = " and ".join(missing)
            yield Breach(f"task 0 of the new epoch was sent before {who} had answered: {read}", [int(k)])


def _messages_read(run: Run) -> dict[int, list[tuple[int, int]]]:
    """By epoch, what main has read since its Resume: (position, the worker that acknowledges it or -1)."""
    read: dict[int, list[tuple[int, int]]] = {}
    epoch = -1
    for k in run.of(Kind.PUT, Kind.GOT):
        event = run.events[k]
        resumes = event["task"] == RESUME
        if event["kind"] == Kind.PUT and event["queue"] == Queue.INDEX and resumes:
            epoch = int(event["epoch"])
        elif event["kind"] == Kind.GOT and event["queue"] == Queue.RESULT and epoch >= 0:
            read.setdefault(epoch, []).append((int(k), int(event["worker"]) if resumes else -1))
    return read


def _told(run: Run) -> set[int]:
    """The workers that were sent a Resume."""
    return {run.worker(position) for position in run.of(Kind.PUT, queue=Queue.INDEX, task=RESUME)}


def _answers(run: Run) -> Iterator[Breach]:
    if run.never_ends:
        puts = [int(k) for k in run.of(Kind.PUT, queue=Queue.INDEX)]
        waits = [int(k) for k in run.of(Kind.WAIT) if run.events["thread"][k] == 0 and k > puts[-1]]
        silent = [f"worker {each}" for each in range(WORKERS) if each not in _told(run)]
        never = f"{' and '.join(silent)} was sent no Resume" if silent else "the worker that should acknowledge is dead"
        if not silent and _read_all(run):
            never = "it has read one from every worker"
        yield Breach(f"main waits for an acknowledgement that never comes: {never}", waits[:1])


def _read_all(run: Run) -> bool:
    """Whether every worker's answer to the latest Resume has reached main."""
    messages = _messages_read(run)
    return bool(messages) and {worker for _, worker in messages[max(messages)] if worker >= 0} == set(range(WORKERS))


ACKNOWLEDGED = Rule(
    "all have acknowledged", "no task of a new epoch is sent before every worker has acknowledged it", _acknowledged
)
ANSWERS = Rule("the handshake ends", "every worker is sent a Resume, and main does not wait for a dead one", _answers)
RULES = (ANSWERS, ACKNOWLEDGED, *ALWAYS)


# ---- which mistake

CAUSES = {
    "no wait": "A worker may still be in the old epoch when its first task of the new one is sent, and its old "
    "batches may still be on their way: main would take them for new ones. Read messages until every worker has "
    "acknowledged.",
    "any message counts": "Batches of the abandoned epoch are still on their way, and arrive before the "
    "acknowledgements. Count only a Resumed of this epoch, and drop everything else that `_get_data` returns.",
    "stops at the first acknowledgement": "One worker has acknowledged, but the others may still be in the old "
    "epoch, with old batches on their way. Keep a set of the workers that have not answered yet.",
    "not every worker is told": "A worker that gets no Resume never acknowledges it, and main waits for ever. Send one "
    "to every worker.",
    "an acknowledgement is dropped": "Every worker has answered, and main has read it, yet it goes on waiting. The "
    "answers come in any order: keep each one, whichever worker it is from, also while others are missing.",
    "the workers stay exhausted": "In the new epoch their streams start anew, but `_workers_status` still says "
    "EXHAUSTED, so they get no tasks.",
    "a dead worker is expected to answer": "Worker 0 was killed in the previous epoch, after its stream had ended, "
    "when that cost nothing. But it cannot take part in a new epoch. Its status is DEAD: call fail_for_death before "
    "you mark all workers as ACTIVE.",
    "a dead worker is left out": "Worker 0 was killed in the previous epoch, after its stream had ended, and the new "
    "epoch began without it: its share of the samples is missing, and nobody is told. Its status is DEAD: call "
    "fail_for_death before you mark all workers as ACTIVE.",
    "a death in the handshake is overlooked": "A worker died while main waited for its acknowledgement. A death "
    "raises only if `_workers_status` says ACTIVE: when do you set that?",
}
EPOCHS = "two epochs with the same two workers (persistent_workers=True)"
CASES = {
    abandoned: (ABANDONED, f"{EPOCHS}; the first is abandoned after one batch"),
    complete: (COMPLETE, EPOCHS),
    streams: (STREAMS, f"{EPOCHS}; an iterable dataset, worker 0 has one sample and worker 1 three"),
    next_epoch: (NEXT_EPOCH, f"{EPOCHS}; worker 0 is killed in the first, after its stream has ended"),
}
KILLS = tuple(f"{step}.k{number}" for number in (1, 2) for step in range(90, 230, 8))


def grade(answer: Answer) -> Finding | None:
    with answer.at_work():
        for program, (expected, call) in CASES.items():
            broken = play(program, [*RULES, gives(expected)], chance=40, most_steps=STEPS)
            if broken is not None:
                finding = explained(answer, broken, _mistake(broken, program), call, CAUSES)
                if program is next_epoch:
                    finding.expected = "a RuntimeError at the beginning of the second epoch: worker 0 is dead"
                return finding
        broken = play(until_death, RULES, schedules=KILLS, chance=0, most_steps=STEPS)
        if broken is not None:
            call = f"{EPOCHS}; a worker is killed"
            return explained(answer, broken, "a death in the handshake is overlooked", call, CAUSES)
    return shakes_hands(answer) or with_real_processes(answer, abandoned, ABANDONED)


def _mistake(broken: Broken, program: Any) -> str:
    run = broken.run
    if program is next_epoch and broken.rule in (ACKNOWLEDGED.name, gives().name):
        return "a dead worker is left out"
    if broken.rule == ACKNOWLEDGED.name:
        sent = run.events[broken.breach.events[0]]
        read = [worker for k, worker in _messages_read(run).get(int(sent["epoch"]), []) if k < broken.breach.events[0]]
        if not read:
            return "no wait"
        return "stops at the first acknowledgement" if read[-1] >= 0 else "any message counts"
    if broken.rule == ANSWERS.name and len(_told(run)) < WORKERS:
        return "not every worker is told"
    if broken.rule == ANSWERS.name and _read_all(run):
        return "an acknowledgement is dropped"
    return {streams: "the workers stay exhausted", next_epoch: "a dead worker is expected to answer"}.get(
        program, broken.rule
    )


EXERCISE = Exercise(
    number=11,
    name="resume_handshake",
    title="the resume handshake",
    references=("minidl.parallel:ParallelIterator._resume_workers",),
    task="""
    With `persistent_workers` the second epoch uses the same workers as the first. If the first was abandoned, they are
    still busy with its tasks, and its batches are still in the queues. The new epoch also counts its tasks from 0, and
    an old batch 3 must not be taken for the new one. So there is a handshake, for you to write: main sends every worker
    a Resume; each worker answers with a Resumed, which comes after everything it had sent before; and main sends no
    task until all have answered. Anything else that arrives meanwhile belongs to the old epoch, and is dropped.

    `_resume_workers` is called at the beginning of every epoch except the first. It also marks the workers as ACTIVE:
    their streams start again, and from now on a death counts. A worker that died earlier, after its stream had ended,
    is DEAD: call fail_for_death, which raises.

    You may leave out the calls of `emit` and the handling of Ctrl-C.
    """,
    legend={
        "self._workers_status": "[WorkerState.ACTIVE, WorkerState.EXHAUSTED]: one per worker; or WorkerState.DEAD",
        "self._index_queues": "one per worker: queue.put(message) sends it a message",
        "Resume": "Resume(epoch_id): tells a worker that a new epoch begins",
        "self._epoch_id": "4294967297: of the new epoch (made of the loader's number and the epoch's)",
        "self._get_data(self._timeout)": "waits for the next message from any worker: Resumed(epoch_id, worker_id), "
        "a Result of the old epoch, or a Resumed of an old one whose handshake was interrupted. Raises if an ACTIVE "
        "worker dies, or nothing comes in time",
        "self._num_workers": "2",
        "fail_for_death": "fail_for_death(self, worker_id): raises a RuntimeError that names the dead worker",
    },
    hints=(
        "What can be in the result queue when the handshake begins? Which message from a worker is certain to come "
        "after everything from its old epoch?",
        "Four steps: raise for a worker that is DEAD; mark all as ACTIVE; put a Resume into each index queue; wait, "
        "with a set of the workers that have not answered yet.",
        "waiting_for = set(range(self._num_workers)); while waiting_for: message = self._get_data(self._timeout); if "
        "isinstance(message, Resumed) and message.epoch_id == self._epoch_id: waiting_for.discard(message.worker_id).",
    ),
    grade=grade,
    notebook="09-epochs.ipynb",
    protocol=True,
)
