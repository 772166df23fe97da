"""What a worker sends along with each batch: where its dataset is after it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from torch._utils import ExceptionWrapper

from minidl.checkpoint.source import Source
from minidl.data.fetch import emit_failed
from minidl.events import NO_TASK
from minidl.messages import Result, Resumed
from minidl.queues import Producer

if TYPE_CHECKING:
    from minidl.worker import Worker


class Telling:
    """The result queue, as the worker's loop sees it."""

    def __init__(self, worker: Worker, result_queue: Producer) -> None:
        self.worker = worker
        self.result_queue = result_queue

    def put(self, result: Result | Resumed) -> None:
        worker, source = self.worker, self.worker.source
        if source is not None and worker.failure is None:
            if isinstance(result, Resumed):
                source.told, source.signs = {}, None  # of the old epoch, what was not yielded is forgotten
            else:
                source.batches += 1
                source.failed += [source.batches] * isinstance(result.data, ExceptionWrapper)
            if self.is_wanted(result.task_id) and (place := self.place(source)):
                result = replace(result, place=place)
        self.result_queue.put(result)

    def is_wanted(self, task_id: int) -> bool:
        """Main takes a snapshot every `snapshots` batches: is this task the worker's last before one?
        (If workers persist, each is, and so is the answer to a Resume.)"""
        return -(task_id + 1) % self.worker.job.snapshots < self.worker.job.num_workers

    def place(self, source: Source) -> dict[str, bytes] | ExceptionWrapper:
        """What main does not know of it, or the error of the user's `state_dict()`."""
        job = self.worker.job
        try:
            return source.news()
        except Exception as error:
            emit_failed(error, job.epoch_id, NO_TASK, job.worker_id)
            return ExceptionWrapper(where=f"in DataLoader worker process {job.worker_id}, asked for its state")
