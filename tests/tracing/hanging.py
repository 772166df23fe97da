"""Programs that really hang: each is a process that `hanging` kills in the end."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

import minidl
import tracing
from tests.minidl.programs import TORCH
from tests.samples import Samples
from tracing.analysis.hang.explain import explain
from tracing.analysis.hang.hang import Cause, Hang
from tracing.analysis.hang.patience import FLOOR_UNKNOWN
from tracing.analysis.hang.stuck_moments import Ending
from tracing.trace.process_liveness import ProcessStatus, look_at, processes
from tracing.trace.trace import Trace

BAD = 9  # the sample that hangs: with a batch size of 2, in batch 4


BLOCKS = Samples(40, at={BAD: threading.Event().wait})


class BlocksAgain(minidl.IterableDataset[int]):
    """The second epoch never begins."""

    epochs = 0

    def __iter__(self) -> Iterator[int]:
        self.epochs += 1
        if self.epochs > 1:
            threading.Event().wait()
        return iter(range(4))


def sampler() -> Iterator[int]:
    """Stops before batch 4."""
    yield from range(8)
    threading.Event().wait()


def block(_: object) -> None:
    threading.Event().wait()


def run(loader: Any, stop_after: int = -1, epochs: int = 1) -> None:
    for _ in range(epochs):
        for number, _batch in enumerate(loader, 1):
            if number == stop_after:
                threading.Event().wait()


def loader(dataset: Any, package: Any = minidl, **options: Any) -> Any:
    return package.DataLoader(
        dataset, **{"batch_size": 2, "num_workers": 2, "multiprocessing_context": "fork", **options}
    )


def timed_out() -> None:
    """The user's own timeout, after which the program does something else forever."""
    begun = multiprocessing.get_context("fork").Event()  # main can wait for it, however busy the machine is

    def blocks() -> None:
        begun.set()
        block(None)

    iterator = iter(loader(Samples(40, at={BAD: blocks}), timeout=60))
    for _ in range(4):
        next(iterator)
    begun.wait()
    iterator._timeout = 0.2  # not for the first batch: how long a worker takes to start is unknown
    with contextlib.suppress(RuntimeError):
        next(iterator)
    block(iterator)


PROGRAMS: dict[str, Callable[[], None]] = {
    "blocks": lambda: run(loader(BLOCKS)),
    "without order": lambda: run(loader(BLOCKS, in_order=False)),
    "pinned": lambda: run(loader(BLOCKS, pin_memory="host")),
    "torch": lambda: run(loader(BLOCKS, TORCH)),
    "torch drops": lambda: run(loader([*range(BAD), threading.Lock()], TORCH, collate_fn=list)),
    "serial": lambda: run(loader(BLOCKS, num_workers=0, multiprocessing_context=None)),
    "sampler": lambda: run(loader(BLOCKS, batch_size=None, sampler=sampler())),
    "init": lambda: run(loader(BLOCKS, worker_init_fn=block)),
    "resume": lambda: run(loader(BlocksAgain(), persistent_workers=True), epochs=2),
    "timed out": timed_out,
    "trains": lambda: run(loader(range(40)), stop_after=3),
}


def program(name: str, directory: Path) -> None:
    with tracing.record(directory):
        PROGRAMS[name]()


@contextlib.contextmanager
def hanging(name: str, directory: Path, *ends: Any) -> Iterator[tuple[Trace, Hang, int]]:
    """A program that hangs, once that is seen (`ends` as in `until_it_hangs`): its trace, the Hang, and main's pid.
    At the end its processes are killed."""
    process = multiprocessing.get_context("fork").Process(target=program, args=(name, directory))
    process.start()
    assert process.pid is not None
    try:
        yield *until_it_hangs(directory, *ends), process.pid
    finally:
        pids = [process.pid, *(each.pid for each in psutil.Process(process.pid).children(recursive=True))]
        if directory.exists():  # main may be dead, and its workers children of another process
            pids += [pid for pid, how in processes(directory).items() if how is not ProcessStatus.CLOSED]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.join()
        while any(look_at(pid) is not ProcessStatus.GONE for pid in pids):
            time.sleep(0.01)


def until_it_hangs(directory: Path, cause: Cause, ending: Ending = Ending.ONGOING, *what: str) -> tuple[Trace, Hang]:
    """Read until it hangs for this cause, and main, and what it waits for, do this. (It must come to that, or the test
    times out.)"""
    while not any(directory.glob("events-*-*.bin")):
        time.sleep(0.01)
    trace = tracing.load(directory)
    # A timeout ran out before the last event; later, the program is at something else, which takes too long as well.
    ns = 0 if ending is Ending.TIMED_OUT else FLOOR_UNKNOWN + 1
    while True:
        trace.refresh()
        hang = explain(trace, later(trace, ns))
        hangs = hang is not None and (hang.cause, hang.ending) == (cause, ending)
        if hangs and all(words in link.what for words, link in zip(what, hang.links, strict=False)):
            return trace, hang
        time.sleep(0.02)


def later(trace: Trace, ns: int = FLOOR_UNKNOWN + 1) -> int:
    """This long after the last event, without waiting for it."""
    return trace.start + trace.duration + ns
