"""Trials of exercise 14: programs that use one queue alone, and the mistakes that their runs show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from minidl import world as worlds
from minidl.events import Queue
from minidl.messages import Stop, Task
from minidl.queues import Channel, Producer
from minidl.transport import Handles
from minidl.world.simulated import Outcome
from minidl.world.simulated.machine import current_machine
from notebooks.exercises.programs import let_others_run

PUTS = 5
SMALL = 64  # bytes that a pipe holds: less than a message has


class Wires:
    """A queue's writing side, and the reading end of its pipe."""

    last: Wires  # of the latest run, to see how far it came

    def __init__(self) -> None:
        Wires.last = self
        self.world = worlds.current()
        reader, writer = self.world.pipe()
        self.producer = Producer(self.world, writer, Queue.INDEX, 0)
        self.channel = Channel(0, reader, self.world.flag(), Handles(self.world))

    def put(self, count: int) -> None:
        for task_id in range(count):
            self.producer.put(Task(0, task_id, [task_id]))

    def read(self, count: int = PUTS + 1) -> list[int]:
        """`count` messages, or all until the pipe ends."""
        while self.channel.open and len(self.channel.whole) < count:
            self.channel.read()
        return [self.world.unpickle(whole[0]).task_id for whole in self.channel.whole if whole is not None]


def no_reader() -> None:
    wires = Wires()
    wires.put(PUTS)
    wires.channel.reader.close()  # the write that waits fails, and so the feeder ends
    wires.producer.close()


def no_reader_and_more_puts() -> int:
    """Not closed. How many feeders there have been."""
    wires = Wires()
    wires.put(PUTS)
    wires.channel.reader.close()
    wires.producer.join_thread()
    wires.put(2)
    return len(current_machine().threads) - 1


def reset() -> None:
    """The write fails, but not since the reader is gone."""
    wires = Wires()

    def send(message: Any) -> None:
        raise ConnectionResetError("the connection was reset")

    wires.producer._send = send  # type: ignore[method-assign]
    wires.put(2)
    wires.producer.close()
    wires.producer.join_thread()
    wires.channel.reader.close()


def nothing_put_and_closed() -> list[bool]:
    wires = Wires()
    wires.producer.close()
    return [False, wires.producer.closed]


def one_put_and_closed() -> list[int]:
    """`close` comes while the feeder sends the only message."""
    wires = Wires()
    wires.put(1)
    let_others_run()
    wires.producer.close()
    return wires.read()


def a_stop_first() -> list[int]:
    """A Stop is a message like any other: only `close` ends the feeder."""
    wires = Wires()
    wires.producer.put(Stop(0))
    wires.put(PUTS - 1)
    wires.producer.close()
    return wires.read()


def read_and_closed() -> list[int]:
    wires = Wires()
    wires.put(PUTS)
    messages = wires.read(PUTS)
    wires.producer.close()
    return messages


def closed_and_read() -> list[int]:
    wires = Wires()
    wires.put(PUTS)
    wires.producer.close()
    wires.producer.close()
    return wires.read()


def nothing_put() -> list[int]:
    wires = Wires()
    wires.producer.close()
    return wires.read()


def closed() -> list[int]:
    wires = Wires()
    wires.put(1)
    before = wires.producer.closed
    wires.producer.close()
    return [before, wires.producer.closed]


@dataclass
class Trial:
    """A program that uses one queue, and how to judge its run."""

    call: str
    run: Callable[[], Any]
    expected: str
    judge: Callable[[Outcome], str]  # the mistake; "" for none


def _waits(outcome: Outcome) -> bool:
    """Whether main waits for ever."""
    return outcome.deadlock or outcome.endless


def _blocks(outcome: Outcome) -> str:
    if _waits(outcome):
        return "writes in the caller's thread and can block it"
    if outcome.errors:
        return "an error ends the feeder"
    return "the feeder outlives the queue" if outcome.left else "the pipe stays open" if outcome.open_pipes else ""


def _one_feeder(outcome: Outcome) -> str:
    if _waits(outcome) or outcome.left:
        return "goes on without a reader"
    if outcome.result != 1:
        return "a feeder for each message"
    return "the pipe stays open" if outcome.open_pipes else ""


def _ends_quietly(outcome: Outcome) -> str:
    return "an error ends the feeder" if outcome.errors or outcome.left or outcome.open_pipes else ""


def _sends(outcome: Outcome) -> str:
    right = outcome.result == list(range(PUTS))
    if not right and len(outcome.threads) > 2:
        return "a feeder for each message"
    if not right:
        return "the order is lost" if Wires.last.channel.whole else "never sends"
    return "the feeder outlives the queue" if outcome.left else ""


def _sends_the_rest(outcome: Outcome) -> str:
    if len(Wires.last.channel.whole) < PUTS:
        return "loses what was buffered at close"
    return "the pipe stays open" if _waits(outcome) else ""


def _ends(outcome: Outcome) -> str:
    return "the pipe stays open" if _waits(outcome) else ""


def _sends_one(outcome: Outcome) -> str:
    return "loses what was buffered at close" if not Wires.last.channel.whole else _ends(outcome)


def _says_closed(outcome: Outcome) -> str:
    return "" if outcome.result == [False, True] else "not marked as closed"


ALL = f"{list(range(PUTS))}"
TRIALS = (
    Trial(
        f"put {PUTS} times into a pipe that holds {SMALL} bytes and is not read; then close the reader",
        no_reader,
        "put returns, and the feeder ends",
        _blocks,
    ),
    Trial(f"put {PUTS} times, read all, close", read_and_closed, f"{ALL}, and then the feeder ends", _sends),
    Trial(f"put {PUTS} times, close twice, read", closed_and_read, f"{ALL}, and then the pipe ends", _sends_the_rest),
    Trial(
        f"put a Stop and then {PUTS - 1} Tasks, close, read",
        a_stop_first,
        f"{PUTS} messages, and then the pipe ends",
        _sends_the_rest,
    ),
    Trial("close without a put, read", nothing_put, "the pipe ends", _ends),
    Trial("`closed` before and after close", closed, "[False, True]", _says_closed),
    Trial("`closed` after close, without a put", nothing_put_and_closed, "[False, True]", _says_closed),
    Trial("put once, close, read", one_put_and_closed, "one message, and then the pipe ends", _sends_one),
    Trial(
        f"put {PUTS} times, close the reader, wait for the feeder, put twice more, and never close",
        no_reader_and_more_puts,
        "the feeder has ended and closed the writer; there is no other",
        _one_feeder,
    ),
    Trial(
        "put twice, where `_send` raises ConnectionResetError; close", reset, "the feeder ends quietly", _ends_quietly
    ),
)


def got(outcome: Outcome) -> str:
    """The run's outcome in words."""
    came = f"{len(Wires.last.channel.whole)} messages had arrived"
    who = ", ".join(name for _, name in outcome.threads[1:]) or "no feeder"
    if _waits(outcome):
        return f"main waits for ever; {came} (threads beside it: {who})"
    if outcome.errors:
        return f"{outcome.errors[0][0]} raised {outcome.errors[0][1]!r}"
    if outcome.left:
        return f"{outcome.result}, but still there at the end: {', '.join(outcome.left)}"
    return f"raised {outcome.error!r}" if outcome.error is not None else f"{outcome.result}"
