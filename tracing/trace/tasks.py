"""`trace.tasks`: a row per batch, with the time of every hop on its way."""

from __future__ import annotations

import numpy as np

from minidl.events import Kind, Queue
from tracing.trace.event_index import HOP, HOPS, NEVER, Epoch, Index

# Every time is in ns on the clock of the events; -1: it has not happened, or was not recorded.
OF_TASK = ("loader", "epoch", "task", "worker")  # worker: -1 without workers, or not yet sent
OTHERS = (
    "index_arrived", "result_arrived",
    "asked",  # when the training loop asked for the batch after this one: the end of its training step
    # CPU time (ns) of the thread that did it, and size (bytes) of the pickled message; -1: not known.
    "fetch_cpu", "collate_cpu", "pin_cpu", "index_bytes", "result_bytes",
    "slot", "slot_bytes",  # the one that was granted, -1: none; bytes put there, or into memory of its own
)  # fmt: skip
FIELDS = (*OF_TASK, *HOPS, *OTHERS)  # of a hop: its time
TASK_DTYPE = np.dtype([(name, "<i8") for name in FIELDS])
_HOPS = slice(len(OF_TASK), len(OF_TASK) + len(HOPS))  # the columns of the hops
_VALUES = {
    "index_bytes": "index_sent",
    "result_bytes": "result_sent",
    "slot": "slot_granted",
    "slot_bytes": "slot_filled",
}
_DIFFERENCES = {
    "fetch_cpu": ("fetch_begin", "fetch_end"),
    "collate_cpu": ("collate_begin", "collate_end"),
    "pin_cpu": ("pin_begin", "pin_end"),
}


class TaskTable:
    """The rows of `trace.tasks`, epoch by epoch. Only rows that have changed are filled again."""

    def __init__(self) -> None:
        self._rows: dict[int, np.ndarray] = {}  # epoch_id -> rows; longer than the epoch, to grow into
        self._all = np.empty(0, TASK_DTYPE)
        self._length = 0  # of all epochs together when `_all` was made

    def up_to_date(self, events: np.ndarray, index: Index) -> np.ndarray:
        """All rows, in the order in which the epochs began; a new array whenever something has changed."""
        changed = [epoch_id for epoch_id, epoch in index.epochs.items() if epoch.changed < epoch.length]
        for epoch_id in changed:
            self._update(events, index, epoch_id)
        length = sum(epoch.length for epoch in index.epochs.values())
        if changed or self._length != length:
            parts = [self._known(epoch_id, epoch) for epoch_id, epoch in index.epochs.items() if epoch.length]
            self._all = np.concatenate(parts) if parts else np.empty(0, TASK_DTYPE)
            self._length = length
        return self._all

    def _known(self, epoch_id: int, epoch: Epoch) -> np.ndarray:
        """The rows of tasks that have an event. Ids are dense, unless the trace is damaged or lacks events."""
        rows = self._rows[epoch_id][: epoch.length]
        has_event = (epoch.table[:, : epoch.length] != NEVER).any(axis=0)
        return rows if has_event.all() else rows[has_event]

    def _update(self, events: np.ndarray, index: Index, epoch_id: int) -> None:
        epoch = index.epochs[epoch_id]
        rows = self._rows.get(epoch_id, np.empty(0, TASK_DTYPE))
        if len(rows) < epoch.length:
            longer = np.empty(2 * epoch.length, TASK_DTYPE)
            longer[: len(rows)] = rows
            rows = self._rows[epoch_id] = longer
        first = epoch.changed
        new = rows[first : epoch.length]
        _fill(new, epoch, first, events)
        _fill_arrivals(new, epoch, first, events, index, index.iterator_of[epoch_id])
        open_rows = _fill_asked(new, epoch, first, events, index, index.iterator_of[epoch_id])
        epoch.changed = first + int(open_rows[0]) if len(open_rows) else epoch.length


def _fill(rows: np.ndarray, epoch: Epoch, first: int, events: np.ndarray) -> None:
    """What the tasks' own events hold."""
    rows["loader"], rows["epoch"] = epoch.loader, epoch.epoch
    rows["task"] = np.arange(first, epoch.length)
    table = epoch.table[:, first : epoch.length]
    happened = table != NEVER
    table = np.where(happened, table, 0)
    times = np.where(happened, events["time"][table], -1)
    values = events["value"]
    rows.view("<i8").reshape(len(rows), len(FIELDS))[:, _HOPS] = times.T
    for name, hop_name in _VALUES.items():
        hop = HOP[hop_name]
        rows[name] = np.where(happened[hop], values[table[hop]], -1)
    for name, (begins, ends) in _DIFFERENCES.items():
        begin, end = HOP[begins], HOP[ends]
        used = values[table[end]] - values[table[begin]]
        rows[name] = np.where(happened[begin] & happened[end], used, -1)
    rows["worker"] = -1
    for hop_name in ("result_put", "fetch_begin", "index_put", "dispatched"):  # the last one that is known counts
        there = happened[HOP[hop_name]]
        rows["worker"][there] = events["worker"][table[HOP[hop_name], there]]
    rows["index_arrived"] = rows["result_arrived"] = rows["asked"] = -1


def _fill_arrivals(rows: np.ndarray, epoch: Epoch, first: int, events: np.ndarray, index: Index, iterator: int) -> None:
    """ARRIVED has no task yet, but the GOT that follows it on that queue has."""
    for queue, name in ((Queue.INDEX, "index"), (Queue.RESULT, "result")):
        got = epoch.hops(f"{name}_got")[0][first:]
        for worker in np.unique(rows["worker"]).tolist():
            arrived = index.group(iterator, Kind.ARRIVED, queue, worker).array
            if len(arrived) == 0:  # torch's workers share a pipe: whose message it is shows once it is unpickled
                arrived = index.group(iterator, Kind.ARRIVED, queue).array
            of_worker = np.flatnonzero((got != NEVER) & (rows["worker"] == worker))
            if len(arrived) == 0 or len(of_worker) == 0:
                continue
            rank = arrived.searchsorted(got[of_worker]) - 1
            before = np.where(rank >= 0, events["time"][arrived[rank]], -1)
            rows[f"{name}_arrived"][of_worker] = before
            # torch's feeders do not record what they send: its size is what has arrived.
            sizes = np.where(rank >= 0, events["value"][arrived[rank]], -1)
            rows[f"{name}_bytes"][of_worker] = np.maximum(rows[f"{name}_bytes"][of_worker], sizes)


def _fill_asked(
    rows: np.ndarray, epoch: Epoch, first: int, events: np.ndarray, index: Index, iterator: int
) -> np.ndarray:
    """The first ASKED after the YIELDED. Returns the rows that have none yet: ASKED carries no task, so they must be
    looked at again."""
    yielded = epoch.hops("yielded")[0][first:]
    asked = index.group(iterator, Kind.ASKED).array
    rank = asked.searchsorted(yielded)
    there = np.flatnonzero((yielded != NEVER) & (rank < len(asked)))
    after = events[asked[rank[there]]]
    # The last batch of an epoch that was left half way has none: a persistent iterator is asked in the next epoch.
    rows["asked"][there] = np.where(after["epoch"] == epoch.epoch, after["time"], -1)
    return np.flatnonzero((yielded != NEVER) & (rank == len(asked)))
