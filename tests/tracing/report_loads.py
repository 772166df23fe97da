"""Small real loads, each with its own limit. At module level, so that spawned workers can import what they need.

`CAUSES` has one for each cause that the report distinguishes. Their waits are many times what a busy machine adds;
where there should be little waiting, batches are lists, which move faster than a tensor in shared memory.
"""

from __future__ import annotations

import importlib
import multiprocessing
import multiprocessing.util
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

import minidl
import tracing
from tracing.analysis.measure.waited import Verdict


class Samples(minidl.Dataset):
    """`n` samples; sample i is `make(i)`."""

    def __init__(self, n: int, make: Callable[[int], Any]) -> None:
        self.n, self.make = n, make

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> Any:
        return self.make(index)


class SlowSampler(minidl.Sampler):
    """Takes 10 ms for each key."""

    def __init__(self, n: int = 60) -> None:
        self.n = n

    def __iter__(self) -> Any:
        for key in range(self.n):
            time.sleep(0.01)
            yield key

    def __len__(self) -> int:
        return self.n


class UnpicklesSlowly(Samples):
    """Its module imports something expensive: a spawned worker does so when it unpickles the dataset."""

    def __reduce__(self) -> Any:
        return unpickle_slowly, (self.n, self.make)


class SlowToPin:
    """A batch with its own, slow pin_memory()."""

    def __init__(self, samples: list[Any]) -> None:
        self.data = torch.tensor(samples)

    def pin_memory(self) -> SlowToPin:
        time.sleep(0.03)
        return self


def unpickle_slowly(n: int, make: Callable[[int], Any]) -> Samples:
    expensive_import()
    return UnpicklesSlowly(n, make)


def expensive_import() -> None:
    """Import a module that takes long, once in each process."""
    importlib.import_module("tests.tracing.expensive")


def quick(index: int) -> int:
    return index


def computes(index: int) -> int:
    end = time.thread_time() + 0.005
    while time.thread_time() < end:
        pass
    return index


def computes_and_waits(index: int) -> int:
    """A quarter of the time on a core, if it gets one."""
    computes(index)
    time.sleep(0.015)
    return index


def waits(index: int) -> int:
    time.sleep(0.02)
    return index


def waits_long(index: int) -> int:
    time.sleep(0.055)
    return index


def one_in_ten_is_slow(index: int) -> int:
    time.sleep(0.15 if index % 10 == 7 else 0.005)
    return index


def many_leaves(index: int) -> dict[str, torch.Tensor]:
    return {str(key): torch.zeros(2) for key in range(200)}


def needs_import(index: int) -> int:
    expensive_import()
    return index


def fails(index: int) -> float:
    return index / 0


def no_such_image(index: int) -> int:
    if index == 9:
        raise KeyError("no such image")
    return index


def is_killed(index: int) -> int:
    if index == 9:
        os.kill(os.getpid(), signal.SIGKILL)
    return index


def main_is_killed(path: Path) -> tracing.Trace:
    """The trace of a process that is killed after six batches, in mid-epoch."""
    main = multiprocessing.get_context("fork").Process(target=_kills_itself, args=(path,))
    main.start()
    main.join(60)
    assert main.exitcode == -signal.SIGKILL
    return tracing.load(path)


def _kills_itself(path: Path) -> None:
    with tracing.record(path):
        for number, _batch in enumerate(minidl.DataLoader(Samples(30, waits), num_workers=2), 1):
            if number == 6:
                os.kill(os.getpid(), signal.SIGKILL)


def imports_first(worker_id: int) -> None:
    """A worker_init_fn."""
    expensive_import()


def starts_later(worker_id: int) -> None:
    """A worker_init_fn: all except worker 0 have something to do first."""
    time.sleep(0.6 * (worker_id > 0))


def worker_1_exits_slowly(worker_id: int) -> None:
    """A worker_init_fn: worker 1 opens something that takes long to close at exit."""
    if worker_id == 1:
        multiprocessing.util.Finalize(None, time.sleep, args=(0.8,), exitpriority=0)


def record(
    path: Path,
    dataset: Any,
    step: float = 0.001,
    every: int = 1,
    epochs: int = 1,
    package: ModuleType | Any = minidl,
    **options: Any,
) -> tracing.Trace:
    """The trace of a training that takes `step` seconds after every `every`-th batch, and no time after the others."""
    with tracing.record(path):
        loader = package.DataLoader(dataset, **options)
        for _ in range(epochs):
            for number, _batch in enumerate(loader, 1):
                if number % every == 0:
                    time.sleep(step)
    return tracing.load(path)


@dataclass
class Cause:
    """A load, and what its report must contain."""

    verdict: Verdict
    next: str  # in the first piece of advice
    why: tuple[str, ...]  # in the reasons
    dataset: Samples
    options: dict[str, Any] = field(default_factory=dict)  # of `record`
    cores: int = 2  # as the report sees it: the same on any machine

    def record(self, path: Path, package: Any = minidl) -> tracing.Trace:
        return record(path, self.dataset, package=package, **{"num_workers": 2, **self.options})


CAUSES = {
    "samples that compute": Cause(
        Verdict.WORKERS, "ake the samples cheaper", ("used a core for",), Samples(320, computes),
        {"batch_size": 4, "num_workers": 4, "collate_fn": list, "in_order": False}, cores=1,
    ),
    "samples that wait": Cause(
        Verdict.WORKERS, "beyond the number of cores", (), Samples(80, waits),
        {"batch_size": 2, "prefetch_factor": 4},
    ),
    "one in ten is slow": Cause(
        Verdict.HOLD_UP, "in_order=False", ("reorder buffer", "7 on worker 1 ("), Samples(40, one_in_ten_is_slow)
    ),
    "batches of 200 leaves": Cause(
        Verdict.MOVING, "Larger batches", ("already made",), Samples(40, many_leaves),
        {"transport": "torch"},
    ),
    "a slow pin": Cause(
        Verdict.PINNING, "pin_memory()", ("worker_result_queue backs up",), Samples(40, quick),
        {"pin_memory": "host", "collate_fn": SlowToPin},
    ),
    "imports in worker_init_fn": Cause(
        Verdict.STARTUP, "worker_init_fn takes longest", ("worker_init_fn 4", "its first batch"), Samples(8, quick),
        {"worker_init_fn": imports_first, "epochs": 3},
    ),
    "imports at the first sample": Cause(
        Verdict.STARTUP, "persistent_workers=True", ("making its first batch 4",), Samples(8, needs_import),
        {"epochs": 3},
    ),
    "imports at unpickling": Cause(
        Verdict.STARTUP, "persistent_workers=True", ("importing and unpickling",), UnpicklesSlowly(4, quick),
        {"multiprocessing_context": "spawn", "num_workers": 1, "epochs": 2},
    ),
    "bursts": Cause(
        Verdict.PREFETCH, "lets the workers make more ahead", ("a worker was idle for",), Samples(40, waits),
        {"step": 0.4, "every": 10, "prefetch_factor": 1},
    ),
    "a slow sampler": Cause(
        Verdict.SAMPLER, "the whole epoch at once", ("drawing keys took",), Samples(60, quick),
        {"sampler": SlowSampler()},
    ),
    "a worker slow to exit": Cause(
        Verdict.SHUTDOWN, "what worker 1 does at exit", ("waiting for worker 1 to exit",),
        Samples(20, quick), {"worker_init_fn": worker_1_exits_slowly},
    ),
    "no workers": Cause(
        Verdict.NO_WORKERS, "made while main trains", ("main made every batch itself",), Samples(20, waits),
        {"num_workers": 0},
    ),
    "a healthy one": Cause(
        Verdict.TRAINING, "The loader keeps up", (), Samples(40, waits_long),
        {"step": 0.04, "prefetch_factor": 4, "collate_fn": list},
    ),
}  # fmt: skip
