"""What a trace says in numbers: where main's time went, how busy the workers were, how full the queues.

tracing.report makes its verdict of these. They come from `trace.tasks` and `trace.events` without a loop over
events, so a trace of a million is measured in about a second.

Legend
    request  asked for at 1.00 s, had at 1.25 s: batch 7    main is in the loader, from ASKED to the next YIELDED
    place    WAITING                                        what main does at a moment: see Place
    span     (1204, 1230)                                   positions of two events: the time between them
"""

from __future__ import annotations

import enum
from functools import cached_property
from typing import Any

import numpy as np

from minidl.events import Kind, Queue
from tracing.index import Iterator, Lane
from tracing.intervals import Grid, Intervals, Span, concatenate
from tracing.state import MainStatus
from tracing.statuses import MAIN_STATUS
from tracing.trace import Trace


class Place(enum.IntEnum):
    """What main's time goes to. The values index an array of sums."""

    OUTSIDE = 0  # before, between and after the epochs: no concern of the loader
    STARTUP = 1  # builds the iterator, starts workers, waits for the first batch of an epoch
    TRAINING = 2  # not in the loader: the training step
    WAITING = 3  # waits for a message
    DRAWING = 4  # asks the sampler for keys
    TAKING = 5  # unpickles a batch
    LOADING = 6  # without workers: fetches, collates, pins itself
    HANDLING = 7  # the loader's own bookkeeping
    SHUTDOWN = 8


PLACE_OF = np.full(256, Place.HANDLING)
for _kind, _status in MAIN_STATUS.items():
    PLACE_OF[_kind] = {
        MainStatus.TRAINING: Place.TRAINING,
        MainStatus.WAITING: Place.WAITING,
        MainStatus.DRAWING: Place.DRAWING,
        MainStatus.TAKING: Place.TAKING,
        MainStatus.FETCHING: Place.LOADING,
        MainStatus.COLLATING: Place.LOADING,
        MainStatus.PINNING: Place.LOADING,
        MainStatus.RAISED: Place.OUTSIDE,
    }.get(_status, Place.HANDLING)
PLACE_OF[Kind.GOT] = Place.HANDLING  # what was unpickled is there

# Between these events main is where the phase says, whatever it does in detail (but for drawing and loading).
PHASE_FROM = {
    Kind.LOADER: Place.STARTUP,
    Kind.EPOCH_BEGIN: Place.STARTUP,
    Kind.YIELDED: Place.TRAINING,
    Kind.EPOCH_END: Place.OUTSIDE,
    Kind.SHUTDOWN_BEGIN: Place.SHUTDOWN,
    Kind.SHUTDOWN_END: Place.OUTSIDE,
}
PHASE_OF = np.full(256, -1)
PHASE_OF[list(PHASE_FROM)] = list(PHASE_FROM.values())


class Measures:
    """One DataLoader of a trace, all its epochs together. Times are in ns."""

    def __init__(self, trace: Trace, iterators: list[Iterator], tasks: np.ndarray) -> None:
        """`iterators`, at least one, and `tasks`, rows of `trace.tasks`: all of that loader."""
        self.trace, self.iterators, self.tasks = trace, iterators, tasks
        self.loader = iterators[0].loader
        self.events = trace.events
        self.time, self.kind = self.events["time"], self.events["kind"]
        self.num_workers = max(each.num_workers for each in iterators)
        self.config: dict[str, Any] = trace.config(iterators[0].number)
        self.until = int(self.time[-1])

    def event(self, time: int, kind: Kind) -> int:
        """The position of an event of which only the time is known."""
        position = int(np.searchsorted(self.time, time))
        while self.kind[position] != kind:
            position += 1
        return position

    # ---- main

    @cached_property
    def main(self) -> tuple[Intervals, np.ndarray]:
        """What main does from each of its events to the next; and the Place of each."""
        parts, places = [], []
        for iterator in self.iterators:
            positions = self.trace.index.lane(iterator.number, Lane.MAIN).array
            if len(positions) and self.kind[positions[-1]] == Kind.WAIT:  # it still waits
                positions = np.append(positions, len(self.trace) - 1)
            place = self._places(positions[:-1])
            parts.append(self._between(positions[:-1], positions[1:]))
            places.append(place)
        return concatenate(parts), np.concatenate(places)

    def _places(self, positions: np.ndarray) -> np.ndarray:
        kinds = self.kind[positions]
        marks = PHASE_OF[kinds]
        since = np.maximum.accumulate(np.where(marks >= 0, np.arange(len(marks)), 0))
        phase, place = np.maximum(marks[since], Place.OUTSIDE), PLACE_OF[kinds]
        # Drawing keys, and without workers loading, counts as that also while an epoch starts.
        special = (phase == Place.STARTUP) & ((place == Place.DRAWING) | (place == Place.LOADING))
        return np.where((phase == Place.TRAINING) | special, place, phase)

    def _between(self, first: np.ndarray, last: np.ndarray) -> Intervals:
        return Intervals(self.time[first], self.time[last], first, last)

    def main_in(self, place: Place) -> Intervals:
        intervals, places = self.main
        return intervals.where(places == place)

    @cached_property
    def spent(self) -> dict[Place, int]:
        """How long main was where."""
        intervals, places = self.main
        sums = np.bincount(places, intervals.length, minlength=len(Place))
        return {place: int(sums[place]) for place in Place}

    @property
    def total(self) -> int:
        """From the beginning of each epoch to its end, added up: what shares are shares of. At least 1."""
        return max(1, sum(self.spent.values()) - self.spent[Place.OUTSIDE])

    # ---- requests: main asks, and has a batch

    @cached_property
    def requests(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(tasks yielded, when each was asked for, when it was had), but for the first batch of each epoch."""
        rows = self.tasks[self.tasks["yielded"] >= 0]
        rows = rows[np.lexsort((rows["yielded"], rows["epoch"]))]
        follows = np.flatnonzero(rows["epoch"][1:] == rows["epoch"][:-1])
        return rows[follows + 1], rows["asked"][follows], rows["yielded"][follows + 1]

    @cached_property
    def awaited(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Main waits, and the batch that it gets in the end is ... -> (begin, end) for each request.

        made: not sent yet, in its worker's queue, or in its worker's hands; moved: from there to main, or to the pin
        thread; pinned: from there to main.
        """
        rows, asked, had = self.requests
        made, moved, pinned = (
            np.clip(np.where(rows[name] >= 0, rows[name], otherwise), asked, had)
            for name, otherwise in (("collate_end", had), ("result_got", asked), ("data_got", asked))
        )
        moved = np.maximum(made, moved)
        return {"made": (asked, made), "moved": (made, moved), "pinned": (moved, np.maximum(moved, pinned))}

    def waited_for(self, what: str) -> int:
        begin, end = self.awaited[what]
        return int((end - begin).sum())

    def waited_for_while_idle(self, what: str) -> int:
        """The part of it in which at least half of the workers had nothing to do. (While they work, they are what
        limits the load: batches that arrived sooner would not be more.)"""
        waits = self.grid.depth(*self.awaited[what]) > 0
        return int(self.grid.length[waits & (self.idle_share >= 0.5)].sum())

    def request_spans(self, lengths: np.ndarray, count: int = 3) -> list[tuple[Span, np.void]]:
        """The requests with the largest `lengths`: (their ASKED and YIELDED, the task)."""
        rows, asked, had = self.requests
        order = [i for i in np.argsort(-lengths, kind="stable")[:count] if lengths[i] > 0]
        spans = [(self.event(asked[i], Kind.ASKED), self.event(had[i], Kind.YIELDED)) for i in order]
        return list(zip(spans, rows[order], strict=True))

    # ---- workers

    @cached_property
    def idle(self) -> list[Intervals]:
        """For each worker: when it waits for a task."""
        return [self._idle(worker) for worker in range(self.num_workers)]

    def _idle(self, worker: int) -> Intervals:
        parts = []
        for iterator in self.iterators:
            positions = self.trace.index.lane(iterator.number, Lane.WORKER, worker).array
            waits = np.flatnonzero(self.kind[positions] == Kind.WAIT)
            after = np.append(positions, len(self.trace) - 1)[waits + 1]
            parts.append(self._between(positions[waits], after))
        return concatenate(parts)

    def worker_time(self, worker: int) -> dict[str, int]:
        """What a worker did between its first event and its last: the number of batches, then ns."""
        rows = self.tasks[(self.tasks["worker"] == worker) & (self.tasks["collate_end"] >= 0)]
        lived = sum(
            int(self.time[lane[-1]] - self.time[lane[0]])
            for iterator in self.iterators
            if len(lane := self.trace.index.lane(iterator.number, Lane.WORKER, worker).array)
        )
        return {
            "batches": len(rows),
            "lived": lived,
            "worked": int((rows["collate_end"] - rows["fetch_begin"]).sum()),
            "cpu": int((np.maximum(rows["fetch_cpu"], 0) + np.maximum(rows["collate_cpu"], 0)).sum()),
            "idle": int(self.idle[worker].length.sum()),
        }

    @cached_property
    def grid(self) -> Grid:
        training = self.main_in(Place.TRAINING)
        edges = [training.begin, training.end, *self._in("stored", "released")]
        edges += [edge for pair in self.awaited.values() for edge in pair]
        return Grid(*edges, *(edge for each in self.idle for edge in (each.begin, each.end)))

    def _in(self, begin: str, end: str) -> tuple[np.ndarray, np.ndarray]:
        """When each task that came between two hops of its way did so; one that is still there: until the end."""
        rows = self.tasks[self.tasks[begin] >= 0]
        return rows[begin], np.where(rows[end] >= 0, rows[end], self.until)

    @cached_property
    def idle_share(self) -> np.ndarray:
        """The share of the workers that is idle in each piece of the grid, 0 to 1."""
        idle = sum(self.grid.depth(each.begin, each.end) for each in self.idle)
        return np.asarray(idle / max(1, self.num_workers))

    @cached_property
    def held_up(self) -> np.ndarray:
        """Whether in each piece of the grid one batch holds up the others: main waits for it while it is being made,
        finished ones lie in the reorder buffer, and at least half of the other workers have nothing to do. (With all
        of them at work nothing is lost: another order would bring no batch sooner.)"""
        waits = self.grid.depth(*self.awaited["made"]) > 0
        finished = self.grid.depth(*self._in("stored", "released")) > 0
        return waits & finished & (self.idle_share * self.num_workers >= max(1, (self.num_workers - 1) / 2))

    @property
    def hold_up(self) -> int:
        """How long that was so."""
        return int(self.grid.length[self.held_up].sum())

    @property
    def hold_up_gain(self) -> int:
        """What another order would have saved: what the idle workers could have made meanwhile, of what all make."""
        return int((self.grid.length * self.held_up * self.idle_share).sum())

    @property
    def spare(self) -> int:
        """While main trained, workers were idle for so long, weighted by how many: they could have worked ahead."""
        training = self.main_in(Place.TRAINING)
        trains = self.grid.depth(training.begin, training.end) > 0
        return int((self.grid.length * trains * self.idle_share).sum())

    # ---- start-up, stages, queues

    @cached_property
    def startup_cost(self) -> int:
        """Start-up beyond the time in which a batch is made anyway."""
        made = self.stage("fetch_begin", "collate_end")
        if not len(made) or not self.num_workers:
            return self.spent[Place.STARTUP]
        epochs = len(np.unique(self.tasks["epoch"][self.tasks["yielded"] >= 0]))
        return max(0, self.spent[Place.STARTUP] - epochs * int(np.median(made)))

    def startup_parts(self) -> tuple[float, float, float]:
        """Medians over the workers (ns): from the order to start one to its first line, from there to its being ready;
        and over the epochs of making their first batches."""
        begun, ready = [], []
        for iterator in self.iterators:
            for worker in range(iterator.num_workers):
                group = [
                    self.trace.index.group(iterator.number, kind, Queue.NONE, worker).array[:1]
                    for kind in (Kind.WORKER_STARTING, Kind.WORKER_BEGIN, Kind.WORKER_READY)
                ]
                if all(len(each) for each in group):
                    starting, begin, waits = (int(self.time[each[0]]) for each in group)
                    begun.append(begin - starting)
                    ready.append(waits - starting)
        first = self.tasks[(self.tasks["task"] == 0) & (self.tasks["collate_end"] >= 0)]
        made = first["collate_end"] - first["fetch_begin"]
        return tuple(float(np.median(each)) if len(each) else 0.0 for each in (begun, ready, made))  # type: ignore[return-value]

    def stage(self, begin: str, end: str) -> np.ndarray:
        """How long each task took from one hop to another, for those that made both (ns)."""
        rows = self.tasks[(self.tasks[begin] >= 0) & (self.tasks[end] >= 0)]
        return rows[end] - rows[begin]

    def occupancy(self, put: str, got: str) -> dict[str, float]:
        """Of the tasks that lie between two hops: the mean number, the highest, and the share of the time with none."""
        begin, end = self._in(put, got)
        grid = Grid(begin, end)
        if not len(grid.length):
            return {"mean": 0.0, "max": 0, "empty": 1.0}
        level, total = grid.depth(begin, end), max(1, self.total)
        filled = int(grid.length[level > 0].sum())
        mean = float((grid.length * level).sum()) / total
        return {"mean": mean, "max": int(level.max()), "empty": max(0.0, 1 - filled / total)}


def measure(trace: Trace) -> list[Measures]:
    """Every DataLoader of a trace that said what it is, in the order in which they began."""
    iterators: dict[int, list[Iterator]] = {}
    for each in trace.index.iterators:
        iterators.setdefault(each.loader, []).append(each)
    said = {each.loader for each in trace.index.iterators if len(trace.index.group(each.number, Kind.LOADER))}
    loaders = [loader for loader in iterators if loader in said]
    # Sorted once: a program may have thousands of loaders, and each need not look through the tasks of all.
    tasks = trace.tasks[np.argsort(trace.tasks["loader"], kind="stable")]
    first, end = (np.searchsorted(tasks["loader"], loaders, side) for side in ("left", "right"))
    return [Measures(trace, iterators[loader], tasks[i:j]) for loader, i, j in zip(loaders, first, end, strict=True)]
