"""The fetchers against torch's, and what `load` emits and lets through."""

from __future__ import annotations

import traceback

import pytest
import torch.utils.data as theirs
from torch.utils.data._utils.fetch import _IterableDatasetFetcher, _MapDatasetFetcher

import minidl as ours
from minidl.data.fetch import IterableFetcher, MapFetcher, create_fetcher, load
from minidl.events import (
    COLLATE_BEGIN,
    COLLATE_END,
    FETCH_BEGIN,
    FETCH_END,
    FETCH_FAILED,
    NO_WORKER,
    epoch_id,
)

EPOCH, TASK, WORKER = epoch_id(3, 1), 5, 2


def kinds(recorded):
    return [kind for kind, *_ in recorded]


def collate(samples):
    return ("batch", samples)


class Batched:
    """Has both ways to be asked, with answers that can be told apart."""

    def __getitem__(self, key):
        return ("one", key)

    def __getitems__(self, keys):
        return [("many", key) for key in keys]


class TakenAway(Batched):
    __getitems__ = None


class Broken:
    def __getitem__(self, key):
        raise KeyError(f"no sample {key}")


class BrokenMany(Batched):
    def __getitems__(self, keys):
        raise ValueError("no batch")


class Stream(ours.IterableDataset):
    def __init__(self, n, error=None):
        self.n, self.error = n, error

    def __iter__(self):
        yield from range(self.n)
        if self.error is not None:
            raise self.error


class Restarting:
    """An iterator that goes on after it has ended, as it must not: what is asked of it shows."""

    def __init__(self):
        self.taken = 0

    def __iter__(self):
        return self

    def __next__(self):
        self.taken += 1
        if self.taken % 4 == 0:
            raise StopIteration
        return self.taken


def by_minidl(cls):
    """A fetcher of ours in the form of torch's: one call that fetches and collates."""

    def make(*arguments):
        fetcher = cls(*arguments)
        return fetcher, lambda keys: load(fetcher, keys, EPOCH, TASK)

    return make


def by_torch(cls):
    def make(*arguments):
        fetcher = cls(*arguments)
        return fetcher, fetcher.fetch

    return make


@pytest.mark.parametrize(
    "dataset",
    [
        list("abcdef"),
        {0: "zero", 2: "two"},
        Batched(),
        TakenAway(),
        Broken(),
        BrokenMany(),
        ours.Subset("abcd", [3, 2]),
    ],
    ids=lambda dataset: type(dataset).__name__,
)
@pytest.mark.parametrize(("auto", "keys"), [(True, [0, 2]), (True, []), (True, [1, 9]), (False, 0), (False, 9)])
def test_the_map_fetcher_fetches_what_torchs_does(same, dataset, auto, keys):
    def run(make):
        return make(dataset, auto, collate, False)[1](keys)

    same(run, by_minidl(MapFetcher), by_torch(_MapDatasetFetcher))


def test_the_map_fetcher_asks_for_a_batch_at_once():
    assert MapFetcher(Batched(), True, collate, False).fetch([1, 2]) == [("many", 1), ("many", 2)]
    assert MapFetcher(TakenAway(), True, collate, False).fetch([1, 2]) == [("one", 1), ("one", 2)]
    assert MapFetcher(Batched(), False, collate, False).fetch(1) == ("one", 1)


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("auto", [False, True])
@pytest.mark.parametrize("n", [0, 1, 3, 4, 7])
@pytest.mark.parametrize("error", [None, ValueError("torn")], ids=["ends", "breaks"])
def test_the_iterable_fetcher_fetches_what_torchs_does(same, n, auto, drop_last, error):
    def run(make):
        fetcher, fetch = make(Stream(n, error), auto, collate, drop_last)
        shown = []
        for _ in range(6):
            try:
                shown.append(fetch([None] * 3 if auto else None))
            except (StopIteration, ValueError) as raised:
                shown.append(repr(raised))
            shown.append(fetcher.ended)
        return shown

    same(run, by_minidl(IterableFetcher), by_torch(_IterableDatasetFetcher))


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("auto", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_stream_that_goes_on_after_its_end_is_asked_as_often_as_by_torch(same, size, auto, drop_last):
    def run(make):
        stream = Restarting()
        fetcher, fetch = make(stream, auto, collate, drop_last)
        shown = []
        for _ in range(8):
            try:
                shown.append(fetch([None] * size if auto else None))
            except StopIteration:
                shown.append("stop")
            shown.append((fetcher.ended, stream.taken))
        return shown

    same(run, by_minidl(IterableFetcher), by_torch(_IterableDatasetFetcher))


def test_each_kind_of_dataset_gets_its_fetcher():
    class TorchStream(theirs.IterableDataset):
        def __iter__(self):
            return iter(())

    for dataset, cls in [(Stream(1), IterableFetcher), (TorchStream(), IterableFetcher), ([1], MapFetcher)]:
        fetcher = create_fetcher(dataset, True, collate, True)
        assert type(fetcher) is cls
        assert fetcher.dataset is dataset
        assert (fetcher.auto_collation, fetcher.collate_fn, fetcher.drop_last) == (True, collate, True)


# ---- load: what it emits


@pytest.mark.parametrize("dataset", [[10, 11], Stream(2)], ids=["map", "iterable"])
def test_load_emits_each_step(recorded, dataset):
    fetcher = create_fetcher(dataset, True, collate, False)
    assert load(fetcher, [0, 1], EPOCH, TASK, WORKER) == ("batch", list(dataset))
    steps = [FETCH_BEGIN, FETCH_END, COLLATE_BEGIN, COLLATE_END]
    assert recorded == [(kind, EPOCH, TASK, WORKER, 0, 0, None) for kind in steps]


def test_load_emits_each_step_while_it_happens(recorded):
    """Seen from inside: the dataset runs between the fetch's two events, collate_fn between its own."""
    seen = {}

    class Watching:
        def __getitem__(self, key):
            seen["dataset"] = kinds(recorded)
            return key

    def watching(samples):
        seen["collate_fn"] = kinds(recorded)
        return samples

    load(MapFetcher(Watching(), True, watching, False), [1], EPOCH, TASK)
    assert seen["dataset"] == [FETCH_BEGIN]
    assert seen["collate_fn"] == [FETCH_BEGIN, FETCH_END, COLLATE_BEGIN]
    assert {worker for _, _, _, worker, *_ in recorded} == {NO_WORKER}


def test_load_emits_that_the_dataset_failed(recorded):
    with pytest.raises(KeyError, match="no sample 7"):
        load(MapFetcher(Broken(), True, collate, False), [7], EPOCH, TASK, WORKER)
    assert kinds(recorded) == [FETCH_BEGIN, FETCH_FAILED]
    assert recorded[-1] == (FETCH_FAILED, EPOCH, TASK, WORKER, 0, 0, "KeyError: 'no sample 7'")


def test_load_emits_that_collation_failed(recorded):
    with pytest.raises(TypeError, match="default_collate: batch must contain"):
        load(MapFetcher([None], True, ours.default_collate, False), [0], EPOCH, TASK)
    assert kinds(recorded) == [FETCH_BEGIN, FETCH_END, COLLATE_BEGIN, FETCH_FAILED]


def test_load_emits_that_it_was_interrupted(recorded):
    def interrupted(samples):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load(MapFetcher([1], True, interrupted, False), [0], EPOCH, TASK)
    assert kinds(recorded)[-1] == FETCH_FAILED


@pytest.mark.parametrize(("auto", "keys"), [(True, [None]), (False, None)])
def test_the_end_of_a_stream_is_no_failure(recorded, auto, keys):
    with pytest.raises(StopIteration):
        load(IterableFetcher(Stream(0), auto, collate, False), keys, EPOCH, TASK)
    assert kinds(recorded) == [FETCH_BEGIN]


def test_a_stop_iteration_of_a_map_style_dataset_is_a_failure(recorded):
    class Stopping:
        def __getitem__(self, key):
            raise StopIteration("odd")

    with pytest.raises(StopIteration):
        load(MapFetcher(Stopping(), True, collate, False), [0], EPOCH, TASK)
    assert kinds(recorded) == [FETCH_BEGIN, FETCH_FAILED]


# ---- load: what it lets through


def test_an_exception_passes_through_load_unchanged():
    error = ValueError("mine")

    class Raising:
        def __getitem__(self, key):
            raise error

    with pytest.raises(ValueError, match="mine") as caught:
        load(MapFetcher(Raising(), True, collate, False), [0], EPOCH, TASK)
    assert caught.value is error
    assert error.__context__ is None
    assert error.__cause__ is None
    assert not error.__suppress_context__
    frames = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    assert frames[-1] == "__getitem__"
    assert "fetch" in frames


def test_an_exception_that_cannot_be_shown_is_still_the_one_raised(recorded):
    class Mute(Exception):
        def __str__(self):
            raise RuntimeError("cannot be shown")

    class Raising:
        def __getitem__(self, key):
            raise Mute

    with pytest.raises(Mute):
        load(MapFetcher(Raising(), True, collate, False), [0], EPOCH, TASK)
    assert recorded[-1][-1] == "Mute"
