"""What must hold beside every torch and Python that the package installs with: `make versions` runs this in an
environment for each, against the installed package; `make test` runs most of it here. Each test's docstring is its
claim."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

import minidl
import tracing
from minidl.events import NO_TASK, Kind
from tracing.__main__ import main

pytestmark = pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true but no accelerator")

# In the order in which main emits them, whatever the workers do meanwhile.
MAIN = (Kind.LOADER, Kind.KEYS_DRAWN, Kind.DISPATCHED, Kind.YIELDED, Kind.EPOCH_END, Kind.SHUTDOWN_BEGIN)


SQUARES: Any = [torch.tensor([key, key * key]) for key in range(20)]


class Fatal(list[int]):
    def __getitem__(self, key: Any) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)


class Countdown(IterableDataset):  # type: ignore[type-arg]
    def __iter__(self) -> Iterator[int]:
        yield from range(12, 0, -1)


SETTINGS: list[dict[str, Any]] = [
    {"batch_size": 4},
    {"batch_size": 3, "shuffle": True, "drop_last": True},
    {"batch_size": 4, "shuffle": True, "num_workers": 2},
    {"batch_size": 3, "num_workers": 2, "persistent_workers": True, "prefetch_factor": 3},
    {"batch_size": 4, "num_workers": 2, "pin_memory": True},
    {"batch_size": 4, "num_workers": 1, "multiprocessing_context": "spawn", "persistent_workers": True},
    {"batch_size": 4, "num_workers": 1, "multiprocessing_context": "forkserver", "persistent_workers": True},
]
# Each of their workers imports torch. With the pinned torch they are tried elsewhere, too.
EACH = [
    pytest.param(each, id=str(each), marks=pytest.mark.full if "multiprocessing_context" in each else ())
    for each in SETTINGS
]


def load(cls: Any, dataset: Any, settings: dict[str, Any]) -> list[Any]:
    """Two epochs' batches."""
    torch.manual_seed(7)
    loader = cls(dataset, **settings)
    return [batch.tolist() for _ in range(2) for batch in loader]


def record(cls: Any, settings: dict[str, Any], path: Path) -> tracing.Trace:
    with tracing.record(path):
        load(cls, SQUARES, settings)
    return tracing.load(path)


@pytest.mark.parametrize("settings", EACH)
@pytest.mark.parametrize("dataset", [SQUARES, Countdown()], ids=["map", "iterable"])
def test_minidl_yields_torchs_batches(settings: dict[str, Any], dataset: Any) -> None:
    """minidl yields torch's batches"""
    if isinstance(dataset, Countdown):
        settings = {**settings, "shuffle": None}
    assert load(minidl.DataLoader, dataset, settings) == load(DataLoader, dataset, settings)


@pytest.mark.parametrize("settings", EACH)
def test_torchs_loader_is_traced(settings: dict[str, Any], tmp_path: Path) -> None:
    """torch's loader is traced, and takes minidl's steps"""
    traces = [record(cls, settings, tmp_path / name) for cls, name in ((minidl.DataLoader, "a"), (DataLoader, "b"))]
    for trace in traces:
        assert tracing.check(trace) == []
    ours, theirs = (trace.events[[each in MAIN for each in trace.events["kind"]]] for trace in traces)
    assert [*zip(ours["kind"], ours["task"], strict=True)] == [*zip(theirs["kind"], theirs["task"], strict=True)]
    assert (theirs["task"] != NO_TASK).any()


def test_a_program_is_run_under_the_tracer(tmp_path: Path) -> None:
    """a script is run and judged by the console command"""
    console = Path(sys.executable).with_name("minidl")
    tool = [console] if console.exists() else [sys.executable, "-m", "tracing"]  # in a checkout nothing is installed
    env = {**os.environ, "PYTHONPATH": str(Path(tracing.__file__).parents[1])}

    def call(*words: str) -> str:
        done = subprocess.run([*tool, *words], cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True, timeout=90)
        assert done.returncode == 0
        return done.stdout

    (tmp_path / "train.py").write_text(
        "from torch.utils.data import DataLoader\n"
        "if __name__ == '__main__':\n    print(sum(map(int, DataLoader(range(40), num_workers=2))))\n"
    )
    assert call("run", "-o", "trace", "train.py") == "780\n"
    (loader,) = json.loads(call("report", "--json", "trace"))["loaders"]
    assert loader["batches"] == 40


@pytest.mark.parametrize("cls", [minidl.DataLoader, DataLoader], ids=["minidl", "torch"])
def test_a_death_is_named(cls: Any, tmp_path: Path) -> None:
    """a worker's death is raised and named, and nothing is left behind"""
    with tracing.record(tmp_path / "trace"), pytest.raises(RuntimeError, match=r"exited unexpectedly|killed by signal"):
        list(cls(Fatal(range(20)), 2, num_workers=1))
    note = " ".join(tracing.report(tracing.load(tmp_path / "trace")).notes)
    assert "SIGKILL" in note or "Killed" in note


def test_every_view_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """every view is made: timeline, sequence, step-through, Perfetto, what-if"""
    monkeypatch.chdir(tmp_path)
    record(DataLoader, SETTINGS[2], tmp_path / "trace")
    for command in ("timeline -o t.svg", "sequence -o s.mmd", "step -o s.html", "export --format perfetto -o p.json"):
        assert main([*command.split(), "trace"]) == 0
        assert (tmp_path / command.split()[-1]).stat().st_size > 1_000
    assert main(["whatif", "trace"]) == main(["live", "trace", "--once"]) == main(["sequence", "trace"]) == 0


def test_the_simulated_world_runs() -> None:
    """the simulated world runs the loader, in another order with another seed"""
    from minidl.world.simulated import simulate

    def program() -> list[Any]:
        return [batch.tolist() for batch in minidl.DataLoader(SQUARES, 4, num_workers=2)]

    outcomes = [simulate(program, seed=seed) for seed in range(3)]
    assert not any(outcome.deadlock or outcome.error for outcome in outcomes)
    assert len({tuple(event[:6] for event in outcome.events) for outcome in outcomes}) > 1
