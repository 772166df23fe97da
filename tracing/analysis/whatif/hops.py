"""How long messages take from process to process, for tracing.analysis.whatif.durations: s, one for each batch."""

from __future__ import annotations

import numpy as np

from minidl.events import NO_WORKER, Kind, Queue
from tracing.analysis.measure.measures import Measures

SECOND = 1e9  # ns
ENOUGH = 0.05  # a smaller share of batches is too few


def on_their_way(measures: Measures, rows: np.ndarray, queue: Queue) -> np.ndarray:
    """From the put of each message until its reader has it, if the reader waits: as recorded up to the pipe, and as the
    quickest from there. torch's feeders do not record when a message is in the pipe: with them, only messages whose
    reader did wait count. A time that is not known is one that is."""
    name = queue.name.lower()
    put, sent, arrived = rows[f"{name}_put"], rows[f"{name}_sent"], _arrived(rows, queue)
    known = (put >= 0) & (sent >= 0)
    if known.any():
        return _filled((sent - put) / SECOND + _in_pipe(rows), known)
    return _filled((arrived - put) / SECOND, (put >= 0) & (arrived >= 0) & _waited(measures, rows, queue, arrived))


def of_batches(measures: Measures, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """From a worker's put of each batch until main has read it, and main's unpickling. If main hardly ever waited, what
    it did wait for were the first messages: then they are at most as long as unpickling."""
    begin, end = rows["result_arrived"], rows["result_got"]
    unpickling = _filled((end - begin) / SECOND, (begin >= 0) & (end >= 0))
    found = on_their_way(measures, rows, Queue.RESULT)
    waited = (rows["result_sent"] >= 0) | _waited(measures, rows, Queue.RESULT, _arrived(rows, Queue.RESULT))
    return found if waited.sum() >= ENOUGH * len(rows) else np.minimum(found, unpickling.mean()), unpickling


def _filled(lengths: np.ndarray, known: np.ndarray) -> np.ndarray:
    return np.where(known, lengths, np.resize(lengths[known], len(lengths))) if known.any() else np.zeros(len(lengths))


def _arrived(rows: np.ndarray, queue: Queue) -> np.ndarray:
    """When the reader of a queue had each message (ns); -1: not known."""
    name = queue.name.lower()
    return np.where(rows[f"{name}_arrived"] >= 0, rows[f"{name}_arrived"], rows[f"{name}_got"])


def _in_pipe(rows: np.ndarray) -> float:
    """The least time that a message of either queue was in its pipe (s). A queue whose reader never waits does not show
    how quick a pipe is; but if workers never wait for tasks, main waits for batches, and the other way round."""
    found = []
    for queue in (Queue.INDEX, Queue.RESULT):
        sent, arrived = rows[f"{queue.name.lower()}_sent"], _arrived(rows, queue)
        found.append((arrived - sent)[(sent >= 0) & (arrived >= 0)])
    lengths = np.concatenate(found)
    return max(0.0, float(lengths.min())) / SECOND if len(lengths) else 0.0


def _waited(measures: Measures, rows: np.ndarray, queue: Queue, arrived: np.ndarray) -> np.ndarray:
    """Whether the consumer was waiting for each message when it was put: bool."""
    waited, put = np.zeros(len(rows), bool), rows[f"{queue.name.lower()}_put"]
    for consumer in range(measures.num_workers) if queue is Queue.INDEX else [NO_WORKER]:
        groups = [
            measures.trace.index.group(each.number, Kind.WAIT, queue, consumer).array for each in measures.iterators
        ]
        waits = np.sort(measures.time[np.concatenate(groups)])
        mine = np.flatnonzero((arrived >= 0) & ((rows["worker"] == consumer) | (consumer == NO_WORKER)))
        mine = mine[np.argsort(arrived[mine])]
        since = np.append(-1, waits)[np.searchsorted(waits, arrived[mine])]
        before = np.append(-1, arrived[mine])[:-1]
        waited[mine] = (since > before) & (since <= put[mine])
    return waited
