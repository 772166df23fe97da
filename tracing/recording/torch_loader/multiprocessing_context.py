"""Main: the multiprocessing_context through which torch's iterator makes its queues, its done event and its workers'
processes. Here each of them emits what is done to it. The user's loader stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minidl import events
from minidl.events import NO_WORKER, emit
from tracing.recording.torch_loader.common import Wrapper
from tracing.recording.torch_loader.queues import DoneEvent, IndexQueue, ResultQueue, TracedQueue
from tracing.recording.torch_loader.worker import run


def in_context(loader: Any, context: TracedContext) -> Any:
    """What the iterator is given as its loader: the user's, with the same attributes, except for the context."""
    cls: Any = type(loader)
    differing = {"multiprocessing_context": context, "__del__": lambda self: None}  # it is the user's loader that ends
    seen = object.__new__(type(cls)(cls.__name__, (cls,), differing))
    object.__setattr__(seen, "__dict__", loader.__dict__)
    return seen


class TracedContext(Wrapper):
    """Makes queues, events and processes in the user's context, or torch's default one, and wraps each.

    torch makes worker_result_queue first, then each worker's index_queue and, next, its process."""

    _made = NO_WORKER - 1  # whose queue was made last; NO_WORKER: that was worker_result_queue

    def Queue(self) -> TracedQueue:
        self._made += 1
        kind = ResultQueue if self._made == NO_WORKER else IndexQueue
        return kind(self.wrapped.Queue(), self.progress, self._made)

    def Event(self) -> DoneEvent:
        return DoneEvent(self.wrapped.Event(), self.progress)

    def Process(self, target: Callable[..., None], args: tuple[Any, ...]) -> TracedProcess:
        bare = tuple(arg.wrapped if isinstance(arg, Wrapper) else arg for arg in args)
        ours = (events.installed(), self.progress.epoch_id, self._made)
        process = self.wrapped.Process(target=run, args=(*ours, target, *bare))
        return TracedProcess(process, self.progress, self._made)


class TracedProcess(Wrapper):
    """A worker's process, as main sees it."""

    _is_awaited = False  # main has waited for its end, and not yet seen it

    def _emit(self, kind: int, value: int = 0) -> None:
        emit(kind, self.progress.epoch_id, worker=self.worker, value=value)

    def start(self) -> None:
        self._emit(events.WORKER_STARTING)
        self.wrapped.daemon = self.daemon  # torch has set it here
        self.wrapped.start()
        self._emit(events.WORKER_STARTED, self.wrapped.pid or 0)

    def join(self, timeout: float | None = None) -> None:
        self._emit(events.JOIN_BEGIN, int((timeout or 0) * 1e9))
        self.wrapped.join(timeout)
        self._is_awaited = True
        self.is_alive()

    def is_alive(self) -> bool:
        """torch asks again when it has waited for the others, too: by then one that was slow to exit may have ended."""
        alive = bool(self.wrapped.is_alive())
        if self._is_awaited and not alive:
            self._is_awaited = False
            self._emit(events.WORKER_JOINED, self.wrapped.exitcode or 0)
        return alive

    def terminate(self) -> None:
        self._emit(events.WORKER_TERMINATED)
        self.wrapped.terminate()
