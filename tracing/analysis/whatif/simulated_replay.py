"""The same load once more, in another setting: minidl's own loader on the simulated machine, in virtual time.

What a batch took is put where it belongs: the dataset computes and waits, a batch takes its time when it is pickled,
unpickled and pinned, the sampler when it is asked for keys. CPU time goes to the machine's cores, which all that
compute at a moment share fairly; the rest passes by itself.

Legend
    task     17            a batch: its number among those that are replayed
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from minidl import DataLoader
from minidl.events import Kind
from minidl.world import current
from minidl.world.simulated import Outcome, compute, simulate, sleep
from minidl.world.simulated.machine import current_machine, is_running
from tracing.analysis.whatif.durations import SECOND, Durations, Setting

STEPS = 2_000  # of the simulated world, for a batch: many more than it takes
ROUNDS = 4  # of fitting
EXACT = 0.005  # a part of the time that something takes: what is wrong by less is fitted
CLEARLY = 0.02  # ... and an assumption that fits better by less does not
AT_ONCE = 50e-6  # s: a worker that takes a task so soon after its last batch had not to wait for it

# Of the simulated processes, by pid. Whoever works holds Python's lock, and other threads of his wait for it.
at_work: set[int] = set()  # their main thread works
worked_until: dict[int, float] = {}  # when it did so last (s)


@dataclass
class Asked:
    """A batch's keys, on their way to a worker."""

    task: int
    sending: tuple[float, float]  # always; and while main works
    turning: float

    def __reduce__(self) -> tuple[Any, ...]:
        move(current().pid(), *self.sending)
        return take, (self.task, self.sending, self.turning)


def take(task: int, sending: tuple[float, float], turning: float) -> Asked:
    """In the worker. One who had to wait for it has done his own bookkeeping meanwhile."""
    if current().now() - worked_until.get(current().pid(), 0.0) < AT_ONCE:
        spend(turning)
    return Asked(task, sending, turning)


@dataclass
class Made:
    """A batch, on its way to main."""

    worker: int  # the pid of its process
    pickling: tuple[float, float]  # always; and while the worker works
    unpickling: tuple[float, float]
    pinning: tuple[float, float]  # on a core, and the rest

    def __reduce__(self) -> tuple[Any, ...]:
        move(self.worker, *self.pickling)
        return receive, (self.worker, self.pickling, self.unpickling, self.pinning)

    def pin_memory(self) -> Made:
        spend(*self.pinning)
        return self


def receive(worker: int, pickling: Any, unpickling: tuple[float, float], pinning: Any) -> Made:
    """In main. (A tensor comes as a descriptor, which a thread of its worker hands over.)"""
    move(worker, *unpickling)
    return Made(worker, pickling, unpickling, pinning)


def move(process: int, always: float, locked: float) -> None:
    spend(0.0, always + (locked if process in at_work else 0.0))


@contextlib.contextmanager
def working() -> Iterator[None]:
    """The main thread of a process does its work."""
    process = current().pid()
    at_work.add(process)
    try:
        yield
    finally:
        at_work.discard(process)
        worked_until[process] = current().now()


def spend(cpu: float, wait: float = 0.0) -> None:
    if wait > 0:
        sleep(wait)
    if cpu > 0:
        compute(cpu)


class Work:
    """The dataset. A worker's copy is made while main starts that worker."""

    def __init__(self, times: Durations) -> None:
        self.times = times
        self.warm = False

    def __reduce__(self) -> tuple[Any, ...]:
        spend(self.times.starting)
        return Work, (self.times,)

    def prepare(self, worker_id: int) -> None:
        """The worker_init_fn: all that a worker does before its first task."""
        spend(self.times.preparing_cpu, self.times.preparing_wait)

    def __getitem__(self, keys: Asked) -> Made:
        times, task = self.times, keys.task
        with working():
            if not self.warm:
                spend(times.warming_cpu, times.warming_wait)
                self.warm = True
            spend(times.making_cpu[task], times.making_wait[task])
        pinning = (times.pinning_cpu[task], times.pinning_wait[task])
        return Made(current().pid(), times.pickling.of(task), times.unpickling.of(task), pinning)


class Keys:
    """The sampler."""

    def __init__(self, times: Durations) -> None:
        self.times = times

    def __len__(self) -> int:
        return len(self.times)

    def __iter__(self) -> Iterator[Asked]:
        times = self.times
        for task, drawing in enumerate(times.drawing):
            spend(drawing + times.handling_cpu, times.handling_wait)
            yield Asked(task, times.sending.of(task), times.turning)


@dataclass(frozen=True)
class Run:
    """What came of it, in seconds. An epoch is as long as a recorded one."""

    total: float  # all epochs
    trained: float  # of that
    making: float  # a batch, in the mean, without what only the first ones take
    training: float  # a step, in the mean


def rehearse(times: Durations, setting: Setting, cpus: float = 0) -> Run:
    """Load all the batches of `times` in this setting, on a machine with so many cores (0: as recorded)."""
    epochs = min(times.epochs, 2) if setting.persistent_workers else 1  # the others are as the last one

    def program() -> None:
        workers: dict[str, Any] = {}
        if setting.num_workers:
            workers = {
                "num_workers": setting.num_workers,
                "prefetch_factor": setting.prefetch_factor,
                "persistent_workers": setting.persistent_workers,
                "worker_init_fn": work.prepare,
            }
        pin = "host" if times.pins else False
        loader: DataLoader[Any] = DataLoader(
            work, batch_size=None, sampler=Keys(times), pin_memory=pin, in_order=setting.in_order, **workers
        )
        for _ in range(epochs):
            for number, _batch in enumerate(loader):
                step = times.training[number]
                with working():
                    spend(times.trains_on * step, (1 - times.trains_on) * step)

    work: Any = Work(times)
    at_work.clear()
    worked_until.clear()
    steps = STEPS * epochs * (len(times) + 100)
    outcome = uninterrupted(lambda: simulate(program, cpus=cpus or times.cores, draws=False, most_steps=steps))
    if outcome.deadlock or outcome.endless or outcome.error is not None:
        raise RuntimeError("the replay did not come to its end") from outcome.error
    return _result(np.array([event[:6] for event in outcome.events], np.int64), times, setting, epochs)


def uninterrupted(run: Callable[[], Outcome]) -> Outcome:
    """Ctrl-C in the middle of a simulation would be taken for one of the simulated program. So it only ends the
    simulation, and is raised after that."""
    previous = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or previous in (None, signal.SIG_IGN):
        return run()
    came = False

    def end(*_: Any) -> None:
        nonlocal came
        came = True
        if is_running():
            current_machine().most_steps = 0

    signal.signal(signal.SIGINT, end)
    try:
        return run()
    finally:
        signal.signal(signal.SIGINT, previous)
        if came:
            signal.raise_signal(signal.SIGINT)


def _result(events: np.ndarray, times: Durations, setting: Setting, epochs: int) -> Run:
    """`events`: time, thread, kind, epoch_id, task, worker of each."""
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
    return Run(total, float(trained @ weights), float(made) / yielded.size, float(steps.mean()))


def _waiting(yielded: np.ndarray, asked: np.ndarray, setting: Setting) -> np.ndarray:
    """Main's, for a batch of each epoch, where neither the beginning of the epoch is felt nor its end."""
    batches, ahead = yielded.shape[1], max(1, setting.num_workers * setting.prefetch_factor)
    last = max(batches - ahead, 3 * batches // 4, 2) - 1
    first = min(batches // 4, last - 1)
    return np.asarray((yielded[:, first + 1 : last + 1] - asked[:, first:last]).mean(axis=1))


# ---- what is not known of the recorded run


def fitted(times: Durations) -> Durations:
    """The same, but so that the recorded setting, done again, takes what it took.

    What is not CPU time of a batch's making may have been waiting for a core, and so may a part of the training step:
    that comes by itself in the simulated machine, and must not be counted twice. So only so much of it is kept that a
    batch and a step take as long as recorded. If batches come clearly closer to that when the training step uses no
    core, it is taken to use none."""
    if times.setting.num_workers + 1 <= times.cores or times.trains_known:
        return times
    making = (times.making_cpu + times.making_wait).mean()

    def off(found: Durations) -> float:
        return abs(rehearse(found, times.setting).making - making) / making

    computes = _fit(times)
    if (least := off(computes) - CLEARLY) <= 0:
        return computes
    waits = _fit(replace(times, trains_on=0.0))
    return waits if off(waits) < least else computes


def _fit(times: Durations) -> Durations:
    """Begins with no waiting but that for a core, and adds what is missing."""
    most = times.making_wait.mean()
    making, training, wait = times.making_cpu.mean() + most, times.training.mean(), 0.0
    found = replace(times, making_wait=np.zeros(len(times)))
    for _ in range(ROUNDS):
        run = rehearse(found, times.setting)
        missing = float(np.clip(making - run.making, -wait, most - wait))
        faster = min(1.0, training / run.training) if run.training and times.trains_on else 1.0
        if abs(missing) <= EXACT * making and faster >= 1 - EXACT:
            break
        wait += missing
        share = wait / most if most else 0.0
        found = replace(found, making_wait=share * times.making_wait, training=faster * found.training)
    return found
