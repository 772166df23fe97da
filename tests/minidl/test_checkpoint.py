"""Stop in the middle, go on there: the batches that would have come, from a loader that was built again."""

from __future__ import annotations

import contextlib
import copy
import functools
import io
import itertools
import json
import linecache
import multiprocessing
import os
import pickle
import random
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torchdata.stateful_dataloader import StatefulDataLoader
from torchdata.stateful_dataloader import sampler as torchdata_sampler

import minidl
from minidl.checkpoint import randomness
from minidl.checkpoint.position import Position
from minidl.checkpoint.source import Source
from minidl.data.fetch import create_fetcher
from minidl.events import Kind
from tests.minidl.observing import emitted

pytestmark = pytest.mark.timeout(60)


# ---- what is loaded: every sample has random numbers of all three generators in it


def noise() -> list[float]:
    return [random.random(), random.gauss(0, 1), float(np.random.randn()), float(torch.rand(()))]


class Noisy:
    def __init__(self, length: int = 23) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, key: int) -> list[float]:
        return [float(key), *noise()]


class Counting(Noisy):
    """Map-style, with a state: how often it was asked."""

    asked = 0

    def __getitem__(self, key: int) -> list[float]:
        self.asked += 1
        return [float(key), float(self.asked)]

    def state_dict(self) -> dict[str, Any]:
        return {"asked": self.asked}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.asked = state["asked"]


def share(length: int) -> range:
    info = torch.utils.data.get_worker_info()
    worker_id, workers = (info.id, info.num_workers) if info else (0, 1)
    return range(worker_id, length + 5 * worker_id, workers)


class Stream(torch.utils.data.IterableDataset[Any]):
    """A generator, which can only be wound forward; which samples it gives is a matter of chance."""

    def __iter__(self) -> Iterator[list[float]]:
        for key in share(23):
            if random.random() < 0.8:
                yield [float(key), *noise()]


class Fixed(Stream):
    """Nothing is left to chance."""

    def __iter__(self) -> Iterator[list[float]]:
        return ([float(key)] for key in share(23))


class Place:
    """An iterator with a state. It is changed in place, so whoever keeps it must have copied it."""

    def __init__(self, keys: range) -> None:
        self.keys, self.state = keys, {"at": 0}

    def __next__(self) -> list[float]:
        if self.state["at"] == len(self.keys):
            raise StopIteration
        self.state["at"] += 1
        return [float(self.keys[self.state["at"] - 1]), *noise()]

    def __iter__(self) -> Place:
        return self

    def state_dict(self) -> dict[str, Any]:
        return self.state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.state = dict(state)


class Places(torch.utils.data.IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return Place(share(17))


class Lazy(minidl.Sampler[int]):
    """Draws each key when it is asked for it, from the process's own generator."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Iterator[int]:
        return (int(torch.randint(0, 23, ())) for _ in range(self.length))

    def __len__(self) -> int:
        return self.length


class Eager(Lazy):
    """Draws them all when it is iterated."""

    def __iter__(self) -> Iterator[int]:
        keys = list(range(23))
        random.shuffle(keys)
        return iter(keys)


DATASETS: dict[str, Callable[[], Any]] = {
    "map": Noisy,
    "counting": Counting,
    "stream": Stream,
    "places": Places,
    "fixed": Fixed,
}
SAMPLINGS: dict[str, Callable[[], dict[str, Any]]] = {
    "in turn": lambda: {"batch_size": 4},
    "shuffled": lambda: {"batch_size": 4, "shuffle": True},
    "generator": lambda: {"batch_size": 4, "shuffle": True, "generator": torch.Generator().manual_seed(5)},
    "unbatched": lambda: {"batch_size": None},
    "subset": lambda: {"batch_size": 4, "sampler": torch.utils.data.SubsetRandomSampler(range(19))},
    "replacement": lambda: {"batch_size": 3, "sampler": minidl.RandomSampler(range(23), True, 50), "drop_last": True},
    "weighted": lambda: {"batch_size": 4, "sampler": minidl.WeightedRandomSampler([1.0, 2.0] * 10, 22)},
    "batches": lambda: {"batch_sampler": minidl.BatchSampler(minidl.RandomSampler(range(23)), 5, True)},
    "lists": lambda: {"batch_sampler": [[0], [3, 1, 2], [0, 0], [6, 5], [7], [8, 9]]},
    "lazy": lambda: {"batch_size": 4, "sampler": Lazy(23)},
    "eager": lambda: {"batch_size": 4, "sampler": Eager(23)},
    "distributed": lambda: {"batch_size": 2, "sampler": minidl.DistributedSampler(range(23), 2, 1)},
}
Build = Callable[[], Any]


def builder(dataset: str, sampling: str, loaders: Any = minidl.DataLoader, **options: Any) -> Build:
    return lambda: loaders(DATASETS[dataset](), **SAMPLINGS[sampling](), **options)


def seed(number: int) -> None:
    random.seed(number)
    np.random.seed(number)
    torch.manual_seed(number)


def shown(batch: Any) -> Any:
    if isinstance(batch, torch.Tensor):
        return batch.tolist()
    return [shown(each) for each in batch] if isinstance(batch, list | tuple) else batch


END = "the end of an epoch"


def stopped(build: Build, after: int | str, epochs: int = 2) -> tuple[dict[str, Any], list[Any]]:
    """The state after some batches, "before" the first epoch, or at the "end" of one; and what came afterwards."""
    seed(1)
    loader = build()
    state = loader.state_dict() if after == "before" else None
    came: list[Any] = []
    for number in itertools.count():
        for batch in loader:
            came.append(shown(batch))
            if sum(each != END for each in came) == after:
                state, came = copy.deepcopy(loader.state_dict()), []  # torchdata's may change
                after = -1
        came.append(END)
        if after == "end":
            state, came, after = loader.state_dict(), [], -1
        if state is not None and came.count(END) >= epochs:
            return state, came
        assert number < 9


def going_on(build: Build, state: dict[str, Any], epochs: int = 2, strict: bool = True) -> list[Any]:
    seed(2)
    loader = build()
    loader.load_state_dict(state, strict=strict) if isinstance(loader, minidl.DataLoader) else loader.load_state_dict(
        state
    )
    came: list[Any] = []
    for _ in range(epochs):
        came += [shown(batch) for batch in loader]
        came.append(END)
    return came


MAP_STYLE = [(dataset, sampling) for dataset in ("map", "counting") for sampling in SAMPLINGS]
MAP_STYLE = [each for number, each in enumerate(MAP_STYLE) if each[0] == "map" or number % 3 == 0]
STREAMS = list(itertools.product(["stream", "places"], ["in turn", "unbatched"]))
OPTIONS: list[dict[str, Any]] = [
    {},
    {"num_workers": 1},
    {"num_workers": 2, "persistent_workers": True},
    {"num_workers": 2, "pin_memory": "host", "transport": "torch", "prefetch_factor": 3},
    {"num_workers": 3, "snapshot_every_n_steps": 2},
]


WHOLE = [(each, OPTIONS[2]) for each in [*MAP_STYLE, *STREAMS]]  # each in main, too, where it is quick
WHOLE += [(each, options) for each in [("map", "generator"), *STREAMS] for options in OPTIONS]


def more(ways: tuple[str, str], options: dict[str, Any]) -> Any:
    """`make full` also tries what differs from these in two things."""
    full = bool(options) and (ways, options) not in WHOLE
    return pytest.param(*ways, options, marks=[pytest.mark.full] * full, id=f"{'-'.join(ways)}-{options}")


@pytest.mark.parametrize(
    ("dataset", "sampling", "options"),
    [more(ways, options) for options in OPTIONS for ways in [*MAP_STYLE, *STREAMS]],
)
def test_what_would_have_come_comes(dataset: str, sampling: str, options: dict[str, Any]) -> None:
    """Random numbers included, in this epoch and in the next, and with a state that has been written as JSON."""
    build = builder(dataset, sampling, **options)
    for after in ("before", 1, 3, "end"):
        state, came = stopped(build, after)
        assert going_on(build, json.loads(json.dumps(state))) == came, after


@pytest.mark.parametrize("options", [OPTIONS[0], OPTIONS[2]], ids=str)
@pytest.mark.parametrize(("dataset", "sampling"), [("map", "shuffled"), ("stream", "in turn"), ("places", "in turn")])
def test_after_any_number_of_batches(dataset: str, sampling: str, options: dict[str, Any]) -> None:
    build = builder(dataset, sampling, **options)
    for after in range(1, 15):  # into the third epoch
        state, came = stopped(build, after)
        assert going_on(build, pickle.loads(pickle.dumps(state))) == came, after


@pytest.mark.parametrize("workers", [0, 2])
def test_between_two_snapshots(workers: int) -> None:
    build = builder("map", "shuffled", num_workers=workers, snapshot_every_n_steps=3)
    for after in (1, 2, 4, 5):
        state, came = stopped(build, after)
        assert going_on(build, state) == came, after


def test_keys_that_were_drawn_when_the_sampler_was_iterated_are_drawn_again() -> None:
    def build() -> Any:
        return minidl.DataLoader(Noisy(), batch_size=None, sampler=Eager(23))

    state, came = stopped(build, 3)
    assert going_on(build, state) == came


def test_a_state_is_followed_by_another() -> None:
    build = builder("map", "generator", num_workers=2)
    _, came = stopped(build, 1)
    state, _ = stopped(build, 1)
    for _ in range(4):
        seed(3)
        loader = build()
        loader.load_state_dict(state)
        assert loader.state_dict() == state
        for batch in loader:
            assert shown(batch) == came.pop(0)
            break
        state = loader.state_dict()  # the iterator is gone


@pytest.mark.parametrize("workers", [0, 2])
def test_whoever_seeds_before_each_epoch_gets_the_same_epochs(workers: int) -> None:
    build = builder("map", "shuffled", num_workers=workers)

    def epochs(loader: Any, numbers: range) -> list[Any]:
        came = []
        for number in numbers:
            seed(100 + number)
            came += [shown(batch) for batch in loader]
        return came

    loader = build()
    epochs(loader, range(1))
    state = loader.state_dict()
    again = build()
    again.load_state_dict(state)
    assert epochs(again, range(1, 3)) == epochs(loader, range(1, 3))


@pytest.mark.parametrize("workers", [0, 2])
def test_two_loaders_go_on_side_by_side(workers: int) -> None:
    """Trained and validated in turn, saved at once: the second does not put back what the first has drawn since."""
    seed(1)
    train, check = (builder("map", "shuffled", num_workers=workers)() for _ in range(2))
    iterator = iter(train)
    next(iterator)
    list(check)
    states = train.state_dict(), check.state_dict()
    came = [[shown(batch) for batch in loader] for loader in (iterator, check, train, check)]
    seed(2)
    train, check = (builder("map", "shuffled", num_workers=workers)() for _ in range(2))
    train.load_state_dict(states[0])
    check.load_state_dict(states[1])
    assert [[shown(batch) for batch in loader] for loader in (train, check, train, check)] == came


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("dataset", ["map", "stream", "places"])
def test_what_is_drawn_after_a_state_was_loaded_stays_drawn(dataset: str, workers: int) -> None:
    build = builder(dataset, "in turn", num_workers=workers)
    state, _ = stopped(build, 2)
    build().load_state_dict(state)
    drawn = [noise(), noise()]
    loader = build()
    loader.load_state_dict(state)
    assert noise() == drawn[0]
    iterator = iter(loader)
    assert noise() == drawn[1]
    del iterator


def test_batches_are_counted_on_with_other_workers() -> None:
    """Also those since the last snapshot, which are made again."""
    state, _ = stopped(builder("map", "in turn", num_workers=2, snapshot_every_n_steps=2), 3)
    loader = builder("map", "in turn")()
    loader.load_state_dict(state, strict=False)
    next(iter(loader))
    assert loader.state_dict()["_num_yielded"] == 4


class Growing(Counting):
    """Each sample adds one: the next epoch has more. What an epoch has is settled as it begins."""

    def __len__(self) -> int:
        return self.length + self.asked


def test_the_sampler_of_a_dataset_that_grows_goes_on_in_its_epoch() -> None:
    state, came = stopped(lambda: minidl.DataLoader(Growing(7), shuffle=True), 3, epochs=1)
    loader = minidl.DataLoader(Growing(7), shuffle=True)
    loader.load_state_dict(state)
    assert [shown(batch) for batch in loader] == came[: came.index(END)]


def test_a_sampler_that_draws_from_torchs_default_generator_now_goes_on_as_with_its_own() -> None:
    def build(generator: torch.Generator) -> Any:
        return minidl.DataLoader(range(12), batch_size=2, shuffle=True, generator=generator)

    state, came = stopped(lambda: build(torch.Generator().manual_seed(5)), 3, epochs=1)
    assert going_on(lambda: build(torch.default_generator), state, epochs=1) == came


def test_what_becomes_of_a_state_that_was_loaded_is_its_owners_affair() -> None:
    build = builder("counting", "in turn")
    state, came = stopped(build, 3)
    loader = build()
    loader.load_state_dict(state)
    state.clear()
    assert [shown(batch) for batch in loader] == came[: came.index(END)]


def test_a_map_style_dataset_does_not_go_on_as_a_stream() -> None:
    for kinds in (("map", "fixed"), ("fixed", "map")):
        state, _ = stopped(builder(kinds[0], "in turn"), 2)
        other = builder(kinds[1], "in turn")()
        other.load_state_dict(state)
        with pytest.raises(ValueError, match="map-style"):
            iter(other)


def test_a_state_says_nothing_of_workers_that_draw_nothing() -> None:
    iterator = iter(loader := minidl.DataLoader(range(6), num_workers=2))
    for _ in range(3):
        next(iterator)
    assert loader.state_dict()["_snapshot"]["_worker_snapshots"] == {"worker_0": None, "worker_1": None}


class Still(Counting):
    """It has a state, which stays what it is."""

    def __getitem__(self, key: int) -> list[float]:
        return [float(key)]


def test_a_state_says_nothing_of_workers_that_have_not_moved() -> None:
    loader = minidl.DataLoader(Still(), num_workers=1)
    iterator = iter(loader)
    next(iterator)
    assert loader.state_dict()["_snapshot"]["_worker_snapshots"] == {"worker_0": None}


class OwnPlace(torch.utils.data.IterableDataset[Any]):
    """Its own iterator."""

    at = 0

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> int:
        self.at += 1
        return self.at

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = state["at"]


def test_a_state_says_nothing_twice() -> None:
    """Of a stream whose iterator has a state, neither how to wind it forward, nor the dataset's if that is the same."""
    loader = builder("places", "in turn", num_workers=1)()
    iterator = iter(loader)
    next(iterator)
    place = loader.state_dict()["_snapshot"]["_worker_snapshots"]["worker_0"]
    assert {**place, "minidl": [*place["minidl"]]} == {
        "worker_id": 0,
        "dataset_state": None,
        "fetcher_state": {"dataset_iter_state": {"at": 4}, "fetcher_ended": False},
        "minidl": ["random"],
    }
    assert [*place["minidl"]["random"]] == ["python", "numpy", "torch"]
    assert len(loader.state_dict()["minidl"]["sampler_begun_with"]) == 2  # when it was iterated, and first asked
    loader = minidl.DataLoader(OwnPlace(), num_workers=0)
    next(iter(loader))
    state = loader.state_dict()
    assert (state["dataset_state"], state["fetcher_state"]["dataset_iter_state"]) == (None, {"at": 1})


class Asked(Counting):
    """Its samples are how often it was asked for its state, which may take long."""

    def __getitem__(self, key: int) -> list[float]:
        return [float(self.asked)]

    def state_dict(self) -> dict[str, Any]:
        self.asked += 1
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


@pytest.mark.parametrize("workers", [1, 2])
def test_a_worker_is_asked_for_its_place_once_for_each_snapshot(workers: int) -> None:
    """And when it begins."""
    loader = minidl.DataLoader(Asked(12), None, num_workers=workers, snapshot_every_n_steps=4)
    assert "".join(f"{count:.0f}" for (count,) in loader) == "111122223333"


def source_of(dataset: Any) -> Source:
    """As a worker has it when it begins."""
    source = Source(dataset, functools.partial(create_fetcher, dataset, False, list, False), None)
    source.begin()
    return source


def test_a_worker_sends_of_its_place_what_has_changed() -> None:
    source, sent = source_of(Counting()), []
    for draw in (lambda: None, random.random, random.random, lambda: torch.rand(()), lambda: None):
        draw()
        sent.append([*source.news()])
    assert sent == [[], ["python", "numpy", "torch", "place"], ["python"], ["torch"], []]


def called_by(function: Callable[[], object]) -> set[Any]:
    """The code of the Python functions that this one calls."""
    codes = set()
    sys.setprofile(lambda frame, event, argument: codes.add(frame.f_code))
    try:
        function()
    finally:
        sys.setprofile(None)
    return codes


def test_where_nothing_was_drawn_no_state_is_read() -> None:
    """It would take longer than making a small batch."""
    source, read = source_of(Noisy()), randomness.read.__code__
    assert read not in called_by(source.news)
    noise()
    assert read in called_by(source.news)


def test_pythons_state_is_read_from_memory() -> None:
    """getstate() takes longer than making a small batch."""
    usual = random.Random.getstate.__code__
    assert usual in called_by(random.getstate) and usual not in called_by(randomness.read)


def test_a_state_does_not_change_when_the_loader_goes_on() -> None:
    for workers in (0, 2):
        loader = builder("places", "in turn", num_workers=workers)()
        iterator = iter(loader)
        next(iterator)
        state = loader.state_dict()
        before = json.dumps(state)
        next(iterator)
        assert json.dumps(state) == before


class Slow(Noisy):
    """Worker 0 is slow, so that without order its batches come late."""

    def __getitem__(self, key: int) -> float:
        info = torch.utils.data.get_worker_info()
        time.sleep(0.05 if info and info.id == 0 else 0)
        return float(key)


@pytest.mark.parametrize("after", [1, 3, 6])
def test_without_order_nothing_is_lost_or_doubled(after: int) -> None:
    def build() -> Any:
        return minidl.DataLoader(Slow(), 2, True, num_workers=3, in_order=False, prefetch_factor=3)

    loader = build()
    before = [key for batch in itertools.islice(loader, after) for key in batch.tolist()]
    came = going_on(build, loader.state_dict(), epochs=1)[:-1]
    assert sorted([*before, *(key for batch in came for key in batch)]) == list(range(23))


@pytest.mark.parametrize("workers", [0, 2])
def test_the_error_of_a_batch_is_not_raised_again(workers: int) -> None:
    class Failing(Noisy):
        def __getitem__(self, key: int) -> list[float]:
            if key == 5:
                raise ValueError("five")
            return super().__getitem__(key)

    def build() -> Any:
        return minidl.DataLoader(Failing(), 2, num_workers=workers)

    seed(1)
    loader = build()
    iterator = iter(loader)
    next(iterator), next(iterator)
    for _ in range(2):
        state = loader.state_dict()
        seed(2)
        second = build()
        second.load_state_dict(state)
        if _ == 0:
            with pytest.raises(ValueError, match="five"):
                next(iter(second))
            with pytest.raises(ValueError, match="five"):
                next(iterator)
        else:
            assert [shown(batch)[0] for batch in second] == [shown(batch)[0] for batch in iterator]


# ---- torchdata


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("dataset", "sampling"),
    [
        ("counting", "in turn"),
        ("counting", "generator"),
        ("counting", "shuffled"),
        ("counting", "unbatched"),
        ("fixed", "in turn"),
        ("fixed", "unbatched"),
        *STREAMS[2:],
    ],
)
@pytest.mark.parametrize("after", [1, 3])
def test_torchdata_and_minidl_go_on_from_each_others_states(
    dataset: str, sampling: str, workers: int, after: int
) -> None:
    """Without the random numbers of the samples, which torchdata does not keep."""

    def keys(came: list[Any]) -> list[Any]:
        return [np.asarray(batch)[..., 0].tolist() if sampling == "unbatched" else batch[0] for batch in came[:-1]]

    ours = builder(dataset, sampling, num_workers=workers)
    theirs = builder(dataset, sampling, StatefulDataLoader, num_workers=workers)
    for first, second in ((ours, theirs), (theirs, ours)):
        state, came = stopped(first, after, epochs=1)
        file = io.BytesIO()
        torch.save(state, file)
        file.seek(0)
        assert keys(going_on(second, torch.load(file), epochs=1)) == keys(came)


def test_a_stream_of_torchdatas_goes_on_between_two_snapshots() -> None:
    def build(loaders: Any) -> Build:
        return builder("fixed", "in turn", loaders, num_workers=2, snapshot_every_n_steps=2)

    state, came = stopped(build(StatefulDataLoader), 3, epochs=1)
    assert state["_steps_since_snapshot"] == 1
    assert going_on(build(minidl.DataLoader), state, epochs=1) == came


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("sampling", ["generator", "shuffled", "weighted"])
@pytest.mark.parametrize("after", [0, 2])
def test_what_torchdata_has_shuffled_is_stopped_and_goes_on_again(sampling: str, workers: int, after: int) -> None:
    state, _ = stopped(builder("counting", sampling, StatefulDataLoader, num_workers=workers), 1, epochs=1)
    build = builder("counting", sampling, num_workers=workers)
    for _ in range(2):
        loader = build()
        loader.load_state_dict(state)
        iterator = iter(loader)
        for _ in range(after):
            next(iterator)
        state = loader.state_dict()
        rest = [shown(batch)[0] for batch in iterator]
        seed(5)
        assert [batch[0] for batch in going_on(build, state, epochs=1)[:-1]] == rest
        assert rest


def test_what_torchdata_has_shuffled_more_than_once_goes_on_from_any_key() -> None:
    """The generator, which others draw from, too, is put back to where it was, though a new order may come next."""

    def build(loaders: Any = minidl.DataLoader, samplers: Any = minidl) -> Any:
        generator = torch.Generator().manual_seed(7)
        sampler = samplers.RandomSampler(range(3), False, 12, generator)
        return loaders(range(3), batch_size=None, sampler=sampler, generator=generator)

    state, _ = stopped(lambda: build(StatefulDataLoader, torchdata_sampler), 1, epochs=1)
    for after in range(11):
        loader = build()
        loader.load_state_dict(state)
        iterator = iter(loader)
        for _ in range(after):
            next(iterator)
        assert [*going_on(build, loader.state_dict(), epochs=1)] == [*iterator, END], after


def test_what_torchdata_has_shuffled_is_not_shuffled_anew() -> None:
    """Whoever draws from the same generator before the first batch does not change the order."""

    def build(loaders: Any) -> Any:
        return loaders(range(9), batch_size=None, shuffle=True, generator=torch.Generator().manual_seed(7))

    theirs, ours = build(StatefulDataLoader), build(minidl.DataLoader)
    iterator = iter(theirs)
    ours.load_state_dict(theirs.state_dict())
    goes_on = iter(ours)
    torch.rand((), generator=ours.generator)
    assert list(goes_on) == list(iterator)


def test_an_epoch_that_torchdata_began_does_not_grow() -> None:
    """All its keys are drawn: of a dataset that is longer now, no more come."""

    def build(length: int, loaders: Any = minidl.DataLoader) -> Any:
        return loaders(range(length), batch_size=None, shuffle=True, num_workers=1)

    loader = build(5)
    loader.load_state_dict(stopped(lambda: build(5, StatefulDataLoader), 1, epochs=1)[0])
    iterator = iter(loader)
    for _ in range(4):
        next(iterator)
    again = build(7)
    again.load_state_dict(loader.state_dict())
    assert list(again) == []


def test_torchdata_knows_no_place_in_torchs_own_batches() -> None:
    def build(loaders: Any = minidl.DataLoader) -> Any:
        return loaders(range(9), batch_sampler=torch.utils.data.BatchSampler(range(9), 2, False))

    state, came = stopped(lambda: build(StatefulDataLoader), 2, epochs=1)
    assert going_on(build, state, epochs=1) == came


def test_torchdata_and_minidl_then_other_ranks() -> None:
    """What all have taken is what torchdata's batches had, too."""

    def loader(ranks: int, rank: int, loaders: Any = minidl.DataLoader) -> Any:
        sampler = torchdata_sampler.StatefulDistributedSampler(range(41), ranks, rank, shuffle=False)
        return loaders(range(41), 2, sampler=sampler, collate_fn=list)

    state, _ = stopped(lambda: loader(2, 0, StatefulDataLoader), 3, epochs=1)
    first = loader(2, 0)
    first.load_state_dict(state)
    assert next(iter(first)) == [12, 14]
    left = []
    for rank in range(3):
        again = loader(3, rank)
        again.load_state_dict(first.state_dict(), strict=False)
        left += [key for batch in again for key in batch]
    assert sorted(set(left) - {0, 1}) == [*range(16, 41)]  # of 25, each rank has nine: two come once more


# ---- as frameworks use it (tests/wild tries it with them)


@pytest.mark.parametrize("options", OPTIONS[:3], ids=str)
@pytest.mark.parametrize(("dataset", "sampling"), [("map", "shuffled"), ("map", "generator"), ("counting", "lazy")])
def test_one_who_counts_the_batches_can_say_that_the_epoch_is_over(
    dataset: str, sampling: str, options: dict[str, Any]
) -> None:
    """Lightning and transformers ask for as many batches as there are, and never for the StopIteration."""
    build = builder(dataset, sampling, **options)
    seed(1)
    loader = build()
    iterator = iter(loader)
    for _ in range(len(loader)):
        next(iterator)
    over = loader.state_dict()
    came = [shown(batch) for batch in loader]
    assert len(came) == len(loader)
    assert going_on(build, over, epochs=1) == [END]
    assert going_on(build, {**over, "_iterator_finished": True}, epochs=1) == [*came, END]


@pytest.mark.parametrize("options", OPTIONS[:3], ids=str)
def test_an_iterator_that_was_made_to_see_whether_one_can_be_made_changes_nothing(options: dict[str, Any]) -> None:
    """Lightning makes one of any loader that isn't torch's, before it gives it a state."""
    build = builder("map", "shuffled", **options)
    state, came = stopped(build, 3)

    def looked_at() -> Any:
        loader = build()
        iter(loader)
        return loader

    assert going_on(looked_at, state) == came


# ---- other numbers


@pytest.mark.parametrize(("then", "now"), [(0, 2), (2, 0), (2, 3)])
def test_another_number_of_workers(then: int, now: int) -> None:
    state, came = stopped(builder("map", "shuffled", num_workers=then), 3, epochs=1)
    build = builder("map", "shuffled", num_workers=now)
    with pytest.raises(AssertionError, match=f"num_workers={then}, and this one has {now}"):
        going_on(build, state)
    assert [batch[0] for batch in going_on(build, state, 1, strict=False)[:-1]] == [batch[0] for batch in came[:-1]]
    with pytest.raises(ValueError, match="a stream of its own"):
        going_on(builder("stream", "in turn", num_workers=now), stopped_stream(then), strict=False)


def test_with_fewer_workers_a_state_says_nothing_of_the_others() -> None:
    state, _ = stopped(builder("map", "in turn", num_workers=2), 3)
    loader = builder("map", "in turn", num_workers=1)()
    loader.load_state_dict(state, strict=False)
    iterator = iter(loader)
    snapshot = loader.state_dict()["_snapshot"]
    assert ([*snapshot["_worker_snapshots"]], snapshot["_last_yielded_worker_id"]) == (["worker_0"], 0)
    del iterator


def stopped_stream(workers: int) -> dict[str, Any]:
    return stopped(builder("stream", "in turn", num_workers=workers), 1)[0]


@pytest.mark.parametrize("samplers", [minidl, torch.utils.data], ids=["minidl", "torch"])
@pytest.mark.parametrize(("then", "now"), [(2, 3), (4, 1), (1, 4)])
def test_another_number_of_ranks(samplers: Any, then: int, now: int) -> None:
    """The keys that nobody has taken are shared anew, in the order of the epoch, each once but for the padding."""

    def loader(ranks: int, rank: int) -> Any:
        sampler = samplers.DistributedSampler(range(41), ranks, rank, seed=3)
        sampler.set_epoch(2)
        return minidl.DataLoader(range(41), 2, sampler=sampler, num_workers=2, collate_fn=list)

    taken, states = [], []
    for rank in range(then):
        stopped_loader = loader(then, rank)
        taken += [key for batch in itertools.islice(stopped_loader, 3) for key in batch]
        states.append(stopped_loader.state_dict())
    left = []
    for rank in range(now):
        again = loader(now, rank)
        again.load_state_dict(states[0], strict=False)
        left.append([key for batch in again for key in batch])
    assert len({len(share) for share in left}) == 1
    assert set(taken).isdisjoint(itertools.chain(*left)) or len(taken) + sum(map(len, left)) > 41
    assert {*taken, *itertools.chain(*left)} == set(range(41))
    assert sum(map(len, left)) - (41 - len(set(taken))) < now


@pytest.mark.parametrize("samplers", [minidl, torch.utils.data], ids=["minidl", "torch"])
@pytest.mark.parametrize("workers", [0, 2])
def test_the_state_of_one_rank_serves_all_in_its_epoch(samplers: Any, workers: int) -> None:
    """As Lightning uses it: rank 0 saves, every rank loads that, and `set_epoch` is called after `iter`."""

    def loader(rank: int, epoch: int) -> Any:
        sampler = samplers.DistributedSampler(range(41), 2, rank)
        sampler.set_epoch(epoch)
        return minidl.DataLoader(range(41), 2, sampler=sampler, num_workers=workers, collate_fn=list)

    first = loader(0, 3)
    wanted = [list(first)[4:], list(loader(1, 3))[4:]]
    iterator = iter(first)
    for _ in range(4):
        next(iterator)
    for rank in range(2):
        again = loader(rank, 0)
        again.load_state_dict(first.state_dict())
        iterator = iter(again)
        again.sampler.set_epoch(3)
        assert list(iterator) == wanted[rank]


@pytest.mark.parametrize("after", [0, 2])
def test_a_state_tells_the_epoch_that_its_batches_are_of(after: int) -> None:
    """Also one of a process that has only gone on, and one that was saved when the next epoch was set already."""

    def loader(epoch: int, state: Any = None) -> Any:
        sampler = minidl.DistributedSampler(range(8), 1, 0)
        sampler.set_epoch(epoch)
        loader = minidl.DataLoader(range(8), sampler=sampler)
        loader.load_state_dict(state or {})
        return loader

    first = loader(3)
    wanted = [shown(batch) for batch in first]
    first.sampler.set_epoch(3 if not after else 0)
    iterator = iter(first)
    if after:
        first.sampler.set_epoch(3)  # as Lightning does
        next(iterator)
        first.sampler.set_epoch(4)
        next(iterator)
    second = loader(0, first.state_dict())
    iterator = iter(second)
    third = loader(0, second.state_dict())
    assert [shown(batch) for batch in third] == [shown(batch) for batch in iterator] == wanted[after:]


class Restless(Lazy):
    """Whoever asks for its epoch draws a random number."""

    def __iter__(self) -> Iterator[int]:
        first = int(torch.randint(0, 23, ()))

        def keys() -> Iterator[int]:
            yield from ((first + key) % 23 for key in torch.randperm(self.length).tolist())

        return keys()

    def set_epoch(self, epoch: int) -> None:
        pass

    @property
    def epoch(self) -> float:
        return random.random() + float(torch.rand(()))


def test_what_a_sampler_draws_when_it_is_asked_for_its_epoch_is_not_drawn_again() -> None:
    def build() -> Any:
        return minidl.DataLoader(Noisy(), None, sampler=Restless(23))

    for after in (1, 3):
        state, came = stopped(build, after)
        assert going_on(build, state) == came, after


class Epochs(minidl.Sampler[int]):
    """Its iterator knows its place, in the epoch that it has begun."""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Any:
        class Iterating(Place):
            def __next__(self) -> Any:
                return int(super().__next__()[0]) % 9

        return Iterating(range(self.epoch, self.epoch + 9))


def test_the_epoch_that_is_set_after_a_place_was_found_is_not_its_own() -> None:
    loaders = [minidl.DataLoader(range(9), sampler=Epochs()) for _ in range(3)]
    loaders[0].sampler.set_epoch(3)
    iterators = [iter(loaders[0])]
    next(iterators[0])
    for last, loader in itertools.pairwise(loaders):
        loader.load_state_dict(last.state_dict())
        iterators.append(iter(loader))
        loader.sampler.set_epoch(0)  # as Lightning does
        next(iterators[-1])
    assert [shown(batch) for batch in iterators[2]] == [[key % 9] for key in range(6, 12)]


class Resuming(Lazy):
    """It knows its place, and begins anew when it is told an epoch."""

    epoch = at = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch, self.at = epoch, 0

    def __iter__(self) -> Iterator[int]:
        while self.at < self.length:
            self.at += 1
            yield (self.epoch + self.at) % self.length
        self.at = 0

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = state["at"]


@pytest.mark.parametrize("after", [2, 6])
def test_a_sampler_is_told_its_epoch_before_its_place(after: int) -> None:
    first = minidl.DataLoader(range(6), sampler=Resuming(6))
    first.sampler.set_epoch(3)
    iterator = iter(first)
    for _ in range(after):
        next(iterator)
    again = minidl.DataLoader(range(6), sampler=Resuming(6))
    again.load_state_dict(first.state_dict())
    assert [shown(batch) for batch in again] == [shown(batch) for batch in iterator]


def test_the_rank_is_the_samplers_and_else_the_processs() -> None:
    def rank(sampler: Any) -> int | None:
        return minidl.DataLoader(range(4), sampler=sampler).state_dict()["minidl"]["rank"]

    shared = minidl.DistributedSampler(range(4), 2, 1)
    assert (rank(range(4)), rank(shared)) == (None, 1)
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        assert (rank(range(4)), rank(shared)) == (0, 1)
    finally:
        torch.distributed.destroy_process_group()


def test_a_torch_without_ranks_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Built so, it has nothing in torch.distributed but is_available()."""
    monkeypatch.setattr(torch.distributed, "is_available", lambda: False)
    monkeypatch.delattr(torch.distributed, "is_initialized")
    assert minidl.DataLoader(range(4)).state_dict()["minidl"]["rank"] is None


def test_without_order_a_state_of_another_rank_is_refused() -> None:
    def loader(rank: int) -> Any:
        sampler = minidl.DistributedSampler(range(46), 2, rank, shuffle=False)
        return minidl.DataLoader(Slow(), 2, sampler=sampler, num_workers=3, in_order=False, prefetch_factor=3)

    first = loader(0)
    iterator = iter(first)
    for _ in range(3):
        next(iterator)  # worker 0 is slow: some that were drawn later have come
    again = loader(1)
    again.load_state_dict(first.state_dict())
    with pytest.raises(ValueError, match="the state is of another rank"):
        iter(again)


# ---- what goes wrong


class Refusing(Places):
    """Its iterator cannot tell its place after the sixth sample."""

    def __iter__(self) -> Iterator[Any]:
        class Iterating(Place):
            def state_dict(self) -> dict[str, Any]:
                if self.state["at"] == 6:
                    raise KeyError("no place")
                return self.state

        return Iterating(range(9))


def test_an_error_of_the_users_state_dict_is_raised_in_main_and_again() -> None:
    loader = minidl.DataLoader(Refusing(), 2, num_workers=1)
    iterator = iter(loader)
    first = [shown(next(iterator)), shown(next(iterator))]
    state = loader.state_dict()
    with pytest.raises(KeyError, match="asked for its state"):
        next(iterator)
    with pytest.raises(RuntimeError, match="no place"):
        next(iterator)
    last = loader.state_dict()  # is usable
    assert last["_snapshot"]["_worker_snapshots"] == state["_snapshot"]["_worker_snapshots"]
    assert last["_snapshot"]["_snapshot_step"] == len(first) == 2


class RefusesAtFirst(Counting):
    """It has no state before it is asked for a sample; then one that it comes back to."""

    def __getitem__(self, key: int) -> list[float]:
        found = super().__getitem__(key)
        self.asked %= 3
        return found

    def state_dict(self) -> dict[str, Any]:
        if not hasattr(self, "begun"):
            self.begun = True
            raise KeyError("no place")
        return super().state_dict()


def test_a_worker_that_could_not_tell_its_place_tells_it_later() -> None:
    def build() -> Any:
        return minidl.DataLoader(RefusesAtFirst(), num_workers=1)

    state, came = stopped(build, 3)
    assert going_on(build, state) == came


class Toggling(Counting):
    """Its state is soon what it was."""

    def __getitem__(self, key: int) -> list[float]:
        self.asked = 1 - self.asked
        return [float(key), float(self.asked)]


def test_a_place_that_a_worker_comes_back_to_is_told_again() -> None:
    def build() -> Any:
        return minidl.DataLoader(Toggling(), num_workers=1)

    for after in (2, 3):
        state, came = stopped(build, after)
        assert going_on(build, state) == came, after


class OnlyTells(Fixed):
    def state_dict(self) -> dict[str, Any]:
        raise AssertionError("nobody can give it back")


class OnlyTakes(Fixed):
    def load_state_dict(self, state: dict[str, Any]) -> None:
        raise AssertionError("nobody can have asked for it")


@pytest.mark.parametrize("dataset", [OnlyTells, OnlyTakes])
def test_half_a_way_to_keep_a_place_is_none(dataset: Any) -> None:
    state, came = stopped(lambda: minidl.DataLoader(dataset()), 2)
    assert going_on(lambda: minidl.DataLoader(dataset()), state) == came


class Moving(torch.utils.data.IterableDataset[Any]):
    """It knows its place; its iterator is a generator."""

    at = 0

    def __iter__(self) -> Iterator[int]:
        while self.at < 9:
            self.at += 1
            yield self.at

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = state["at"]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_stream_whose_dataset_knows_its_place_is_not_wound_forward(workers: int) -> None:
    def build() -> Any:
        return minidl.DataLoader(Moving(), num_workers=workers)

    state, came = stopped(build, 3, epochs=1)
    assert going_on(build, state, epochs=1) == came


class Fails(minidl.Sampler[int]):
    fails = False

    def __iter__(self) -> Iterator[int]:
        if self.fails:
            raise OSError("no keys today")
        keys = list(range(9))
        random.shuffle(keys)
        return iter(keys)


class LooksAhead(Lazy):
    """It has a state, which says nothing, and draws."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


@pytest.mark.parametrize("workers", [0, 1])
def test_what_is_drawn_to_see_whether_a_sampler_is_at_its_end_is_not_gone(workers: int) -> None:
    def build() -> Any:
        return minidl.DataLoader(Noisy(), 4, sampler=LooksAhead(23), num_workers=workers)

    state, came = stopped(build, "end")
    assert going_on(build, state) == came


class LooksAheadAtOnce(Eager):
    state_dict, load_state_dict = LooksAhead.state_dict, LooksAhead.load_state_dict


def test_what_is_drawn_to_see_whether_a_sampler_is_at_its_end_comes_before_its_keys() -> None:
    def build() -> Any:
        return minidl.DataLoader(range(23), None, sampler=LooksAheadAtOnce(23))

    seed(1)
    loader = build()
    iterator = iter(loader)
    assert going_on(build, loader.state_dict(), epochs=1) == [*iterator, END]


class Turning(minidl.Sampler[int]):
    """Each of its iterators gives other keys, and knows them."""

    def __init__(self) -> None:
        self.turns = 0

    def __iter__(self) -> Any:
        class Iterating(Place):
            def __next__(self) -> Any:
                return (int(super().__next__()[0]) + self.state["turn"]) % 9

        self.turns += 1
        iterator = Iterating(range(9))
        iterator.state["turn"] = self.turns
        return iterator


@pytest.mark.parametrize("batch_size", [None, 2])
@pytest.mark.parametrize("workers", [0, 1])
def test_the_keys_are_those_that_the_samplers_iterator_tells(batch_size: int | None, workers: int) -> None:
    sampler = Turning()
    loader = minidl.DataLoader(range(9), batch_size, sampler=sampler, num_workers=workers)
    list(loader)
    iterator = iter(loader)
    next(iterator)
    next(iterator)
    again = minidl.DataLoader(range(9), batch_size, sampler=Turning(), num_workers=workers)
    again.load_state_dict(loader.state_dict())
    assert [shown(batch) for batch in again] == [shown(batch) for batch in iterator]


@pytest.mark.parametrize("batch_size", [None, 1])
def test_a_sampler_that_cannot_be_iterated_leaves_the_last_state_usable(batch_size: int | None) -> None:
    """Be it asked at once, or as the first batch is."""

    def build() -> Any:
        return minidl.DataLoader(range(9), batch_size, sampler=Fails(), num_workers=1, persistent_workers=True)

    state, came = stopped(build, 1, epochs=1)
    seed(1)
    loader = build()
    next(iter(loader))
    loader.sampler.fails = True
    with pytest.raises(OSError, match="no keys today"):
        iter(loader)
    assert loader.state_dict() == state
    assert going_on(build, state, epochs=1) == came


class RefusesLater(Counting):
    """It cannot tell its place once it was asked for three samples."""

    def state_dict(self) -> dict[str, Any]:
        if self.asked > 2:
            raise KeyError("no place")
        return super().state_dict()


def test_an_epoch_that_cannot_begin_leaves_the_last_state_usable() -> None:
    """The worker makes batches 1 and 2 ahead, and cannot tell main where it is as the second epoch begins."""
    loader = minidl.DataLoader(RefusesLater(6), shuffle=True, num_workers=1, persistent_workers=True)
    iterator = iter(loader)
    first = shown(next(iterator))
    with pytest.raises(KeyError, match="asked for its state"):
        iter(loader)
    with pytest.raises(RuntimeError, match="no place"):
        next(iterator)
    again = minidl.DataLoader(Counting(6), shuffle=True, num_workers=1, persistent_workers=True)
    again.load_state_dict(loader.state_dict())
    keys, asked = np.array([first, *(shown(batch) for batch in again)])[..., 0].T.tolist()
    assert (sorted(keys), asked) == ([*range(6)], [1, 2, 3, 4, 5, 6])


def test_a_state_before_any_epoch_is_no_event_of_one() -> None:
    loader = minidl.DataLoader(range(4))
    with emitted() as events:
        assert loader.state_dict()["_sampler_iter_yielded"] == 0
        iter(loader)
        loader.state_dict()
    assert [event[1] > 0 for event in events if event[0] == Kind.STATE_TAKEN] == [True]


def test_a_loader_is_asked_for_its_state_before_its_sampler() -> None:
    class Refuses(LooksAhead):
        def state_dict(self) -> dict[str, Any]:
            raise KeyError("no place")

    with emitted() as events:
        iter(loader := minidl.DataLoader(range(4), sampler=Refuses(4)))
        with pytest.raises(KeyError, match="no place"):
            loader.state_dict()
    assert Kind.STATE_TAKEN in [event[0] for event in events]


def test_a_state_before_any_epoch_is_at_the_begin_of_one() -> None:
    state = minidl.DataLoader(range(4)).state_dict()
    for finished in (True, False):  # the one that never was, or the first
        came = going_on(lambda: minidl.DataLoader(range(4)), {**state, "_iterator_finished": finished}, epochs=1)
        assert came == [[0], [1], [2], [3], END]


def test_no_state() -> None:
    loader = minidl.DataLoader(range(4))
    with pytest.raises(ValueError, match="this is no state of a DataLoader"):
        loader.load_state_dict({"model": 1})
    with pytest.raises(ValueError, match="snapshot_every_n_steps"):
        minidl.DataLoader(range(4), snapshot_every_n_steps=0)
    loader.load_state_dict({})
    assert len(list(loader)) == 4


def test_a_state_that_did_not_fit_is_still_loaded() -> None:
    """Whoever asks again does not begin at the first batch."""
    state = stopped(lambda: minidl.DataLoader(range(9)), 5)[0]
    loader = minidl.DataLoader(range(9), num_workers=1)
    loader.load_state_dict(state)
    for _ in range(2):
        with pytest.raises(AssertionError, match="num_workers=0, and this one has 1"):
            iter(loader)
    assert loader.state_dict() == state


def test_a_sampler_that_is_shorter_now() -> None:
    state = stopped(lambda: minidl.DataLoader(range(9)), 5)[0]
    with pytest.raises(RuntimeError, match="SequentialSampler ends after 3 batches"):
        going_on(lambda: minidl.DataLoader(range(3)), state)


def test_slow_winding_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minidl.checkpoint.source.SLOW", 0.0)
    state = stopped(builder("stream", "in turn"), 2)[0]
    with pytest.warns(UserWarning, match="Stream was wound forward by 2 batches") as heard:
        going_on(builder("stream", "in turn"), state)
    assert linecache.getline(heard[0].filename, heard[0].lineno).strip() == "with winding(self.dataset, batches):"
    state = stopped(builder("map", "lazy"), 2)[0]
    with pytest.warns(UserWarning, match="Lazy was wound forward by 2 batches") as heard:
        going_on(builder("map", "lazy"), state)
    assert linecache.getline(heard[0].filename, heard[0].lineno).strip() == "with winding(self.sampler, drawn):"
    state = stopped(builder("places", "in turn"), 2)[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        going_on(builder("places", "in turn"), state)


@contextlib.contextmanager
def ctrl_c_at_line(number: int, *functions: Any) -> Iterator[None]:
    """Ctrl-C comes before this line of those that these functions run."""
    left, codes = itertools.count(number, -1), [function.__code__ for function in functions]

    def look(frame: Any, event: str, argument: Any) -> Any:
        if event == "line" and next(left) == 0:
            raise KeyboardInterrupt
        return look

    sys.settrace(lambda frame, event, argument: look if frame.f_code in codes else None)
    try:
        yield
    finally:
        sys.settrace(None)


def test_ctrl_c_while_a_batch_is_counted_loses_no_other() -> None:
    """The state is of before that batch, or of after it."""
    build = builder("map", "shuffled", num_workers=1)
    states, came = {after: stopped(build, after, epochs=1) for after in (2, 3)}, []
    for number in itertools.count():
        seed(1)
        loader = build()
        iterator = iter(loader)
        next(iterator), next(iterator)
        try:
            with ctrl_c_at_line(number, Position.passed):
                next(iterator)
        except KeyboardInterrupt:
            came.append(going_on(build, loader.state_dict(), epochs=1))
        else:
            break
    assert number > 5 and all(each in (states[2][1], states[3][1]) for each in came)


class DrawsLast(Fixed):
    def __iter__(self) -> Iterator[list[float]]:
        for _ in share(3):
            yield noise()
        noise()


def test_ctrl_c_at_the_end_of_an_epoch_does_not_change_the_next() -> None:
    """Whether its state says that the epoch is over or not."""

    def build() -> Any:
        return minidl.DataLoader(DrawsLast(), None, num_workers=1, persistent_workers=True)

    _, second = stopped(build, "end", epochs=1)
    for number in itertools.count():
        seed(1)
        loader = build()
        iterator = iter(loader)
        for _ in range(3):
            next(iterator)
        try:
            with ctrl_c_at_line(number, Position.finish, Position.passed):
                next(iterator)
        except KeyboardInterrupt:
            came = going_on(build, loader.state_dict())
            assert came[came[0] == END :][: len(second)] == second, number
        except StopIteration:
            break
    assert number > 5


def train(path: Path, log: Path) -> None:
    """Log each batch, and save the state after it, until somebody kills this process."""
    loader = builder("map", "generator", num_workers=2, persistent_workers=True)()
    if path.exists():
        loader.load_state_dict(json.loads(path.read_text()))
    else:
        seed(1)
    while True:
        for batch in loader:
            state = json.dumps({**loader.state_dict(), "batch": shown(batch)})
            path.with_suffix(".new").write_text(state)
            os.replace(path.with_suffix(".new"), path)
            with log.open("a") as file:
                file.write(json.dumps(shown(batch)) + "\n")


@pytest.mark.timeout(120)
def test_killed_at_any_moment_it_goes_on(tmp_path: Path) -> None:
    """Main is killed with SIGKILL again and again; the last state that it saved always leads on to the next batch."""
    path, log = tmp_path / "state.json", tmp_path / "log"
    chance = random.Random(7)
    context = multiprocessing.get_context("fork")
    for _ in range(6):
        process = context.Process(target=train, args=(path, log))
        process.start()
        begin = log.stat().st_size if log.exists() else 0
        while not log.exists() or log.stat().st_size == begin:
            time.sleep(0.01)
        time.sleep(chance.random() * 0.2)
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
    logged = [json.loads(line) for line in log.read_text().splitlines() if line.endswith("]")]
    logged = [batch for number, batch in enumerate(logged) if number == 0 or batch != logged[number - 1]]
    seed(1)
    loader = builder("map", "generator", num_workers=2, persistent_workers=True)()
    endless = (shown(batch) for _ in itertools.count() for batch in loader)
    # A batch whose state was saved may have been killed before it was logged.
    came = list(itertools.islice(endless, len(logged) + 6))
    rest = iter(came)
    assert all(batch in rest for batch in logged), "a batch came twice, or in another order"
    assert len(logged) > 20


@pytest.mark.filterwarnings("error")  # numpy's, too
@pytest.mark.parametrize("kind", ["MT19937", "PCG64", "Philox", "SFC64"])
def test_generators_are_read_and_put_back_whatever_numpy_draws_from(kind: str) -> None:
    usual = np.random.get_bit_generator()  # type: ignore[attr-defined]
    try:
        np.random.set_bit_generator(getattr(np.random, kind)(3))  # type: ignore[attr-defined]
        noise()  # an odd number of normal ones: the second of the pair is still to come
        states = json.loads(json.dumps(randomness.as_text(randomness.read())))
        assert randomness.signs() != randomness.signs(), "it is not numpy's own whose memory was found"
        expected = noise(), noise()
        assert randomness.read() != randomness.as_bytes(states)
        randomness.put_back(randomness.as_bytes(states))
        assert randomness.read() == randomness.as_bytes(states)
        assert (noise(), noise()) == expected
    finally:
        np.random.set_bit_generator(usual)  # type: ignore[attr-defined]


SEEDS = itertools.count(5)
DRAWS: dict[str, Callable[[], object]] = {
    "random": random.random,
    "gauss": lambda: random.gauss(0, 1),
    "numpy's rand": np.random.rand,
    "numpy's randn": np.random.randn,
    "torch.rand": lambda: torch.rand(()),
    "torch.randn": lambda: torch.randn(()),
    "a float64 of torch.randn": lambda: torch.randn((), dtype=torch.float64),
    "many": lambda: torch.randn(20),
    "all words of Python's": lambda: [random.getrandbits(32) for _ in range(624)],
    "all words of numpy's": lambda: np.random.bytes(4 * 624),
    "all words of torch's": lambda: [torch.rand(()) for _ in range(624)],
    "Python's seed": lambda: random.seed(next(SEEDS)),
    "numpy's seed": lambda: np.random.seed(next(SEEDS)),
    "numpy's seed of several": lambda: np.random.seed([next(SEEDS), 1]),
    "torch's seed": lambda: torch.manual_seed(next(SEEDS)),
}


@pytest.mark.parametrize("name", DRAWS)
def test_a_number_that_was_drawn_is_seen_in_memory(name: str) -> None:
    seed(4)
    for _ in range(700 if "all" not in name else 3):  # past the end of the words
        signs, states = randomness.signs(), randomness.read()
        assert randomness.signs() == signs and randomness.read() == states
        DRAWS[name]()
        assert randomness.read() != states
        assert randomness.signs() != signs


def test_a_state_is_no_longer_than_the_memory_it_was_read_from() -> None:
    """A worker may send it with every batch."""
    random.seed(4)
    assert {name: len(state) for name, state in randomness.read().items()} == {
        "python": 4 * 625,
        "numpy": 4 * 625 + 16,
        "torch": 5056,
    }


FINDS: dict[str, Callable[[], memoryview | None]] = {
    "PYTHON": randomness.pythons_memory,
    "NUMPY": randomness.numpys_memory,
    "NUMPYS_GAUSS": randomness.gauss_memory,
    "TORCHS": randomness.torchs_memory,
}


@pytest.mark.parametrize("name", FINDS)
def test_memory_is_found_where_it_was(name: str) -> None:
    """Whatever was drawn since, and without a number being drawn."""
    there = getattr(randomness, name)
    for _ in range(5):
        noise()
        states = randomness.read()
        found = FINDS[name]()
        assert found is not None and randomness.read() == states
        assert (address_of(found), found.nbytes, found.format) == (address_of(there), there.nbytes, there.format)


def address_of(memory: memoryview) -> int:
    return int(np.frombuffer(memory, "u1").ctypes.data)


def test_memory_that_holds_something_else_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(randomness, "RANDOM", random.Random(3))
    assert randomness.pythons_memory() is None
    monkeypatch.setattr(randomness, "BITS", np.random.PCG64(3))
    assert randomness.numpys_memory() is None


@pytest.mark.parametrize("name", FINDS)
def test_memory_that_is_not_found_is_not_needed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = randomness.read()
    monkeypatch.setattr(randomness, name, None)
    assert randomness.signs() != randomness.signs()
    came = randomness.read()
    noise()
    randomness.put_back(came)
    monkeypatch.undo()
    assert randomness.read() == expected
