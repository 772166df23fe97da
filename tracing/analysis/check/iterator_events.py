"""The events of one iterator of a trace, as tracing.analysis.check.invariants looks at them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from minidl.events import Kind, Queue
from tracing.trace.event_index import Lane
from tracing.trace.positions import Positions

if TYPE_CHECKING:
    from tracing.trace.trace import Trace


class IteratorEvents:
    """The events of one iterator. All methods return positions of events in `trace.events`, ascending."""

    def __init__(self, trace: Trace, number: int) -> None:
        self.events, self.index = trace.events, trace.index
        self.number, self._end, self._iterator = number, trace.complete, trace.index.iterators[number]
        self.workers = range(self._iterator.num_workers)
        self.epoch_ids = self._iterator.epoch_ids
        config = trace.config(number)
        self.in_order: bool = config.get("in_order", True)
        self.prefetch_factor: int | None = config.get("prefetch_factor")

    def _complete(self, positions: Positions) -> np.ndarray:
        return positions.array[: positions.count(self._end - 1)]

    def all(self, kind: Kind, queue: Queue = Queue.NONE, worker: int = -1) -> np.ndarray:
        return self._complete(self.index.group(self.number, kind, queue, worker))

    def of_workers(self, kind: Kind) -> np.ndarray:
        """The events of this kind of every worker."""
        return np.sort(np.concatenate([np.empty(0, np.int64), *(self.all(kind, Queue.NONE, w) for w in self.workers)]))

    def of_thread(self, lane: Lane, worker: int = -1) -> np.ndarray:
        return self._complete(self.index.lane(self.number, lane, worker))

    def epochs(self, *kinds: Kind) -> Iterator[tuple[int, list[np.ndarray]]]:
        """For each epoch its epoch_id, and its events of each kind."""
        groups = [self.all(kind) for kind in kinds]
        for epoch_id in self.epoch_ids:
            yield epoch_id, [self.where(group, epoch=epoch_id & 0xFFFFFFFF) for group in groups]

    def where(self, positions: np.ndarray, **fields: int) -> np.ndarray:
        """Those of these events whose fields have these values."""
        for name, value in fields.items():
            positions = positions[self.events[name][positions] == value]
        return positions

    # ---- tasks

    def task(self, positions: np.ndarray | int) -> np.ndarray:
        return self.events["task"][positions]

    def hop(self, name: str, position: int) -> int:
        """Where the task of this event makes that hop: NEVER if it does not."""
        event = self.events[position]
        tasks = self.index.epochs[int(event["loader"]) << 32 | int(event["epoch"])]
        return int(tasks.hops(name)[0][event["task"]])

    def without(self, positions: np.ndarray, others: np.ndarray) -> np.ndarray:
        """Those of these events of one epoch whose task has none among the others."""
        return positions[~np.isin(self.task(positions), self.task(others))]

    def repeated(self, positions: np.ndarray) -> Iterator[tuple[int, list[int]]]:
        """The tasks that have several of these events of one epoch, and those events."""
        tasks, counts = np.unique(self.task(positions), return_counts=True)
        for task in tasks[counts > 1].tolist():
            yield task, positions[self.task(positions) == task].tolist()
