"""Laws of the protocol that an answer can break before anything is lost: they name a mistake before it does harm.

A law looks at the events of a run, which a learner's functions need not emit: what goes through the queues, what main
asks for and gets, which keys are drawn. It yields what breaks it. What does harm is the judge's affair (judge.py).
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch.utils.data

from minidl.events import RESUME, STOP, Kind, Queue
from minidl.laws import Event

MAIN = 0  # the number of main's thread
PUTS = Kind.PUT, Queue.INDEX
COMES = Kind.GOT, Queue.RESULT


@dataclasses.dataclass(frozen=True)
class Breach:
    """How a law is broken."""

    law: str
    what: str  # is the case: "batch 1 was yielded before batch 0"
    expected: str  # there
    at: int  # the place of the event that shows it; -1: the last


class Options(NamedTuple):
    """Those of a loader that the laws depend on."""

    workers: int
    most: int  # tasks that may be under way
    in_order: bool
    streams: bool  # its dataset is iterable


def texts(kind: int, text: Any) -> Any:
    """For `simulate`: of all texts of events only the loader's options are kept. (The loader would stay alive.)"""
    if kind != Kind.LOADER:
        return None
    streams = isinstance(text.dataset, torch.utils.data.IterableDataset)
    return Options(text.num_workers, text.num_workers * (text.prefetch_factor or 0), text.in_order, streams)


class Run:
    """The events of a simulated run, and the options of its loader."""

    def __init__(self, events: list[Event]) -> None:
        self.events = events
        loaders = [event.text for event in self.events if isinstance(event.text, Options)]
        # A law is about one loader.
        self.workers, self.most, self.in_order, self.streams = loaders[0] if len(loaders) == 1 else (0, 0, True, False)
        self.ends = {(e.epoch_id, e.task): e.worker for e in self.events if e.kind == Kind.STREAM_END}

    def tasks(self) -> Iterator[tuple[int, Event]]:
        """Each task that is sent, and each message that main or its pin thread gets from a worker."""
        for at, event in enumerate(self.events):
            if (event.kind, event.queue) == COMES or ((event.kind, event.queue) == PUTS and event.task >= 0):
                yield at, event

    def ended(self, event: Event) -> int:
        """The worker whose stream has ended, as main learns from this message; -1: none has."""
        if event.thread != MAIN or event.kind != Kind.GOT or event.queue == Queue.INDEX:
            return -1  # the pin thread, if there is one, gets it earlier
        return self.ends.get((event.epoch_id, event.task), -1)


def in_order(run: Run) -> Iterator[Breach]:
    """Batches are yielded in the order of their tasks."""
    if run.in_order:
        yielded: dict[tuple[int, int], int] = {}  # task -> where
        for at, event in enumerate(run.events):
            if event.kind == Kind.YIELDED:
                later = [
                    (task, before)
                    for (epoch, task), before in yielded.items()
                    if epoch == event.epoch_id and task > event.task
                ]
                if later:
                    task, before = min(later, key=lambda each: each[1])
                    yield Breach(
                        "in order",
                        f"batch {task} was handed out before batch {event.task}",
                        f"batch {event.task}",
                        before,
                    )
                yielded[event.epoch_id, event.task] = at


def once(run: Run) -> Iterator[Breach]:
    """Each task is sent once, and each batch is yielded once."""
    sent, yielded = set(), set()
    for at, event in enumerate(run.events):
        key = event.epoch_id, event.task
        if (event.kind, event.queue) == PUTS and event.task >= 0:
            if key in sent:
                yield Breach(
                    "once", f"a second task was sent with the number {event.task}", f"task {event.task + 1}", at
                )
            sent.add(key)
        if event.kind == Kind.YIELDED:
            if key in yielded:
                yield Breach("once", f"batch {event.task} was handed out a second time", "each batch once", at)
            yielded.add(key)


def primed(run: Run) -> Iterator[Breach]:
    """Before main asks for a batch, each worker has prefetch_factor tasks, if the sampler has as many."""
    sent, over, at_first = 0, False, None
    for at, event in enumerate(run.events):
        if event.kind == Kind.EPOCH_BEGIN:
            sent, over, at_first = 0, False, None
        sent += (event.kind, event.queue) == PUTS and event.task >= 0
        over |= event.kind == Kind.SAMPLER_END
        if event.kind == Kind.ASKED and at_first is None:
            at_first = at, sent, sent == run.most or (sent < run.most and over)
        if event.kind in (Kind.YIELDED, Kind.EPOCH_END) and at_first is not None and not at_first[2]:
            what = f"{at_first[1]} task{'s' * (at_first[1] != 1)} had been sent when main asked for the first batch"
            yield Breach("primed", what, f"prefetch_factor * num_workers = {run.most}", at_first[0])


def in_turns(run: Run) -> Iterator[Breach]:
    """Tasks go round the workers whose streams have not ended, from worker 0 on; without order, the first ones do."""
    last, ended, asked, epoch = -1, set[int](), False, -1
    went: list[int] = []  # the workers that the epoch's tasks went to
    if run.streams and not run.ends:
        return  # the learner's worker loop need not say when a stream ends
    for at, event in enumerate(run.events):
        if event.kind == Kind.EPOCH_BEGIN:
            last, ended, asked, epoch = -1, set(), False, event.epoch_id
            went = [e.worker for e in run.events if (e.kind, e.queue, e.epoch_id) == (*PUTS, epoch) and e.task >= 0]
        asked |= event.kind == Kind.ASKED
        if event.epoch_id == epoch and (worker := run.ended(event)) >= 0:
            ended.add(worker)
        if (event.kind, event.queue) == PUTS and event.task >= 0 and (run.in_order or not asked):
            turns = [(last + k) % run.workers for k in range(1, run.workers + 1)]
            due = next((worker for worker in turns if worker not in ended), None)
            if event.worker in ended:
                what = f"task {event.task} was sent to worker {event.worker}, whose stream had ended"
                yield Breach("not to an ended worker", what, "no worker" if due is None else f"worker {due}", at)
            elif event.worker != due:
                first = ", ".join(map(str, went[: max(run.most, event.task + 1)]))
                what = f"task {event.task} was sent to worker {event.worker}; tasks 0, 1, ... to workers {first}"
                yield Breach("in turns", what, f"it was the turn of worker {due}", at)
            last = event.worker


def bounded(run: Run) -> Iterator[Breach]:
    """What is under way or waits to be handed out is never more than was sent at first."""
    held = 0
    for at, event in enumerate(run.events):
        if event.kind == Kind.EPOCH_BEGIN:
            held = 0
        held -= event.kind in (Kind.YIELDED, Kind.ERROR_RAISED)
        if (event.kind, event.queue) == PUTS and event.task >= 0 and not run.streams:
            held += 1
            if held > run.most + 1:  # while a batch is handed out, the task that replaces it may already be sent
                what = f"task {event.task} was sent while {held - 1} batches were under way or waited to be handed out"
                yield Breach("bounded", what, f"at most prefetch_factor * num_workers = {run.most}", at)


def shares(run: Run) -> Iterator[Breach]:
    """Without order, no worker has more tasks at a time than its share."""
    has: Counter[int] = Counter()
    for at, event in run.tasks() if not run.in_order else ():
        has[event.worker] += 1 if event.kind == Kind.PUT else -1
        if has[event.worker] > run.most // run.workers and not run.streams:
            what = f"task {event.task} was sent to worker {event.worker}, which had {has[event.worker] - 1} already"
            yield Breach("shares", what, f"at most {run.most // run.workers}: max_tasks // active", at)


def acknowledged(run: Run) -> Iterator[Breach]:
    """No task of a new epoch is sent before main has read that every worker has left the old one."""
    heard, epoch = set[int](), -1
    for at, event in enumerate(run.events):
        if (event.kind, event.queue, event.task) == (*PUTS, RESUME) and event.epoch_id != epoch:
            heard, epoch = set(), event.epoch_id
        if (event.kind, event.queue, event.task, event.epoch_id) == (*COMES, RESUME, epoch):
            heard.add(event.worker)
        if (event.kind, event.queue, event.task, event.epoch_id) == (*PUTS, 0, epoch) and len(heard) < run.workers:
            missing = " and ".join(f"worker {k}" for k in range(run.workers) if k not in heard)
            what = f"task 0 of the new epoch was sent before {missing} had answered"
            yield Breach("acknowledged", what, "a Resumed of every worker first", at)


def pin_thread_first(run: Run) -> Iterator[Breach]:
    """In a shutdown the pin thread has ended before a worker is told to stop."""
    runs = False
    for at, event in enumerate(run.events):
        runs |= event.kind == Kind.PIN_THREAD_BEGIN
        runs &= event.kind not in (Kind.PIN_THREAD_END, Kind.PIN_JOINED)
        if runs and (event.kind, event.queue, event.task) == (*PUTS, STOP) and not run.streams:
            what = f"worker {event.worker} was told to stop while the pin thread ran"
            yield Breach("pin thread first", what, "the end of the pin thread first", at)


def only_batches(run: Run) -> Iterator[Breach]:
    """Only batches are pinned: an exception, or the end of a stream, has no memory to pin."""
    others = {(e.epoch_id, e.task): e.kind for e in run.events if e.kind in (Kind.FETCH_FAILED, Kind.STREAM_END)}
    for at, event in enumerate(run.events):
        if event.kind == Kind.PIN_BEGIN and (event.epoch_id, event.task) in others:
            what = "an exception" if others[event.epoch_id, event.task] == Kind.FETCH_FAILED else "the end of a stream"
            yield Breach(
                "only batches", f"task {event.task} brought {what}, and that was pinned", "it is passed on", at
            )


LAWS: tuple[Callable[[Run], Iterator[Breach]], ...] = (
    *(pin_thread_first, acknowledged, in_turns, shares, once, in_order, primed, bounded, only_batches),
)


def broken(events: list[Event]) -> Breach | None:
    """The first law that does not hold in a run."""
    run = Run(events)
    return next((breach for law in LAWS for breach in law(run)), None) if run.workers else None
