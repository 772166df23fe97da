"""Where an iterator is in its epoch: what `state_dict()` returns, and what an iterator that goes on begins from.

    tasks     0 1 2 3 | 4 5 6 7 | 8 ...        after four batches, with two workers and prefetch_factor=2
              yielded | in flight | not drawn

The workers are ahead of the training loop: they may have made 4 and 5 already. Their places now are of no use to a run
that must begin with batch 4. So every result carries its worker's place after that batch, and main keeps the place when
it *yields* the batch. What is in flight belongs to nobody's past: only its keys are saved, and they come first.

Legend
    steps      4        batches yielded in this epoch, by this process and those before it
    snapshot            what is true after `steps` batches, if that is a multiple of snapshot_every_n_steps
    places     [{"torch": b"..", ...}, None]   each worker's place after its last batch that was yielded; in parts, of
                               which a worker sends with a batch those that have changed

torch has no counterpart. The layout is that of torchdata's StatefulDataLoader: one reads what the other wrote. What
only minidl knows is under "minidl".
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from torch._utils import ExceptionWrapper
from torch.utils.data import _DatasetKind

from minidl.checkpoint import randomness
from minidl.checkpoint.draws import Draws, Mark
from minidl.checkpoint.source import NOWHERE, layout_of
from minidl.events import STATE_TAKEN, emit
from minidl.messages import Result, Resumed

if TYPE_CHECKING:
    from minidl.checkpoint.source import Source
    from minidl.loader import DataLoader


@dataclass
class Snapshot:
    """What is known after so many batches."""

    steps: int
    last_worker: int
    places: list[dict[str, bytes] | None]


def snapshot_interval(loader: DataLoader) -> int:
    """The loader's `snapshot_every_n_steps`. Where it isn't known beforehand which task becomes the nth batch, or the
    last of an epoch that its worker outlives, every batch has a snapshot; and without workers: it costs nothing."""
    known = loader.in_order and loader._dataset_kind == _DatasetKind.Map and not loader.persistent_workers
    return loader.snapshot_every_n_steps if known and loader.num_workers else 1


class Position:
    """How far one epoch has come. The loader keeps it when the iterator is gone: after a `break` it is still known."""

    source: Source | None = None  # without workers; the dataset's place is asked for when it is needed

    def __init__(self, loader: DataLoader, draws: Draws, epoch_id: int, base_seed: int) -> None:
        self.draws = draws
        self.epoch_id = epoch_id
        self.base_seed = base_seed
        self.num_workers = loader.num_workers
        self.interval = snapshot_interval(loader)
        self.length_called = loader._IterableDataset_len_called
        self.finished = False
        self.in_flight: dict[int, tuple[Any, Mark]] = {}  # task_id -> keys, and the sampler's place before them
        self.arrived: dict[int, tuple[int, Any]] = {}  # task_id -> worker_id, and the dataset's place after it
        self._passed: list[int] = []  # tasks since the snapshot
        self.begin(Snapshot(0, self.num_workers - 1, [None] * self.num_workers))

    def begin(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.steps, self.places = snapshot.steps, [*snapshot.places]

    def heard(self, message: Result | Resumed) -> Result | Resumed:
        """A worker has told its dataset's place, which counts once the batch is yielded. If it could not, its error
        takes the batch's stead."""
        lost = isinstance(message.place, ExceptionWrapper)
        if isinstance(message, Resumed):
            if lost:
                try:
                    message.place.reraise()
                except Exception as error:  # without the cycle of exception and frame: see ParallelIterator._take
                    raise error.with_traceback(None) from None
            self.places[message.worker_id] = self.snapshot.places[message.worker_id] = message.place
            return message
        self.arrived[message.task_id] = message.worker_id, message.place
        return replace(message, data=message.place) if lost else message

    def is_lost(self, task_id: int) -> bool:
        return isinstance(self.arrived[task_id][1], ExceptionWrapper)

    def passed(self, task_id: int, yielded: bool) -> None:
        """A task's turn is over: its batch is yielded, or its error raised."""
        worker_id, place = self.arrived.pop(task_id, (0, None))
        if place:
            self.places[worker_id] = {**(self.places[worker_id] or {}), **place}
        self.steps += yielded
        self._passed.append(task_id)
        if len(self._passed) >= self.interval:  # more, if Ctrl-C came just here
            passed, snapshot = {*self._passed}, Snapshot(self.steps, worker_id, [*self.places])
            in_flight = {each: drawn for each, drawn in self.in_flight.items() if each not in passed}
            self.snapshot, self.in_flight, self._passed = snapshot, in_flight, []  # at once: Ctrl-C may come between

    def finish(self) -> None:
        """The epoch is over. What is left has been told by workers whose streams had ended."""
        for task_id in sorted(self.arrived):
            self.passed(task_id, yielded=False)
        self.finished = True

    @classmethod
    def before_the_first(cls, loader: DataLoader) -> Position:
        """No epoch has begun. Nothing is known but the random generators, which will decide about the first."""
        position = cls(loader, Draws(loader), epoch_id=0, base_seed=0)
        position.finished = True
        return position

    # ---- in torchdata's words

    def state_dict(self) -> dict[str, Any]:
        draws = self.draws
        in_flight = [*self.in_flight.values(), *draws.pending]
        if self.epoch_id:
            emit(STATE_TAKEN, self.epoch_id, value=self.steps, text=[keys for keys, _ in in_flight])
        mark = in_flight[0][1] if in_flight else draws.mark()
        main = {
            **draws.layout(mark),
            "_IterableDataset_len_called": self.length_called,
            "_shared_seed": None,  # of DataPipes, which torchdata has given up
        }
        ours: dict[str, Any] = {
            "iterable": draws.iterable,
            "samples": mark.samples,
            **draws.share,
            "ahead": draws.drawn - mark.drawn,
            "in_flight": [keys for keys, _ in in_flight],
            "sampler_ended": draws.ended,
            "since": len(self._passed),  # with those that failed
            "given": bool(draws.given),
            "sampler_begun_with": [randomness.as_text(states) for states in draws.begun_with],  # none before any epoch
            "random": randomness.as_text(randomness.read(draws.generators)),
        }
        state = self._with_workers(main, ours) if self.num_workers else self._without_workers(main, ours)
        return copy.deepcopy({**state, "_iterator_finished": self.finished})

    def _without_workers(self, main: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
        place = layout_of(self.source.parts()) if self.source else NOWHERE
        return {**main, **place, "_num_yielded": self.steps, "minidl": {**place["minidl"], **ours}}

    def _with_workers(self, main: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
        snapshot = self.snapshot
        places = {
            f"worker_{worker_id}": {"worker_id": worker_id, **layout_of(place)} if place else None
            for worker_id, place in enumerate(snapshot.places)
        }
        return {
            "_snapshot": {
                "_snapshot_step": snapshot.steps,
                "_last_yielded_worker_id": snapshot.last_worker,
                "_main_snapshot": {"_num_workers": self.num_workers, "_base_seed": self.base_seed, **main},
                "_worker_snapshots": places,
            },
            "_steps_since_snapshot": self.steps - snapshot.steps,
            "minidl": ours,
        }
