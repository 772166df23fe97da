"""How far an epoch has come, as main knows it: what `state_dict()` returns, and what is read from it.

A batch counts once the caller has it: `passed` remembers it, and it is settled when the next one is asked for. What
Ctrl-C has taken from the caller is in flight still. Each change is one assignment, so that Ctrl-C never leaves half of
one.

Whatever is wrong with a state is a ValueError of one line. A checksum over all of it finds the damage, so that nothing
else needs to look for any.

Legend: see minidl.stateful. The words are those of torchdata's StatefulDataLoader; what only minidl knows is under
"minidl".
"""

from __future__ import annotations

import copy
import json
import pickle
import weakref
import zlib
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from torch.utils.data import IterableDataset

from minidl.events import STATE_TAKEN, emit
from minidl.messages import StreamEnd
from minidl.stateful.dataset import PlacedResult, Source


class Known(NamedTuple):
    """Of a dataset: the place that it has told last, and what was yielded since."""

    place: bytes | None  # pickled; see minidl.stateful.dataset. None: it has none to come to
    batches: int = 0
    failed: tuple[int, ...] = ()  # which of these, counted from 0, have raised
    keys: tuple[Any, ...] = ()
    ended: bool = False  # the stream has no more samples

    def after(self, keys: tuple[Any, ...], yielded: bool) -> Known:
        failed = self.failed if yielded else (*self.failed, self.batches)
        return self._replace(batches=self.batches + 1, failed=failed, keys=self.keys + keys)

    def told(self) -> dict[str, Any]:
        if self.place is None:
            return {"fetcher_state": None, "dataset_state": None, "minidl": {}}
        place = pickle.loads(self.place)
        if self.ended:
            place["fetcher_state"]["fetcher_ended"] = True
        way = place["minidl"]
        failed = [*way.get("failed", ()), *(way.get("batches", 0) + number for number in self.failed)]
        keys = [*way.get("keys", ()), *self.keys]
        return {**place, "minidl": {"batches": way.get("batches", 0) + self.batches, "failed": failed, "keys": keys}}


class Now(NamedTuple):
    steps: int  # batches yielded in this epoch, by this process and those before it
    last_worker: int  # that made the last of them
    known: tuple[Known, ...]  # for each worker, or for main
    tasks: dict[int, Any]  # task_id -> keys, of those in flight
    turn: tuple[int, int, bool, bytes | None] | None = None  # it is not settled that the caller has this one


class Progress:
    """The loader keeps it when the iterator is gone: after a `break` it is still known."""

    source: Source | None = None  # without workers: the dataset's place is asked for when it is needed
    instead: Any = None  # the place that was loaded, until a batch is made: some datasets find it only then
    finished = False
    left_halfway = False  # the iterator is gone, and was interrupted

    def __init__(self, loader: Any, iterator: Any, begin: Now) -> None:
        self.iterator: Any = weakref.ref(iterator)
        self.epoch_id, self.base_seed = iterator._epoch_id, iterator._base_seed
        self.draws, self.length_called = iterator._sampler_iter, iterator._IterableDataset_len_called
        self.num_workers, self.batch_size, self.in_order = loader.num_workers, loader.batch_size, loader.in_order
        self.now = begin
        self.arrived: dict[int, bytes | None] = {}  # task_id -> its worker's place after it
        self.ended: dict[int, tuple[int, bytes | None]] = {}  # worker_id -> the task that found no sample left

    def begins(self, worker_id: int, place: bytes | None) -> None:
        """A worker has told where it begins."""
        known = (*self.now.known[:worker_id], Known(place), *self.now.known[worker_id + 1 :])
        self.now = self.now._replace(known=known)

    def heard(self, result: PlacedResult) -> None:
        """What a worker has told counts once its batch is yielded."""
        if isinstance(result.data, StreamEnd):
            self.ended[result.worker_id] = result.task_id, result.place
        else:
            self.arrived[result.task_id] = result.place

    def passed(self, task_id: int, worker_id: int, yielded: bool) -> None:
        """A task's turn is over: its batch is handed to the caller, or its error raised."""
        self.now = self.now._replace(turn=(task_id, worker_id, yielded, self.arrived.pop(task_id, None)))

    def settle(self) -> None:
        """The caller has it, and asks for more."""
        self.now = self.settled()

    def settled(self) -> Now:
        steps, last_worker, before, tasks, turn = self.now
        known, task_id = [*before], -1
        if turn is not None:
            task_id, last_worker, yielded, place = turn
            steps += yielded
            keys = () if self.draws.endless else (tasks[task_id],)
            if place is not None:
                known[last_worker] = Known(place)
            elif known[last_worker].place is not None:
                known[last_worker] = known[last_worker].after(keys, yielded)
            tasks = {other: keys for other, keys in tasks.items() if other != task_id}
        for worker_id, (at, place) in self.ended.items():  # it counts once all of the worker's batches are yielded
            if at < task_id or self.finished or not self.in_order:
                known[worker_id] = (Known(place) if place else known[worker_id])._replace(ended=True)
        return Now(steps, last_worker, tuple(known), tasks)

    def finish(self) -> None:
        self.finished = True
        self.now = self.settled()._replace(tasks={})

    def halfway(self) -> bool:
        iterator = self.iterator()
        return self.left_halfway if iterator is None else iterator._halfway

    def state_dict(self) -> dict[str, Any]:
        now = self.now if self.halfway() else self.settled()
        sampler = self.draws.place()
        ours = {
            "iterable": self.draws.endless,
            "batch_size": self.batch_size,
            "steps": now.steps,
            "last_worker": now.last_worker,
            "in_flight": [*now.tasks.values(), *self.draws.pending],
            "sampler": sampler.pop("minidl"),
            "random": self.draws.generators.read(),
        }
        emit(STATE_TAKEN, self.epoch_id, value=now.steps, text=ours["in_flight"])
        main = {**sampler, "_IterableDataset_len_called": self.length_called, "_shared_seed": None}
        state = self._with_workers(now, main) if self.num_workers else self._without_workers(now, main)
        ours["way"], ours["instead"] = state.pop("minidl", None), self.instead
        state = copy.deepcopy({**state, "_iterator_finished": self.finished, "minidl": ours})
        state["minidl"]["sum"] = sum_of(state)
        return state

    def _without_workers(self, now: Now, main: dict[str, Any]) -> dict[str, Any]:
        assert self.source is not None
        if self.source.tells and self.halfway():
            name = type(self.source.dataset).__name__
            raise RuntimeError(f"next() was interrupted: nothing tells where {name} was before the batch that is lost")
        place = self.source.place() if self.source.tells else now.known[0].told()
        return {**main, "_num_yielded": now.steps, **place}

    def _with_workers(self, now: Now, main: dict[str, Any]) -> dict[str, Any]:
        main = {"_num_workers": self.num_workers, "_base_seed": self.base_seed, **main}
        snapshot = {"_snapshot_step": now.steps, "_last_yielded_worker_id": now.last_worker, "_main_snapshot": main}
        places = {f"worker_{at}": {"worker_id": at, **known.told()} for at, known in enumerate(now.known)}
        return {"_snapshot": {**snapshot, "_worker_snapshots": places}, "_steps_since_snapshot": 0}


@dataclass(frozen=True)
class Saved:
    """What a state says."""

    finished: bool  # the epoch is over: the next iterator begins another
    num_workers: int
    main: dict[str, Any]  # the sampler's place: see Draws.place
    places: list[dict[str, Any] | None]  # of the dataset in each worker, or in main without workers
    ours: dict[str, Any]  # what only minidl knows

    def now(self) -> Now:
        known = []
        for place in self.places:
            told = place is not None and (place["fetcher_state"], place["dataset_state"]) != (None, None)
            known.append(Known(pickle.dumps(place) if told else None))
        return Now(self.ours["steps"], self.ours["last_worker"], tuple(known), {})

    def for_workers(self, num_workers: int, strict: bool) -> Saved:
        """What of it so many workers can use. ValueError if nothing tells how they share it."""
        if num_workers == self.num_workers:
            return self
        if strict or self.ours["iterable"]:
            raise OtherWorkers(
                f"the state is of num_workers={self.num_workers}, and this loader has {num_workers}: only a map-style "
                "dataset can go on with others, after load_state_dict(state, strict=False)"
            )
        ours = {**self.ours, "last_worker": num_workers - 1}
        return replace(self, num_workers=num_workers, places=[None] * max(num_workers, 1), ours=ours)


class OtherWorkers(ValueError, AssertionError):
    """A state of another number of workers. (torchdata's is an AssertionError.)"""


def saved_of(state: Any, loader: Any) -> Saved:
    """Read a state. ValueError if it is damaged, or of another kind of loader."""
    ours = state.get("minidl") if isinstance(state, dict) else None
    if not isinstance(ours, dict):
        raise ValueError('the state is not one of minidl.StatefulDataLoader: its entry "minidl" is missing')
    if not isinstance(state.get("_iterator_finished"), bool) or ours.get("sum") != sum_of(state):
        raise ValueError("the state is damaged: its checksum does not fit what it says")
    if ours["iterable"] != isinstance(loader.dataset, IterableDataset):
        raise ValueError("the state is of another loader: one dataset is map-style, the other iterable")
    if ours["batch_size"] != loader.batch_size:
        raise ValueError(f"the state is of another loader: batch_size={ours['batch_size']}, not {loader.batch_size}")
    state = copy.deepcopy(state)
    ours, snapshot = state["minidl"], state.get("_snapshot")
    if snapshot is None:
        places, main, num_workers = [ours["instead"] or {**state, "minidl": ours["way"]}], state, 0
    else:
        places, main = [*snapshot["_worker_snapshots"].values()], snapshot["_main_snapshot"]
        num_workers = main["_num_workers"]
    return Saved(state["_iterator_finished"], num_workers, {**main, "minidl": ours["sampler"]}, places, ours)


def sum_of(state: dict[str, Any]) -> int:
    """A checksum of a state, the same after pickle and JSON. (accelerate writes `_iterator_finished` anew.)"""
    ours = {name: value for name, value in state["minidl"].items() if name != "sum"}
    return zlib.crc32(repr(plain({**state, "_iterator_finished": None, "minidl": ours})).encode())


def plain(value: Any) -> Any:
    """As JSON has it, in a fixed order. Of what JSON does not know, the type's name."""
    if isinstance(value, dict):
        named = {key if isinstance(key, str) else json.dumps(key, default=repr): value[key] for key in value}
        return tuple((name, plain(named[name])) for name in sorted(named))  # never the same as a list
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else type(value).__name__
