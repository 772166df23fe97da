"""When something enters a queue or the reorder buffer, and when it leaves: positions of events."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from minidl.events import Kind, Queue
from tracing.trace.event_index import NEVER, Iterator

if TYPE_CHECKING:
    from tracing.trace.trace import Trace


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
    for epoch_id in iterator.epoch_ids:
        if epoch_id in trace.index.epochs:
            stored, *ways_out = trace.index.epochs[epoch_id].hops("stored", "released", "yielded", "skipped")
            later = begins[trace.events["epoch"][begins] > epoch_id & 0xFFFFFFFF]
            leave = np.minimum(np.minimum.reduce(ways_out), later[0] if len(later) else NEVER)
            parts.append((stored[stored != NEVER], leave[stored != NEVER]))
    enter, leave = (np.concatenate(column) for column in zip(*parts, strict=True))
    return enter, leave


def closing(trace: Trace, iterator: Iterator) -> int:
    """The event from which on its queues are gone; -1: they still exist."""
    return trace.index.group(iterator.number, Kind.SHUTDOWN_END).last(len(trace))


def stepped(enter: np.ndarray, leave: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """When something entered or left, ascending, and how much was there from then on."""
    moves = np.concatenate([enter, leave])
    order = np.argsort(moves, kind="stable")  # what enters and leaves in the same ns enters first
    return moves[order], np.cumsum(np.repeat([1, -1], [len(enter), len(leave)])[order])
