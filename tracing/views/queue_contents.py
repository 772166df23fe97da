"""When something is in a queue or the reorder buffer, which batches these are, and how deep it is.

Legend
    stay        task 3 is in data_queue from 14.9 to 17.0 ms
    depth       2                                            stays that have begun and not ended
    box         task 3, row 0, 15.2 to 17.0 ms               part of a stay: while it keeps its place in the queue
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from minidl.events import Kind, Queue
from tracing.trace.event_index import NEVER, Iterator
from tracing.trace.trace import Trace
from tracing.trace.words import REORDER_BUFFER

FOREVER = np.iinfo(np.int64).max  # ns; has not left


@dataclass
class Stays:
    """What was in a queue, and when. Row i entered at enter[i] and left at leave[i] (ns)."""

    name: str
    enter: np.ndarray
    leave: np.ndarray  # FOREVER: still there
    batch: np.ndarray  # epoch << 32 | task; negative for a message that carries no task

    def depth(self) -> tuple[np.ndarray, np.ndarray]:
        """(times, depths): from times[i] to times[i + 1] the queue held depths[i] messages. Ascending; (n,) each."""
        moves = np.concatenate([self.enter, self.leave[self.leave != FOREVER]])
        change = np.where(np.arange(len(moves)) < len(self.enter), 1, -1)
        order = np.argsort(moves, kind="stable")  # what enters and leaves in the same ns enters first
        return moves[order], np.cumsum(change[order])

    def depth_within(self, begin: int, end: int) -> tuple[np.ndarray, np.ndarray]:
        """The same between two times: the first of `times` is `begin`, the last is `end`."""
        times, depths = self.depth()
        first, after = np.searchsorted(times, [begin, end], "right")
        depths = np.append(0, depths)  # depths[i] holds from times[i - 1] on
        times = np.concatenate([[begin], times[first:after], [end]])
        return times, np.append(depths[first : after + 1], depths[after])

    def within(self, begin: int, end: int) -> Stays:
        seen = (self.leave > begin) & (self.enter < end)
        return Stays(self.name, self.enter[seen], self.leave[seen], self.batch[seen])

    def boxes(self) -> np.ndarray:
        """The place of each message while it is in the queue: rows (begin, end, place, batch). Place 0 leaves next. A
        message that moves up begins a new box."""
        order = np.argsort(self.enter, kind="stable")
        enter, leave, batch = self.enter[order], self.leave[order], self.batch[order]
        found = []
        # Those that entered before it and are still there are ahead of it: when one leaves, it moves up.
        for i in range(len(enter)):
            before = leave[:i]
            moves = np.sort(before[(before > enter[i]) & (before < leave[i])])
            place = int(np.count_nonzero(before > enter[i]))
            bounds = np.unique([enter[i], *moves, leave[i]])
            for begin, end in itertools.pairwise(bounds):
                found.append((begin, end, place - np.count_nonzero(moves <= begin), batch[i]))
        return np.array(found, np.int64).reshape(-1, 4)


def binned(times: np.ndarray, depths: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """A stepped curve summed up: (3, n) lowest, mean and highest depth in each of the n bins between `edges`."""
    until = np.append(times, max([edges[-1], *times[-1:]]))
    filled = np.append(0, np.cumsum(depths * np.diff(until)))  # the integral of the curve
    depths = np.append(0, depths)  # before the first change
    at = np.searchsorted(times, edges, "right")  # depths[at] holds at an edge
    low, high = depths[at[:-1]].copy(), depths[at[:-1]].copy()
    for bin_ in np.flatnonzero(at[1:] > at[:-1]):
        inside = depths[at[bin_] : at[bin_ + 1] + 1]
        low[bin_], high[bin_] = inside.min(), inside.max()
    return np.stack([low, np.diff(np.interp(edges, until, filled)) / np.diff(edges), high])


def queue_stays(trace: Trace, iterators: list[Iterator], queue: Queue, workers: list[int], name: str) -> Stays:
    """`workers`: whose queues, taken together."""
    return _stays(trace, name, [(each, *fifo(trace, each, queue, worker)) for each in iterators for worker in workers])


def reorder_stays(trace: Trace, iterators: list[Iterator]) -> Stays:
    return _stays(trace, REORDER_BUFFER, [(each, *came_early(trace, each)) for each in iterators])


def _stays(trace: Trace, name: str, parts: list[tuple[Iterator, np.ndarray, np.ndarray]]) -> Stays:
    """What entered and left at these events. What is left at the end of an iterator is gone with its queues."""
    time, leaves = trace.events["time"], []
    for iterator, _, leave in parts:
        leaves.append(np.where(leave != NEVER, time[np.where(leave != NEVER, leave, 0)], closed_at(trace, iterator)))
    entered = trace.events[np.concatenate([enter for _, enter, _ in parts])]
    return Stays(name, entered["time"], np.concatenate(leaves), batch_of(entered["epoch"], entered["task"]))


def batch_of(epochs: np.ndarray, tasks: np.ndarray) -> np.ndarray:
    """The batches that these tasks are; a negative task, which is none, stays as it is."""
    return np.where(tasks >= 0, epochs.astype(np.int64) << 32 | tasks, tasks)


# ---- by positions of events


def fifo(trace: Trace, iterator: Iterator, queue: Queue, worker: int) -> tuple[np.ndarray, np.ndarray]:
    """The put of each message, and its got, NEVER if there is none. First in, first out: the first message put is the
    first one got."""
    puts, gots = (trace.index.group(iterator.number, kind, queue, worker).array for kind in (Kind.PUT, Kind.GOT))
    return puts, np.append(gots, np.full(len(puts), NEVER))[: len(puts)]


def came_early(trace: Trace, iterator: Iterator) -> tuple[np.ndarray, np.ndarray]:
    """When each batch that came early was stored, and its turn came, NEVER if it did not. What an abandoned epoch
    leaves is dropped when the next one begins."""
    begins = trace.index.group(iterator.number, Kind.EPOCH_BEGIN).array
    parts = [(np.empty(0, np.int64), np.empty(0, np.int64))]
    for epoch_id in (iterator.loader << 32 | epoch for epoch in iterator.epochs):
        if epoch_id in trace.index.epochs:
            stored, *ways_out = trace.index.epochs[epoch_id].hops("stored", "released", "yielded", "skipped")
            later = begins[trace.events["epoch"][begins] > epoch_id & 0xFFFFFFFF]
            leave = np.minimum(np.minimum.reduce(ways_out), later[0] if len(later) else NEVER)
            parts.append((stored[stored != NEVER], leave[stored != NEVER]))
    enter, leave = (np.concatenate(column) for column in zip(*parts, strict=True))
    return enter, leave


def closed_at(trace: Trace, iterator: Iterator) -> int:
    """When its queues are gone (ns); FOREVER: they still exist."""
    closing = trace.index.group(iterator.number, Kind.SHUTDOWN_END).array
    return int(trace.events["time"][closing[-1]]) if len(closing) else FOREVER
