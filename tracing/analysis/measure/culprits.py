"""Who or what is behind the waiting: one slow worker, workers that wait for each other, a line, a stage, the shares of
a stream.

Each function looks for one culprit, and returns None where the trace does not show it.

Legend
    look    Stack    where the threads of a process were at one moment (tracing.trace.stacks)
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from minidl.events import Kind, Queue
from tracing.analysis.measure.cores import worker_pids
from tracing.analysis.measure.measures import Measures
from tracing.trace.event_index import Iterator as IteratorInTrace
from tracing.trace.intervals import Intervals, depth
from tracing.trace.stacks import Line, Stack
from tracing.trace.thread_activity import MainTime
from tracing.trace.trace import Trace

SLOWER = 1.5  # times as long as the other workers: a slow one
FEWEST = 3  # batches of a worker, or looks at it, to judge it
MOST_OF_IT = 0.5  # a stage, a line or a lock that takes this share of making a batch is named
ONE_GOES_ON = 1.5  # workers, at most, that do not wait for a lock, of those at work: looks are a little off

# Where a thread is that waits for a lock which processes share: multiprocessing's, or a file's. (A thread's lock keeps
# no other worker waiting.)
_LOCK_FILE = re.compile(r"multiprocessing/synchronize\.py$|/filelock/")
_LOCK_CALL = re.compile(r"\b(lockf|flock)\(")


def _made(measures: Measures) -> np.ndarray:
    rows = measures.tasks
    return rows[(rows["worker"] >= 0) & (rows["fetch_begin"] >= 0) & (rows["collate_end"] >= 0)]


# ---- one slow worker


@dataclass
class SlowWorker:
    """One worker that takes much longer for a batch than the others."""

    worker: int
    its: Intervals  # the making of its batches
    others: Intervals

    @property
    def times(self) -> float:
        """How many times as long the median batch takes it."""
        return float(np.median(self.its.length) / max(1.0, float(np.median(self.others.length))))


def slow_worker(measures: Measures) -> SlowWorker | None:
    """The slowest worker, if there is one that is slower than all others."""
    rows = _made(measures)
    length = rows["collate_end"] - rows["fetch_begin"]
    each = [length[rows["worker"] == worker] for worker in range(measures.num_workers)]
    if len(each) < 2 or min(map(len, each)) < FEWEST:
        return None
    medians = [float(np.median(of_one)) for of_one in each]
    slowest = int(np.argmax(medians))
    others = each[:slowest] + each[slowest + 1 :]
    # Most of its batches must be slower than most of the others': not only the middle one, by chance.
    apart = np.percentile(each[slowest], 25) > max(np.percentile(of, 75) for of in others)
    if medians[slowest] < SLOWER * max(map(float, map(np.median, others))) or not apart:
        return None
    of_it = rows["worker"] == slowest
    return SlowWorker(
        slowest, *(measures.between(rows[part], "fetch_begin", "collate_end") for part in (of_it, ~of_it))
    )


def waited_for(measures: Measures, worker: int) -> int:
    """How long main waited for batches that this worker was making (ns)."""
    begin, made = measures.awaited["made"]
    return int((made - begin)[measures.requests[0]["worker"] == worker].sum())


# ---- in which lines they are


def looks(measures: Measures) -> list[Stack]:
    """The looks at the workers while they made batches; without workers, at main while it did."""
    making = {pid: made for worker, made in enumerate(measures.made) for pid in worker_pids(measures, worker)}
    if not measures.num_workers:
        making = {measures.main_pid: measures.main_in(MainTime.LOADING)}
    time = {pid: np.array([each.time for each in measures.stacks if each.pid == pid], np.int64) for pid in making}
    inside = {(pid, at) for pid, made in making.items() for at in time[pid][depth(made.begin, made.end, time[pid]) > 0]}
    return [each for each in measures.stacks if (each.pid, each.time) in inside]


def seen_at(measures: Measures) -> tuple[Line, int, int] | None:
    """The line of the program in which batches were most often seen being made, in how many looks, and of how many;
    None: it varies, or there are too few looks."""
    lines = [each.own_line() for each in looks(measures)]
    found = Counter(line for line in lines if line is not None).most_common(1)
    return (*found[0], len(lines)) if found and found[0][1] >= max(FEWEST, MOST_OF_IT * len(lines)) else None


# ---- workers that wait for each other


@dataclass
class Turns:
    """Workers that wait for each other: for a lock."""

    made: Intervals  # the making of all batches
    in_lock: int  # in how many looks they were seen waiting for a lock, ...
    looks: int  # ... of how many


def turns(measures: Measures) -> Turns | None:
    """Workers that were seen to wait for a lock: most of the time, or so often that only one of them goes on, on
    average."""
    rows = _made(measures)
    if measures.num_workers < 2 or len(rows) < FEWEST:
        return None
    made, seen = measures.between(rows, "fetch_begin", "collate_end"), looks(measures)
    waits = sum(_is_in_lock(each) for each in seen)
    at_work = made.total / max(1, measures.length(measures.grid.depth(made.begin, made.end) > 0))
    goes_on = (1 - waits / max(1, len(seen))) * at_work
    if waits < FEWEST or (waits < MOST_OF_IT * len(seen) and goes_on > ONE_GOES_ON):
        return None
    return Turns(made, waits, len(seen))


def _is_in_lock(look: Stack) -> bool:
    innermost = next(iter(look.threads.values()), [])[:1]
    return any(_LOCK_FILE.search(line.file) or _LOCK_CALL.search(line.source) for line in innermost)


# ---- what they make


def collating(measures: Measures) -> Intervals | None:
    """The collating of all batches, if that is most of making them."""
    collated = measures.between(measures.tasks, "collate_begin", "collate_end")
    made = int(measures.stage("fetch_begin", measures.made_at).sum())
    return collated if collated.total > MOST_OF_IT * made > 0 else None


def ended_streams(measures: Measures) -> Iterator[Intervals]:
    """For each worker of an iterable dataset: from the end of its stream to the end of the epoch."""
    for iterator in measures.iterators:
        for worker in range(iterator.num_workers):
            ends = measures.trace.index.group(iterator.number, Kind.STREAM_END, Queue.NONE, worker).array
            over = measures.trace.index.group(iterator.number, Kind.EPOCH_END).array
            at = np.minimum(np.searchsorted(over, ends), max(0, len(over) - 1))
            if len(ends) and len(over):
                yield measures.of_events(ends, np.maximum(ends, over[at]))


def contents(measures: Measures) -> dict[str, int] | None:
    """Of what a batch is made: {"tensors": 2, "bytes": 4096, "objects": 0}, as noted of a batch of the last epoch; None
    where that was not recorded, as of minidl's loader."""
    for iterator in measures.iterators[::-1]:
        for _, noted in _noted(measures.trace, iterator):
            if "tensors" in noted:
                return noted
    return None


def undivided(trace: Trace, iterator: IteratorInTrace) -> list[int]:
    """Where every worker of an iterable dataset began with the same samples, since each reads the whole stream: the
    positions of the events that show it, one for each worker; else none."""
    first: dict[int, tuple[Any, int]] = {}
    for position, noted in _noted(trace, iterator):
        event = trace.events[position]
        if "first" in noted:
            first.setdefault(int(event["worker"]), (noted["first"], position))
    same = iterator.num_workers > 1 and len(first) == iterator.num_workers
    if not same or len({digest for digest, _ in first.values()}) > 1:
        return []
    return sorted(position for _, position in first.values())


def _noted(trace: Trace, iterator: IteratorInTrace) -> Iterator[tuple[int, dict[str, Any]]]:
    """What was noted of batches, once in each worker and epoch, and where."""
    positions = trace.index.group(iterator.number, Kind.COLLATE_END).array
    for position in positions[trace.events["text"][positions] > 0].tolist():
        if isinstance(noted := trace.text(position), dict):  # else it is lost: the file is damaged
            yield position, noted
