"""What torch's iterator is given in place of the loader: one whose context makes queues, an event and processes that
say what is done to them. The loader itself stays as its user sees it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from minidl import events
from minidl.events import (
    JOIN_BEGIN,
    NO_WORKER,
    WORKER_JOINED,
    WORKER_STARTED,
    WORKER_STARTING,
    WORKER_TERMINATED,
    emit,
)
from tracing.recording.torch_loader import attached
from tracing.recording.torch_loader.queues import DoneEvent, IndexQueue, Seat, TracedQueue
from tracing.recording.torch_loader.worker import Job, run


class Relay:
    """The loader, but for its context."""

    def __init__(self, loader: Any, context: Context) -> None:
        self._loader = loader
        self.multiprocessing_context = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class Context:
    """Makes queues, events and processes by the user's context, or torch's default one, and wraps each."""

    def __init__(self, context: Any, seat: Seat, results: type[TracedQueue]) -> None:
        self._context, self._seat, self._results = context, seat, results
        self._queues = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def Queue(self) -> TracedQueue:
        """First worker_result_queue, then each worker's index_queue: torch makes them in this order."""
        self._queues += 1
        if self._queues == 1:
            return self._results(self._context.Queue(), NO_WORKER, self._seat)
        return IndexQueue(self._context.Queue(), self._queues - 2, self._seat)

    def Event(self) -> DoneEvent:
        return DoneEvent(self._context.Event(), self._seat)

    def Process(self, target: Callable[..., None], args: tuple[Any, ...]) -> Process:
        worker_id = inspect.signature(target).bind(*args).arguments["worker_id"]
        bare = tuple(
            arg.queue if isinstance(arg, TracedQueue) else arg.event if isinstance(arg, DoneEvent) else arg
            for arg in args
        )
        job = Job(events.installed(), self._seat.epoch_id, worker_id, attached.in_workers)
        return Process(self._context.Process(target=run, args=(job, target, bare)), worker_id, self._seat)


class Process:
    """A worker's process, in main."""

    def __init__(self, process: Any, worker_id: int, seat: Seat) -> None:
        self.process, self._worker_id, self._seat = process, worker_id, seat

    def __getattr__(self, name: str) -> Any:
        return getattr(self.process, name)

    @property
    def daemon(self) -> bool:
        return bool(self.process.daemon)

    @daemon.setter
    def daemon(self, value: bool) -> None:
        self.process.daemon = value

    def start(self) -> None:
        emit(WORKER_STARTING, self._seat.epoch_id, worker=self._worker_id)
        self.process.start()
        emit(WORKER_STARTED, self._seat.epoch_id, worker=self._worker_id, value=self.process.pid or 0)

    def join(self, timeout: float | None = None) -> None:
        bound = int((timeout or 0) * 1e9)
        emit(JOIN_BEGIN, self._seat.epoch_id, worker=self._worker_id, value=bound)
        self.process.join(timeout)
        if not self.process.is_alive():
            code = self.process.exitcode or 0
            emit(WORKER_JOINED, self._seat.epoch_id, worker=self._worker_id, value=code)

    def terminate(self) -> None:
        emit(WORKER_TERMINATED, self._seat.epoch_id, worker=self._worker_id)
        self.process.terminate()
