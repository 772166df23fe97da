"""A trace for Perfetto: Chrome's JSON trace format. Open the file at ui.perfetto.dev, or in chrome://tracing.

    process, thread     a track each, with its name                                     ph M
    slice               what a thread did for a time: see tracing.views.export.slices   ph X
    flow                a batch's way, from slice to slice                              ph s, t ... t, f
    instant             a death, an error, an epoch, a step of the shutdown             ph i
    counter             how much is in a queue, or in the reorder buffer                ph C

Times are µs after the trace's first event, with their fraction. `args` name the events (positions in trace.events)
that a slice begins and ends with.

A viewer silently drops a flow event that is in no slice, and a flow whose parts differ in id, name or category. So
each is FLOW_AT ns after the beginning of a slice of its own track, where nothing else begins or ends.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from minidl.events import Kind, Queue
from tracing.trace.event_index import NEVER, Lane
from tracing.trace.event_index import Iterator as IndexedIterator
from tracing.trace.thread_activity import SHUTDOWN_STEPS
from tracing.trace.words import QUEUE_NAMES, REORDER_BUFFER
from tracing.views.export import open_for_writing
from tracing.views.export.slices import GUARD, LAST, STEP, Event, Slice, Track, events_of
from tracing.views.queue_moves import came_early, closing, fifo, stepped

if TYPE_CHECKING:
    from tracing.trace.trace import Trace

Json = dict[str, Any]

FLOW_AT = 2 * GUARD  # ns after the beginning of its slice
assert FLOW_AT + GUARD < STEP
START, STEP_ON, END = "s", "t", "f"
# The hops at which a thread has the batch: its flow passes through the slice of each.
WAY = (
    "index_put", "index_sending", "index_got", "fetch_begin", "result_put", "result_sending", "result_got",
    "pin_begin", "data_put", "data_got", "yielded",
)  # fmt: skip
_SHOWN = {
    *SHUTDOWN_STEPS, Kind.PIN_THREAD_END, Kind.DONE_SET, Kind.WORKER_END,
    Kind.EPOCH_BEGIN, Kind.EPOCH_END, Kind.STREAM_END, Kind.WORKER_EXHAUSTED, Kind.STORED, Kind.TASK_SKIPPED,
    Kind.ERROR_RAISED, Kind.WORKER_DIED, Kind.TASK_LOST, Kind.PARENT_DIED, Kind.FETCH_FAILED, Kind.PIN_FAILED,
    Kind.SEND_FAILED, Kind.HEALTH_CHECK, Kind.TIMED_OUT, Kind.NO_CAPACITY,
}  # fmt: skip
INSTANTS = {kind.value: kind.name.lower().replace("_", " ") for kind in Kind if kind in _SHOWN}
THREAD_IDS = 1 << 23  # above every pid; a process's first thread has its pid, as Linux does it


def write(trace: Trace, path: str | os.PathLike[str]) -> None:
    """Write `trace` for Perfetto into the file `path`, which is replaced; compressed if its name ends in `.gz`.

    The events are written one by one: a long trace needs little more memory than it has already.
    Raises OSError when the file cannot be written.
    """
    encode = json.JSONEncoder(separators=(",", ":")).encode
    with open_for_writing(path) as file:
        about = {"package": _package(trace), "events": len(trace), "clock": "time.monotonic_ns", "start": trace.start}
        file.write(f'{{"displayTimeUnit":"ms","otherData":{encode(about)},"traceEvents":[')
        separator = "\n"
        for record in records(trace):
            file.write(separator + encode(record))
            separator = ",\n"
        file.write("\n]}\n")


def records(trace: Trace) -> Iterator[Json]:
    """All trace events of the file."""
    yield from names(trace)
    flow = flows(trace)
    actors = trace.events["actor"]
    order = np.argsort(actors, kind="stable")
    bounds = np.searchsorted(actors[order], np.arange(len(trace.actors) + 1))
    for actor, track in enumerate(_tracks(trace)):
        positions = order[bounds[actor] : bounds[actor + 1]]
        yield from thread_records(trace, actor, track, events_of(trace, positions, flow))
    yield from counters(trace)


# ---- processes and threads


def names(trace: Trace) -> Iterator[Json]:
    """The names of processes and threads, and the order of their tracks: main, its workers as they began."""
    several = len({each.loader for each in trace.loaders}) > 1
    queues = {Queue.INDEX: "{} {}", Queue.RESULT: "{}"}
    seen: set[int] = set()
    for number, (actor, track) in enumerate(zip(trace.actors, _tracks(trace), strict=True)):
        if actor.pid not in seen and actor.role in ("main", "worker"):
            seen.add(actor.pid)
            of = f" of loader {actor.loader}" if several and actor.role == "worker" else ""
            name = f"worker {actor.worker}{of}" if actor.role == "worker" else "main"
            yield {"ph": "M", "name": "process_name", "pid": actor.pid, "tid": 0, "args": {"name": name}}
            rank = {"sort_index": 0 if actor.role == "main" else 1 + number}
            yield {"ph": "M", "name": "process_sort_index", "pid": actor.pid, "tid": 0, "args": rank}
        name = actor.thread or actor.role
        if actor.role == "feeder":
            name = f"feeder of {queues[Queue(actor.queue)].format(QUEUE_NAMES[Queue(actor.queue)], actor.worker)}"
        elif actor.role == "pin":
            name = "pin thread"
        yield {"ph": "M", "name": "thread_name", **track, "args": {"name": name}}
        yield {"ph": "M", "name": "thread_sort_index", **track, "args": {"sort_index": number}}


def _tracks(trace: Trace) -> list[Json]:
    """Of each actor: the ids of its process and its thread."""
    found: list[Json] = []
    seen: set[int] = set()
    for number, actor in enumerate(trace.actors):
        found.append({"pid": actor.pid, "tid": THREAD_IDS + number if actor.pid in seen else actor.pid})
        seen.add(actor.pid)
    return found


# ---- slices, flows and instants


def thread_records(trace: Trace, actor: int, track: Json, events: Iterable[Event]) -> Iterator[Json]:
    """What one thread did."""
    slices, latest = Track(), 0
    for event in events:
        for each in slices.take(event):
            yield from slice_records(trace, track, each)
        if event.kind in INSTANTS:
            args = _args(event) | _text(trace, event.k)
            name = INSTANTS[event.kind]
            yield {"ph": "i", "s": "t", "cat": "step", "name": name, **track, "ts": event.time / 1000, "args": args}
        latest = event.time
    for each in slices.finish(max(_end_of(trace, actor), latest + LAST)):
        yield from slice_records(trace, track, each)


def slice_records(trace: Trace, track: Json, each: Slice) -> Iterator[Json]:
    """A slice, and the part of a flow that passes through it."""
    first, last = each.first, each.last
    args = _args(first)
    args["until"] = "the end of the trace" if last is None else last.k
    if first.kind in (Kind.FETCH_BEGIN, Kind.COLLATE_BEGIN, Kind.PIN_BEGIN) and last is not None:
        args["cpu_ms"] = (last.value - first.value) / 1e6
    if first.kind == Kind.KEYS_BEGIN and last is not None:
        args |= _text(trace, last.k, "keys")
    elif first.kind == Kind.FETCH_BEGIN:
        args |= _keys(trace, first)
    # A thread that reads a pipe learns only then which batch it has, and of which epoch: perhaps an abandoned one.
    through = last if first.kind == Kind.ARRIVED and last is not None and last.kind == Kind.GOT else first
    args["epoch"] = through.epoch
    ids = {"cat": "loader", **track}
    ts, dur = first.time / 1000, (each.end - first.time) / 1000
    yield {"ph": "X", "name": each.name, **ids, "ts": ts, "dur": dur, "args": args}
    if through.flow:
        ph = END if through.kind == Kind.YIELDED else STEP_ON
        if through.kind == Kind.PUT and through.queue == Queue.INDEX:
            ph = START
        ts = (first.time + FLOW_AT) / 1000
        binding = {"bp": "e"} if ph == END else {}
        yield {"ph": ph, "name": "batch", **ids, "cat": "batch", "id": through.flow, "ts": ts, **binding}


def _args(event: Event) -> Json:
    """The fields of an event; `event` is its position."""
    args: Json = {"event": event.k, "loader": event.loader, "epoch": event.epoch}
    if event.task >= 0:
        args["task"] = event.task
    if event.worker >= 0:
        args["worker"] = event.worker
    if event.queue:
        args["queue"] = QUEUE_NAMES[Queue(event.queue)]
    return args


def _text(trace: Trace, position: int, name: str = "text") -> Json:
    text = trace.text(position)
    return {} if text is None else {name: text}


def _keys(trace: Trace, event: Event) -> Json:
    """What the sampler drew for the task that an event concerns."""
    epoch = trace.index.epochs[event.loader << 32 | event.epoch]
    drawn = int(epoch.hops("keys_drawn")[0][event.task]) if 0 <= event.task < epoch.length else NEVER
    return {} if drawn == NEVER else _text(trace, drawn, "keys")


def _end_of(trace: Trace, actor: int) -> int:
    """Until when a thread may have continued what it did last (ns after the start): the end of the trace, or of its
    process where main has noticed that."""
    role, iterator, queue, worker = trace.index.roles[actor]
    ends = [trace.duration]
    if role == Lane.WORKER or (role == Lane.FEEDER and queue == Queue.RESULT):
        for kind in (Kind.WORKER_DIED, Kind.WORKER_JOINED):
            positions = trace.index.group(iterator, kind, Queue.NONE, worker).array
            ends += (trace.events["time"][positions] - trace.start).tolist()
    return min(ends)


def flows(trace: Trace) -> np.ndarray:
    """The number of the flow that passes through each event, 0 for none: (n,) int64. A flow is a task of an epoch of a
    loader; it begins where the task is put on an index_queue, so that without workers there is none."""
    flow = np.zeros(len(trace), np.int64)
    number = 1
    for epoch in trace.index.epochs.values():
        hops = np.stack(epoch.hops(*WAY))
        happened = (hops != NEVER) & (hops[0] != NEVER)
        ids = np.broadcast_to(number + np.arange(epoch.length), hops.shape)
        flow[hops[happened]] = ids[happened]
        number += epoch.length
    return flow


# ---- counters


def counters(trace: Trace) -> Iterator[Json]:
    """How much is in each queue and in the reorder buffer, at every change."""
    several = len({each.loader for each in trace.loaders}) > 1
    busy: dict[tuple[int, int], int] = {}  # (loader, row) -> the last event of the iterator that is counted there
    for number, iterator in enumerate(trace.index.iterators):
        # One loader's iterators may run at the same time (`zip(loader, loader)`): each row of tracks has one of them.
        row = next(row for row in range(number + 1) if busy.get((iterator.loader, row), -1) < iterator.first())
        busy[iterator.loader, row] = iterator.last()
        after = (f" of loader {iterator.loader}" if several else "") + (f" ({row + 1})" if row else "")
        main = trace.index.lane(number, Lane.MAIN).array
        if len(main) == 0 or iterator.num_workers == 0:
            continue
        pid = trace.actors[int(trace.events["actor"][main[0]])].pid
        for name, (enter, leave) in _contents(trace, iterator).items():
            for time, depth in _depths(trace, iterator, enter, leave):
                args = {"messages" if name != REORDER_BUFFER else "batches": depth}
                yield {"ph": "C", "name": name + after, "pid": pid, "tid": pid, "ts": time / 1000, "args": args}


def _contents(trace: Trace, iterator: IndexedIterator) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """name -> the events at which something entered, and those at which it left."""
    workers = range(iterator.num_workers)
    queues = [(f"{QUEUE_NAMES[queue]} {w}", queue, w) for queue in (Queue.INDEX, Queue.RESULT) for w in workers]
    queues.append((QUEUE_NAMES[Queue.DATA], Queue.DATA, -1))
    found = {name: fifo(trace, iterator, queue, worker) for name, queue, worker in queues}
    return {name: each for name, each in found.items() if len(each[0])} | {REORDER_BUFFER: came_early(trace, iterator)}


def _depths(trace: Trace, iterator: IndexedIterator, enter: np.ndarray, leave: np.ndarray) -> Iterator[tuple[int, int]]:
    """(ns after the start, depth) at every change; 0 from the end of the shutdown on."""
    positions, depths = stepped(enter, leave[leave != NEVER])
    closed = closing(trace, iterator)
    if closed >= 0 and len(depths) and depths[-1]:
        positions, depths = np.append(positions, closed), np.append(depths, 0)
    times = trace.events["time"][positions] - trace.start
    yield from zip(times.tolist(), depths.tolist(), strict=True)


def _package(trace: Trace) -> str:
    """The package whose loader was traced."""
    return next((each.config["package"] for each in trace.loaders if "package" in each.config), "unknown")
