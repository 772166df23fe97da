"""A run that makes no progress, in words: which thread waits for which, since when, where, and why.

A Cause is what ends a chain of threads that wait for each other (tracing.analysis.hang.wait_chain).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from tracing.analysis.hang.stuck_moments import Ending
from tracing.trace.stacks import Line
from tracing.trace.words import duration

THREADS = "Other threads of its process"


class Cause(enum.Enum):
    """Why the last thread in the chain delivers nothing."""

    # The user's code
    CODE = "It is in the program's code: the loader can only wait until that returns."
    INIT_FN = "It is in worker_init_fn: the loader can only wait until that returns."
    START = "It has not reached its task loop: it is importing, unpickling the dataset, or calling its __iter__."
    TRAINING = "No batch is asked for: the training step, or whatever the program does instead, has not returned."
    # Processes
    STOPPED = "Its process is stopped (SIGSTOP, Ctrl-Z, a debugger) and does nothing until it is continued."
    DEAD = "It is dead, and the thread that waits for it has not noticed."
    ENDED = "It has left its loop, though it owes a message."
    # Messages
    LOST = "Nothing is on its way to it, and nothing will be sent to it: the batch's message was lost."
    UNSENDABLE = "The batch could not be pickled. torch drops it then, but goes on waiting for it."
    UNSEEN = (
        "It was put and has not come out. What is in between is not recorded: the feeder thread, the pipe, and the "
        "queue's lock, which a killed process can hold forever."
    )
    HALF_MESSAGE = "The reader has not got a whole message: the writer stopped in the middle of it."
    # The loader
    LOADER = "It is in the loader's own code, or in what that calls."
    CIRCLE = "They wait for each other: nothing will wake any of them."


ADVICE = {  # else: look where it is
    Cause.TRAINING: "It is not the loader. {where}",
    Cause.STOPPED: "Continue it: kill -CONT {pid}",
    Cause.DEAD: "Stop the program. The kernel's log (dmesg) shows if memory ran out, the scheduler's if a limit was "
    "hit",
    Cause.ENDED: "Stop the program",
    Cause.LOST: "Stop the program. With timeout=... the DataLoader raises an error instead of waiting forever",
    Cause.UNSENDABLE: "Stop the program, and make the dataset and collate_fn return something that can be pickled",
    Cause.CIRCLE: "Stop the program",
}


@dataclass
class Link:
    """What a thread does, or waits for."""

    who: str  # "worker 1 (pid 123)"
    what: str  # "is in fetch of batch 17, keys [68, 69]"
    since: int  # ns
    event: int  # position of the event that shows it; -1: none does
    pid: int
    thread: str  # its name in Python; "" if it is not known
    line: Line | None = None  # the line of the program that it is in, if recorded


@dataclass(frozen=True)
class Hang:
    """Which thread waits for which. `str()` is its text."""

    ending: Ending
    age: int  # ns; how long the first of `links` has made no progress
    usual: int  # ns; the longest that it took before, -1 if it never happened before
    links: list[Link]  # from the thread that iterates to the one that is to blame; each waits for the next
    cause: Cause  # why the last of them delivers nothing
    advice: str
    beside: list[str]  # the lines that other threads of its process are in
    until: int  # ns; ages are counted back from here
    start: int  # ns; of the trace

    @property
    def headline(self) -> str:
        who, age = self.links[0].who, duration(self.age)
        usual = f"before, it took at most {duration(self.usual)}" if self.usual >= 0 else "it is the first time"
        return self.ending.value.format(who=who, age=age) + f" ({usual})."

    def notes(self) -> list[str]:
        """Paragraphs: the chain, and threads beside its last."""
        chain = " ".join(f"{line[0].upper()}{line[1:]}." for line in self._in_words())
        beside = [f"{THREADS}: {'; '.join(self.beside)}."] if self.beside else []
        return [f"{self.headline} {chain} {self.cause.value} {self.advice}.", *beside]

    def __str__(self) -> str:
        lines = [self.headline, *(f"  {each}" for each in self._in_words())]
        lines += [f"  Why   {self.cause.value}", f"  Next  {self.advice}"]
        lines += [THREADS, *(f"  {each}" for each in self.beside)] if self.beside else []
        return "\n".join(lines)

    def _in_words(self) -> list[str]:
        found = []
        for link in self.links:
            since = f"for {duration(self.until - link.since)}, since {(link.since - self.start) / 1e9:.3f} s"
            shown_by = f" [event {link.event}]" if link.event >= 0 else ""
            at = f", at {link.line}" if link.line else ""
            found.append(f"{link.who} {link.what}: {since}{shown_by}{at}")
        return found
