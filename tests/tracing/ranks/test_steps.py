"""Ranks side by side: which of their loaders correspond, and which rank waits in its steps. Steps are made up here,
so that what they should show is known exactly; real trainings are in tests/tracing/ranks/test_ranks.py."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tracing.ranks.hold_up import LOADER, hold_up
from tracing.ranks.ranks import Rank, Ranks
from tracing.ranks.steps import Steps
from tracing.trace.parts import Part

MS = 1_000_000


def steps_of(load: np.ndarray, work: np.ndarray, after: np.ndarray, every: int = 1) -> Steps:
    """Each array is (steps, ranks), ms: to load the batch, to train on it, and after the ranks have exchanged
    gradients, in the last of `every` steps; 0: never."""
    asked, began, ended = (np.zeros(load.shape) for _ in range(3))
    now = np.zeros(load.shape[1])
    for i in range(len(load)):
        asked[i] = now
        began[i] = now + load[i]
        exchanged = began[i] + work[i]
        if every and i % every == every - 1:
            exchanged[:] = exchanged.max()
        now = ended[i] = exchanged + after[i]
    numbers = np.tile(np.arange(len(load))[:, None], load.shape[1])
    return Steps(*((times * MS).astype(np.int64) for times in (asked, began, ended)), numbers)


def noise(rng: np.random.Generator, means: list[float], n: int = 100) -> np.ndarray:
    return rng.normal(means, 0.1 * np.abs(means) + 0.2, (n, len(means))).clip(0)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(1)


@pytest.mark.parametrize("every", [1, 4])
def test_a_rank_whose_batches_come_late_is_waited_for(rng: np.random.Generator, every: int) -> None:
    """Each of the others loses what it has less to load, however many steps the gradients are accumulated over."""
    load = noise(rng, [2, 12, 2, 2])
    steps = steps_of(load, noise(rng, [5] * 4), noise(rng, [1] * 4), every)
    lost = (load[:, 1].sum() - load[:, 0].sum()) * MS
    assert steps.synchronised and steps.kept_waiting().argmax() == 1
    assert steps.waited[:, 0].sum() == pytest.approx(lost, rel=0.15) and steps.waited[:, 1].sum() < 0.05 * lost


def test_what_the_others_lose_is_what_makes_it_late(rng: np.random.Generator) -> None:
    steps = steps_of(noise(rng, [2, 12]), noise(rng, [5, 5]), noise(rng, [1, 1]))
    two: Any = SimpleNamespace(loaders=[], together=[SimpleNamespace(name=f"rank {rank}") for rank in range(2)])
    found = hold_up(two, steps)
    assert found is not None and (found.name, found.because) == ("rank 1", LOADER)
    assert found.cost_ns == pytest.approx(sum(found.late_ns.values()), rel=0.01)


def test_a_rank_that_is_late_after_the_exchange_is_waited_for(rng: np.random.Generator) -> None:
    steps = steps_of(noise(rng, [2, 2]), noise(rng, [5, 5]), noise(rng, [11, 1]))
    assert steps.synchronised and steps.kept_waiting()[0] == pytest.approx(100 * 10 * MS, rel=0.15)
    assert steps.waited[:, 0].sum() < 0.05 * steps.waited[:, 1].sum()


@pytest.mark.parametrize(("speed", "n"), [(5, 200), (5.5, 40), (5.5, 200), (8, 40), (8, 200)])
def test_ranks_that_do_not_wait_for_each_other_are_told_apart(rng: np.random.Generator, speed: float, n: int) -> None:
    for _ in range(20):
        steps = steps_of(noise(rng, [2, 2], n), noise(rng, [5, speed], n), noise(rng, [1, 1], n), every=0)
        assert not steps.synchronised and not steps.kept_waiting().any()


def test_no_steps() -> None:
    steps = steps_of(*[np.empty((0, 3))] * 3)
    assert not steps.synchronised and steps.kept_waiting().tolist() == [0, 0, 0]


class Configured(Rank):
    def __init__(self, rank: int, configs: dict[int, dict[str, object]]) -> None:
        super().__init__(Part(Path(str(rank))), None, f"rank {rank}")  # type: ignore[arg-type]
        self.__dict__["configs"] = configs


def test_loaders_correspond_by_what_they_load_not_by_their_number() -> None:
    """Rank 0 validates before it trains, on the same kind of dataset; rank 1 has another batch size."""
    train, whole = {"dataset": "D", "dataset_size": 90, "sampler_replicas": 2}, {"dataset": "D", "dataset_size": 10}
    one = Configured(0, {1: whole, 2: {**train, "batch_size": 4}, 3: {"dataset": "Test"}})
    other = Configured(1, {1: {**train, "batch_size": 8}, 2: {"dataset": "Test"}})
    assert Ranks(Path(), [one, other], [one, other]).loaders == [{one: 1}, {one: 2, other: 1}, {one: 3, other: 2}]


def test_loaders_of_different_shards_correspond() -> None:
    one, other = (Configured(rank, {1: {"dataset": "Shard", "dataset_size": 90 + rank}}) for rank in (0, 1))
    assert Ranks(Path(), [one, other], [one, other]).loaders == [{one: 1, other: 1}]
