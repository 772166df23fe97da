"""A trace in numbers: where main's time went, what it waited for, when the workers were idle.

report, whatif and compare read these. Loaders built repeatedly at one line of the program,
and otherwise alike, count as one: their costs add up. The numbers are computed from `trace.tasks` and `trace.events`
without a loop over events, so a million events are measured in about a second. Results are stretches of time with
the events that begin and end them, so that every number can be traced back to its events.

Nothing here needs the events of feeder threads: torch's do not record any.

Legend
    request  asked for at 1.00 s, had at 1.25 s: batch 7    main is in the loader, from ASKED to the next YIELDED
    use      MainTime.WAITING                               what main's time goes to: see tracing.trace.thread_activity
    hop      "fetch_begin"                                  a time in trace.tasks, and the event it belongs to
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from minidl.events import Kind, Queue
from tracing.trace.event_index import HOPS, TASKLESS_HOPS, Iterator, Lane
from tracing.trace.intervals import Grid, Intervals, concatenate
from tracing.trace.main_split import MainSplit, main_splits
from tracing.trace.thread_activity import MainTime, activity
from tracing.trace.trace import Trace

NO_LOADER = "No loader was recorded. None began to be iterated while the recording was on."

AWAY = (MainTime.TRAINING, MainTime.ELSEWHERE)

# What the configurations of loaders built at one line have in common besides.
ALIKE = ("loader", "dataset", "sampler", "batch_size", "num_workers", "collate_fn")


class Measures:
    """A DataLoader of a trace, or all that were built at one line, all their epochs together. Times are in ns."""

    def __init__(self, trace: Trace, iterators: list[Iterator], splits: dict[int, MainSplit]) -> None:
        """`iterators`: all of these loaders, of which the first announced itself. `splits`: of the threads that drive
        them, by the number of the iterator."""
        self.trace, self.iterators, self.splits = trace, iterators, splits
        self.loaders = list(dict.fromkeys(each.loader for each in iterators))  # their numbers
        self.tasks = tasks = trace.tasks[np.isin(trace.tasks["loader"], self.loaders)]
        self.events = trace.events
        self.time, self.kind = self.events["time"], self.events["kind"]
        self.num_workers = max(each.num_workers for each in iterators)
        self.config: dict[str, Any] = trace.config(iterators[0].number)
        self.until = int(self.time[-1])
        self.epochs = len(np.unique(epoch_ids(tasks)))
        self.batches = int((tasks["yielded"] >= 0).sum())  # yielded
        # The hop at which a batch is made. In torch's loader it is the put, which only hands the batch to a feeder
        # thread: work before that, such as saving the dataset's state, is not moving it.
        feeds = self.config.get("package") == "torch.utils.data" and self.num_workers > 0
        self.made_at = "result_put" if feeds else "collate_end"
        main = int(self.events["actor"][self.groups(Kind.LOADER)[0][0]])  # the thread that made the first iterator
        self.main_pid = trace.actors[main].pid
        self.nested = trace.index.roles[main].lane != Lane.MAIN  # iterated in another loader's worker
        self._positions: dict[str, np.ndarray] = {}

    # ---- times, and the events they belong to

    def positions(self, times: np.ndarray, hop: str) -> np.ndarray:
        """The positions of this loader's events of a hop, at these times."""
        if hop not in self._positions:
            kind, queue = (HOPS | TASKLESS_HOPS)[hop]
            found = np.flatnonzero((self.kind == kind) & (self.events["queue"] == queue))
            self._positions[hop] = found[np.isin(self.events["loader"][found], self.loaders)]
        found = self._positions[hop]
        return found[np.searchsorted(self.time[found], times)]

    def between(self, rows: np.ndarray, begin: str, end: str) -> Intervals:
        """From one hop to another, for each of these tasks that made both."""
        both = (rows[begin] >= 0) & (rows[end] >= 0)  # column by column: a row has 46 numbers
        return self.of_events(self.positions(rows[begin][both], begin), self.positions(rows[end][both], end))

    def stage(self, begin: str, end: str) -> np.ndarray:
        """How long each task took from one hop to another, for those that made both (ns)."""
        begins, ends = self.tasks[begin], self.tasks[end]
        return (ends - begins)[(begins >= 0) & (ends >= 0)]

    def of_events(self, first: np.ndarray, last: np.ndarray) -> Intervals:
        """From one event to another, given by their positions."""
        return Intervals(self.time[first], self.time[last], first, last)

    # ---- main

    @cached_property
    def main(self) -> tuple[Intervals, np.ndarray]:
        """What main does during this loader's epochs, and the MainTime of each span."""
        parts = [self.splits[each.number].of(each) for each in self.iterators if each.number in self.splits]
        return concatenate(parts), np.concatenate([each.use for each in parts])

    def main_in(self, *uses: MainTime) -> Intervals:
        intervals, found = self.main
        return intervals.where(np.isin(found, uses))

    @cached_property
    def steps(self) -> Intervals:
        """The training steps."""
        return self.main_in(MainTime.TRAINING)

    @cached_property
    def away(self) -> Intervals:
        """When main is not in this loader."""
        return self.main_in(*AWAY).joined()

    @cached_property
    def run(self) -> Intervals:
        """Each epoch (or iterator, where one follows the other at once) from its beginning to its end."""
        return self.main[0].joined()

    @cached_property
    def spent(self) -> dict[MainTime, int]:
        """How much time main spent on what."""
        return {use: self.main_in(use).total for use in MainTime}

    @cached_property
    def total(self) -> int:
        """All epochs from beginning to end (ns): shares are fractions of this. At least 1."""
        return max(1, sum(self.spent.values()))

    @cached_property
    def in_loader(self) -> Intervals:
        """When the loader costs the program time: main waits for it, or works in it."""
        return self.main_in(*(use for use in MainTime if use not in AWAY)).joined()

    @cached_property
    def main_threads(self) -> set[str]:
        """The names of its threads that do."""
        actors = np.unique(self.events["actor"][np.concatenate(self.lanes(Lane.MAIN))])
        return {self.trace.actors[actor].thread for actor in actors}

    # ---- requests: main asks and gets a batch

    @cached_property
    def had(self) -> np.ndarray:
        """The rows of the tasks whose batches main had: epoch after epoch, in the order in which they were yielded."""
        yielded = np.flatnonzero(self.tasks["yielded"] >= 0)
        return self.tasks[yielded[np.lexsort((self.tasks["yielded"][yielded], epoch_ids(self.tasks)[yielded]))]]

    @cached_property
    def requests(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(tasks yielded, when each was asked for and had), except the first batch of each epoch."""
        asked, epoch = self.had["asked"], epoch_ids(self.had)
        # Where events are missing it may not be known when a batch was asked for.
        follows = np.flatnonzero((epoch[1:] == epoch[:-1]) & (asked[:-1] >= 0))
        rows = self.had[follows + 1]
        return rows, asked[follows], rows["yielded"]

    @property
    def waits(self) -> Intervals:
        """From ASKED to YIELDED, for each request."""
        _, asked, had = self.requests
        return Intervals(asked, had, self.positions(asked, "asked"), self.positions(had, "yielded"))

    @cached_property
    def awaited(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """What is happening to the batch that main waits for -> (begin, end) for each request.

        made: it is not sent yet, or with its worker, or in that worker's queue; moved: on its way from there to main
        or to the pin thread; pinned: from there to main.
        """
        rows, asked, had = self.requests
        made, moved, pinned = (
            np.clip(np.where(rows[name] >= 0, rows[name], otherwise), asked, had)
            for name, otherwise in ((self.made_at, had), ("result_got", asked), ("data_got", asked))
        )
        moved = np.maximum(made, moved)
        return {"made": (asked, made), "moved": (made, moved), "pinned": (moved, np.maximum(moved, pinned))}

    # ---- workers

    @cached_property
    def idle(self) -> list[Intervals]:
        """For each worker: when it waits for a task."""
        found = []
        for worker in range(self.num_workers):
            parts = [activity(self.trace, [iterator], Lane.WORKER, worker) for iterator in self.iterators]
            found.append(concatenate([each.where(self.kind[each.first] == Kind.WAIT) for each in parts]))
        return found

    @cached_property
    def made(self) -> list[Intervals]:
        """For each worker: when it made batches."""
        rows = (self.tasks[self.tasks["worker"] == worker] for worker in range(self.num_workers))
        return [self.between(of_worker, "fetch_begin", self.made_at) for of_worker in rows]

    def lanes(self, lane: Lane, worker: int = -1) -> list[np.ndarray]:
        """The positions of the events of one thread, in each iterator."""
        return [self.trace.index.lane(each.number, lane, worker).array for each in self.iterators]

    def groups(self, kind: Kind, queue: Queue = Queue.NONE, worker: int = -1) -> list[np.ndarray]:
        """The positions of such events, in each iterator."""
        return [self.trace.index.group(each.number, kind, queue, worker).array for each in self.iterators]

    @cached_property
    def first_batches(self) -> np.ndarray:
        """The rows of the tasks that each worker process made first."""
        lanes = [lane for worker in range(self.num_workers) for lane in self.lanes(Lane.WORKER, worker)]
        first = [lane[self.kind[lane] == Kind.FETCH_BEGIN][:1] for lane in lanes]
        begins = np.isin(self.tasks["fetch_begin"], self.time[np.concatenate([np.empty(0, np.int64), *first])])
        return self.tasks[begins & (self.tasks["collate_end"] >= 0)]

    def of_starts(self, begin: Kind, end: Kind) -> Intervals:
        """From one event of a worker's start to another, for each worker of each iterator that has both."""
        known = list[tuple[int, int]]()
        for worker in range(self.num_workers):
            both = (self.groups(kind, worker=worker) for kind in (begin, end))
            known += [(begins[0], ends[0]) for begins, ends in zip(*both, strict=True) if len(begins) and len(ends)]
        first, last = np.array(known, np.int64).reshape(-1, 2).T
        return self.of_events(first, np.maximum(first, last))  # no time, if a worker begins before start() returns

    def lived(self, worker: int) -> Intervals:
        """From the first event of each process that was this worker to its last; or to the end, if it waits then."""
        lanes = [lane for lane in self.lanes(Lane.WORKER, worker) if len(lane)]
        first, last = np.array([(lane[0], lane[-1]) for lane in lanes], np.int64).reshape(-1, 2).T
        end = np.where(self.kind[last] == Kind.WAIT, self.until, self.time[last])
        return Intervals(self.time[first], end, first, last)

    # ---- what happened at the same time

    @cached_property
    def grid(self) -> Grid:
        """The time, cut wherever what main waits for, a worker or the reorder buffer changes."""
        edges = [edge for each in (self.away, *self.idle) for edge in (each.begin, each.end)]
        edges += [edge for pair in self.awaited.values() for edge in pair]
        return Grid(*edges, *self.inside("stored", "released"))

    def inside(self, begin: str, end: str) -> tuple[np.ndarray, np.ndarray]:
        """When each task was between two hops; for one that still is, until the end."""
        rows = self.tasks[self.tasks[begin] >= 0]
        return rows[begin], np.where(rows[end] >= 0, rows[end], self.until)

    def during(self, *names: str) -> np.ndarray:
        """Pieces of the grid in which main waits for a batch that is "made", "moved" or "pinned": bool."""
        return np.logical_or.reduce([self.grid.depth(*self.awaited[name]) > 0 for name in names])

    @cached_property
    def idle_share(self) -> np.ndarray:
        """The share of the workers that is idle in each piece of the grid, 0 to 1."""
        idle = sum(self.grid.depth(each.begin, each.end) for each in self.idle)
        return np.asarray(idle / max(1, self.num_workers))

    @cached_property
    def held_up(self) -> np.ndarray:
        """For each piece of the grid, whether one batch holds up the others: main waits for it while it is being made,
        finished ones are in the reorder buffer, and at least half of the other workers have nothing to do. (While they
        all work nothing is lost: no batch would come sooner in another order.)"""
        finished = self.grid.depth(*self.inside("stored", "released")) > 0
        idle = self.idle_share * self.num_workers >= max(1, (self.num_workers - 1) / 2)
        return np.asarray(self.during("made") & finished & idle)

    @cached_property
    def on_its_way(self) -> np.ndarray:
        """Pieces in which main waits for a batch that is made, and at least half of the workers have nothing to do, its
        own among them. (While they work, they are the limit: a batch that arrived sooner would not make them faster.
        And a feeder thread waits for Python's lock while its worker has it.)"""
        (begin, end), moved = self.awaited["moved"], np.zeros(len(self.grid.length), bool)
        for worker, idle in enumerate(self.idle):
            of = self.requests[0]["worker"] == worker
            moved |= (self.grid.depth(begin[of], end[of]) > 0) & (self.grid.depth(idle.begin, idle.end) > 0)
        return np.asarray((moved | self.during("pinned")) & (self.idle_share >= 0.5))

    @cached_property
    def is_away(self) -> np.ndarray:
        """Pieces in which main is not in this loader: its workers could work ahead."""
        return np.asarray(self.grid.depth(self.away.begin, self.away.end) > 0)

    def stretches(self, mask: np.ndarray) -> Intervals:
        """The time of the pieces of the grid that `mask` chooses. (Each edge of the grid is the time of an event.)"""
        begins, ends = self.grid.edges[:-1][mask], self.grid.edges[1:][mask]
        return self.of_events(np.searchsorted(self.time, begins), np.searchsorted(self.time, ends)).joined()


def epoch_ids(rows: np.ndarray) -> np.ndarray:
    """The epochs of tasks or events of several loaders, each a number of its own."""
    return np.asarray(rows["loader"].astype(np.int64) << 32 | rows["epoch"])


def measure(trace: Trace) -> list[Measures]:
    """Every DataLoader of a trace that announced itself, in the order in which they began."""
    alike: dict[int, tuple[Any, ...]] = {}  # loader -> what loaders measured as one have in common
    of_rows: dict[tuple[Any, ...], list[Iterator]] = {}
    for each in trace.index.iterators:
        if len(trace.index.group(each.number, Kind.LOADER)) and each.loader not in alike:
            config = trace.config(each.number)
            anew = config.get("iterated_at") or each.loader  # at a prompt, each loader by itself
            alike[each.loader] = (anew, *(str(config.get(name)) for name in ALIKE))
        if each.loader in alike:
            of_rows.setdefault(alike[each.loader], []).append(each)
    splits = main_splits(trace)
    rows = [row for of_row in of_rows.values() for row in _built_anew(trace, of_row)]
    return [Measures(trace, row, splits) for row in rows]


def _built_anew(trace: Trace, iterators: list[Iterator]) -> list[list[Iterator]]:
    """All of these together, if each loader replaced the one before; else those of each loader: two that
    are iterated in turn do not replace each other."""
    loaders = list(dict.fromkeys(each.loader for each in iterators))
    used = trace.events["loader"][np.isin(trace.events["kind"], (Kind.EPOCH_BEGIN, Kind.YIELDED))].astype(np.int64)
    if (np.diff(used[np.isin(used, loaders)]) >= 0).all():
        return [iterators]
    return [[each for each in iterators if each.loader == loader] for loader in loaders]
