"""A dataset's place in an epoch: how it is saved, and how it is found again.

A dataset, and the iterator of an iterable one, may tell their place by `state_dict()` and take it back by
`load_state_dict()`, as torch's modules do. A stream that can do neither is begun again and wound forward: the batches
that it has given are made once more, and thrown away. A map-style dataset usually has no place. But all may draw random
numbers: the states of the generators belong to the place.

torch has no counterpart. The names of the entries are those of torchdata's StatefulDataLoader, which can read them;
what it does not know is under "minidl".
"""

from __future__ import annotations

import contextlib
import pickle
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from torch.utils.data import IterableDataset

from minidl import world as worlds
from minidl.checkpoint import randomness
from minidl.data.fetch import IterableFetcher

if TYPE_CHECKING:
    from minidl.loader import DataLoader

SLOW = 1.0  # seconds of winding forward that the user should hear of


def is_stateful(thing: Any) -> bool:
    return hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict")


def state_of(thing: Any) -> Any:
    return thing.state_dict() if is_stateful(thing) else None


@contextlib.contextmanager
def winding(what: object, steps: int) -> Iterator[None]:
    """Around the winding forward of a sampler or a stream: a warning if it takes long."""
    begin = worlds.current().now()
    yield
    took = worlds.current().now() - begin
    if steps and took > SLOW:
        warnings.warn(
            f"{type(what).__name__} was wound forward by {steps} batches, which took {took:.1f} s: neither it nor its "
            "iterator has state_dict() and load_state_dict()",
            stacklevel=3,  # the line that winds
        )


def keys_of(loader: DataLoader) -> Any:
    """Of any task of an iterable dataset; of another's, nothing is said."""
    return None if loader.batch_size is None else [None] * loader.batch_size


class Source:
    """The dataset in one epoch: its fetcher, and its place.

    Args:
        make: makes the fetcher, which iterates over an iterable dataset.
        keys: those of a task, which all have the same if the dataset is iterable.
        saved: what `snapshot()` returned in another process: the place to begin from.
    """

    def __init__(self, dataset: Any, make: Callable[[], Any], keys: Any, saved: dict[str, Any] | None = None) -> None:
        saved = saved or {}
        ours = saved.get("minidl") or {}
        place = saved.get("fetcher_state") or {}  # none before the first batch of an epoch
        if saved.get("dataset_state") is not None:
            dataset.load_state_dict(saved["dataset_state"])
        # A stream may choose its samples at random: one that will be wound forward must begin as it began then.
        random = ours.get("begun_with") or ours.get("random")
        if random:
            randomness.put_back(randomness.as_bytes(random))
        self.begun_with = randomness.as_text(randomness.read()) if isinstance(dataset, IterableDataset) else None
        self.dataset = dataset
        self.fetcher = make()
        self.batches = 0  # made, or tried to make, in this epoch
        self.failed: list[int] = list(ours.get("failed", ()))  # of these
        if place.get("dataset_iter_state") is not None:
            self.fetcher.dataset_iter.load_state_dict(place["dataset_iter_state"])
        elif "batches" in ours:
            self.wind(ours["batches"], keys)
        if random and place:
            randomness.put_back(randomness.as_bytes(ours["random"]))
        if place.get("fetcher_ended"):
            self.fetcher.ended = True
        self.tells = is_stateful(dataset) or isinstance(self.fetcher, IterableFetcher)
        self.told: dict[str, bytes] = {}  # in a worker: the place that main knows, in parts
        self.at_its_begin = False  # of which main needs to be told nothing
        self.signs: object = None  # of the random generators, then

    def wind(self, batches: int, keys: Any) -> None:
        with winding(self.dataset, batches):
            for self.batches in range(1, batches + 1):
                try:
                    self.fetcher.collate_fn(self.fetcher.fetch(keys))
                except Exception as error:
                    if self.batches not in self.failed and not isinstance(error, StopIteration):
                        raise  # it is new

    def begin(self) -> None:
        """In a worker: main knows where it begins. Most datasets stay there, and nothing needs to be sent."""
        with contextlib.suppress(Exception):  # raised when it is asked again
            self.signs, self.told, self.at_its_begin = randomness.signs(), self.parts(), True

    def news(self) -> dict[str, bytes]:
        """The parts of the place that main does not know yet. Raises what a `state_dict()` of the user's raises."""
        signs = randomness.signs()
        if signs == self.signs and not self.tells:
            return {}
        self.signs, parts = signs, self.parts()
        changed = {name: part for name, part in parts.items() if part != self.told.get(name)}
        if changed:
            changed, self.at_its_begin = parts if self.at_its_begin else changed, False
            self.told = parts
        return changed

    def parts(self) -> dict[str, bytes]:
        """The place after the last batch. Pickled here: until a feeder does it, the next task may have changed what
        the user's `state_dict()` has returned."""
        return {**randomness.read(), "place": pickle.dumps(self.place())}

    def place(self) -> dict[str, Any]:
        """Of the dataset: all but the random generators."""
        stream = stream_state = stream_place = None
        if isinstance(self.fetcher, IterableFetcher):
            stream = self.fetcher.dataset_iter
            stream_state = state_of(stream)
            stream_place = {"dataset_iter_state": stream_state, "fetcher_ended": self.fetcher.ended}
        dataset_state = None if stream is self.dataset else state_of(self.dataset)
        place = {"dataset_state": dataset_state, "fetcher_state": stream_place, "minidl": {}}
        if stream is not None and stream_state is None and dataset_state is None:
            place["minidl"] = {"batches": self.batches, "failed": self.failed, "begun_with": self.begun_with}
        return place


NOWHERE: dict[str, Any] = {"dataset_state": None, "fetcher_state": None, "minidl": {}}


def layout_of(parts: dict[str, bytes]) -> dict[str, Any]:
    """A place as torchdata lays it out."""
    place = pickle.loads(parts["place"])
    random = randomness.as_text({name: state for name, state in parts.items() if name != "place"})
    return {**place, "minidl": {**place["minidl"], "random": random}}


def parts_of(layout: dict[str, Any]) -> dict[str, bytes]:
    """The same, back from a state."""
    ours = dict(layout.get("minidl", {}))
    random = randomness.as_bytes(ours.pop("random", {}))
    return {**random, "place": pickle.dumps({**layout, "minidl": ours})}
