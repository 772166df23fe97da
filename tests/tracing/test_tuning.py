"""Settings of a loader that are tried on this machine."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch.utils.data

import minidl
import tracing
from minidl import events
from tracing import tuning

SLOW = 0.01  # seconds that a sample sleeps
SCRIPT = """
import time, torch
from torch.utils.data import DataLoader
from tests.tracing.test_tuning import Slow
from tracing import tuning

tuning.SECONDS, tuning.MORE = 0.3, 1

if __name__ == "__main__":
    loader = DataLoader(Slow(), batch_size=2, num_workers=1, shuffle=True, generator=torch.Generator())
    for number, batch in enumerate(loader):
        time.sleep(0.001)
    print(number, batch.tolist(), torch.initial_seed() > 0)
"""


class Slow(torch.utils.data.Dataset[int]):
    def __len__(self) -> int:
        return 300

    def __getitem__(self, key: int) -> int:
        time.sleep(SLOW)
        return key


class OneShot(torch.utils.data.IterableDataset[int]):
    def __init__(self) -> None:
        self.left = iter(range(10))

    def __iter__(self) -> Iterator[int]:
        return self.left


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "MORE", 1)  # setting beside none and the recorded one


def loader_of(package: Any, dataset: Any, **options: Any) -> Any:
    return package.DataLoader(dataset, **{"batch_size": 2, "num_workers": 1, **options})


@pytest.mark.parametrize("package", [minidl, torch.utils.data], ids=["minidl", "torch"])
def test_more_workers_are_found_where_samples_wait(package: Any) -> None:
    generator = torch.Generator().manual_seed(7)
    loader = loader_of(package, Slow(), shuffle=True, generator=generator)
    before = generator.get_state(), torch.get_rng_state(), random.getstate()
    found = tracing.tune(loader, lambda batch: None, seconds=1.0)
    after = generator.get_state(), torch.get_rng_state(), random.getstate()
    assert torch.equal(before[0], after[0]) and torch.equal(before[1], after[1]) and before[2] == after[2]
    none, *_ = found.trials
    assert none.num_workers == 0 and none.memory == 0
    assert [each.num_workers for each in found.trials if each.recorded] == [1]
    best = found.best
    assert best is not None and best.num_workers > 1 and best.measured > none.measured and best.memory > 0
    assert f"Change   DataLoader(..., {best.options})" in str(found) and "best" in str(found)
    assert loader.num_workers == 1 and events.installed() is None


def test_a_loader_without_workers_can_be_tuned() -> None:
    found = tracing.tune(loader_of(torch.utils.data, Slow(), num_workers=0), lambda batch: None, seconds=0.5)
    assert [each.num_workers for each in found.trials if each.recorded] == [0]
    assert all(each.measured for each in found.trials)


def test_a_dataset_that_can_be_loaded_only_once_is_said_to_be_one() -> None:
    dataset = OneShot()
    loader = loader_of(minidl, dataset, num_workers=0)
    found = tracing.tune(loader, lambda batch: None, seconds=0.5)
    assert found.best is None and "only once" in str(found)


def test_ctrl_c_ends_it_with_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = itertools.count()

    def train(took: float, computed: float) -> None:
        if next(steps) > 25:  # the second setting is being tried
            raise KeyboardInterrupt

    monkeypatch.setattr(tuning, "_train", train)
    found = tracing.tune(loader_of(minidl, Slow()), lambda batch: None, seconds=0.4)  # without workers, 20 batches
    assert found.trials[0].measured and not found.trials[-1].measured
    assert "Ctrl-C" in str(found) and "not tried" in str(found)


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--try", "--try-only"])
def test_a_script_goes_on_or_ends(option: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    alone = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    command = [sys.executable, "-m", "tracing", "run", "-o", str(tmp_path / "trace"), option, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "num_workers=0" in done.stderr and "best" in done.stderr
    assert "look further" in done.stderr and "Verdict" not in done.stderr  # nothing beside what was measured
    assert done.stdout == (alone.stdout if option == "--try" else "")
    assert len(tracing.load(tmp_path / "trace"))
