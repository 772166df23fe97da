"""The worker process: take a task, fetch its samples, collate them, put the batch on the result queue.

Legend: worker_id 0, keys [12, 13, 14, 15], fetcher (minidl.data.fetch) asks the dataset for the samples of keys.
torch: _utils/worker.py
"""

from __future__ import annotations

import enum
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy.random  # here, once: numpy imports it on first use, which would be in every forked worker
import torch
import torch.utils.data
from torch._utils import ExceptionWrapper

from minidl import events
from minidl.data.collate import stack_for_torch_too
from minidl.data.fetch import Fetcher, create_fetcher, emit_failed, load
from minidl.events import NO_TASK, Queue, emit
from minidl.messages import Died, Result, Resume, Resumed, Stop, StreamEnd
from minidl.queues import Consumer, DirectProducer, Producer
from minidl.transport import Handles, Packer
from minidl.world import Flag, Reader, World, Writer


@dataclass(frozen=True)
class Job:
    """Everything that a worker is given when it starts. Under spawn and forkserver it is pickled."""

    world: World
    recorder: events.Recorder | None
    epoch_id: int  # the first epoch's
    worker_id: int
    num_workers: int
    base_seed: int
    init_fn: Callable[[int], None] | None
    dataset: Any
    how_to_fetch: tuple[Any, ...]  # what create_fetcher needs besides
    transport: str  # "slots" or "torch"
    index_reader: Reader
    result_writer: Writer
    done: Flag  # workers_done_event: set when main shuts down


class End(enum.IntEnum):
    """Why a worker left its loop."""

    STOPPED = 0  # by main
    PARENT_DIED = 1  # main is dead
    INTERRUPTED = 2  # by Ctrl-C: main is interrupted too, and raises it


def run(job: Job, worker_class: Callable[..., Worker]) -> None:
    """The worker's process, from its first line to its last. torch: _worker_loop"""
    events.install(job.recorder)
    events.number_loaders_from(job.world.pid())
    slots = job.transport == "slots"
    transport = Packer(job.world, job.worker_id) if slots else Handles(job.world)
    kind = DirectProducer if slots else Producer
    result_queue = kind(job.world, job.result_writer, Queue.RESULT, job.worker_id, transport)
    end = End.INTERRUPTED
    try:
        emit(events.WORKER_BEGIN, job.epoch_id, worker=job.worker_id, value=job.world.pid())
        job.world.report_crashes()
        job.world.name_thread("pt_data_worker")
        index_queue = Consumer(job.world, Queue.INDEX, job.epoch_id)
        index_queue.add(job.worker_id, job.index_reader, job.world.parent())
        seed_everything(job)
        if slots:
            stack_for_torch_too()
        worker = worker_class(job, index_queue, result_queue, transport)
        job.world.on_interrupt(worker.note_interrupt)
        try:
            end = worker.loop()
        finally:
            worker.fetcher = None  # a stream that was left early ends here: SIGINT's handler keeps the worker
    except KeyboardInterrupt:
        pass  # the terminal sends Ctrl-C to main as well, and main raises it
    emit(events.WORKER_END, job.epoch_id, worker=job.worker_id, value=end)
    result_queue.close()
    # Otherwise the results are no longer read: a feeder that is blocked on a full pipe never ends, and joining it would
    # be a deadlock (pytorch#48666). torch: cancel_join_thread
    if end is End.STOPPED and not job.done.is_set():
        result_queue.join_thread()


def seed_everything(job: Job) -> None:
    """Give the worker random numbers of its own: the same in every run, and not its siblings'."""
    torch.set_num_threads(1)  # as many workers as cores, with as many threads each, would fight for the cores
    seed = job.base_seed + job.worker_id
    random.seed(seed)
    torch.manual_seed(seed)
    torchs = torch.utils.data._utils.worker
    # Words for numpy such that neighbouring workers, or base seeds that differ by one, draw unrelated numbers.
    numpy.random.seed(torchs._generate_state(job.base_seed, job.worker_id))
    # So torch's get_worker_info(), which is minidl's too, works in here.
    torchs._worker_info = torchs.WorkerInfo(
        id=job.worker_id, num_workers=job.num_workers, seed=seed, dataset=job.dataset
    )
    emit(events.WORKER_SEEDED, job.epoch_id, worker=job.worker_id, value=seed)


@dataclass
class Worker:
    """What a worker knows between two tasks."""

    job: Job
    index_queue: Consumer
    result_queue: Producer
    transport: Packer | Handles
    fetcher: Any = None
    interrupted: bool = False  # Ctrl-C came, though its KeyboardInterrupt may have been swallowed
    stream_ended: bool = False  # the iterable dataset has no more samples in this epoch
    init_failure: ExceptionWrapper | None = None  # worker_init_fn raised
    failure: ExceptionWrapper | None = None  # that, or what iter(dataset) raised in this epoch: answers every task

    def loop(self) -> End:
        """Do tasks until Stop comes, or until main is dead. torch: _worker_loop"""
        self.start()
        while not self.interrupted:
            message = self.index_queue.get()
            if isinstance(message, Stop):
                return End.STOPPED
            if isinstance(message, Died):
                emit(events.PARENT_DIED, message.epoch_id, worker=self.job.worker_id)
                return End.PARENT_DIED
            if isinstance(message, Resume):
                self.resume(message)
            elif not self.job.done.is_set() and not self.stream_ended:
                # Otherwise the task is skipped, since main shuts down or will skip it too: only Stop is still to come.
                room = self.transport.room(message.slot, message.fresh)
                data = self.data_of(message)
                self.result_queue.put(self.answer(message, data, room))
                del data, room
            del message  # nothing of a task outlives it: the samples may be large
        return End.INTERRUPTED

    def note_interrupt(self) -> None:
        self.interrupted = True

    def start(self) -> None:
        job = self.job
        if job.init_fn is not None:
            emit(events.INIT_FN_BEGIN, job.epoch_id, worker=job.worker_id)
            try:
                job.init_fn(job.worker_id)
            except Exception as error:
                self.init_failure = self.wrap(error, job.epoch_id)
            emit(events.INIT_FN_END, job.epoch_id, worker=job.worker_id)
        self.begin_epoch(job.epoch_id)
        emit(events.WORKER_READY, job.epoch_id, worker=job.worker_id)

    def begin_epoch(self, epoch_id: int) -> None:
        """Make a fetcher: an iterable dataset is iterated from its start."""
        self.stream_ended = False
        self.failure = self.init_failure
        if self.failure is None:
            try:
                self.fetcher = self.make_fetcher()
            except Exception as error:
                self.failure = self.wrap(error, epoch_id)

    def make_fetcher(self) -> Fetcher:
        return create_fetcher(self.job.dataset, *self.job.how_to_fetch)

    def wrap(self, error: Exception, epoch_id: int) -> ExceptionWrapper:
        """The answer to every task of an epoch that could not begin."""
        emit_failed(error, epoch_id, NO_TASK, self.job.worker_id)
        return ExceptionWrapper(where=f"in DataLoader worker process {self.job.worker_id}")

    def resume(self, message: Resume) -> None:
        """A new epoch of a persistent worker. It says so first: `iter(dataset)` may take long, or wait for main."""
        emit(events.WORKER_RESUMED, message.epoch_id, worker=self.job.worker_id)
        self.result_queue.put(Resumed(message.epoch_id, self.job.worker_id))
        self.begin_epoch(message.epoch_id)

    def answer(self, task: Any, data: Any, room: Any) -> Result:
        return Result(task.epoch_id, task.task_id, self.job.worker_id, data, room)

    def data_of(self, task: Any) -> Any:
        """The batch of a task, or what takes its place. An exception must not end the worker: it travels to main,
        which raises it when the task's turn comes."""
        worker_id = self.job.worker_id
        if self.failure is not None:
            return self.failure
        if isinstance(task.keys, ExceptionWrapper):
            return task.keys  # the keys could not be pickled
        try:
            return load(self.fetcher, task.keys, task.epoch_id, task.task_id, worker_id)
        except Exception as error:
            if isinstance(error, StopIteration) and isinstance(self.job.dataset, torch.utils.data.IterableDataset):
                self.stream_ended = True
                emit(events.STREAM_END, task.epoch_id, task.task_id, worker_id)
                return StreamEnd(worker_id)
            return ExceptionWrapper(where=f"in DataLoader worker process {worker_id}")
