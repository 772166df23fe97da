"""The queues, with real pipes and threads, and without a loader: order, bounds, halves of messages, ends, closing.

A message here is a Result of epoch 7 by worker 0, whose data is of any size. Whether the process at the other end
lives is a flag: set, it has ended.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import random
import signal
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from minidl.events import Kind, Queue
from minidl.messages import Died, Result, Stop
from minidl.queues import BYTES, ENDED, LENGTH, Consumer, DirectProducer, Producer, ThreadQueue
from minidl.transport import Handles
from minidl.world.real import RealWorld
from minidl.world.real_memory import is_ready
from tests.minidl.dying import no_threads, open_files, wait_until
from tests.minidl.observing import recorder

pytestmark = pytest.mark.timeout(30)
WORLD = RealWorld()
PIPE = 1 << 18  # bytes; more than what a pipe holds


def result(task_id: int, data: Any = None) -> Result:
    return Result(7, task_id, 0, data)


def test_a_pipe_that_others_keep_open_is_not_read_once_more_after_its_end() -> None:
    """A read would wait for them."""
    line = Line()
    (channel,) = line.consumer._channels
    line.consumer._ready = [(channel, ENDED), (channel, BYTES)]
    assert line.consumer.take() == Died(7, 0)


class Line:
    """A producer and a consumer with one pipe between them."""

    def __init__(self, consumer: Consumer | None = None, worker_id: int = 0) -> None:
        self.reader, self.writer = WORLD.pipe()
        self.peer = WORLD.flag()
        self.consumer = consumer or Consumer(WORLD, Queue.RESULT, 7)
        self.consumer.add(worker_id, self.reader, self.peer)
        self.producer = Producer(WORLD, self.writer, Queue.RESULT, worker_id)

    def fd(self) -> int:
        return self.writer.fileno()

    def get(self) -> Any:
        """The next message, which is there or on its way."""
        while (message := self.consumer.take()) is None:
            assert self.consumer.wait(10)
        return message

    def has(self, *tasks: int) -> bool:
        """The next messages are of these tasks, and none is ready after them."""
        came = [self.get().task_id for _ in tasks]
        return came == list(tasks) and self.consumer.take() is None and not self.consumer.wait(0.01)


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


def test_an_empty_queue_times_out(line: Line, emitted: list[tuple[Kind, int]]) -> None:
    assert line.has()
    assert [kind for kind, _ in emitted] == [Kind.WAIT, Kind.TIMED_OUT]
    line.producer.put(result(0))
    assert line.has(0)


def frame_of(message: Any) -> bytes:
    ((data,), _) = Handles(WORLD).pack(message)
    return LENGTH.pack(len(data), False) + data


class AnyOrder(RuleBasedStateMachine):
    """What a producer puts, a consumer gets, whatever comes between: `coming` is what it must still get."""

    def __init__(self) -> None:
        super().__init__()
        self.line = Line()
        self.line.producer = DirectProducer(WORLD, self.line.writer, Queue.RESULT, 0)
        self.coming: deque[Any] = deque()
        self.lives, self.task_id = True, 0
        self.inherited = os.dup(self.line.fd())  # some other process has the writing end, too

    def next_message(self, size: int) -> Result:
        self.task_id += 1
        self.coming.append(result(self.task_id, b"." * size))
        return self.coming[-1]

    @precondition(lambda self: self.lives)
    @rule(size=st.integers(0, 300) | st.sampled_from([45_000, PIPE - 8, PIPE, PIPE + 1, 1_000_000]))
    def put(self, size: int) -> None:
        self.line.producer.put(self.next_message(size))
        if sum(len(message.data) for message in self.coming) > 45_000:  # they may not fit into the pipe
            self.get_all()

    @precondition(lambda self: self.lives)
    @rule(size=st.integers(0, 9), cuts=st.lists(st.integers(0, 500)))
    def come_in_pieces(self, size: int, cuts: list[int]) -> None:
        """The pipe's reads end where they like. No part of a message is taken for it."""
        self.get_all()
        frame = frame_of(self.next_message(size))
        cuts = sorted(cut % len(frame) for cut in cuts)
        for first, end in itertools.pairwise([0, *cuts]):
            os.write(self.line.fd(), frame[first:end])
            assert self.line.consumer.take() is None
        os.write(self.line.fd(), frame[cuts[-1] if cuts else 0 :])

    @precondition(lambda self: self.coming)
    @rule()
    def get(self) -> None:
        assert self.line.get() == self.coming.popleft()

    @rule()
    def get_all(self) -> None:
        while self.coming:
            self.get()
        assert self.line.consumer.take() is None

    @precondition(lambda self: self.lives)
    @rule(part=st.integers(0, 20), is_last=st.booleans())
    def die(self, part: int, is_last: bool) -> None:
        """Its process ends, in the middle of a message, perhaps. Its death comes once, after all that it has sent,
        whether the pipe has ended or not. Its pipe's end alone is no death."""
        self.lives = False
        self.line.producer.close()
        self.line.producer.join_thread(10)  # its feeder may be about to send
        os.write(self.inherited, frame_of(result(0))[:part])
        if is_last:
            os.close(self.inherited)
            self.get_all()
        self.line.peer.set()
        self.coming.append(Died(7, 0))
        if not is_last:
            self.get_all()
            os.close(self.inherited)  # now the pipe has ended, and it was left before

    def teardown(self) -> None:
        self.get_all()
        assert not self.line.consumer.wait(0), "it would spin"
        self.line.consumer.close()
        self.line.producer.close()
        self.line.producer.join_thread(10)
        self.line.peer.close()
        if self.lives:
            os.close(self.inherited)


test_in_any_order = pytest.mark.slow(pytest.mark.timeout(120)(AnyOrder.TestCase))


def test_a_closed_queue_has_no_file_open() -> None:
    """Also one without a put, which has no feeder."""
    before = open_files()
    line = Line()
    line.producer.close()
    line.producer.join_thread()
    assert line.reader.read() == b""
    line.consumer.close()
    line.peer.close()
    assert open_files() == before


def test_a_small_message_is_one_write(line: Line) -> None:
    """So Ctrl-C, or the end of the process, leaves no half of it in the pipe."""
    writer = Mock(wraps=line.writer)
    DirectProducer(WORLD, writer, Queue.RESULT, 0).put(result(0))
    assert line.get() == result(0) and writer.try_write.call_count == 1 and not writer.write.called


@pytest.fixture
def threadless() -> Iterator[None]:
    with no_threads():
        yield


@pytest.mark.timeout(5)
@pytest.mark.parametrize("producer", [Producer, DirectProducer])
@pytest.mark.parametrize("message", [Stop(7), result(0, b"." * (1 << 13))], ids=["small", "not small"])
def test_without_a_thread_a_message_is_written_by_put(
    line: Line, producer: Any, message: Any, threadless: None
) -> None:
    producer(WORLD, line.writer, Queue.INDEX, 0).put(message)
    assert line.get() == message


@pytest.mark.timeout(5)
def test_without_a_thread_nobody_needs_to_read(line: Line, threadless: None) -> None:
    line.consumer.close()
    line.producer.put(Stop(7))


def test_once_the_feeder_has_written_all_put_writes_again(line: Line) -> None:
    """A message that the pipe had no room for costs those after it nothing: they need not wait for the feeder."""
    line.producer = DirectProducer(WORLD, line.writer, Queue.RESULT, 0)
    line.producer.put(result(0, b"." * 4 * PIPE))
    assert line.has(0)
    wait_until(lambda: not line.producer._unwritten.qsize(), limit=5)
    line.producer.put(Stop(7))
    assert is_ready(line.reader.fileno())


@pytest.mark.parametrize(
    "size", [1 << 13, 45_000], ids=["whole", "or a part of it"]
)  # Linux writes 36,544 bytes at once
def test_what_the_pipe_has_no_room_for_comes_in_its_order(line: Line, size: int) -> None:
    line.producer = DirectProducer(WORLD, line.writer, Queue.RESULT, 0)
    for task_id in range(8 * PIPE // size):
        line.producer.put(result(task_id, b"." * size))
    assert [line.get().task_id for _ in range(task_id + 1)] == list(range(task_id + 1))


class Collected:
    """Pickled, it does what the garbage collector may do in any thread: end the queue that this thread feeds."""

    producer: Producer

    def __reduce__(self) -> Any:
        self.producer.close()
        self.producer.join_thread(10)
        return str, ("sent",)


def test_a_feeder_does_not_wait_for_itself(line: Line) -> None:
    Collected.producer = line.producer
    line.producer.put(result(0, Collected()))
    assert line.get() == result(0, "sent")


def test_the_feeder_ends_when_the_reading_end_is_closed(line: Line, emitted: list[tuple[Kind, int]]) -> None:
    line.producer.put(result(0, b"." * 4 * PIPE))
    line.producer.put(result(1))
    line.consumer.close()
    line.producer._feeder.join(10)
    assert not line.producer._feeder.is_alive()
    assert [kind for kind, _ in emitted][-2:] == [Kind.SEND_FAILED, Kind.FEEDER_END]
    line.producer.put(result(2))  # harmless


class Interrupted(BaseException):
    """Ctrl-C, at a moment that the test chooses."""


@pytest.fixture
def interrupt() -> Iterator[Callable[[float], None]]:
    """interrupt(seconds): Interrupted is raised after that time; 0 calls it off."""

    def handler(number: int, frame: Any) -> None:
        raise Interrupted

    previous = signal.signal(signal.SIGALRM, handler)
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds)  # type: ignore[misc]
    signal.signal(signal.SIGALRM, previous)


def test_an_interrupt_in_a_wait_loses_nothing(line: Line, interrupt: Callable[[float], None]) -> None:
    interrupt(0.05)
    with pytest.raises(Interrupted):
        line.consumer.wait(20)
    line.producer.put(result(0))
    assert line.has(0)


def test_the_news_of_the_queue_between_threads_does_not_pile_up(emitted: list[tuple[Kind, int]]) -> None:
    queue = ThreadQueue(WORLD, 7)
    assert not queue.wait(0.01) and not queue.wait(0)
    for task_id in range(100):
        queue.put(result(task_id))
    assert queue._news.qsize() == 1 and queue.wait(10)
    assert [queue.take().task_id for _ in range(100)] == list(range(100)) and queue.take() is None
    assert [kind for kind, _ in emitted][:2] == [Kind.WAIT, Kind.TIMED_OUT]


def test_an_interrupted_put_leaves_no_lock_behind(interrupt: Callable[[float], None]) -> None:
    """Ctrl-C at any moment of a put: what comes afterwards, closing above all, still goes through. With a lock written
    in Python around the buffer about one round in 200 left it locked, and a worker that never ended."""
    moments = random.Random(11)
    gc.disable()  # it would run in a put, and what is raised while it calls weak references' callbacks is lost
    try:
        for _ in range(600):
            line = Line()
            line.producer.put(result(0))
            with contextlib.suppress(Interrupted):
                interrupt(moments.uniform(1e-5, 4e-4))
                for task_id in range(100_000):
                    line.producer.put(result(task_id))
            interrupt(0)
            line.consumer.close()  # a feeder that is blocked on the full pipe sees it broken
            line.producer.close()
            line.producer.join_thread(10)
            assert not line.producer._feeder.is_alive()
    finally:
        gc.enable()
