"""How long each thing took that a loader does, for tracing.analysis.whatif.simulated_replay to replay.

Each batch has its own times, whichever worker makes it. What is the same for all is one number: a median, or the least
seen where queueing can only add to it.

Not everything is in a trace. What is not known, and what is assumed instead:

cores       who computed, and who waited for a core, is known by samples (tracing.analysis.whatif.core_use). In a trace
            without them training is assumed to use a core, unless the workers were too quick for that, and what the
            workers waited for a core is fitted (tracing.analysis.whatif.simulated_replay.fitted)
hops        how long a message is in a pipe shows only if its reader waited for it: the least in either queue counts.
            If main hardly ever waited for a batch, how long that was on its way is fitted
workers     a trace without any does not show what it takes to start one, or to send a batch: 0

Legend
    setting  Setting(num_workers=2, prefetch_factor=2, in_order=True, persistent_workers=False)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from minidl.events import Kind, Queue
from tracing.analysis.measure.cpu import of_programs
from tracing.analysis.measure.measures import Measures
from tracing.analysis.measure.stages import first_batches
from tracing.analysis.whatif.core_use import CoreUse, core_use
from tracing.analysis.whatif.hops import HopTimes, from_put_to_reader, pickling_times, unpickling_times
from tracing.trace.thread_activity import MainTime

SECOND = 1e9  # ns
BLOCK = 40  # consecutive batches: an excerpt of a long trace consists of such blocks
MESSAGE, DESCRIPTOR = 290, 75  # bytes: of a batch without tensors, as torch pickles it; of one tensor and its key


@dataclass(frozen=True, order=True)
class Setting:
    """The options of a DataLoader that are tried."""

    num_workers: int
    prefetch_factor: int = 2
    in_order: bool = True
    persistent_workers: bool = False


@dataclass(frozen=True)
class Durations:
    """Of one loader, in seconds. Arrays have one element per batch, in the order in which they were yielded."""

    making_cpu: np.ndarray  # fetch and collate, on a core
    making_wait: np.ndarray  # ... and the rest of the wall time
    turning: float  # a worker, from one batch to the next, if the next task is there already
    sending: HopTimes  # a task, from main to a worker that waits for it
    pickling: HopTimes  # a batch, from its worker to a reader that waits for it
    pickling_known: bool  # whether the reader did wait; else that is the most it can be
    unpickling: HopTimes
    pinning_cpu: np.ndarray
    pinning_wait: np.ndarray
    drawing: np.ndarray  # keys, by main
    handling_cpu: float  # the loader's own bookkeeping in main, per batch
    handling_wait: float
    training: np.ndarray  # the step with the batch
    trains_on: float  # the share of it that needs a core, 0 to 1
    helpers: float  # other threads of main that compute with it meanwhile, on average
    others: float  # threads of other programs that compute all the time
    cores_known: bool  # whether all that was measured, or assumed
    pins: bool
    starting: float  # main's time for each worker it starts
    preparing_cpu: float  # a worker, from its start until it waits for its first task
    preparing_wait: float
    warming_cpu: float  # how much longer a worker takes for its first batch than for others: on a core ...
    warming_wait: float  # ... and the rest
    stopping: float  # main's time for each worker at the end
    batches: int  # of an epoch
    epochs: int
    took: float  # all epochs
    cores: float  # of the machine
    setting: Setting  # as recorded
    shares_tensors: bool  # as torch's loader does: see tracing.analysis.whatif.transport
    tensors: np.ndarray  # in a batch, by the size of its message
    feeding: float  # CPU time of a worker's other threads, per batch

    def __len__(self) -> int:
        return len(self.training)

    @property
    def cpu(self) -> float:
        """Core seconds that a batch takes, in main and its worker together."""
        arrays = (self.making_cpu, self.pinning_cpu, self.drawing, self.trains_on * self.training)
        return self.handling_cpu + float(sum(each.mean() for each in arrays))

    def excerpt(self, most: int) -> Durations:
        """About `most` batches, and no more than two epochs have: blocks of consecutive ones from all over the trace.
        (What happens to every tenth batch happens to every tenth of a block, too.)"""
        most = min(most, 2 * self.batches)
        if len(self) <= most:
            return self
        block = min(BLOCK, most)
        begins = np.linspace(0, len(self) - block, -(-most // block)).astype(int)
        chosen = (begins[:, None] + np.arange(block)).ravel()
        fewer: dict[str, Any] = {}
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray):
                fewer[name] = value[chosen]
            elif isinstance(value, HopTimes):
                fewer[name] = value.map(lambda each: each[chosen])
        return replace(self, **fewer)


def durations(measures: Measures) -> Durations:
    """What the trace shows of this loader. ValueError: fewer than two batches were made and yielded."""
    rows = measures.tasks
    rows = rows[(rows["yielded"] >= 0) & (rows["collate_end"] >= 0)]
    if len(rows) < 2:
        raise ValueError("fewer than two batches were made and yielded: too few to predict others")
    rows = rows[np.lexsort((rows["yielded"], rows["epoch"]))]
    pinning = _seconds(rows, "pin_begin", "pin_end")
    pinning_cpu = np.minimum(_cpu(rows, "pin_cpu"), pinning)
    handling_cpu = _handling(measures) / len(rows)
    preparing = _between(measures, Kind.WORKER_STARTED, Kind.WORKER_READY)
    preparing_cpu = min(_before_first_batch(measures), preparing)
    epochs = len(np.unique(rows["epoch"]))
    found = Durations(
        **_making(measures, rows),
        turning=_turning(rows),
        **_moving(measures, rows),
        pinning_cpu=pinning_cpu,
        pinning_wait=pinning - pinning_cpu,
        drawing=_seconds(rows, "keys_begin", "keys_drawn"),
        handling_cpu=handling_cpu,
        handling_wait=measures.spent[MainTime.HANDLING] / SECOND / len(rows) - handling_cpu,
        training=_training(rows),
        trains_on=1.0 if measures.num_workers else _share_on_core(measures, rows),
        helpers=0.0,
        others=0.0,
        cores_known=False,
        pins=bool((rows["pin_begin"] >= 0).any()),
        starting=_between(measures, Kind.WORKER_STARTING, Kind.WORKER_STARTED),
        preparing_cpu=preparing_cpu,
        preparing_wait=preparing - preparing_cpu,
        stopping=_stopping(measures),
        batches=-(-len(rows) // epochs),
        epochs=epochs,
        took=measures.total / SECOND,
        cores=float(measures.trace.about.get("cpus") or 1),  # a simulated machine may have a part of one
        setting=recorded_setting(measures),
        shares_tensors=measures.config.get("package") == "torch.utils.data",
        tensors=np.maximum(0, rows["result_bytes"] - MESSAGE) / DESCRIPTOR,
        feeding=0.0,
    )
    used = core_use(measures)
    return found if used is None else without_waiting_for_cores(found, used)


def without_waiting_for_cores(times: Durations, used: CoreUse) -> Durations:
    """`times`, without what its threads waited for a core: the simulated machine adds such waiting itself."""
    makers = used.workers if times.setting.num_workers else used.main
    wait = float(times.making_wait.sum())
    delay = makers.delay_of(float(times.making_cpu.sum()))
    steps = float(times.training.sum())
    computed = used.main_trains
    late = min(used.main.delay_of(computed), 0.95 * steps)
    return replace(
        times,
        making_wait=times.making_wait * (max(0.0, 1 - delay / wait) if wait else 0.0),
        preparing_wait=max(0.0, times.preparing_wait - makers.delay_of(times.preparing_cpu)),
        warming_wait=max(0.0, times.warming_wait - makers.delay_of(times.warming_cpu)),
        starting=times.starting * used.main.speed,
        drawing=times.drawing * used.main.speed,
        handling_cpu=times.handling_cpu * used.main.speed,
        handling_wait=times.handling_wait * used.main.speed,
        training=times.training * (1 - late / steps if steps else 1.0),
        trains_on=min(1.0, computed / (steps - late)) if steps else 1.0,
        helpers=used.main.helpers,
        others=used.others,
        feeding=used.workers.cpu * used.workers.helpers / len(times),
        cores_known=True,
    )


def recorded_setting(measures: Measures) -> Setting:
    """As recorded; without workers the other options mean nothing, and have their defaults."""
    config, workers = measures.config, measures.num_workers
    if not workers:
        return Setting(0)
    prefetch, persistent = config.get("prefetch_factor") or 2, bool(config.get("persistent_workers"))
    return Setting(workers, int(prefetch), bool(config.get("in_order", True)), persistent)


def _seconds(rows: np.ndarray, begin: str, end: str) -> np.ndarray:
    """From `begin` to `end` of each batch; 0 where either is not known."""
    known = (rows[begin] >= 0) & (rows[end] >= 0)
    return np.where(known, np.maximum(0, rows[end] - rows[begin]), 0) / SECOND


def _cpu(rows: np.ndarray, *names: str) -> np.ndarray:
    return np.asarray(sum(np.maximum(0, rows[name]) for name in names) / SECOND)


def _handling(measures: Measures) -> float:
    """The CPU time of all of the loader's own bookkeeping in main (s), as if each piece took as long as the median one.
    (For the rest of the time main waited for a core.)"""
    pieces = measures.main_in(MainTime.HANDLING).length
    return min(float(np.median(pieces)) * len(pieces), float(pieces.sum())) / SECOND if len(pieces) else 0.0


def _making(measures: Measures, rows: np.ndarray) -> dict[str, Any]:
    """Fetching and collating. What a worker takes longer for its first batch (it imports, opens files, fills caches) is
    kept apart if it is clear: if each first batch took longer than nine in ten of the others."""
    wall = _seconds(rows, "fetch_begin", "collate_end")
    cpu = np.minimum(_cpu(rows, "fetch_cpu", "collate_cpu"), wall)
    first = np.isin(rows["fetch_begin"], first_batches(measures)["fetch_begin"]) & (rows["worker"] >= 0)
    warming_cpu = warming_wait = 0.0
    if first.any() and (~first).any() and wall[first].min() > np.percentile(wall[~first], 90):
        more = wall[first].min() - np.median(wall[~first])
        warming_cpu = float(np.clip(cpu[first].min() - np.median(cpu[~first]), 0, more))
        warming_wait = float(more - warming_cpu)
    cpu, wait = np.maximum(0, cpu - warming_cpu * first), np.maximum(0, wall - cpu - warming_wait * first)
    in_programs = wait * min(1.0, of_programs(measures) / SECOND / max(wait.sum(), 1e-9))  # they need a core, too
    return {
        "making_cpu": cpu + in_programs,
        "making_wait": wait - in_programs,
        "warming_cpu": warming_cpu,
        "warming_wait": warming_wait,
    }


def _moving(measures: Measures, rows: np.ndarray) -> dict[str, Any]:
    unpickling = unpickling_times(measures, rows)
    pickling, known = pickling_times(measures, rows, unpickling)
    return {
        "sending": from_put_to_reader(measures, rows, Queue.INDEX),
        "pickling": pickling,
        "pickling_known": known,
        "unpickling": unpickling,
    }


def _turning(rows: np.ndarray) -> float:
    """The median time between two batches of a worker whose next task was there already (s); 0 if none ever was."""
    rows = rows[(rows["worker"] >= 0) & (rows["fetch_begin"] >= 0)]
    rows = rows[np.lexsort((rows["fetch_begin"], rows["worker"], rows["epoch"]))]
    before, after = rows[:-1], rows[1:]
    follows = (before["epoch"] == after["epoch"]) & (before["worker"] == after["worker"])
    there = np.where(after["index_sent"] >= 0, after["index_sent"], after["index_put"]) < before["collate_end"]
    found = (after["fetch_begin"] - before["collate_end"])[follows & there]
    return max(0.0, float(np.median(found))) / SECOND if len(found) else 0.0


def _training(rows: np.ndarray) -> np.ndarray:
    """The training steps (s); the median for one whose end was not recorded."""
    steps, known = _seconds(rows, "yielded", "asked"), rows["asked"] >= 0
    return np.where(known, steps, np.median(steps[known]) if known.any() else 0.0)


def _share_on_core(measures: Measures, rows: np.ndarray) -> float:
    """The share of the training steps that used a core, 0 to 1. Without workers main makes the batches, and so records
    its thread's CPU time before and after each step."""
    last = "pin_end" if (rows["pin_end"] >= 0).all() else "collate_end"
    follows = np.flatnonzero((rows["epoch"][1:] == rows["epoch"][:-1]) & (rows["asked"][:-1] >= 0))
    before, after = rows[follows], rows[follows + 1]
    steps = _seconds(before, "yielded", "asked").sum()
    value = measures.events["value"]
    begin, end = measures.positions(before[last], last), measures.positions(after["fetch_begin"], "fetch_begin")
    drawn = _seconds(after, "keys_begin", "keys_drawn").sum()
    used = float((value[end] - value[begin]).sum()) / SECOND - drawn
    return float(np.clip(used / steps, 0, 1)) if steps else 1.0


def _between(measures: Measures, begin: Kind, end: Kind) -> float:
    """From one event of a worker's start to another: the median of all workers (s); 0 if not known."""
    lengths = measures.of_starts(begin, end).length
    return float(np.median(lengths)) / SECOND if len(lengths) else 0.0


def _before_first_batch(measures: Measures) -> float:
    """The CPU time that a worker has used when it begins its first batch: the median of all workers (s)."""
    begins = first_batches(measures)["fetch_begin"]
    used = measures.events["value"][measures.positions(begins, "fetch_begin")]
    return float(np.median(used)) / SECOND if len(used) else 0.0


def _stopping(measures: Measures) -> float:
    started = sum(each.num_workers for each in measures.iterators)
    return measures.spent[MainTime.SHUTDOWN] / SECOND / started if started else 0.0
