"""The queues, with real pipes and threads, and without a loader: order, bounds, halves of messages, ends, closing.

A message here is a Result of epoch 7 by worker 0, whose data is of any size. Whether the process at the other end
lives is a flag: set, it has ended.
"""

from __future__ import annotations

import gc
import os
import random
import signal
import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from minidl.events import Kind, Queue
from minidl.messages import Died, Result, Stop, Task
from minidl.queues import LENGTH, Consumer, DirectProducer, Empty, Producer, Stopped, ThreadQueue
from minidl.world import Flag, Reader, Writer
from minidl.world.real import RealWorld
from minidl.world.real_memory import is_ready
from tests.minidl.dying import open_files, wait_until
from tests.minidl.observing import recorder

pytestmark = pytest.mark.timeout(30)
WORLD = RealWorld()
PIPE = 1 << 16  # bytes that a pipe holds on Linux, and more than what it holds elsewhere


def result(task_id: int, data: Any = None) -> Result:
    return Result(7, task_id, 0, data)


class Line:
    """A producer and a consumer with one pipe between them."""

    def __init__(self, consumer: Consumer | None = None, worker_id: int = 0) -> None:
        self.reader, self.writer = WORLD.pipe()
        self.peer = WORLD.flag()
        self.consumer = consumer or Consumer(WORLD, Queue.RESULT, 7)
        self.consumer.add(worker_id, self.reader, self.peer)
        self.producer = Producer(WORLD, self.writer, Queue.RESULT, worker_id)

    def fd(self) -> int:
        return self.writer._connection.fileno()


@pytest.fixture
def line() -> Iterator[Line]:
    line = Line()
    yield line
    line.consumer.close()  # a feeder that is blocked on a full pipe sees it broken, and ends
    line.producer.close()
    line.producer.join_thread(10)


@pytest.fixture
def emitted() -> Iterator[list[tuple[Kind, int]]]:
    """Kind and task of each event, while the test runs."""
    found: list[tuple[Kind, int]] = []
    with recorder(lambda kind, epoch_id, task, *_: found.append((Kind(kind), task))):
        yield found


def test_messages_arrive_in_order_and_unchanged(line: Line) -> None:
    sizes = [0, 1, 100, 1 << 14, (1 << 14) + 1, PIPE - 8, PIPE, PIPE + 1, 1_000_000]
    for task_id, size in enumerate(sizes * 5):
        line.producer.put(result(task_id, b"x" * size))
    for task_id, size in enumerate(sizes * 5):
        assert line.consumer.get(10) == result(task_id, b"x" * size)


def test_a_tensor_arrives_in_shared_memory(line: Line) -> None:
    sent = torch.zeros(3)
    line.producer.put(result(0, sent))
    received = line.consumer.get(10).data
    sent[1] = 5
    assert received.tolist() == [0, 5, 0]


def test_every_step_of_a_message_is_emitted(line: Line, emitted: list[tuple[Kind, int]]) -> None:
    line.producer.put(result(3))
    line.consumer.get(10)
    line.producer.close()
    line.producer.join_thread(10)
    # The feeder's and the consumer's steps mix freely; the steps of each are in order, and SENT comes before ARRIVED.
    kinds = [kind for kind, _ in emitted if kind is not Kind.WAIT]
    assert [kind for kind in kinds if kind in (Kind.PUT, Kind.CLOSED, Kind.FEEDER_JOINED)] == [
        Kind.PUT,
        Kind.CLOSED,
        Kind.FEEDER_JOINED,
    ]
    way = [Kind.PUT, Kind.SEND_BEGIN, Kind.SENT, Kind.ARRIVED, Kind.GOT]
    assert [kind for kind in kinds if kind in way] == way
    assert kinds.index(Kind.FEEDER_BEGIN) < kinds.index(Kind.SEND_BEGIN)
    assert kinds[-2:] == [Kind.FEEDER_END, Kind.FEEDER_JOINED]
    assert {task for kind, task in emitted if kind in (Kind.PUT, Kind.SEND_BEGIN, Kind.SENT, Kind.GOT)} == {3}


def test_put_does_not_block_on_a_full_pipe(line: Line) -> None:
    for task_id in range(100):
        line.producer.put(result(task_id, b"x" * PIPE))  # the feeder is stuck in the first
    assert [line.consumer.get(10).task_id for _ in range(100)] == list(range(100))


def test_an_empty_queue_times_out(line: Line, emitted: list[tuple[Kind, int]]) -> None:
    with pytest.raises(Empty):
        line.consumer.get(0.01)
    assert [kind for kind, _ in emitted] == [Kind.WAIT, Kind.TIMED_OUT] and not line.consumer.waiting
    line.producer.put(result(0))
    assert line.consumer.get(10).task_id == 0


def write(fd: int, data: bytes) -> None:
    assert os.write(fd, data) == len(data)


def frame_of(message: Any) -> bytes:
    data = WORLD.pickle(message)
    return LENGTH.pack(len(data), False) + data


def test_a_message_that_comes_byte_by_byte_is_put_together(line: Line) -> None:
    frame = frame_of(result(0))
    for byte in frame:
        with pytest.raises(Empty):
            line.consumer.get(0)
        write(line.fd(), bytes([byte]))
    assert line.consumer.get(0).task_id == 0


def test_messages_cut_anywhere_are_put_together(line: Line) -> None:
    """The pipe's reads end where they like: every cut of three frames, two cuts at a time, at random."""
    frames = b"".join(frame_of(result(task_id, b"." * task_id)) for task_id in range(3))
    draw = random.Random(0)
    for _ in range(200):
        first, second = sorted(draw.choices(range(len(frames) + 1), k=2))
        got: list[int] = []
        for part in (frames[:first], frames[first:second], frames[second:]):
            write(line.fd(), part)
            while True:
                try:
                    got.append(line.consumer.get(0).task_id)
                except Empty:
                    break
        assert got == [0, 1, 2], (first, second)


def test_died_comes_after_the_last_whole_message(line: Line) -> None:
    write(line.fd(), frame_of(result(0)) + frame_of(result(1)) + frame_of(result(2))[:-1])
    line.peer.set()
    line.writer.close()
    assert [line.consumer.get(10).task_id for _ in range(2)] == [0, 1]
    assert line.consumer.get(10) == Died(7, 0)
    with pytest.raises(Empty):
        line.consumer.get(0.01)


@pytest.mark.timeout(5)
def test_died_comes_though_the_pipe_is_still_open(line: Line) -> None:
    """Some other process has inherited the writing end: no end of file ever comes."""
    inherited = os.dup(line.fd())
    write(inherited, frame_of(result(0)))
    line.writer.close()
    line.peer.set()
    assert line.consumer.get(10).task_id == 0
    assert line.consumer.get(10) == Died(7, 0)
    with pytest.raises(Empty):
        line.consumer.get(0.01)
    os.close(inherited)  # now the pipe has ended, and it was left before
    with pytest.raises(Empty):
        line.consumer.get(0.01)


def test_the_end_of_a_living_processs_pipe_is_no_death(line: Line, emitted: list[tuple[Kind, int]]) -> None:
    """Its end alone means nothing, and must not make the wait spin; only the process's end counts."""
    line.writer.close()
    with pytest.raises(Empty):
        line.consumer.get(0.01)
    with pytest.raises(Empty):
        line.consumer.get(0.01)
    line.peer.set()
    assert line.consumer.get(10) == Died(7, 0)


def test_half_a_message_spoils_one_pipe_only() -> None:
    first = Line(worker_id=0)
    second = Line(first.consumer, worker_id=1)
    write(first.fd(), frame_of(result(0))[:-1])
    second.producer.put(Result(7, 1, 1, None))
    assert first.consumer.get(10).task_id == 1
    first.peer.set()
    assert first.consumer.get(10) == Died(7, 0)
    second.producer.put(Result(7, 3, 1, None))
    assert first.consumer.get(10).task_id == 3
    first.consumer.close()
    second.producer.close()


def test_pipes_are_served_in_turn() -> None:
    """Also one whose message comes after two of another pipe's have been read."""
    first = Line(worker_id=0)
    second = Line(first.consumer, worker_id=1)
    write(first.fd(), frame_of(result(0)) + frame_of(result(2)))
    assert first.consumer.get(10).task_id == 0
    write(second.fd(), frame_of(result(1)))
    assert [first.consumer.get(10).task_id for _ in range(2)] == [1, 2]


def test_each_of_many_pipes_keeps_its_order() -> None:
    """Each pipe keeps its order, whatever order they are served in."""
    consumer = Consumer(WORLD, Queue.RESULT, 7)
    lines = [Line(consumer, worker_id) for worker_id in range(40)]
    for task_id in range(20):
        for worker_id, line in enumerate(lines):
            line.producer.put(Result(7, task_id, worker_id, b"." * 1000 * (worker_id % 3)))
    came: dict[int, list[int]] = {}
    for _ in range(20 * len(lines)):
        message = consumer.get(10)
        came.setdefault(message.worker_id, []).append(message.task_id)
    assert came == {worker_id: list(range(20)) for worker_id in range(40)}
    for line in lines:
        line.producer.close()
        line.producer.join_thread(10)
    consumer.close()


def test_a_flag_stops_a_waiting_consumer() -> None:
    flag = WORLD.flag()
    line = Line(Consumer(WORLD, Queue.RESULT, 7, until=flag))
    outcome: list[str] = []

    def consume() -> None:
        try:
            line.consumer.get()
        except Stopped:
            outcome.append("stopped")

    thread = threading.Thread(target=consume)
    thread.start()
    flag.set()
    thread.join(10)
    assert outcome == ["stopped"]
    with pytest.raises(Stopped):  # it stays set
        line.consumer.get(10)


def test_close_sends_what_is_buffered(line: Line) -> None:
    for task_id in range(10):
        line.producer.put(result(task_id, b"." * PIPE))
    line.producer.close()
    line.producer.close()
    assert [line.consumer.get(10).task_id for _ in range(10)] == list(range(10))
    line.producer.join_thread(10)
    with pytest.raises(Empty):
        line.consumer.get(0)  # the pipe has ended, the process has not


def test_a_queue_without_a_put_can_be_closed() -> None:
    before = open_files()
    reader, writer = WORLD.pipe()
    producer = Producer(WORLD, writer, Queue.INDEX, 0)
    producer.close()
    producer.join_thread()
    assert reader.read() == b""
    reader.close()
    assert open_files() == before


def test_a_closed_queue_has_no_file_open() -> None:
    before = open_files()
    line = Line()
    line.producer.close()
    line.consumer.close()
    line.peer.close()
    assert open_files() == before


class Writes:
    """A pipe's end that notes how many bytes each write has."""

    def __init__(self, writer: Any) -> None:
        self.writer, self.sizes = writer, list[int]()

    def write(self, data: memoryview, memory: Any = None) -> int:
        written: int = self.writer.write(data, memory)
        self.sizes.append(written)
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self.writer, name)


def test_a_small_message_is_one_write(line: Line) -> None:
    """So Ctrl-C, or the end of the process, leaves no half of it in the pipe."""
    writes = Writes(line.writer)
    DirectProducer(WORLD, writes, Queue.RESULT, 0).put(result(0))
    assert line.consumer.get(10) == result(0) and len(writes.sizes) == 1


@pytest.fixture
def no_threads() -> Iterator[None]:
    """None can be started, as when the interpreter exits."""
    before = threading.stack_size(1 << 47)  # more than any process has
    yield
    threading.stack_size(before)


def test_without_a_thread_a_message_is_written_by_put(line: Line, no_threads: None) -> None:
    line.producer.put(Stop(7))
    assert line.consumer.get(10) == Stop(7)


@pytest.mark.timeout(5)
def test_without_a_thread_a_message_that_is_no_small_one_is_written_by_put(line: Line, no_threads: None) -> None:
    DirectProducer(WORLD, line.writer, Queue.INDEX, 0).put(result(0, b"." * (1 << 13)))
    assert line.consumer.get(10) == result(0, b"." * (1 << 13))


@pytest.mark.timeout(5)
def test_without_a_thread_put_does_not_block_on_a_full_pipe(line: Line, no_threads: None) -> None:
    os.set_blocking(line.fd(), False)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(line.fd(), b".")
    os.set_blocking(line.fd(), True)
    line.producer.put(Stop(7))


def test_without_a_thread_nobody_needs_to_read(line: Line, no_threads: None) -> None:
    line.consumer.close()
    line.producer.put(Stop(7))


def test_once_the_feeder_has_written_all_put_writes_again(line: Line) -> None:
    """A message that the pipe had no room for costs those after it nothing: they need not wait for the feeder."""
    line.producer = DirectProducer(WORLD, line.writer, Queue.RESULT, 0)
    line.producer.put(result(0, b"." * 4 * PIPE))
    assert line.consumer.get(10).task_id == 0
    wait_until(lambda: not line.producer._unwritten.qsize(), limit=5)
    line.producer.put(Stop(7))
    assert is_ready(line.reader.fileno())


class Collected:
    """Pickled, it does what the garbage collector may do in any thread: end the queue that this thread feeds."""

    producer: Producer

    def __reduce__(self) -> Any:
        self.producer.close()
        self.producer.wait_for_feeder(10)
        return str, ("sent",)


def test_a_feeder_does_not_wait_for_itself(line: Line) -> None:
    Collected.producer = line.producer
    line.producer.put(result(0, Collected()))
    assert line.consumer.get(10) == result(0, "sent")


def test_join_waits_and_a_cancelled_join_does_not(line: Line, emitted: list[tuple[Kind, int]]) -> None:
    line.producer.put(result(0, b"." * 4 * PIPE))
    line.producer.close()
    wait_until(lambda: (Kind.SENT, 0) in emitted)
    line.producer.join_thread(0.01)  # in vain: the pipe is not read
    assert line.producer._feeder.is_alive()
    line.producer.cancel_join_thread()
    line.producer.join_thread()  # or this would be a deadlock
    assert [kind for kind, _ in emitted][-1] is Kind.JOIN_CANCELLED


def test_the_feeder_ends_when_the_reading_end_is_closed(line: Line, emitted: list[tuple[Kind, int]]) -> None:
    line.producer.put(result(0, b"." * 4 * PIPE))
    line.producer.put(result(1))
    line.consumer.close()
    line.producer._feeder.join(10)
    assert not line.producer._feeder.is_alive()
    assert [kind for kind, _ in emitted][-2:] == [Kind.SEND_FAILED, Kind.FEEDER_END]
    line.producer.put(result(2))  # harmless


def test_a_message_that_cannot_be_pickled_arrives_as_an_error(line: Line) -> None:
    """Its error goes in its place, and the feeder goes on."""
    line.producer.put(result(0, lambda: None))
    line.producer.put(result(1, "fine"))
    lost, fine = line.consumer.get(10), line.consumer.get(10)
    assert (lost.task_id, fine) == (0, result(1, "fine"))
    with pytest.raises(Exception, match=r"pickle.*lambda"):
        lost.data.reraise()


def test_keys_that_cannot_be_pickled_arrive_as_an_error(line: Line) -> None:
    line.producer.put(Task(7, 4, [lambda: None]))
    task = line.consumer.get(10)
    assert task.task_id == 4
    with pytest.raises(Exception, match=r"pickle.*lambda"):
        task.keys.reraise()


class Grumpy:
    """Pickles, and then does not unpickle."""

    def __reduce__(self) -> Any:
        return int, ("not a number",)


def test_a_message_that_cannot_be_unpickled_raises_its_error_once(line: Line, emitted: list[tuple[Kind, int]]) -> None:
    """The error comes out, that message is gone, and the next one comes."""
    line.producer.put(result(0, Grumpy()))
    line.producer.put(Stop(7))
    with pytest.raises(ValueError, match="not a number"):
        line.consumer.get(10)
    assert line.consumer.get(10) == Stop(7)


class Interrupting:
    """Raises the signal while it is unpickled, the first time."""

    times = 0

    def __reduce__(self) -> Any:
        return interrupt_once, ()


def interrupt_once() -> str:
    Interrupting.times += 1
    if Interrupting.times == 1:
        signal.raise_signal(signal.SIGUSR1)
    return "unpickled"


@pytest.fixture
def interrupts() -> Iterator[None]:
    def handler(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGUSR1, handler)
    yield
    signal.signal(signal.SIGUSR1, previous)


def interrupt_while_waiting(consumer: Consumer) -> None:
    def interrupt() -> None:
        wait_until(lambda: consumer.waiting)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    other = threading.Thread(target=interrupt)
    other.start()
    with pytest.raises(KeyboardInterrupt):
        consumer.get(20)
    other.join()


def test_an_interrupt_while_waiting_loses_nothing(line: Line, interrupts: None) -> None:
    interrupt_while_waiting(line.consumer)
    line.producer.put(result(0))
    assert line.consumer.get(10).task_id == 0


def test_an_interrupt_while_reading_does_not_count_as_one_while_waiting(line: Line, interrupts: None) -> None:
    """Even if the one before came while waiting."""
    interrupt_while_waiting(line.consumer)
    assert line.consumer.waiting
    read = line.reader.read

    def read_and_interrupt() -> bytes:
        data = read()
        signal.raise_signal(signal.SIGUSR1)
        return data

    line.reader.read = read_and_interrupt
    write(line.fd(), frame_of(result(0)))
    with pytest.raises(KeyboardInterrupt):
        line.consumer.get(10)
    assert not line.consumer.waiting


def test_an_interrupt_while_unpickling_loses_nothing(line: Line, interrupts: None) -> None:
    Interrupting.times = 0
    line.producer.put(result(0, Interrupting()))
    with pytest.raises(KeyboardInterrupt):
        line.consumer.get(10)
    assert line.consumer.get(10) == result(0, "unpickled")


class Taken(deque[Any]):
    """The signal comes while a message is taken: also after a call of C's, Python looks for signals."""

    def popleft(self) -> Any:
        message = super().popleft()
        signal.raise_signal(signal.SIGUSR1)
        return message


def test_an_interrupt_as_a_message_is_taken_does_not_count_as_one_while_waiting(interrupts: None) -> None:
    queue = ThreadQueue(WORLD, 7)
    queue._messages = Taken()

    def put() -> None:
        wait_until(lambda: queue.waiting)
        queue.put(result(0))

    other = threading.Thread(target=put)
    other.start()
    with pytest.raises(KeyboardInterrupt):
        queue.get(20)
    other.join()
    assert not queue._messages and not queue.waiting


@pytest.mark.parametrize("patience", [10, None])
def test_the_queue_between_threads_keeps_the_order(patience: float | None, emitted: list[tuple[Kind, int]]) -> None:
    queue = ThreadQueue(WORLD, 7)
    for timeout in (0.01, 0):
        with pytest.raises(Empty):
            queue.get(timeout)
        assert not queue.waiting
    got: list[int] = []
    taken = (queue.get(patience).task_id for _ in range(1000))
    consumer = threading.Thread(target=got.extend, args=(taken,), daemon=True)
    consumer.start()
    for task_id in range(1000):
        queue.put(result(task_id))
    consumer.join(10)
    assert got == list(range(1000))
    assert [kind for kind, _ in emitted][:2] == [Kind.WAIT, Kind.TIMED_OUT]
    assert [task for kind, task in emitted if kind is Kind.GOT] == got


def test_the_news_of_messages_that_nobody_waited_for_does_not_pile_up() -> None:
    queue = ThreadQueue(WORLD, 7)
    for task_id in range(3):
        queue.put(result(task_id))
        assert queue.get(10).task_id == task_id
        assert queue._news.qsize() == 1


def test_a_flag_is_seen_by_every_process() -> None:
    flag = WORLD.flag()
    assert not flag.is_set()
    flag.set()
    flag.set()
    assert flag.is_set()
    child = os.fork()
    if child == 0:  # a copy of the flag, as a worker has one
        os._exit(17 if flag.is_set() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 17
    flag.close()


def test_pipes_and_flags_keep_the_worlds_promises() -> None:
    """The ends of a pipe and a flag are what minidl.world says they are: all have a descriptor to wait for."""
    reader, writer = WORLD.pipe()
    flag = WORLD.flag()
    things: tuple[Reader, Writer, Flag] = reader, writer, flag
    waiter = WORLD.waiter()
    waiter.add(reader, "reader")
    waiter.add(flag, "flag")
    assert waiter.wait(0) == []
    flag.set()
    writer.write(memoryview(b"x"))
    assert set(waiter.wait(None)) == {"reader", "flag"}
    waiter.remove(flag)
    assert waiter.wait(None) == ["reader"]
    assert reader.read() == b"x"
    waiter.close()
    for thing in things:
        thing.close()


class Interrupted(BaseException):
    """Ctrl-C, at a moment that the test chooses."""


def test_an_interrupted_put_leaves_no_lock_behind() -> None:
    """Ctrl-C at any moment of a put: what comes afterwards, closing above all, still goes through. With a lock written
    in Python around the buffer about one round in 200 left it locked, and a worker that never ended."""
    moments = random.Random(11)

    def interrupt(number: int, frame: Any) -> None:
        raise Interrupted

    previous = signal.signal(signal.SIGALRM, interrupt)
    gc.disable()  # it would run in a put, and what is raised while it calls weak references' callbacks is lost
    try:
        for _ in range(600):
            line = Line()
            line.producer.put(result(0))
            try:
                signal.setitimer(signal.ITIMER_REAL, moments.uniform(1e-5, 4e-4))
                for task_id in range(100_000):
                    line.producer.put(result(task_id))
            except Interrupted:
                pass
            signal.setitimer(signal.ITIMER_REAL, 0)
            line.consumer.close()  # a feeder that is blocked on the full pipe sees it broken
            line.producer.close()
            line.producer.join_thread(10)
            assert not line.producer._feeder.is_alive()
    finally:
        gc.enable()
        signal.signal(signal.SIGALRM, previous)
