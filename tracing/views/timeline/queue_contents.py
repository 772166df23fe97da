"""How deep each queue and the reorder buffer are, and which batches are in them: numbers for queue_strips.

Legend
    stay        task 3 is in data_queue from 14.9 to 17.0 ms
    depth       2                                            stays that have begun and not ended
    box         task 3, row 0, 15.2 to 17.0 ms               part of a stay: while it keeps its place in the queue
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from minidl.events import Queue
from tracing.trace.event_index import NEVER, Iterator
from tracing.trace.words import REORDER_BUFFER
from tracing.views.queue_moves import came_early, closing, fifo, stepped
from tracing.views.timeline.spans import batch_of

if TYPE_CHECKING:
    from tracing.trace.trace import Trace

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
        return stepped(self.enter, self.leave[self.leave != FOREVER])

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
    if len(times) == 0:
        return np.zeros((3, len(edges) - 1))
    until = np.append(times, max(times[-1], edges[-1]))
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
        closed = closing(trace, iterator)
        still_there = int(time[closed]) if closed >= 0 else FOREVER
        leaves.append(np.where(leave != NEVER, time[np.where(leave != NEVER, leave, 0)], still_there))
    entered = trace.events[np.concatenate([enter for _, enter, _ in parts])]
    return Stays(name, entered["time"], np.concatenate(leaves), batch_of(entered["epoch"], entered["task"]))
