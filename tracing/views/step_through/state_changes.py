"""The states of a trace, one after the other, as small as a page needs them: what each event changes.

The page replays nothing. `trace.state(k)` is taken apart here into slots with plain values; the page sets the slots
that an event changed, undoes that when it steps back, and shows what is in them.

Legend
    slot      "0 worker 1"                      a part of the state: the iterator's number, then what it is
    value     ["fetching", 7, 31033, null, 3]   what is in it: anything that JSON can hold; equal ones are stored once
    patch     [4, 17, 9, 2]                     slot 4 becomes value 17, slot 9 value 2
    NOW       -1                                instead of a value: the time of the event itself
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from minidl.events import Kind
from tracing.trace.state import LoaderState, MainStatus, QueueState, State
from tracing.trace.trace import Trace

NOW = -1
GONE = None  # a task that is no longer in task_info


class StateChanges:
    """The first patch makes the first state, each further one the next."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self._now: dict[str, Any] = {}  # slot -> what is in it after the last patch
        self._slots: dict[str, int] = {}
        self._values: dict[str, int] = {}  # as JSON
        self._patches: list[list[int]] = []

    def add(self, state: State) -> None:
        patch: list[int] = []
        for name, value in self._changes(state):
            self._now[name] = value
            slot = self._slots.setdefault(name, len(self._slots))
            if name.endswith(" since") and value == state.time - self.trace.start:
                patch += slot, NOW
            else:
                patch += slot, self._values.setdefault(json.dumps(value, ensure_ascii=False), len(self._values))
        self._patches.append(patch)

    def as_json(self) -> dict[str, Any]:
        values = [json.loads(value) for value in self._values]
        return {"slots": list(self._slots), "values": values, "patches": self._patches}

    def _changes(self, state: State) -> Iterator[tuple[str, Any]]:
        """What differs from the last state. The slots of an iterator that is no longer shown stay as they were."""
        shown = [loader.iterator for loader in state.loaders]
        if self._now.get("loaders") != shown:
            yield "loaders", shown
        for loader in state.loaders:
            slots = dict(_slots_of(loader, self.trace, state.k))
            for name, value in slots.items():
                if name not in self._now or self._now[name] != value:
                    yield name, value
            tasks = f"{loader.iterator} task "
            for name, value in self._now.items():
                if value is not GONE and name not in slots and name.startswith(tasks):
                    yield name, GONE


def _slots_of(loader: LoaderState, trace: Trace, k: int) -> Iterator[tuple[str, Any]]:
    """Every field of a LoaderState. Times are in ns after the trace's first event, None if unknown."""
    of = loader.iterator

    def since(time: int) -> int | None:
        return time - trace.start if time else None

    yield f"{of} about", [loader.loader, loader.epoch, loader.num_workers, loader.alive]
    yield f"{of} counts", [loader.send_idx, loader.rcvd_idx, loader.tasks_outstanding, loader.yielded]
    for worker, index, result in zip(loader.workers, loader.index_queues, loader.result_queues, strict=True):
        name = f"{of} worker {worker.worker}"
        yield name, [worker.status.value, worker.task, worker.pid, worker.exit_code, worker.done]
        yield f"{name} since", since(worker.since)
        if worker.slots:
            yield f"{name} slots", [[slot.status.value, slot.task] for slot in worker.slots]
        yield f"{of} index {worker.worker}", _queue(index)
        yield f"{of} result {worker.worker}", _queue(result)
    yield f"{of} pin", [loader.pin_thread.status.value, loader.pin_thread.task]
    yield f"{of} pin since", since(loader.pin_thread.since)
    yield f"{of} data", _queue(loader.data_queue)
    yield f"{of} reorder", [loader.waits_for_task, *loader.reorder_buffer]
    for task, info in loader.task_info.items():
        yield f"{of} task {task}", [info.worker, info.status.value]
    main = loader.main
    yield f"{of} main", [main.status.value, main.waits_for, main.in_hand, main.actor, _trains_on(loader, trace, k)]
    yield f"{of} main since", since(main.since)
    yield f"{of} shutdown", loader.shutdown_step
    yield f"{of} error", loader.error
    yield f"{of} config", loader.config


def _queue(queue: QueueState) -> list[Any]:
    return [queue.buffer, queue.pipe, queue.pickling]


def _trains_on(loader: LoaderState, trace: Trace, k: int) -> int:
    """The batch that the training step has, -1 if none. (The loader has handed it over: it is not in its state.)"""
    if loader.main.status is not MainStatus.TRAINING:
        return -1
    at = trace.index.group(loader.iterator, Kind.YIELDED).last(k)
    handed_over = at >= 0 and trace.events["epoch"][at] == loader.epoch
    return int(trace.events["task"][at]) if handed_over else -1
