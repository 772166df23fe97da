"""Comparing two runs: pairs of real loads in which one thing was changed on purpose."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minidl
import tracing
from minidl.events import Kind
from minidl.world.simulated import simulate, sleep
from tests.tracing import report_loads as loads
from tracing import compare

pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
]

BATCHES = 24


def slow(seconds: float) -> Callable[[int], int]:
    def make(index: int) -> int:
        time.sleep(seconds)
        return index

    return make


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tracing.Trace]:
    """run(sample=0.09, step=0.1, num_workers=4, ...): the trace of a load of 24 batches of two. By default it takes
    most of a second, many times the pauses of a busy machine."""

    def record(sample: float = 0.03, batches: int = BATCHES, **options: Any) -> tracing.Trace:
        data = loads.Samples(2 * batches, slow(sample))
        path = tmp_path_factory.mktemp("compare") / "run.trace"
        return loads.record(path, data, **({"num_workers": 2, "batch_size": 2, "collate_fn": list} | options))

    return record


@pytest.fixture(scope="module")
def plain(run: Callable[..., tracing.Trace]) -> tracing.Trace:
    return run()


def test_a_run_does_not_differ_from_itself(plain: tracing.Trace) -> None:
    found = compare(plain, plain).loaders[0]
    assert found.faster == 1 and not found.real and found.configs == {} and found.keys is None
    assert not any(change.real for change in [*found.places, *found.stages])
    assert found.sentence().startswith("No real difference")
    assert found.sentence().endswith("the same keys in the same order.")


@pytest.mark.slow
def test_cheaper_samples_make_a_run_faster(run: Callable[..., tracing.Trace], plain: tracing.Trace) -> None:
    slower = run(sample=0.09)
    found = compare(slower, plain).loaders[0]
    assert found.real and 2 < found.faster < 4.5
    [fetch] = [change for change in found.stages if change.name == "fetch"]
    assert fetch.real and fetch.before == pytest.approx(180e6, rel=0.3) and fetch.after == pytest.approx(60e6, rel=0.3)
    assert str(fetch) in found.sentence() and "× as fast" in found.sentence()
    back = compare(plain, slower).loaders[0]
    assert back.faster < 1 and "× as slow" in back.sentence()


def test_more_workers_make_a_run_faster(run: Callable[..., tracing.Trace], plain: tracing.Trace) -> None:
    found = compare(plain, run(num_workers=4)).loaders[0]
    assert found.configs == {"num_workers": (2, 4)} and found.real and found.faster > 1.3
    assert "num_workers 2 → 4" in found.sentence() and "waiting" in found.sentence()
    [fetch] = [change for change in found.stages if change.name == "fetch"]
    assert not fetch.real  # each sample takes what it took


def test_batches_that_come_in_bursts_are_compared_by_rounds() -> None:
    """Workers that began together finish together: the periods are 0, 0, 0, 20 ms. In virtual time, exactly."""

    def load(num_workers: int) -> tracing.Trace:
        def program() -> None:
            for _ in minidl.DataLoader(Sleeping(), batch_size=None, num_workers=num_workers):
                pass

        trace = tracing.load(simulate(program, draws=False, cpus=8))
        assert isinstance(trace, tracing.Trace)
        return trace

    found = compare(load(2), load(4)).loaders[0]
    assert found.real and found.faster == pytest.approx(2, rel=0.1)
    assert not compare(load(4), load(4)).loaders[0].real


class Sleeping(minidl.Dataset[int]):
    def __len__(self) -> int:
        return BATCHES

    def __getitem__(self, key: int) -> int:
        sleep(0.02)
        return key


@pytest.mark.slow
def test_a_slower_training_step_is_named(run: Callable[..., tracing.Trace], plain: tracing.Trace) -> None:
    found = compare(plain, run(step=0.1)).loaders[0]
    assert found.real and found.faster < 0.6
    [training] = [change for change in found.places if change.name == "training"]
    assert training.real and training.after - training.before == pytest.approx(99e6, rel=0.3)
    assert str(training) in found.sentence()
    assert found.before.verdict != found.after.verdict == "the training step is the limit"


def test_the_first_batch_of_different_keys_is_named(run: Callable[..., tracing.Trace], plain: tracing.Trace) -> None:
    order = [*range(6), 7, 6, *range(8, 2 * BATCHES)]
    comparison = compare(plain, run(sampler=order))
    found = comparison.loaders[0]
    assert found.keys is not None and found.batches_compared == BATCHES
    assert (found.keys.epoch, found.keys.batch, found.keys.before, found.keys.after) == (0, 3, [6, 7], [7, 6])
    assert "the two drew different keys" in found.sentence()
    assert "from batch 3 of epoch 0 on" in str(comparison)


def test_runs_of_different_length_are_compared_by_batch(
    run: Callable[..., tracing.Trace], plain: tracing.Trace
) -> None:
    found = compare(plain, run(batches=8)).loaders[0]
    assert (found.before.batches, found.after.batches, found.batches_compared) == (BATCHES, 8, 8)
    assert found.keys is None


def test_the_numbers_are_those_of_the_trace(plain: tracing.Trace) -> None:
    found = compare(plain, plain).loaders[0].before
    rows = plain.tasks
    assert found.stages["fetch"][0] == np.median(rows["fetch_end"] - rows["fetch_begin"])
    assert found.batches == len(rows) == BATCHES
    assert sum(found.places.values()) == pytest.approx(found.per_batch)
    yields = plain.events["time"][plain.events["kind"] == Kind.YIELDED]
    assert found.period == pytest.approx(np.diff(yields).mean())


def test_a_loader_without_a_counterpart_is_named(tmp_path: Path, plain: tracing.Trace) -> None:
    with tracing.record(tmp_path / "two"):
        list(zip(minidl.DataLoader(range(4)), minidl.DataLoader(range(4), num_workers=1), strict=True))
    with tracing.record(tmp_path / "none"):
        pass
    two, none = tracing.load(tmp_path / "two"), tracing.load(tmp_path / "none")
    assert len(compare(plain, two).loaders) == 1 and len(compare(two, two).loaders) == 2
    [alone] = compare(plain, two).alone
    assert alone.startswith("Only B has a loader")
    assert compare(none, none).loaders == [] and "nothing to compare" in str(compare(none, none))


def test_the_text_fits_a_terminal_and_the_json_agrees_with_it(
    run: Callable[..., tracing.Trace], plain: tracing.Trace
) -> None:
    comparison = compare(plain, run(num_workers=0))
    assert all(len(line) <= 76 for line in str(comparison).splitlines()[2:])
    document = json.loads(comparison.to_json())
    assert document["loaders"][0]["sentence"] == comparison.loaders[0].sentence()
    assert comparison.loaders[0].sentence().split()[0] in str(comparison)


def test_what_is_left_of_a_damaged_run_is_compared(plain: tracing.Trace, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(plain.path, tmp_path / "cut"))
    largest = max(copy.glob("events-*-*.bin"), key=lambda file: file.stat().st_size)
    largest.write_bytes(largest.read_bytes()[: largest.stat().st_size // 2])
    with pytest.warns(tracing.TraceDamage):
        cut = tracing.load(copy)
    found = compare(plain, cut).loaders[0]
    assert found.keys is None and 0 < found.after.batches < BATCHES
