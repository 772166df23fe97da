"""Loads by torch's own loader, attached, and the same by minidl: what must be equal in their traces.

Legend
    Config     one configuration (tests.minidl.observing)
    emitted    what main emitted, in order, without what depends on timing: [("DISPATCHED", 0, 3, 1), ...]
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch.utils.data

import tracing
from minidl.events import Kind, Queue
from tests.minidl.observing import Config, build, comparable, seed_all
from tests.minidl.programs import TORCH
from tracing.recording.torch_loader.attach import attach

# The forkserver imports these once, instead of every worker. It must be set before the first one starts.
multiprocessing.get_context("forkserver").set_forkserver_preload(["torch", "numpy", "minidl"])

ATTACHED: Any = SimpleNamespace(DataLoader=lambda *args, **options: attach(TORCH.DataLoader(*args, **options)))

# In main, and always in the same order: ...
STEPS = [
    Kind.LOADER, Kind.WORKER_STARTING, Kind.WORKER_STARTED, Kind.EPOCH_BEGIN, Kind.PRIMED, Kind.ASKED, Kind.YIELDED,
    Kind.EPOCH_END, Kind.ERROR_RAISED, Kind.SHUTDOWN_BEGIN, Kind.DONE_SET, Kind.JOIN_BEGIN, Kind.WORKER_JOINED,
    Kind.SHUTDOWN_END,
]  # fmt: skip
# ... these too, unless a worker's stream ends, or batches come in any order: then a task may be any worker's
KEYS = [Kind.KEYS_BEGIN, Kind.KEYS_DRAWN, Kind.SAMPLER_END]
TASKS = [*KEYS, Kind.DISPATCHED, Kind.PUT]
# ... and so are these without workers.
WORK = [Kind.FETCH_BEGIN, Kind.FETCH_END, Kind.COLLATE_BEGIN, Kind.COLLATE_END, Kind.FETCH_FAILED]
# What their `value` is: a process, a moment's luck, time.
VALUE_DIFFERS = [Kind.WORKER_STARTED, Kind.DISPATCHED, Kind.JOIN_BEGIN, *WORK]


def load(config: Config, loaders: ModuleType, directory: Path) -> tuple[tracing.Trace, list[Any]]:
    """Record a load: its trace, and the batches of each epoch."""
    seed_all()
    epochs = []
    with warnings.catch_warnings(), tracing.record(directory):
        warnings.simplefilter("ignore")  # more workers than cores
        loader = build(config, loaders, TORCH, None)
        for epoch in range(config.epochs):
            last = epoch == config.epochs - 1
            epochs.append(comparable(list(itertools.islice(loader, None if last else config.stop_after))))
        if loader._iterator is not None:
            loader._iterator._shutdown_workers()
    return tracing.load(directory, strict=True), epochs


def emitted(trace: tracing.Trace, kinds: list[Kind], tasks: bool = True) -> list[tuple[Any, ...]]:
    """What main emitted of these kinds."""
    main = [actor.role == "main" for actor in trace.actors]
    found = []
    for position, event in enumerate(trace.events):
        kind = Kind(event["kind"])
        if kind in kinds and main[event["actor"]]:
            value: Any = None if kind in VALUE_DIFFERS else int(event["value"])
            if kind == Kind.EPOCH_BEGIN and value >= 0:
                value &= 0xFFFFFFFF  # the epoch before: the loader has another number
            fields = [int(event[name]) for name in ("epoch", "queue", "worker")] + [int(event["task"])] * tasks
            found.append((kind.name, *fields, value, text_of(trace, position)))
    return found


def text_of(trace: tracing.Trace, position: int) -> Any:
    text = trace.text(position)
    if trace.events["kind"][position] == Kind.COLLATE_END:
        return None  # what a batch is made of is noted of torch's only
    if isinstance(text, dict):
        del text["package"]  # what differs between the two, and
        text.pop("loader", None)  # only torch's is subclassed
        text.pop("transport", None)  # only minidl has a choice
        text["sampler"] = text["sampler"].lstrip("_")  # torch hides its endless one
    return text


def results(trace: tracing.Trace) -> dict[int, int]:
    """How many results the workers put in each epoch."""
    puts = trace.events[(trace.events["kind"] == Kind.PUT) & (trace.events["queue"] == Queue.RESULT)]
    return Counter(puts["epoch"].tolist())


def is_ordered(config: Config) -> bool:
    """Whether it is certain which worker does which task."""
    stream = config.dataset in ("stream", "shared", "noisy stream", "sized")
    return config.workers <= 1 or not (stream or config.options.get("in_order") is False)


# ---- the grid


def grid() -> Iterator[Config]:
    yield from map_style()
    yield from streams()
    yield from other_starts()


MAPS = ["noise", "tensors", "whole"]
STREAMS = ["shared", "noisy stream", "sized"]
SAMPLINGS = ["by 4", "shuffled, drop", "weighted", "unbatched", "batch sampler", "replacement"]


def map_style() -> Iterator[Config]:
    """Each sampling with each number of workers, and in turn each of their options and each dataset."""
    for (place, sampling), workers in itertools.product(enumerate(SAMPLINGS), range(4)):
        turn = place + workers  # so that num_workers and the other options do not go in step
        options: dict[str, Any] = {}
        if workers:
            options = {"prefetch_factor": 1 + turn % 3, "persistent_workers": turn % 2 == 0}
        if workers == 1 and turn % 4 == 0:
            options["in_order"] = False
        epochs = 3 if options.get("persistent_workers") else 1 + turn % 2
        dataset, stop_after = MAPS[(turn + 2) % 3], (None, 1, 2)[turn % 3]
        yield Config(dataset, sampling, workers, stop_after=stop_after, epochs=epochs, options=options)
    for workers in 2, 3:
        options = {"in_order": False, "persistent_workers": workers == 3}
        yield Config("tensors", "by 4", workers, any_order=True, options=options)


def streams() -> Iterator[Config]:
    for sampling, workers in itertools.product(["by 4", "unbatched"], range(4)):
        options = {"persistent_workers": sampling == "unbatched"} if workers else {}
        yield Config(STREAMS[(workers + 2) % 3], sampling, workers, epochs=2, options=options)
    for workers in 0, 1:
        yield Config("stream", "by 4", workers, stop_after=1)


def other_starts() -> Iterator[Config]:
    for start in "spawn", "forkserver":
        options = {"multiprocessing_context": start, "persistent_workers": True}
        yield Config("noise", "shuffled", 1, options=options)


GRID = list(grid())


class Dying(torch.utils.data.Dataset):
    """Key 8 kills the worker once 4 batches were yielded: nothing is on its way then. (torch's workers share a lock on
    their queue: one that dies while sending leaves it locked forever, and the others' results never arrive.)"""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def __len__(self) -> int:
        return 20

    def __getitem__(self, key: int) -> int:
        if key == 8:
            trace = tracing.load(self.directory)
            while (trace.events["kind"] == Kind.YIELDED).sum() < 4:
                trace.refresh()
            os.kill(os.getpid(), signal.SIGKILL)
        return key


class Unpicklable(torch.utils.data.Dataset):
    """Key 3 becomes something that cannot be sent to another process."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, key: int) -> Any:
        return (lambda: key) if key == 3 else key


def fail_to_start(worker_id: int) -> None:
    raise ValueError(f"worker {worker_id} does not start")
