"""Queues that emit what is put and what is taken. Each wraps one of multiprocessing's, which does the work.

The wrappers are at both ends, so a message can travel in an envelope:

    put((4, [16, 17]))  ->  (worker_id, epoch_id, (4, [16, 17]))  ->  get() == (4, [16, 17])

The envelope says which worker sent a result: torch's workers share one queue, and the events describe a queue
per worker, as minidl has them. It also says whether the result is of an epoch that was abandoned.

Legend
    message   (4, [16, 17])       a task, on index_queue: `(idx, index)` in torch's names
              (4, batch)          a result
              (4, (batch, 0, s))  the same of torchdata's worker 0, with its state
              (Resume, None)      a worker's acknowledgement; on index_queue Resume alone. (torchdata's workers send
                                  one before their first task, too.)
              None                leave the loop, on index_queue
              (None, None)        wakes the pin thread, so that it looks at its done event
"""

from __future__ import annotations

from queue import Empty
from typing import Any

from torch._utils import ExceptionWrapper
from torch.utils.data._utils.worker import _IterableDatasetStopIteration

from minidl import events
from minidl.events import NO_TASK, NO_WORKER, RESUME, STOP, WAKE, Queue, emit
from tracing.recording import system_calls
from tracing.recording.torch_loader.common import Progress, Wrapper

IN_PLACE = (ExceptionWrapper, _IterableDatasetStopIteration)  # of a batch


def label(message: Any) -> int:
    """A message as an event names it: by its task, or by the negative code of one that has none."""
    if type(message) is tuple:
        idx = message[0]
        return idx if type(idx) is int else WAKE if idx is None else RESUME
    return STOP if message is None else RESUME


def content(data: Any) -> Any:
    """A result, or the error or end of a stream that is sent in its place."""
    return data[0] if type(data) is tuple and data and isinstance(data[0], IN_PLACE) else data


def has_ended(data: Any) -> bool:
    """Whether a worker says that its stream has ended."""
    return isinstance(content(data), _IterableDatasetStopIteration)


class PipeTap:
    """Between a queue and its pipe: emits when a reader begins to wait, and when a whole message has been read, before
    it is unpickled. It refers to the pipe and not to the queue, which refers to it: no cycle delays the end of either.

    A queue's own poll makes a selector each time (15 us): here only if it has to wait."""

    def __init__(self, queue: Any, name: Queue, worker: int, progress: Progress) -> None:
        self._name, self._worker, self._progress = name, worker, progress
        self.arrived = False  # whether a message has, since `get` began
        self._at = system_calls.readable(queue._reader.fileno())
        self._receive, queue._recv_bytes = queue._recv_bytes, self.receive
        self._wait, queue._poll = queue._poll, self.poll

    def poll(self, timeout: float = 0.0) -> bool:
        """Whether something can be read, within `timeout` seconds."""
        return self.look(timeout) or bool(timeout > 0 and self._wait(timeout))

    def look(self, timeout: float | None) -> bool:
        """Whether something can be read now. If not, the reader waits that long; None: for ever."""
        if system_calls.poll(self._at, 1, 0) > 0:
            return True
        emit(events.WAIT, self._progress.epoch_id, NO_TASK, self._worker, self._name, int((timeout or 0) * 1e9))
        return False

    def receive(self) -> bytes:
        data: bytes = self._receive()
        self.arrived = True
        emit(events.ARRIVED, self._progress.epoch_id, NO_TASK, self._worker, self._name, len(data))
        return data


class TracedQueue(Wrapper):
    """One end of a queue. Through it pass the messages of its worker; NO_WORKER: every worker's."""

    name = Queue.NONE
    sender, epoch_id = NO_WORKER, 0  # of the message that was taken last
    tap: PipeTap | None = None  # made by the process that takes, at its first get; of a queue with a pipe

    def put(self, message: Any, block: bool = True, timeout: float | None = None) -> None:
        emit(events.PUT, self.progress.epoch_id, label(message), self.worker, self.name)
        self.wrapped.put((self.worker, self.progress.epoch_id, message), block, timeout)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        progress, name = self.progress, self.name
        self.look(timeout if block else 0)
        try:
            self.sender, self.epoch_id, message = self.wrapped.get(block, timeout)
        except Empty:
            emit(events.TIMED_OUT, progress.epoch_id, worker=self.worker, queue=name)
            raise
        except Exception as error:
            # What has arrived could not be unpickled. (Else a signal's handler raised, and nothing was taken.)
            if self.tap is not None and self.tap.arrived:
                emit(events.GOT, progress.epoch_id, worker=self.worker, queue=name, text=repr(error))
            raise
        emit(events.GOT, self.epoch_id, label(message), NO_WORKER if name == Queue.DATA else self.sender, name)
        return message

    def look(self, timeout: float | None) -> None:
        """Before a `get`: is there anything, or does it wait?"""
        if self.tap is None:
            self.tap = PipeTap(self.wrapped, self.name, self.worker, self.progress)
        self.tap.arrived = False
        if timeout is None:  # else the queue polls
            self.tap.look(None)


class IndexQueue(TracedQueue):
    """main -> one worker: main's end."""

    name = Queue.INDEX

    def put(self, message: Any, block: bool = True, timeout: float | None = None) -> None:
        progress = self.progress
        if type(message) is tuple:
            progress.outstanding += 1
            emit(events.DISPATCHED, progress.epoch_id, message[0], self.worker, value=progress.outstanding)
        super().put(message, block, timeout)


class ResultQueue(TracedQueue):
    """All workers -> main: main's end, if there is no pin thread."""

    name = Queue.RESULT


class PinnedResults(ResultQueue):
    """The pin thread's end: between a get and the next put on data_queue it only pins. torch: `_pin_memory_loop`"""

    pinning = NO_TASK

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if self.tap is None:  # for the first time
            emit(events.PIN_THREAD_BEGIN, self.progress.epoch_id)
        message = super().get(block, timeout)
        batch = label(message) >= 0 and not isinstance(content(message[1]), IN_PLACE)
        self.pinning = message[0] if batch else NO_TASK
        if batch:
            emit(events.PIN_BEGIN, self.epoch_id, self.pinning, self.sender)
        return message

    def cancel_join_thread(self) -> None:
        emit(events.PIN_JOINED, self.progress.epoch_id, value=1)  # main does so after joining
        self.wrapped.cancel_join_thread()


class DataQueue(TracedQueue):
    """pin thread -> main: a queue.Queue without a limit, in one process."""

    name = Queue.DATA

    def __init__(self, queue: Any, results: Any) -> None:
        """`results`: worker_result_queue, from which the pin thread, about to be started, and not main will get."""
        super().__init__(queue, results.progress)
        results.__class__ = PinnedResults
        self.results: PinnedResults = results

    def put(self, message: Any, block: bool = True, timeout: float | None = None) -> None:
        results = self.results
        epoch_id, task = results.epoch_id, label(message)
        if results.pinning == task >= 0:
            error = content(message[1])
            failed = error.exc_msg if isinstance(error, ExceptionWrapper) else None
            emit(events.PIN_END if failed is None else events.PIN_FAILED, epoch_id, task, results.sender, text=failed)
        emit(events.PUT, epoch_id, task, NO_WORKER, Queue.DATA)
        self.wrapped.put((results.sender, epoch_id, message), block, timeout)

    def look(self, timeout: float | None) -> None:
        if self.wrapped.empty():
            emit(events.WAIT, self.progress.epoch_id, queue=Queue.DATA, value=int((timeout or 0) * 1e9))


class DoneEvent(Wrapper):
    """workers_done_event, in main."""

    def set(self) -> None:
        emit(events.DONE_SET, self.progress.epoch_id)
        self.wrapped.set()


def emit_send_failures(queue: Any) -> None:
    """torch loses a result that cannot be pickled: its feeder thread prints the error. Here it emits it, too."""
    print_error = queue._on_queue_feeder_error

    def failed(error: BaseException, envelope: Any) -> None:
        worker, epoch_id, message = envelope
        emit(events.SEND_FAILED, epoch_id, label(message), worker, Queue.RESULT, text=repr(error))
        print_error(error, message)

    queue._on_queue_feeder_error = failed
