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


def task_table(events: np.ndarray, index: Index) -> np.ndarray:
    """All rows, in the order in which the epochs began."""
    return np.concatenate([np.empty(0, TASK_DTYPE), *(_rows(epoch_id, events, index) for epoch_id in index.epochs)])


def _rows(epoch_id: int, events: np.ndarray, index: Index) -> np.ndarray:
    """Those of an epoch's tasks that have an event. (Ids are dense, unless the trace is damaged or lacks events.)"""
    epoch, iterator = index.epochs[epoch_id], index.iterator_of[epoch_id]
    rows = np.empty(epoch.length, TASK_DTYPE)
    happened = epoch.table[:, : epoch.length] != NEVER
    _fill(rows, epoch, events, happened)
    _fill_arrivals(rows, epoch, events, index, iterator)
    _fill_asked(rows, epoch, events, index, iterator)
    return rows[happened.any(axis=0)]


def _fill(rows: np.ndarray, epoch: Epoch, events: np.ndarray, happened: np.ndarray) -> None:
    """What the tasks' own events hold; `happened`: which hops of which tasks have."""
    rows["loader"], rows["epoch"] = epoch.loader, epoch.epoch
    rows["task"] = np.arange(epoch.length)
    table = np.where(happened, epoch.table[:, : epoch.length], 0)
    times = np.where(happened, events["time"][table], -1)
    values = events["value"]
    rows.view("<i8").reshape(len(rows), len(FIELDS))[:, _HOPS] = times.T
    for name, hop_name in _VALUES.items():
        hop = HOP[hop_name]
        rows[name] = np.where(happened[hop], values[table[hop]], -1)
    for name in ("fetch", "collate", "pin"):
        begin, end = HOP[f"{name}_begin"], HOP[f"{name}_end"]
        used = values[table[end]] - values[table[begin]]
        rows[f"{name}_cpu"] = np.where(happened[begin] & happened[end], used, -1)
    rows["worker"] = -1
    for hop_name in ("result_put", "fetch_begin", "index_put", "dispatched"):  # the last one that is known counts
        there = happened[HOP[hop_name]]
        rows["worker"][there] = events["worker"][table[HOP[hop_name], there]]
    rows["index_arrived"] = rows["result_arrived"] = rows["asked"] = -1


def _fill_arrivals(rows: np.ndarray, epoch: Epoch, events: np.ndarray, index: Index, iterator: int) -> None:
    """ARRIVED has no task yet, but the GOT that follows it on that queue has."""
    for queue, name in ((Queue.INDEX, "index"), (Queue.RESULT, "result")):
        (got,) = epoch.hops(f"{name}_got")
        for worker in np.unique(rows["worker"]).tolist():
            arrived = index.group(iterator, Kind.ARRIVED, queue, worker).array
            if len(arrived) == 0:  # torch's workers share a pipe: whose message it is shows once it is unpickled
                arrived = index.group(iterator, Kind.ARRIVED, queue).array
            of_worker = np.flatnonzero((got != NEVER) & (rows["worker"] == worker))
            if len(arrived) == 0 or len(of_worker) == 0:
                continue
            rank = arrived.searchsorted(got[of_worker]) - 1
            rows[f"{name}_arrived"][of_worker] = np.where(rank >= 0, events["time"][arrived[rank]], -1)
            # torch's feeders do not record what they send: its size is what has arrived.
            sizes = np.where(rank >= 0, events["value"][arrived[rank]], -1)
            rows[f"{name}_bytes"][of_worker] = np.maximum(rows[f"{name}_bytes"][of_worker], sizes)


def _fill_asked(rows: np.ndarray, epoch: Epoch, events: np.ndarray, index: Index, iterator: int) -> None:
    """The first ASKED after the YIELDED."""
    (yielded,), asked = epoch.hops("yielded"), index.group(iterator, Kind.ASKED).array
    rank = asked.searchsorted(yielded)
    there = np.flatnonzero((yielded != NEVER) & (rank < len(asked)))
    after = events[asked[rank[there]]]
    # The last batch of an epoch that was left half way has none: a persistent iterator is asked in the next epoch.
    rows["asked"][there] = np.where(after["epoch"] == epoch.epoch, after["time"], -1)
