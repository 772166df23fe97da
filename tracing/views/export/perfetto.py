"""A trace for Perfetto: Chrome's JSON trace format. Open the file at ui.perfetto.dev, or in chrome://tracing.

    process, thread     a track each, with its name                                     ph M
    slice               what a thread did for a time: see tracing.views.export.slices   ph X
    flow                a batch's path, from slice to slice                             ph s, t ... t, f
    instant             a death, an error, an epoch, a step of the shutdown             ph i
    counter             how much is in a queue, or in the reorder buffer                ph C

Times are µs after the trace's first event, with their fraction. `args` name the events (positions in trace.events)
that a slice begins and ends with.

A viewer silently drops a flow event that is in no slice, and a flow whose parts differ in id, name or category. So
each is FLOW_AT ns after the beginning of a slice of its own track, where nothing else begins or ends.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from minidl.events import NO_TASK, Kind, Queue
from tracing.trace.event_index import NEVER, Lane
from tracing.trace.event_index import Iterator as IndexedIterator
from tracing.trace.event_words import thread_name
from tracing.trace.kinds import MARKED, TRAITS
from tracing.trace.state_after_event import label
from tracing.trace.trace import Trace
from tracing.trace.words import QUEUE_NAMES, REORDER_BUFFER
from tracing.views.export import open_for_writing
from tracing.views.export.slices import GUARD, LAST, events_of, slices_of, times_of
from tracing.views.queue_contents import Stays, queue_stays, reorder_stays

AT_ONCE = 1000  # records that are written together
FLOW_AT = 2 * GUARD  # ns after the beginning of its slice; less than a STEP
START, STEP_ON, END = "s", "t", "f"
# The hops at which a thread has the batch: its flow passes through the slice of each.
WAY = (
    "index_put", "index_sending", "index_got", "fetch_begin", "result_put", "result_sending", "result_got",
    "pin_begin", "data_put", "data_got", "yielded",
)  # fmt: skip
# What a timeline marks, and what goes unnoticed there.
_SHOWN = MARKED | {
    Kind.STORED, Kind.TASK_SKIPPED, Kind.TASK_LOST, Kind.WORKER_EXHAUSTED, Kind.SEND_FAILED,
    Kind.TIMED_OUT, Kind.NO_CAPACITY,
}  # fmt: skip
INSTANTS = {kind.value: kind.name.lower().replace("_", " ") for kind in Kind if kind in _SHOWN}
WORK = {int(kind) for kind in (Kind.FETCH_BEGIN, Kind.COLLATE_BEGIN, Kind.PIN_BEGIN)}
_NAMES = {kind: each.slice.partition("{")[0] for kind, each in TRAITS.items()}  # "fetch ": a number follows
_OF_WORKER = np.isin(np.arange(256), [kind for kind, each in TRAITS.items() if "{worker}" in each.slice])
THREAD_IDS = 1 << 23  # above every pid; a process's first thread has its pid, as on Linux


def write(trace: Trace, path: str | os.PathLike[str]) -> None:
    """Write `trace` for Perfetto into the file `path`, which is replaced; compressed if its name ends in `.gz`.

    The events are written a few at a time: a long trace needs little more memory than it has already.
    Raises OSError when the file cannot be written.
    """
    with open_for_writing(path) as file:
        about = {"events": len(trace), "clock": "time.monotonic_ns", "start": trace.start}
        file.write(f'{{"displayTimeUnit":"ms","otherData":{_json(about)},"traceEvents":[\n')
        found, separator = records(trace), ""
        while some := list(itertools.islice(found, AT_ONCE)):
            file.write(separator + ",\n".join(some))
            separator = ",\n"
        file.write("\n]}\n")


def records(trace: Trace) -> Iterator[str]:
    """All trace events of the file, in JSON. The numerous ones are made as text directly: by way of dicts they would
    take twice as long."""
    yield from map(_json, names(trace))
    flow = flows(trace)
    actors = trace.events["actor"]
    order = np.argsort(actors, kind="stable")
    bounds = np.searchsorted(actors[order], np.arange(len(trace.actors) + 1))
    for actor, track in enumerate(_tracks(trace)):
        positions = order[bounds[actor] : bounds[actor + 1]]
        thread = Thread(_json(track)[1:-1], positions, times_of(trace, positions))
        yield from instants(trace, thread)
        yield from slices(trace, thread, max(_end_of(trace, actor), int(thread.times[-1]) + LAST), flow)
    yield from counters(trace)


_json = json.JSONEncoder(separators=(",", ":")).encode


# ---- processes and threads


def names(trace: Trace) -> Iterator[dict[str, Any]]:
    """The names of processes and threads, and the order of their tracks: main, its workers as they began."""
    several = len({each.loader for each in trace.loaders}) > 1
    seen: set[int] = set()
    for number, (actor, track) in enumerate(zip(trace.actors, _tracks(trace), strict=True)):
        if actor.pid not in seen and actor.role in ("main", "worker"):
            seen.add(actor.pid)
            of = f" of loader {actor.loader}" if several and actor.role == "worker" else ""
            name = thread_name(actor) + of
            yield {"ph": "M", "name": "process_name", "pid": actor.pid, "tid": 0, "args": {"name": name}}
            rank = {"sort_index": 0 if actor.role == "main" else 1 + number}
            yield {"ph": "M", "name": "process_sort_index", "pid": actor.pid, "tid": 0, "args": rank}
        yield {"ph": "M", "name": "thread_name", **track, "args": {"name": thread_name(actor)}}
        yield {"ph": "M", "name": "thread_sort_index", **track, "args": {"sort_index": number}}


def _tracks(trace: Trace) -> list[dict[str, int]]:
    """Each actor's ids: of its process and its thread."""
    found: list[dict[str, int]] = []
    seen: set[int] = set()
    for number, actor in enumerate(trace.actors):
        found.append({"pid": actor.pid, "tid": THREAD_IDS + number if actor.pid in seen else actor.pid})
        seen.add(actor.pid)
    return found


# ---- slices, flows and instants


class Thread(NamedTuple):
    """A thread, and its events."""

    ids: str  # '"pid":4711,"tid":4711'
    positions: np.ndarray  # of its events, in order
    times: np.ndarray  # ... and when they are here: see tracing.views.export.slices


def instants(trace: Trace, thread: Thread) -> Iterator[str]:
    """Deaths, errors, epochs, steps."""
    kinds = trace.events["kind"][thread.positions]
    for number in np.flatnonzero(np.isin(kinds, list(INSTANTS))).tolist():
        position = int(thread.positions[number])
        _, loader, epoch, _, _, task, _, worker, queue, kind = trace.events[position].tolist()
        text = trace.text(position)
        args = _args(position, loader, epoch, task, worker, queue) + ("" if text is None else f',"text":{_json(text)}')
        [ts] = _us(thread.times[number : number + 1])
        yield f'{{"ph":"i","s":"t","cat":"step","name":"{INSTANTS[kind]}",{thread.ids},"ts":{ts},"args":{{{args}}}}}'


def slices(trace: Trace, thread: Thread, until: int, flow: np.ndarray) -> Iterator[str]:
    """What the thread did, and the parts of flows that pass through that. What it did last ends at `until`."""
    found = slices_of(events_of(trace, thread.positions, thread.times), until)
    while some := list(itertools.islice(found, AT_ONCE)):
        first, last, end = np.array(some).T
        # A thread that reads a pipe learns only then which batch it has, and of which epoch: perhaps an abandoned one.
        at, until_at = thread.positions[first], np.where(last < 0, -1, thread.positions[last])
        reads = trace.events["kind"][at] == Kind.ARRIVED
        got = reads & (last >= 0) & (trace.events["kind"][until_at] == Kind.GOT)
        through = np.where(got, until_at, at)
        tasks = np.where(reads & (last < 0), NO_TASK, trace.events["task"][np.where(reads, until_at, at)])
        time = thread.times[first]
        yield from slice_records(trace, thread.ids, (at, until_at, through), tasks, (time, end - time))
        passes = flow[through] > 0
        yield from flow_records(trace, thread.ids, through[passes], flow, time[passes] + FLOW_AT)


def slice_records(
    trace: Trace, ids: str, positions: tuple[np.ndarray, ...], tasks: np.ndarray, times: tuple[np.ndarray, ...]
) -> Iterator[str]:
    """Slices of one thread.

    ids: those of its track
    positions: of the events that begin them; that end them, -1 for the end of the trace; that know the batch's epoch
    tasks: what they are about
    times: when they begin, and how long they last (ns)
    """
    at, until, through = positions
    begun, cpu = trace.events[at], trace.events["value"][until] - trace.events["value"][at]
    of = np.where(_OF_WORKER[begun["kind"]], begun["worker"], tasks)
    columns = (
        at, until, cpu / 1e6, of, trace.events["epoch"][through],
        *(begun[name] for name in ("kind", "loader", "task", "worker", "queue")),
    )  # fmt: skip
    for ts, dur, k, stop, cpu_ms, number, epoch, kind, loader, task, worker, queue in zip(
        *map(_us, times), *(each.tolist() for each in columns), strict=True
    ):
        name = _NAMES[kind]
        if name[-1] == " ":
            name += str(label(number))
        more = f',"cpu_ms":{cpu_ms}' if kind in WORK and stop >= 0 else ""
        ends = stop if stop >= 0 else '"the end of the trace"'
        yield (
            f'{{"ph":"X","name":"{name}","cat":"loader",{ids},"ts":{ts},"dur":{dur},'
            f'"args":{{{_args(k, loader, epoch, task, worker, queue)},"until":{ends}{more}}}}}'
        )


def flow_records(trace: Trace, ids: str, positions: np.ndarray, flow: np.ndarray, times: np.ndarray) -> Iterator[str]:
    """The parts of flows that pass through the events at these positions, at these times (ns)."""
    kinds, queues = trace.events["kind"][positions], trace.events["queue"][positions]
    begins = (kinds == Kind.PUT) & (queues == Queue.INDEX)
    phases = np.where(begins, START, np.where(kinds == Kind.YIELDED, END, STEP_ON))
    for ph, number, ts in zip(phases.tolist(), flow[positions].tolist(), _us(times), strict=True):
        binding = ',"bp":"e"' if ph == END else ""
        yield f'{{"ph":"{ph}","name":"batch","cat":"batch",{ids},"id":{number},"ts":{ts}{binding}}}'


def _args(k: int, loader: int, epoch: int, task: int, worker: int, queue: int) -> str:
    """The fields of an event; `event` is its position."""
    args = f'"event":{k},"loader":{loader},"epoch":{epoch}'
    if task >= 0:
        args += f',"task":{task}'
    if worker >= 0:
        args += f',"worker":{worker}'
    return f'{args},"queue":"{_QUEUES[queue]}"' if queue else args


def _us(times: np.ndarray) -> list[str]:
    """Times (ns) in µs. The text of a float would take five times as long to make, and most of the export's time."""
    whole, rest = np.divmod(times, 1000)
    return [f"{us}{_FRACTIONS[ns]}" for us, ns in zip(whole.tolist(), rest.tolist(), strict=True)]


_FRACTIONS = [f".{ns:03}" for ns in range(1000)]
_QUEUES = {int(queue): name for queue, name in QUEUE_NAMES.items()}


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


def counters(trace: Trace) -> Iterator[str]:
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
        for each in _contents(trace, iterator):
            what = "messages" if each.name != REORDER_BUFFER else "batches"
            head = f'{{"ph":"C","name":"{each.name}{after}","pid":{pid},"tid":{pid},"ts":'
            times, depths = each.depth()
            for ts, depth in zip(_us(times - trace.start), depths.tolist(), strict=True):
                yield f'{head}{ts},"args":{{"{what}":{depth}}}}}'


def _contents(trace: Trace, iterator: IndexedIterator) -> list[Stays]:
    """Of each queue that was used, and of the reorder buffer."""
    workers = range(iterator.num_workers)
    queues = [(f"{QUEUE_NAMES[queue]} {w}", queue, w) for queue in (Queue.INDEX, Queue.RESULT) for w in workers]
    queues.append((QUEUE_NAMES[Queue.DATA], Queue.DATA, -1))
    found = [queue_stays(trace, [iterator], queue, [worker], name) for name, queue, worker in queues]
    return [*(each for each in found if len(each.enter)), reorder_stays(trace, [iterator])]
