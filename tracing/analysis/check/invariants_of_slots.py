"""The invariants of slots (see minidl.transport): memory that a worker fills and main lends, one batch after the other.

Legend
    turn   GRANTED, LENT or FREE    main's events of one slot come in turns: granted, perhaps lent, then free
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from minidl.events import Kind
from tracing.analysis.check.invariants import INVARIANTS, Broken, invariant
from tracing.analysis.check.iterator_events import IteratorEvents
from tracing.trace.event_index import NEVER, NO_SLOT

__all__ = ["INVARIANTS"]

TURNS = (Kind.SLOT_GRANTED, Kind.SLOT_LENT, Kind.SLOT_FREE)
HELD_BY_CALLER = 2  # slots: the batch that it has, and the one that it asks for


def turns(iterator: IteratorEvents) -> Iterator[tuple[int, int, np.ndarray]]:
    """Each worker and slot, and the positions of its turns."""
    for worker in iterator.workers:
        events = np.sort(np.concatenate([iterator.all(kind, worker=worker) for kind in TURNS]))
        slots = iterator.events["value"][events]
        for slot in np.unique(slots[slots != NO_SLOT]).tolist():
            yield worker, slot, events[slots == slot]


def pairs(iterator: IteratorEvents, kind: Kind) -> Iterator[tuple[str, int, int]]:
    """Each turn of that kind: the name of its slot, the turn before it (-1: none), and the turn."""
    for worker, slot, events in turns(iterator):
        of_kind = np.flatnonzero(iterator.events["kind"][events] == kind)
        before = np.where(of_kind > 0, events[of_kind - 1], -1)
        for pair in zip(before.tolist(), events[of_kind].tolist(), strict=True):
            yield f"slot {slot} of worker {worker}", *pair


def follows(iterator: IteratorEvents, before: int, at: int, *kinds: Kind) -> bool:
    """Whether the turn before is of one of these kinds, and concerns the same task."""
    one, other = iterator.events[before], iterator.events[at]
    same = one["task"] == other["task"] and one["epoch"] == other["epoch"]
    return before >= 0 and bool(same) and one["kind"] in kinds


@invariant("granted when free", "A slot is granted only when it is free: its last batch is gone, or did not need it.")
def granted_when_free(iterator: IteratorEvents) -> Broken:
    resumed = iterator.of_workers(Kind.RESUME_ACKNOWLEDGED)
    for name, before, at in pairs(iterator, Kind.SLOT_GRANTED):
        kind = iterator.events["kind"][before]
        if before < 0 or kind == Kind.SLOT_FREE:
            continue
        unsent = iterator.hop("result_sent", before) > at  # else its result may have brought the slot back, unused
        if kind == Kind.SLOT_LENT or (unsent and not ((resumed > before) & (resumed < at)).any()):
            holder = iterator.task(before)
            yield f"{name} was granted to task {iterator.task(at)} while task {holder} had it", [before, at]


@invariant(
    "filled when granted", "A slot is filled only for the task that it is granted to, and never while it is lent."
)
def filled_when_granted(iterator: IteratorEvents) -> Broken:
    of_slot = {(worker, slot): events for worker, slot, events in turns(iterator)}
    for at in iterator.of_workers(Kind.SLOT_FILLED).tolist():
        granted, worker = iterator.hop("slot_granted", at), int(iterator.events["worker"][at])
        slot = NO_SLOT if granted == NEVER else int(iterator.events["value"][granted])
        if (worker, slot) in of_slot:  # else it was filled in memory of its own, or recorded from then on
            events = of_slot[worker, slot]
            turn = int(events[max(0, events.searchsorted(at) - 1)])
            if turn > at or not follows(iterator, turn, at, Kind.SLOT_GRANTED):
                task = iterator.task(at)
                yield f"slot {slot} of worker {worker} was filled for task {task}, which did not have it", [turn, at]


@invariant("lent as granted", "A batch is lent from the slot that its task was granted.")
def lent_as_granted(iterator: IteratorEvents) -> Broken:
    for name, before, at in pairs(iterator, Kind.SLOT_LENT):  # twice, if Ctrl-C interrupted the unpickling
        if not follows(iterator, before, at, Kind.SLOT_GRANTED, Kind.SLOT_LENT):
            yield f"task {iterator.task(at)} was lent from {name}, which it was not granted", [at]


@invariant("freed once", "What is lent is freed once.")
def freed_once(iterator: IteratorEvents) -> Broken:
    for name, before, at in pairs(iterator, Kind.SLOT_FREE):
        if not follows(iterator, before, at, Kind.SLOT_LENT):
            yield f"{name} was freed of task {iterator.task(at)}, which was not lent from it", [at]


@invariant("new after a fork", "If main forks while a slot is lent, its next batch comes in new memory.")
def new_after_a_fork(iterator: IteratorEvents) -> Broken:
    for worker in iterator.workers:
        made = iterator.all(Kind.SLOT_MADE, worker=worker)
        retired = iterator.all(Kind.SLOT_RETIRED, worker=worker)
        for slot in np.unique(iterator.events["value"][retired]).tolist():
            lent = iterator.where(iterator.all(Kind.SLOT_LENT, worker=worker), value=slot)
            for at in iterator.where(retired, value=slot).tolist():
                for after in lent[lent > at][:1].tolist():
                    event = iterator.events[after]
                    if not len(iterator.where(made, task=int(event["task"]), epoch=int(event["epoch"]))):
                        yield f"slot {slot} of worker {worker} was used again after the fork", [at, after]


@invariant("few slots", f"A worker has no more than prefetch_factor + {HELD_BY_CALLER} slots.")
def few_slots(iterator: IteratorEvents) -> Broken:
    if iterator.prefetch_factor is None:
        return
    limit = iterator.prefetch_factor + HELD_BY_CALLER
    granted = iterator.of_workers(Kind.SLOT_GRANTED)
    for at in granted[iterator.events["value"][granted] >= limit][:1].tolist():
        worker, slot = (iterator.events[name][at] for name in ("worker", "value"))
        yield f"worker {worker} was granted slot {slot}, and may have {limit}", [at]
