"""Queues that say what is put and what is taken. Each wraps one of multiprocessing's, which does the work.

The wrappers are at both ends, so a message can travel in an envelope:

    put((4, [16, 17]))  ->  (worker_id, epoch_id, (4, [16, 17]))  ->  get() == (4, [16, 17])

By it main knows of each result whose it is: the queue is one for all workers, but each worker's messages are told
as those of a queue of its own, as minidl has them. And it tells results of an epoch that was abandoned from others.

Legend
    message   (4, [16, 17])       a task, on index_queue: `(idx, index)` in torch's names
              (4, batch)          a result
              (Resume, None)      a worker's acknowledgement; on index_queue Resume alone
              None                leave the loop, on index_queue
              (None, None)        wakes the pin thread, so that it looks at its done event
"""

from __future__ import annotations

import select
from collections.abc import Callable
from queue import Empty
from typing import Any

from torch._utils import ExceptionWrapper
from torch.utils.data._utils.worker import _IterableDatasetStopIteration, _ResumeIteration

from minidl.events import (
    ARRIVED,
    CLOSED,
    DISPATCHED,
    DONE_SET,
    GOT,
    HEALTH_CHECK,
    JOIN_CANCELLED,
    NO_TASK,
    NO_WORKER,
    PIN_BEGIN,
    PIN_END,
    PIN_FAILED,
    PIN_JOINED,
    PIN_THREAD_BEGIN,
    PUT,
    RESUME,
    SEND_FAILED,
    STOP,
    TIMED_OUT,
    WAIT,
    WAKE,
    Queue,
    emit,
)

ENVELOPE_AT = 11  # bytes; before the first thing in a pickle stand its protocol (2) and the length of its frame (9)
BYTE = ord("K")  # what a pickle says before an int below 256


def label(message: Any) -> int:
    """What an event says of a message: its task, or the negative code of one that has none."""
    if type(message) is tuple:
        idx = message[0]
        return idx if type(idx) is int else RESUME if isinstance(idx, _ResumeIteration) else WAKE
    return STOP if message is None else RESUME


class Seat:
    """What one side of an iterator knows at the moment: main, or one of its workers."""

    def __init__(self, epoch_id: int) -> None:
        self.epoch_id = epoch_id  # of the last message; events that concern no message belong there
        self.task = NO_TASK  # a worker's: what it does; main's: what it holds the batch of
        self.outstanding = 0  # main's: tasks sent, and no result received


class Tap:
    """Between a queue and its pipe: says when a whole message has been read, before it is unpickled. It knows the pipe
    and not the queue, which holds it: no cycle delays the end of either."""

    def __init__(self, queue: Any, name: Queue, worker: int, seat: Seat) -> None:
        self._name, self._worker, self._seat = name, worker, seat
        self.arrived = False  # a message, since `get` began
        self.sender = worker  # whose that was
        # poll(0) is empty if there is nothing to read. The queue's own poll makes a selector each time, for 15 us.
        poller = select.poll()
        poller.register(queue._reader.fileno(), select.POLLIN)
        self.poll: Callable[[int], Any] = poller.poll
        self._receive, queue._recv_bytes = queue._recv_bytes, self.receive

    def receive(self) -> bytes:
        data: bytes = self._receive()
        self.arrived = True
        if self._worker == NO_WORKER:  # the envelope begins with it
            known = len(data) > ENVELOPE_AT + 1 and data[ENVELOPE_AT] == BYTE
            self.sender = data[ENVELOPE_AT + 1] if known else NO_WORKER
        emit(ARRIVED, self._seat.epoch_id, NO_TASK, self.sender, self._name, len(data))
        return data


class TracedQueue:
    """One end of a queue. What is not said here is the wrapped queue's."""

    name = Queue.NONE
    follows = False  # whether what is taken decides what the seat's side works on: so it is in a worker

    def __init__(self, queue: Any, worker: int, seat: Seat) -> None:
        self.queue = queue
        self.worker = worker  # whose messages are put and taken here; NO_WORKER: every worker's
        self.seat = seat
        self.sender, self.epoch_id = NO_WORKER, seat.epoch_id  # of the message that was taken last
        self.tap: Tap | None = None  # made by the process that takes: a fork forgets it

    def __getattr__(self, name: str) -> Any:
        return getattr(self.queue, name)

    def put(self, message: Any, block: bool = True, timeout: float | None = None) -> None:
        epoch_id = self.seat.epoch_id
        emit(PUT, epoch_id, label(message), self.worker, self.name)
        self.queue.put((self.worker, epoch_id, message), block, timeout)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        tap, seat, name = self.tap, self.seat, self.name
        if tap is None:
            tap = self.tap = Tap(self.queue, name, self.worker, seat)
        tap.arrived = False
        if not tap.poll(0):
            emit(WAIT, seat.epoch_id, NO_TASK, self.worker, name, int((timeout or 0) * 1e9))
        try:
            self.sender, self.epoch_id, message = self.queue.get(block, timeout)
        except Empty:
            self.timed_out()
            raise
        except Exception as error:
            if tap.arrived:  # it could not be unpickled. (Else a signal's handler raised, and nothing was taken.)
                emit(GOT, seat.epoch_id, NO_TASK, tap.sender, name, text=repr(error))
            raise
        task = message[0] if type(message) is tuple else NO_TASK  # most are tasks, and a call costs more
        if type(task) is not int or task < 0:
            task = label(message)
        if self.follows:
            seat.epoch_id, seat.task = self.epoch_id, task
        emit(GOT, self.epoch_id, task, self.sender, name)
        return message

    def timed_out(self) -> None:
        emit(TIMED_OUT, self.seat.epoch_id, NO_TASK, self.worker, self.name)

    def cancel_join_thread(self) -> None:
        emit(JOIN_CANCELLED, self.seat.epoch_id, NO_TASK, self.worker, self.name)
        self.queue.cancel_join_thread()

    def close(self) -> None:
        buffered = len(getattr(self.queue, "_buffer", ()))
        emit(CLOSED, self.seat.epoch_id, NO_TASK, self.worker, self.name, buffered)
        self.queue.close()


class IndexQueue(TracedQueue):
    """main -> one worker: main's end."""

    name = Queue.INDEX

    def put(self, message: Any, block: bool = True, timeout: float | None = None) -> None:
        seat, worker = self.seat, self.worker
        if type(message) is tuple:
            seat.outstanding += 1
            emit(DISPATCHED, seat.epoch_id, task := message[0], worker, value=seat.outstanding)
        else:
            task = label(message)
        emit(PUT, seat.epoch_id, task, worker, Queue.INDEX)
        self.queue.put((worker, seat.epoch_id, message), block, timeout)


class ResultQueue(TracedQueue):
    """All workers -> main: main's end."""

    name = Queue.RESULT

    def timed_out(self) -> None:
        super().timed_out()
        emit(HEALTH_CHECK, self.seat.epoch_id)  # main looks whether all workers are alive. torch: `_try_get_data`


class PinnedResults(TracedQueue):
    """What the pin thread reads: between a get and the next put on data_queue it does nothing but pin. torch:
    `_pin_memory_loop`"""

    name = Queue.RESULT
    pinning = NO_TASK
    _begun = False

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if not self._begun:
            self._begun = True
            emit(PIN_THREAD_BEGIN, self.seat.epoch_id)
        message = super().get(block, timeout)
        batch = label(message) >= 0 and not isinstance(message[1], (ExceptionWrapper, _IterableDatasetStopIteration))
        self.pinning = message[0] if batch else NO_TASK
        if batch:
            emit(PIN_BEGIN, self.epoch_id, self.pinning, self.sender)
        return message

    def cancel_join_thread(self) -> None:
        emit(PIN_JOINED, self.seat.epoch_id, value=1)  # main does this once it has
        super().cancel_join_thread()


class DataQueue:
    """pin thread -> main: a queue.Queue, in one process."""

    name = Queue.DATA

    def __init__(self, queue: Any, results: PinnedResults) -> None:
        self.queue = queue
        self.results = results
        self.sender = NO_WORKER

    def __getattr__(self, name: str) -> Any:
        return getattr(self.queue, name)

    def put(self, message: Any, block: bool = True, timeout: float | None = None) -> None:
        results = self.results
        epoch_id, task = results.epoch_id, label(message)
        if results.pinning == task >= 0:
            failed = message[1].exc_msg if isinstance(message[1], ExceptionWrapper) else None
            emit(PIN_END if failed is None else PIN_FAILED, epoch_id, task, results.sender, text=failed)
            results.pinning = NO_TASK  # a put that is tried again, on a full queue, ends nothing a second time
        emit(PUT, epoch_id, task, NO_WORKER, Queue.DATA)
        self.queue.put((results.sender, epoch_id, message), block, timeout)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        seat = self.results.seat
        if self.queue.empty():
            emit(WAIT, seat.epoch_id, NO_TASK, NO_WORKER, Queue.DATA, int((timeout or 0) * 1e9))
        try:
            self.sender, epoch_id, message = self.queue.get(block, timeout)
        except Empty:
            emit(TIMED_OUT, seat.epoch_id, NO_TASK, NO_WORKER, Queue.DATA)
            emit(HEALTH_CHECK, seat.epoch_id)
            raise
        emit(GOT, epoch_id, label(message), NO_WORKER, Queue.DATA)
        return message


class DoneEvent:
    """workers_done_event, in main."""

    def __init__(self, event: Any, seat: Seat) -> None:
        self.event = event
        self.seat = seat

    def __getattr__(self, name: str) -> Any:
        return getattr(self.event, name)

    def set(self) -> None:
        emit(DONE_SET, self.seat.epoch_id)
        self.event.set()


def tell_of_send_failures(queue: Any, name: Queue) -> None:
    """A message that cannot be pickled is lost, in torch: its feeder thread prints the error. It says so here, too."""
    print_error = queue._on_queue_feeder_error

    def failed(error: BaseException, envelope: Any) -> None:
        worker, epoch_id, message = envelope
        emit(SEND_FAILED, epoch_id, label(message), worker, name, text=repr(error))
        print_error(error, message)

    queue._on_queue_feeder_error = failed
