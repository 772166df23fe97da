"""Parity: several hundred configurations, each run in minidl and in torch from the same seeds, and compared.

A configuration shows its batches bit for bit, in order and with their container types; the errors between them;
len(loader); the warnings; and where it leaves the random generators, after two epochs.
"""

from __future__ import annotations

import itertools
import multiprocessing
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import torch

import minidl
from minidl.transport import VARIABLE
from tests.minidl.observing import Config, comparable, observe
from tests.minidl.programs import SAMPLINGS, TORCH, count, fail_in_worker, keep, refuse, seed_by_worker, tag

pytestmark = pytest.mark.timeout(40)

# The forkserver imports these once, instead of every worker again. It must be set before the first one starts.
multiprocessing.get_context("forkserver").set_forkserver_preload(["torch", "numpy", "minidl"])

FAILING_SAMPLINGS = {"an empty list", "out of range", "raising", "generator as sampler", "not iterable"}
WORKING = [name for name in SAMPLINGS if name not in FAILING_SAMPLINGS]
MAP_STYLE = ["squares", "whole", "noise", "tensors", "list", "stack", "concat", "subset", "split", "informed"]
STREAMS = ["stream", "shared", "noisy stream", "empty stream", "sized", "short", "chain"]
PERSISTENT = {"persistent_workers": True}


OPTIONS: list[dict[str, Any]] = [
    *({"collate_fn": function} for function in (keep, count, refuse, tag)),
    *({"prefetch_factor": number, "persistent_workers": number % 2 == 0} for number in (1, 2, 3, 4)),
    {"worker_init_fn": seed_by_worker},
    {"pin_memory": True},
    {"pin_memory": True, "pin_memory_device": "cuda"},
    {"timeout": 30},
    {"multiprocessing_context": "fork"},
]
ONLY_WITH_WORKERS = {"prefetch_factor", "multiprocessing_context"}


def every_sampling() -> Iterable[Config]:
    """Every way to sample, with every kind of map-style dataset. In workers only those have much to show that draw."""
    for dataset, sampling, generator in itertools.product(MAP_STYLE, WORKING, [False, True]):
        if not generator or dataset in ("noise", "squares", "tensors"):
            yield Config(dataset, sampling, generator=generator)
    for number, sampling in enumerate(WORKING):
        options = PERSISTENT if number % 4 in (1, 2) else {}
        yield Config("noise", sampling, 1 + number % 2, generator=number % 3 == 0, options=options)
    for dataset, workers in itertools.product(MAP_STYLE, [1, 3]):
        yield Config(dataset, "shuffled", workers, options=PERSISTENT if workers == 3 else {})
        yield Config(dataset, "shuffled, unbatched", 2)


def every_stream() -> Iterable[Config]:
    """Iterable datasets: shared by the workers or not, of even and uneven ends, with a length and with a wrong one."""
    for number, (dataset, sampling, workers) in enumerate(
        itertools.product(STREAMS, ["by 4", "by 4, drop", "by 1", "unbatched"], [0, 1, 2, 3])
    ):
        yield Config(dataset, sampling, workers, options=PERSISTENT if workers and number % 3 else {})
    for dataset, workers in itertools.product(["shared", "noisy stream"], [0, 2, 4]):
        yield Config(dataset, "by 4", workers, generator=True)


def every_option() -> Iterable[Config]:
    for options, dataset, workers in itertools.product(OPTIONS, ["noise", "noisy stream"], [0, 1, 3]):
        if workers or ONLY_WITH_WORKERS.isdisjoint(options):
            yield Config(dataset, "by 4", workers, options=options)
            yield Config(dataset, "unbatched", workers, options=options)
    for dataset, workers, persistent in itertools.product(["squares", "shared"], [0, 2, 3], [False, True]):
        if workers or not persistent:
            options = {"in_order": False, "persistent_workers": persistent}
            yield Config(dataset, "by 4", workers, any_order=workers > 0, options=options)


def left_early() -> Iterable[Config]:
    """The first epoch is left in the middle, and its iterator dropped, or with persistent workers begun anew."""
    for dataset, workers, stop_after in itertools.product(["noise", "noisy stream"], [0, 1, 3], [1, 3]):
        yield Config(dataset, "by 1", workers, stop_after=stop_after)
        if workers:
            yield Config(dataset, "by 1", workers, stop_after=stop_after, epochs=3, options=PERSISTENT)
    # How far the sampler has drawn from a shared generator by then shows in the next epoch.
    for sampling, workers in itertools.product(["replacement", "more than all", "batch sampler"], [0, 1]):
        yield Config("noise", sampling, workers, generator=True, stop_after=1)


def failing() -> Iterable[Config]:
    """Whatever raises in the middle: the iteration goes on afterwards, and all of it is compared."""
    datasets = ["broken stream", "value error", "key error", "needy error", "stop iteration", "missing file"]
    for dataset, workers in itertools.product([*datasets, "mixed shapes", "no collation", "empty", "unsized"], [0, 2]):
        yield Config(dataset, "by 4", workers)
    for dataset, workers in itertools.product(datasets, [0, 1, 3]):
        yield Config(dataset, "unbatched", workers, options=PERSISTENT if workers == 3 else {})
    for dataset, workers in itertools.product(["value error", "stop iteration"], [1, 2]):
        yield Config(dataset, "by 1", workers, options={"in_order": False}, any_order=True)
    yield Config("odd errors", "unbatched", 1)
    for sampling, workers in itertools.product(["an empty list", "out of range", "not iterable"], [0, 2]):
        yield Config("tensors", sampling, workers)
        yield Config("squares", sampling, workers)
    yield Config("squares", "generator as sampler", 0)
    yield Config("squares", "generator as sampler", 2)
    yield Config("squares", "raising", 0)
    yield Config("squares", "raising", 2, options={"prefetch_factor": 20})  # already while the first tasks are sent
    yield Config("unsized", "shuffled", 0)
    yield Config("empty", "shuffled", 0)
    yield Config("unopened stream", "by 4", 0)
    # Here the two differ after the first error: minidl repeats it, in torch an UnboundLocalError follows.
    yield Config("unopened stream", "by 4", 2, epochs=1, compare="first error")
    for dataset, workers in itertools.product(["squares", "stream"], [1, 2]):
        options = {"worker_init_fn": fail_in_worker}
        yield Config(dataset, "by 4", workers, epochs=1, compare="first error", options=options)


def other_starts() -> Iterable[Config]:
    """spawn and forkserver import everything anew, so there are few of them, with two epochs each."""
    spawn = {"multiprocessing_context": "spawn", "persistent_workers": True}
    yield Config("noise", "shuffled", 2, generator=True, options=spawn)
    yield Config("noisy stream", "by 4", 1, options={**spawn, "worker_init_fn": seed_by_worker})
    yield Config("value error", "unbatched", 1, options=spawn)
    forkserver = {"multiprocessing_context": "forkserver", "persistent_workers": True}
    yield Config("noise", "weighted", 2, options=forkserver)
    yield Config("noisy stream", "unbatched", 2, generator=True, options=forkserver)
    yield Config("squares", "distributed", 1, options={**forkserver, "collate_fn": count})
    yield Config("key error", "by 1", 1, options=forkserver)
    yield Config("informed", "lists", 1, options={**forkserver, "worker_init_fn": seed_by_worker})


EVERY = [*every_sampling(), *every_stream(), *every_option(), *left_early(), *failing(), *other_starts()]
GRID = list({str(config): config for config in EVERY}.values())


def sampled(configs: list[Config]) -> list[Any]:
    """All without workers, which are quick, and every fourth of the others; `make full` runs the rest."""
    with_workers = [config for config in configs if config.workers]
    rest = {str(config) for number, config in enumerate(with_workers) if number % 4 and config.dataset != "odd errors"}
    return [pytest.param(each, marks=[pytest.mark.full] * (str(each) in rest)) for each in configs]


def test_the_grid_has_600_configurations() -> None:
    assert len(GRID) >= 600


def assert_same(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """One assertion for each thing shown, so that a failure names the one that differs."""
    for name, value in theirs.items():
        assert ours.get(name) == value, name
    assert ours.keys() == theirs.keys()


@pytest.mark.parametrize("config", sampled(GRID), ids=str)
def test_all_that_shows_is_the_same_as_in_torch(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = observe(config, TORCH)
    assert_same(observe(config, minidl), theirs)
    if config.workers:
        monkeypatch.setenv(VARIABLE, "torch")  # batches move as torch's do
        assert_same(observe(config, minidl), theirs)


MIXED = [
    *(Config("noise", sampling, 0, generator=True) for sampling in WORKING),
    *(Config("noise", sampling, 1, generator=True) for sampling in ["shuffled", "replacement", "weighted", "lists"]),
    *(Config(dataset, "by 4", 2) for dataset in ["informed", "tensors", "stack", "concat", "subset", "split"]),
    *(Config(dataset, "by 4", 2) for dataset in ["shared", "noisy stream", "sized", "short", "chain"]),
    Config("value error", "by 4", 2),
    Config("informed", workers=2, options={"worker_init_fn": seed_by_worker, **PERSISTENT}),
]


@pytest.mark.parametrize("config", sampled(MIXED), ids=str)
def test_the_parts_of_one_package_work_in_the_loader_of_the_other(config: Config) -> None:
    theirs = observe(config, TORCH)
    assert_same(observe(config, minidl, parts=TORCH), theirs)
    assert_same(observe(config, TORCH, parts=minidl), theirs)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(("name", "batch_size"), [("default_collate", 2), ("default_convert", None)])
def test_the_collate_functions_of_one_package_work_in_the_loader_of_the_other(
    workers: int, name: str, batch_size: int | None
) -> None:
    samples = [{"a": [key, 2.5], "b": np.arange(key, key + 2), "c": ("x", torch.tensor(key))} for key in range(3)]
    shown = [
        comparable(list(loaders.DataLoader(samples, batch_size, num_workers=workers, collate_fn=getattr(parts, name))))
        for loaders, parts in itertools.product([TORCH, minidl], repeat=2)
    ]
    assert shown == [shown[0]] * 4
