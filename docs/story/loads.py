"""The loads of the story's scenes: real processes, with samples that sleep as long as the scene wants."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch

import minidl
import tracing
from minidl.events import Kind
from tracing.trace.trace import Trace

STEP = 0.01  # seconds: a training step


class Photos(minidl.Dataset[torch.Tensor]):
    """Reading one takes 20 ms, or as long as `slow` says."""

    def __init__(self, size: int, slow: dict[int, float] | None = None) -> None:
        self.size, self.slow = size, slow or {}

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, key: int) -> torch.Tensor:
        time.sleep(self.slow.get(key, 0.02))
        return torch.full((64, 64), key)


class Stream(minidl.IterableDataset[torch.Tensor]):
    """Worker 0 has one photo, worker 1 has three."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        info = minidl.get_worker_info()
        for key in range(1 if info is not None and info.id == 0 else 3):
            time.sleep(0.02)
            yield torch.full((64, 64), key)


def train(loader: minidl.DataLoader[torch.Tensor], batches: int = 1000) -> None:
    for number, _ in enumerate(loader, 1):
        time.sleep(STEP)
        if number == batches:
            break


def killed() -> None:
    """A worker is killed while it reads a photo for a minute; the loop catches the error."""
    loader = minidl.DataLoader(Photos(8, {3: 60.0}), num_workers=2)
    iterator = iter(loader)
    with contextlib.suppress(RuntimeError):
        for number, _ in enumerate(iterator):
            time.sleep(STEP)
            if number == 2:
                os.kill(iterator._workers[1].pid, signal.SIGKILL)
    del iterator


def two_epochs() -> None:
    loader = minidl.DataLoader(Photos(4), num_workers=2, persistent_workers=True)
    train(loader)
    train(loader)


class Scene(NamedTuple):
    run: Callable[[], None]
    first: Kind  # the scene begins with the first of these events ...
    after: int  # ... of this batch; -1: whichever it is of
    last: Kind  # and ends with the last of these, of batch `until`
    until: int
    must: Callable[[Trace], bool]  # what the text says is so in this run


def loading(*size: int, slow: dict[int, float] | None = None, **options: object) -> Callable[[], None]:
    return lambda: train(minidl.DataLoader(Photos(*size, slow=slow), **options))  # type: ignore[arg-type]


SLOW = {2: 0.2}
UNEVEN = dict.fromkeys(range(1, 20, 2), 0.06)  # worker 1 gets the odd ones

SCENES = {
    "alone": Scene(loading(4), Kind.LOADER, -1, Kind.EPOCH_END, -1, lambda trace: len(trace.tasks) == 4),
    "workers": Scene(
        loading(10, num_workers=2), Kind.YIELDED, 1, Kind.YIELDED, 7,
        lambda trace: set(trace.tasks["worker"].tolist()) == {0, 1},
    ),
    "priming": Scene(
        loading(8, num_workers=2), Kind.LOADER, -1, Kind.YIELDED, 0,
        lambda trace: first(trace, Kind.PRIMED) < first(trace, Kind.COLLATE_END),
    ),
    "turns": Scene(
        loading(12, slow=UNEVEN, num_workers=2), Kind.YIELDED, 3, Kind.YIELDED, 7,
        lambda trace: (trace.tasks["worker"] == trace.tasks["task"] % 2).all(),
    ),
    "early": Scene(
        loading(12, slow=SLOW, num_workers=2), Kind.YIELDED, 1, Kind.YIELDED, 5,
        lambda trace: {3, 5} <= set(trace.tasks["task"][trace.tasks["stored"] > 0].tolist()),
    ),
    "passing": Scene(
        loading(12, slow=SLOW, num_workers=2, in_order=False), Kind.YIELDED, 1, Kind.YIELDED, 2,
        lambda trace: (trace.tasks["yielded"] < yielded(trace, 2)).sum() >= 6,
    ),
    "pinning": Scene(
        loading(8, num_workers=2, pin_memory="host"), Kind.YIELDED, 0, Kind.YIELDED, 4,
        lambda trace: (trace.tasks["pin_end"] > 0).all(),
    ),
    "epochs": Scene(
        two_epochs, Kind.EPOCH_END, -1, Kind.YIELDED, 1,
        lambda trace: len(trace.loaders) == 1 and first(trace, Kind.WORKER_RESUMED) > first(trace, Kind.EPOCH_END),
    ),
    "stream": Scene(
        lambda: train(minidl.DataLoader(Stream(), num_workers=2)), Kind.PRIMED, -1, Kind.SHUTDOWN_BEGIN, -1,
        lambda trace: (trace.tasks["skipped"] > 0).any(),
    ),
    "killed": Scene(
        killed, Kind.YIELDED, 2, Kind.SHUTDOWN_END, -1,
        lambda trace: first(trace, Kind.WORKER_DIED) < first(trace, Kind.ERROR_RAISED),
    ),
    "shutdown": Scene(
        lambda: train(minidl.DataLoader(Photos(40), num_workers=2, pin_memory="host"), 3),
        Kind.YIELDED, 2, Kind.SHUTDOWN_END, -1,
        lambda trace: first(trace, Kind.PIN_JOINED) < first(trace, Kind.DONE_SET),
    ),
    "waiting": Scene(
        loading(24, slow=dict.fromkeys(range(24), 0.06), num_workers=2), Kind.YIELDED, 3, Kind.YIELDED, 7,
        lambda trace: "more workers" in str(tracing.report(trace)) or "num_workers=" in str(tracing.report(trace)),
    ),
}  # fmt: skip


def first(trace: Trace, kind: Kind) -> int:
    """The position of the first event of this kind."""
    return int((trace.events["kind"] == kind).argmax())


def yielded(trace: Trace, task: int) -> int:
    return int(trace.tasks["yielded"][trace.tasks["task"] == task][0])


def recorded(name: str) -> Trace:
    """The trace of a scene, in a folder with its name. RuntimeError if the run did not show what the text says: the
    machine was too busy."""
    scene = SCENES[name]
    with tracing.record(name):
        scene.run()
    trace = tracing.load(name)
    if not scene.must(trace):
        raise RuntimeError(f"{name}: this run does not show what the text says; try again on a quiet machine")
    return trace
