"""torch's own loader, recorded: it does what it did, and emits what minidl emits."""

from __future__ import annotations

import copy
import functools
import gc
import pickle
import types
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.data
from torch.utils.data import DataLoader, dataloader

import minidl
import tracing
from minidl.events import Kind
from tests.minidl.observing import Config, observe, recorder
from tests.minidl.programs import TORCH
from tests.samples import Samples
from tests.tracing import attached
from tests.tracing.attached import GRID, emitted, results
from tests.tracing.loads import go_on, without
from tracing.recording.loader_text import drawing_of
from tracing.recording.torch_loader import iterators
from tracing.recording.torch_loader.common import Progress
from tracing.recording.torch_loader.multiprocessing_context import TracedProcess

# ---- minidl, the reading copy, is true to torch


@pytest.mark.parametrize("config", GRID, ids=str)
def test_minidl_and_torch_take_the_same_steps(config: Config, tmp_path: Path) -> None:
    """Asserted as sequences. With several workers a stream may end at any time, and then other workers do its tasks:
    there, and without in_order, which worker does which is a set."""
    ours, our_batches = attached.load(config, minidl, tmp_path / "minidl")
    theirs, their_batches = attached.load(config, TORCH, tmp_path / "torch")
    if config.any_order:
        our_batches, their_batches = (
            [sorted(map(repr, epoch[1])) for epoch in each] for each in (our_batches, their_batches)
        )
    assert our_batches == their_batches
    if attached.is_ordered(config):
        kinds = attached.STEPS + attached.TASKS + (attached.WORK if config.workers == 0 else [])
        assert emitted(ours, kinds) == emitted(theirs, kinds)
    else:
        assert emitted(ours, attached.STEPS, tasks=False) == emitted(theirs, attached.STEPS, tasks=False)
        drawn = [Counter(each[:2] for each in emitted(trace, attached.KEYS)) for trace in (ours, theirs)]
        assert drawn[0] == drawn[1]
    if not config.stop_after:  # else some are skipped at the shutdown
        assert results(ours) == results(theirs)
    assert tracing.check(theirs) == []
    loader = theirs.loaders[0]
    assert (loader.config["package"], loader.num_workers) == ("torch.utils.data", config.workers)


# ---- a recorded loader does what it did before


OTHERS = [
    Config("value error", "by 4", 0),
    Config("value error", "by 4", 2),
    Config("needy error", "unbatched", 1, options={"persistent_workers": True}),
    Config("stop iteration", "by 1", 2),
    Config("broken stream", "by 4", 2),
    Config("unopened stream", "by 4", 1, epochs=1, compare="first error"),
    Config("squares", "by 4", 2, epochs=1, compare="first error", options={"worker_init_fn": attached.fail_to_start}),
    Config("squares", "raising", 2),
    Config("short", "by 4", 2),
    Config("informed", "shuffled", 3, generator=True, stop_after=1, options={"timeout": 30}),
    Config("list", "by 4", 2, options={"pin_memory": True, "multiprocessing_context": "fork"}),
    Config("squares", workers=0, options={"timeout": 30}),
]


@pytest.mark.parametrize("config", OTHERS, ids=str)
def test_a_program_sees_what_torch_alone_shows(config: Config, tmp_path: Path) -> None:
    """Batches, errors, warnings, lengths, random states."""
    alone = observe(config, TORCH)
    with tracing.record(tmp_path / "trace"):
        assert observe(config, TORCH) == alone
    broken = {violation.name for violation in tracing.check(tracing.load(tmp_path / "trace", strict=True))}
    # A sample's StopIteration ends the epoch and drops the batches that are on their way: in minidl, too.
    assert broken == ({"exactly once"} if config.dataset == "stop iteration" else set())


def errors_of(loader: Any, most: int = 40) -> list[str]:
    """The errors it raises, however many."""
    iterator = iter(loader)
    errors = go_on(iterator, most)
    iterator._shutdown_workers()
    return errors


def test_an_exception_in_a_worker_shows_torchs_traceback(tmp_path: Path) -> None:
    """The message has the lines of the worker's traceback, and none of them is ours."""
    loader = DataLoader(without(4, 2), num_workers=2)
    theirs = errors_of(loader)
    with tracing.record(tmp_path / "trace"):
        assert errors_of(loader) == theirs and "Traceback" in theirs[0]


def test_a_loader_emits_only_while_it_is_recorded_and_shows_it_nowhere(tmp_path: Path) -> None:
    loader = DataLoader(range(6), 2, num_workers=1, multiprocessing_context="fork")
    before = dict(vars(loader))
    with tracing.record(tmp_path / "trace"):
        ours = iter(loader)
        assert vars(loader) == before and type(loader) is DataLoader
        for each in loader, copy.copy(loader), pickle.loads(pickle.dumps(DataLoader(range(6), 2))):
            assert [batch.tolist() for batch in each] == [[0, 1], [2, 3], [4, 5]]
    theirs = iter(loader)
    assert type(theirs) is dataloader._MultiProcessingDataLoaderIter
    assert isinstance(ours, type(theirs)) and type(ours).__name__ == type(theirs).__name__
    first, again, *copies = (each.loader for each in tracing.load(tmp_path / "trace").loaders)
    assert first == again and len({first, *copies}) == 3


def test_what_cannot_be_recorded_is_named_at_once() -> None:
    """Not by a failure in the middle: the private methods of another version of torch may have other names."""
    for cls in iterators.Serial, iterators.Parallel:
        put_in_front = vars(iterators.Emitting).keys() | vars(cls).keys()
        of_torch = vars(dataloader._BaseDataLoaderIter).keys() | vars(dataloader._MultiProcessingDataLoaderIter).keys()
        assert {name for name in put_in_front & of_torch if not name.startswith("__")} <= set(cls.WORKS_BY)


def test_a_dropped_iterator_ends_its_workers_at_once(tmp_path: Path) -> None:
    """No cycle keeps it alive until the garbage collector runs."""
    gc.disable()
    try:
        with tracing.record(tmp_path / "trace"):
            iterator = iter(DataLoader(Samples(40), 2, num_workers=2))
            next(iterator)
            workers = torch.multiprocessing.active_children()
            del iterator
            assert not any(worker.is_alive() for worker in workers)
    finally:
        gc.enable()
    trace = tracing.load(tmp_path / "trace", strict=True)
    assert (trace.events["kind"] == Kind.SHUTDOWN_END).sum() == 1 and tracing.check(trace) == []


# ---- what goes wrong is recorded


def test_a_death_is_noticed_and_torch_goes_on_without_the_tasks(tmp_path: Path) -> None:
    """It raises, and the following next() skips what is lost. The invariant that this breaks is a finding."""
    dataset = Samples(20, at={8: functools.partial(attached.dies_later, tmp_path / "trace")})
    with tracing.record(tmp_path / "trace"):
        errors = errors_of(DataLoader(dataset, 2, num_workers=2, timeout=3))
    assert errors and "DataLoader worker" in errors[0]
    trace = tracing.load(tmp_path / "trace", strict=True)
    died = trace.events[trace.events["kind"] == Kind.WORKER_DIED]
    assert died[["worker", "value"]].tolist() == [(0, -9)]
    lost = trace.events["task"][trace.events["kind"] == Kind.TASK_LOST].tolist()
    assert 4 in lost
    skipped = trace.events["task"][trace.events["kind"] == Kind.TASK_SKIPPED].tolist()
    assert set(lost) <= set(skipped)
    assert {violation.name for violation in tracing.check(trace)} == {"sticky"}


def test_a_worker_that_is_slow_to_exit_is_seen_to_end_when_torch_asks_again() -> None:
    process = types.SimpleNamespace(
        pid=7, exitcode=0, daemon=True, start=int, join=lambda timeout: None, is_alive=lambda: True
    )
    traced, kinds = TracedProcess(process, Progress(0), 0), []
    with recorder(lambda kind, *others: kinds.append(kind)):
        traced.start()
        traced.join(5.0)
        process.is_alive = lambda: False
        assert not traced.is_alive() and not traced.is_alive()
    assert kinds == [Kind.WORKER_STARTING, Kind.WORKER_STARTED, Kind.JOIN_BEGIN, Kind.WORKER_JOINED]


def test_a_batch_that_cannot_be_pickled_is_lost_and_torch_times_out(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with tracing.record(tmp_path / "trace"):
        iterator = iter(DataLoader([0, 1, 2, lambda: 3], 1, num_workers=1, collate_fn=list, timeout=30))
        assert [next(iterator) for _ in range(3)] == [[0], [1], [2]]
        iterator._timeout = 0.1  # what comes next never does
        assert go_on(iterator, most=1) == ["DataLoader timed out after 0.1 seconds"]
        iterator._shutdown_workers()
    assert "pickle" in capfd.readouterr().err.lower()  # torch's own words stay
    trace = tracing.load(tmp_path / "trace", strict=True)
    kinds = trace.events["kind"]
    failed = np.flatnonzero(kinds == Kind.SEND_FAILED).tolist()
    assert trace.events["task"][failed].tolist() == [3] and "local object" in trace.text(failed[0])
    assert trace.actors[trace.events["actor"][failed[0]]].role == "feeder"
    assert {Kind.TIMED_OUT, Kind.ERROR_RAISED} <= set(kinds.tolist())


@pytest.mark.cuda
@pytest.mark.skipif(not torch.accelerator.is_available(), reason="no accelerator")
@pytest.mark.parametrize("workers", [0, 2])
def test_pinning_is_recorded(tmp_path: Path, workers: int) -> None:
    with tracing.record(tmp_path / "trace"):
        batches = list(DataLoader(Samples(12), 2, num_workers=workers, pin_memory=True))
    assert all(batch.is_pinned() for batch in batches)
    trace = tracing.load(tmp_path / "trace", strict=True)
    assert tracing.check(trace) == []
    assert (trace.events["kind"] == Kind.PIN_END).sum() == 6
    assert ("pin" in {actor.role for actor in trace.actors}) == (workers > 0)
    assert (trace.events["kind"] == Kind.PIN_JOINED).sum() == (workers > 0)


# ---- where its keys come from, in LOADER's text: the same of minidl's


class Raising:
    def __getattr__(self, name: str) -> object:
        raise ZeroDivisionError


def test_a_distributed_sampler_is_found_wherever_it_is() -> None:
    for package in (minidl, torch.utils.data):
        sampler = package.DistributedSampler(range(10), 4, 3, seed=7)
        sampler.set_epoch(5)
        batches = package.BatchSampler(sampler, 2, False)
        for options in ({"sampler": sampler}, {"batch_sampler": batches}, {"batch_size": None, "sampler": batches}):
            found = drawing_of(package.DataLoader(range(10), **options))
            assert list(found.values()) == [10, 4, 3, 5, 7], (package, options)
        assert list(drawing_of(package.DataLoader(range(10), shuffle=True)).values()) == [10, *[None] * 4]
    assert list(drawing_of(Raising()).values()) == [None] * 5
