"""StatefulDataLoader: a DataLoader that can report where it is, and resume there; and its two iterators, each of which
is the plain one with a record of its progress.

    asked for a batch      the caller has the batch before it
    a task is answered     the place that came with it waits for its batch
    a batch is yielded     a new page says who made it, and where its maker's dataset was after it

If a state was loaded, they begin where it says: main's random generators become what they were when that epoch began,
the sampler and the dataset resume, and the generators are left as they were found.

torchdata: torchdata.stateful_dataloader.StatefulDataLoader
"""

from __future__ import annotations

import functools
from typing import Any

from minidl.data.fetch import Fetcher
from minidl.events import GOES_ON, emit
from minidl.iterator import BaseIterator
from minidl.loader import DataLoader, T_co
from minidl.messages import StreamEnd
from minidl.parallel import ParallelIterator
from minidl.serial import SerialIterator
from minidl.stateful.dataset import AT_ITS_START, PlacedResult, Ready, Source, StatefulWorker
from minidl.stateful.progress import Progress, Saved, saved_of
from minidl.stateful.sampler import Draws, Generators


class StatefulDataLoader(DataLoader[T_co]):
    """A DataLoader that can be stopped after any batch and resumed, in another process too, with exactly the batches
    that would have come.

    Args:
        snapshot_every_n_steps: accepted for torchdata's sake. A state is always that of the last batch.
    All others are those of DataLoader.
    """

    _progress: Any = None  # of the last epoch begun: a Progress
    _saved: Saved | None = None  # loaded, and not begun from
    _ready: BaseIterator | None = None  # begun for `state_dict()`

    def __init__(self, *args: Any, snapshot_every_n_steps: int | None = 1, **options: Any) -> None:
        super().__init__(*args, **options)
        self.snapshot_every_n_steps = snapshot_every_n_steps

    def state_dict(self) -> dict[str, Any]:
        """Where the latest epoch is; if there is none, one begins. The state can be pickled and written as JSON if the
        states of your own datasets and samplers can."""
        if self._progress is None:
            self._ready = iter(self)
        return self._progress.state_dict()

    def load_state_dict(self, state: dict[str, Any], strict: bool = True) -> None:
        """Begin the next epoch where `state` says. The random generators of this process, and those of the loader's
        samplers, become what they were when it was taken. An empty state is that of a new loader.

        Args:
            strict: False lets a map-style dataset resume with a different number of workers.

        Raises:
            ValueError: the state is damaged, or of another loader. If only the number of workers differs, or if the
                sampler or the dataset cannot reach its place, it is raised when the epoch begins.
        """
        saved = None
        if state != {}:
            saved = saved_of(state, self)
            Generators(self).put_back(saved.ours["random"])
        self._saved, self._strict = saved, strict
        self._iterator = self._ready = self._progress = None

    def __iter__(self) -> Any:
        ready, self._ready = self._ready, None
        if ready is not None:
            return ready
        if self._saved is not None and self._saved.finished:  # resumed like any other, that epoch yields nothing
            next(super().__iter__(), None)
        return super().__iter__()

    def _get_iterator(self) -> BaseIterator:
        saved = self._saved and self._saved.for_workers(self.num_workers, self._strict)
        self.check_worker_number_rationality()
        kind = StatefulParallelIterator if self.num_workers > 0 else StatefulSerialIterator
        iterator = kind(self, saved)
        self._saved = None
        return iterator


class StatefulIterator(BaseIterator):
    """What both have in common. `saved` is used only for the first epoch."""

    def __init__(self, loader: Any, saved: Saved | None) -> None:
        self._saved = saved
        self._generators = Generators(loader)
        self._as_found = self._generators.read()
        super().__init__(loader)

    def _begin_sampler(self, loader: Any) -> Draws:
        """Before the base seed is drawn, and with workers once more after it."""
        if self._saved is not None:
            self._generators.put_back(self._saved.ours["begun_with"][0])
        return Draws(loader)

    def _draw_base_seed(self, loader: Any) -> int:
        given = self._saved.main.get("_base_seed") if self._saved else None
        return super()._draw_base_seed(loader) if given is None else given

    def _begins(self, maker: int) -> dict[str, Any]:
        """Where a maker of batches begins: a worker, or main without any."""
        begin = AT_ITS_START if self._saved is None else self._saved.page.places[maker]
        return {"begin": begin, "keys": next(iter(self._index_sampler)) if self._iterable else None}

    def _begin_epoch(self, loader: Any, previous_epoch_id: int = -1) -> None:
        super()._begin_epoch(loader, previous_epoch_id)
        saved, self._saved = self._saved, None
        if saved is not None:
            self._num_yielded = saved.page.steps
            self._sampler_iter.go_on(saved.main, saved.ours, saved.finished)
            self._generators.put_back(self._as_found)
            emit(GOES_ON, self._epoch_id, value=saved.page.steps, text=saved.ours["in_flight"])
        self._progress = loader._progress = Progress(loader, self, saved and saved.page)

    def __next__(self) -> Any:
        progress = self._progress
        page = progress.page
        progress.draws.tasks.pop(page.task_id, None)  # the caller has its batch
        try:
            return super().__next__()
        except StopIteration:
            progress.finished = True
            raise
        finally:
            if self._halfway:  # an interrupt kept the batch from the caller: it is still in flight
                progress.page = page


class StatefulSerialIterator(StatefulIterator, SerialIterator):
    def __init__(self, loader: Any, saved: Saved | None) -> None:
        super().__init__(loader, saved)
        self._progress.is_at(0, self._source.place())

    def _make_fetcher(self) -> Fetcher:
        self._source = Source(self._dataset, super()._make_fetcher, **self._begins(0))
        return self._source.fetcher

    def _next_data(self) -> tuple[int, Any]:
        task_id = self._num_drawn
        try:
            batch = super()._next_data()
        except Exception as error:
            if task_id < self._num_drawn:  # else it is the sampler's
                self._made(task_id, ended=self._iterable and isinstance(error, StopIteration))
            raise
        self._made(task_id, ended=False)
        return batch

    def _made(self, task_id: int, ended: bool) -> None:
        self._progress.heard(0, self._source.place_after_a_task(ended), ended)
        if not ended:
            self._progress.passed(task_id, 0)


class StatefulParallelIterator(StatefulIterator, ParallelIterator):
    def _worker_class(self, worker_id: int) -> Any:
        return functools.partial(StatefulWorker, **self._begins(worker_id))

    def _prime(self) -> None:
        while self._progress.waiting_for:
            self._get_data(0)  # what is made once more may take longer than a batch
        self._next_worker = (self._progress.page.last_worker + 1) % self._num_workers
        super()._prime()

    def _get_data(self, timeout: float) -> Any:
        message = super()._get_data(timeout)
        if message.epoch_id == self._epoch_id and isinstance(message, PlacedResult):
            self._progress.heard(message.worker_id, message.place, ended=isinstance(message.data, StreamEnd))
        elif message.epoch_id == self._epoch_id and isinstance(message, Ready):
            self._progress.begins(message.worker_id, message.place)
        return message

    def _take(self, task_id: int) -> Any:
        worker_id = self._task_info[task_id].worker_id
        try:
            return super()._take(task_id)
        finally:
            if task_id not in self._task_info:  # else the sampler has raised, and its turn comes again
                self._progress.passed(task_id, worker_id)
