"""The ranks of a run side by side: which loader of one is which of another's, and when each took its n-th step.

In distributed training the ranks exchange gradients in every step, so all wait for the last to begin it. No rank's own
trace shows that: the waiting is in what it takes for its training step. Reports, the timeline and checks read it here.

Legend
    rank      Rank("rank 1", …)      one part of the run, and its trace
    loader    {0: 1, 1: 1}           position of a rank -> its number of the loader: the same line of the script
    step      (epoch 0, 12)          from a batch being handed out to the next being asked for
    All times are in ns on the first host's clock.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from minidl.events import Kind
from tracing.trace.event_index import Lane
from tracing.trace.file_reader import TraceDamage, TraceError
from tracing.trace.parts import Part, parts, ranks_without_events
from tracing.trace.trace import Trace

# By what share of the last rank's lateness the others' steps are longer:
MOST = 0.5  # this shows by itself that they wait for it ...
SOME = 0.25  # ... and less than this, that it is late for something else than its batches
LAG = 6  # steps


@dataclass(frozen=True)
class Rank:
    """One part of a run, and its trace."""

    part: Part
    trace: Trace
    name: str  # "rank 1", unlike any other's of the run

    @property
    def offset(self) -> int:
        """To be added to its times (ns): other hosts have other clocks."""
        return int(getattr(self.part, "offset", 0) or 0)

    @cached_property
    def configs(self) -> dict[int, dict[str, Any]]:
        """The loaders that its main process iterated, in the order in which they began -> their configuration. (Not
        those that its workers iterate: loaders nested in a dataset.)"""
        found: dict[int, dict[str, Any]] = {}
        index, events = self.trace.index, self.trace.events
        for each in index.iterators:
            announced = index.group(each.number, Kind.LOADER).array[:1]
            if len(announced) and index.roles[events["actor"][announced[0]]].lane == Lane.MAIN:
                found.setdefault(each.loader, self.trace.config(each.number))
        return found

    @cached_property
    def tasks_of(self) -> dict[int, np.ndarray]:
        """Each of these loaders -> its rows of `trace.tasks`."""
        tasks = self.trace.tasks
        return {loader: tasks[tasks["loader"] == loader] for loader in self.configs}

    def epochs(self, loader: int) -> list[int]:
        """Its epochs, in order."""
        return sorted(epoch for each in self.trace.index.iterators if each.loader == loader for epoch in each.epochs)

    def events(self, loader: int, epoch: int, kind: Kind) -> np.ndarray:
        """The positions of main's events of this kind, where nothing is missing before them."""
        trace = self.trace
        found = trace.index.group(trace.index.iterator_of.get(loader << 32 | epoch, -1), kind).array
        found = found[found < trace.complete]
        return found[trace.events["epoch"][found] == epoch]

    def time(self, position: int) -> int:
        """Of an event."""
        return int(self.trace.events["time"][position]) + self.offset

    def value(self, loader: int, epoch: int, kind: Kind) -> int | None:
        """What the first of these events holds; None if there is none."""
        found = self.events(loader, epoch, kind)[:1]
        return int(self.trace.events["value"][found[0]]) if len(found) else None


Loaders = dict[int, int]  # position of a rank -> the number of one of its loaders


@dataclass(frozen=True)
class Ranks:
    """The parts of a run that recorded anything, at least one."""

    path: Path
    all: list[Rank]
    together: list[Rank]  # those that train one model, by rank; of a rank that was started again, the last
    without_events: Sequence[Rank] = ()  # not in `all`: they have come to no loader

    @property
    def world_size(self) -> int:
        """How many ranks the run had, recorded or not."""
        return max([len(self.together), *(int(each.part.about.get("world_size") or 0) for each in self.together)])

    @cached_property
    def loaders(self) -> list[Loaders]:
        """The loaders of the ranks that train together, each with its counterparts on other ranks.

        Rank 0 may have more of them (it validates, say), and before the others. So they are matched by what they load,
        the n-th of one with the n-th of another; and where that leaves some over, by less and less."""
        left = [list(each.configs) for each in self.together]
        found: list[Loaders] = []
        for alike in _ALIKE:
            groups: dict[Any, list[list[int]]] = {}
            for position, rank in enumerate(self.together):
                for loader in left[position]:
                    own = groups.setdefault(alike(rank.configs[loader]), [[] for _ in self.together])
                    own[position].append(loader)
            for of_ranks in groups.values():
                for n in range(max(map(len, of_ranks))):
                    same = {position: own[n] for position, own in enumerate(of_ranks) if n < len(own)}
                    if len(same) == len(self.together) or alike is _ALIKE[-1]:
                        found.append(same)
                        for position, loader in same.items():
                            left[position].remove(loader)
        return sorted(found, key=lambda same: [same.get(position, 1 << 62) for position in range(len(self.together))])

    @cached_property
    def steps(self) -> Steps:
        """The steps that all ranks took, with the loaders that all of them have."""
        found = [np.empty((4, 0, len(self.together)), np.int64)]
        for same in self.loaders:
            if len(same) < len(self.together) or len(same) < 2:
                continue
            for epoch in sorted(set.intersection(*(set(self.together[at].epochs(of)) for at, of in same.items()))):
                columns = [_steps_of(self.together[at], of, epoch) for at, of in same.items()]
                common = min(column.shape[1] for column in columns)
                found.append(np.stack([column[:, :common] for column in columns], axis=-1))
        steps = np.concatenate(found, axis=1)
        return Steps(*steps[:, np.argsort(steps[1].max(axis=1, initial=0))])


_ALIKE: Sequence[Callable[[dict[str, Any]], Any]] = (
    lambda config: (config.get("dataset"), config.get("dataset_size"), config.get("sampler_replicas") is None),
    lambda config: (config.get("dataset"), config.get("dataset_size")),
    lambda config: config.get("dataset"),
)


def _steps_of(rank: Rank, loader: int, epoch: int) -> np.ndarray:
    """When a rank asked for each batch of an epoch, had it, was done with it, and its number: (4, n),
    -1 for not known."""
    tasks = rank.tasks_of[loader]
    tasks = tasks[(tasks["epoch"] == epoch) & (tasks["yielded"] >= 0)]
    tasks = tasks[np.argsort(tasks["yielded"])]
    begin = np.append(rank.events(loader, epoch, Kind.LOADER), rank.events(loader, epoch, Kind.EPOCH_BEGIN))[:1]
    first = rank.trace.events["time"][begin] if len(begin) else np.full(min(1, len(tasks)), -1)
    times = np.stack([np.append(first, tasks["asked"])[: len(tasks)], tasks["yielded"], tasks["asked"]])
    return np.concatenate([np.where(times >= 0, times + rank.offset, -1), [np.arange(len(tasks))]])


@dataclass(frozen=True)
class Steps:
    """The steps that all ranks took: each array is (steps, ranks), int64. -1: not known."""

    asked: np.ndarray  # for the batch; for the first of an epoch, when the epoch began
    began: np.ndarray
    ended: np.ndarray  # asked for the next batch
    number: np.ndarray  # of the batch in its epoch

    @cached_property
    def late(self) -> np.ndarray:
        """How long after each rank's the last rank's step began."""
        return self.began.max(axis=1, keepdims=True, initial=0) - self.began

    @cached_property
    def waited(self) -> np.ndarray:
        """How long each rank waited in each of its steps for the last one; 0 where ranks do not wait for each other.

        A rank that waits takes longer for its step than the last one. That cannot be seen where the last one is late
        for what it does after the exchange, at the end of each of its steps. There it shows in that the ranks stay
        together: those that do not wait for each other drift apart."""
        if not len(self.began):
            return np.zeros_like(self.late)
        took, known = self.ended - self.began, (self.ended >= 0).all(axis=1, keepdims=True)
        of_last = np.take_along_axis(took, self.began.argmax(axis=1)[:, None], axis=1)
        longer = np.where(known, np.clip(took - of_last, 0, self.late), 0)
        late = np.where(known, self.late, 0)
        if longer.sum() < MOST * late.sum() and not self._stay_together():
            return np.zeros_like(late)
        if longer.sum() < SOME * late.sum():
            finished = self.ended.min(axis=1, keepdims=True) >= self.began.max(axis=1, keepdims=True)
            return np.where(finished, late, 0)
        # Gradients may be accumulated over several steps: then only the last of these is waited in.
        waited_in = longer.max(axis=1, keepdims=True) >= SOME * late.max(axis=1, keepdims=True)
        return np.where(waited_in, late, longer)

    def _stay_together(self) -> bool:
        """Whether the ranks' distances go back to what they were. Those of ranks that do not wait for each other change
        a bit with every step, and the changes add up: over `LAG` steps to LAG times the variance, or more."""
        distance = (self.began - self.began.mean(axis=1, keepdims=True)).astype(float)
        if len(distance) < 3 * LAG:
            return False
        of_one, of_many = (np.square(distance[lag:] - distance[:-lag]).mean() for lag in (1, LAG))
        return bool(of_many < LAG / 2 * of_one)

    @property
    def synchronised(self) -> bool:
        """Whether the ranks wait for each other."""
        return bool(self.waited.any())

    def kept_waiting(self) -> np.ndarray:
        """For each rank: how long the others waited for it, on average, in the steps that it was the last to begin."""
        others = max(1, self.began.shape[1] - 1)
        last = self.began.argmax(axis=1) if len(self.began) else np.empty(0, np.int64)
        return np.bincount(last, self.waited.sum(axis=1) / others, minlength=self.began.shape[1])


def open_ranks(path: str | os.PathLike[str]) -> Ranks:
    """The run in `path`. Raises TraceError as `tracing.load` does, if none of its parts can be read; for anything else
    that cannot be read, a TraceDamage warning is issued."""
    every, found, errors = parts(path), [], list[TraceError]()
    without_events = [Rank(part, Trace(part.path), part.name) for part in ranks_without_events(path)]
    names = [part.name for part in every]
    for part in every:
        name = part.name if names.count(part.name) == 1 else f"{part.name} (pid {part.about.get('pid')})"
        try:
            found.append(Rank(part, Trace(part.path), name))
            errors += found[-1].trace.damage
        except TraceError as error:
            errors.append(error)
    if not found:
        raise errors[0]
    for damage in errors:
        warnings.warn(str(damage), TraceDamage, stacklevel=2)
    return Ranks(Path(path), found, list(_together(found)), without_events)


def _together(ranks: list[Rank]) -> Iterator[Rank]:
    last: dict[int, Rank] = {}
    for each in ranks:  # by rank, then by when they began
        if each.part.rank is not None and each.configs:
            last[each.part.rank] = each
    yield from last.values()
