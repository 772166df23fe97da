"""A state that was loaded, as the next iterator begins from it: minidl's own, or torchdata's.

Two kinds of place are found each by itself: the sampler's (minidl.checkpoint.draws), and the dataset's in each worker
(minidl.checkpoint.source). The batches since the last snapshot are yielded once more, to nobody.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from torch.utils.data import IterableDataset

from minidl.checkpoint import randomness
from minidl.checkpoint.draws import Draws, generators_of
from minidl.checkpoint.position import Snapshot
from minidl.checkpoint.source import is_stateful, parts_of

if TYPE_CHECKING:
    from minidl.loader import DataLoader


@dataclass(frozen=True)
class Saved:
    """What a state says."""

    num_workers: int
    finished: bool  # the epoch is over: the next iterator begins another
    steps: int
    since: int  # further batches that were yielded after the snapshot, or failed
    last_worker: int
    base_seed: int | None
    sampler: dict[str, Any]  # its place, as torchdata lays it out
    length_called: int | None
    places: list[dict[str, Any] | None]  # of the dataset in each worker, or in main without workers
    ours: dict[str, Any]  # what only minidl knows

    @property
    def begin(self) -> Snapshot:
        return Snapshot(self.steps, self.last_worker, [place and parts_of(place) for place in self.places])

    def put_back_random(self, loader: DataLoader) -> None:
        if "random" in self.ours:
            randomness.put_back(randomness.as_bytes(self.ours["random"]), generators_of(loader))


def saved_of(state: dict[str, Any]) -> Saved:
    """Read a state. ValueError if it is none of a DataLoader."""
    try:
        if "_snapshot" not in state:
            return Saved(
                num_workers=0,
                finished=state["_iterator_finished"],
                steps=state["_num_yielded"],
                since=0,
                last_worker=-1,
                base_seed=None,
                sampler=state,
                length_called=state["_IterableDataset_len_called"],
                places=[state],
                ours=state.get("minidl", {}),
            )
        snapshot = state["_snapshot"]
        main, places = snapshot["_main_snapshot"], snapshot["_worker_snapshots"]
        return Saved(
            num_workers=main["_num_workers"],
            finished=state["_iterator_finished"],
            steps=snapshot["_snapshot_step"],
            since=state.get("minidl", {}).get("since", state["_steps_since_snapshot"]),
            last_worker=snapshot["_last_yielded_worker_id"],
            base_seed=main["_base_seed"],
            sampler=main,
            length_called=main["_IterableDataset_len_called"],
            places=[places[f"worker_{worker_id}"] for worker_id in range(main["_num_workers"])],
            ours=state.get("minidl", {}),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"this is no state of a DataLoader: {error!r}") from None


def fitted(saved: Saved, loader: DataLoader, strict: bool) -> Saved | None:
    """What of a state the next iterator needs; None if it begins like any other. AssertionError for another number of
    workers, if `strict`."""
    iterable, workers = isinstance(loader.dataset, IterableDataset), max(loader.num_workers, 1)
    if saved.ours.get("iterable", iterable) != iterable:
        raise ValueError("the state is of a map-style dataset, and this one is iterable, or the other way round")
    if "random" in saved.ours:  # what has been drawn since they were put back stays drawn
        random = randomness.as_text(randomness.read(generators_of(loader)))
        saved = replace(saved, ours={**saved.ours, "random": random})
    if saved.num_workers != loader.num_workers:
        if strict:
            raise AssertionError(
                f"the state is of a DataLoader with num_workers={saved.num_workers}, and this one has "
                f"{loader.num_workers}: load_state_dict(state, strict=False) takes it, if the dataset is map-style"
            )
        if iterable:
            raise ValueError(
                f"each of the {saved.num_workers} workers had a stream of its own, and nothing tells how to share what "
                f"is left of them among {loader.num_workers}: an IterableDataset goes on with as many workers only"
            )
        saved = replace(saved, places=[None] * workers, last_worker=workers - 1, base_seed=None)
    replicas = Draws(loader).share["replicas"]
    if saved.ours.get("replicas", replicas) != replicas:
        if strict:
            raise AssertionError(
                f"the state is of a sampler with num_replicas={saved.ours['replicas']}, and this one has {replicas}: "
                "load_state_dict(state, strict=False) takes it, if both are DistributedSamplers"
            )
        if replicas is None or saved.ours["replicas"] is None:
            raise ValueError("what other ranks have taken is known of a DistributedSampler only: both must be one")
    if saved.finished:
        return next_epoch(saved, loader)
    if iterable and any(place is not None and is_lost(place) for place in saved.places):
        # A state of torchdata's: its main makes all the batches again.
        since = saved.steps + saved.since
        return replace(saved, places=[None] * workers, last_worker=workers - 1, steps=0, since=since)
    return saved


def is_lost(place: dict[str, Any]) -> bool:
    """Whether this place in a stream can't be found from what it says."""
    if "minidl" in place or place["dataset_state"] is not None:
        return False
    return place["fetcher_state"]["dataset_iter_state"] is None


def next_epoch(saved: Saved, loader: DataLoader) -> Saved | None:
    """The epoch of the state is over: of it remain the random generators, what the sampler and the dataset tell of
    themselves, and persistent workers."""
    inner = saved.sampler["_sampler_iter_state"] or {}
    sampler_state = inner.get("sampler_state", saved.sampler["_index_sampler_state"])
    if sampler_state is not None:
        Draws(loader).begin_after(sampler_state)
    saved.put_back_random(loader)
    if loader.num_workers and not (loader.persistent_workers and saved.ours.get("sampler_begun_with")):
        return None
    places = [place and before_an_epoch(place, loader) for place in saved.places]
    return replace(saved, places=places, last_worker=loader.num_workers - 1, steps=0, since=0)


def before_an_epoch(place: dict[str, Any], loader: DataLoader) -> dict[str, Any]:
    """A place at the end of an epoch, as one before the next. Without workers, the random generators are main's, which
    have been put back."""
    state, stream = place["dataset_state"], place["fetcher_state"] or {}
    if state is None and is_stateful(loader.dataset):  # it was its own iterator
        state = stream.get("dataset_iter_state")
    ours = {"random": place["minidl"]["random"]} if loader.num_workers else {}
    return {**place, "dataset_state": state, "fetcher_state": None, "minidl": ours}
