"""What a batch goes through, stage by stage: how long each takes, what each worker did, which batches were slow,
and what a start-up consists of."""

from __future__ import annotations

from typing import Any

import numpy as np

from minidl.events import Kind
from tracing.analysis.measure.measures import Measures
from tracing.trace.intervals import Intervals
from tracing.trace.task_events import keys_of
from tracing.trace.thread_activity import MainTime

FIRST_BATCH = "making its first batch"
STARTUP_PARTS = {  # of a worker -> the events that begin and end it
    "starting the process": (Kind.WORKER_STARTING, Kind.WORKER_STARTED),
    "importing and unpickling": (Kind.WORKER_STARTED, Kind.WORKER_BEGIN),  # if forked: until its first line
    "worker_init_fn": (Kind.INIT_FN_BEGIN, Kind.INIT_FN_END),
}


def percentiles(lengths: np.ndarray) -> dict[str, float]:
    """count, and in ns: median, p90, p99, max. Each is one of the lengths, never a value between two."""
    median, p90, p99 = np.percentile(lengths, (50, 90, 99), method="lower").tolist()
    return {"count": len(lengths), "median": median, "p90": p90, "p99": p99, "max": float(lengths.max())}


def worker_time(measures: Measures, worker: int) -> dict[str, int]:
    """What a worker did between its first event and its last: batches, and times in ns."""
    rows = measures.tasks
    made = (rows["worker"] == worker) & (rows["collate_end"] >= 0)
    return {
        "batches": int(made.sum()),
        "lived": measures.lived(worker).total,
        "worked": int((rows["collate_end"] - rows["fetch_begin"])[made].sum()),
        "cpu": int((np.maximum(rows["fetch_cpu"], 0) + np.maximum(rows["collate_cpu"], 0))[made].sum()),
        "idle": measures.idle[worker].total,
    }


# ---- batches


def slowest_batches(measures: Measures) -> list[dict[str, Any]]:
    """The ten batches that took longest to make, with their keys."""
    rows = measures.tasks[(measures.tasks["collate_end"] >= 0) & (measures.tasks["fetch_begin"] >= 0)]
    return [
        {
            "epoch": int(row["epoch"]),
            "batch": int(row["task"]),
            "worker": int(row["worker"]),
            "made_ns": int(row["collate_end"] - row["fetch_begin"]),
            "cpu_ns": int(max(0, row["fetch_cpu"]) + max(0, row["collate_cpu"])),
            "keys": keys_of(measures.trace, row["loader"], row["epoch"], row["task"]),
        }
        for row in rows[np.argsort(rows["fetch_begin"] - rows["collate_end"], kind="stable")[:10]]
    ]


# ---- start-up


def startup_cost(measures: Measures) -> int:
    """Start-up beyond what making a batch takes anyway (ns): as long as nine in ten of the later ones take at most."""
    yielded = (measures.tasks["yielded"] >= 0) & (measures.tasks["collate_end"] >= 0)
    if not yielded.any() or not measures.num_workers:
        return measures.spent[MainTime.STARTUP]
    task, begin, end = (measures.tasks[name][yielded] for name in ("task", "fetch_begin", "collate_end"))
    later = (end - begin)[~np.isin(begin, measures.first_batches["fetch_begin"])]
    usual = np.percentile(later, 90) if len(later) else np.median(end - begin)
    return max(0, measures.spent[MainTime.STARTUP] - int(np.minimum((end - begin)[task == 0], usual).sum()))


def startup_parts(measures: Measures) -> dict[str, Intervals]:
    """For each part of a worker's start, how long it took each worker. The last one is FIRST_BATCH, in each worker
    process."""
    found = {name: measures.of_starts(begin, end) for name, (begin, end) in STARTUP_PARTS.items()}
    return found | {FIRST_BATCH: measures.between(measures.first_batches, "fetch_begin", "collate_end")}
