"""Parity: several hundred configurations, each run in minidl and in torch from the same seeds, and compared.

A configuration shows its batches bit for bit, in order and with their container types; the errors between them;
len(loader); the warnings; and where it leaves the random generators, after two epochs.
"""

from __future__ import annotations

import dataclasses
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
DRAWING = ["noise", "noisy stream"]
# Whatever raises in the middle: the iteration goes on afterwards, and all of it is compared.
FAILING = ["broken stream", "value error", "key error", "needy error", "stop iteration", "missing file"]
ANY_ORDER = {"in_order": False}
# Everything is imported again, so there are few of these.
SPAWN = {"multiprocessing_context": "spawn", **PERSISTENT}
FORKSERVER = {"multiprocessing_context": "forkserver", **PERSISTENT}


def grid(dataset: Any, sampling: Any, workers: Any = 0, **others: Any) -> Iterable[Config]:
    """Each combination of the values that are given as lists."""
    axes = {"dataset": dataset, "sampling": sampling, "workers": workers, **others}
    for values in itertools.product(*(each if isinstance(each, list) else [each] for each in axes.values())):
        yield Config(**dict(zip(axes, values, strict=True)))


EVERY = [
    # Every way to sample, with every kind of map-style dataset. In workers only those have much to show that draw.
    *grid(MAP_STYLE, WORKING),
    *grid(["noise", "squares", "tensors"], WORKING, generator=True),
    *grid("noise", WORKING[::2], 1, generator=[False, True]),
    *grid("noise", WORKING[1::2], 2, options=PERSISTENT),
    *grid(MAP_STYLE, "shuffled", [1, 3], options=[{}, PERSISTENT]),
    *grid(MAP_STYLE, "shuffled, unbatched", 2),
    # Iterable datasets: shared by the workers or not, of even and uneven ends, with a length and with a wrong one.
    *grid(STREAMS, ["by 4", "by 4, drop", "by 1", "unbatched"], [0, 1, 2]),
    *grid(STREAMS, ["by 4", "by 4, drop", "by 1", "unbatched"], 3, options=PERSISTENT),
    *grid(["shared", "noisy stream"], "by 4", [0, 2, 4], generator=True),
    *grid(DRAWING, ["by 4", "unbatched"], [0, 1, 3], options=OPTIONS),
    *grid(["squares", "shared"], "by 4", options=ANY_ORDER),
    *grid(["squares", "shared"], "by 4", [2, 3], any_order=True, options=[ANY_ORDER, {**ANY_ORDER, **PERSISTENT}]),
    # The first epoch is left in the middle, and its iterator dropped, or with persistent workers begun again.
    *grid(DRAWING, "by 1", [0, 1, 3], stop_after=[1, 3]),
    *grid(DRAWING, "by 1", [1, 3], stop_after=[1, 3], epochs=3, options=PERSISTENT),
    # How far the sampler has drawn from a shared generator by then shows in the next epoch.
    *grid("noise", ["replacement", "more than all", "batch sampler"], [0, 1], generator=True, stop_after=1),
    *grid([*FAILING, "mixed shapes", "no collation", "empty", "unsized"], "by 4", [0, 2]),
    *grid(FAILING, "unbatched", [0, 1]),
    *grid(FAILING, "unbatched", 3, options=PERSISTENT),
    *grid(["value error", "stop iteration"], "by 1", [1, 2], any_order=True, options=ANY_ORDER),
    *grid("odd errors", "unbatched", 1),
    *grid(["tensors", "squares"], ["an empty list", "out of range", "not iterable"], [0, 2]),
    *grid("squares", "generator as sampler", [0, 2]),
    *grid("squares", "raising"),
    *grid("squares", "raising", 2, options={"prefetch_factor": 20}),  # already while the first tasks are sent
    *grid(["unsized", "empty"], "shuffled"),
    *grid("unopened stream", "by 4"),
    # Here the two differ after the first error: minidl repeats it, in torch an UnboundLocalError follows.
    *grid("unopened stream", "by 4", 2, epochs=1, compare="first error"),
    *grid(
        ["squares", "stream"],
        "by 4",
        [1, 2],
        epochs=1,
        compare="first error",
        options={"worker_init_fn": fail_in_worker},
    ),
    *grid("noise", "shuffled", 2, generator=True, options=SPAWN),
    *grid("noisy stream", "by 4", 1, options={**SPAWN, "worker_init_fn": seed_by_worker}),
    *grid("value error", "unbatched", 1, options=SPAWN),
    *grid("noise", "weighted", 2, options=FORKSERVER),
    *grid("noisy stream", "unbatched", 2, generator=True, options=FORKSERVER),
    *grid("squares", "distributed", 1, options={**FORKSERVER, "collate_fn": count}),
    *grid("key error", "by 1", 1, options=FORKSERVER),
    *grid("informed", "lists", 1, options={**FORKSERVER, "worker_init_fn": seed_by_worker}),
]
GRID = list({str(config): config for config in EVERY}.values())


def values(config: Config) -> set[tuple[str, str, str]]:
    """("map", "dataset", "noise"), ("stream", "prefetch_factor", "3"), ...: an option with either style of dataset. (A
    start method, of which each process has to import torch, with one.)"""
    style = "stream" if "stream" in config.dataset or config.dataset in STREAMS else "map"
    named = {**vars(config), **config.options, "options": None}
    return {(style if name != "multiprocessing_context" else "any", name, str(value)) for name, value in named.items()}


def covering(configs: list[Config]) -> list[Config]:
    """Some in which each value comes that comes in any."""
    chosen: list[Config] = []
    left = set().union(*map(values, configs))
    while left:
        chosen.append(max(configs, key=lambda config: len(values(config) & left)))
        left -= values(chosen[-1])
    return chosen


def with_workers(configs: list[Config]) -> list[Config]:
    return [config for config in configs if config.workers]


def sampled(configs: list[Config], some: list[Config]) -> list[Any]:
    """All without workers, which are quick, and `some` of the others; `make full` runs the rest."""
    left = [bool(each.workers) and each not in some for each in configs]
    return [pytest.param(each, marks=[pytest.mark.full] * rest) for each, rest in zip(configs, left, strict=True)]


def test_the_grid_has_600_configurations() -> None:
    assert len(GRID) >= 600


def assert_same(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """One assertion for each thing shown, so that a failure names the one that differs."""
    for name, value in theirs.items():
        assert ours.get(name) == value, name
    assert ours.keys() == theirs.keys()


@pytest.mark.parametrize("config", sampled(GRID, covering(with_workers(GRID))), ids=str)
def test_all_that_shows_is_the_same_as_in_torch(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    # How a worker is started shows nowhere: torch's are forked, as each other one would have to import torch, too.
    forked = {"multiprocessing_context": "fork"} if "multiprocessing_context" in config.options else {}
    theirs = observe(dataclasses.replace(config, options={**config.options, **forked}), TORCH)
    assert_same(observe(config, minidl), theirs)
    if config.workers:
        monkeypatch.setenv(VARIABLE, "torch")  # batches move as torch's do
        assert_same(observe(config, minidl), theirs)


MIXED = [
    *grid("noise", WORKING, generator=True),
    *grid("noise", ["shuffled", "replacement", "weighted", "lists"], 1, generator=True),
    *grid(["informed", "tensors", "stack", "concat", "subset", "split", "value error"], "by 4", 2),
    *grid(["shared", "noisy stream", "sized", "short", "chain"], "by 4", 2),
    *grid("informed", "by 4", 2, options={"worker_init_fn": seed_by_worker, **PERSISTENT}),
]


@pytest.mark.parametrize("config", sampled(MIXED, with_workers(MIXED)[::4]), ids=str)
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
