"""Trainings worth stopping: each keeps its place in a way that the others do not. (See stopping.py.)"""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

import minidl
from minidl.world.simulated import step
from tests.minidl.simulated.programs import TORCHS_WAY
from tests.minidl.simulated.stopping import Training, of_worker
from tests.minidl.simulated.worth import Worth
from tests.minidl.simulated.worth_exploring import DrawsAtOnce, GoesOn, Keys, Refuses, Streams, loader


def noise() -> list[float]:
    """Random numbers of all three generators. (numpy's are uniform: of a pair of normal ones it keeps the second where
    the simulated world, which gives each process its own generator, does not find it.)"""
    return [random.gauss(0, 1), float(np.random.rand()), float(torch.rand(()))]


class Noisy(Keys):
    def __getitem__(self, key: int) -> Any:
        return [super().__getitem__(key), *noise()]


class NoisyStreams(Streams):
    """Which samples there are is a matter of chance, too."""

    def samples(self, worker_id: int) -> Iterator[Any]:
        for sample in super().samples(worker_id):
            if random.random() < 0.7:
                yield [sample, *noise()]


class Stumbles(GoesOn):
    """Its iterator raises, and goes on when it is asked again."""

    def __next__(self) -> int:
        if (number := super().__next__()) in self.fails:
            raise LookupError(f"sample {number}")
        return number


class Counting(Keys):
    """Map-style, with a state: how often it was asked."""

    asked = 0

    def __getitem__(self, key: int) -> Any:
        self.asked += 1
        return [super().__getitem__(key), self.asked]

    def state_dict(self) -> dict[str, Any]:
        step()
        return {"asked": self.asked}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        step()
        self.asked = state["asked"]


class Place:
    """An iterator with a state, which it changes in place."""

    def __init__(self, samples: list[int]) -> None:
        self.samples, self.state = samples, {"at": 0}

    def __iter__(self) -> Place:
        return self

    def __next__(self) -> int:
        step()
        if self.state["at"] == len(self.samples):
            raise StopIteration
        self.state["at"] += 1
        return self.samples[self.state["at"] - 1]

    def state_dict(self) -> dict[str, Any]:
        step()
        return self.state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.state = dict(state)


class Places(Streams):
    def samples(self, worker_id: int) -> Any:
        return Place([10 * worker_id + number for number in range(self.lengths[worker_id])])


class NoisyPlaces(Places):
    """They draw when they are opened, too."""

    def samples(self, worker_id: int) -> Any:
        class Noisy(Place):
            def __next__(self) -> Any:
                return [super().__next__(), *noise()]

        noise()
        return Noisy(super().samples(worker_id).samples)


class OwnPlace(minidl.IterableDataset[int]):
    """The dataset is its own iterator, and keeps its place. Its epochs go on where the last one has ended: whoever asks
    again after an end gets more."""

    at = 0

    def __iter__(self) -> OwnPlace:
        info = minidl.get_worker_info()
        self.worker_id = info.id if info else 0
        return self

    def __next__(self) -> int:
        step()
        self.at += 1
        if self.at % (4 + self.worker_id) == 0:
            raise StopIteration
        return 10 * self.worker_id + self.at

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = state["at"]


class Ordered(minidl.Sampler[int]):
    """It begins each epoch with another key. It knows its place, which its next iterator goes on from."""

    def __init__(self, length: int) -> None:
        self.length, self.epoch, self.at = length, 0, 0

    def __iter__(self) -> Iterator[int]:
        while self.at < self.length:
            self.at += 1
            yield (self.epoch + self.at) % self.length
        self.epoch, self.at = self.epoch + 1, 0

    def __len__(self) -> int:
        return self.length

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.epoch, self.at = state["epoch"], state["at"]


class Once(Ordered):
    """Only the first iterator after a state was loaded goes on from there; the others begin anew."""

    loaded = False

    def __iter__(self) -> Iterator[int]:
        self.at, self.loaded = self.at if self.loaded else 0, False
        while self.at < self.length:
            self.at += 1
            yield self.at % self.length

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.loaded = True


class Reversed(minidl.Sampler[int]):
    """Its iterator knows its place."""

    def __iter__(self) -> Place:
        return Place([3, 2, 1, 0])


LISTS = [[0], [3, 1], [2], [0, 0, 4]]


def building(dataset: Any = None, **options: Any) -> Any:
    """What a new process builds: with a dataset and samplers of its own."""

    def build() -> minidl.DataLoader[Any]:
        made = {name: value() if callable(value) else value for name, value in own.items()}
        return loader(dataset() if dataset else Keys(5), **made, **rest)

    own = {name: options[name] for name in ("sampler", "batch_sampler", "generator") if name in options}
    rest = {name: value for name, value in options.items() if name not in own}
    if "batch_sampler" in own:
        rest["batch_size"] = 1
    return build


def trainings() -> dict[str, Training]:
    """By name."""
    part = functools.partial
    torchs = {"environment": TORCHS_WAY}
    return {
        "in turn": Training(building()),
        "three workers, pinned": Training(
            building(part(Keys, 7), num_workers=3, prefetch_factor=1, batch_size=2, pin_memory="host"), options=torchs
        ),
        "shuffled": Training(building(part(Noisy, 5), shuffle=True), epochs=3),
        "shuffled, persistent": Training(
            building(part(Noisy, 5), shuffle=True, persistent_workers=True, batch_size=2), epochs=3
        ),
        "shuffled, serial": Training(building(part(Noisy, 5), shuffle=True, num_workers=0), epochs=3),
        "main draws, too": Training(building(part(Keys, 4), shuffle=True), draws=True, epochs=3),
        "shuffled, spawned": Training(building(part(Noisy, 4), shuffle=True), options={"start_method": "spawn"}),
        "a generator of its own": Training(
            building(part(Keys, 4), shuffle=True, generator=lambda: torch.Generator().manual_seed(7)), epochs=3
        ),
        "drawn at once, persistent": Training(
            building(part(Noisy, 4), sampler=DrawsAtOnce, batch_size=None, persistent_workers=True), epochs=3
        ),
        "every third, persistent": Training(
            building(part(Counting, 8), snapshot_every_n_steps=3, persistent_workers=True, prefetch_factor=1)
        ),
        "any order": Training(building(num_workers=3, in_order=False, prefetch_factor=1), lane=repr),
        "any order, persistent": Training(
            building(shuffle=True, in_order=False, persistent_workers=True, batch_size=2), lane=repr
        ),
        "any order, uneven streams": Training(
            building(part(Streams, (2, 0, 1)), in_order=False, num_workers=3, prefetch_factor=1), lane=of_worker
        ),
        "uneven streams": Training(
            building(part(Streams, (3, 0, 1)), num_workers=3, prefetch_factor=1), lane=of_worker
        ),
        "streams in batches": Training(building(part(Streams, (5, 4)), batch_size=2, persistent_workers=True)),
        "streams that go on after their end": Training(building(part(GoesOn, (2, 2)))),
        "noisy streams": Training(building(part(NoisyStreams, (3, 3))), lane=lambda batch: batch[0][0] // 10, epochs=3),
        "noisy streams, persistent": Training(
            building(part(NoisyStreams, (3, 3)), persistent_workers=True), lane=lambda batch: batch[0][0] // 10
        ),
        "noisy places": Training(
            building(part(NoisyPlaces, (2, 2)), persistent_workers=True), lane=lambda batch: batch[0][0] // 10
        ),
        "places": Training(building(part(Places, (3, 3)))),
        "places, persistent": Training(building(part(Places, (2, 3)), persistent_workers=True), lane=of_worker),
        "own places": Training(building(OwnPlace, persistent_workers=True), lane=of_worker, epochs=3),
        "own places, serial": Training(building(OwnPlace, num_workers=0), epochs=3),
        "counting": Training(building(part(Counting, 5))),
        "counting, persistent": Training(building(part(Counting, 4), persistent_workers=True), epochs=3),
        "counting, persistent, twice": Training(
            building(part(Counting, 3), persistent_workers=True, prefetch_factor=1), after=2
        ),
        "counting, serial": Training(building(part(Counting, 4), num_workers=0)),
        "lists": Training(building(batch_sampler=lambda: LISTS)),
        "a sampler with a state": Training(building(part(Keys, 4), sampler=part(Ordered, 4)), epochs=3),
        "a sampler with a state, in batches": Training(
            building(sampler=part(Ordered, 5), batch_size=2, persistent_workers=True), epochs=3
        ),
        "a sampler with a state, once": Training(building(part(Keys, 4), sampler=part(Once, 4)), epochs=3),
        "a sampler with places": Training(building(part(Keys, 4), sampler=Reversed)),
        "a sampler that fails": Training(building(part(Keys, 9), sampler=part(Refuses, 5))),
        "samples that fail": Training(building(part(Keys, 6, (1, 4)))),
        "samples that fail, every second": Training(building(part(Keys, 6, (0, 3)), snapshot_every_n_steps=2)),
        "samples that fail, serial": Training(building(part(Keys, 5, (0, 3)), num_workers=0)),
        "streams that fail": Training(building(part(Streams, (3, 3), (1, 12))), lane=str),
        "streams that stumble, serial": Training(building(part(Stumbles, (4,), (1, 2)), num_workers=0)),
        "left half way": Training(building(shuffle=True, persistent_workers=True), epochs=3, leaves=3),
        "left half way, one worker": Training(building(num_workers=1), leaves=2),
        "stopped by a break": Training(building(part(Keys, 5), shuffle=True), breaks=2),
        "stopped by a break, persistent": Training(
            building(part(Counting, 5), persistent_workers=True, snapshot_every_n_steps=2), breaks=3
        ),
    }


def stopping() -> dict[str, Worth]:
    """One process after another on one machine."""
    return {f"stopping: {name}": training.worth() for name, training in trainings().items()}
