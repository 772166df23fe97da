"""A run that makes no progress, in words: who waits for whom, since when, in which line, and why in vain."""

from __future__ import annotations

from dataclasses import dataclass

from tracing.analysis.hang.causes import Cause
from tracing.analysis.hang.stuck_moments import Ending
from tracing.trace.stacks import Line
from tracing.trace.words import duration

SILENT = (
    " Its process has given no sign of life for {age}: C code holds Python's lock, or the process is stopped, or gets "
    "no core."
)

BESIDE, WORKERS, LAST = "Other threads of its process", "Other workers", "Last events"


@dataclass(frozen=True)
class Link:
    """What a thread does, or waits for."""

    who: str  # "worker 1 (pid 123)"
    what: str  # "is in fetch of batch 17, keys [68, 69]"
    since: int  # ns
    event: int  # position of the event that shows it; -1: none does
    pid: int
    thread: str  # its name in Python; "" if it is not known
    line: Line | None = None  # of the program, that it is in, if that was recorded


@dataclass(frozen=True)
class Hang:
    """Which thread waits for which. `str()` is its text."""

    ending: Ending
    age: int  # ns; how long the first of `links` has made no progress
    usual: int  # ns; the longest that it took before, -1 if it never happened before
    links: list[Link]  # from the thread that iterates to the one that is to blame; each waits for the next
    cause: Cause  # why the last of them delivers nothing
    silence: int  # ns; for how long its process had given no sign of life, 0 if it did to the end
    advice: str
    beside: dict[str, list[str]]  # what else is known: BESIDE, WORKERS or LAST -> a line for each
    until: int  # ns; ages are counted back from here
    start: int  # ns; of the trace

    @property
    def headline(self) -> str:
        who, age = self.links[0].who, duration(self.age)
        if self.cause is Cause.BEFORE:
            what = "been in the same function" if self.links[0].line else "given no sign of life"
            return self.ending.value.format(who=who, what=f"begun no loader, and {what},", age=age) + "."
        usual = f"before, it took at most {duration(self.usual)}" if self.usual >= 0 else "it is the first time"
        return self.ending.value.format(who=who, what="made no progress", age=age) + f" ({usual})."

    @property
    def why(self) -> str:
        """Why the last of `links` delivers nothing."""
        return self.cause.value + SILENT.format(age=duration(self.silence)) * bool(self.silence)

    def notes(self) -> list[str]:
        """Paragraphs: the chain, what runs beside its end, and the last event of each thread."""
        lines = (in_words(link, self.start, self.until) for link in self.links)
        chain = " ".join(f"{line[0].upper()}{line[1:]}." for line in lines)
        beside = [f"{name}: {'; '.join(self.beside[name])}." for name in (BESIDE, LAST) if self.beside.get(name)]
        return [f"{self.headline} {chain} {self.why} {self.advice}.", *beside]

    def __str__(self) -> str:
        lines = [self.headline, *(f"  {in_words(link, self.start, self.until)}" for link in self.links)]
        lines += [f"  Why   {self.why}", f"  Next  {self.advice}"]
        for name, those in self.beside.items():
            lines += [name, *(f"  {each}" for each in those)] if those else []
        return "\n".join(lines)


def in_words(link: Link, start: int, until: int) -> str:
    since = f"for {duration(until - link.since)}, since {(link.since - start) / 1e9:.3f} s"
    shown_by = f" [event {link.event}]" if link.event >= 0 else ""
    return f"{link.who} {link.what}: {since}{shown_by}" + (f", at {link.line}" if link.line else "")
