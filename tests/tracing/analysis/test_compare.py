"""Comparing two runs: pairs of real loads in which one thing was changed on purpose."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minidl
import tracing
from minidl.world.simulated import simulate, sleep
from tests.samples import Samples, napping
from tests.tracing import report_loads as loads
from tracing import compare
from tracing.analysis.compare import LoaderComparison

BATCHES = 24


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tracing.Trace]:
    """run(sample=0.09, step=0.1, num_workers=4, ...): the trace of a load of 24 batches of two. By default it takes
    most of a second, many times the pauses of a busy machine."""

    def record(sample: float = 0.03, **options: Any) -> tracing.Trace:
        data = Samples(2 * BATCHES, napping(sample))
        path = tmp_path_factory.mktemp("compare") / "run.trace"
        return loads.record(path, data, **({"num_workers": 2, "batch_size": 2, "collate_fn": list} | options))

    return record


@pytest.fixture(scope="module")
def plain(run: Callable[..., tracing.Trace]) -> tracing.Trace:
    return run()


def change(found: LoaderComparison, name: str) -> Any:
    """The change of a stage, or of a place of main's time."""
    (only,) = (each for each in [*found.places, *found.stages] if each.name == name)
    return only


def test_a_run_does_not_differ_from_itself(plain: tracing.Trace) -> None:
    comparison = compare(plain, plain)
    found, rows = comparison.loaders[0], plain.tasks
    assert found.faster == 1 and not found.real and found.configs == {} and found.differ is None
    assert not any(each.real for each in [*found.places, *found.stages])
    assert found.sentence().startswith("No real difference")
    assert f"Keys the same in the {BATCHES} batches that both have drawn" in " ".join(str(comparison).split())
    # The numbers are those of the trace.
    assert change(found, "fetch").before == np.median(rows["fetch_end"] - rows["fetch_begin"])
    assert found.before.batches == found.compared == len(rows) == BATCHES
    assert sum(found.before.places.values()) == pytest.approx(found.before.per_batch)


def test_cheaper_samples_make_a_run_faster(run: Callable[..., tracing.Trace], plain: tracing.Trace) -> None:
    slower = run(sample=0.09)
    found = compare(slower, plain).loaders[0]
    fetch = change(found, "fetch")
    assert found.real and 2 < found.faster < 4.5
    assert fetch.real and fetch.before == pytest.approx(180e6, rel=0.3) and fetch.after == pytest.approx(60e6, rel=0.3)
    assert str(fetch) in found.sentence() and "× as fast" in found.sentence()
    back = compare(plain, slower).loaders[0]
    assert back.faster < 1 and "× as slow" in back.sentence()


def test_more_workers_make_a_run_faster_and_bursts_are_compared_by_rounds() -> None:
    """Workers that began together finish together: the periods are 0, 0, 0, 20 ms. In virtual time, exactly."""

    dataset = loads.Makes(BATCHES, lambda index: sleep(0.02))

    def load(num_workers: int) -> tracing.Trace:
        def program() -> None:
            list(minidl.DataLoader(dataset, batch_size=None, num_workers=num_workers))

        return tracing.load(simulate(program, draws=False, cpus=8))

    comparison = compare(load(2), load(4))
    found = comparison.loaders[0]
    assert found.real and found.faster == pytest.approx(2, rel=0.1)
    assert not compare(load(4), load(4)).loaders[0].real
    assert found.configs == {"num_workers": (2, 4)}
    assert "num_workers 2 → 4" in found.sentence() and "waiting" in found.sentence()
    assert not change(found, "fetch").real  # each sample takes what it took
    assert all(len(line) <= 76 for line in str(comparison).splitlines()[2:])


def test_the_first_batch_of_different_keys_is_named(run: Callable[..., tracing.Trace], plain: tracing.Trace) -> None:
    comparison = compare(plain, run(sampler=[*range(6), 7, 6, *range(8, 2 * BATCHES)]))
    found = comparison.loaders[0]
    assert (found.differ, found.compared) == ((0, 3), BATCHES)
    text = " ".join(str(comparison).split())
    assert "they differ from batch 3 of epoch 0 on" in text
    assert (found.before.keys[found.differ], found.after.keys[found.differ]) == ([6, 7], [7, 6])


@pytest.mark.filterwarnings("ignore::tracing.TraceDamage")
def test_a_run_that_was_cut_off_is_compared_by_batch(plain: tracing.Trace, tmp_path: Path) -> None:
    shorter = Path(shutil.copytree(plain.path, tmp_path / "cut"))
    largest = max(shorter.glob("events-*-*.bin"), key=lambda file: file.stat().st_size)
    largest.write_bytes(largest.read_bytes()[: largest.stat().st_size // 2])
    found = compare(plain, tracing.load(shorter)).loaders[0]
    assert found.differ is None and 0 < found.compared < BATCHES
    assert 0 < found.after.batches < BATCHES == found.before.batches


def test_a_loader_without_a_counterpart_is_named(tmp_path: Path, plain: tracing.Trace, nothing: tracing.Trace) -> None:
    with tracing.record(tmp_path / "two"):
        list(zip(minidl.DataLoader(range(4)), minidl.DataLoader(range(4), num_workers=1), strict=True))
    two = tracing.load(tmp_path / "two")
    assert len(compare(plain, two).loaders) == 1 and len(compare(two, two).loaders) == 2
    assert compare(plain, two).note == "A has 1 loaders that yielded batches, and B has 2."
    assert compare(nothing, nothing).loaders == [] and "A has 0 loaders" in str(compare(nothing, nothing))
    assert compare(two, two).note == ""
