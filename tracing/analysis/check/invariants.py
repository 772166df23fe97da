"""The protocol's invariants.

Each is a function under its name and its sentence. It looks at one iterator and yields what breaks the sentence,
with the positions of the events that show it. A trace that ends early (main was killed, or still runs) breaks
nothing by what is not in it: only what should have come before something that did come is missed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from minidl.events import NO_TASK, STOP, Kind, Queue
from tracing.analysis.check.iterator_events import Part
from tracing.trace.event_index import HOP, NEVER, Lane
from tracing.trace.state_at import label
from tracing.trace.words import QUEUE_NAMES

Broken = Iterator[tuple[str, list[int]]]  # in words, and the positions of the events that show it


@dataclass(frozen=True)
class Invariant:
    """What should hold in every trace."""

    name: str
    sentence: str
    breaches: Callable[[Part], Broken]


INVARIANTS: list[Invariant] = []


def invariant(name: str, sentence: str) -> Callable[[Callable[[Part], Broken]], Callable[[Part], Broken]]:
    """Make a function an invariant."""

    def add(breaches: Callable[[Part], Broken]) -> Callable[[Part], Broken]:
        INVARIANTS.append(Invariant(name, sentence, breaches))
        return breaches

    return add


@invariant("exactly once", "Every task sent is received exactly once, or lost with an error.")
def exactly_once(part: Part) -> Broken:
    kinds = Kind.DISPATCHED, Kind.RECEIVED, Kind.TASK_SKIPPED, Kind.EPOCH_END
    for _, (sent, received, skipped, ends) in part.epochs(*kinds):
        for task, events in part.twice(sent):
            yield f"task {task} was sent {len(events)} times", events
        for task, events in part.twice(received):
            yield f"task {task} was received {len(events)} times", events
        for at in received[~np.isin(part.task(received), part.task(sent))].tolist():
            yield f"task {part.task(at)} was received and never sent", [at]
        if len(ends):
            accounted = part.task(np.concatenate([received, skipped]))
            for at in sent[~np.isin(part.task(sent), accounted)].tolist():
                yield f"task {part.task(at)} is silently missing: the epoch ended without it", [at, int(ends[-1])]
    yield from lost_without_error(part)


def lost_without_error(part: Part) -> Broken:
    errors, lost = part.all(Kind.ERROR_RAISED), part.all(Kind.TASK_LOST)
    for kind in Kind.YIELDED, Kind.EPOCH_END:
        going_on = part.all(kind)
        for at in lost.tolist():
            after = going_on[going_on > at][:1].tolist()
            if after and not ((errors > at) & (errors < after[0])).any():
                yield f"task {part.task(at)} was lost, and no error was raised", [at, *after]


@invariant("yielded once", "Every batch received is yielded exactly once, or an error is raised in its place.")
def yielded_once(part: Part) -> Broken:
    kinds = Kind.RECEIVED, Kind.RELEASED, Kind.YIELDED, Kind.STORED, Kind.EPOCH_END
    for _, (received, released, yielded, stored, ends) in part.epochs(*kinds):
        for task, events in part.twice(yielded):
            yield f"task {task} was yielded {len(events)} times", events
        if len(part.workers):
            for at in yielded[~np.isin(part.task(yielded), part.task(received))].tolist():
                yield f"task {part.task(at)} was yielded and never received", [at]
        if len(ends):
            kept = stored[~np.isin(part.task(stored), part.task(released))]
            for at in kept.tolist():
                yield f"task {part.task(at)} was left in the reorder buffer", [at, int(ends[-1])]
            taken = np.concatenate([received[~np.isin(part.task(received), part.task(stored))], released])
            for at in taken[~np.isin(part.task(taken), part.task(yielded))].tolist():
                if not no_batch(part, at):
                    yield f"task {part.task(at)} was received and not yielded", [at, int(ends[-1])]


def no_batch(part: Part, taken: int) -> bool:
    """Whether what main took at this position was the end of a stream, or an exception, which it raised next."""
    main = part.lane(Lane.MAIN)
    for at in main[main.searchsorted(taken, "right") :]:
        kind = part.events["kind"][at]
        if kind in (Kind.WORKER_EXHAUSTED, Kind.ERROR_RAISED):
            return True
        if kind in (Kind.YIELDED, Kind.ASKED, Kind.EPOCH_END):
            break
    return False


@invariant("first in, first out", "A queue gives its messages in the order in which they were put, each once.")
def first_in_first_out(part: Part) -> Broken:
    places = [(queue, worker) for queue in (Queue.INDEX, Queue.RESULT) for worker in part.workers]
    for queue, worker in [*places, (Queue.DATA, -1)]:
        puts, sents, gots = (part.all(kind, queue, worker) for kind in (Kind.PUT, Kind.SENT, Kind.GOT))
        puts = puts[~np.isin(puts, broken_off(part, puts, sents if len(sents) else gots))]
        name = QUEUE_NAMES[queue] + (f" {worker}" if worker >= 0 else "")
        if len(sents) or part.all(Kind.SEND_BEGIN, queue, worker).size:
            yield from out_of_order(part, name, ("put", puts), ("sent", sents))
            yield from out_of_order(part, name, ("sent", sents), ("got", gots))
        else:  # there is no pipe, or nobody saw what was sent
            yield from out_of_order(part, name, ("put", puts), ("got", gots))


def broken_off(part: Part, puts: np.ndarray, afters: np.ndarray) -> list[int]:
    """Puts that Ctrl-C came in the middle of, between what they said and what they did: nothing came of them, and the
    next that their thread said is that it ends."""
    kinds, found = part.events["kind"], []
    for lane in (part.lane(Lane.MAIN), *(part.lane(Lane.WORKER, worker) for worker in part.workers)):
        ends = np.flatnonzero(np.isin(kinds[lane], (Kind.SHUTDOWN_BEGIN, Kind.WORKER_END)))
        last = lane[ends[ends > 0] - 1]
        for put in last[np.isin(last, puts)].tolist():
            of_epoch = afters[part.events["epoch"][afters] == part.events["epoch"][put]]
            if part.task(put) not in part.task(of_epoch):
                found.append(put)
    return found


def out_of_order(part: Part, name: str, cause: tuple[str, np.ndarray], effect: tuple[str, np.ndarray]) -> Broken:
    """The first event that does not do to the next message what another did before. After it all are shifted."""
    (did, befores), (done, afters) = cause, effect
    if len(afters) > len(befores):
        yield f"{name}: a message was {done} that was not {did}", [int(afters[len(befores)])]
    length = min(len(befores), len(afters))
    befores, afters = befores[:length], afters[:length]
    one, other = part.events[befores], part.events[afters]
    unknown = (other["task"] == NO_TASK) & (other["text"] > 0)  # it could not be unpickled
    wrong = ((one["task"] != other["task"]) | (one["epoch"] != other["epoch"])) & ~unknown | (befores > afters)
    if wrong.any():
        first = int(np.argmax(wrong))
        events = [int(befores[first]), int(afters[first])]
        yield f"{name}: {message(other[first])} was {done} where {message(one[first])} was due", events


def message(event: np.void) -> str:
    return f"task {event['task']}" if event["task"] >= 0 else str(label(int(event["task"])))


@invariant("bounded", "Never more than prefetch_factor x num_workers tasks are outstanding or held early.")
def bounded(part: Part) -> Broken:
    if part.prefetch_factor is None:
        return
    limit = part.prefetch_factor * len(part.workers)
    steps = {Kind.DISPATCHED: 1, Kind.RECEIVED: -1, Kind.STORED: 1, Kind.RELEASED: -1}
    for _, (sent, received, stored, released, yielded, primed) in part.epochs(*steps, Kind.YIELDED, Kind.PRIMED):
        yield from too_many(running([sent, received], [1, -1]), sent, limit, "outstanding")
        # Main refills just before it hands a batch out, so what is held is counted when it has.
        held = running([sent, received, stored, released], list(steps.values()))
        yield from too_many(held, np.concatenate([primed, yielded, stored]), limit, "outstanding or held early")
        if not part.in_order:
            yield from over_capacity(part, sent, received, limit)


def too_many(counted: tuple[np.ndarray, np.ndarray], when: np.ndarray, limit: int, what: str) -> Broken:
    """The first of the positions `when` at which more than `limit` were counted."""
    positions, counts = counted
    at = positions.searchsorted(np.sort(when), "right") - 1
    over = at[(at >= 0) & (counts[at] > limit)] if len(positions) else at[:0]
    if len(over):
        yield f"{counts[over[0]]} tasks were {what}, {limit} are allowed", [int(positions[over[0]])]


def over_capacity(part: Part, sent: np.ndarray, received: np.ndarray, limit: int) -> Broken:
    """Without order a worker is only sent what its share of the limit allows: one that is slow would get them all."""
    exhausted = part.of_workers(Kind.WORKER_EXHAUSTED)
    exhausted = exhausted[exhausted > sent[0]] if len(sent) else exhausted[:0]  # those of this epoch
    for worker in part.workers:
        own = [group[part.events["worker"][group] == worker] for group in (sent, received)]
        positions, held = running(own, [1, -1])
        active = np.maximum(1, len(part.workers) - exhausted.searchsorted(positions))
        over = np.flatnonzero(held > limit // active)
        if len(over):
            yield f"worker {worker} was sent {held[over[0]]} tasks at a time", [int(positions[over[0]])]


def running(groups: list[np.ndarray], steps: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """All positions of the groups, ascending, and the sum so far of their groups' steps."""
    positions = np.concatenate(groups)
    order = np.argsort(positions)
    return positions[order], np.cumsum(np.repeat(steps, [len(group) for group in groups])[order])


@invariant("in order", "With in_order, batches are yielded in the order in which their keys were drawn.")
def in_order(part: Part) -> Broken:
    if part.in_order:
        for _, (yielded,) in part.epochs(Kind.YIELDED):
            tasks = part.task(yielded)
            for at in np.flatnonzero(tasks[1:] < tasks[:-1]).tolist():
                yield f"task {tasks[at + 1]} was yielded after task {tasks[at]}", yielded[at : at + 2].tolist()


WORK = (Kind.FETCH_BEGIN, Kind.FETCH_END, Kind.COLLATE_BEGIN, Kind.COLLATE_END, Kind.FETCH_FAILED, Kind.STREAM_END)


@invariant("one at a time", "A worker works on one task at a time, and only on its own.")
def one_at_a_time(part: Part) -> Broken:
    for worker in part.workers:
        lane = part.lane(Lane.WORKER, worker)
        said = part.events[lane]
        puts = (said["kind"] == Kind.PUT) & (said["queue"] == Queue.RESULT)
        works = (np.isin(said["kind"], WORK) | puts) & (said["task"] >= 0)
        gots = (said["kind"] == Kind.GOT) & (said["queue"] == Queue.INDEX) & (said["task"] >= 0)
        has = np.maximum.accumulate(np.where(gots, np.arange(len(lane)), -1))  # the task that is in its hands
        own = (has >= 0) & (said["task"] == said["task"][has]) & (said["epoch"] == said["epoch"][has])
        for at in np.flatnonzero(works & ~own).tolist():
            holds = [int(lane[has[at]])] if has[at] >= 0 else []
            yield f"worker {worker} worked on task {said['task'][at]}, which it did not hold", [*holds, int(lane[at])]
        begins = np.flatnonzero(said["kind"] == Kind.FETCH_BEGIN)
        for at in np.flatnonzero(has[begins][1:] == has[begins][:-1]).tolist():
            task = said["task"][begins[at]]
            yield f"worker {worker} fetched task {task} twice", lane[begins[at : at + 2]].tolist()
        yield from not_its_own(part, worker, lane[gots])


def not_its_own(part: Part, worker: int, gots: np.ndarray) -> Broken:
    """Tasks that a worker got and another was chosen for."""
    for epoch_id in part.iterator.epoch_ids:
        tasks = part.index.epochs.get(epoch_id)
        if tasks is not None:
            of_epoch = gots[part.events["epoch"][gots] == epoch_id & 0xFFFFFFFF]
            chosen = tasks.table[HOP["dispatched"], part.task(of_epoch)]
            known = chosen != NEVER
            for sent, got in zip(chosen[known].tolist(), of_epoch[known].tolist(), strict=True):
                if part.events["worker"][sent] != worker:
                    yield f"worker {worker} got task {part.task(got)}, which is another's", [sent, got]


@invariant("nothing after stop", "A worker fetches nothing after it took the message to stop.")
def nothing_after_stop(part: Part) -> Broken:
    for worker in part.workers:
        gots = part.all(Kind.GOT, Queue.INDEX, worker)
        stops = gots[part.task(gots) == STOP]
        if len(stops):
            lane = part.lane(Lane.WORKER, worker)
            after = lane[lane > stops[0]]
            for at in after[part.events["kind"][after] == Kind.FETCH_BEGIN].tolist():
                yield f"worker {worker} fetched task {part.task(at)} after it was stopped", [int(stops[0]), at]


@invariant("pin thread first", "At shutdown the pin thread is stopped before the workers.")
def pin_thread_first(part: Part) -> Broken:
    if part.all(Kind.PIN_THREAD_BEGIN).size or part.all(Kind.PIN_STOPPING).size:
        joined = part.all(Kind.PIN_JOINED)
        for at in [*part.all(Kind.DONE_SET)[:1].tolist(), *part.of_workers(Kind.JOIN_BEGIN)[:1].tolist()]:
            if not (joined < at).any():
                yield "the workers were told to stop while the pin thread ran", [at, *joined[:1].tolist()]


@invariant("joined", "Every process that started is joined or terminated when the shutdown ends.")
def joined(part: Part) -> Broken:
    ends = part.all(Kind.SHUTDOWN_END)
    for worker in part.workers if len(ends) else ():
        over = Kind.WORKER_JOINED, Kind.WORKER_TERMINATED, Kind.WORKER_KILLED
        started = part.all(Kind.WORKER_STARTED, Queue.NONE, worker)
        if len(started) and not any((part.all(kind, Queue.NONE, worker) < ends[0]).any() for kind in over):
            yield f"worker {worker} was neither joined nor terminated", [int(started[0]), int(ends[0])]


@invariant("resumed", "Every worker acknowledges that it resumed before the first task of the epoch is sent.")
def resumed(part: Part) -> Broken:
    seen = part.of_workers(Kind.WORKER_RESUMED)
    acknowledged = part.of_workers(Kind.RESUME_ACKNOWLEDGED)
    for epoch_id, (begins, sent) in part.epochs(Kind.EPOCH_BEGIN, Kind.DISPATCHED):
        if not len(begins) or part.events["value"][begins[0]] < 0:
            continue
        epoch = epoch_id & 0xFFFFFFFF
        for worker in part.workers:
            mine = [
                group[(part.events["epoch"][group] == epoch) & (part.events["worker"][group] == worker)]
                for group in (seen, acknowledged)
            ]
            if len(sent) and not (mine[1] < sent[0]).any():
                yield f"task {part.task(sent[0])} was sent before worker {worker} had resumed", [int(sent[0])]
            if len(seen) and len(mine[1]) and not (mine[0] < mine[1][0]).any():
                yield f"worker {worker} had not resumed when that was taken for acknowledged", [int(mine[1][0])]


@invariant("sticky", "After an error that lost a task nothing is yielded any more: the error stays.")
def sticky(part: Part) -> Broken:
    lost = part.all(Kind.TASK_LOST)
    errors = part.all(Kind.ERROR_RAISED)
    raised = errors[errors > lost[0]] if len(lost) else errors[:0]
    if len(raised):
        for kind in Kind.YIELDED, Kind.EPOCH_END:
            for at in part.all(kind)[part.all(kind) > raised[0]][:1].tolist():
                yield "the iterator went on after a task was lost", [int(lost[0]), int(raised[0]), at]


@invariant("reorder buffer", "The reorder buffer gives out what was put in, each batch once.")
def reorder_buffer(part: Part) -> Broken:
    for _, (stored, released) in part.epochs(Kind.STORED, Kind.RELEASED):
        for groups, done in ((stored, "put in"), (released, "taken out")):
            for task, events in part.twice(groups):
                yield f"task {task} was {done} {len(events)} times", events
        first = dict(zip(part.task(stored)[::-1].tolist(), stored[::-1].tolist(), strict=True))
        for at in released.tolist():
            task = int(part.task(at))
            if first.get(task, NEVER) > at:
                yield f"task {task} was taken out and not put in before", [at]


@invariant("silent when joined", "A worker says nothing any more once main has joined it.")
def silent_when_joined(part: Part) -> Broken:
    for worker in part.workers:
        joins = part.all(Kind.WORKER_JOINED, Queue.NONE, worker)
        lane = part.lane(Lane.WORKER, worker)
        for at in lane[lane > joins[0]][:1].tolist() if len(joins) else ():
            yield f"worker {worker} still spoke after it was joined", [int(joins[0]), at]


AFTERWARDS = (Kind.ASKED, Kind.EPOCH_END, Kind.ERROR_RAISED)  # how the iteration ends is told when all is cleared away


@invariant("shutdown is the end", "Main, the pin thread and the feeders do nothing after the shutdown is complete.")
def shutdown_is_the_end(part: Part) -> Broken:
    ends = part.all(Kind.SHUTDOWN_END)
    if not len(ends):
        return
    lanes = {"main": part.lane(Lane.MAIN), "the pin thread": part.lane(Lane.PIN)}
    for worker in part.workers:
        if part.all(Kind.FEEDER_BEGIN, Queue.INDEX, worker).size:  # torch's feeders are not heard when they end
            lanes[f"a feeder thread of worker {worker}"] = part.lane(Lane.FEEDER, worker)
    for who, lane in lanes.items():
        after = lane[lane > ends[0]]
        for at in after[~np.isin(part.events["kind"][after], AFTERWARDS)][:1].tolist():
            yield f"{who} went on after the shutdown was complete", [int(ends[0]), at]
