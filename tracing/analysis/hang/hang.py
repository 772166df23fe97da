"""A run that makes no progress, in words: who waits for whom, since when, in which line, and why in vain."""

from __future__ import annotations

from dataclasses import dataclass

from tracing.analysis.hang.causes import Cause
from tracing.analysis.hang.stuck_moments import Ending
from tracing.analysis.hang.threads import Link
from tracing.trace.stacks import Line
from tracing.trace.words import duration

SILENT = (
    " Its process has given no sign of life for {age}: C code holds Python's lock, or the process is stopped, or gets "
    "no core."
)


@dataclass(frozen=True)
class LastEvent:
    """The last event of a thread."""

    who: str  # "worker 1", "feeder of index_queue 0"
    pid: int
    event: int  # position
    age: int  # ns
    what: str


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
    others: list[Link]  # the other workers of these loaders
    beside: dict[str, Line]  # the other threads of the last one's process: name -> the program's line that each is in
    last_events: list[LastEvent]  # of each thread, the oldest first
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
        return self.cause.why + SILENT.format(age=duration(self.silence)) * bool(self.silence)

    @property
    def _beside(self) -> list[str]:
        return [f"thread {name} at {line}" for name, line in self.beside.items()]

    def notes(self) -> list[str]:
        """Two paragraphs: the chain, and the last event of each process."""
        lines = (self._in_words(link) for link in self.links)
        chain = " ".join(f"{line[0].upper()}{line[1:]}." for line in lines)
        last = {each.pid: each for each in self.last_events}  # the latest of each process
        events = "; ".join(
            f"{each.who} (pid {each.pid}) {duration(each.age)} ago: {each.what} [event {each.event}]"
            for each in last.values()
        )
        beside = f" Beside it: {'; '.join(self._beside)}." if self.beside else ""
        last_events = [f"Last events: {events}."] if last else []
        return [f"{self.headline} {chain} {self.why}{beside} {self.advice}.", *last_events]

    def __str__(self) -> str:
        lines = [self.headline]
        for link in self.links:
            lines.append(f"  {self._in_words(link)}")
            if link.wakes:
                lines.append(f"    what would wake it: {link.wakes}")
        lines += [f"  Why   {self.why}", f"  Next  {self.advice}"]
        if self.beside:
            lines += ["Other threads of its process", *(f"  {each}" for each in self._beside)]
        if self.others:
            lines += ["Other workers", *(f"  {self._in_words(link)}" for link in self.others)]
        lines += ["Last events"] * bool(self.last_events)
        rows = [(each.who, f"pid {each.pid}", f"{duration(each.age)} ago") for each in self.last_events]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for each, (who, pid, age) in zip(self.last_events, rows, strict=True):
            line = f"  {who:{widths[0]}}  {pid:>{widths[1]}}  {age:>{widths[2]}}"
            lines.append(f"{line}  {each.what} [event {each.event}]")
        return "\n".join(lines)

    def _in_words(self, link: Link) -> str:
        since = f"{(link.since - self.start) / 1e9:.3f} s"
        lasted = f"for {duration(self.until - link.since)}, since {since}"
        shown_by = f" [event {link.event}]" if link.event >= 0 else ""
        return f"{link.who} {link.what}: {lasted}{shown_by}{_place(link)}"


def _place(link: Link) -> str:
    if link.line is None:
        return ""
    also = f" (also in line{'s' * (len(link.also) > 1)} {', '.join(map(str, link.also))})" if link.also else ""
    return f", at {link.line}{also}"
