"""StatefulDataLoader: it stops after any batch, and goes on with the batches that would have come."""

from __future__ import annotations

import copy
import io
import itertools
import json
import pickle
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info
from torchdata.stateful_dataloader.sampler import RandomSampler as TorchdatasRandomSampler
from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler

import minidl
from minidl import StatefulDataLoader

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
]
SIZE = 23


# ---- what is loaded


class Keys(Dataset[int]):
    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, key: int) -> int:
        return key


class Counting(Keys):
    """Each sample says how many its worker's copy has made: all must come to their places."""

    def __init__(self) -> None:
        self.made = 0

    def __getitem__(self, key: int) -> Any:
        self.made += 1
        return key, self.made

    def state_dict(self) -> dict[str, int]:
        return {"made": self.made}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.made = state["made"]


class Failing(Keys):
    def __getitem__(self, key: int) -> int:
        if key % 7 == 3:
            raise KeyError(f"no sample {key}")
        return key


def share() -> list[int]:
    """This worker's part of the samples: of three workers, the last has least."""
    info = get_worker_info()
    worker_id, workers = (info.id, info.num_workers) if info else (0, 1)
    return list(range(worker_id, SIZE - 6 * (worker_id == 2), workers))


class Stream(IterableDataset[int]):
    """It tells no place."""

    def __iter__(self) -> Iterator[int]:
        yield from share()


class Shuffled(IterableDataset[int]):
    """Nor does this one, which chooses at random."""

    def __iter__(self) -> Iterator[int]:
        mine = share()
        while mine:
            yield mine.pop(int(torch.randint(len(mine), ())))


class OwnIterator(IterableDataset[int]):
    """Its own iterator, and it tells its place."""

    at = 0

    def __iter__(self) -> OwnIterator:
        return self

    def __next__(self) -> int:
        if self.at == len(share()):
            self.at = 0
            raise StopIteration
        self.at += 1
        return share()[self.at - 1]

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


class FindsLater(OwnIterator):
    """It comes to its place with its first sample only, as generators do."""

    begin = 0

    def __iter__(self) -> Any:
        begin, self.begin, mine = self.begin, 0, share()
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
    """It tells its place, and counts its epochs."""

    at = epoch = 0

    def __iter__(self) -> Iterator[int]:
        for self.at in range(self.at + 1, SIZE + 1):  # noqa: B020
            yield (self.at + self.epoch) % SIZE
        self.at, self.epoch = 0, self.epoch + 1

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at, "epoch": self.epoch}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at, self.epoch = state["at"], state["epoch"]


def own() -> torch.Generator:
    return torch.Generator().manual_seed(5)


MAPS: dict[str, Callable[[], dict[str, Any]]] = {
    "in sequence": lambda: {"dataset": Keys(), "batch_size": 2},
    "shuffled": lambda: {"dataset": Keys(), "batch_size": 2, "shuffle": True},
    "with a generator": lambda: {"dataset": Keys(), "batch_size": 2, "shuffle": True, "generator": own()},
    "drop_last": lambda: {"dataset": Keys(), "batch_size": 3, "shuffle": True, "drop_last": True},
    "unbatched": lambda: {"dataset": Keys(), "batch_size": None, "sampler": torch.utils.data.RandomSampler(Keys())},
    "replacement": lambda: {
        "dataset": Keys(),
        "sampler": minidl.RandomSampler(Keys(), True, 40, own()),
        "batch_size": 3,
    },
    "weighted": lambda: {
        "dataset": Keys(),
        "sampler": minidl.WeightedRandomSampler([1.0] * SIZE, SIZE),
        "batch_size": 2,
    },
    "batch_sampler": lambda: {"dataset": Keys(), "batch_sampler": [[1, 2], [3], [4, 5, 6]] * 4},
    "Python's generator": lambda: {"dataset": Keys(), "batch_size": 2, "sampler": Python()},
    "lazy": lambda: {"dataset": Keys(), "batch_size": 2, "sampler": Lazy()},
    "own place": lambda: {"dataset": Keys(), "batch_size": 2, "sampler": OwnPlace()},
    "torchdata's": lambda: {"dataset": Keys(), "batch_size": 2, "sampler": TorchdatasRandomSampler(Keys())},
    "ranks": lambda: {"dataset": Keys(), "batch_size": 2, "sampler": minidl.DistributedSampler(Keys(), 2, 1)},
    "ranks of torchdata": lambda: {
        "dataset": Keys(),
        "batch_size": 2,
        "sampler": StatefulDistributedSampler(Keys(), 2, 0, shuffle=True),
    },
    "counting": lambda: {"dataset": Counting(), "batch_size": 2, "shuffle": True},
    "failing": lambda: {"dataset": Failing(), "batch_size": 2},
}
STREAMS: dict[str, Callable[[], dict[str, Any]]] = {
    kind.__name__ + ("" if size else ", unbatched"): (
        lambda kind=kind, size=size: {"dataset": kind(), "batch_size": size}
    )
    for kind, size in itertools.product((Stream, Shuffled, OwnIterator, FindsLater), (2, None))
}
OPTIONS: dict[str, dict[str, Any]] = {
    "serial": {},
    "2 workers": {"num_workers": 2},
    "3 workers, snapshots": {"num_workers": 3, "snapshot_every_n_steps": 4, "prefetch_factor": 1},
    "persistent": {"num_workers": 2, "persistent_workers": True, "snapshot_every_n_steps": 0},
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


def epochs_of(loader: Any, states: list[Any] | None = None, epochs: int = 2) -> list[Any]:
    """All batches and ends of some epochs; beside each, the state in front of it."""
    came = []
    for _ in range(epochs):
        iterator = iter(loader)
        while True:
            if states is not None:
                states.append(loader.state_dict())
            came.append(batch_after(iterator))
            if came[-1] is None:
                break
        if states is not None:
            states.append(loader.state_dict())
            came.append("between two epochs")
    return came


def goes_on(build: Callable[[], Any], stops: slice, epochs: int = 2) -> None:
    seeds()
    states: list[Any] = []
    whole = epochs_of(build(), states, epochs)
    for at in range(len(whole))[stops]:
        left = whole[at:]
        seeds(at)  # another process begins with others
        loader = build()
        loader.load_state_dict(states[at])
        epochs_left = epochs - whole[:at].count("between two epochs") - (left[0] == "between two epochs")
        came = epochs_of(loader, epochs=epochs_left)
        expected = [each for each in left if each != "between two epochs"]
        assert came == expected, f"after {at} batches"


def seeds(seed: int = 0) -> None:
    random.seed(seed)
    numpy.random.seed(seed)
    torch.manual_seed(seed)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("made_of", [*MAPS, *STREAMS])
def test_it_goes_on_after_any_batch(made_of: str, options: str) -> None:
    def build() -> Any:
        return StatefulDataLoader(**(MAPS | STREAMS)[made_of](), **OPTIONS[options])

    workers = OPTIONS[options].get("num_workers", 0)
    # In their second epoch, workers that persist draw other numbers: see docs/differences.md.
    epochs = 1 if "Shuffled" in made_of and options == "persistent" else 2
    goes_on(build, slice(len(made_of) % 3, None, 7 if workers else 2), epochs)


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("made_of", ["shuffled", "lazy", "own place", "Stream", "OwnIterator, unbatched", "FindsLater"])
def test_without_order_every_sample_comes_once(made_of: str, persistent: bool) -> None:
    options = {"num_workers": 3, "in_order": False, "persistent_workers": persistent, "prefetch_factor": 1}

    def build() -> Any:
        return StatefulDataLoader(**(MAPS | STREAMS)[made_of](), **options)

    for stop in (0, 1, 5, 9):
        loader = build()
        came = [as_lists(batch) for batch in itertools.islice(loader, stop)]
        state = loader.state_dict()
        other = build()
        other.load_state_dict(state)
        came += map(as_lists, other)
        samples = list(itertools.chain.from_iterable(came)) if isinstance(came[0], list) else came
        assert sorted(samples) == sorted(itertools.chain(*map(flat, build())))


def flat(batch: Any) -> list[int]:
    lists = as_lists(batch)
    return lists if isinstance(lists, list) else [lists]


def test_it_gives_the_batches_of_the_plain_loader() -> None:
    for workers in (0, 2):
        for made_of in MAPS.keys() - {"failing", "counting", "batch_sampler"}:
            both = []
            for kind in (minidl.DataLoader, StatefulDataLoader):
                seeds()
                both.append([as_lists(batch) for batch in kind(**MAPS[made_of](), num_workers=workers)])
            assert both[0] == both[1], made_of


@pytest.mark.parametrize("before, after", [(0, 2), (2, 0), (1, 3)])
def test_another_number_of_workers(before: int, after: int) -> None:
    def build(workers: int) -> Any:
        return StatefulDataLoader(Keys(), 2, num_workers=workers, sampler=Python())

    seeds()
    loader = build(before)
    iterator = iter(loader)
    next(iterator)
    state, left = loader.state_dict(), list(map(as_lists, iterator))
    other = build(after)
    other.load_state_dict(state)
    for error in (ValueError, AssertionError):  # torchdata's is the second
        with pytest.raises(error, match=f"num_workers={before}, and this loader has {after}"):
            iter(other)
    other.load_state_dict(state, strict=False)
    assert list(map(as_lists, other)) == left


def test_a_state_shares_nothing_and_can_be_written() -> None:
    sampling = {"sampler": OwnPlace(), "batch_size": 2}
    for workers in (0, 2):
        loader = StatefulDataLoader(Counting(), num_workers=workers, **sampling)
        iterator = iter(loader)
        next(iterator)
        state = loader.state_dict()
        kept = copy.deepcopy(state)
        pickled, text = pickle.dumps(state), json.dumps(state)
        torch.save(state, io.BytesIO())
        left = list(map(as_lists, iterator))
        assert state == kept
        for again in (state, pickle.loads(pickled), json.loads(text)):
            other = StatefulDataLoader(Counting(), num_workers=workers, **sampling)
            other.load_state_dict(again)
            assert list(map(as_lists, other)) == left
            assert again == (json.loads(text) if again != kept else kept), "loading has changed it"


# ---- what does not fit


def damaged(state: Any, chance: random.Random) -> Any:
    """A copy in which one entry is missing, of another type, or cut."""
    state = copy.deepcopy(state)
    place, parents = state, []
    while isinstance(place, (dict, list)) and place and (not parents or chance.random() < 0.9):
        key = chance.choice([*place] if isinstance(place, dict) else range(len(place)))
        parents.append((place, key))
        place = place[key]
    parent, key = parents[-1]
    kind = chance.choice(["missing", "type", "cut"])
    if kind == "missing" or (kind == "cut" and not isinstance(place, str)):
        del parent[key]
    elif kind == "cut":
        parent[key] = place[: len(place) // 2]
    else:
        parent[key] = chance.choice([None, "x", 3, 2.5, [], {}, [1], {"a": 1}, b"x", object()])
    return state


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("made_of", ["shuffled", "own place", "counting", "Stream", "OwnIterator"])
def test_a_damaged_state_is_a_value_error_or_does_no_harm(made_of: str, workers: int) -> None:
    def build() -> Any:
        return StatefulDataLoader(**(MAPS | STREAMS)[made_of](), num_workers=workers)

    loader = build()
    iterator = iter(loader)
    next(iterator)
    state, left, chance, refused = loader.state_dict(), list(map(as_lists, iterator)), random.Random(made_of), 0
    for _ in range(150):
        other, spoilt = build(), damaged(state, chance)
        try:
            other.load_state_dict(spoilt)
        except ValueError as error:
            refused += 1
            assert "\n" not in str(error)
            continue
        assert other._saved is None or workers == 0 or refused % 20, "the rest is tried now and then: it starts workers"
        assert (
            spoilt == {}
            or list(map(as_lists, other)) == left
            or spoilt["_iterator_finished"] != state["_iterator_finished"]
        )
    assert refused > 120
    for nothing in (None, [], "", 0, {"a": 1}, {"minidl": None}, {"minidl": {"sum": 1}}):
        with pytest.raises(ValueError, match="the state is"):
            build().load_state_dict(nothing)
    build().load_state_dict({})


OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "a stream": ({"dataset": Stream(), "batch_size": 2}, "one dataset is map-style"),
    "another batch_size": ({"dataset": Keys(), "batch_size": 3}, "batch_size=2, not 3"),
    "in another order": ({"dataset": Keys(), "batch_size": 2, "sampler": range(SIZE, 0, -1)}, "other keys"),
    "fewer keys": ({"dataset": Keys(), "batch_size": 2, "sampler": [0, 1]}, "other keys"),
    "another generator": ({"dataset": Keys(), "batch_size": 2, "generator": own()}, "more random generators"),
}


@pytest.mark.parametrize("other", OTHERS)
def test_a_state_of_another_loader(other: str) -> None:
    loader = StatefulDataLoader(Keys(), 2)
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
        loader = StatefulDataLoader(Counting(), 2, num_workers=workers)
        next_two(loader)
        for dataset, message in ((Strict(), "does not take its part"), (Keys(), "which has no load_state_dict")):
            other = StatefulDataLoader(dataset, 2, num_workers=workers)
            other.load_state_dict(loader.state_dict())
            with pytest.raises(ValueError, match=message):
                iter(other)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_sampler_that_shares_a_generator_never_loses_keys(workers: int) -> None:
    """The training loop draws between the keys: winding cannot repeat that."""
    seeds()
    loader = StatefulDataLoader(Keys(), 2, sampler=Lazy(), num_workers=workers)
    iterator = iter(loader)
    for _ in range(3):
        next(iterator)
        numpy.random.rand()
    state = loader.state_dict()
    other = StatefulDataLoader(Keys(), 2, sampler=Lazy(), num_workers=workers)
    other.load_state_dict(state)
    with pytest.raises(ValueError, match="Lazy does not come out where the state says"):
        iter(other)


# ---- interrupts and errors


def test_what_ctrl_c_takes_from_the_caller_comes_first() -> None:
    for workers in (0, 2):
        loader = StatefulDataLoader(Keys(), 2, num_workers=workers)
        iterator = iter(loader)
        next(iterator)
        passed = iterator._progress.passed

        def interrupted(*args: Any, passed: Any = passed, **named: Any) -> None:
            passed(*args, **named)
            raise KeyboardInterrupt

        iterator._progress.passed = interrupted
        with pytest.raises(KeyboardInterrupt):
            next(iterator)
        progress = iterator._progress
        del progress.passed, interrupted, passed
        for gone in (False, True):
            if gone:
                del iterator
            other = StatefulDataLoader(Keys(), 2, num_workers=workers)
            other.load_state_dict(loader.state_dict())
            assert list(map(as_lists, other)) == [[key, key + 1][: SIZE - key] for key in range(2, SIZE, 2)]


class Broken(Counting):
    def state_dict(self) -> Any:
        if self.made > 2:
            raise NotImplementedError("no state")
        return {"made": self.made}


def test_an_error_of_state_dict_comes_in_the_batchs_stead() -> None:
    loader = StatefulDataLoader(Broken(), 2, num_workers=1)
    with pytest.raises(NotImplementedError, match="no state"):
        list(loader)
    serial = StatefulDataLoader(Broken(), 2)
    next_two(serial)
    with pytest.raises(NotImplementedError, match="no state"):
        serial.state_dict()


# ---- the plain loader knows nothing of it


class Asking(Keys):
    def state_dict(self, num_samples: int, from_beginning: bool) -> Any:
        raise NotImplementedError

    load_state_dict: Any = None


class Unpicklable(Keys):
    def state_dict(self) -> Any:
        return lambda: None


class Model(torch.nn.Module):
    """A dataset of 51 MB, whose state would be sent with each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = torch.nn.Linear(128, 100_000)

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, key: int) -> int:
        return key

    def state_dict(self, *args: Any, **named: Any) -> Any:
        raise AssertionError("it was not asked for")


@pytest.mark.parametrize("kind", [Asking, Unpicklable, Model])
@pytest.mark.parametrize("workers", [0, 2])
def test_the_plain_loader_asks_for_no_state(kind: Any, workers: int) -> None:
    loader = minidl.DataLoader(kind(), 2, num_workers=workers)
    assert len(list(loader)) == 12
    assert not hasattr(loader, "state_dict") and not hasattr(loader, "load_state_dict")


def test_the_plain_loader_imports_nothing_of_it() -> None:
    program = """
import sys, minidl
list(minidl.DataLoader(range(4), num_workers=1))
assert not [name for name in sys.modules if name.startswith("minidl.stateful")]
assert "StatefulDataLoader" in dir(minidl)
assert minidl.StatefulDataLoader.__module__ == "minidl.stateful.loader"
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
