"""The lines that the processes were in when they made no progress, as tracing.recording.watch saw them."""

from __future__ import annotations

import itertools

from tracing.trace.stacks import MAIN, Line, Stack
from tracing.trace.trace import Trace

SLACK = 1_000_000_000  # ns: a killed process lived at most this much longer than its last sample ...
SILENT = 3_000_000_000  # ... and if it lived without a sample for this long, it could not take any
WAITS = 0.1  # a thread that uses less of a core waits


class Lines:
    """The stacks and samples of a trace, up to a time (ns); `exactly`, or about then."""

    def __init__(self, trace: Trace, until: int, exactly: bool = False) -> None:
        self.trace, self.until = trace, until
        self._stacks_until = until if exactly else until + SLACK  # afterwards they show how it ended

    def stack(self, pid: int, thread: str, since: int) -> Stack:
        """A process's last stack after `since`. If the thread is in a line of the program only in the one before, that
        one: Ctrl-C may have ended what it was in."""
        later = (each for each in reversed(self.trace.stacks) if since < each.time <= self._stacks_until)
        last = list(itertools.islice((each for each in later if each.pid == pid), 2))
        return next((each for each in last if each.own_line(thread)), last[0] if last else Stack(0, 0, {}))

    def thread(self, pid: int, thread: str, since: int) -> str:
        """The thread that matters now: if one that handed batches on has ended, the main thread."""
        seen = self.stack(pid, "", since).threads  # the last
        return MAIN if thread and seen and thread not in seen else thread

    def line(self, pid: int, thread: str, since: int, own: bool) -> Line | None:
        """The line that a thread has been in since then, if that is known; `own`: only a line of the program."""
        stack = self.stack(pid, thread, since)
        return stack.own_line(thread) if own else stack.line(thread)

    def beside(self, pid: int, thread: str, since: int) -> list[str]:
        """The lines that other threads of its process are in, if they run code of the program."""
        stack = self.stack(pid, thread, since)
        lines = {name: stack.own_line(name) for name in stack.threads if name != thread}
        return [f"thread {name} at {line}" for name, line in lines.items() if line is not None]

    def waits(self, pid: int, since: int) -> bool:
        """Whether its main thread has waited since then, or could not even be sampled."""
        samples = self.trace.samples[self.trace.samples["pid"] == pid]
        # What it computed after Ctrl-C does not count.
        own = samples[(samples["time"] >= since) & (samples["time"] <= self.until)]
        if len(own) < 2 or own["time"][-1] < self.until - SILENT:
            return bool((samples["time"] <= self.until + SLACK).any())
        used, lasted = (int(own[name][-1] - own[name][0]) for name in ("main_cpu", "time"))
        return used < WAITS * lasted
