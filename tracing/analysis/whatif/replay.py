"""Replays a recorded load in another setting: a model of the loader on a model of the machine, in virtual time.

    main -> a feeder -> index_queue -> worker -> its feeder -> worker_result_queue (-> pin thread -> data_queue) -> main

Each duration is spent where it was recorded. CPU time is spent on the machine's cores, which everything that computes
at that moment shares fairly; the rest simply passes, and so does what main does in the loader. Tests compare it with
minidl's loader on the simulated machine.

Legend
    task     17            a batch: its number among those that are replayed
    times    Durations     what was recorded (tracing.analysis.whatif.durations)
    thread   a generator: it yields where it waits, and goes on when the machine resumes it
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque
from collections.abc import Callable, Generator

import numpy as np

from tracing.analysis.whatif.durations import Durations, Setting

ROUNDS = 8  # of fitting, at most
EXACT = 0.005  # durations that are off by a smaller share are fitted

Thread = Generator[None, None, None]


class Machine:
    """Its threads wait, compute and wake each other; virtual time passes while none of them can go on."""

    def __init__(self, cores: float, others: float) -> None:
        """`others`: threads of other programs that compute all the time."""
        self.cores, self.busy = cores, others  # busy: threads that compute
        self.now = 0.0
        self._computed = 0.0  # by each thread that has computed all the time (s)
        self._ready: deque[Thread] = deque()
        self._waiting: list[tuple[float, int, Thread]] = []  # a heap: until when
        self._computing: list[tuple[float, int, Thread, float]] = []  # a heap: until `_computed` is this
        self._order = itertools.count()  # of threads that are due at the same time

    def start(self, thread: Thread) -> None:
        self._ready.append(thread)

    def run(self, main: Thread) -> None:
        """Until no thread can go on: those that wait for a message have nothing left to do."""
        self.start(main)
        while self._ready or self._waiting or self._computing:
            if not self._ready:
                self._pass_time()
            self.running = self._ready.popleft()
            next(self.running, None)

    def _pass_time(self) -> None:
        """Until the first thread has waited or computed for long enough."""
        speed = min(1.0, self.cores / self.busy) if self._computing else 1.0
        waits = self._waiting[0][0] - self.now if self._waiting else math.inf
        computes = (self._computing[0][0] - self._computed) / speed if self._computing else math.inf
        passed = min(waits, computes)
        self.now += passed
        self._computed += passed * speed
        if waits <= computes:
            thread = heapq.heappop(self._waiting)[2]
        else:
            _, _, thread, threads = heapq.heappop(self._computing)
            self.busy -= threads
        self._ready.append(thread)

    def spend(self, cpu: float, wait: float = 0.0, helpers: float = 0.0) -> Thread:
        """The running thread waits, and then uses a core, helped by this many threads: seconds of each."""
        if wait > 0:
            heapq.heappush(self._waiting, (self.now + wait, next(self._order), self.running))
            yield
        if cpu > 0:
            self.busy += 1 + helpers
            heapq.heappush(self._computing, (self._computed + cpu, next(self._order), self.running, 1 + helpers))
            yield


class Messages:
    """A queue of tasks, with one reader."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._tasks: deque[int] = deque()
        self._reader: Thread | None = None  # that waits

    def put(self, task: int) -> None:
        self._tasks.append(task)
        if self._reader is not None:
            self._machine.start(self._reader)
            self._reader = None

    def get(self) -> Generator[None, None, int]:
        if not self._tasks:
            self._reader = self._machine.running
            yield
        return self._tasks.popleft()


# ---- the load


class Load:
    """Main, its workers, their feeders and the pin thread, in one setting."""

    def __init__(self, times: Durations, setting: Setting, epochs: int) -> None:
        self.setting, self.epochs = setting, epochs
        # An array's numbers are slow to read one by one.
        self.times = times.but(**{name: each.tolist() for name, each in times.arrays().items()})
        self.machine = Machine(times.cores, times.others)
        self.index_queues: list[Messages] = []
        self.result_queue = self.data_queue = Messages(self.machine)  # the pin thread has a queue of its own
        self.worker_of: dict[int, int] = {}  # of each task that main has not received
        self.making = 0.0  # of all batches (s)
        self.yielded: list[float] = []  # when main had each batch, ...
        self.asked: list[float] = []  # ... and when its training step ended

    def main(self) -> Thread:
        yield from self.start()
        for _ in range(self.epochs):
            arrived: set[int] = set()
            self.next_task, self.turns = 0, itertools.cycle(range(self.setting.num_workers))
            for _ in range(self.setting.num_workers * self.setting.prefetch_factor):
                yield from self.hand_out()
            for number in range(len(self.times)):
                yield from self.next_batch(number, arrived)
                self.yielded.append(self.machine.now)
                step = self.times.training[number]
                computes = self.times.trains_on
                yield from self.machine.spend(computes * step, (1 - computes) * step, self.times.helpers)
                self.asked.append(self.machine.now)

    def start(self) -> Thread:
        """The workers, and the threads between them and main."""
        machine, times = self.machine, self.times
        for _ in range(self.setting.num_workers):
            yield from machine.spend(0.0, times.starting)
            put, index_queue, result = (Messages(machine) for _ in range(3))
            self.index_queues.append(put)
            machine.start(self.moves(put, index_queue, lambda task: (0.0, times.sending[task])))
            machine.start(self.worker(index_queue, result))
            machine.start(self.moves(result, self.result_queue, lambda task: (0.0, times.pickling[task])))
        if self.setting.num_workers and times.pins:
            self.data_queue = Messages(machine)
            machine.start(self.moves(self.result_queue, self.data_queue, self.pinning))

    def moves(self, source: Messages, target: Messages, takes: Callable[[int], tuple[float, float]]) -> Thread:
        """A feeder, or the pin thread: it takes each task from one queue, spends time on it, and puts it in another."""
        while True:
            task = yield from source.get()
            yield from self.machine.spend(*takes(task))
            target.put(task)

    def worker(self, index_queue: Messages, result: Messages) -> Thread:
        yield from self.machine.spend(self.times.preparing_cpu, self.times.preparing_wait)
        warm = False
        while True:
            task = yield from index_queue.get()
            yield from self.make(task, warm)
            warm = True
            result.put(task)

    def make(self, task: int, warm: bool) -> Thread:
        times, begin = self.times, self.machine.now
        if not warm:
            yield from self.machine.spend(times.warming_cpu, times.warming_wait)
        yield from self.machine.spend(times.making_cpu[task], times.making_wait[task])
        self.making += self.machine.now - begin

    def pinning(self, task: int) -> tuple[float, float]:
        unpickling = self.times.unpickling[task] if self.setting.num_workers else 0.0
        return self.times.pinning_cpu[task], unpickling + self.times.pinning_wait[task]

    # ---- main in the loader

    def draw(self) -> Thread:
        yield from self.machine.spend(0.0, self.times.drawing[self.next_task] + self.times.handling)
        self.next_task += 1

    def hand_out(self) -> Thread:
        """A task to the next worker in turn; without order, to the next that has room."""
        task = self.next_task
        if task == len(self.times):
            return
        yield from self.draw()
        worker = next(self.turns)
        while not self.setting.in_order and list(self.worker_of.values()).count(worker) >= self.setting.prefetch_factor:
            worker = next(self.turns)
        self.worker_of[task] = worker
        self.index_queues[worker].put(task)

    def next_batch(self, number: int, arrived: set[int]) -> Thread:
        """Take in batches until one can be yielded: the next one in order, or any."""
        if not self.setting.num_workers:
            yield from self.draw()
            yield from self.make(number, warm=number > 0)
            yield from self.machine.spend(*self.pinning(number))
            return
        while number not in arrived if self.setting.in_order else not arrived:
            task = yield from self.data_queue.get()
            if self.data_queue is self.result_queue:  # else the pin thread has unpickled it
                yield from self.machine.spend(0.0, self.times.unpickling[task])
            del self.worker_of[task]
            arrived.add(task)
        arrived.remove(min(arrived))
        yield from self.hand_out()


class Replay:
    """How long the batches of `times` take in this setting, in seconds, on a machine with as many cores as recorded;
    extrapolated to as many batches and epochs as were recorded."""

    def __init__(self, times: Durations, setting: Setting) -> None:
        times = times.in_setting(setting.num_workers)
        epochs = min(times.epochs, 2) if setting.persistent_workers else 1  # the others are like the last one
        load = Load(times, setting, epochs)
        load.machine.run(load.main())
        yielded, asked = (np.reshape(each, (epochs, len(times))) for each in (load.yielded, load.asked))
        steps = asked - yielded
        waited = np.diff(asked[:, -1], prepend=0.0) - steps.sum(axis=1)
        waited += (times.batches - len(times)) * _waiting(yielded, asked, setting)
        warming = times.warming_cpu + times.warming_wait
        waited[1:] += times.warms_again * warming
        trained = steps.mean(axis=1) * times.batches
        weights = np.append(np.ones(epochs - 1), times.epochs - epochs + 1)
        stops = max(1, times.left) if setting.persistent_workers else times.epochs
        self.total = float((trained + np.maximum(0, waited)) @ weights) + stops * setting.num_workers * times.stopping
        self.trained = float(trained @ weights)  # training steps, of that
        # Of a batch on average, without what only the first ones take.
        self.making = (load.making - max(1, setting.num_workers) * warming) / yielded.size
        self.training = float(steps.mean())  # of a step on average


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
    found = times.but(making_wait=np.zeros(len(times)))
    for _ in range(ROUNDS):
        run = Replay(found, times.setting)
        missing = float(np.clip(making - run.making, -wait, most - wait))
        faster = min(1.0, training / run.training) if run.training and times.trains_on else 1.0
        if abs(missing) <= EXACT * making and faster >= 1 - EXACT:
            break
        wait += missing
        share = wait / most if most else 0.0
        found = found.but(making_wait=share * times.making_wait, training=faster * found.training)
    return found
