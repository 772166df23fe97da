"""Who or what is behind the waiting: one slow worker, workers that wait for each other, a line, a stage, the shares of
a stream.

Each function looks for one culprit, and returns None where the trace does not show it.

Legend
    look    Stack    where the threads of a process were at one moment (tracing.trace.stacks)
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from minidl.events import Kind, Queue
from tracing.analysis.measure.cores import Work, work, worker_pids
from tracing.analysis.measure.measures import Measures
from tracing.analysis.measure.stages import first_batches
from tracing.analysis.task_events import keys_of
from tracing.trace.event_index import Iterator as IteratorInTrace
from tracing.trace.intervals import Grid, Intervals, depth
from tracing.trace.stacks import Line, Stack
from tracing.trace.thread_activity import MainTime
from tracing.trace.trace import Trace

SLOWER = 1.5  # times as long as the other workers: a slow one
FEWEST = 3  # batches of a worker, or looks at it, to judge it
MOST_OF_IT = 0.5  # a stage, a line or a lock that takes this share of making a batch is named
ONE_GOES_ON = 1.5  # workers, at most, that do not wait for a lock, of those at work: looks are a little off
FEWEST_CROWDED = 8  # batches, to see what it takes while more are made at the same time
SURE = 2  # standard errors
NOISE = 0.05  # of a batch's time, at least: what shows only by less than this does not show
HALF = 0.5  # between 0, as long as alone, and 1, served one after the other

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


class Seen(NamedTuple):
    """The line in which a thread was seen most often, of the function in which it was seen most often."""

    line: Line
    calls: str  # the function that the line called most often: "ZipFile.__init__"; "" if it called none
    times: int  # in how many looks it was in that function, ...
    looks: int  # ... of how many

    def __str__(self) -> str:
        return f"{self.line}{f', in {self.calls}' * bool(self.calls)}"


def looks(measures: Measures) -> list[Stack]:
    """The looks at the workers while they made batches; without workers, at main while it did."""
    making = {pid: made for worker, made in enumerate(measures.made) for pid in worker_pids(measures, worker)}
    if not measures.num_workers:
        making = {measures.main_pid: measures.main_in(MainTime.LOADING)}
    return [look for pid, made in making.items() for look in within(made, looks_at(measures, pid))]


def looks_at(measures: Measures, pid: int) -> list[Stack]:
    return [each for each in measures.stacks if each.pid == pid]


def within(stretches: Intervals, found: list[Stack], not_in: bool = False) -> list[Stack]:
    """Those of these looks that are in one of the stretches of time, or in none."""
    inside = depth(stretches.begin, stretches.end, np.array([each.time for each in found], np.int64)) > 0
    return [look for look, is_in in zip(found, inside.tolist(), strict=True) if is_in != not_in]


def _runs_the_program(look: Stack) -> bool:
    """Whether its main thread runs code of the program, and does not import."""
    line = look.own_line()
    return line is not None and not line.source.startswith(("import ", "from "))


def seen_at(found: list[Stack]) -> Seen | None:
    """Where most of these looks found a thread; None: it varies, or there are too few."""
    at = [(line, look) for look in found if (line := look.own_line()) is not None]
    function, times = _most_common([(line.file, line.function) for line, _ in at])
    if times < max(FEWEST, MOST_OF_IT * len(found)):
        return None
    line, _ = _most_common([line for line, _ in at if (line.file, line.function) == function])
    calls, _ = _most_common([look.called_by(line) for its, look in at if its == line])
    return Seen(line, calls, times, len(found))


def _most_common(values: list[Any]) -> tuple[Any, int]:
    return next(iter(Counter(values).most_common(1)), (None, 0))


# ---- what main does in no loader


@dataclass
class Away:
    """What main does while it is in no loader: in its steps and outside of its loops (ns), and where it was seen."""

    training: int
    outside: int
    loading: int  # in loaders, for comparison
    seen: Seen | None

    @property
    def program(self) -> int:
        """All of it; at least 1."""
        return max(1, self.training + self.outside + self.loading)


def away(measures: Measures) -> Away:
    """Of the whole program, from its first look to its last. Imports are left out: every program has them."""
    spans = measures.splits[measures.iterators[0].number].spans
    loading = spans.where((spans.use != MainTime.TRAINING) & (spans.use != MainTime.OUTSIDE))
    training, outside = (spans.where(spans.use == use).total for use in (MainTime.TRAINING, MainTime.OUTSIDE))
    own = looks_at(measures, measures.main_pid)
    before = {look.time: look.time - earlier.time for earlier, look in itertools.pairwise(own)}
    own = [each for each in own if _runs_the_program(each)]
    whole = Intervals(spans.begin[:1], spans.end[-1:], spans.first[:1], spans.last[-1:])
    outside += sum(before.get(look.time, 0) for look in within(whole, own, not_in=True))
    return Away(training, outside, loading.total, seen_at(within(loading, own, not_in=True)))


# ---- workers that wait for each other


@dataclass
class Turns:
    """Workers that wait for each other: for a lock, or for something that serves one after the other."""

    made: Intervals  # the making of all batches
    in_lock: int  # in how many looks they were seen waiting for a lock, ...
    looks: int  # ... of how many


def turns(measures: Measures) -> Turns | None:
    """Workers that were seen to wait for a lock, most of the time, or so often that only one of them goes on, on
    average; or that take as many times as long for a batch as there are others at work."""
    rows = _made(measures)
    if measures.num_workers < 2 or len(rows) < FEWEST:
        return None
    made, seen = measures.between(rows, "fetch_begin", "collate_end"), looks(measures)
    waits = sum(_is_in_lock(each) for each in seen)
    at_work = made.total / max(1, measures.length(measures.grid.depth(made.begin, made.end) > 0))
    goes_on = (1 - waits / max(1, len(seen))) * at_work
    if waits >= FEWEST and (waits >= MOST_OF_IT * len(seen) or goes_on <= ONE_GOES_ON):
        return Turns(made, waits, len(seen))
    least, _ = crowding(measures)
    return Turns(made, 0, len(seen)) if least > HALF and work(measures) is Work.WAITS else None


def independent(measures: Measures) -> bool:
    """Whether a batch was seen to take no longer the more workers make one at the same time: each has for itself what
    it waits for."""
    _, most = crowding(measures)
    return most < HALF


def crowding(measures: Measures) -> tuple[float, float]:
    """How much longer a batch takes while more workers make one: the slope of its time over their mean number, both as
    logarithms. It is 0 if they do not disturb each other, and 1 if they are served one after the other; here the least
    and the most that it can be. (At the beginning and the end of an epoch, and while main trains, not all are at work.)
    """
    rows = _made(measures)
    made = measures.between(rows, "fetch_begin", "collate_end")
    grid = Grid(made.begin, made.end)
    work_done = np.append(0, np.cumsum(grid.length * grid.depth(made.begin, made.end)))
    usual = ~np.isin(made.begin, first_batches(measures)["fetch_begin"]) & (made.length > 0)
    begin, end = made.begin[usual], made.end[usual]
    if measures.num_workers < 2 or len(begin) < FEWEST_CROWDED:
        return -math.inf, math.inf
    workers = np.diff(np.interp([begin, end], grid.edges, work_done), axis=0)[0] / (end - begin)
    more, longer = (np.log(each) - np.log(each).mean() for each in (workers, end - begin))
    spread = max(1e-9, float((more**2).sum()))
    slope = float((more * longer).sum()) / spread
    noise = max(NOISE, math.sqrt(float(((longer - slope * more) ** 2).sum()) / (len(begin) - 2)))
    error = noise / math.sqrt(spread)
    return slope - SURE * error, slope + SURE * error


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
    return _same_samples(trace, iterator, has_keys=False)


def same_for_other_keys(trace: Trace, iterator: IteratorInTrace) -> list[int]:
    """The same of a dataset with keys, of which no two workers had the same."""
    return _same_samples(trace, iterator, has_keys=True)


def _same_samples(trace: Trace, iterator: IteratorInTrace, has_keys: bool) -> list[int]:
    first: dict[int, tuple[str, int]] = {}  # worker -> the digest of the first samples that it made, and where
    for position, noted in _noted(trace, iterator):
        if "first" in noted:
            first.setdefault(int(trace.events["worker"][position]), (noted["first"], position))
    if not 1 < len(first) == iterator.num_workers or len({digest for digest, _ in first.values()}) > 1:
        return []
    positions = sorted(position for _, position in first.values())
    tasks = trace.events[positions]
    keys = [keys_of(trace, iterator.loader, int(task["epoch"]), int(task["task"])) for task in tasks]
    known = {str(each) for each in keys if not _is_without_keys(each)}
    return positions if len(known) == (len(keys) if has_keys else 0) else []


def _is_without_keys(keys: Any) -> bool:
    """Of an iterable dataset: [None, None], or None if it makes whole batches."""
    return keys is None or (isinstance(keys, list) and all(key is None for key in keys))


def _noted(trace: Trace, iterator: IteratorInTrace) -> Iterator[tuple[int, dict[str, Any]]]:
    """What was noted of batches, once in each worker and epoch, and where."""
    positions = trace.index.group(iterator.number, Kind.COLLATE_END).array
    for position in positions[trace.events["text"][positions] > 0].tolist():
        if isinstance(noted := trace.text(position), dict):  # else it is lost: the file is damaged
            yield position, noted
