"""Loads by torch's own loader, and the same by minidl: what must be equal in their traces.

Legend
    Config     one configuration (tests.minidl.observing)
    emitted    what main emitted, in order, without what depends on timing: [("DISPATCHED", 0, 3, 1), ...]
"""

from __future__ import annotations

import itertools
import multiprocessing
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import tracing
from minidl.events import Kind, Queue
from tests.minidl.dying import die
from tests.minidl.observing import Config, build, comparable, seed_all
from tests.minidl.programs import TORCH

# The forkserver imports these once, instead of every worker. It must be set before the first one starts.
multiprocessing.get_context("forkserver").set_forkserver_preload(["torch", "numpy", "minidl"])

# In main, of both loaders, always in the same order, unless a worker's stream ends, or batches come in any order: then
# a task may be any worker's.
KEYS = [Kind.KEYS_BEGIN, Kind.KEYS_DRAWN, Kind.SAMPLER_END]
TASKS = [*KEYS, Kind.DISPATCHED, Kind.PUT]
# So are these without workers.
WORK = [Kind.FETCH_BEGIN, Kind.FETCH_END, Kind.COLLATE_BEGIN, Kind.COLLATE_END, Kind.FETCH_FAILED]
# When these come depends on what is ready, or only minidl emits them.
BY_CHANCE = [
    Kind.SEND_BEGIN, Kind.SENT, Kind.WAIT, Kind.ARRIVED, Kind.GOT, Kind.CLOSED, Kind.NO_CAPACITY, Kind.RECEIVED,
    Kind.STORED, Kind.RELEASED, Kind.TASK_SKIPPED, Kind.WORKER_EXHAUSTED, Kind.RESUME_ACKNOWLEDGED, Kind.SLOT_GRANTED,
    Kind.SLOT_LENT, Kind.SLOT_FREE,
]  # fmt: skip
# All others, a new kind too, come in the same order whatever happens.
STEPS = [kind for kind in Kind if kind not in {*TASKS, *WORK, *BY_CHANCE}]
# What their `value` is: a process, a moment's luck, time.
VALUE_DIFFERS = [Kind.WORKER_STARTED, Kind.DISPATCHED, Kind.JOIN_BEGIN, *WORK]


def load(config: Config, loaders: ModuleType, directory: Path) -> tuple[tracing.Trace, list[Any]]:
    """Record a load: its trace, and the batches of each epoch."""
    seed_all()
    epochs = []
    with tracing.record(directory):
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


# Batches, single samples and a batch sampler, with workers and without, or with one and with several; workers that
# stay, and that do not, each with epochs that are left; each number of tasks ahead. (The batches of every combination,
# and of every sampler: tests/minidl/test_parity.py.)
STAY = {"persistent_workers": True}
GRID = [
    Config("noise", "by 4", 0, stop_after=1),
    Config("tensors", "by 4", 2, epochs=3, options={**STAY, "prefetch_factor": 3}),
    Config("whole", "shuffled, drop", 1, stop_after=1, epochs=3, options={**STAY, "in_order": False}),
    Config("noise", "shuffled, drop", 3, options={"prefetch_factor": 1}),
    Config("noise", "unbatched", 1, epochs=3, options=STAY),
    Config("tensors", "unbatched", 3, stop_after=2),
    Config("whole", "batch sampler", 0, stop_after=2),
    Config("noise", "batch sampler", 2, stop_after=1, epochs=3, options=STAY),
    Config("whole", "replacement", 3, epochs=3, options={**STAY, "prefetch_factor": 1}),
    Config("tensors", "by 4", 2, any_order=True, options={"in_order": False}),
    Config("tensors", "by 4", 3, any_order=True, options={"in_order": False, **STAY}),
    Config("shared", "by 4", 0),
    Config("noisy stream", "by 4", 2),
    Config("sized", "by 4", 3),
    Config("noisy stream", "unbatched", 0),
    Config("sized", "unbatched", 1, options=STAY),
    Config("shared", "unbatched", 3, options=STAY),
    Config("stream", "by 4", 0, stop_after=1),
    Config("stream", "by 4", 1, stop_after=1),
    Config("noise", "shuffled", 1, options={"multiprocessing_context": "spawn", **STAY}),
    Config("noise", "shuffled", 1, options={"multiprocessing_context": "forkserver", **STAY}),
]


def dies_later(directory: Path) -> None:
    """Kills the worker once 4 batches were yielded: nothing is on its way then. (torch's workers share a lock on
    their queue: one that dies while sending leaves it locked forever, and the others' results never arrive.)"""
    trace = tracing.load(directory)
    while (trace.events["kind"] == Kind.YIELDED).sum() < 4:
        trace.refresh()
    die("SIGKILL")


def fail_to_start(worker_id: int) -> None:
    raise ValueError(f"worker {worker_id} does not start")
