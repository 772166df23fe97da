"""One iterator of a trace, as the invariants look at it: see tracing.analysis.check.invariants."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from minidl.events import Kind, Queue
from tracing.trace.event_index import Lane, Positions

if TYPE_CHECKING:
    from tracing.trace.trace import Trace


class Part:
    """What one iterator said, for the invariants to look at."""

    def __init__(self, trace: Trace, number: int) -> None:
        self.events, self.index, self.end = trace.events, trace.index, trace.complete
        self.iterator = trace.index.iterators[number]
        self.number, self.workers = number, range(self.iterator.num_workers)
        config = trace.config(number)
        self.in_order: bool = config.get("in_order", True)
        self.prefetch_factor: int | None = config.get("prefetch_factor")

    def _complete(self, positions: Positions) -> np.ndarray:
        return positions.array[: positions.count(self.end - 1)]

    def all(self, kind: Kind, queue: Queue = Queue.NONE, worker: int = -1) -> np.ndarray:
        """The positions of such events."""
        return self._complete(self.index.group(self.number, kind, queue, worker))

    def lane(self, lane: Lane, worker: int = -1) -> np.ndarray:
        """The positions of what one thread said."""
        return self._complete(self.index.lane(self.number, lane, worker))

    def of_workers(self, kind: Kind) -> np.ndarray:
        """The positions of such events, of every worker, ascending."""
        return np.sort(np.concatenate([np.empty(0, np.int64), *(self.all(kind, Queue.NONE, w) for w in self.workers)]))

    def task(self, positions: np.ndarray) -> np.ndarray:
        return self.events["task"][positions]

    def epochs(self, *kinds: Kind) -> Iterator[tuple[int, list[np.ndarray]]]:
        """For each epoch its epoch_id, and the positions of its events of each kind."""
        groups = [self.all(kind) for kind in kinds]
        for epoch, epoch_id in zip(self.iterator.epochs, self.iterator.epoch_ids, strict=True):
            yield epoch_id, [group[self.events["epoch"][group] == epoch] for group in groups]

    def twice(self, positions: np.ndarray) -> Iterator[tuple[int, list[int]]]:
        """The tasks that several of these events of one epoch concern, and those events."""
        tasks, counts = np.unique(self.task(positions), return_counts=True)
        for task in tasks[counts > 1].tolist():
            yield task, positions[self.task(positions) == task].tolist()
