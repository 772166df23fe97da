"""Exercise 17: the handed-out script and an answer run side by side, so whatever else the machine does slows down both.

What is given does the same in the answer, and also notes what it is asked for.

Legend
    order   [17, 3, 40, ...]       the recordings, in the order of the steps
    reads   [17, 3, 40, 9, ...]    the recordings that were read, by whatever process
"""

from __future__ import annotations

import array
import contextlib
import multiprocessing
import os
import re
import shutil
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import torch
import torch.utils.data

import tracing
from notebooks.exercises.answers import Answer
from notebooks.exercises.catalogue import slow_script as given
from notebooks.exercises.heartbeat import beat
from notebooks.exercises.programs import put_in_place
from tracing.recording.torch_loader.attach import everything

EPOCHS_BEFORE = 1  # of the handed-out script: each of its epochs takes as long as any other
LOOK = 0.2  # seconds between two looks at whether it has ended
MOMENTS, MOMENT = 3, 0.1  # how often a step waits for one of another thread, and how many seconds


@dataclass
class Measured:
    """A run of train(): how long it took, and a recording of it."""

    trace: Path
    seconds: float = 0.0
    samples: int = 0

    @property
    def rate(self) -> float:
        """Samples a second."""
        return self.samples / self.seconds if self.seconds else 0.0

    def lines(self) -> tuple[str, str]:
        """The report's verdict, and its first advice."""
        report = tracing.report(tracing.load(self.trace), patience=0)
        loaders = getattr(report, "loaders", [])
        if not loaders:
            return "no DataLoader was iterated", ""
        first = loaders[0]
        in_the_loop = f"{first.main_ns['training'] / sum(first.main_ns.values()):.0%}"
        text = f"{first.verdict_line} Your loop, between two batches, takes {in_the_loop} of it."
        return text, (first.next or [""])[0]


@dataclass
class Steps:
    """What the answer's steps were given."""

    batches: list[tuple[Any, Any, Any]] = field(default_factory=list)  # ids, values, labels
    reads: Counter[int] = field(default_factory=Counter)
    at_once: bool = False  # one began before another had ended

    def __post_init__(self) -> None:
        self._changed, self._inside = threading.Condition(), 0
        self._thread, self._moments = threading.get_ident(), MOMENTS  # which took the last step

    @contextlib.contextmanager
    def one(self) -> Iterator[None]:
        """Around a step. If several threads take them, the first ones last longer: whether two meet is no accident."""
        with self._changed:
            self._inside += 1
            self.at_once |= self._inside > 1
            self._changed.notify_all()
            if self._thread != threading.get_ident() and self._moments:
                self._thread, self._moments = threading.get_ident(), self._moments - 1
                self._changed.wait_for(lambda: self.at_once, MOMENT)
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1


@contextlib.contextmanager
def running(trace: Path) -> Iterator[Callable[[], Measured]]:
    """The handed-out script runs in a process of its own. Yields a function that waits for its end."""
    _warm_up()
    shutil.rmtree(trace, ignore_errors=True)
    ours, theirs = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_before, args=(trace, theirs))
    process.start()
    theirs.close()

    def result() -> Measured:
        while not ours.poll(LOOK):
            beat("the script as it was handed out")
        return Measured(trace, *ours.recv())

    try:
        yield result
    finally:
        _end(process)


def _end(process: Any) -> None:
    """End it and its children, the workers of its loader: it may be in the middle of an epoch."""
    with contextlib.suppress(psutil.Error):  # it has ended by itself
        for each in psutil.Process(process.pid).children(recursive=True):
            each.kill()
    process.kill()
    process.join()


def _warm_up() -> None:
    """What happens once in a process, such as imports, is in neither time: both are forked, or go on, from here."""
    torch.set_num_threads(1)
    beat("importing")
    with tempfile.TemporaryDirectory(prefix="recordings-") as name, tracing.record(Path(name, "trace")), everything():
        list(torch.utils.data.DataLoader(range(2), num_workers=1))  # type: ignore[arg-type]
    size = given.BATCH_SIZE
    labels = torch.zeros(size, dtype=torch.int64)
    given.step(labels, torch.zeros(size, given.CHANNELS * given.LENGTH), labels)


def _before(trace: Path, connection: Any) -> None:
    given.EPOCHS = EPOCHS_BEFORE
    with tempfile.TemporaryDirectory(prefix="recordings-") as name, tracing.record(trace), everything():
        given.make_files(Path(name))
        begin = time.perf_counter()
        given.train(Path(name))
        seconds = time.perf_counter() - begin
    connection.send((seconds, EPOCHS_BEFORE * given.RECORDINGS))


def measured(answer: Answer) -> tuple[Measured, Steps]:
    """Run the answer's train(), here. Whatever it raises comes through."""
    after = Measured(answer.path.with_suffix(".trace"))
    with tempfile.TemporaryDirectory(prefix="recordings-") as name:
        folder = Path(name, "files")
        folder.mkdir()
        given.make_files(folder)
        steps = _after(answer, after, folder, Path(name, "reads"))
    after.samples = sum(len(ids) for ids, _, _ in steps.batches)
    return after, steps


def _after(answer: Answer, after: Measured, folder: Path, log: Path) -> Steps:
    steps = Steps()
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)  # workers inherit it; such a write is in one piece

    def read(folder: Path, name: str) -> Any:
        if number := re.fullmatch(r"(\d+)\.json", Path(name).name):
            os.write(file, array.array("q", [int(number[1])]).tobytes())
        return given.read(folder, name)

    def step(ids: Any, values: Any, labels: Any) -> float:
        beat(f"train(folder), step {len(steps.batches)}")
        # Copies: the answer may use the memory again.
        steps.batches.append(tuple(torch.as_tensor(each).clone() for each in (ids, values, labels)))  # type: ignore[arg-type]
        with steps.one():
            return given.step(ids, values, labels)

    put_in_place(answer.names, read=read, step=step)
    try:
        with warnings.catch_warnings(), tracing.record(after.trace), everything():
            warnings.filterwarnings("ignore", "This DataLoader will create")  # more workers than cores: meant
            beat("train(folder)")
            begin = time.perf_counter()
            answer.names["train"](folder)
            after.seconds = time.perf_counter() - begin
            taken = len(steps.batches)  # what a thread does that it has left behind does not count
    finally:
        os.close(file)
    return Steps(steps.batches[:taken], Counter(array.array("q", log.read_bytes()).tolist()), steps.at_once)
