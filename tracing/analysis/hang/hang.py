"""A run that makes no progress, in words: which thread waits for which, since when, where, and why."""

from __future__ import annotations

from dataclasses import dataclass

from tracing.analysis.hang.causes import Cause
from tracing.analysis.hang.stuck_moments import Ending
from tracing.trace.stacks import Line
from tracing.trace.words import duration

THREADS = "Other threads of its process"


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
