"""The protocol's invariants.

Each is a function under its name and its sentence. It looks at one iterator and yields what breaks the sentence,
with the positions of the events that show it. A trace may end early (main was killed, or is still running): an event
counts as missing only if something that must come after it did come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from minidl.events import NO_TASK, STOP, Kind, Queue
from tracing.analysis.check.iterator_events import IteratorEvents
from tracing.trace.event_index import HOP, NEVER, Lane
from tracing.trace.state_after_event import label
from tracing.trace.words import QUEUE_NAMES

Broken = Iterator[tuple[str, list[int]]]  # in words, and the positions of the events that show it
Find = Callable[[IteratorEvents], Broken]


@dataclass(frozen=True)
class Invariant:
    """What should hold in every trace."""

    name: str
    sentence: str
    breaches: Find


INVARIANTS: list[Invariant] = []


def invariant(name: str, sentence: str) -> Callable[[Find], Find]:
    """Make a function an invariant."""

    def add(breaches: Find) -> Find:
        INVARIANTS.append(Invariant(name, sentence, breaches))
        return breaches

    return add


@invariant("exactly once", "Every task sent is received exactly once, or lost with an error.")
def exactly_once(iterator: IteratorEvents) -> Broken:
    kinds = Kind.DISPATCHED, Kind.RECEIVED, Kind.TASK_SKIPPED, Kind.EPOCH_END
    for _, (sent, received, skipped, ends) in iterator.epochs(*kinds):
        yield from repeated(iterator, sent, "sent")
        yield from repeated(iterator, received, "received")
        for at in iterator.without(received, sent).tolist():
            yield f"task {iterator.task(at)} was received and never sent", [at]
        if len(ends):
            for at in iterator.without(sent, np.concatenate([received, skipped])).tolist():
                yield f"task {iterator.task(at)} is silently missing: the epoch ended without it", [at, int(ends[-1])]
    yield from lost_without_error(iterator)


def repeated(iterator: IteratorEvents, positions: np.ndarray, done: str) -> Broken:
    """Tasks to which something was done several times in an epoch."""
    for task, events in iterator.repeated(positions):
        yield f"task {task} was {done} {len(events)} times", events


def lost_without_error(iterator: IteratorEvents) -> Broken:
    errors, lost = iterator.all(Kind.ERROR_RAISED), iterator.all(Kind.TASK_LOST)
    for kind in Kind.YIELDED, Kind.EPOCH_END:
        going_on = iterator.all(kind)
        for at in lost.tolist():
            after = going_on[going_on > at][:1].tolist()
            if after and not ((errors > at) & (errors < after[0])).any():
                yield f"task {iterator.task(at)} was lost, and no error was raised", [at, *after]


@invariant("yielded once", "Every batch received is yielded exactly once, or an error is raised in its place.")
def yielded_once(iterator: IteratorEvents) -> Broken:
    kinds = Kind.RECEIVED, Kind.RELEASED, Kind.YIELDED, Kind.STORED, Kind.EPOCH_END
    for _, (received, released, yielded, stored, ends) in iterator.epochs(*kinds):
        yield from repeated(iterator, yielded, "yielded")
        if len(iterator.workers):
            for at in iterator.without(yielded, received).tolist():
                yield f"task {iterator.task(at)} was yielded and never received", [at]
        if len(ends):
            for at in iterator.without(stored, released).tolist():
                yield f"task {iterator.task(at)} was left in the reorder buffer", [at, int(ends[-1])]
            taken = np.concatenate([iterator.without(received, stored), released])
            for at in iterator.without(taken, yielded).tolist():
                if not no_batch(iterator, at):
                    yield f"task {iterator.task(at)} was received and not yielded", [at, int(ends[-1])]


def no_batch(iterator: IteratorEvents, taken: int) -> bool:
    """Whether main took the end of a stream at this position, or an exception, which it raised next."""
    main = iterator.of_thread(Lane.MAIN)
    for at in main[main.searchsorted(taken, "right") :]:
        kind = iterator.events["kind"][at]
        if kind in (Kind.WORKER_EXHAUSTED, Kind.ERROR_RAISED):
            return True
        if kind in (Kind.YIELDED, Kind.ASKED, Kind.EPOCH_END):
            break
    return False


@invariant("first in, first out", "A queue gives its messages in the order in which they were put, each once.")
def first_in_first_out(iterator: IteratorEvents) -> Broken:
    places = [(queue, worker) for queue in (Queue.INDEX, Queue.RESULT) for worker in iterator.workers]
    for queue, worker in [*places, (Queue.DATA, -1)]:
        puts, sents, gots = (iterator.all(kind, queue, worker) for kind in (Kind.PUT, Kind.SENT, Kind.GOT))
        puts = puts[~np.isin(puts, cut_short(iterator, puts, sents if len(sents) else gots))]
        name = QUEUE_NAMES[queue] + (f" {worker}" if worker >= 0 else "")
        if len(sents) or iterator.all(Kind.SEND_BEGIN, queue, worker).size:
            yield from out_of_order(iterator, name, ("put", puts), ("sent", sents))
            yield from out_of_order(iterator, name, ("sent", sents), ("got", gots))
        else:  # there is no pipe, or sending was not recorded
            yield from out_of_order(iterator, name, ("put", puts), ("got", gots))


def cut_short(iterator: IteratorEvents, puts: np.ndarray, afters: np.ndarray) -> list[int]:
    """Puts that Ctrl-C interrupted after the event, before the message was put: the next event of their thread is its
    end."""
    kinds, found = iterator.events["kind"], []
    workers = (iterator.of_thread(Lane.WORKER, worker) for worker in iterator.workers)
    for lane in (iterator.of_thread(Lane.MAIN), *workers):
        ends = np.flatnonzero(np.isin(kinds[lane], (Kind.SHUTDOWN_BEGIN, Kind.WORKER_END)))
        last = lane[ends[ends > 0] - 1]
        for put in last[np.isin(last, puts)].tolist():
            of_epoch = iterator.where(afters, epoch=iterator.events["epoch"][put])
            if iterator.task(put) not in iterator.task(of_epoch):
                found.append(put)
    return found


def out_of_order(
    iterator: IteratorEvents, name: str, cause: tuple[str, np.ndarray], effect: tuple[str, np.ndarray]
) -> Broken:
    """The first event that is not of the message whose turn it is. (After it, all are shifted.)"""
    (did, befores), (done, afters) = cause, effect
    if len(afters) > len(befores):
        yield f"{name}: a message was {done} that was not {did}", [int(afters[len(befores)])]
    length = min(len(befores), len(afters))
    befores, afters = befores[:length], afters[:length]
    one, other = iterator.events[befores], iterator.events[afters]
    unknown = (other["task"] == NO_TASK) & (other["text"] > 0)  # it could not be unpickled
    wrong = ((one["task"] != other["task"]) | (one["epoch"] != other["epoch"])) & ~unknown | (befores > afters)
    if wrong.any():
        first = int(np.argmax(wrong))
        events = [int(befores[first]), int(afters[first])]
        yield f"{name}: {message(other[first])} was {done} where {message(one[first])} was due", events


def message(event: np.void) -> str:
    return f"task {event['task']}" if event["task"] >= 0 else str(label(int(event["task"])))


@invariant("bounded", "Never more than prefetch_factor x num_workers tasks are outstanding or held early.")
def bounded(iterator: IteratorEvents) -> Broken:
    if iterator.prefetch_factor is None:
        return
    limit = iterator.prefetch_factor * len(iterator.workers)
    steps = {Kind.DISPATCHED: 1, Kind.RECEIVED: -1, Kind.STORED: 1, Kind.RELEASED: -1}
    for _, (sent, received, stored, released, yielded, primed) in iterator.epochs(*steps, Kind.YIELDED, Kind.PRIMED):
        yield from too_many(running([sent, received], [1, -1]), sent, limit, "outstanding")
        # Main refills just before it hands a batch out, so what is held is counted after that.
        held = running([sent, received, stored, released], list(steps.values()))
        yield from too_many(held, np.concatenate([primed, yielded, stored]), limit, "outstanding or held early")
        if not iterator.in_order:
            yield from over_capacity(iterator, sent, received, limit)


def too_many(counted: tuple[np.ndarray, np.ndarray], when: np.ndarray, limit: int, what: str) -> Broken:
    """The first of the positions `when` at which more than `limit` were counted."""
    positions, counts = counted
    at = positions.searchsorted(np.sort(when), "right") - 1
    over = at[(at >= 0) & (counts[at] > limit)] if len(positions) else at[:0]
    if len(over):
        yield f"{counts[over[0]]} tasks were {what}, {limit} are allowed", [int(positions[over[0]])]


def over_capacity(iterator: IteratorEvents, sent: np.ndarray, received: np.ndarray, limit: int) -> Broken:
    """Without order each worker has its share of the limit: otherwise a slow one would get all tasks."""
    exhausted = iterator.of_workers(Kind.WORKER_EXHAUSTED)
    exhausted = exhausted[exhausted > sent[0]] if len(sent) else exhausted[:0]  # those of this epoch
    for worker in iterator.workers:
        own = [iterator.where(group, worker=worker) for group in (sent, received)]
        positions, held = running(own, [1, -1])
        active = np.maximum(1, len(iterator.workers) - exhausted.searchsorted(positions))
        over = np.flatnonzero(held > limit // active)
        if len(over):
            yield f"worker {worker} was sent {held[over[0]]} tasks at a time", [int(positions[over[0]])]


def running(groups: list[np.ndarray], steps: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """All positions of the groups, ascending, and the sum so far of their groups' steps."""
    positions = np.concatenate(groups)
    order = np.argsort(positions)
    return positions[order], np.cumsum(np.repeat(steps, [len(group) for group in groups])[order])


@invariant("in order", "With in_order, batches are yielded in the order in which their keys were drawn.")
def in_order(iterator: IteratorEvents) -> Broken:
    if iterator.in_order:
        for _, (yielded,) in iterator.epochs(Kind.YIELDED):
            tasks = iterator.task(yielded)
            for at in np.flatnonzero(tasks[1:] < tasks[:-1]).tolist():
                yield f"task {tasks[at + 1]} was yielded after task {tasks[at]}", yielded[at : at + 2].tolist()


WORK = (Kind.FETCH_BEGIN, Kind.FETCH_END, Kind.COLLATE_BEGIN, Kind.COLLATE_END, Kind.FETCH_FAILED, Kind.STREAM_END)


@invariant("one at a time", "A worker works on one task at a time, and only on its own.")
def one_at_a_time(iterator: IteratorEvents) -> Broken:
    for worker in iterator.workers:
        lane = iterator.of_thread(Lane.WORKER, worker)
        events = iterator.events[lane]
        puts = (events["kind"] == Kind.PUT) & (events["queue"] == Queue.RESULT)
        works = (np.isin(events["kind"], WORK) | puts) & (events["task"] >= 0)
        gots = (events["kind"] == Kind.GOT) & (events["queue"] == Queue.INDEX) & (events["task"] >= 0)
        held = np.maximum.accumulate(np.where(gots, np.arange(len(lane)), -1))  # the GOT of the task it is working on
        own = (held >= 0) & (events["task"] == events["task"][held]) & (events["epoch"] == events["epoch"][held])
        for at in np.flatnonzero(works & ~own).tolist():
            got = [int(lane[held[at]])] if held[at] >= 0 else []
            yield f"worker {worker} worked on task {events['task'][at]}, which it did not hold", [*got, int(lane[at])]
        begins = np.flatnonzero(events["kind"] == Kind.FETCH_BEGIN)
        for at in np.flatnonzero(held[begins][1:] == held[begins][:-1]).tolist():
            task = events["task"][begins[at]]
            yield f"worker {worker} fetched task {task} twice", lane[begins[at : at + 2]].tolist()
        yield from not_its_own(iterator, worker, lane[gots])


def not_its_own(iterator: IteratorEvents, worker: int, gots: np.ndarray) -> Broken:
    """Tasks that a worker got although another worker was chosen for them."""
    for epoch_id in iterator.epoch_ids:
        tasks = iterator.index.epochs.get(epoch_id)
        if tasks is not None:
            of_epoch = iterator.where(gots, epoch=epoch_id & 0xFFFFFFFF)
            chosen = tasks.table[HOP["dispatched"], iterator.task(of_epoch)]
            known = chosen != NEVER
            for sent, got in zip(chosen[known].tolist(), of_epoch[known].tolist(), strict=True):
                if iterator.events["worker"][sent] != worker:
                    yield f"worker {worker} got task {iterator.task(got)}, which is another's", [sent, got]


@invariant("nothing after stop", "A worker fetches nothing after it has taken the message to stop.")
def nothing_after_stop(iterator: IteratorEvents) -> Broken:
    for worker in iterator.workers:
        stops = iterator.where(iterator.all(Kind.GOT, Queue.INDEX, worker), task=STOP)
        if len(stops):
            lane = iterator.of_thread(Lane.WORKER, worker)
            for at in iterator.where(lane[lane > stops[0]], kind=Kind.FETCH_BEGIN).tolist():
                yield f"worker {worker} fetched task {iterator.task(at)} after it was stopped", [int(stops[0]), at]


@invariant("pin thread first", "At shutdown the pin thread is stopped before the workers.")
def pin_thread_first(iterator: IteratorEvents) -> Broken:
    if iterator.all(Kind.PIN_THREAD_BEGIN).size or iterator.all(Kind.PIN_STOPPING).size:
        joined = iterator.all(Kind.PIN_JOINED)
        for at in [*iterator.all(Kind.DONE_SET)[:1].tolist(), *iterator.of_workers(Kind.JOIN_BEGIN)[:1].tolist()]:
            if not (joined < at).any():
                yield "the workers were asked to stop while the pin thread ran", [at, *joined[:1].tolist()]


@invariant("joined", "Every process that started is joined or terminated when the shutdown ends.")
def joined(iterator: IteratorEvents) -> Broken:
    ends = iterator.all(Kind.SHUTDOWN_END)
    for worker in iterator.workers if len(ends) else ():
        over = Kind.WORKER_JOINED, Kind.WORKER_TERMINATED, Kind.WORKER_KILLED
        started = iterator.all(Kind.WORKER_STARTED, Queue.NONE, worker)
        if len(started) and not any((iterator.all(kind, Queue.NONE, worker) < ends[0]).any() for kind in over):
            yield f"worker {worker} was neither joined nor terminated", [int(started[0]), int(ends[0])]


@invariant("resumed", "Every worker acknowledges that it resumed before the first task of the epoch is sent.")
def resumed(iterator: IteratorEvents) -> Broken:
    resumes = iterator.of_workers(Kind.WORKER_RESUMED)
    acknowledged = iterator.of_workers(Kind.RESUME_ACKNOWLEDGED)
    for epoch_id, (begins, sent) in iterator.epochs(Kind.EPOCH_BEGIN, Kind.DISPATCHED):
        if not len(begins) or iterator.events["value"][begins[0]] < 0:
            continue
        epoch = epoch_id & 0xFFFFFFFF
        for worker in iterator.workers:
            its, main_has = (iterator.where(group, epoch=epoch, worker=worker) for group in (resumes, acknowledged))
            if len(sent) and not (main_has < sent[0]).any():
                yield f"task {iterator.task(sent[0])} was sent before worker {worker} had resumed", [int(sent[0])]
            if len(resumes) and len(main_has) and not (its < main_has[0]).any():
                yield f"worker {worker} had not resumed when that was taken for acknowledged", [int(main_has[0])]


@invariant("sticky", "After an error that lost a task, nothing more is yielded: the error stays.")
def sticky(iterator: IteratorEvents) -> Broken:
    lost = iterator.all(Kind.TASK_LOST)
    errors = iterator.all(Kind.ERROR_RAISED)
    raised = errors[errors > lost[0]] if len(lost) else errors[:0]
    if len(raised):
        for kind in Kind.YIELDED, Kind.EPOCH_END:
            for at in iterator.all(kind)[iterator.all(kind) > raised[0]][:1].tolist():
                yield "the iterator went on after a task was lost", [int(lost[0]), int(raised[0]), at]


@invariant("reorder buffer", "The reorder buffer gives out what was put in, each batch once.")
def reorder_buffer(iterator: IteratorEvents) -> Broken:
    for _, (stored, released) in iterator.epochs(Kind.STORED, Kind.RELEASED):
        yield from repeated(iterator, stored, "put in")
        yield from repeated(iterator, released, "taken out")
        first = dict(zip(iterator.task(stored)[::-1].tolist(), stored[::-1].tolist(), strict=True))
        for at in released.tolist():
            task = int(iterator.task(at))
            if first.get(task, NEVER) > at:
                yield f"task {task} was taken out and not put in before", [at]


@invariant("silent when joined", "A worker emits nothing once main has joined it.")
def silent_when_joined(iterator: IteratorEvents) -> Broken:
    for worker in iterator.workers:
        joins = iterator.all(Kind.WORKER_JOINED, Queue.NONE, worker)
        lane = iterator.of_thread(Lane.WORKER, worker)
        for at in lane[lane > joins[0]][:1].tolist() if len(joins) else ():
            yield f"worker {worker} still emitted events after it was joined", [int(joins[0]), at]


# The iteration ends after everything is cleared away, and a state may be taken then.
AFTERWARDS = (Kind.ASKED, Kind.EPOCH_END, Kind.ERROR_RAISED, Kind.STATE_TAKEN)


@invariant("shutdown is the end", "Main, the pin thread and the feeders do nothing after the shutdown is complete.")
def shutdown_is_the_end(iterator: IteratorEvents) -> Broken:
    ends = iterator.all(Kind.SHUTDOWN_END)
    if not len(ends):
        return
    lanes = {"main": iterator.of_thread(Lane.MAIN)}
    joined = iterator.all(Kind.PIN_JOINED)
    if not len(joined) or iterator.events["value"][joined[-1]]:  # 0: the bounded wait for it ran out
        lanes["the pin thread"] = iterator.of_thread(Lane.PIN)
    for worker in iterator.workers:
        if iterator.all(Kind.FEEDER_BEGIN, Queue.INDEX, worker).size:  # torch's feeders do not record their end
            lanes[f"a feeder thread of worker {worker}"] = iterator.of_thread(Lane.FEEDER, worker)
    for who, lane in lanes.items():
        after = lane[lane > ends[0]]
        for at in after[~np.isin(iterator.events["kind"][after], AFTERWARDS)][:1].tolist():
            yield f"{who} went on after the shutdown was complete", [int(ends[0]), at]
