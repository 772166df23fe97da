"""What the events of a run must say, whatever the schedule: that they agree with each other, and with those of a run of
the loader as it is. (`what_must_hold` judges what a run did, `tracing.check` the protocol; this is for small slips.)

Legend
    event      (time, thread, kind, epoch_id, task, worker, queue, value, text)
    expected   a run of the loader as it is, by the default schedule
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from minidl.events import NO_TASK, Kind, Queue
from minidl.world.simulated import Outcome
from minidl.world.simulated.faults import Fault

# What main tells of an epoch, and what it says in `value`, is the same on every schedule.
ALWAYS = frozenset({Kind.LOADER, Kind.EPOCH_BEGIN, Kind.ASKED, Kind.YIELDED, Kind.EPOCH_END, Kind.ERROR_RAISED})
FAILED = frozenset({Kind.FETCH_FAILED, Kind.STREAM_END})
BEGINS = {(Kind.FEEDER_BEGIN, Queue.INDEX), (Kind.PIN_THREAD_BEGIN, 0)}  # main's threads
LEAVES = {Kind.DISPATCHED: 1, Kind.RECEIVED: -1}


def promises(outcome: Outcome, expected: Outcome, in_order: bool, slow: bool) -> Iterator[str]:
    """What does not hold."""
    faults = {move.what for move in outcome.schedule.moves} - {Fault.RUN}
    printed = (each for each in outcome.swallowed if "KeyboardInterrupt" not in each)
    yield from (f"only printed: {each}" for each in printed)
    if Fault.INTERRUPT not in faults:
        yield from (f"no memory was swept after {name}" for name in outcome.unswept)
    yield from _unknown(outcome.events)
    yield from _outdated(outcome.events)
    yield from _miscounted(outcome.events)
    yield from _forked_too_late(outcome.events)
    if not in_order and any(event[2] == Kind.STORED for event in outcome.events):
        yield "a batch was stored, though the order is free"
    if not faults and not slow:
        yield from _second_lines(outcome)
        yield from _closed_once(outcome.events)
        yield from _unlike(outcome, expected, in_order)


def _unknown(events: list[tuple[Any, ...]]) -> Iterator[str]:
    """Each epoch begins once; an event is of an epoch that a loader has named, and of a task whose keys it has drawn;
    what failed is not pinned; a new epoch is acknowledged once by each, who has resumed; a worker is joined once, not
    after force; what it tells is of itself."""
    epochs = {event[3] for event in events if event[2] == Kind.LOADER}
    if not epochs:
        return  # parts of the loader alone
    begun: set[int] = set()
    tasks: set[tuple[int, int]] = set()
    failed: set[tuple[int, int]] = set()
    resumed: set[tuple[int, int]] = set()
    joined: set[tuple[int, int]] = set()
    numbers: dict[tuple[int, int], int] = {}  # of the workers, by thread and loader
    for _, thread, kind, epoch_id, task, worker, *_ in events:
        if kind == Kind.EPOCH_BEGIN:
            if epoch_id in begun:
                yield f"epoch {epoch_id} begins twice"
            begun.add(epoch_id)
        elif epoch_id and epoch_id not in epochs | begun:
            yield f"{Kind(kind).name} is of epoch {epoch_id}, which no loader has named"
            return
        if kind == Kind.KEYS_BEGIN:
            tasks.add((epoch_id, task))
        elif task >= 0 and (epoch_id, task) not in tasks:
            yield f"{Kind(kind).name} is of task {task}, whose keys nobody has drawn"
            return
        if kind == Kind.WORKER_RESUMED:
            resumed.add((epoch_id, worker))
        elif kind == Kind.RESUME_ACKNOWLEDGED and (epoch_id, worker) not in resumed:
            yield f"worker {worker} has not resumed, or not once more, and this is acknowledged"
        elif kind == Kind.RESUME_ACKNOWLEDGED:
            resumed.remove((epoch_id, worker))
        if kind == Kind.WORKER_BEGIN:
            numbers[thread, epoch_id >> 32] = worker
        elif numbers.get((thread, epoch_id >> 32), worker) != worker:
            yield f"{Kind(kind).name} of worker {numbers[thread, epoch_id >> 32]} says worker {worker}"
            return
        if kind == Kind.WORKER_JOINED and (epoch_id, worker) in joined:
            yield f"worker {worker} was joined twice, or after force was used"
        elif kind in (Kind.WORKER_JOINED, Kind.WORKER_TERMINATED):
            joined.add((epoch_id, worker))
        if kind in FAILED:
            failed.add((epoch_id, task))
        elif kind == Kind.PIN_BEGIN and (epoch_id, task) in failed:
            yield f"task {task} failed, and is pinned"


def _outdated(events: list[tuple[Any, ...]]) -> Iterator[str]:
    """Main waits for a message of the epoch whose message it took last."""
    taken: dict[int, int] = {}  # the epoch, of each loader
    for _, _, kind, epoch_id, _, _, queue, _, _ in events:
        loader = epoch_id >> 32
        if kind == Kind.LOADER:
            taken.pop(loader, None)
        elif kind == Kind.GOT and queue == Queue.DATA:
            taken[loader] = epoch_id
        elif kind == Kind.WAIT and queue == Queue.DATA and taken.get(loader, epoch_id) != epoch_id:
            yield f"main waits in epoch {epoch_id}, and took a message of {taken[loader]}"
            return


def _miscounted(events: list[tuple[Any, ...]]) -> Iterator[str]:
    """What an event counts, is counted right; and no worker has more tasks than its share of what was sent at first."""
    counts: Counter[tuple[int, int]] = Counter()
    limits: dict[int, int] = {}
    workers: dict[int, int] = {}  # of each loader
    at: Counter[tuple[int, int]] = Counter()  # (epoch, worker): tasks that it has
    for _, _, kind, epoch_id, task, worker, _, value, _ in events:
        counts[epoch_id, kind] += 1
        if kind == Kind.YIELDED:
            right = counts[epoch_id, kind]
        elif kind == Kind.EPOCH_END:
            right = counts[epoch_id, Kind.YIELDED]
        elif kind == Kind.SAMPLER_END:
            right = counts[epoch_id, Kind.KEYS_DRAWN]
        elif kind in (Kind.DISPATCHED, Kind.RECEIVED):
            right = counts[epoch_id, Kind.DISPATCHED] - counts[epoch_id, Kind.RECEIVED]
        elif kind == Kind.PRIMED:
            right = counts[epoch_id, Kind.DISPATCHED]
        else:
            right = value
        if kind == Kind.STORED and task == value:
            yield f"task {task} was stored when it was its turn"
            return
        if value != right:
            yield f"{Kind(kind).name} says {value} instead of {right}"
            return
        if kind == Kind.LOADER:
            workers[epoch_id >> 32] = value
        elif kind == Kind.PRIMED and not counts[epoch_id, Kind.SAMPLER_END]:
            limits[epoch_id] = value // workers[epoch_id >> 32]
        elif kind == Kind.WORKER_EXHAUSTED:  # the others have its share, too
            limits[epoch_id] = 1 << 30
        at[epoch_id, worker] += LEAVES.get(kind, 0)
        if kind == Kind.DISPATCHED and at[epoch_id, worker] > limits.get(epoch_id, 1 << 30):
            yield f"worker {worker} has {at[epoch_id, worker]} tasks, and {limits[epoch_id]} is its share"
            return


def _forked_too_late(events: list[tuple[Any, ...]]) -> Iterator[str]:
    """A loader's workers are started before its threads are, whose locks they would inherit."""
    begun: set[int] = set()
    for _, _, kind, epoch_id, _, worker, queue, _, _ in events:
        loader = epoch_id >> 32
        if kind == Kind.LOADER:  # another iterator of the same loader
            begun.discard(loader)
        elif (kind, queue) in BEGINS:
            begun.add(loader)
        elif kind == Kind.WORKER_STARTING and loader in begun:
            yield f"worker {worker} is started while a thread of its loader runs"
            return


def _second_lines(outcome: Outcome) -> Iterator[str]:
    """Where nothing fails every worker is stopped by a message, and every message finds its reader; main waits for one
    worker after another, and a feeder is left behind only by who says so."""
    waits: dict[int, int] = {}  # the worker that a loader waits for
    feeders: set[tuple[int, int, int]] = set()
    free: set[tuple[int, int, int]] = set()
    for _, _, kind, epoch_id, task, worker, queue, value, _ in outcome.events:
        loader = epoch_id >> 32
        if kind == Kind.JOIN_BEGIN:
            if loader in waits:
                yield f"main waits for worker {worker}, and has not joined worker {waits[loader]}"
            waits[loader] = worker
        elif kind == Kind.WORKER_JOINED:
            waits.pop(loader, None)
        elif kind == Kind.FEEDER_BEGIN:
            feeders.add((loader, queue, worker))
        elif kind in (Kind.FEEDER_END, Kind.JOIN_CANCELLED):
            free.add((loader, queue, worker))
        if kind == Kind.WORKER_END and value:
            yield f"nothing failed, and worker {worker} left its loop for another reason than Stop ({value})"
        elif kind == Kind.SEND_FAILED and task == NO_TASK:
            yield f"nothing failed, and a message to {Queue(queue).name} of worker {worker} found no reader"
    for _, queue, worker in feeders - free:
        yield f"nothing failed, and a message to {Queue(queue).name} of worker {worker} may still be in its feeder"


def _closed_once(events: list[tuple[Any, ...]]) -> Iterator[str]:
    """A producer closes its queue once, and puts nothing after that; a loader's shutdown is the end of its threads."""
    closed: set[tuple[int, int, int]] = set()
    shut: set[int] = set()
    mains = {(event[1], event[3] >> 32) for event in events if event[2] == Kind.LOADER}
    for _, thread, kind, epoch_id, _, worker, queue, _, _ in events:
        loader = epoch_id >> 32
        if kind == Kind.LOADER:  # another iterator of the same loader
            closed = {each for each in closed if each[0] != loader}
            shut.discard(loader)
        if kind in (Kind.CLOSED, Kind.PUT) and loader:
            if (loader, queue, worker) in closed:
                yield f"{Queue(queue).name} of worker {worker} was closed before {Kind(kind).name}"
            if kind == Kind.CLOSED:
                closed.add((loader, queue, worker))
        if kind == Kind.SHUTDOWN_END:
            shut.add(loader)
        elif loader in shut and (thread, loader) not in mains:
            yield f"{Kind(kind).name} comes after the shutdown was complete"


def _unlike(outcome: Outcome, expected: Outcome, in_order: bool) -> Iterator[str]:
    """What main tells differs from what it tells of the loader as it is."""
    kinds = set(ALWAYS)
    if in_order and not any(event[2] == Kind.WORKER_EXHAUSTED for event in expected.events):
        kinds.add(Kind.DISPATCHED)  # the workers get their tasks in turn
    told, usual = (_told(each.events, kinds) for each in (outcome, expected))
    for k, (now, before) in enumerate(zip(told, usual, strict=False)):
        if now != before:
            yield f"main's event {k} is {now} instead of {before}"
            return
    if len(told) != len(usual):
        yield f"main has {len(told)} events instead of {len(usual)}"


def _told(events: list[tuple[Any, ...]], kinds: set[Kind]) -> list[tuple[Any, ...]]:
    found = []
    for _, thread, kind, epoch_id, task, worker, _, value, _ in events:
        if thread == 0 and kind in kinds:
            where = (task, worker) if kind == Kind.DISPATCHED else value
            found.append((Kind(kind).name, epoch_id, where))
    return found
