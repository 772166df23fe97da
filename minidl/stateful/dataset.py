"""A dataset's place in an epoch: how a worker, or main without workers, tells it and finds it again.

A dataset, and the iterator of an iterable one, may tell their place by `state_dict()` and take it back by
`load_state_dict()`. From there on the batches since are made once more, and thrown away. A stream that tells no place
is begun again: for it, that is all its batches.

    main                                          worker
                   <---- worker_result_queue --   Ready(its place), at the begin of every epoch
    Task           -- index_queue ------------>   makes the batch
                   <---- worker_result_queue --   PlacedResult(batch, its place after it)

Legend: a place, in torchdata's words, and under "minidl" the way on from there

    {"fetcher_state": {"dataset_iter_state": None, "fetcher_ended": False},      None for a map-style dataset
     "dataset_state": None,
     "minidl": {"batches": 3, "failed": [2], "keys": []}}     of a map-style dataset, the keys of these batches

torchdata: torchdata.stateful_dataloader.worker
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch._utils import ExceptionWrapper

from minidl.data.fetch import Fetcher
from minidl.events import RESUME
from minidl.messages import Result, Resume, StreamEnd
from minidl.worker import Worker


def is_stateful(thing: Any) -> bool:
    return callable(getattr(thing, "state_dict", None)) and callable(getattr(thing, "load_state_dict", None))


def state_of(thing: Any) -> Any:
    return thing.state_dict() if is_stateful(thing) else None


def give_back(thing: Any, state: Any) -> None:
    """Load what `state_of` returned. ValueError if it does not fit, whatever the thing makes of it."""
    if state is None:
        return
    name = type(thing).__name__
    if not is_stateful(thing):
        raise ValueError(f"the state is of another loader: it has a place for {name}, which has no load_state_dict()")
    try:
        thing.load_state_dict(state)
    except Exception as error:
        raise ValueError(f"load_state_dict() of {name} does not take its part of the state: {error!r}") from error


class Source:
    """A dataset in one epoch, and its fetcher.

    Args:
        make: makes the fetcher, which begins to iterate over an iterable dataset.
        keys: those of any task of an iterable dataset.
        place: where to begin; None for the start.
    """

    def __init__(self, dataset: Any, make: Callable[[], Fetcher], keys: Any, place: Any) -> None:
        place = place or {"dataset_state": None, "fetcher_state": None, "minidl": {}}
        way = place["minidl"]
        give_back(dataset, place["dataset_state"])
        self.dataset, self.fetcher = dataset, make()
        self.stream = getattr(self.fetcher, "dataset_iter", None)  # None if the dataset is map-style
        give_back(self.stream, (place["fetcher_state"] or {}).get("dataset_iter_state"))
        self.tells = is_stateful(dataset) or is_stateful(self.stream)
        self.since = way.get("batches", 0)  # batches since the place that was told last
        for number in range(self.since):
            self._make_again(number, way["keys"][number] if way["keys"] else keys, number in way["failed"])
        if self.stream is not None and place["fetcher_state"] and place["fetcher_state"]["fetcher_ended"]:
            self.fetcher.dataset_iter = iter(())  # type: ignore[attr-defined]  # some have begun the next epoch

    def _make_again(self, number: int, keys: Any, failed: bool) -> None:
        try:
            self.fetcher.collate_fn(self.fetcher.fetch(keys))  # collating, too, may draw random numbers
        except Exception as error:
            if not failed:
                name = type(self.dataset).__name__
                raise ValueError(f"{name} does not come to the state's place: batch {number}: {error!r}") from error

    def place(self) -> dict[str, Any]:
        """What to begin from after the last batch. Raises what a `state_dict()` of the user's raises."""
        stream_place = None
        if self.stream is not None:
            ended = self.fetcher.ended  # type: ignore[attr-defined]
            stream_place = {"dataset_iter_state": state_of(self.stream), "fetcher_ended": ended}
        dataset_state = None if self.stream is self.dataset else state_of(self.dataset)
        return {"fetcher_state": stream_place, "dataset_state": dataset_state, "minidl": {}}


@dataclass(frozen=True)
class Ready:
    """worker_result_queue: the epoch has begun here, or could not begin."""

    epoch_id: int
    worker_id: int
    place: bytes | ExceptionWrapper | None  # None: there is nothing to tell
    task_id = RESUME


@dataclass(frozen=True)
class PlacedResult(Result):
    """worker_result_queue: with the dataset's place, pickled, if it is told after this task."""

    place: bytes | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return PlacedResult, (self.epoch_id, self.task_id, self.worker_id, self.data, None, self.place)


@dataclass
class StatefulWorker(Worker):
    place: Any = None  # what the first epoch begins from
    finished: bool = False  # it is the end of an epoch: another one begins after it
    keys: Any = None  # those of any task of an iterable dataset
    every: int = 1  # after so many batches it tells its place; 0 for never
    epoch_id: int | None = None  # of an epoch after the first

    def make_fetcher(self) -> Fetcher:
        place, self.place = self.place, None
        self.source = Source(self.job.dataset, super().make_fetcher, self.keys, place)
        return self.source.fetcher

    def begin_epoch(self) -> None:
        super().begin_epoch()
        if self.finished and self.failure is None:
            self.finished = False
            super().begin_epoch()
        epoch_id = self.job.epoch_id if self.epoch_id is None else self.epoch_id
        self.result_queue.put(Ready(epoch_id, self.job.worker_id, self.failure or self.told()))

    def resume(self, message: Resume) -> None:
        self.epoch_id = message.epoch_id
        super().resume(message)

    def answer(self, task: Any, data: Any, room: Any) -> Result:
        place = None
        if self.failure is None and self.source.tells:
            self.source.since += 1
            if self.source.since == self.every or isinstance(data, StreamEnd):
                self.source.since, place = 0, self.told()
        if isinstance(place, ExceptionWrapper):
            data, place = place, None
        return PlacedResult(task.epoch_id, task.task_id, self.job.worker_id, data, room, place)

    def told(self) -> Any:
        """Pickled here: until a feeder does it, the next task may have changed what a `state_dict()` has returned."""
        try:
            return pickle.dumps(self.source.place()) if self.source.tells or self.source.stream is not None else None
        except Exception as error:
            return self.wrap(error)
