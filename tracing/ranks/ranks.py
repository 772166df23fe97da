"""The ranks of a run side by side, and which of their loaders correspond.

Legend
    rank      Rank("rank 1", …)      one part of the run, and its trace
    same      {rank0: 1, rank1: 1}   rank -> its number of a loader: the same line of the script
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from minidl.events import Kind
from tracing.trace.event_index import Lane
from tracing.trace.file_reader import TraceDamage, TraceError
from tracing.trace.parts import Part, parts
from tracing.trace.trace import Trace


@dataclass(frozen=True)
class Rank:
    """One part of a run, and its trace."""

    part: Part
    trace: Trace
    name: str  # "rank 1", unique in the run

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

    def tasks_of(self, loader: int) -> np.ndarray:
        """Its rows of `trace.tasks`."""
        tasks = self.trace.tasks
        return tasks[tasks["loader"] == loader]

    def epochs(self, loader: int) -> list[int]:
        """Its epochs, in order."""
        return sorted(epoch for each in self.trace.index.iterators if each.loader == loader for epoch in each.epochs)

    def events(self, loader: int, epoch: int, kind: Kind, worker: int = -1) -> np.ndarray:
        """The positions of main's events of this kind, or of this worker's, where nothing is missing before them."""
        index = self.trace.index
        found = index.group(index.iterator_of.get(loader << 32 | epoch, -1), kind, worker=worker).array
        found = found[found < self.trace.complete]
        return found[self.trace.events["epoch"][found] == epoch]

    def keys(self, loader: int, epoch: int) -> list[Any]:
        """What its sampler drew so far; nothing if it draws no keys, as for an iterable dataset, or none that
        compare."""
        drawn = map(self.trace.text, self.events(loader, epoch, Kind.KEYS_DRAWN).tolist())
        keys = [key for each in drawn for key in (each if isinstance(each, list) else [each])]
        return keys if all(isinstance(key, (int, str)) for key in keys) else []


Loaders = dict[Rank, int]  # rank -> the number of one of its loaders
# What loaders of several ranks are matched by. Where that leaves some over, by less.
ALIKE: Sequence[Callable[[dict[str, Any]], Any]] = (
    lambda config: (config.get("dataset"), config.get("dataset_size"), config.get("sampler_replicas") is None),
    lambda config: config.get("dataset"),
)


class Ranks:
    """The parts of the run in `path` that recorded anything, at least one; or `only` one of them."""

    def __init__(self, path: str | os.PathLike[str], only: Part | None = None) -> None:
        """Raises TraceError as `tracing.load` does, if none of its parts can be read; for anything else that cannot be
        read, a TraceDamage warning is issued."""
        self.path, self.all = Path(path), list[Rank]()
        every, errors = [only] if only else parts(path), list[TraceError]()
        names = [part.name for part in every]
        for part in every:
            name = part.name if names.count(part.name) == 1 else f"{part.name} (pid {part.about.get('pid')})"
            try:
                self.all.append(Rank(part, Trace(part.path), name))
                errors += self.all[-1].trace.damage
            except TraceError as error:
                errors.append(error)
        if not self.all:
            raise errors[0]
        for damage in errors:
            warnings.warn(str(damage), TraceDamage, stacklevel=2)
        # Those whose times can be compared: each host has a clock of its own (and a container may have).
        clocks = [str(each.part.about.get("machine")).partition("/")[0] for each in self.all]
        self.on_one_clock = [each for each, clock in zip(self.all, clocks, strict=True) if clock == clocks[0]]
        # Of them those that train one model, by rank; of one that was started again, the last. Or the only process.
        last = {each.part.rank: each for each in self.on_one_clock if each.part.rank is not None and each.configs}
        self.together = list(last.values()) or self.all * (len(self.all) == 1)
        sizes = [int(each.part.about.get("world_size") or 0) for each in self.together]
        self.world_size = max([len(self.together), *sizes])  # how many ranks the run had, recorded or not

    @cached_property
    def loaders(self) -> list[Loaders]:
        """The loaders of the ranks that train together, each with its counterparts on other ranks.

        Rank 0 may have more of them (it validates, say), and before the others. So they are matched by what they load,
        the n-th of one with the n-th of another."""
        left = {(rank, loader): config for rank in self.together for loader, config in rank.configs.items()}
        found: list[Loaders] = []
        for alike in ALIKE:
            groups: dict[Any, dict[Rank, list[int]]] = {}
            for (rank, loader), config in left.items():
                groups.setdefault(alike(config), {}).setdefault(rank, []).append(loader)
            for own in groups.values():
                for n in range(max(map(len, own.values()))):
                    same = {rank: loaders[n] for rank, loaders in own.items() if n < len(loaders)}
                    if len(same) == len(self.together) or alike is ALIKE[-1]:
                        found.append(same)
                        left = {each: left[each] for each in left if each not in same.items()}
        return sorted(found, key=lambda same: [same.get(rank, 1 << 62) for rank in self.together])

    @property
    def shared(self) -> list[Loaders]:
        """Those that all of at least two ranks have."""
        return [same for same in self.loaders if len(same) == len(self.together) > 1]
