"""Replays a recorded load in another setting: minidl's own loader on the simulated machine, in virtual time.

Each duration is spent where it was recorded: the dataset computes and waits, the sampler takes its time to draw keys, a
message to be pickled and unpickled, a batch to be pinned. CPU time is spent on the machine's cores, which everything
that computes at that moment shares fairly; the rest simply passes, and so does what main does in the loader.

Legend
    task     17            a batch: its number among those that are replayed
    times    Durations     what was recorded (tracing.analysis.whatif.durations)
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from minidl import DataLoader, get_worker_info
from minidl.events import Kind
from minidl.world.simulated import compute, simulate, sleep
from minidl.world.simulated.machine import current_machine, is_running
from tracing.analysis.whatif.durations import SECOND, Durations, Setting

STEPS = 2_000  # of the simulated world, for a batch: many more than it takes
ROUNDS = 8  # of fitting, at most
EXACT = 0.005  # durations that are off by a smaller share are fitted


def spend(cpu: float, wait: float = 0.0, helpers: float = 0.0) -> None:
    """Let the calling thread wait, and then use a core, with this many threads that help it: seconds of each."""
    if wait > 0:
        sleep(wait)
    if cpu > 0:
        compute(cpu, helpers)


# ---- messages, which take their time when the sender pickles them (__getstate__) and the receiver unpickles them
# (__setstate__)


@dataclass
class ReplayedKeys:
    """A batch's keys, which main sends to a worker."""

    task: int
    sending: float

    def __getstate__(self) -> dict[str, Any]:
        spend(0.0, self.sending)
        return vars(self)


@dataclass
class ReplayedBatch:
    """A batch, which a worker sends to main."""

    pickling: tuple[float, float]  # on a core, and the rest
    unpickling: float
    pinning: tuple[float, float]

    def __getstate__(self) -> dict[str, Any]:
        spend(*self.pickling)
        return vars(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        spend(0.0, self.unpickling)

    def pin_memory(self) -> ReplayedBatch:
        spend(*self.pinning)
        return self


# ---- the load


class ReplayedDataset:
    """Takes as long for each batch as was recorded."""

    def __init__(self, times: Durations) -> None:
        self.times = times
        self.warm = False

    def __getstate__(self) -> dict[str, Any]:
        spend(0.0, self.times.starting)  # main copies the dataset while it starts a worker
        return vars(self)

    def prepare(self, worker_id: int) -> None:
        """The worker_init_fn: everything that a worker does before its first task."""
        spend(self.times.preparing_cpu, self.times.preparing_wait)

    def __getitem__(self, keys: ReplayedKeys) -> ReplayedBatch:
        times, task, in_worker = self.times, keys.task, get_worker_info() is not None
        if not self.warm:
            spend(times.warming_cpu, times.warming_wait)
            self.warm = True
        spend(times.making_cpu[task], times.making_wait[task] + times.turning * in_worker)
        on_core = min(times.feeding, times.pickling[task])
        pickling = (on_core, times.pickling[task] - on_core)
        return ReplayedBatch(pickling, times.unpickling[task], (times.pinning_cpu[task], times.pinning_wait[task]))


class ReplayedSampler:
    """Takes as long to draw the keys of each batch as was recorded."""

    def __init__(self, times: Durations) -> None:
        self.times = times

    def __len__(self) -> int:
        return len(self.times)

    def __iter__(self) -> Iterator[ReplayedKeys]:
        for task, drawing in enumerate(self.times.drawing):
            spend(0.0, drawing + self.times.handling)
            yield ReplayedKeys(task, self.times.sending[task])


@dataclass(frozen=True)
class ReplayTimes:
    """How long a replay took, in seconds; extrapolated to as many batches and epochs as were recorded."""

    total: float  # all epochs
    trained: float  # training steps, of that
    making: float  # of a batch on average, without what only the first ones take
    training: float  # of a step on average


def replay_load(times: Durations, setting: Setting) -> ReplayTimes:
    """Load all the batches of `times` in this setting, on a machine with as many cores as recorded."""
    times = times.in_setting(setting.num_workers)
    epochs = min(times.epochs, 2) if setting.persistent_workers else 1  # the others are like the last one
    dataset: Any = ReplayedDataset(times)
    sampler = ReplayedSampler(times)

    def program() -> None:
        current_machine().cores.others = times.others
        workers: dict[str, Any] = {}
        if setting.num_workers:
            workers = {
                "transport": "torch",  # its feeders let the time of the way pass; what a put costs was recorded
                "num_workers": setting.num_workers,
                "prefetch_factor": setting.prefetch_factor,
                "persistent_workers": setting.persistent_workers,
                "worker_init_fn": dataset.prepare,
            }
        pin = "host" if times.pins else False
        loader: DataLoader[Any] = DataLoader(
            dataset, batch_size=None, sampler=sampler, pin_memory=pin, in_order=setting.in_order, **workers
        )
        for _ in range(epochs):
            for number, _batch in enumerate(loader):
                step = times.training[number]
                spend(times.trains_on * step, (1 - times.trains_on) * step, times.helpers)

    steps = STEPS * epochs * (len(times) + 100)
    with ctrl_c_deferred():
        outcome = simulate(program, cpus=times.cores, draws=False, most_steps=steps)
    if outcome.deadlock or outcome.endless or outcome.error is not None:
        raise RuntimeError("the replay did not reach its end") from outcome.error
    return _result(np.array([event[:6] for event in outcome.events], np.int64), times, setting, epochs)


@contextlib.contextmanager
def ctrl_c_deferred() -> Iterator[None]:
    """Raised within a simulation, Ctrl-C would be an error of the simulated program. Here it ends the simulation, and
    is raised after that."""
    previous = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or previous in (None, signal.SIG_IGN):
        yield
        return
    came = False

    def end_simulation(*_: Any) -> None:
        nonlocal came
        came = True
        if is_running():
            current_machine().most_steps = 0  # it ends at its next step

    signal.signal(signal.SIGINT, end_simulation)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
        if came:
            signal.raise_signal(signal.SIGINT)


def _result(events: np.ndarray, times: Durations, setting: Setting, epochs: int) -> ReplayTimes:
    """`events` has a row for each: time, thread, kind, epoch_id, task, worker."""
    time, kind = events[:, 0] / SECOND, events[:, 2]
    ends = time[kind == Kind.EPOCH_END]
    yielded = time[kind == Kind.YIELDED].reshape(epochs, len(times))
    asked = time[kind == Kind.ASKED].reshape(epochs, len(times) + 1)[:, 1:]
    steps = asked - yielded
    waited = np.diff(ends, prepend=time[kind == Kind.LOADER][:1]) - steps.sum(axis=1)
    waited += (times.batches - len(times)) * _waiting(yielded, asked, setting)
    trained = steps.mean(axis=1) * times.batches
    weights = np.append(np.ones(epochs - 1), times.epochs - epochs + 1)
    stops = 1 if setting.persistent_workers else times.epochs
    total = float((trained + np.maximum(0, waited)) @ weights) + stops * setting.num_workers * times.stopping
    made = time[kind == Kind.COLLATE_END].sum() - time[kind == Kind.FETCH_BEGIN].sum()
    made -= setting.num_workers * (times.warming_cpu + times.warming_wait)
    return ReplayTimes(total, float(trained @ weights), float(made) / yielded.size, float(steps.mean()))


def _waiting(yielded: np.ndarray, asked: np.ndarray, setting: Setting) -> np.ndarray:
    """How long main waits for a batch in each epoch (s), away from the epoch's beginning and end."""
    batches, ahead = yielded.shape[1], max(1, setting.num_workers * setting.prefetch_factor)
    last = max(batches - ahead, 3 * batches // 4, 2) - 1
    first = min(batches // 4, last - 1)
    return np.asarray((yielded[:, first + 1 : last + 1] - asked[:, first:last]).mean(axis=1))


def fitted(times: Durations) -> Durations:
    """`times`, changed so that a replay of the recorded setting takes as long as the recording, where not everything
    has a core of its own.

    The part of a batch's making that is not CPU time may have been spent waiting for a core, and so may a part of the
    training step. The simulated machine adds such waiting itself, so it must not be counted twice: only as much is kept
    as makes a batch and a step take as long as recorded. It starts without any, and adds what is missing, round by
    round."""
    if times.setting.num_workers + 1 + times.helpers + times.others <= times.cores or not times.setting.num_workers:
        return times
    most = times.making_wait.mean()
    making, training, wait = times.making_cpu.mean() + most, times.training.mean(), 0.0
    found = replace(times, making_wait=np.zeros(len(times)))
    for _ in range(ROUNDS):
        run = replay_load(found, times.setting)
        missing = float(np.clip(making - run.making, -wait, most - wait))
        faster = min(1.0, training / run.training) if run.training and times.trains_on else 1.0
        if abs(missing) <= EXACT * making and faster >= 1 - EXACT:
            break
        wait += missing
        share = wait / most if most else 0.0
        found = replace(found, making_wait=share * times.making_wait, training=faster * found.training)
    return found
