"""A dataset's place in an epoch: how a worker (or main, if there is none) reports it, and begins at it.

A dataset, and the iterator of an iterable one, may report their place by `state_dict()` and resume it by
`load_state_dict()`. A stream without these is started again, and the batches that it has behind it are made once more
and thrown away.

    main                                          worker
                   <---- worker_result_queue --   Ready(its place), when an epoch has begun
    Task           -- index_queue ------------>   makes the batch
                   <---- worker_result_queue --   PlacedResult(batch, its place after it)

A place, in torchdata's words. It travels and is kept pickled: the next task may change what a `state_dict()` returned.

    {"fetcher_state": {"dataset_iter_state": None, "fetcher_ended": False},      None for a map-style dataset
     "dataset_state": None,
     "again": 3}                              not in torchdata's: batches that a stream without a state has behind it

torchdata: torchdata.stateful_dataloader.worker
"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from torch._utils import ExceptionWrapper

from minidl.data.fetch import Fetcher
from minidl.events import RESUME
from minidl.messages import Result, Resume, StreamEnd
from minidl.worker import Worker

AT_ITS_START = pickle.dumps({"fetcher_state": None, "dataset_state": None, "again": 0})


def is_stateful(thing: Any) -> bool:
    return callable(getattr(thing, "state_dict", None)) and callable(getattr(thing, "load_state_dict", None))


def state_of(thing: Any) -> Any:
    return thing.state_dict() if is_stateful(thing) else None


def give_back(thing: Any, state: Any) -> None:
    """Load what `state_of` returned. ValueError if that fails, whatever the thing itself raises."""
    try:
        if state is not None:
            thing.load_state_dict(state)
    except Exception as error:
        raise ValueError(f"{type(thing).__name__} cannot load what the state has for it: {error!r}") from error


class Source:
    """A dataset in one epoch, and its fetcher.

    Args:
        make: makes the fetcher, which begins to iterate over an iterable dataset.
        begin: the place to begin at.
        keys: those of any task of a stream.
    """

    def __init__(self, dataset: Any, make: Callable[[], Fetcher], begin: bytes, keys: Any) -> None:
        place = pickle.loads(begin)
        give_back(dataset, place["dataset_state"])
        self.dataset, self.fetcher = dataset, cast(Any, make())
        self.stream = getattr(self.fetcher, "dataset_iter", None)  # None if the dataset is map-style
        self.winds = self.stream is not None and not is_stateful(dataset) and not is_stateful(self.stream)
        self.again = place["again"]
        if place["fetcher_state"] is not None:
            give_back(self.stream, place["fetcher_state"]["dataset_iter_state"])
            for _ in range(self.again):
                with contextlib.suppress(Exception):  # it was raised before the stop, too, in place of the batch
                    self.fetcher.collate_fn(self.fetcher.fetch(keys))  # collating, too, may draw random numbers
            if place["fetcher_state"]["fetcher_ended"]:
                self.fetcher.dataset_iter = iter(())  # some have already begun the next epoch

    def place(self, ended: bool = False) -> bytes:
        stream_place = None
        if self.stream is not None:
            ended = ended or self.fetcher.ended
            stream_place = {"dataset_iter_state": state_of(self.stream), "fetcher_ended": ended}
        dataset_state = None if self.stream is self.dataset else state_of(self.dataset)
        return pickle.dumps({"fetcher_state": stream_place, "dataset_state": dataset_state, "again": self.again})

    def place_after_a_task(self, ended: bool) -> bytes:
        self.again += self.winds
        return self.place(ended)


@dataclass(frozen=True)
class Ready:
    """worker_result_queue: the epoch has begun here, or could not begin."""

    epoch_id: int
    worker_id: int
    place: bytes | ExceptionWrapper  # why it could not
    task_id = RESUME


@dataclass
class PlacedResult(Result):
    """worker_result_queue: with the dataset's place after this task."""

    place: bytes = AT_ITS_START

    def __reduce__(self) -> tuple[Any, ...]:
        return PlacedResult, (self.epoch_id, self.task_id, self.worker_id, self.data, None, self.place)


@dataclass
class StatefulWorker(Worker):
    begin: bytes = AT_ITS_START  # the place where its first epoch begins
    keys: Any = None  # see Source

    def make_fetcher(self) -> Fetcher:
        self.source = Source(self.job.dataset, super().make_fetcher, self.begin, self.keys)
        self.begin = AT_ITS_START
        return self.source.fetcher

    def start(self) -> None:
        super().start()
        self.ready(self.job.epoch_id)

    def resume(self, message: Resume) -> None:
        super().resume(message)
        self.ready(message.epoch_id)

    def ready(self, epoch_id: int) -> None:
        self.result_queue.put(Ready(epoch_id, self.job.worker_id, self.failure or self.source.place()))

    def answer(self, task: Any, data: Any, room: Any) -> Result:
        """(No task comes before main knows that the epoch could begin.)"""
        place = self.source.place_after_a_task(ended=isinstance(data, StreamEnd))
        return PlacedResult(task.epoch_id, task.task_id, self.job.worker_id, data, room, place)
