"""Who or what is behind the waiting: one slow worker, workers that wait for each other, a stage, unequal shares.

Each function looks for one culprit, and returns None where the trace does not show it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from minidl.events import Kind, Queue
from tracing.analysis.measure import cpu
from tracing.analysis.measure.measures import Measures
from tracing.analysis.task_events import keys_of
from tracing.trace.intervals import Grid, Intervals, depth
from tracing.trace.stacks import Line

SLOWER = 1.5  # times as long as the other workers: a slow one
FEWEST = 3  # batches of a worker, to judge it
MOST_OF_IT = 0.5  # a stage, or a lock, that takes this share of making a batch is named
RARE = 0.05  # a share of the batches that may be an exception
FEW, MANY = 0.7, 0.9  # of the workers that are at work at most times
MOST_ROWS = 200  # batches with few at work to look at
SURE = 1.65  # standard deviations (of the mean rank, Wilcoxon): chance does it once in twenty times
ONE_GOES_ON = 1.5  # workers, at most, that do not wait for a lock, of those at work: samples are a little off
PROPORTIONAL = 0.6  # times and workers at work have the same ratio, give or take this factor
MOST_NOTED = 400  # batches whose samples are looked at
FEWEST_GAPS = 30  # between samples of all workers together
APART = 0.4  # of the mean gap: at most a tenth of the gaps are shorter; chance makes that 0.1
DRIFTED = 1.5  # sample lengths that workers have drifted apart: their distances are not those of the beginning
QUICKER = 0.75  # of the median: a sample that takes no longer than this is quicker


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


@dataclass
class Turns:
    """The more workers are at work, the longer a batch takes each."""

    alone: Intervals  # the making of batches for which a worker waited little
    together: Intervals
    at_work: tuple[float, float] | None = None  # workers, during the median of either; None: they are made one by one
    in_lock: float | None = None  # ... or this share of making all batches (`together`) was seen to be waits for a lock
    gap: float | None = None  # ... or the samples of all workers are made one after the other: so many ns apart


def _made(measures: Measures) -> np.ndarray:
    rows = measures.tasks
    return rows[(rows["worker"] >= 0) & (rows["fetch_begin"] >= 0) & (rows["collate_end"] >= 0)]


def slow_worker(measures: Measures) -> SlowWorker | None:
    """The slowest worker, if there is one that is slower than all others."""
    rows = _made(measures)
    length = rows["collate_end"] - rows["fetch_begin"]
    each = [length[rows["worker"] == worker] for worker in range(measures.num_workers)]
    if len(each) < 2 or min(map(len, each)) < FEWEST:
        return None
    medians = [float(np.median(of_one)) for of_one in each]
    slowest = int(np.argmax(medians))
    next_slowest = max(medians[:slowest] + medians[slowest + 1 :])
    # Most of its batches must be slower than most of the others': not only the middle one, by chance.
    apart = np.percentile(each[slowest], 25) > max(np.percentile(of, 75) for of in each[:slowest] + each[slowest + 1 :])
    if medians[slowest] < SLOWER * next_slowest or not apart:
        return None
    its, others = rows[rows["worker"] == slowest], rows[rows["worker"] != slowest]
    spans = (measures.between(part, "fetch_begin", "collate_end") for part in (its, others))
    return SlowWorker(slowest, *spans)


def waited_for(measures: Measures, worker: int) -> int:
    """How long main waited for batches that this worker was making (ns)."""
    begin, made = measures.awaited["made"]
    return int((made - begin)[measures.requests[0]["worker"] == worker].sum())


def turns(measures: Measures) -> Turns | None:
    """Whether workers wait for each other: for a lock, or a server that answers one at a time."""
    rows = _made(measures)
    if measures.num_workers < 2 or len(rows) < 4 * FEWEST:
        return None
    found = _in_a_lock(measures, rows) or _one_by_one(measures, rows)
    return found or _served_in_turn(measures, rows) or _a_share_each(measures, rows)


def _in_a_lock(measures: Measures, rows: np.ndarray) -> Turns | None:
    """They were seen to wait for a lock: most of the time, or so often that only one of them goes on, on average."""
    share, made = cpu.in_lock(measures), measures.between(rows, "fetch_begin", "collate_end")
    at_work = made.total / max(1, measures.length(measures.grid.depth(made.begin, made.end) > 0))
    if share is None or at_work < SLOWER:
        return None
    if share < MOST_OF_IT and (1 - share) * at_work > ONE_GOES_ON:
        return None
    return Turns(made.where(slice(0)), made, in_lock=share)


def _one_by_one(measures: Measures, rows: np.ndarray) -> Turns | None:
    """They hold a lock for a whole batch: no two are finished in less time than the quickest batch takes, however many
    workers are at it. (Workers that do not wait for each other finish by chance at the same time.)"""
    length = rows["collate_end"] - rows["fetch_begin"]
    alone = np.percentile(length, 100 * RARE, method="lower")
    if np.median(length) < SLOWER * alone or (np.diff(np.sort(rows["collate_end"])) < 0.8 * alone).mean() > RARE:
        return None
    quickest = measures.between(rows[length <= 1.2 * alone], "fetch_begin", "collate_end")
    return Turns(quickest, measures.between(rows, "fetch_begin", "collate_end"))


def _served_in_turn(measures: Measures, rows: np.ndarray) -> Turns | None:
    """Whatever they ask serves one request at a time: then their samples are there one after another, at distances that
    are seldom much shorter than the mean. (Of workers that do not wait for each other any two may finish at once.)

    Workers whose samples all take about the same time keep their distances, which may be equal by chance: then a sample
    that was begun while few workers were at work must have been quicker."""
    begin, end = _samples(measures, rows)
    if len(end) < FEWEST_GAPS:
        return None
    length = end - begin
    most, workers = _at_work(begin, end)
    busy = workers >= MANY * most
    gap, together = np.diff(end)[busy[1:] & busy[:-1]], length[busy]
    if most < SLOWER or len(gap) < FEWEST_GAPS:
        return None
    few = length[depth(begin, end, begin) <= FEW * most].min(initial=length.max())
    by_chance = not _drifted(together, measures.num_workers) and few > QUICKER * np.median(together)
    if by_chance or np.percentile(gap, 10) < APART * gap.mean():
        return None
    made = measures.between(rows, "fetch_begin", "collate_end")
    return Turns(made.where(slice(0)), made, gap=float(gap.mean()))


def _drifted(length: np.ndarray, workers: int) -> bool:
    """Whether workers that do not wait for each other would have lost the distances that they began with: they drift
    apart as a random walk does, by the root of the samples that each has made."""
    quickest, middle, slowest = np.percentile(length, [10, 50, 90])
    drift = (slowest - quickest) / 2 * np.sqrt(len(length) / workers)
    return bool(drift > DRIFTED * middle)


def _samples(measures: Measures, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """When workers began to make each sample, and when it was there, in that order: of the last batches of which that
    was noted, or of batches of one sample."""
    single = (measures.config.get("batch_size") or 1) == 1
    begin, end = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for row in rows[np.argsort(rows["fetch_begin"])][-MOST_NOTED:]:
        noted = measures.trace.text(int(measures.positions(row["fetch_end"], "fetch_end")))
        ends = np.array([row["fetch_end"]] if single else [], np.int64)
        if isinstance(noted, list):
            ends = row["fetch_begin"] + np.array(noted, np.int64) * 1000
        begin.append(np.append(row["fetch_begin"], ends)[: len(ends)])
        end.append(ends)
    ends, begins = np.concatenate(end), np.concatenate(begin)
    order = np.argsort(ends)
    return begins[order], ends[order]


def _at_work(begin: np.ndarray, end: np.ndarray) -> tuple[float, np.ndarray]:
    """How many of these were under way during each of them, on average; and before it the most, but for a tenth."""
    grid = Grid(begin, end)
    work = np.append(0, np.cumsum(grid.length * grid.depth(begin, end)))
    workers = np.diff(np.interp([begin, end], grid.edges, work), axis=0)[0] / np.maximum(1, end - begin)
    return float(np.percentile(workers, 90)), workers


def _a_share_each(measures: Measures, rows: np.ndarray) -> Turns | None:
    """They share something sample by sample: a batch takes time in proportion to the workers at work meanwhile. It
    takes moments in which few of them are; at the end of an epoch there are some."""
    begin, end = rows["fetch_begin"], rows["collate_end"]
    most, workers = _at_work(begin, end)
    few, many = np.flatnonzero(workers <= FEW * most), np.flatnonzero(workers >= MANY * most)
    parts = np.array([_part_of_a_batch(measures, row) for row in rows[few[:MOST_ROWS]]])
    few, parts = few[:MOST_ROWS][parts > 0], parts[parts > 0]
    if most < 2 or not len(few) or len(many) < 2 * FEWEST:
        return None
    alone, together = (end - begin)[few] / parts, (end - begin)[many]
    quicker = np.searchsorted(np.sort(together), alone) / len(together)  # 0.5 on average, if it made no difference
    by_chance = (0.5 - quicker.mean()) * np.sqrt(12 * len(few) / (1 + len(few) / len(many)))
    ratio = np.median(alone) / np.median(together) / (np.median(workers[few]) / np.median(workers[many]))
    if by_chance < SURE or not PROPORTIONAL <= ratio <= 1 / PROPORTIONAL:
        return None
    spans = [measures.between(rows[which], "fetch_begin", "collate_end") for which in (few, many)]
    return Turns(spans[0], spans[1], (float(np.median(workers[few])), float(np.median(workers[many]))))


def _part_of_a_batch(measures: Measures, row: np.void) -> float:
    """The share of a full batch's keys that this one has: the last of an epoch may have fewer. 0 if it is not known."""
    keys, full = keys_of(measures.trace, row["loader"], row["epoch"], row["task"]), measures.config.get("batch_size")
    if not isinstance(full, int):
        return 1.0  # the program makes its batches itself
    return len(keys) / full if isinstance(keys, list) and None not in keys else 0.0


def waits_at(measures: Measures) -> tuple[Line, int, int] | None:
    """The line of the program in which workers were most often seen while they made batches, in how many looks, and of
    how many; None: it varies, or there are too few looks."""
    lines: list[Line | None] = []
    for worker, made in enumerate(measures.made):
        pids = cpu.worker_pids(measures, worker)
        times = np.array([each.time for each in measures.stacks if each.pid in pids], np.int64)
        own = [each.own_line() for each in measures.stacks if each.pid in pids]
        inside = depth(made.begin, made.end, times) > 0
        lines += [line for line, was in zip(own, inside, strict=True) if was]
    found = Counter(line for line in lines if line is not None).most_common(1)
    if not found or found[0][1] < max(FEWEST, MOST_OF_IT * len(lines)):
        return None
    return *found[0], len(lines)


def collating(measures: Measures) -> Intervals | None:
    """The collating of all batches, if that is most of making them."""
    rows = measures.tasks
    collated = measures.between(rows, "collate_begin", "collate_end")
    made = int(measures.stage("fetch_begin", "collate_end").sum())
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
