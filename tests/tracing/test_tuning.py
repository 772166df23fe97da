"""Settings of a loader that are tried on this machine."""

from __future__ import annotations

import itertools
import random
import time
from pathlib import Path
from typing import Any

import pytest
import torch.utils.data

import minidl
import tracing
from minidl import events
from tests.samples import Samples, Stream, dealt, napping
from tests.tracing.forked import forked
from tracing import tuning

SCRIPT = """
import time, torch
from torch.utils.data import DataLoader
from tests.samples import Samples, napping
from tracing import tuning

tuning.SECONDS = 0.3

if __name__ == "__main__":
    samples = Samples(160, napping(0.01))
    loader = DataLoader(samples, batch_size=2, num_workers=1, shuffle=True, generator=torch.Generator())
    for number, batch in enumerate(loader):
        time.sleep(0.001)
    print(number, batch.tolist(), torch.initial_seed() > 0)
"""


SLOW = Samples(300, napping(0.01))


def loader_of(package: Any, dataset: Any, **options: Any) -> Any:
    return package.DataLoader(dataset, **{"batch_size": 2, "num_workers": 1, **options})


@pytest.mark.parametrize(("package", "more"), [(minidl, 1), (torch.utils.data, 0)], ids=["replayed", "climbing"])
def test_more_workers_are_found_where_samples_wait(package: Any, more: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "MORE", more)  # settings beside none and the recorded one
    generator = torch.Generator().manual_seed(7)
    loader = loader_of(package, SLOW, shuffle=True, generator=generator)
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
    """Its dataset is a stream, of which each worker reads its share: more of them are tried, too."""
    found = tracing.tune(loader_of(torch.utils.data, Stream(SLOW, dealt), num_workers=0), lambda _: None, seconds=0.3)
    assert [each.num_workers for each in found.trials if each.recorded] == [0]
    assert all(each.measured for each in found.trials)
    assert found.best is not None and found.best.num_workers > 1 and found.best.promised is None


def test_of_a_stream_that_each_worker_reads_whole_no_more_are_tried() -> None:
    """They would seem faster, with the same samples."""
    loader = loader_of(torch.utils.data, Stream(Samples(80, napping(0.005))), num_workers=2)
    assert {each.num_workers for each in tracing.tune(loader, lambda _: None, seconds=0.1).trials} == {0, 2}


class Opens(Samples):
    """Its file when it is first used, and in a worker."""

    opened = False

    def __getitem__(self, index: int) -> Any:
        self.opened = True
        return super().__getitem__(index + 0 * minidl.get_worker_info().id)  # type: ignore[union-attr]


def test_a_trial_that_fails_is_noted_and_leaves_no_trace() -> None:
    dataset = Opens(60, napping(0.01))
    found = tracing.tune(loader_of(torch.utils.data, dataset), lambda _: None, seconds=0.3)
    assert not found.trials[0].measured and all(each.measured for each in found.trials[1:])
    assert "num_workers=0: AttributeError at test_tuning.py:" in str(found) and not dataset.opened


def test_a_dataset_that_can_be_loaded_only_once_is_said_to_be_one() -> None:
    left = iter(range(10))
    loader = loader_of(minidl, Stream(range(10), lambda *_: left), num_workers=0)
    found = tracing.tune(loader, lambda batch: None, seconds=0.5)
    assert found.best is None and "only once" in str(found)


def test_ctrl_c_ends_it_with_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    took, settings = list[float](), tuning._settings

    def train(*step: float) -> None:
        took.append(step[0])
        if len(took) > 25:  # the second setting is being tried
            raise KeyboardInterrupt

    monkeypatch.setattr(tuning, "_train", train)
    # The workers have all cores: without workers a step takes as long as a quick one then.
    monkeypatch.setattr(tuning, "_settings", lambda *args: (*settings(*args)[:2], True))
    steps = itertools.cycle([0.0, 0.03])
    found = tracing.tune(loader_of(minidl, SLOW), lambda batch: time.sleep(next(steps)), seconds=0.4)
    assert took[0] < 0.01e9 < took[-1]
    assert found.trials[0].measured and not found.trials[-1].measured
    assert "Ctrl-C" in str(found) and found.trials[-1].options in str(found)


@pytest.mark.parametrize("option", ["--try", "--try-only"])
def test_a_script_goes_on_or_ends(option: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    printed, said = forked(tmp_path, "-m", "tracing", "run", "-o", "trace", option, "script.py")
    assert "num_workers=0" in said and "best" in said
    assert "look further" in said and "Verdict" not in said  # nothing beside what was measured
    assert printed == (forked(tmp_path, "script.py")[0] if option == "--try" else "")
    assert len(tracing.load(tmp_path / "trace"))
