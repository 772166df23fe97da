"""Where to find what in a trace. Kept up to date while the trace grows, at a cost in proportion to what is new.

Three tables, all of positions (of events in `trace.events`):
    groups       iterator, kind, queue, worker, slot -> the positions of those events, ascending; worker only for kinds
                 and queues that each worker has of its own, slot only for main's events of one slot, else -1
    lanes        iterator, lane, worker -> the positions of all events of one thread that concern the iterator
    epochs       loader, epoch -> for each task and each hop on its way, the position of that event

With them the state after event k is a matter of counting positions <= k: see tracing.trace.state_after_event.

Legend
    iterator    0             number of an iterator in this trace; a persistent one has several epochs
    epoch_id    1 << 32 | 0   loader 1, epoch 0
    lane        MAIN          which thread: see Lane
    hop         "fetch_end"   a column of TASK_DTYPE, and the event whose time it holds
"""

from __future__ import annotations

import collections.abc
import enum
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from minidl.events import Kind, Queue
from tracing.recording import file_format as fmt
from tracing.trace.file_reader import OF_SLOTS
from tracing.trace.positions import NOWHERE, Positions

Stream = collections.abc.Iterator  # `Iterator` is something else here

NEVER = np.iinfo(np.int64).max  # the position of what has not happened
NO_SLOT = -1  # in `value`: none was free, so the batch gets memory of its own


class Lane(enum.IntEnum):
    """The threads of an iterator."""

    MAIN = 0  # the thread that iterates
    WORKER = 1
    PIN = 2
    FEEDER = 3


LANE_SHOWN_BY: dict[int, Lane] = {  # with which event a thread of that lane begins
    Kind.WORKER_BEGIN: Lane.WORKER,
    Kind.PIN_THREAD_BEGIN: Lane.PIN,
    Kind.FEEDER_BEGIN: Lane.FEEDER,
    Kind.SEND_FAILED: Lane.FEEDER,  # the only event that torch's feeders emit
}


class Role(NamedTuple):
    """What an actor is to the first loader that it had to do with."""

    lane: int = Lane.MAIN
    iterator: int = -1  # that it serves; -1: it is main
    queue: int = Queue.NONE  # of a feeder
    worker: int = -1


# Hops of the tasks of one epoch: `tasks`, `hops` and `positions`; hop hops[i] of task tasks[i] is the event at
# positions[i].
MadeHops = tuple[np.ndarray, np.ndarray, np.ndarray]

# The event that each hop is: (kind, queue), the queue for kinds that concern one.
HOPS: dict[str, tuple[Kind, Queue]] = {
    "keys_begin": (Kind.KEYS_BEGIN, Queue.NONE),
    "keys_drawn": (Kind.KEYS_DRAWN, Queue.NONE),
    "dispatched": (Kind.DISPATCHED, Queue.NONE),
    "slot_granted": (Kind.SLOT_GRANTED, Queue.NONE),
    "index_put": (Kind.PUT, Queue.INDEX),
    "index_sending": (Kind.SEND_BEGIN, Queue.INDEX),
    "index_sent": (Kind.SENT, Queue.INDEX),
    "index_got": (Kind.GOT, Queue.INDEX),
    "fetch_begin": (Kind.FETCH_BEGIN, Queue.NONE),
    "fetch_end": (Kind.FETCH_END, Queue.NONE),
    "collate_begin": (Kind.COLLATE_BEGIN, Queue.NONE),
    "collate_end": (Kind.COLLATE_END, Queue.NONE),
    "result_put": (Kind.PUT, Queue.RESULT),
    "result_sending": (Kind.SEND_BEGIN, Queue.RESULT),
    "slot_filled": (Kind.SLOT_FILLED, Queue.NONE),
    "result_sent": (Kind.SENT, Queue.RESULT),
    "slot_lent": (Kind.SLOT_LENT, Queue.NONE),
    "result_got": (Kind.GOT, Queue.RESULT),
    "pin_begin": (Kind.PIN_BEGIN, Queue.NONE),
    "pin_end": (Kind.PIN_END, Queue.NONE),
    "data_put": (Kind.PUT, Queue.DATA),
    "data_got": (Kind.GOT, Queue.DATA),
    "received": (Kind.RECEIVED, Queue.NONE),
    "stored": (Kind.STORED, Queue.NONE),
    "released": (Kind.RELEASED, Queue.NONE),
    "yielded": (Kind.YIELDED, Queue.NONE),
    "slot_free": (Kind.SLOT_FREE, Queue.NONE),
    "failed": (Kind.FETCH_FAILED, Queue.NONE),
    "pin_failed": (Kind.PIN_FAILED, Queue.NONE),
    "stream_end": (Kind.STREAM_END, Queue.NONE),
    "skipped": (Kind.TASK_SKIPPED, Queue.NONE),
    "lost": (Kind.TASK_LOST, Queue.NONE),
}
TASKLESS_HOPS = {  # in the table of tasks, too, though their events do not carry a task
    "asked": (Kind.ASKED, Queue.NONE),
    "result_arrived": (Kind.ARRIVED, Queue.RESULT),
}
HOP = {name: number for number, name in enumerate(HOPS)}
_HOP_OF = np.full((256, 256), -1, np.int8)  # [kind, queue] -> hop, by its number
for _name, (_kind, _queue) in HOPS.items():
    _HOP_OF[_kind, _queue] = HOP[_name]

# [kind, queue] -> whether each worker has a group of its own.
_PER_WORKER = np.zeros((256, 256), bool)
_PER_WORKER[:, [Queue.INDEX, Queue.RESULT]] = True
_OF_WORKERS = ("WORKER_", "INIT_", "JOIN_", "RESUME_", "STREAM_", "SLOT_")
_PER_WORKER[[kind for kind in Kind if kind.name.startswith(_OF_WORKERS)]] = True


@dataclass
class Epoch:
    """The path of each task of an epoch."""

    loader: int
    epoch: int
    # [hop, task] -> position. Every state reads whole rows, so a hop's row is one piece of memory.
    table: np.ndarray = field(default_factory=lambda: np.full((len(HOPS), 16), NEVER))
    length: int = 0  # tasks: columns in use
    _ascending: dict[str, np.ndarray] = field(default_factory=dict)  # made when asked for, until a task changes

    def hops(self, *names: str) -> list[np.ndarray]:
        """For each name the positions of that hop, one per task; NEVER where it has not happened."""
        return [self.table[HOP[name], : self.length] for name in names]

    def happened(self, hop: str, k: int) -> int:
        """How many tasks have made this hop by event k. Like `under_way`, no slower in a longer epoch."""
        if hop not in self._ascending:
            self._ascending[hop] = np.sort(self.hops(hop)[0])
        return int(self._ascending[hop].searchsorted(k, "right"))

    def under_way(self, k: int) -> slice:
        """Tasks that may be in task_info after event k: each before them has left it, and none after them was sent."""
        if "gone" not in self._ascending:
            sent, *ways_out = self.hops("dispatched", "released", "yielded", "skipped")
            self._ascending["gone"] = np.maximum.accumulate(np.minimum.reduce(ways_out))
            self._ascending["to come"] = np.minimum.accumulate(sent[::-1])[::-1]
        gone, to_come = (self._ascending[name].searchsorted(k, "right") for name in ("gone", "to come"))
        return slice(int(gone), int(to_come))

    def add(self, tasks: np.ndarray, hops: np.ndarray, positions: np.ndarray) -> None:
        """Add the hops of a MadeHops."""
        self._ascending.clear()
        room, needed = self.table.shape[1], int(tasks.max()) + 1
        if needed > room:
            more = np.full((len(HOPS), max(needed, 2 * room) - room), NEVER)
            self.table = np.concatenate([self.table, more], axis=1)
        made = tasks[hops != HOP["keys_begin"]]  # a sampler that is asked for keys may have none: then there is no task
        self.length = max(self.length, int(made.max(initial=-1)) + 1)
        new = self.table[hops, tasks] == NEVER  # of two events of the same hop the first one counts ...
        self.table[hops[new][::-1], tasks[new][::-1]] = positions[new][::-1]  # ... so the first is written last

    def remove(self, tasks: np.ndarray, hops: np.ndarray, positions: np.ndarray) -> None:
        self._ascending.clear()
        there = self.table[hops, tasks] == positions
        self.table[hops[there], tasks[there]] = NEVER


@dataclass
class Iterator:
    """One iterator, announced by a LOADER event."""

    number: int
    loader: int
    epochs: list[int] = field(default_factory=list)  # those it went through, in order
    num_workers: int = 0
    lanes: dict[tuple[int, ...], Positions] = field(default_factory=dict)  # by iterator, lane, worker

    def first(self) -> int:
        """The position of its first event."""
        return min((int(lane.array[0]) for lane in self.lanes.values() if len(lane)), default=0)

    def last(self, k: int = NEVER - 1) -> int:
        """The position of its last event up to `k`, or -1."""
        return max((lane.last(k) for lane in self.lanes.values()), default=-1)


class Index:
    """The three tables, and the iterators of a trace."""

    def __init__(self) -> None:
        self.iterators: list[Iterator] = []
        self.iterator_of: dict[int, int] = {}  # epoch_id -> number of its iterator
        self.epochs: dict[int, Epoch] = {}  # epoch_id -> its tasks
        self.groups: dict[tuple[int, ...], Positions] = {}
        self.roles: list[Role] = []  # of each actor

    def group(
        self, iterator: int, kind: int, queue: int = Queue.NONE, worker: int = -1, slot: int = NO_SLOT
    ) -> Positions:
        """The positions of such events. `worker` only for kinds and queues that each worker has, `slot` only for those
        of slots."""
        return self.groups.get((iterator, kind, queue, worker, slot), NOWHERE)

    def iterators_of(self, loader: int | None) -> list[Iterator]:
        """Those of a loader, by default of the one with the most batches. ValueError: there is none."""
        numbers = sorted({each.loader for each in self.iterators})
        if loader is None:
            loader = max(numbers, key=lambda number: sum(e.length for e in self.epochs.values() if e.loader == number))
        if loader not in numbers:
            raise ValueError(f"no loader {loader} in this trace: there are {numbers}")
        return [each for each in self.iterators if each.loader == loader]

    def lane(self, iterator: int, lane: Lane, worker: int = -1) -> Positions:
        """The positions of the events of one thread; `worker` is -1 for main and the pin thread."""
        return self.iterators[iterator].lanes.get((iterator, lane, worker), NOWHERE)

    # ---- keeping it up to date

    def add(self, events: np.ndarray, first: int, actors: int) -> bool:
        """Add the events from position `first` on. False if the index must be rebuilt: an epoch thought to
        begin an iterator turned out to continue one."""
        new = events[first:]
        if not self._learn_iterators(new):
            return False
        self._learn_roles(new, actors)
        for group, positions in self._by_group(new, first):
            self.groups.setdefault(group, Positions()).extend(positions)
        for lane, positions in self._by_lane(new, first):
            self.iterators[lane[0]].lanes.setdefault(lane, Positions()).extend(positions)
        for epoch_id, made in self._by_epoch(new, first):
            if epoch_id not in self.epochs:
                self.epochs[epoch_id] = Epoch(epoch_id >> 32, epoch_id & 0xFFFFFFFF)
            self.epochs[epoch_id].add(*made)
        return True

    def remove(self, events: np.ndarray, first: int) -> None:
        """Remove the events from position `first` on: late ones belong before them."""
        new = events[first:]
        for group, _ in self._by_group(new, first):
            self.groups[group].cut(first)
        for lane, _ in self._by_lane(new, first):
            self.iterators[lane[0]].lanes[lane].cut(first)
        for epoch_id, made in self._by_epoch(new, first):
            self.epochs[epoch_id].remove(*made)

    def _learn_iterators(self, new: np.ndarray) -> bool:
        epoch_ids = _epoch_ids(new)
        begins = new["kind"] == Kind.EPOCH_BEGIN
        continues = dict(zip(epoch_ids[begins].tolist(), new["value"][begins].tolist(), strict=True))
        for epoch_id in _different(epoch_ids)[0]:
            if epoch_id not in self.iterator_of:
                iterator = self.iterator_of.get(continues.get(epoch_id, -1))
                if iterator is None:
                    iterator = len(self.iterators)
                    self.iterators.append(Iterator(iterator, epoch_id >> 32 & 0xFFFFFFFF))
                self.iterator_of[epoch_id] = iterator
                self.iterators[iterator].epochs.append(epoch_id & 0xFFFFFFFF)
        loaders = new["kind"] == Kind.LOADER
        for epoch_id, num_workers in zip(epoch_ids[loaders].tolist(), new["value"][loaders].tolist(), strict=True):
            self.iterators[self.iterator_of[epoch_id]].num_workers = num_workers
        return all(
            self.iterator_of.get(previous, self.iterator_of[epoch_id]) == self.iterator_of[epoch_id]
            for epoch_id, previous in continues.items()
        )

    def _iterators(self, new: np.ndarray) -> np.ndarray:
        """The iterator of each event."""
        different, which = _different(_epoch_ids(new))
        return np.array([self.iterator_of[epoch_id] for epoch_id in different], np.int64)[which]

    def _learn_roles(self, new: np.ndarray, actors: int) -> None:
        """An actor's first event shows its lane, unless it is main. (Actors are numbered as they are read.)"""
        known = len(self.roles)
        self.roles.extend([Role()] * (actors - known))
        for event in new[np.unique(new["actor"], return_index=True)[1]]:
            actor, lane = int(event["actor"]), LANE_SHOWN_BY.get(int(event["kind"]))
            if actor >= known and lane is not None:
                iterator = self.iterator_of[int(event["loader"]) << 32 | int(event["epoch"])]
                self.roles[actor] = Role(lane, iterator, int(event["queue"]), int(event["worker"]))

    # ---- the events from position `first` on, table by table

    def _by_group(self, new: np.ndarray, first: int) -> Stream[tuple[tuple[int, ...], np.ndarray]]:
        kind, queue = new["kind"], new["queue"]
        worker = np.where(_PER_WORKER[kind, queue], new["worker"], -1)
        slot = np.where(OF_SLOTS[kind], new["value"], NO_SLOT)
        for key, members in _alike(self._iterators(new), kind, queue, worker, slot):
            yield key, first + members

    def _by_lane(self, new: np.ndarray, first: int) -> Stream[tuple[tuple[int, ...], np.ndarray]]:
        roles = np.array(self.roles, np.int32).reshape(-1, len(Role._fields))
        actor = new["actor"].astype(np.intp)
        lane, serves, worker = (roles[:, field].take(actor) for field in (0, 1, 3))  # of its Role
        iterator = self._iterators(new)
        # A worker that iterates over a loader of its own is main to that one.
        is_main = (lane == Lane.MAIN) | (serves != iterator)
        lane[is_main], worker[is_main] = Lane.MAIN, -1
        for key, members in _alike(iterator, lane, worker):
            yield key, first + members

    def _by_epoch(self, new: np.ndarray, first: int) -> Stream[tuple[int, MadeHops]]:
        hops = _HOP_OF.take(new["kind"] * np.intp(256) + new["queue"])
        of_tasks = np.flatnonzero((hops >= 0) & (new["task"] >= 0))
        epoch_ids, which = _different(_epoch_ids(new[of_tasks]))
        for (number,), members in _alike(which):
            at = of_tasks[members]
            yield epoch_ids[number], (new["task"][at], hops[at], first + at)


def _epoch_ids(events: np.ndarray) -> np.ndarray:
    return events.view(np.int64)[1 :: fmt.RECORD.size // 8]  # its two halves are the fields epoch and loader


def _different(numbers: np.ndarray) -> tuple[list[int], np.ndarray]:
    """The distinct numbers in the order in which they first occur; and which of them each number is."""
    if len(numbers) == 0 or (numbers == numbers[0]).all():  # the usual case, and quick to check
        return numbers[:1].tolist(), np.zeros(len(numbers), np.int64)
    different, first, which = np.unique(numbers, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return different[order].tolist(), np.argsort(order)[which]


def _alike(*columns: np.ndarray) -> Stream[tuple[tuple[int, ...], np.ndarray]]:
    """For each distinct row of these columns: the row, and its indices, ascending."""
    if len(columns[0]) == 0:
        return
    rows, width = np.zeros(len(columns[0]), np.int64), 1  # each row as one number, in the order of the rows
    for column in columns:
        least, span = int(column.min()), int(column.max()) - int(column.min()) + 1
        rows, width = rows * span + (column - least), width * span
    # numpy sorts a million numbers of 16 bits in some 10 ms (a radix sort), longer ones in 100.
    order = np.argsort(rows.astype(np.uint16) if width <= 1 << 16 else rows, kind="stable")
    rows = rows[order]
    for members in np.split(order, 1 + np.flatnonzero(rows[1:] != rows[:-1])):
        yield tuple(int(column[members[0]]) for column in columns), members
