"""StatefulDataLoader: a DataLoader that can be asked where it is, and goes on from there.

torchdata: torchdata.stateful_dataloader.StatefulDataLoader
"""

from __future__ import annotations

from typing import Any

from minidl.iterator import BaseIterator
from minidl.loader import DataLoader, T_co
from minidl.stateful.dataset import give_back
from minidl.stateful.iterators import StatefulParallelIterator, StatefulSerialIterator
from minidl.stateful.progress import Progress, Saved, saved_of
from minidl.stateful.sampler import Draws, Generators


class StatefulDataLoader(DataLoader[T_co]):
    """A DataLoader that can be stopped after any batch: the batches that come after loading its state, in another
    process too, are those that would have come.

    Args:
        snapshot_every_n_steps: with workers, a state describes a moment that is a multiple of so many batches, and
            those since then are made once more. More is cheaper for datasets whose `state_dict()` is slow.
    All others are those of DataLoader.
    """

    _progress: Progress | None = None  # of the last epoch begun
    _saved: Saved | None = None  # loaded, and not begun from
    _ready: BaseIterator | None = None  # begun for `state_dict()`

    def __init__(self, *args: Any, snapshot_every_n_steps: int | None = 1, **options: Any) -> None:
        super().__init__(*args, **options)
        self.snapshot_every_n_steps = snapshot_every_n_steps

    def state_dict(self) -> dict[str, Any]:
        """Where the last epoch is that was begun. It can be pickled, and written as JSON, if the states of your own
        datasets and samplers can. If no epoch was begun, one is."""
        if self._progress is None:
            self._ready = iter(self)
        assert self._progress is not None
        return self._progress.state_dict()

    def load_state_dict(self, state: dict[str, Any], strict: bool = True) -> None:
        """Let the next epoch begin where `state` says. The random generators of this process, and those of the
        loader's samplers, become what they were when it was taken. An empty state is that of a new loader.

        Args:
            strict: False lets a map-style dataset go on with another number of workers.

        Raises:
            ValueError: the state is damaged, or of another loader. If another number of workers is what does not fit,
                or if the sampler or the dataset does not come to its place, it is raised when the epoch begins.
        """
        saved = None
        if state != {}:
            saved = saved_of(state, self)
            Generators(self).put_back(saved.ours["random"])
        self._saved, self._strict = saved, strict
        self._iterator = self._ready = self._progress = None

    def __iter__(self) -> Any:
        ready, self._ready = self._ready, None
        return super().__iter__() if ready is None else ready

    def _get_iterator(self) -> BaseIterator:
        saved = self._saved and self._saved.for_workers(self.num_workers, self._strict)
        if saved is not None and saved.finished:
            saved = self._after(saved)
        iterator: BaseIterator
        if self.num_workers > 0:
            self.check_worker_number_rationality(stacklevel=4)
            iterator = StatefulParallelIterator(self, saved)
        else:
            iterator = StatefulSerialIterator(self, saved)
        self._saved = None
        return iterator

    def _after(self, saved: Saved) -> Saved | None:
        """The epoch of the state is over. Of it remain what the sampler and the dataset tell of themselves: in main, or
        in workers that outlive it."""
        if saved.main["_index_sampler_state"] is not None:
            Draws(self).begin_after(saved.main["_index_sampler_state"])
        if self.num_workers:
            return saved if self.persistent_workers else None
        place = saved.places[0]
        if place is not None:
            stream = place["fetcher_state"] or {}
            own = place["dataset_state"]  # None, too, if the dataset is its own iterator
            give_back(self.dataset, stream.get("dataset_iter_state") if own is None else own)
        return None
