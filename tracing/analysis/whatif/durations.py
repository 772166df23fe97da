"""How long each thing that a loader does took, for tracing.analysis.whatif.replay.

Each batch has its own times, whichever worker makes it. What is the same for all is one number: a median, or the least
seen where queueing can only add to it.

Not everything is in a trace. What is not known, and what is assumed instead:

cores       what main computes beside the loader, and what other programs use, is known from samples
            (`trace.samples`). Without them the training step is assumed to use a core. A worker's or step's wait
            for a core is fitted (tracing.analysis.whatif.replay.fitted)
hops        how long a message is in a pipe shows only if its reader waited for it
workers     a trace does not show what a batch costs with workers and without, nor, if it has none, what it takes to
            start one, or to send a batch: see in_setting

Legend
    setting  Setting(num_workers=2, prefetch_factor=2, in_order=True, persistent_workers=False)
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from minidl.events import NO_WORKER, Kind, Queue
from tracing.analysis.measure import cores
from tracing.analysis.measure.culprits import contents
from tracing.analysis.measure.measures import Measures, epoch_ids
from tracing.analysis.measure.waited import epochs_ended
from tracing.trace.thread_activity import MainTime

SECOND = 1e9  # ns
FEWEST = 3  # samples of main: fewer show too little
SEEN = 0.01  # of the messages: a smaller share says nothing about the others
ON_CORE = {MainTime.HANDLING: 1.0, MainTime.DRAWING: 1.0, MainTime.TAKING: 0.5}  # main in the loader: the share

# What workers cost torch's loader, which no trace of one without shows, nor one with them apart: it makes shared memory
# for the tensors of a batch, and main gives that back in the next step; and threads that exchange messages wake each
# other and share Python's lock.
# Measured as the difference between torch 2.13's loader with workers and without, for batches of 1 to 128 tensors.
BATCH_MADE, BATCH_USED = 120e-6, 170e-6  # s of CPU: by its worker, by main in the training step ...
TENSOR_MADE, TENSOR_USED, UNPICKLED = 50e-6, 10e-6, 300e-6  # ... and for each tensor of it; and by main when it comes
HANDLED = 6.7  # times as long as without workers: the loader's bookkeeping
HOP, STARTING, PREPARING, STOPPING = 300e-6, 0.008, 0.025, 0.01  # s


@dataclass(frozen=True, order=True)
class Setting:
    """The options of a DataLoader that are tried."""

    num_workers: int
    prefetch_factor: int = 2
    in_order: bool = True
    persistent_workers: bool = False

    def __post_init__(self) -> None:
        if not self.num_workers:  # then the others mean nothing
            vars(self).update(prefetch_factor=2, in_order=True, persistent_workers=False)


class Durations:
    """Of one loader, in seconds. Arrays have one element per batch, in the order in which they were yielded."""

    def __init__(self, measures: Measures) -> None:
        """What the trace shows. ValueError: fewer than two batches were made and yielded."""
        rows = measures.had[measures.had["collate_end"] >= 0]
        if len(rows) < 2:
            raise ValueError("fewer than two batches were made and yielded: too few to predict others")
        self.epochs = len(np.unique(epoch_ids(rows)))
        self.batches = -(-len(rows) // self.epochs)  # of an epoch
        self.cores = float(measures.trace.about.get("cpus") or 1)  # of a simulated machine perhaps a part of one
        self.others = cores.cores_of_others(measures)  # threads of other programs that compute all the time
        config, prefetch = measures.config, int(measures.config.get("prefetch_factor") or 2)
        in_order, persistent = bool(config.get("in_order", True)), bool(config.get("persistent_workers"))
        self.setting = Setting(measures.num_workers, prefetch, in_order, persistent)  # as recorded
        self.shares_tensors = config.get("package") == "torch.utils.data"  # see in_setting
        self.tensors = contents(measures)["tensors"]  # in a batch
        self._note_making(measures, rows)
        self._note_messages(measures, rows)
        self._note_main(measures, rows)
        self._note_workers(measures)

    def _note_making(self, measures: Measures, rows: np.ndarray) -> None:
        """Fetching and collating. A worker's extra time for its first batch (it imports, opens files, fills caches) is
        kept apart if it is clear: if each first batch took longer than nine in ten of the others."""
        wall = _seconds(rows, "fetch_begin", "collate_end")
        cpu = np.minimum(_cpu(rows, "fetch_cpu", "collate_cpu"), wall)
        first = np.isin(rows["fetch_begin"], measures.first_batches["fetch_begin"]) & (rows["worker"] >= 0)
        self.warming_cpu = self.warming_wait = 0.0  # how much longer a first batch takes: on a core, and the rest
        if first.any() and (~first).any() and wall[first].min() > np.percentile(wall[~first], 90):
            more = wall[first].min() - np.median(wall[~first])
            self.warming_cpu = float(np.clip(cpu[first].min() - np.median(cpu[~first]), 0, more))
            self.warming_wait = float(more - self.warming_cpu)
        # In each epoch, even if its process persists: an iterable dataset's __iter__.
        self.warms_again = bool((measures.tasks["stream_end"] >= 0).any())
        wait = np.maximum(0, wall - cpu - self.warming_wait * first)
        cpu = np.maximum(0, cpu - self.warming_cpu * first)
        in_programs = wait * min(1.0, cores.beside_making(measures) / SECOND / max(wait.sum(), 1e-9))
        self.making_cpu = cpu + in_programs  # on a core
        self.making_wait = wait - in_programs  # ... and the rest of the wall time

    def _note_messages(self, measures: Measures, rows: np.ndarray) -> None:
        pinning = _seconds(rows, "pin_begin", "pin_end")
        self.sending = on_their_way(measures, rows, Queue.INDEX)  # a task, from main to a worker that waits for it
        # A batch, from its worker to a reader that waits for it, and the reader's unpickling.
        self.pickling = on_their_way(measures, rows, Queue.RESULT)
        self.unpickling = _seconds(rows, "result_arrived", "result_got")
        self.pinning_cpu = np.minimum(_cpu(rows, "pin_cpu"), pinning)
        self.pinning_wait = pinning - self.pinning_cpu
        self.pins = bool((rows["pin_begin"] >= 0).any())

    def _note_main(self, measures: Measures, rows: np.ndarray) -> None:
        """By samples, where there are some: what main computes in its training steps, and other threads meanwhile."""
        self.drawing = _seconds(rows, "keys_begin", "keys_drawn")
        self.handling = measures.spent[MainTime.HANDLING] / SECOND / len(rows)  # its bookkeeping, per batch
        self.training = _seconds(rows, "yielded", "asked")
        self.trains_on, self.helpers = 1.0, 0.0  # the share of it that needs a core; other threads of main, on average
        if (measures.trace.samples["pid"] == measures.main_pid).sum() < FEWEST:
            return
        main, made = measures.main_pid, rows[rows["worker"] < 0]
        own = cores.used(measures, main, "main_cpu", within=measures.run)
        computed = own / SECOND - float(_cpu(made, "fetch_cpu", "collate_cpu", "pin_cpu").sum())
        computed -= sum(measures.spent[use] * share for use, share in ON_CORE.items()) / SECOND
        self.trains_on = float(np.clip(computed / max(float(self.training.sum()), 1e-9), 0, 1))
        self.helpers = max(0.0, cores.used(measures, main, "cpu", "main_cpu", within=measures.run) / max(own, 1.0))

    def _note_workers(self, measures: Measures) -> None:
        """How they start and end."""
        started = sum(each.num_workers for each in measures.iterators)
        begins = measures.first_batches["fetch_begin"]
        used = measures.events["value"][measures.positions(begins, "fetch_begin")]  # of CPU, before its first batch
        # From the start of its process until it waits for its first task; before that, main's time for each.
        preparing = _median(measures.of_starts(Kind.WORKER_STARTED, Kind.WORKER_READY).length)
        self.starting = _median(measures.of_starts(Kind.WORKER_STARTING, Kind.WORKER_STARTED).length)
        # All workers share the cores as they start: the simulated machine adds the waiting for these.
        crowded = max(1.0, (measures.num_workers + self.others) / self.cores)
        self.preparing_cpu = min(_median(used), preparing)
        self.preparing_wait = max(0.0, preparing - crowded * self.preparing_cpu)
        self.stopping = measures.spent[MainTime.SHUTDOWN] / SECOND / max(1, started)  # main's time for each
        self.left = measures.epochs - epochs_ended(measures)  # persistent workers, too, must finish what they make

    def but(self, **others: Any) -> Durations:
        """The same, with other values for some."""
        found = copy.copy(self)
        vars(found).update(others)
        return found

    def __len__(self) -> int:
        return len(self.training)

    @property
    def cpu(self) -> float:
        """Core seconds that a batch takes, in main and its worker together."""
        arrays = (self.making_cpu, self.pinning_cpu, self.drawing, self.trains_on * self.training)
        return self.handling + float(sum(each.mean() for each in arrays))

    def arrays(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}

    def excerpt(self, most: int) -> Durations:
        """As many batches at most, and no more than two epochs have: those in the middle."""
        most = min(most, 2 * self.batches, len(self))
        begin = (len(self) - most) // 2
        return self.but(**{name: value[begin : begin + most] for name, value in self.arrays().items()})

    def in_setting(self, workers: int) -> Durations:
        """As they would be with that many workers, if none were recorded; or with none, if some were."""
        if not self.shares_tensors or bool(workers) == bool(self.setting.num_workers):
            return self
        made, used = BATCH_MADE + self.tensors * TENSOR_MADE, BATCH_USED + self.tensors * TENSOR_USED
        if not workers:
            return self.but(
                making_cpu=np.maximum(0, self.making_cpu - made),
                training=np.maximum(0, self.training - used),
                handling=self.handling / HANDLED,
            )
        hop = np.full(len(self), HOP)
        return self.but(
            making_cpu=self.making_cpu + made,
            training=self.training + used,
            handling=self.handling * HANDLED,
            sending=hop,
            pickling=hop,
            unpickling=np.maximum(hop, self.tensors * UNPICKLED),
            starting=STARTING,
            preparing_cpu=PREPARING,
            stopping=STOPPING,
        )


def _seconds(rows: np.ndarray, begin: str, end: str) -> np.ndarray:
    """From `begin` to `end` of each batch; 0 where either is not known."""
    known = (rows[begin] >= 0) & (rows[end] >= 0)
    return np.where(known, np.maximum(0, rows[end] - rows[begin]), 0) / SECOND


def _cpu(rows: np.ndarray, *names: str) -> np.ndarray:
    return np.asarray(sum(np.maximum(0, rows[name]) for name in names) / SECOND)


def _median(of_workers: np.ndarray) -> float:
    """Of all workers (s); 0 if nothing is known."""
    return float(np.median(of_workers)) / SECOND if len(of_workers) else 0.0


# ---- how long messages take from process to process: s, one for each batch


def on_their_way(measures: Measures, rows: np.ndarray, queue: Queue) -> np.ndarray:
    """From the put of each message until its reader has it. How long a message is in its pipe shows only if the reader
    waited for it (and when it is put there is not recorded by torch's feeders): the others are taken to be as these,
    in turn; where it hardly ever waited, nothing is known, and 0 is taken."""
    name = queue.name.lower()
    put, arrived = rows[f"{name}_put"], rows[f"{name}_arrived"]
    arrived = np.where(arrived >= 0, arrived, rows[f"{name}_got"])
    known = (put >= 0) & (arrived >= 0) & _waited(measures, rows, queue, arrived)
    lengths = (arrived - put) / SECOND
    return np.where(known, lengths, np.resize(lengths[known], len(rows)) if known.mean() > SEEN else 0.0)


def _waited(measures: Measures, rows: np.ndarray, queue: Queue, arrived: np.ndarray) -> np.ndarray:
    """Whether the consumer was waiting for each message when it was put, and not since before the worker's first in
    this epoch, which takes longer (its feeder, or the worker itself, is just starting): bool."""
    waited, put = np.zeros(len(rows), bool), rows[f"{queue.name.lower()}_put"]
    shares = np.unique([epoch_ids(rows), rows["worker"]], axis=1, return_inverse=True)[1]  # of an epoch: each worker's
    begins = np.full(len(rows), np.iinfo(np.int64).max)
    np.minimum.at(begins, shares, put)
    for consumer in range(measures.num_workers) if queue is Queue.INDEX else [NO_WORKER]:
        waits = np.sort(measures.time[np.concatenate(measures.groups(Kind.WAIT, queue, consumer))])
        mine = np.flatnonzero((arrived >= 0) & ((rows["worker"] == consumer) | (consumer == NO_WORKER)))
        mine = mine[np.argsort(arrived[mine])]
        since = np.append(-1, waits)[np.searchsorted(waits, arrived[mine])]
        before = np.append(-1, arrived[mine])[:-1]
        waited[mine] = (since > np.maximum(before, begins[shares[mine]])) & (since <= put[mine])
    return waited
