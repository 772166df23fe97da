"""A DataLoader on one page: `for batch in DataLoader(dataset, batch_size=4, num_workers=2): ...`

Notebook 0 builds it and breaks it. Statements with `emit` or `events` only report to the tracer."""

import itertools
import multiprocessing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch.utils.data import default_collate

from minidl import events
from minidl.events import Kind, Queue, emit


@dataclass
class DataLoader:
    dataset: Any
    batch_size: int = 1
    num_workers: int = 0
    sampler: Any = None  # the keys, in the order of the samples; None: 0, 1, 2, ...
    prefetch_factor: int = 2  # tasks under way, for each worker
    collate_fn: Any = default_collate  # makes a batch of its samples

    def __iter__(self) -> Iterator[Any]:
        tasks = self.start()
        return self.in_workers(tasks) if self.num_workers else self.in_main(tasks)

    def in_main(self, tasks: Iterator[Any]) -> Iterator[Any]:
        for task_id, keys in tasks:
            emit(Kind.ASKED, self.epoch)
            batch = self.make(task_id, keys)
            emit(Kind.YIELDED, self.epoch, task_id)
            yield batch
        emit(Kind.EPOCH_END, self.epoch)

    def in_workers(self, tasks: Iterator[Any]) -> Iterator[Any]:
        turn, arrived = 0, {}  # the task whose batch is next; batches that came before their turn
        under_way = self.send(tasks, self.prefetch_factor * self.num_workers)
        while under_way:
            emit(Kind.ASKED, self.epoch)
            if turn in arrived:
                emit(Kind.RELEASED, self.epoch, turn)
            while turn not in arrived:
                task_id, batch = self.receive()
                arrived[task_id] = batch
                if task_id != turn:
                    emit(Kind.STORED, self.epoch, task_id, value=turn)
            under_way += self.send(tasks, 1) - 1  # a new task for each batch that is handed out
            emit(Kind.YIELDED, self.epoch, turn)
            yield arrived.pop(turn)
            turn += 1
        emit(Kind.EPOCH_END, self.epoch)
        self.end()

    def start(self) -> Iterator[Any]:
        """Start the workers. Returns the tasks: (3, [12, 13, 14, 15]) is batch 3, of the samples with these keys."""
        self.epoch, self.recorder = events.new_loader(), events.installed()
        emit(Kind.LOADER, self.epoch, value=self.num_workers)
        context, workers = multiprocessing.get_context("fork"), range(self.num_workers)
        self.index_queues, self.results = [context.Queue() for _ in workers], context.Queue()
        self.workers = [context.Process(target=self.work, args=(n,), daemon=True) for n in workers]
        for worker_id, worker in enumerate(self.workers):
            emit(Kind.WORKER_STARTING, self.epoch, worker=worker_id)
            worker.start()
        emit(Kind.EPOCH_BEGIN, self.epoch, value=-1)
        keys = iter(range(len(self.dataset)) if self.sampler is None else self.sampler)
        return enumerate(iter(lambda: list(itertools.islice(keys, self.batch_size)), []))

    def work(self, worker_id: int) -> None:
        """A worker's process, from its first line to its last."""
        events.install(self.recorder)
        emit(Kind.WORKER_BEGIN, self.epoch, worker=worker_id)
        emit(Kind.WAIT, self.epoch, worker=worker_id, queue=Queue.INDEX)
        while (task := self.index_queues[worker_id].get()) is not None:
            emit(Kind.GOT, self.epoch, task[0], worker_id, Queue.INDEX)
            batch = self.make(task[0], task[1], worker_id)
            emit(Kind.PUT, self.epoch, task[0], worker_id, Queue.RESULT)
            self.results.put((task[0], batch))
            emit(Kind.WAIT, self.epoch, worker=worker_id, queue=Queue.INDEX)
        emit(Kind.WORKER_END, self.epoch, worker=worker_id)

    def make(self, task_id: int, keys: list[Any], worker_id: int = -1) -> Any:
        emit(Kind.FETCH_BEGIN, self.epoch, task_id, worker_id)
        samples = [self.dataset[key] for key in keys]
        emit(Kind.FETCH_END, self.epoch, task_id, worker_id)
        emit(Kind.COLLATE_BEGIN, self.epoch, task_id, worker_id)
        batch = self.collate_fn(samples)
        emit(Kind.COLLATE_END, self.epoch, task_id, worker_id)
        return batch

    def send(self, tasks: Iterator[Any], count: int | None = None) -> int:
        """Send the next tasks, to the workers in turn. Returns how many: less than `count` if there are no more."""
        sent = list(itertools.islice(tasks, count))
        for task_id, keys in sent:
            emit(Kind.DISPATCHED, self.epoch, task_id, task_id % self.num_workers)
            emit(Kind.PUT, self.epoch, task_id, task_id % self.num_workers, Queue.INDEX)
            self.index_queues[task_id % self.num_workers].put((task_id, keys))
        return len(sent)

    def receive(self) -> tuple[int, Any]:
        emit(Kind.WAIT, self.epoch, queue=Queue.RESULT)
        task_id, batch = self.results.get()
        emit(Kind.GOT, self.epoch, task_id, task_id % self.num_workers, Queue.RESULT)
        emit(Kind.RECEIVED, self.epoch, task_id, task_id % self.num_workers)
        return task_id, batch

    def end(self) -> None:
        emit(Kind.SHUTDOWN_BEGIN, self.epoch)
        for index_queue in self.index_queues:
            index_queue.put(None)
        for worker_id, worker in enumerate(self.workers):
            worker.join()
            emit(Kind.WORKER_JOINED, self.epoch, worker=worker_id)
        emit(Kind.SHUTDOWN_END, self.epoch)
