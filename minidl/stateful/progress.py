"""How far an epoch has come, as main knows it: what `state_dict()` returns, and how a state is read.

A dataset's place waits here for the batch after which it was taken. A worker's batches are yielded in the order in
which it made them, whatever the others do, so its places stand in a queue.

A state uses torchdata's names, and under "minidl" has what only minidl knows. Anything wrong with one is a ValueError
of one line. A checksum detects damage, but not inside tensors and other objects of your own states.

Legend: see minidl.stateful.
"""

from __future__ import annotations

import copy
import json
import pickle
import zlib
from collections import deque
from typing import Any, NamedTuple

from torch._utils import ExceptionWrapper
from torch.utils.data import IterableDataset

from minidl.events import STATE_TAKEN, emit
from minidl.stateful.dataset import AT_ITS_START
from minidl.stateful.sampler import Generators


class Page(NamedTuple):
    """Where an epoch stands: each batch that is yielded replaces it."""

    steps: int  # tasks whose turn is over in this epoch, in this process and those before it
    last_worker: int  # that did the last of them
    places: tuple[bytes, ...]  # of the dataset in each worker, or in main
    task_id: int = -1  # the last of them, in this process


class Progress:
    """Kept by the loader, so that it is still known when the iterator is gone, after a `break`."""

    finished = False

    def __init__(self, loader: Any, iterator: Any, page: Page | None) -> None:
        self.epoch_id, self.base_seed = iterator._epoch_id, iterator._base_seed
        self.draws, self.length_called = iterator._sampler_iter, iterator._IterableDataset_len_called
        self.kind, self.num_workers = kind_of(loader), loader.num_workers
        makers = max(self.num_workers, 1)
        self.goes_on = page is not None
        self.page = page or Page(0, self.num_workers - 1, (AT_ITS_START,) * makers)
        self.waiting_for = makers  # that have not yet reported where they begin
        self.arrived: list[deque[bytes]] = [deque() for _ in range(makers)]  # places after batches not yielded yet

    def begins(self, maker: int, place: bytes | ExceptionWrapper) -> None:
        """A worker has reported where it begins, or why it cannot."""
        if isinstance(place, ExceptionWrapper):
            place.reraise()
        self.waiting_for -= 1
        if not self.goes_on:  # else it may not be there yet: some datasets reach their place with their first sample
            self.is_at(maker, place)

    def heard(self, maker: int, place: bytes, ended: bool) -> None:
        """The place after a task, or at the end of the stream."""
        if not ended:
            self.arrived[maker].append(place)
        elif self.arrived[maker]:  # between its last batch and the end there is nothing
            self.arrived[maker][-1] = place
        else:
            self.is_at(maker, place)

    def passed(self, task_id: int, maker: int) -> None:
        """A task's turn is over: its batch is handed to the caller, or its error raised."""
        self.page = self.page._replace(steps=self.page.steps + 1, last_worker=maker, task_id=task_id)
        self.is_at(maker, self.arrived[maker].popleft())

    def is_at(self, maker: int, place: Any) -> None:
        places = self.page.places
        self.page = self.page._replace(places=(*places[:maker], place, *places[maker + 1 :]))

    def state_dict(self) -> dict[str, Any]:
        page = self.page
        main = {**self.draws.place(), "_IterableDataset_len_called": self.length_called, "_shared_seed": None}
        in_flight = [keys for task_id, keys in self.draws.tasks.items() if task_id != page.task_id]
        emit(STATE_TAKEN, self.epoch_id, value=page.steps, text=in_flight)
        places = [pickle.loads(place) for place in page.places]
        if self.num_workers:
            main = {"_num_workers": self.num_workers, "_base_seed": self.base_seed, **main}
            snapshot: dict[str, Any] = {"_snapshot_step": page.steps, "_last_yielded_worker_id": page.last_worker}
            workers = {f"worker_{maker}": {"worker_id": maker, **place} for maker, place in enumerate(places)}
            snapshot |= {"_main_snapshot": main, "_worker_snapshots": workers}
            state = {"_snapshot": snapshot, "_steps_since_snapshot": 0}
        else:
            state = {**main, "_num_yielded": page.steps, **places[0]}
        state["minidl"] = {
            "kind": self.kind,
            "steps": page.steps,
            "last_worker": page.last_worker,
            "in_flight": in_flight,
            "told_after": self.draws.told[0],
            "sum": self.draws.sum,
            "ended": self.draws.ended,
            "begun_with": self.draws.begun_with,
            "random": self.draws.generators.read(),
        }
        return copy.deepcopy({**state, "_iterator_finished": self.finished, "_checksum": sum_of(state)})


class Saved(NamedTuple):
    """What a state says."""

    finished: bool  # the epoch is over, and another one comes next
    main: dict[str, Any]  # what torchdata saves of main
    page: Page
    ours: dict[str, Any]  # what only minidl knows

    def for_workers(self, num_workers: int, strict: bool) -> Saved:
        """As much of it as this number of workers can use. ValueError if it was saved with a different number, and that
        matters."""
        if num_workers == self.main["_num_workers"]:
            return self
        if strict or self.ours["kind"]["iterable"]:
            both = f"it was saved with num_workers={self.main['_num_workers']}, and this loader has {num_workers}"
            raise OtherWorkers(f"{both}: only a map-style dataset can resume so, and only with strict=False")
        return self._replace(page=Page(self.page.steps, num_workers - 1, (AT_ITS_START,) * max(num_workers, 1)))


class OtherWorkers(ValueError, AssertionError):
    """A state of a different number of workers. (torchdata's is an AssertionError.)"""


def saved_of(state: Any, loader: Any) -> Saved:
    """Read a state. ValueError if it is damaged, or of another kind of loader."""
    if not isinstance(state, dict) or "minidl" not in state:
        raise ValueError('the state is not one of minidl.StatefulDataLoader: its entry "minidl" is missing')
    if not isinstance(state.get("_iterator_finished"), bool) or state.get("_checksum") != sum_of(state):
        raise ValueError("the state is damaged: its checksum does not match its content")
    state = copy.deepcopy(state)
    ours = state["minidl"]
    for name, own in kind_of(loader).items():
        if ours["kind"][name] != own:
            raise ValueError(f"the state is of another loader: {name} is {ours['kind'][name]} there, and {own} here")
    if "_snapshot" in state:
        main = state["_snapshot"]["_main_snapshot"]
        places = state["_snapshot"]["_worker_snapshots"].values()
    else:
        main = {**state, "_num_workers": 0}
        places = [state]
    told = "fetcher_state", "dataset_state", "again"
    pickled = [pickle.dumps({name: place[name] for name in told}) for place in places]
    page = Page(ours["steps"], ours["last_worker"], tuple(pickled))
    return Saved(state["_iterator_finished"], main, page, ours)


def kind_of(loader: Any) -> dict[str, Any]:
    """What must be the same in a loader that loads the state."""
    iterable = isinstance(loader.dataset, IterableDataset)
    return {"iterable": iterable, "batch_size": loader.batch_size, "generators": len(Generators(loader).torchs)}


def sum_of(state: dict[str, Any]) -> int:
    """A checksum of a state, the same after pickle and JSON. (accelerate overwrites `_iterator_finished`.)"""
    rest = {name: state[name] for name in state if name not in ("_iterator_finished", "_checksum")}
    # As JSON has it, in a fixed order, which there is once all keys are text. Of what JSON doesn't know, the type.
    text = json.dumps(rest, default=lambda value: type(value).__name__, skipkeys=True)
    return zlib.crc32(json.dumps(json.loads(text), sort_keys=True).encode())
