"""What next, for a run that an error ended: which batches to look at, and with which keys."""

from __future__ import annotations

import numpy as np

from tracing.analysis.measure.measures import Measures
from tracing.analysis.task_events import keys_of


def advice_after_error(measures: Measures) -> list[str]:
    """The batches whose keys reproduce the error; or where to look if a worker died before it had any."""
    tasks = measures.tasks
    last_epoch = tasks[tasks["epoch"] == tasks["epoch"].max()] if len(tasks) else tasks
    batches = [described for row in last_epoch if (described := _failed_batch(measures, row))]
    if batches:
        return [
            f"Fix that first: {'; '.join(batches[:3])}. Without workers (num_workers=0) the same keys fail in main, "
            "where you can use a debugger."
        ]
    never_begun = last_epoch["worker"][last_epoch["lost"] >= 0]
    if len(never_begun):
        return [
            f"Worker {min(never_begun)} had no batch when it died. Look at what it printed; and if it was still "
            "starting, at what that involves: the program's imports, unpickling the dataset, worker_init_fn."
        ]
    return []


def _failed_batch(measures: Measures, row: np.void) -> str:
    """What happened to a batch, with its keys: "batch 9 on worker 1 raised (keys [9])"; "" if nothing did."""
    if row["failed"] >= 0 or row["pin_failed"] >= 0:
        what = "raised"
    elif row["lost"] >= 0 and row["index_got"] >= 0:
        what = "was with the worker that died"
    else:
        return ""
    where = f"on worker {row['worker']}" if row["worker"] >= 0 else "in main"
    keys = keys_of(measures.trace, row["loader"], row["epoch"], row["task"])
    shown = f" (keys {keys})" if keys is not None and len(str(keys)) <= 60 else ""
    return f"batch {row['task']} {where} {what}{shown}"
