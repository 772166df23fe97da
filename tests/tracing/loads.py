"""Real loads, recorded once for all tests of tracing: each shows something that the others do not."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import minidl
import tracing
from minidl.events import Kind
from tests.minidl.dying import die
from tests.samples import Samples, Stream, fail, first_of

Recorded = Callable[[str], tracing.Trace]  # the fixture `recorded`: of one of LOADS, its trace


def is_overtaken(directory: Path) -> None:
    """Waits until another task has overtaken that of the sample, by the trace in this directory."""
    trace = tracing.load(directory)
    while not np.isin(trace.events["kind"], [Kind.STORED, Kind.YIELDED]).any():
        trace.refresh()


def out_of_order(directory: Path) -> Samples:
    return Samples(40, at={0: functools.partial(is_overtaken, directory)})


def without(size: int, *keys: int) -> Samples:
    return Samples(size, at={key: functools.partial(fail, KeyError(f"no sample {key}")) for key in keys})


def by_a_loader(key: int) -> torch.Tensor:
    """The sample is made by a nested loader."""
    return torch.cat(list(minidl.DataLoader(Samples(2))))


def large(key: int) -> torch.Tensor:
    """So large that a batch of two goes through a slot."""
    return torch.full((1 << 14,), key)


STREAM = Stream(range(9), first_of(3, 9))


def in_order(directory: Path) -> None:
    list(minidl.DataLoader(out_of_order(directory), batch_size=4, num_workers=3))


def not_in_order(directory: Path) -> None:
    list(minidl.DataLoader(out_of_order(directory), batch_size=4, num_workers=3, in_order=False))


def pinned(directory: Path) -> None:
    """Its queues have feeders: with slots they are needed only when a pipe is full."""
    list(minidl.DataLoader(Samples(24), batch_size=4, num_workers=2, pin_memory="host", transport="torch"))


def stream(directory: Path) -> None:
    list(minidl.DataLoader(STREAM, batch_size=2, num_workers=2))


def persistent(directory: Path) -> None:
    """The second of three epochs is abandoned: its results meet the handshake of the third."""
    loader = minidl.DataLoader(Samples(24), batch_size=2, num_workers=2, persistent_workers=True, pin_memory="host")
    list(loader)
    list(itertools.islice(loader, 2))
    list(loader)


def persistent_stream(directory: Path) -> None:
    loader = minidl.DataLoader(STREAM, batch_size=2, num_workers=2, persistent_workers=True)
    list(loader)
    list(loader)


def serial(directory: Path) -> None:
    """One epoch, then two at once, then one that is abandoned."""
    loader = minidl.DataLoader(Samples(8), batch_size=2, pin_memory="host")
    list(loader)
    list(zip(loader, loader, strict=True))
    next(iter(loader))


def two_at_once(directory: Path) -> None:
    loader = minidl.DataLoader(Samples(12), batch_size=2, num_workers=1)
    list(zip(loader, loader, minidl.DataLoader(Samples(6), num_workers=2), strict=True))


def empty(directory: Path) -> None:
    """Samplers without keys, then one with some."""
    list(minidl.DataLoader(Samples(0)))
    list(minidl.DataLoader(Samples(0), num_workers=1))
    list(minidl.DataLoader(Samples(4), batch_size=2, num_workers=1))


def nested(directory: Path) -> None:
    list(minidl.DataLoader(Samples(6, by_a_loader), batch_size=2, num_workers=2))


def failing(directory: Path) -> None:
    go_on(iter(minidl.DataLoader(without(20, 5, 13), batch_size=2, num_workers=2)))
    go_on(iter(minidl.DataLoader(without(8, 0, 5), batch_size=2)))


def dying(directory: Path) -> None:
    dataset = Samples(40, at={18: functools.partial(die, "SIGKILL")})
    go_on(iter(minidl.DataLoader(dataset, batch_size=2, num_workers=2)), most=12)


def spawned(directory: Path) -> None:
    list(minidl.DataLoader(Samples(8), batch_size=2, num_workers=1, multiprocessing_context="spawn"))


def go_on(iterator: Any, most: int = 100) -> list[str]:
    """Iterate, whatever is raised, also between two calls of next(): a worker's death is, where main happens to be.
    Returns the errors."""
    steps, errors = iter(range(most)), list[str]()
    while True:
        try:
            for _ in steps:
                next(iterator)
            return errors
        except StopIteration:
            return errors
        except (RuntimeError, KeyError) as error:
            errors.append(str(error))


def slots(directory: Path) -> None:
    """Batches are kept: more than there are slots, then during a fork, then into an epoch that is abandoned."""
    loader = minidl.DataLoader(Samples(40, large), batch_size=2, num_workers=2, persistent_workers=True)
    kept: list[Any] = []
    for number, batch in enumerate(loader):
        if number < 12:
            kept.append(batch)
        elif number == 12:
            list(minidl.DataLoader(Samples(2), num_workers=1))
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
    with tracing.record(directory):
        LOADS[name](directory)
    return tracing.load(directory)
