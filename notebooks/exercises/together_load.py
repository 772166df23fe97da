"""The load of `together`, in a process of its own: the demo's files, model and training, short, and recorded.

It is iterated by minidl's loader, with the learner's functions at work, or by torch's own. In both the workers are
forked, live for two epochs, and draw the same random numbers, so the batches must be the same. What it has to report it
sends as JSON: {"batches": 12} after each batch, {"done": ...} or {"failed": ...} at the end.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import mmap
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from notebooks.exercises.answers import Answer, NotAttempted, Refused, read
from notebooks.exercises.exercise import Exercise, exercise, exercises, find
from notebooks.exercises.keeper import keep
from notebooks.exercises.patching import replaced

FILES, BATCH_SIZE, WORKERS, EPOCHS = 200, 8, 2, 2
SECONDS = 60.0  # after which the training stops wherever it is
# Its functions are those of exercises 5 and 7 again, for loaders that are not in order: this one is.
NOT_HERE = ("08",)
MAIN, WORKER = 1, 2  # where a function has run


def rewritten() -> list[Exercise]:
    """The exercises that ask for functions of minidl."""
    return [each for each in exercises().values() if each.references]


@dataclass(frozen=True)
class Order:
    """What the process is to do."""

    answers: dict[str, str]  # {"07": path of the file}: those that are to be at work
    directory: Path  # of the trace
    torchs: bool  # torch's loader, in place of minidl's
    files: int = FILES  # an epoch has as many

    @property
    def printed(self) -> Path:
        """What it and its workers print."""
        return self.directory.with_suffix(".txt")

    @property
    def batches(self) -> int:
        return EPOCHS * -(-self.files // BATCH_SIZE)


def start(connection: Connection, order: Order) -> None:
    """The target of the process."""
    command = multiprocessing.parent_process()
    assert command is not None
    sys.exit(keep(command.sentinel, _work, connection, order) and 1)


def _work(connection: Connection, order: Order) -> None:
    def send(message: dict[str, Any]) -> None:
        connection.send_bytes(json.dumps(message).encode())

    with open(order.printed, "w", buffering=1) as out:  # the command has the terminal
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    multiprocessing.set_start_method("fork", force=True)  # the learner's functions are in the workers, too
    found, refused = _read(order.answers)
    ran = Ran([reference for each in rewritten() for reference in each.references])
    try:
        with contextlib.nullcontext() if order.torchs else _at_work(found, ran):
            digests = _recorded(order, lambda batches: send({"batches": batches}))
    except BaseException as error:  # SystemExit of the learner's code, too
        lines = {each.exercise.id: each.raised(error) for each in found if each.line_of(error)}
        send({"failed": lines or {"": f"raised {type(error).__name__}: {error}"}})
        return
    send({"done": {"digests": digests, "refused": refused, "ran": ran.places()}})


# ---- the learner's functions


def _read(answers: dict[str, str]) -> tuple[list[Answer], dict[str, str]]:
    """The answers that load; and for each other exercise, why its does not."""
    found, refused = [], {}
    for number, path in answers.items():
        try:
            found.append(read(exercise(number), Path(path)))
        except NotAttempted:
            refused[number] = "not written"
        except Refused as reason:
            refused[number] = reason.finding.mistake
    return found, refused


class Ran:
    """Which functions have run where: a byte each, in memory that the workers share."""

    def __init__(self, references: list[str]) -> None:
        self.references = list(dict.fromkeys(references))
        self.main = os.getpid()
        self.bytes = [mmap.mmap(-1, len(self.references)) for _ in (MAIN, WORKER)]

    def noted(self, reference: str, function: Callable[..., Any]) -> Callable[..., Any]:
        place = self.references.index(reference)

        @functools.wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            self.bytes[os.getpid() != self.main][place] = 1
            return function(*args, **options)

        return call

    def places(self) -> dict[str, int]:
        """Reference -> MAIN | WORKER, or 0."""
        main, workers = self.bytes
        return {each: MAIN * main[k] | WORKER * workers[k] for k, each in enumerate(self.references)}


@contextlib.contextmanager
def _at_work(answers: list[Answer], ran: Ran) -> Iterator[None]:
    """minidl with all these answers; it is noted which of its functions run, the learner's and its own."""
    own = {reference for each in answers for reference in each.functions}
    with contextlib.ExitStack() as stack:
        for each in answers:
            each.functions = {name: ran.noted(name, function) for name, function in each.functions.items()}
            for name, function in each.functions.items():
                if (own_name := name.rpartition(":")[2]) in each.names:  # they call each other by these names
                    each.names[own_name] = function
            stack.enter_context(each.at_work())
        for reference in ran.references:
            if reference not in own:
                owner, _, function = find(reference)
                stack.enter_context(replaced(function, ran.noted(reference, function), owner))
        yield


# ---- the load


def _recorded(order: Order, beat: Callable[[int], None]) -> list[str]:
    """Train, and record it. A digest of each batch, in order."""
    import tracing

    with tracing.record(order.directory):
        return _train(order, beat)  # the loader is gone when it returns: its end is recorded, too


def _train(order: Order, beat: Callable[[int], None]) -> list[str]:
    import torch
    import torch.utils.data

    import minidl
    import tracing
    from tracing.cli.demo_training import SourceFiles, Training, find_sources, train

    paths = find_sources()
    paths = paths[:: max(1, len(paths) // order.files)][: order.files]
    for path in paths:
        path.read_bytes()  # into the system's cache: neither loader finds it colder than the other
    data = SourceFiles(paths)
    package: Any = torch.utils.data if order.torchs else minidl
    sampler = package.DistributedSampler(data, num_replicas=1, rank=0)
    loader = package.DataLoader(
        data, BATCH_SIZE, sampler=sampler, num_workers=WORKERS, persistent_workers=True,
        pin_memory=hasattr(torch, "accelerator") and torch.accelerator.is_available(),
    )  # fmt: skip
    noted: Any = Noted(tracing.attach(loader) if order.torchs else loader, sampler)
    beat(0)
    for training in train(noted, Training(EPOCHS), SECONDS):
        beat(len(training.losses))
    digests: list[str] = noted.digests
    return digests


class Noted:
    """A loader, with a digest of each of its batches."""

    def __init__(self, loader: Any, sampler: Any) -> None:
        self.loader, self.sampler = loader, sampler
        self.epoch = 0
        self.digests: list[str] = []

    def __iter__(self) -> Iterator[Any]:
        self.sampler.set_epoch(self.epoch)
        self.epoch += 1
        for batch in self.loader:
            parts = [f"{name} {tuple(each.shape)} {each.dtype}".encode() + each.numpy().tobytes()
                     for name, each in batch.items()]  # fmt: skip
            self.digests.append(hashlib.sha256(b"".join(parts)).hexdigest()[:16])
            yield batch
