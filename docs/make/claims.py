"""What must hold beside every torch and Python that the package installs with: a program that `make versions` runs in
an environment for each, against the installed package. Each function's docstring is its claim.

python claims.py        prints each claim, and yes or no
"""

from __future__ import annotations

import inspect
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

import minidl
import tracing
from minidl.events import NO_TASK, Kind
from tracing.__main__ import main as tool

# In the order in which main emits them, whatever the workers do meanwhile.
MAIN = (Kind.LOADER, Kind.KEYS_DRAWN, Kind.DISPATCHED, Kind.YIELDED, Kind.EPOCH_END, Kind.SHUTDOWN_BEGIN)


SQUARES: Any = [torch.tensor([key, key * key]) for key in range(20)]


class Fatal(list[int]):
    def __getitem__(self, key: Any) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)


class Countdown(IterableDataset):  # type: ignore[type-arg]
    def __iter__(self) -> Iterator[int]:
        yield from range(12, 0, -1)


SHUFFLED = {"batch_size": 4, "shuffle": True, "num_workers": 2}
SETTINGS: list[dict[str, Any]] = [
    {"batch_size": 4},
    {"batch_size": 3, "shuffle": True, "drop_last": True},
    SHUFFLED,
    {"batch_size": 3, "num_workers": 2, "persistent_workers": True, "prefetch_factor": 3},
    {"batch_size": 4, "num_workers": 2, "pin_memory": True},
    {"batch_size": 4, "num_workers": 1, "multiprocessing_context": "spawn", "persistent_workers": True},
    {"batch_size": 4, "num_workers": 1, "multiprocessing_context": "forkserver", "persistent_workers": True},
]


def load(cls: Any, dataset: Any, settings: dict[str, Any]) -> list[Any]:
    """Two epochs' batches."""
    torch.manual_seed(7)
    loader = cls(dataset, **settings)
    return [batch.tolist() for _ in range(2) for batch in loader]


def record(cls: Any, settings: dict[str, Any], path: str) -> tracing.Trace:
    with tracing.record(path):
        load(cls, SQUARES, settings)
    return tracing.load(path)


def torchs_batches() -> None:
    """minidl yields torch's batches"""
    for settings in SETTINGS:
        assert load(minidl.DataLoader, SQUARES, settings) == load(DataLoader, SQUARES, settings)
        streamed = {**settings, "shuffle": None}
        assert load(minidl.DataLoader, Countdown(), streamed) == load(DataLoader, Countdown(), streamed)


def torchs_loader() -> None:
    """torch's loader is traced, and takes minidl's steps"""
    for settings in SETTINGS:
        traces = [record(cls, settings, name) for cls, name in ((minidl.DataLoader, "ours"), (DataLoader, "theirs"))]
        assert not any(tracing.check(trace) for trace in traces)
        ours, theirs = (trace.events[[each in MAIN for each in trace.events["kind"]]] for trace in traces)
        assert [*zip(ours["kind"], ours["task"], strict=True)] == [*zip(theirs["kind"], theirs["task"], strict=True)]
        assert (theirs["task"] != NO_TASK).any()


def console_command() -> None:
    """a script is run and judged by the console command"""
    console = Path(sys.executable).with_name("minidl")
    command = [str(console)] if console.exists() else [sys.executable, "-m", "tracing"]  # a checkout is not installed

    def call(*words: str) -> str:
        return subprocess.run([*command, *words], stdout=subprocess.PIPE, text=True, timeout=90, check=True).stdout

    Path("train.py").write_text(
        "from torch.utils.data import DataLoader\n"
        "if __name__ == '__main__':\n    print(sum(map(int, DataLoader(range(40), num_workers=2))))\n"
    )
    assert call("run", "-o", "run", "train.py") == "780\n"
    (loader,) = json.loads(call("report", "--json", "run"))["loaders"]
    assert loader["batches"] == 40


def death() -> None:
    """a worker's death is raised and named, and nothing is left behind"""
    for cls in (minidl.DataLoader, DataLoader):
        with tracing.record(cls.__module__):
            try:
                list(cls(Fatal(range(20)), 2, num_workers=1))
            except RuntimeError as error:
                assert "exited unexpectedly" in str(error) or "killed by signal" in str(error)
            else:
                raise AssertionError("no error")
        note = " ".join(tracing.report(tracing.load(cls.__module__)).notes)
        assert "SIGKILL" in note or "Killed" in note


def views() -> None:
    """every view is made: timeline, sequence, step-through, Perfetto, what-if"""
    record(DataLoader, SHUFFLED, "viewed")
    for command in ("timeline -o t.svg", "sequence -o s.mmd", "step -o s.html", "export --format perfetto -o p.json"):
        assert tool([*command.split(), "viewed"]) == 0
        assert Path(command.split()[-1]).stat().st_size > 1_000
    for command in ("whatif viewed", "live viewed --once", "sequence viewed"):
        assert tool(command.split()) == 0


def simulated() -> None:
    """the simulated world runs the loader, in another order with another seed"""
    from minidl.world.simulated import simulate

    def program() -> list[Any]:
        return [batch.tolist() for batch in minidl.DataLoader(SQUARES, 4, num_workers=2)]

    outcomes = [simulate(program, seed=seed) for seed in range(3)]
    assert not any(outcome.deadlock or outcome.error for outcome in outcomes)
    assert len({tuple(event[:6] for event in outcome.events) for outcome in outcomes}) > 1


def holds(claim: Callable[[], None]) -> bool:
    try:
        claim()
    except Exception:
        traceback.print_exc()
        return False
    return True


CLAIMS = {
    inspect.getdoc(each): each for each in (torchs_batches, torchs_loader, console_command, death, views, simulated)
}

if __name__ == "__main__":
    outcomes = {text: holds(claim) for text, claim in CLAIMS.items()}
    for text, held in outcomes.items():
        print("yes" if held else "no ", text)
    sys.exit(not all(outcomes.values()))
