"""Replays a recorded load in another setting: minidl's own loader on the simulated machine, in virtual time.

Each duration is spent where it was recorded: the dataset computes and waits, the sampler takes its time to draw keys, a
message to be pickled and unpickled, a batch to be pinned. CPU time is spent on the machine's cores, which everything
that computes at that moment shares fairly; the rest simply passes.

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
from functools import partial
from typing import Any

import numpy as np

from minidl import DataLoader
from minidl.events import Kind
from minidl.world import current
from minidl.world.simulated import compute, simulate, sleep
from minidl.world.simulated.machine import current_machine, is_running
from tracing.analysis.whatif.durations import SECOND, Durations, Setting
from tracing.analysis.whatif.transport import in_setting

STEPS = 2_000  # of the simulated world, for a batch: many more than it takes
ROUNDS = 4  # of fitting
EXACT = 0.005  # durations that are off by a smaller share are fitted
CLEARLY = 0.02  # an assumption that fits better by a smaller share is not preferred
PARTS = (1.0, 0.5, 0.25, 0.0)  # of the longest that messages can take: tried in this order
AT_ONCE = 50e-6  # s: a worker that gets a task this soon after its last batch did not have to wait for it


def spend(cpu: float, wait: float = 0.0, helpers: float = 0.0) -> None:
    """Let the calling thread wait, and then use a core, with so many threads that help it: seconds of each."""
    if wait > 0:
        sleep(wait)
    if cpu > 0:
        compute(cpu, helpers)


class InterpreterLocks:
    """Python's global interpreter lock, of which every process has its own. While a main thread works it holds the
    lock, and the other threads of its process make slower progress. (The simulated machine knows no such lock.)"""

    def __init__(self) -> None:
        self._busy: set[int] = set()  # pids
        self._released_at: dict[int, float] = {}  # pid -> s

    def release_all(self) -> None:
        """Before a replay: the last one may have been cut short."""
        self._busy.clear()
        self._released_at.clear()

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        """While the calling main thread works."""
        pid = current().pid()
        self._busy.add(pid)
        try:
            yield
        finally:
            self._busy.discard(pid)
            self._released_at[pid] = current().now()

    def since_released(self) -> float:
        """Seconds since the calling process last worked."""
        return current().now() - self._released_at.get(current().pid(), 0.0)

    def transfer(self, pid: int, least: float, held_up: float, cpu: float = 0.0) -> None:
        """A message takes its time: `least` seconds, of which `cpu` are spent on a core, and `held_up` more if the main
        thread of process `pid` works."""
        cpu = min(cpu, least)
        spend(cpu, least - cpu + (held_up if pid in self._busy else 0.0))


locks = InterpreterLocks()  # global: what is unpickled in any of the simulated processes must find the same one


# ---- messages, which take their time when the sender pickles them (__getstate__) and the receiver unpickles them
# (__setstate__)


@dataclass
class ReplayedKeys:
    """A batch's keys, which main sends to a worker."""

    task: int
    sending: tuple[float, float]  # least, and how much longer while main works
    turning: float

    def __getstate__(self) -> dict[str, Any]:
        locks.transfer(current().pid(), *self.sending)
        return vars(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        if locks.since_released() < AT_ONCE:  # otherwise the worker did its bookkeeping while it waited
            spend(self.turning)


@dataclass
class ReplayedBatch:
    """A batch, which a worker sends to main. Where tensors travel as torch's do, as descriptors that a thread of the
    worker hands over, the worker's work holds up main's unpickling, too; in slots it does not, and `held_up` is 0."""

    worker_pid: int
    pickling: tuple[float, float, float]  # least, how much longer while the worker works, and on a core
    unpickling: tuple[float, float]
    pinning: tuple[float, float]  # on a core, and the rest

    def __getstate__(self) -> dict[str, Any]:
        locks.transfer(self.worker_pid, *self.pickling)
        return vars(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        locks.transfer(self.worker_pid, *self.unpickling)

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
        spend(self.times.starting)  # main copies the dataset while it starts a worker
        return vars(self)

    def prepare(self, worker_id: int) -> None:
        """The worker_init_fn: everything that a worker does before its first task."""
        spend(self.times.preparing_cpu, self.times.preparing_wait)

    def __getitem__(self, keys: ReplayedKeys) -> ReplayedBatch:
        times, task = self.times, keys.task
        with locks.busy():
            if not self.warm:
                spend(times.warming_cpu, times.warming_wait)
                self.warm = True
            spend(times.making_cpu[task], times.making_wait[task])
        pinning = (times.pinning_cpu[task], times.pinning_wait[task])
        pickling = (*times.pickling.of(task), times.feeding)
        return ReplayedBatch(current().pid(), pickling, times.unpickling.of(task), pinning)


class ReplayedSampler:
    """Takes as long to draw the keys of each batch as was recorded."""

    def __init__(self, times: Durations) -> None:
        self.times = times

    def __len__(self) -> int:
        return len(self.times)

    def __iter__(self) -> Iterator[ReplayedKeys]:
        times = self.times
        for task, drawing in enumerate(times.drawing):
            spend(drawing + times.handling_cpu, times.handling_wait)
            yield ReplayedKeys(task, times.sending.of(task), times.turning)


@dataclass(frozen=True)
class ReplayTimes:
    """How long a replay took, in seconds; extrapolated to as many batches and epochs as were recorded."""

    total: float  # all epochs
    trained: float  # training steps, of that
    making: float  # of a batch on average, without what only the first ones take
    training: float  # of a step on average


def replay_load(times: Durations, setting: Setting, cpus: float = 0) -> ReplayTimes:
    """Load all the batches of `times` in this setting, on a machine with `cpus` cores (0: as many as recorded)."""
    times = in_setting(times, setting.num_workers)
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
                with locks.busy():
                    spend(times.trains_on * step, (1 - times.trains_on) * step, times.helpers)

    locks.release_all()
    steps = STEPS * epochs * (len(times) + 100)
    with ctrl_c_deferred():
        outcome = simulate(program, cpus=cpus or times.cores, draws=False, most_steps=steps)
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


# ---- what the trace does not show


def fitted(times: Durations) -> Durations:
    """`times`, changed so that a replay of the recorded setting takes as long as the recording.

    The part of a batch's making that is not CPU time may have been spent waiting for a core, and so may a part of the
    training step. The simulated machine adds such waiting itself, so it must not be counted twice: only as much is kept
    as makes a batch and a step take as long as recorded. If batches come clearly closer to that when the training step
    uses no core, it is assumed to use none.

    How long batches were on their way is not known if main hardly ever waited for one: at most so long that the whole
    load takes as long as recorded."""
    if times.setting.num_workers and not times.pickling_known:
        times = _with_messages_in_time(times)
    if times.setting.num_workers + 1 <= times.cores or times.cores_known or not times.setting.num_workers:
        return times
    making = (times.making_cpu + times.making_wait).mean()

    def off(found: Durations) -> float:
        return abs(replay_load(found, times.setting).making - making) / making

    training_computes = _fit(times)
    clearly_less = off(training_computes) - CLEARLY
    if clearly_less <= 0:
        return training_computes
    training_waits = _fit(replace(times, trains_on=0.0))
    return training_waits if off(training_waits) < clearly_less else training_computes


def _with_messages_in_time(times: Durations) -> Durations:
    for part in PARTS:
        found = replace(times, pickling=times.pickling.map(partial(np.multiply, part)))
        if replay_load(found, times.setting).total <= (1 + CLEARLY) * times.took:
            break
    return found


def _fit(times: Durations) -> Durations:
    """Starts without any waiting except for a core, and adds what is missing, round by round."""
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
