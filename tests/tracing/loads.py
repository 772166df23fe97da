"""Real loads, recorded once for all tests of tracing: each shows something that the others do not."""

from __future__ import annotations

import itertools
import os
import signal
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.utils.data

import minidl
import tracing
from minidl.events import Kind


class Numbers(torch.utils.data.Dataset):
    """0 to n - 1. Sample 0 waits until another task has overtaken its own, by the trace in directory `overtaken`;
    those in `bad` raise an exception; `fatal` kills the worker."""

    def __init__(self, n: int, overtaken: Path | None = None, bad: tuple[int, ...] = (), fatal: int = -1) -> None:
        self.n, self.overtaken, self.bad, self.fatal = n, overtaken, bad, fatal

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, key: int) -> torch.Tensor:
        if key == 0 and self.overtaken is not None:
            trace = tracing.load(self.overtaken)
            while not np.isin(trace.events["kind"], [Kind.STORED, Kind.YIELDED]).any():
                trace.refresh()
        if key in self.bad:
            raise KeyError(f"no sample {key}")
        if key == self.fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.tensor([key])


class Stream(torch.utils.data.IterableDataset):
    """Worker 0 has 3 samples, every other one 9."""

    def __iter__(self) -> Iterator[int]:
        info = minidl.get_worker_info()
        return iter(range(3 if info is None or info.id == 0 else 9))


class Nested(Numbers):
    """Each sample is made by a nested loader."""

    def __getitem__(self, key: int) -> torch.Tensor:
        return torch.cat(list(minidl.DataLoader(Numbers(2), batch_size=1)))


def in_order(directory: Path) -> None:
    list(minidl.DataLoader(Numbers(40, overtaken=directory), batch_size=4, num_workers=3))


def not_in_order(directory: Path) -> None:
    list(minidl.DataLoader(Numbers(40, overtaken=directory), batch_size=4, num_workers=3, in_order=False))


def pinned(directory: Path) -> None:
    """Its queues have feeders: with slots they are needed only when a pipe is full."""
    list(minidl.DataLoader(Numbers(24), batch_size=4, num_workers=2, pin_memory="host", transport="torch"))


def stream(directory: Path) -> None:
    list(minidl.DataLoader(Stream(), batch_size=2, num_workers=2))


def persistent(directory: Path) -> None:
    """The second of three epochs is abandoned: its results meet the handshake of the third."""
    loader = minidl.DataLoader(Numbers(24), batch_size=2, num_workers=2, persistent_workers=True, pin_memory="host")
    list(loader)
    list(itertools.islice(loader, 2))
    list(loader)


def persistent_stream(directory: Path) -> None:
    loader = minidl.DataLoader(Stream(), batch_size=2, num_workers=2, persistent_workers=True)
    list(loader)
    list(loader)


def serial(directory: Path) -> None:
    """One epoch, then two at once, then one that is abandoned."""
    loader = minidl.DataLoader(Numbers(8), batch_size=2, pin_memory="host")
    list(loader)
    list(zip(loader, loader, strict=True))
    next(iter(loader))


def two_at_once(directory: Path) -> None:
    loader = minidl.DataLoader(Numbers(12), batch_size=2, num_workers=1)
    list(zip(loader, loader, minidl.DataLoader(Numbers(6), num_workers=2), strict=True))


def empty(directory: Path) -> None:
    """Samplers without keys, then one with some."""
    list(minidl.DataLoader(Numbers(0)))
    list(minidl.DataLoader(Numbers(0), num_workers=1))
    list(minidl.DataLoader(Numbers(4), batch_size=2, num_workers=1))


def nested(directory: Path) -> None:
    list(minidl.DataLoader(Nested(6), batch_size=2, num_workers=2))


def failing(directory: Path) -> None:
    go_on(iter(minidl.DataLoader(Numbers(20, bad=(5, 13)), batch_size=2, num_workers=2)))
    go_on(iter(minidl.DataLoader(Numbers(8, bad=(0, 5)), batch_size=2)))


def dying(directory: Path) -> None:
    go_on(iter(minidl.DataLoader(Numbers(40, fatal=18), batch_size=2, num_workers=2)), most=12)


def spawned(directory: Path) -> None:
    list(minidl.DataLoader(Numbers(8), batch_size=2, num_workers=1, multiprocessing_context="spawn"))


def go_on(iterator: Any, most: int = 100) -> list[str]:
    """Iterate, whatever is raised; return the errors."""
    steps, errors = iter(range(most)), list[str]()
    try:
        _iterate(iterator, steps, errors)
    except RuntimeError as error:  # a worker's death, raised where main happened to be: between two calls of next()
        errors.append(str(error))
        _iterate(iterator, steps, errors)
    return errors


def _iterate(iterator: Any, steps: Iterator[int], errors: list[str]) -> None:
    for _ in steps:
        try:
            next(iterator)
        except StopIteration:
            break
        except (RuntimeError, KeyError) as error:
            errors.append(str(error))


class Arrays(Numbers):
    """Each sample is so large that a batch of two goes through a slot."""

    def __getitem__(self, key: int) -> torch.Tensor:
        return torch.full((1 << 14,), key)


def slots(directory: Path) -> None:
    """Batches are kept: more than there are slots, then during a fork, then into an epoch that is abandoned."""
    loader = minidl.DataLoader(Arrays(40), batch_size=2, num_workers=2, persistent_workers=True)
    kept: list[Any] = []
    for number, batch in enumerate(loader):
        if number < 12:
            kept.append(batch)
        elif number == 12:
            list(minidl.DataLoader(Numbers(2), num_workers=1))
        else:
            kept = kept[-2:]
    list(itertools.islice(loader, 4))
    list(loader)


LOADS = {
    load.__name__: load
    for load in (
        in_order, not_in_order, pinned, stream, persistent, persistent_stream, serial, two_at_once, empty, nested,
        failing, dying, spawned, slots,
    )
}  # fmt: skip


def record(name: str, directory: Path) -> tracing.Trace:
    """Record one of them into `directory`, which `tracing.record` makes."""
    with warnings.catch_warnings(), tracing.record(directory):
        warnings.simplefilter("ignore")  # more workers than cores, say
        LOADS[name](directory)
    return tracing.load(directory)
