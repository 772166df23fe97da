"""The two iterators of a StatefulDataLoader: each is the plain one, and keeps its progress.

    asked for a batch      the batch before it is settled: the caller has it
    keys drawn             they are remembered
    a batch is yielded     so is whose turn it was, and where that worker's dataset is

If a state was loaded, they begin where it says: the random generators of main become what they were when that epoch
began, the sampler and the dataset go on, and the generators are left as they were found.

torchdata: _StatefulSingleProcessDataLoaderIter, _StatefulMultiProcessingDataLoaderIter
"""

from __future__ import annotations

import functools
import pickle
from typing import Any

from torch._utils import ExceptionWrapper

from minidl.data.fetch import Fetcher
from minidl.events import GOES_ON, emit
from minidl.iterator import BaseIterator
from minidl.parallel import ParallelIterator
from minidl.serial import SerialIterator
from minidl.stateful.dataset import PlacedResult, Ready, Source, StatefulWorker
from minidl.stateful.progress import Known, Now, Progress, Saved
from minidl.stateful.sampler import Draws, Generators


class StatefulIterator(BaseIterator):
    """What both have in common. `saved` is used up once the first epoch has begun."""

    _progress: Progress
    _sampler_iter: Draws

    def __init__(self, loader: Any, saved: Saved | None) -> None:
        self._saved = saved
        self._places = saved.places if saved else [None] * max(loader.num_workers, 1)
        self._generators = Generators(loader)
        self._as_found = self._generators.read()
        self._keys = None if loader.batch_size is None else [None] * loader.batch_size
        super().__init__(loader)

    def _begin_sampler(self, loader: Any) -> Draws:
        """Before the base seed is drawn, and with workers once more after it."""
        if self._saved is not None:
            begun_with = self._saved.ours["sampler"]["begun_with"]
            self._generators.put_back(self._as_found if self._saved.finished else begun_with[0])
        return Draws(loader)

    def _draw_base_seed(self, loader: Any) -> int:
        given = self._saved.main.get("_base_seed") if self._saved else None
        return super()._draw_base_seed(loader) if given is None else given

    def _begin_epoch(self, loader: Any, previous_epoch_id: int = -1) -> None:
        super()._begin_epoch(loader, previous_epoch_id)
        begin = Now(0, self._num_workers - 1, tuple(Known(None) for _ in self._places), {})
        if self._saved is not None and not self._saved.finished:
            begin = self._saved.now()
            self._num_yielded = begin.steps
            self._IterableDataset_len_called = self._saved.main["_IterableDataset_len_called"]
            emit(GOES_ON, self._epoch_id, value=begin.steps, text=self._saved.ours["in_flight"])
        self._progress = loader._progress = Progress(loader, self, begin)

    def _find_keys(self) -> None:
        if self._saved is not None and not self._saved.finished:
            self._sampler_iter.go_on(self._saved.main, self._saved.ours["in_flight"])
            self._generators.put_back(self._as_found)

    def _next_keys(self) -> Any:
        task_id = self._num_drawn
        keys = super()._next_keys()
        self._progress.now.tasks[task_id] = keys
        return keys

    def _next(self) -> Any:
        if not self._halfway:  # otherwise the caller never got the last one
            self._progress.settle()
        try:
            return super()._next()
        except StopIteration:
            self._progress.finish()
            raise


class StatefulSerialIterator(StatefulIterator, SerialIterator):
    def __init__(self, loader: Any, saved: Saved | None) -> None:
        super().__init__(loader, saved)
        self._progress.iterator = lambda: self  # without workers it may stay
        self._progress.source, self._progress.instead = self._source, self._places[0]
        if saved is None and self._iterable and not self._source.tells:
            self._progress.begins(0, pickle.dumps(self._source.place()))
        self._saved = None

    def _make_fetcher(self) -> Fetcher:
        place = self._places[0]
        stream_state = ((place and place["fetcher_state"]) or {}).get("dataset_iter_state")
        told = stream_state is not None or (place and place["dataset_state"] is not None)
        if told:  # last: the dataset may put back random generators, too
            self._find_keys()
        self._source = Source(self._dataset, super()._make_fetcher, self._keys, place)
        if not told:
            self._find_keys()
        return self._source.fetcher

    def _next_data(self) -> tuple[int, Any]:
        task_id = self._num_drawn
        try:
            _, batch = super()._next_data()
        except Exception as error:
            if task_id < self._num_drawn and not (self._iterable and isinstance(error, StopIteration)):
                self._pass(task_id, yielded=False)
            raise
        self._pass(task_id, yielded=True)
        return task_id, batch

    def _pass(self, task_id: int, yielded: bool) -> None:
        self._progress.instead = None
        self._progress.passed(task_id, 0, yielded)


class StatefulParallelIterator(StatefulIterator, ParallelIterator):
    _ready = False  # the workers are

    def __init__(self, loader: Any, saved: Saved | None) -> None:
        self._every = -(-(loader.snapshot_every_n_steps or 0) // loader.num_workers)  # a worker counts its own batches
        super().__init__(loader, saved)
        self._saved = None

    def _worker_class(self, worker_id: int) -> Any:
        finished, place = self._saved is not None and self._saved.finished, self._places[worker_id]
        return functools.partial(StatefulWorker, place=place, finished=finished, keys=self._keys, every=self._every)

    def _prime(self) -> None:
        if not self._ready:
            self._ready = True
            waiting = self._num_workers
            while waiting:
                waiting -= isinstance(self._get_data(self._timeout), Ready)
            self._find_keys()
            self._next_worker = (self._progress.now.last_worker + 1) % self._num_workers
        super()._prime()

    def _get_data(self, timeout: float) -> Any:
        message = super()._get_data(timeout)
        if message.epoch_id != self._epoch_id:
            return message
        if isinstance(message, Ready):
            if isinstance(message.place, ExceptionWrapper):
                message.place.reraise()
            elif self._saved is None or self._saved.finished:  # some datasets find their place with their first sample
                self._progress.begins(message.worker_id, message.place)
        elif isinstance(message, PlacedResult):
            self._progress.heard(message)
        return message

    def _take(self, task_id: int) -> Any:
        self._maker = self._task_info[task_id].worker_id
        try:
            return super()._take(task_id)
        except Exception:
            if task_id not in self._task_info:  # it came in the batch's place
                self._progress.passed(task_id, self._maker, yielded=False)
            raise

    def _next_data(self) -> tuple[int, Any]:
        task_id, batch = super()._next_data()
        self._progress.passed(task_id, self._maker, yielded=True)
        return task_id, batch

    def __del__(self) -> None:
        if hasattr(self, "_progress"):
            self._progress.left_halfway = self._halfway
        super().__del__()
