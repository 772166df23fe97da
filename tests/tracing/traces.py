"""Traces for the tests: written record by record, copied with an edit, or recorded from real loads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

import tracing
from minidl.events import Kind, Queue
from tracing.recording import file_format as fmt
from tracing.trace.event_index import HOPS


def write_file(directory: Path, pid: int, records: np.ndarray, used: int | None = None) -> Path:
    """An events file with these records (RECORD_DTYPE), as its process would have left it."""
    path = fmt.events_file(directory, pid, 0)
    counts = len(records) if used is None else used, 0
    header = fmt.HEADER.pack(fmt.MAGIC, fmt.VERSION, fmt.RECORD.size, pid, 0, *counts)
    path.write_bytes(header.ljust(fmt.HEADER_SIZE, b"\0") + records.tobytes())
    return path


def begin(directory: Path) -> Path:
    """An empty trace."""
    directory.mkdir(exist_ok=True)
    (directory / fmt.DESCRIPTION).write_text(json.dumps({"format": fmt.VERSION}))
    return directory


def copy(trace: tracing.Trace, events: np.ndarray, directory: Path, times: np.ndarray | None = None) -> tracing.Trace:
    """A trace with `events` in place of those of `trace`, emitted by the same threads, at these times. Without them it
    has times of its own, so the order of `events` is the order of the copy."""
    begin(directory)
    events = events.copy()
    events["time"] = 1000 * (1 + np.arange(len(events))) if times is None else times
    pids = np.array([actor.pid for actor in trace.actors])
    texts = {number: trace.text(event) for number, event in enumerate(events) if event["text"]}
    events["text"] = np.where(events["text"] > 0, 1 + np.arange(len(events)), 0)
    for pid in np.unique(pids).tolist():
        mine = pids[events["actor"]] == pid
        path = write_file(directory, pid, events[mine])
        names = [json.dumps({"actor": n, "name": a.thread}) for n, a in enumerate(trace.actors) if a.pid == pid]
        lines = [f"[{n}, {json.dumps(texts[n])}]" for n in np.flatnonzero(mine).tolist() if n in texts]
        fmt.text_file(path).write_text("".join(f"{line}\n" for line in names + lines))
    return tracing.load(directory)


WAY = [  # of a batch: which thread emits what, and when (ns after keys_begin), at 1000 ns per batch
    ("main", "keys_begin", 0), ("main", "keys_drawn", 10), ("main", "dispatched", 20), ("main", "index_put", 30),
    ("feeder", "index_sending", 40), ("feeder", "index_sent", 50), ("worker", "index_got", 3000),
    ("worker", "fetch_begin", 3010), ("worker", "fetch_end", 4000), ("worker", "collate_begin", 4010),
    ("worker", "collate_end", 4500), ("worker", "result_put", 4510), ("out", "result_sending", 4520),
    ("out", "result_sent", 4600), ("main", "result_got", 7000), ("main", "received", 7010), ("main", "yielded", 7100),
]  # fmt: skip


def steady(directory: Path, tasks: int, workers: int) -> tracing.Trace:
    """A long, steady load: `tasks` batches by `workers` workers, without start and end."""
    begin(directory)
    files: dict[int, list[np.ndarray]] = {}
    numbers = np.arange(tasks)
    for who, hop, after in WAY:
        for worker in range(workers):
            mine = numbers[worker::workers]
            records = np.zeros(len(mine), fmt.RECORD_DTYPE)
            records["time"] = 10**9 + 1000 * mine + after
            records["kind"], records["queue"] = HOPS[hop]
            records["task"], records["worker"], records["loader"] = mine, worker, 1
            in_main = who in ("main", "feeder")
            records["actor"] = {"main": 0, "feeder": 1 + worker, "worker": 0, "out": 1}[who]
            files.setdefault(1 if in_main else 100 + worker, []).append(records)
    for pid, parts in files.items():
        roles = {1: range(workers)}.get(pid, [pid - 100])
        first = [event(Kind.LOADER, value=workers), event(Kind.EPOCH_BEGIN, value=-1)] if pid == 1 else []
        first += [event(Kind.WORKER_BEGIN, worker=w) for w in roles if pid > 1]
        first += [event(Kind.FEEDER_BEGIN, worker=w, actor=1 + w, queue=Queue.INDEX) for w in roles if pid == 1]
        first += [event(Kind.FEEDER_BEGIN, worker=w, actor=1, queue=Queue.RESULT) for w in roles if pid > 1]
        rest = np.concatenate(parts)
        write_file(directory, pid, np.concatenate([*first, rest[np.argsort(rest["time"], kind="stable")]]))
    return tracing.load(directory)


def event(kind: Kind, **fields: Any) -> np.ndarray:
    """One record, shape (1,)."""
    record = np.zeros(1, fmt.RECORD_DTYPE)
    for name, value in {"time": 1, "loader": 1, "task": -1, "worker": -1, "kind": kind, **fields}.items():
        record[name] = value
    return record
