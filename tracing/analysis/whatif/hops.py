"""How long messages take from process to process, for tracing.analysis.whatif.durations: s, one for each batch."""

from __future__ import annotations

import numpy as np

from minidl.events import NO_WORKER, Kind, Queue
from tracing.analysis.measure.measures import Measures, epoch_ids

SECOND = 1e9  # ns
ENOUGH = 0.05  # a smaller share of batches is too few


def on_their_way(measures: Measures, rows: np.ndarray, queue: Queue) -> np.ndarray:
    """From the put of each message until its reader has it. How long a message is in its pipe shows only if the reader
    waited for it (and when it is put there is not recorded by torch's feeders): the others are taken to be as these."""
    name = queue.name.lower()
    put, arrived = rows[f"{name}_put"], _arrived(rows, queue)
    return _filled((arrived - put) / SECOND, (put >= 0) & (arrived >= 0) & _waited(measures, rows, queue, arrived))


def of_batches(measures: Measures, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """From a worker's put of each batch until main has read it, and main's unpickling. If main hardly ever waited, what
    it did wait for were the first messages: then they are at most as long as unpickling."""
    begin, end = rows["result_arrived"], rows["result_got"]
    unpickling = _filled((end - begin) / SECOND, (begin >= 0) & (end >= 0))
    found = on_their_way(measures, rows, Queue.RESULT)
    waited = _waited(measures, rows, Queue.RESULT, _arrived(rows, Queue.RESULT))
    return found if waited.sum() >= ENOUGH * len(rows) else np.minimum(found, unpickling.mean()), unpickling


def _filled(lengths: np.ndarray, known: np.ndarray) -> np.ndarray:
    return np.where(known, lengths, np.resize(lengths[known], len(lengths))) if known.any() else np.zeros(len(lengths))


def _arrived(rows: np.ndarray, queue: Queue) -> np.ndarray:
    """When the reader of a queue had each message (ns); -1: not known."""
    name = queue.name.lower()
    return np.where(rows[f"{name}_arrived"] >= 0, rows[f"{name}_arrived"], rows[f"{name}_got"])


def _waited(measures: Measures, rows: np.ndarray, queue: Queue, arrived: np.ndarray) -> np.ndarray:
    """Whether the consumer was waiting for each message when it was put, and not since the epoch before: bool."""
    waited, put = np.zeros(len(rows), bool), rows[f"{queue.name.lower()}_put"]
    epochs = np.unique(epoch_ids(rows), return_inverse=True)[1]
    begins = np.full(len(rows), np.iinfo(np.int64).max)
    np.minimum.at(begins, epochs, put)
    for consumer in range(measures.num_workers) if queue is Queue.INDEX else [NO_WORKER]:
        groups = [
            measures.trace.index.group(each.number, Kind.WAIT, queue, consumer).array for each in measures.iterators
        ]
        waits = np.sort(measures.time[np.concatenate(groups)])
        mine = np.flatnonzero((arrived >= 0) & ((rows["worker"] == consumer) | (consumer == NO_WORKER)))
        mine = mine[np.argsort(arrived[mine])]
        since = np.append(-1, waits)[np.searchsorted(waits, arrived[mine])]
        before = np.append(-1, arrived[mine])[:-1]
        waited[mine] = (since > np.maximum(before, begins[epochs[mine]])) & (since <= put[mine])
    return waited
