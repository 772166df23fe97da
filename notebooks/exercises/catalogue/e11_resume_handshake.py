"""Exercise 11: the resume handshake."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import minidl
from minidl.events import RESUME, Kind, Queue
from notebooks.exercises.answers import Answer
from notebooks.exercises.exercise import Exercise, Finding
from notebooks.exercises.failing import tell
from notebooks.exercises.probes import real
from notebooks.exercises.programs import Keys, Stream, elsewhere, load
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
    """A batch of the first epoch, which is left then; and the whole second one."""
    loader: Any = minidl.DataLoader(Keys(8), **OPTIONS)
    found = [next(iter(loader))]
    elsewhere()
    for batch in loader:
        elsewhere()
        found.append(batch)
    return found


def complete() -> list[Any]:
    return load(Keys(4), epochs=2, **OPTIONS)


def streams() -> list[Any]:
    return sorted(load(Stream(1, 3), epochs=2, **OPTIONS))


def bereaved() -> list[Any]:
    """Worker 0 is killed when its stream has ended, which costs nothing; but then there is a second epoch."""
    loader: Any = minidl.DataLoader(Stream(1, 4), **OPTIONS)
    iterator = iter(loader)
    found = [next(iterator) for _ in range(3)]  # to get the third, main has learned that worker 0's stream has ended
    iterator._workers[0].kill()
    iterator._workers[0].join(5)
    found += list(iterator)
    try:
        for batch in loader:
            found.append(batch)
    except RuntimeError as error:
        found.append("worker 0" if "worker 0" in str(error) else str(error))
    return found


ABANDONED = [[0], *([key] for key in range(8))]
COMPLETE = [[key] for key in range(4)] * 2
STREAMS = sorted([[0], [1], [3], [5]] * 2)
BEREAVED = [[0], [1], [3], [5], [7], "worker 0"]


def until_death() -> list[Any]:
    """Two epochs of streams, in which somebody may die."""
    found: list[Any] = []
    try:
        found += load(Stream(1, 3), epochs=2, **OPTIONS)
    except RuntimeError as error:
        found.append(str(error))
    return found


# ---- rules


def _acknowledged(run: Run) -> Iterator[Breach]:
    """Between an epoch's Resume and its task 0 main reads every worker's acknowledgement."""
    heard = _heard(run)
    for k in run.of(Kind.PUT, queue=Queue.INDEX):
        event = run.events[k]
        epoch = int(event["epoch"])
        if event["task"] != 0 or epoch & 0xFFFFFFFF == 0:  # the first epoch needs no Resume
            continue
        before = [worker for position, worker in heard.get(epoch, []) if position < k]
        missing = [f"worker {each}" for each in range(WORKERS) if each not in before]
        if missing:
            acknowledged = sum(worker >= 0 for worker in before)
            read = f"main had read {len(before)} messages since its Resume, {acknowledged} of them acknowledgements"
            who = " and ".join(missing)
            yield Breach(f"task 0 of the new epoch was sent before {who} had answered: {read}", [int(k)])


def _heard(run: Run) -> dict[int, list[tuple[int, int]]]:
    """By epoch: what main has read since that epoch's Resume, (position, the worker that acknowledges it or -1)."""
    heard: dict[int, list[tuple[int, int]]] = {}
    epoch = -1
    for k in run.of(Kind.PUT, Kind.GOT):
        event = run.events[k]
        resumes = event["task"] == RESUME
        if event["kind"] == Kind.PUT and event["queue"] == Queue.INDEX and resumes:
            epoch = int(event["epoch"])
        elif event["kind"] == Kind.GOT and event["queue"] == Queue.RESULT and epoch >= 0:
            heard.setdefault(epoch, []).append((int(k), int(event["worker"]) if resumes else -1))
    return heard


def _told(run: Run) -> set[int]:
    """The workers that were sent a Resume."""
    puts = run.events[run.of(Kind.PUT, queue=Queue.INDEX)]
    return {int(worker) for worker in puts["worker"][puts["task"] == RESUME]}


def _answers(run: Run) -> Iterator[Breach]:
    if run.outcome.deadlock or run.outcome.endless:
        puts = [int(k) for k in run.of(Kind.PUT, queue=Queue.INDEX)]
        waits = [int(k) for k in run.of(Kind.WAIT) if run.events["thread"][k] == 0 and k > puts[-1]]
        silent = [f"worker {each}" for each in range(WORKERS) if each not in _told(run)]
        never = f"{' and '.join(silent)} was sent no Resume" if silent else "who should acknowledge is dead"
        yield Breach(f"main waits for an acknowledgement that never comes: {never}", waits[:1])


ACKNOWLEDGED = Rule(
    "all have acknowledged", "no task of a new epoch is sent before every worker has acknowledged it", _acknowledged
)
ANSWERS = Rule("the handshake ends", "every worker is told, and one that is dead is not waited for", _answers)
RULES = (ANSWERS, ACKNOWLEDGED, *ALWAYS)


# ---- which mistake

CAUSES = {
    "no wait": "A worker may still be in the old epoch when its first task of the new one is sent, and what it sent "
    "in the old one is still on its way: main would take it for the new epoch's. Read messages until each has "
    "acknowledged.",
    "any message counts": "Batches of the epoch that was left are still on their way, and come before the "
    "acknowledgements. Of what `_get_data` returns only a Resumed of this epoch counts; drop the rest.",
    "stops at the first acknowledgement": "One worker has acknowledged, and the others may still be in the old epoch: "
    "their old batches are on their way. Who is still to answer? Keep a set of them.",
    "not everybody is told": "A worker acknowledges a Resume. Who gets none has nothing to acknowledge, and is waited "
    "for.",
    "the workers stay exhausted": "In the new epoch their streams begin anew, but `_workers_status` still says "
    "EXHAUSTED: they are given no tasks.",
    "a dead worker is expected to answer": "Worker 0 was killed in the epoch before, when its stream had ended: that "
    "cost nothing then. But it has no part in a new epoch. Its status is DEAD, and fail_for_death says what is to be "
    "said: look before you mark all as ACTIVE.",
    "a death in the handshake is overlooked": "A worker died while main waited for its acknowledgement. A death is "
    "raised only if `_workers_status` says ACTIVE: when do the workers become so?",
}
EPOCHS = "two epochs with the same two workers (persistent_workers=True)"
CASES = {
    abandoned: (ABANDONED, f"{EPOCHS}; the first is left after one batch"),
    complete: (COMPLETE, EPOCHS),
    streams: (STREAMS, f"{EPOCHS}; an iterable dataset, worker 0 has one sample and worker 1 three"),
    bereaved: (BEREAVED, f"{EPOCHS}; worker 0 is killed in the first, when its stream has ended"),
}
KILLS = tuple(f"{step}.k{number}" for number in (1, 2) for step in range(90, 230, 8))


def grade(answer: Answer) -> Finding | None:
    with answer.at_work():
        for program, (expected, call) in CASES.items():
            broken = play(program, [*RULES, gives(expected)], chance=40, most_steps=STEPS)
            if broken is not None:
                finding = tell(answer, broken, _mistake(broken, program), call, CAUSES)
                if program is bereaved:
                    finding.expected = "a RuntimeError at the beginning of the second epoch: worker 0 is dead"
                return finding
        broken = play(until_death, RULES, schedules=KILLS, chance=0, most_steps=STEPS)
        if broken is not None:
            call = f"{EPOCHS}; a worker is killed"
            return tell(answer, broken, "a death in the handshake is overlooked", call, CAUSES)
    return real(answer, abandoned, ABANDONED)


def _mistake(broken: Broken, program: Any) -> str:
    assert broken.outcome is not None
    run = Run(broken.outcome)
    if broken.rule == ACKNOWLEDGED.name:
        sent = run.events[broken.breach.events[0]]
        heard = [worker for k, worker in _heard(run).get(int(sent["epoch"]), []) if k < broken.breach.events[0]]
        if not heard:
            return "no wait"
        return "stops at the first acknowledgement" if heard[-1] >= 0 else "any message counts"
    if broken.rule == ANSWERS.name and len(_told(run)) < WORKERS:
        return "not everybody is told"
    return {streams: "the workers stay exhausted", bereaved: "a dead worker is expected to answer"}.get(
        program, broken.rule
    )


EXERCISE = Exercise(
    number=11,
    name="resume_handshake",
    title="the resume handshake",
    references=("minidl.parallel:ParallelIterator._resume_workers",),
    task="""
    With `persistent_workers` the second epoch has the same workers as the first. If the first was left half way, they
    are still busy with its tasks, and its batches are still in the queues: the new epoch also counts its tasks from 0,
    and an old batch 3 must not be taken for the new one. Hence the handshake, which is yours to write: main sends every
    worker a Resume; each worker answers with a Resumed once it has taken it, after all that it had sent before; and
    main sends no task before all have answered. What else arrives meanwhile belongs to the old epoch, and is dropped.

    `_resume_workers` is called at the beginning of every epoch but the first. It also marks the workers as ACTIVE: in
    the new epoch a stream that had ended begins again, and a worker that dies from now on is missed. One that has died
    before, when its stream had ended and nobody missed it, is DEAD: call fail_for_death, which raises.

    The calls of `emit` may be left out, and so may `_in_use` and the care for Ctrl-C.
    """,
    legend={
        "self._workers_status": "[WorkerState.ACTIVE, WorkerState.EXHAUSTED]: one for each worker; or WorkerState.DEAD",
        "self._index_queues": "one for each worker: queue.put(message) sends it a message",
        "Resume": "Resume(epoch_id): the message that a new epoch begins",
        "self._epoch_id": "4294967297: the new epoch's (the loader's number, and the epoch's)",
        "self._get_data(self._timeout)": "waits for the next message of any worker: Resumed(epoch_id, worker_id), or "
        "a Result of the old epoch. The death of an ACTIVE worker is raised",
        "self._num_workers": "2",
        "fail_for_death": "fail_for_death(self, worker_id): raises a RuntimeError that says who died",
    },
    hints=(
        "What can be in the result queue when the handshake begins? Which message of a worker is surely the last one "
        "of its old epoch?",
        "Four steps: raise for a worker that is DEAD; mark all as ACTIVE; put a Resume into each index queue; then "
        "wait, with a set of the workers that have not answered yet.",
        "waiting_for = set(range(self._num_workers)); while waiting_for: message = self._get_data(self._timeout); if "
        "isinstance(message, Resumed) and message.epoch_id == self._epoch_id: waiting_for.discard(message.worker_id).",
    ),
    grade=grade,
    notebook="09-epochs.ipynb",
    protocol=True,
)
