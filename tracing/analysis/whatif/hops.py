"""How long messages take from process to process, for tracing.analysis.whatif.durations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from minidl.events import NO_WORKER, Kind, Queue
from tracing.analysis.measure.measures import Measures

SECOND = 1e9  # ns
FREE, ENOUGH = 0.2, 0.05  # a process that computes for a smaller share is free; a smaller share of batches is too few
QUICKEST = 10  # per cent of many similar times: these count as not held up


@dataclass(frozen=True)
class HopTimes:
    """How long messages take for one hop (s). Arrays have one element per batch."""

    least: np.ndarray  # while the process that sends them does nothing else
    held_up: np.ndarray  # how much longer while it computes, and holds Python's lock

    def of(self, task: int) -> tuple[float, float]:
        return float(self.least[task]), float(self.held_up[task])

    def map(self, change: Callable[[np.ndarray], np.ndarray]) -> HopTimes:
        return HopTimes(change(self.least), change(self.held_up))


def _hop_times(lengths: np.ndarray, known: np.ndarray, busy: np.ndarray) -> HopTimes:
    """`busy` is the share of its way in which the sending process computed. If that never changed, the least time is
    what the quickest took. A time that is not known is one that is."""
    if not known.any():
        return HopTimes(np.zeros(len(lengths)), np.zeros(len(lengths)))
    free = known & (busy < FREE)
    if free.sum() < max(3, ENOUGH * known.sum()):
        least = np.full(len(lengths), np.percentile(lengths[known], QUICKEST))
        held_up = np.where(known, lengths, np.resize(lengths[known], len(lengths))) - least
        return HopTimes(least, np.maximum(0, held_up))
    least = np.where(free, lengths, np.resize(lengths[free], len(lengths)))
    held = known & ~free
    more = np.maximum(0, lengths - np.median(lengths[free]))
    return HopTimes(least, np.where(held, more, np.resize(more[held] if held.any() else 0.0, len(lengths))))


def from_put_to_reader(measures: Measures, rows: np.ndarray, queue: Queue) -> HopTimes:
    """From the put of a message until its reader has it, if the reader waits: as recorded up to the pipe, and as the
    quickest from there. torch's feeders do not record when a message is in the pipe: with them, only messages whose
    reader did wait count."""
    name = queue.name.lower()
    put, sent, arrived = rows[f"{name}_put"], rows[f"{name}_sent"], _arrived(rows, queue)
    known = (put >= 0) & (sent >= 0)
    if known.any():
        return _hop_times((sent - put) / SECOND + _in_pipe(rows), known, _busy(measures, rows, queue, put, sent))
    waited = (put >= 0) & (arrived >= 0) & _waited(measures, rows, queue, arrived)
    return _hop_times((arrived - put) / SECOND, waited, _busy(measures, rows, queue, put, arrived))


def unpickling_times(measures: Measures, rows: np.ndarray) -> HopTimes:
    """With slots main needs no help of the worker, so what that does meanwhile does not hold it up."""
    begin, end = rows["result_arrived"], rows["result_got"]
    known = (begin >= 0) & (end >= 0)
    if not measures.moves_as_torch and known.all():
        return HopTimes((end - begin) / SECOND, np.zeros(len(rows)))
    return _hop_times((end - begin) / SECOND, known, _busy(measures, rows, Queue.RESULT, begin, end))


def pickling_times(measures: Measures, rows: np.ndarray, unpickling: HopTimes) -> tuple[HopTimes, bool]:
    """And whether they are known. If main hardly ever waited, what it did wait for were the first messages: then they
    are at most as long as unpickling."""
    found = from_put_to_reader(measures, rows, Queue.RESULT)
    waited = (rows["result_sent"] >= 0) | _waited(measures, rows, Queue.RESULT, _arrived(rows, Queue.RESULT))
    if waited.sum() >= ENOUGH * len(rows):
        return found, True
    least, held_up = unpickling.least.mean(), unpickling.held_up.mean()
    return HopTimes(np.minimum(found.least, least), np.minimum(found.held_up, held_up)), False


def _busy(measures: Measures, rows: np.ndarray, queue: Queue, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    """The share of each of these times in which the main thread of the process that sends on this queue computed, 0 to
    1: main trained, or the worker made another batch."""
    if queue is Queue.INDEX:
        away = measures.away
        return _share_within(begin, end, away.begin, away.end)
    found = np.zeros(len(rows))
    for worker in np.unique(rows["worker"]).tolist():
        mine = rows["worker"] == worker
        making = np.sort(rows[mine], order="fetch_begin")
        found[mine] = _share_within(begin[mine], end[mine], making["fetch_begin"], making["collate_end"])
    return found


def _share_within(begin: np.ndarray, end: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
    """The share of each time from `begin` to `end` that is within one of these stretches, which do not overlap."""
    if not len(starts):
        return np.zeros(len(begin))
    edges = np.maximum.accumulate(np.column_stack([starts, stops]).ravel())
    passed = np.column_stack([np.append(0, np.cumsum(stops - starts)[:-1]), np.cumsum(stops - starts)]).ravel()
    within = np.interp(end, edges, passed) - np.interp(begin, edges, passed)
    return np.asarray(within / np.maximum(1, end - begin))


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
    return waited & (put >= _first_fetch(rows))  # a message to a worker that starts waits for that


def _first_fetch(rows: np.ndarray) -> np.ndarray:
    """When the worker of each batch began its first one of that epoch (ns)."""
    _, which = np.unique(np.column_stack([rows["epoch"], rows["worker"]]), axis=0, return_inverse=True)
    first = np.full(which.max() + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, which.ravel(), rows["fetch_begin"])
    return np.asarray(first[which.ravel()])
