"""StatefulDataLoader: it stops after any batch, and goes on with the batches that would have come."""

from __future__ import annotations

import copy
import io
import itertools
import json
import pickle
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest
import torch
from torch.utils.data import IterableDataset
from torchdata import stateful_dataloader as torchdata
from torchdata.stateful_dataloader.sampler import RandomSampler as TorchdatasRandomSampler
from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler

import minidl
from minidl import StatefulDataLoader
from tests.samples import Samples, Stream, failing, napping

SIZE = 23


# ---- what is loaded


class Counting(Samples):
    """Each sample says how many its worker's copy has made: all must come to their places."""

    made = 0

    def __getitem__(self, key: int) -> Any:
        self.made += 1
        return key, self.made

    def state_dict(self) -> dict[str, int]:
        return {"made": self.made}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.made = state["made"]


def share(size: int, worker_id: int, workers: int) -> range:
    """Of three workers, the last has least."""
    return range(worker_id, size - 6 * (worker_id == 2), workers)


class Shuffled(Stream):
    """It chooses at random. Like any Stream it has no place to save."""

    def __iter__(self) -> Iterator[int]:
        mine = list(self.keys())
        while mine:
            yield mine.pop(int(torch.randint(len(mine), ())))


class OwnIterator(Stream):
    """Its own iterator, and it can save its place."""

    at = 0

    def __iter__(self) -> OwnIterator:
        return self

    def __next__(self) -> int:
        if self.at == len(self.keys()):
            self.at = 0
            raise StopIteration
        self.at += 1
        return self.keys()[self.at - 1]

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


class FindsLater(OwnIterator):
    """It comes to its place with its first sample only, as generators do."""

    begin = 0

    def __iter__(self) -> Any:
        begin, self.begin, mine = self.begin, 0, self.keys()
        for self.at in range(begin + 1, len(mine) + 1):
            yield mine[self.at - 1]
        self.at = 0

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.begin = state["at"]


# ---- samplers


class Python(minidl.Sampler[int]):
    """It shuffles with Python's generator, when it is iterated over."""

    def __iter__(self) -> Iterator[int]:
        order = list(range(SIZE))
        random.shuffle(order)
        return iter(order)

    def __len__(self) -> int:
        return SIZE


class Lazy(Python):
    """It draws each key when it is asked for it, from the generator that the training loop uses, too."""

    def __iter__(self) -> Iterator[int]:
        left = list(range(SIZE))
        while left:
            yield left.pop(numpy.random.randint(len(left)))


class OwnPlace(Python):
    """It can save its place, and counts its epochs."""

    at = epoch = 0

    def __iter__(self) -> Iterator[int]:
        for self.at in range(self.at + 1, SIZE + 1):  # noqa: B020
            yield (self.at + self.epoch) % SIZE
        self.at, self.epoch = 0, self.epoch + 1

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at, "epoch": self.epoch}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at, self.epoch = state["at"], state["epoch"]


class Batches(OwnPlace):
    """It can save the place of its batches."""

    def __iter__(self) -> Iterator[Any]:
        return ([key] for key in super().__iter__())


def own() -> torch.Generator:
    return torch.Generator().manual_seed(5)


def of(**options: Any) -> dict[str, Any]:
    return {"dataset": Samples(SIZE), "batch_size": 2, **options}


FAILING = {key: failing(KeyError(f"no sample {key}")) for key in (3, 10, 17)}
MADE_OF: dict[str, Callable[[], dict[str, Any]]] = {
    "in sequence": of,
    "shuffled": lambda: of(shuffle=True),
    "with a generator": lambda: of(shuffle=True, drop_last=True, generator=own()),
    "drop_last": lambda: of(shuffle=True, batch_size=3, drop_last=True),
    "unbatched": lambda: of(batch_size=None, sampler=torch.utils.data.RandomSampler(Samples(SIZE))),
    "replacement": lambda: of(sampler=minidl.RandomSampler(Samples(SIZE), True, 40, own())),
    "batch_sampler": lambda: {"dataset": Samples(SIZE), "batch_sampler": [[1, 2], [3], [4, 5, 6]] * 4},
    "Python's generator": lambda: of(sampler=Python()),
    "lazy": lambda: of(sampler=Lazy()),
    "own place": lambda: of(sampler=OwnPlace()),
    "batches with a place": lambda: {"dataset": Samples(SIZE), "batch_sampler": Batches()},
    "torchdata's": lambda: of(sampler=TorchdatasRandomSampler(Samples(SIZE))),
    "counting": lambda: of(dataset=Counting(SIZE), shuffle=True),
    "failing": lambda: of(dataset=Samples(SIZE, at=FAILING)),
    "ranks": lambda: of(sampler=minidl.DistributedSampler(Samples(SIZE), 2, 1)),
    "ranks of torchdata": lambda: of(sampler=StatefulDistributedSampler(Samples(SIZE), 2, 0, shuffle=True)),
    "Stream": lambda: of(dataset=Stream(range(SIZE), share)),
    "Shuffled": lambda: of(dataset=Shuffled(range(SIZE), share), batch_size=None),
    "OwnIterator": lambda: of(dataset=OwnIterator(range(SIZE), share)),
    "OwnIterator, unbatched": lambda: of(dataset=OwnIterator(range(SIZE), share), batch_size=None),
    "FindsLater": lambda: of(dataset=FindsLater(range(SIZE), share)),
    "FindsLater, unbatched": lambda: of(dataset=FindsLater(range(SIZE), share), batch_size=None),
}
STREAMS = {name for name, made in MADE_OF.items() if isinstance(made()["dataset"], IterableDataset)}
OPTIONS: dict[str, dict[str, Any]] = {
    "serial": {},
    "2 workers": {"num_workers": 2},
    "3 workers": {"num_workers": 3, "prefetch_factor": 1},
    "persistent": {"num_workers": 2, "persistent_workers": True},
    "pinned": {"num_workers": 1, "pin_memory": "host"},
}


def batch_after(iterator: Any) -> Any:
    """The next batch, or the error in its stead; None at the end."""
    try:
        return as_lists(next(iterator))
    except StopIteration:
        return None
    except KeyError as error:
        return str(error)[-15:]


def as_lists(batch: Any) -> Any:
    if isinstance(batch, list):
        return [as_lists(each) for each in batch]
    return batch.tolist() if isinstance(batch, torch.Tensor) else batch


def epochs_of(loader: Any, epochs: int, states: list[Any] | None = None) -> list[Any]:
    """The batches of some epochs, with errors in a batch's stead, and None for each end. In `states`, after how many of
    these which state was taken: in front of each, and between two epochs."""
    came: list[Any] = []
    for _ in range(epochs):
        iterator, asked = iter(loader), len(came)
        while asked == len(came) or came[-1] is not None:
            if states is not None:
                states.append((len(came), loader.state_dict()))
            came.append(batch_after(iterator))
        if states is not None:
            states.append((len(came), loader.state_dict()))
    return came


def seeds(seed: int = 0) -> None:
    random.seed(seed)
    numpy.random.seed(seed)
    torch.default_generator.manual_seed(seed)


def each_with_some_options() -> Iterator[Any]:
    """A stream, of which each worker has a copy, with all options; a sampler, which is in main, with one of those that
    have workers. `make full` tries the others."""
    for number, made_of in enumerate(MADE_OF):
        for options in OPTIONS:
            some = options == "serial" or made_of in STREAMS or options == [*OPTIONS][1 + number % 4]
            yield pytest.param(made_of, options, marks=[] if some else [pytest.mark.full])


@pytest.mark.parametrize(("made_of", "options"), list(each_with_some_options()))
def test_it_goes_on_after_any_batch(made_of: str, options: str) -> None:
    def build() -> Any:
        return StatefulDataLoader(**MADE_OF[made_of](), **OPTIONS[options])

    # In their second epoch, workers that persist draw other numbers: see docs/differences.md.
    epochs = 1 if (made_of, options) == ("Shuffled", "persistent") else 2
    seeds()
    states: list[Any] = []
    whole = epochs_of(build(), epochs, states)
    every = 2 if options == "serial" else len(states) // 2
    some = slice(len(made_of + options) % every, None, every)
    end = whole.index(None)
    for at, state in [*states[some], *states[end : end + 2]]:  # after the first epoch's last batch, and after its end
        seeds(at + 1)  # another process begins with others
        loader = build()
        loader.load_state_dict(state)
        assert epochs_of(loader, epochs - whole[:at].count(None)) == whole[at:], f"after {at}"


@pytest.mark.parametrize(("persistent", "stops"), [(False, (0, 5)), (True, (1, 9))])
@pytest.mark.parametrize("made_of", ["shuffled", "lazy", "own place", "Stream", "OwnIterator", "FindsLater"])
def test_without_order_every_sample_comes_once(made_of: str, persistent: bool, stops: tuple[int, int]) -> None:
    options = {"num_workers": 3, "in_order": False, "persistent_workers": persistent, "prefetch_factor": 1}
    whole = StatefulDataLoader(**MADE_OF[made_of](), num_workers=3)
    expected = sorted(torch.cat(list(whole)).tolist())
    for stop in stops:
        loader, other = (StatefulDataLoader(**MADE_OF[made_of](), **options) for _ in range(2))
        came = list(itertools.islice(loader, stop))
        other.load_state_dict(loader.state_dict())
        assert sorted(torch.cat([*came, *other]).tolist()) == expected, f"after {stop}"


def test_it_gives_the_batches_of_the_plain_loader() -> None:
    for workers in (0, 2):
        for made_of in MADE_OF.keys() - STREAMS - {"failing", "counting", "batch_sampler"}:
            both = []
            for kind in (minidl.DataLoader, StatefulDataLoader):
                seeds()
                both.append([as_lists(batch) for batch in kind(**MADE_OF[made_of](), num_workers=workers)])
            assert both[0] == both[1], made_of


@pytest.mark.parametrize("before, after", [(0, 2), (2, 0), (1, 3)])
def test_another_number_of_workers(before: int, after: int) -> None:
    def build(workers: int) -> Any:
        return StatefulDataLoader(Samples(SIZE), 2, num_workers=workers, sampler=Python())

    seeds()
    loader = build(before)
    iterator = iter(loader)
    next(iterator)
    state, left = loader.state_dict(), list(map(as_lists, iterator))
    other = build(after)
    other.load_state_dict(state)
    with pytest.raises(ValueError, match=f"num_workers={before}, and this loader has {after}"):
        iter(other)
    other.load_state_dict(state, strict=False)
    assert list(map(as_lists, other)) == left


def test_a_state_shares_nothing_and_can_be_written() -> None:
    sampling = {"sampler": OwnPlace(), "batch_size": 2}
    for workers in (0, 2):
        loader = StatefulDataLoader(Counting(SIZE), num_workers=workers, **sampling)
        iterator = iter(loader)
        next(iterator)
        state = loader.state_dict()
        kept = copy.deepcopy(state)
        pickled, text = pickle.dumps(state), json.dumps(state)
        torch.save(state, io.BytesIO())
        left = list(map(as_lists, iterator))
        assert state == kept
        for again in (state, pickle.loads(pickled), json.loads(text)):
            other = StatefulDataLoader(Counting(SIZE), num_workers=workers, **sampling)
            other.load_state_dict(again)
            assert list(map(as_lists, other)) == left
            assert again == (json.loads(text) if again != kept else kept), "loading has changed it"


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("made_of", ["in sequence", "own place", "batches with a place", "Stream", "FindsLater"])
def test_it_goes_on_as_torchdatas_loader_does(made_of: str, workers: int) -> None:
    """To the end of this epoch, and through the next. The last stop is where the sampler's last keys are in flight."""
    for stop in (1, 5, 10):
        both = []
        for kind in (torchdata.StatefulDataLoader, StatefulDataLoader):
            seeds()
            loader, other = (kind(**MADE_OF[made_of](), num_workers=workers) for _ in range(2))
            came = [as_lists(batch) for batch in itertools.islice(loader, stop)]
            other.load_state_dict(loader.state_dict())
            both.append([came, *([as_lists(batch) for batch in other] for _ in range(2))])
        assert both[0] == both[1], f"after {stop}"


def test_what_is_made_once_more_may_take_longer_than_a_batch() -> None:
    stream = Stream(Samples(30, napping(0.05)))
    loader, other = (StatefulDataLoader(stream, num_workers=1, timeout=0.5) for _ in range(2))
    for _ in zip(range(20), loader, strict=False):
        pass
    other.load_state_dict(loader.state_dict())
    assert [batch.item() for batch in other] == list(range(20, 30))


# ---- what does not fit


def damages(place: Any) -> Iterator[None]:
    """Each entry, however deep, is missing once, and once another; then it is put back."""
    for key, kept in [*place.items()]:
        if isinstance(kept, dict):
            yield from damages(kept)
        place[key] = [kept]
        yield
        del place[key]
        yield
        place[key] = kept


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("made_of", ["shuffled", "own place", "counting", "Stream", "OwnIterator"])
def test_a_damaged_state_is_a_value_error(made_of: str, workers: int) -> None:
    loader, other = (StatefulDataLoader(**MADE_OF[made_of](), num_workers=workers) for _ in range(2))
    next(iter(loader))
    state = loader.state_dict()
    for _ in damages(state):
        with pytest.raises(ValueError, match=r"\Athe state is .*\Z"):
            other.load_state_dict(state)
    other.load_state_dict(state)


def test_what_is_no_state() -> None:
    for nothing in (None, [], "", 0, {"a": 1}, {"minidl": None}, {"minidl": {"sum": 1}}):
        with pytest.raises(ValueError, match="the state is"):
            StatefulDataLoader(Samples(SIZE)).load_state_dict(nothing)  # type: ignore[arg-type]
    StatefulDataLoader(Samples(SIZE)).load_state_dict({})


OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "a stream": ({"dataset": Stream(range(SIZE), share), "batch_size": 2}, "iterable is False there, and True here"),
    "another batch_size": ({"dataset": Samples(SIZE), "batch_size": 3}, "batch_size is 2 there, and 3 here"),
    "in another order": ({"dataset": Samples(SIZE), "batch_size": 2, "sampler": range(SIZE, 0, -1)}, "keys differ"),
    "fewer keys": ({"dataset": Samples(SIZE), "batch_size": 2, "sampler": [0, 1]}, "keys differ"),
    "another generator": (
        {"dataset": Samples(SIZE), "batch_size": 2, "generator": own()},
        "generators is 1 there, and 2 here",
    ),
}


@pytest.mark.parametrize("other", OTHERS)
def test_a_state_of_another_loader(other: str) -> None:
    loader = StatefulDataLoader(Samples(SIZE), 2)
    next_two(loader)
    options, message = OTHERS[other]
    with pytest.raises(ValueError, match=message):
        loaded = StatefulDataLoader(**options)
        loaded.load_state_dict(loader.state_dict())
        iter(loaded)


def next_two(loader: Any) -> Any:
    return list(itertools.islice(loader, 2))


def test_states_that_the_user_cannot_load() -> None:
    class Strict(Counting):
        def load_state_dict(self, state: Any) -> None:
            state["unknown"]

    for workers in (0, 1):
        loader = StatefulDataLoader(Counting(SIZE), 2, num_workers=workers)
        next_two(loader)
        for dataset, message in ((Strict(SIZE), "Strict cannot load"), (Samples(SIZE), "Samples cannot load")):
            other = StatefulDataLoader(dataset, 2, num_workers=workers)
            other.load_state_dict(loader.state_dict())
            with pytest.raises(ValueError, match=message):
                iter(other)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_sampler_that_shares_a_generator_never_loses_keys(workers: int) -> None:
    """The training loop draws between the keys: winding cannot repeat that."""
    seeds()
    loader = StatefulDataLoader(Samples(SIZE), 2, sampler=Lazy(), num_workers=workers)
    iterator = iter(loader)
    for _ in range(3):
        next(iterator)
        numpy.random.rand()
    state = loader.state_dict()
    other = StatefulDataLoader(Samples(SIZE), 2, sampler=Lazy(), num_workers=workers)
    other.load_state_dict(state)
    with pytest.raises(ValueError, match="Lazy does not reach the place in the state"):
        iter(other)


# ---- errors


class Broken(Counting):
    def state_dict(self) -> Any:
        if self.made > 2:
            raise NotImplementedError("no state")
        return {"made": self.made}


def test_an_error_of_state_dict_is_not_silent() -> None:
    """In a worker, it ends with a traceback."""
    for workers, error in ((0, NotImplementedError), (1, RuntimeError)):
        with pytest.raises(error, match=r"no state|exited unexpectedly"):
            list(StatefulDataLoader(Broken(SIZE), 2, num_workers=workers))
