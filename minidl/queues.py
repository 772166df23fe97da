"""The queues: multiprocessing's queue, rebuilt so that it can be read and traced.

    producer's process                                  consumer's process
    put() -> (buffer -> feeder thread ->) pickle -> pipe -> read -> frames -> unpickle -> get()

Principles
1. A queue has one producer and one consumer. Processes share no lock, so a dead one cannot hold any.
   torch's worker_result_queue is one pipe that all workers write to under one lock; here it is one pipe
   per worker, read by one Consumer that waits on all of them, so half a message spoils one pipe, not all.
2. `put` never waits for the reader: what the pipe has no room for is left to a feeder thread. A DirectProducer (slots:
   small messages) pickles and writes the rest at once; a Producer (torch's way) leaves all of it to the feeder.
3. Waits wake on death: a wait for a message is also a wait for the end of the process that should send it.
4. `get` never blocks on half a message: bytes are gathered as they come, until a frame is whole.

torch: multiprocessing.Queue, torch.multiprocessing.queue.Queue
"""

from __future__ import annotations

import contextlib
import struct
from collections import deque
from dataclasses import dataclass, field
from queue import Empty
from typing import Any

from minidl import events
from minidl.events import NO_TASK, NO_WORKER, Queue, describe, emit
from minidl.messages import Died
from minidl.transport import Handles, Packer, Unpacker
from minidl.world import Flag, Memory, Reader, Waitable, World, Writer

FLAG_SET, BYTES, ENDED = object(), object(), object()  # what a consumer was woken for
ONE_WRITE = 1 << 16  # bytes; up to here copying a message costs less than a second system call
LAST = object()  # what `close` puts into the buffer
LENGTH = struct.Struct("<Q?")  # precedes each message in a pipe: its size in bytes; whether memory comes with it


class Stopped(Exception):
    """The flag that a consumer watches was set."""


class Unreadable(Exception):
    """A message could not be unpickled, and is gone. Its cause is what unpickling raised."""


class Producer:
    """The writing side: buffer, feeder thread, pipe.

    Guarantees: messages leave in the order of their puts; `put` does not block; after `close` the feeder sends
    what is buffered and ends. Assumes that one thread at a time calls it.
    """

    def __init__(
        self, world: World, writer: Writer, queue: Queue, worker_id: int, transport: Handles | Packer | None = None
    ) -> None:
        self._world = world
        self._writer = writer
        self._transport = transport or Handles(world)
        self._queue, self._worker_id = queue, worker_id
        self._buffer = world.mailbox()
        self.closed = False
        self._feeder: Any = None
        self._epoch_id = 0  # of the last message, and of the events that concern no message

    def put(self, message: Any) -> None:
        self._epoch_id = message.epoch_id
        emit(events.PUT, message.epoch_id, message.task_id, self._worker_id, self._queue)
        self._forward(message)

    def _forward(self, message: Any) -> None:
        """Leave it to the feeder."""
        self._buffer.put(message)
        if self._feeder is None:
            # Started by the first put, not earlier: a process that is forked while threads run may inherit a
            # lock that one of them holds, and every worker is forked before the first put.
            self._feeder = self._world.thread(self._feed, (), f"feeder {self._queue.name} {self._worker_id}")
            try:
                self._feeder.start()
            except RuntimeError:  # Python 3.12 starts no more threads once the interpreter exits
                self._feeder = None
                with contextlib.suppress(OSError):  # as in _feed
                    self._send(self._buffer.get())  # a Stop: without a feeder the pipe is not full

    def close(self) -> None:
        """Nothing more will be put. A second call does nothing."""
        if self.closed:
            return
        emit(events.CLOSED, self._epoch_id, NO_TASK, self._worker_id, self._queue, self._buffer.qsize())
        if self._feeder is None:
            self._writer.close()
        else:
            self._buffer.put(LAST)
        self.closed = True  # last: after Ctrl-C above it can be closed again, and a second LAST does no harm

    def join_thread(self, timeout: float | None = None) -> None:
        """Wait until everything is in the pipe. A worker does so before it exits: a daemon thread dies with its
        process, and what is still buffered would be lost. Main does after `close`: once the reading end is gone a write
        fails at once, and the feeder ends. (Unless another process has inherited that end; hence the timeout.)"""
        if self._feeder not in (None, self._world.current_thread()):
            self._feeder.join(timeout)

    def _feed(self) -> None:
        """The feeder thread. torch: multiprocessing.queues.Queue._feed"""
        emit(events.FEEDER_BEGIN, self._epoch_id, NO_TASK, self._worker_id, self._queue)
        try:
            while (message := self._buffer.get()) is not LAST:
                self._send(message)
                del message  # its batch is main's now
        except OSError as error:  # the reader is gone, and with it the need to send
            self._emit_send_failed(error, NO_TASK)
        finally:
            self._writer.close()
            emit(events.FEEDER_END, self._epoch_id, NO_TASK, self._worker_id, self._queue)

    def _send(self, message: Any) -> None:
        self._write(*self._packed(message))

    def _packed(self, message: Any) -> tuple[list[Any], Memory | None]:
        """A message as pieces of bytes, and the memory that goes with them."""
        emit(events.SEND_BEGIN, message.epoch_id, message.task_id, self._worker_id, self._queue)
        try:
            pieces, memory = self._transport.pack(message)
        except Exception as error:
            # multiprocessing prints the error and drops the message: main would wait for it forever.
            self._emit_send_failed(error, message.task_id)
            try:
                pieces, memory = self._transport.pack(message.unsendable(error))
            except Exception:  # nor can the error
                named = RuntimeError(describe(error, as_repr=False)).with_traceback(error.__traceback__)
                pieces, memory = self._transport.pack(message.unsendable(named))
        length = sum(map(len, pieces))
        emit(events.SENT, message.epoch_id, message.task_id, self._worker_id, self._queue, length)
        pieces = [LENGTH.pack(length, memory is not None), *pieces]
        return [b"".join(pieces)] if length < ONE_WRITE else pieces, memory

    def _write(self, pieces: list[Any], memory: Memory | None) -> None:
        for piece in pieces:
            rest = memoryview(piece)
            while rest:
                rest = rest[self._writer.write(rest, memory) :]
                memory = None  # it goes with the first byte

    def _emit_send_failed(self, error: Exception, task_id: int) -> None:
        emit(events.SEND_FAILED, self._epoch_id, task_id, self._worker_id, self._queue, text=describe(error))


class DirectProducer(Producer):
    """Pickles in `put`, and writes there and then if the pipe has room, which saves waking the feeder, and its wait
    for Python's lock. torch has no such thing: its messages carry whole samples, if not tensors.
    """

    def __init__(self, world: World, *others: Any) -> None:
        super().__init__(world, *others)
        self._unwritten = world.mailbox()  # an item for each message that the feeder has not written yet

    def _forward(self, message: Any) -> None:
        pieces, memory = self._packed(message)
        try:
            if len(pieces) == 1 and not self._unwritten.qsize():
                written = self._writer.try_write(pieces[0], memory)
                pieces, memory = [pieces[0][written:]], None if written else memory  # it goes with the first byte
            if pieces[0]:
                self._unwritten.put(None)
                super()._forward((pieces, memory))
        except ConnectionError as error:  # as in _feed. (A signal's handler may raise another OSError: TimeoutError.)
            self._emit_send_failed(error, NO_TASK)

    def _send(self, message: tuple[list[Any], Memory | None]) -> None:
        """In the feeder."""
        self._write(*message)
        self._unwritten.get()


@dataclass(eq=False)
class Channel:
    """One pipe into a consumer, and the process at its other end."""

    worker_id: int  # whose pipe it is, in main and in the worker alike
    reader: Reader
    peer: Waitable  # ready once the process that writes to this pipe has ended
    transport: Handles | Unpacker
    gathered: bytearray = field(default_factory=bytearray)  # bytes of a message that is not whole yet
    whole: deque[tuple[bytes, Memory | None] | None] = field(default_factory=deque)  # None: the peer has ended
    open: bool = True  # False once the writing end is closed

    def read(self) -> None:
        """Take in what the pipe holds."""
        data = self.reader.read()
        self.open = bool(data)
        self.gathered += data
        while len(self.gathered) >= LENGTH.size:
            length, has_memory = LENGTH.unpack_from(self.gathered)
            end = LENGTH.size + length
            if len(self.gathered) < end:
                break
            memory = self.reader.memory() if has_memory else None
            self.whole.append((bytes(memoryview(self.gathered)[LENGTH.size : end]), memory))
            del self.gathered[:end]


class Consumer:
    """The reading side: waits for its pipes, and for the ends of the processes that write to them.

    Guarantees: messages of one pipe come in the order they were sent; pipes are served in turn, one message each; a
    process's `Died` comes after every whole message it sent; `wait` changes nothing, so nothing is lost if a signal
    handler raises in it. Assumes that one thread at a time calls it.
    """

    def __init__(self, world: World, queue: Queue, epoch_id: int, until: Flag | None = None) -> None:
        self._world = world
        self._queue = queue
        self._epoch_id = epoch_id  # of the last message
        self._waiter = world.waiter()
        self._channels: deque[Channel] = deque()  # the one served last is last
        self._ready: list[Any] = []  # what a wait has found, not yet taken in
        self._waiting = False  # a WAIT has been emitted, and nothing got since
        if until is not None:
            self._waiter.add(until, FLAG_SET)

    def add(self, worker_id: int, reader: Reader, peer: Waitable, transport: Handles | Unpacker | None = None) -> None:
        channel = Channel(worker_id, reader, peer, transport or Handles(self._world))
        self._channels.append(channel)
        self._waiter.add(reader, (channel, BYTES))
        self._waiter.add(peer, (channel, ENDED))

    def get(self) -> Any:
        """Wait for the next message, or a `Died`. It raises as `take` does."""
        while (message := self.take()) is None:
            self.wait(None)
        return message

    def take(self) -> Any:
        """The next message, or a `Died`; None if there is none yet. Unreadable: it cannot be unpickled. Stopped: the
        flag was set."""
        ready, self._ready = self._ready or self._waiter.wait(0), []
        self._take_in(ready)
        channel = self._next_channel()
        if channel is None:
            return None
        whole = channel.whole.popleft()
        if whole is None:
            return Died(self._epoch_id, channel.worker_id)
        data, memory = whole
        emit(events.ARRIVED, self._epoch_id, NO_TASK, channel.worker_id, self._queue, len(data))
        try:
            message = channel.transport.unpack(data, memory)
        except Exception as error:
            self._got(channel, NO_TASK, describe(error))
            raise Unreadable from error
        self._epoch_id = message.epoch_id
        self._got(channel, message.task_id)
        return message

    def _got(self, channel: Channel, task_id: int, error: str | None = None) -> None:
        self._waiting = False
        emit(events.GOT, self._epoch_id, task_id, channel.worker_id, self._queue, text=error)

    def wait(self, timeout: float | None) -> bool:
        """Wait until there may be something to take: False after `timeout` seconds without."""
        worker_id = self._channels[0].worker_id if self._queue is Queue.INDEX else NO_WORKER
        if not self._waiting:  # else what came was not a whole message, and the wait goes on
            emit(events.WAIT, self._epoch_id, NO_TASK, worker_id, self._queue, int((timeout or 0) * 1e9))
        self._waiting = True
        self._ready = self._waiter.wait(timeout)
        if not self._ready:
            self._waiting = False
            emit(events.TIMED_OUT, self._epoch_id, NO_TASK, worker_id, self._queue)
        return bool(self._ready)

    def _next_channel(self) -> Channel | None:
        """The next pipe in turn with a whole message. In turn, because a tensor comes as the name of a descriptor,
        which unpickling then asks a thread of its worker for. An idle worker answers at once; one whose batch has
        just been yielded is busy with its next task. Emptying one pipe before the next would ask a busy one."""
        for _ in range(len(self._channels)):
            self._channels.rotate(-1)
            if self._channels[-1].whole:
                return self._channels[-1]
        return None

    def _take_in(self, ready: list[Any]) -> None:
        """Handle everything that the waiter reports as ready."""
        for label in ready:
            if label is FLAG_SET:
                raise Stopped
            channel, what = label
            if what is ENDED:
                self._read_to_the_end(channel)
            elif channel.open and (channel, ENDED) not in ready:  # else it is read to the end there
                self._read(channel)

    def _read_to_the_end(self, channel: Channel) -> None:
        """The process that writes to this pipe has ended. What it wrote is still in the pipe, and counts; after it
        comes the mark of its death."""
        # Another process may have inherited the writing end, which keeps the pipe open: reading it once too often would
        # block, so ask before each read.
        while channel.open and (channel, BYTES) in self._waiter.wait(0):
            self._read(channel)
        self._waiter.remove(channel.peer)
        channel.whole.append(None)  # the mark of its death

    def _read(self, channel: Channel) -> None:
        channel.read()
        if not channel.open:
            self._waiter.remove(channel.reader)  # a pipe at its end is always ready: waiting for it would spin

    def close(self) -> None:
        self._waiter.close()
        for channel in self._channels:
            channel.reader.close()


class ThreadQueue:
    """data_queue: from the pin thread to main. Both are in one process: no pickle, no pipe. torch: queue.Queue

    Unbounded, since what is outstanding is bounded already: `put` never blocks, so the pin thread can always be
    stopped.
    """

    def __init__(self, world: World, epoch_id: int) -> None:
        self._epoch_id = epoch_id  # of the last message
        self._messages: deque[Any] = deque()
        self._news = world.mailbox()  # holds at most one item, which means: there are messages

    def put(self, message: Any) -> None:
        emit(events.PUT, message.epoch_id, message.task_id, NO_WORKER, Queue.DATA)
        self._messages.append(message)
        if not self._news.qsize():
            self._news.put(None)

    def take(self) -> Any:
        """The next message; None if there is none yet."""
        if not self._messages:
            return None
        message = self._messages.popleft()
        self._epoch_id = message.epoch_id
        emit(events.GOT, message.epoch_id, message.task_id, NO_WORKER, Queue.DATA)
        return message

    def wait(self, timeout: float | None) -> bool:
        """As in Consumer. True means only that messages came; they may have been taken already."""
        emit(events.WAIT, self._epoch_id, NO_TASK, NO_WORKER, Queue.DATA, int((timeout or 0) * 1e9))
        try:
            self._news.get(timeout=timeout)
        except Empty:
            emit(events.TIMED_OUT, self._epoch_id, NO_TASK, NO_WORKER, Queue.DATA)
            return False
        return True
