"""The fetchers against torch's, and what `load` emits and lets through."""

from __future__ import annotations

import traceback

import pytest
from torch.utils.data._utils.fetch import _IterableDatasetFetcher, _MapDatasetFetcher

import minidl as ours
from minidl.data.fetch import IterableFetcher, MapFetcher, create_fetcher, load
from minidl.events import COLLATE_BEGIN, COLLATE_END, FETCH_BEGIN, FETCH_END, FETCH_FAILED, NO_WORKER
from tests.minidl.programs import Unspeakable
from tests.samples import Samples, Stream, failing

EPOCH, TASK, WORKER = 3 << 32 | 1, 5, 2


def kinds(recorded):
    return [kind for kind, *_ in recorded]


def collate(samples):
    return ("batch", samples)


class Batched:
    """Has both ways to be asked, with answers that differ."""

    def __getitem__(self, key):
        return ("one", key)

    def __getitems__(self, keys):
        return [("many", key) for key in keys]


class TakenAway(Batched):
    __getitems__ = None


class Broken:
    def __init__(self, error):
        self.error = error

    def __getitem__(self, key):
        raise self.error


class BrokenMany(Batched):
    def __getitems__(self, keys):
        raise ValueError("no batch")


def breaking(n):
    return Stream(Samples(n + 1, at={n: failing(ValueError("torn"))}))


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


def in_both(same, classes, run):
    """run(fetcher, fetch), for a fetcher that `run` makes of either package: `fetch` fetches and collates."""
    mine, torchs = classes

    def by_minidl(*arguments):
        fetcher = mine(*arguments)
        return fetcher, lambda keys: load(fetcher, keys, EPOCH, TASK)

    def by_torch(*arguments):
        fetcher = torchs(*arguments)
        return fetcher, fetcher.fetch

    same(run, by_minidl, by_torch)


MAPS = {
    "list": list("abcdef"),
    "dict": {0: "zero", 2: "two"},
    "batched": Batched(),
    "taken away": TakenAway(),
    "broken": Broken(KeyError("no sample")),
    "broken many": BrokenMany(),
    "subset": ours.Subset("abcd", [3, 2]),
}


@pytest.mark.parametrize("dataset", MAPS.values(), ids=MAPS)
@pytest.mark.parametrize(("auto", "keys"), [(True, [0, 2]), (True, []), (True, [1, 9]), (False, 0), (False, 9)])
def test_the_map_fetcher_fetches_what_torchs_does(same, dataset, auto, keys):
    in_both(same, (MapFetcher, _MapDatasetFetcher), lambda make: make(dataset, auto, collate, False)[1](keys))


STREAMS = {
    **{f"{n}, ends": lambda n=n: Stream(range(n)) for n in (0, 1, 3, 4, 7)},
    **{f"{n}, breaks": lambda n=n: breaking(n) for n in (0, 1, 3, 4, 7)},
    "restarting": Restarting,
}


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("size", [None, 1, 2, 3])
@pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS)
def test_the_iterable_fetcher_fetches_what_torchs_does(same, stream, size, drop_last):
    """Until after its end, and asking the stream as often as torch's."""

    def run(make):
        dataset = stream()
        fetcher, fetch = make(dataset, size is not None, collate, drop_last)
        shown = []
        for _ in range(8):
            try:
                shown.append(fetch(size and [None] * size))
            except (StopIteration, ValueError) as raised:
                shown.append(repr(raised))
            shown.append((fetcher.ended, getattr(dataset, "taken", None)))
        return shown

    in_both(same, (IterableFetcher, _IterableDatasetFetcher), run)


# ---- load: what it emits


def test_load_emits_each_step_while_it_happens(recorded):
    """The dataset runs between the fetch's two events, collate_fn between its own."""
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
    steps = [FETCH_BEGIN, FETCH_END, COLLATE_BEGIN, COLLATE_END]
    assert recorded == [(kind, EPOCH, TASK, NO_WORKER, 0, 0, None) for kind in steps]


COLLATED = [FETCH_BEGIN, FETCH_END, COLLATE_BEGIN, FETCH_FAILED]
FETCHED = [FETCH_BEGIN, FETCH_FAILED]
# What fails -> (dataset, collate_fn, keys, the error's type, what is emitted, the text of the failure).
FAILURES = {
    "dataset": (Broken(KeyError("no 7")), collate, [7], KeyError, FETCHED, "KeyError: 'no 7'"),
    "dataset, without words": (Broken(Unspeakable()), collate, [7], Unspeakable, FETCHED, "Unspeakable"),
    "dataset, oddly": (Broken(StopIteration("odd")), collate, [0], StopIteration, FETCHED, "StopIteration: odd"),
    "collation": ([1], failing(TypeError("not these")), [0], TypeError, COLLATED, "TypeError: not these"),
    "interrupted": ([1], failing(KeyboardInterrupt()), [0], KeyboardInterrupt, COLLATED, "KeyboardInterrupt: "),
    # The end of a stream is no failure.
    "end": (Stream(range(0)), collate, [None], StopIteration, [FETCH_BEGIN], None),
    "end, unbatched": (Stream(range(0)), collate, None, StopIteration, [FETCH_BEGIN], None),
}


@pytest.mark.parametrize(("dataset", "collate_fn", "keys", "error", "emitted", "text"), FAILURES.values(), ids=FAILURES)
def test_load_emits_that_it_failed(recorded, dataset, collate_fn, keys, error, emitted, text):
    fetcher = create_fetcher(dataset, keys is not None, collate_fn, False)
    with pytest.raises(error):
        load(fetcher, keys, EPOCH, TASK, WORKER)
    assert kinds(recorded) == emitted
    assert recorded[-1] == (emitted[-1], EPOCH, TASK, WORKER, 0, 0, text)


def test_an_exception_passes_through_load_unchanged():
    error = ValueError("mine")
    with pytest.raises(ValueError, match="mine") as caught:
        load(MapFetcher(Broken(error), True, collate, False), [0], EPOCH, TASK)
    assert caught.value is error
    assert (error.__context__, error.__cause__, error.__suppress_context__) == (None, None, False)
    frames = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    assert frames[-1] == "__getitem__"
    assert "fetch" in frames
