"""A hang before the first event: the program has come to no loader, and tracing.recording.watch saw where it is."""

from __future__ import annotations

import time

from tracing.analysis.hang.causes import Cause
from tracing.analysis.hang.hang import BESIDE, Hang, Link
from tracing.analysis.hang.lines import Lines
from tracing.analysis.hang.patience import FLOOR, FLOOR_ENDED, FLOOR_UNKNOWN
from tracing.analysis.hang.stuck_moments import RUNS, Ending
from tracing.trace.process_liveness import ProcessStatus, processes
from tracing.trace.trace import Trace


def explain_before_loaders(trace: Trace, now: int | None) -> Hang | None:
    """Of a trace without events: where its process hangs, or did when it was ended; None if nothing shows that it does.

    As long as it goes on, it must wait in a line of its own: before its first loader a program may compute for as long
    as it likes."""
    pid, begin = trace.about.get("pid"), trace.about.get("monotonic")
    ending, until = _ending(trace, pid, now)
    if not isinstance(pid, int) or not isinstance(begin, int) or trace.unseen or ending is Ending.RECORDED:
        return None
    lines, ongoing = Lines(trace, until), ending is Ending.ONGOING
    since, silence = lines.same_function(pid), lines.silence(pid, ongoing and now is None)
    waits = lines.waits(pid, since)
    since = since or until - silence
    if until - since <= (FLOOR_UNKNOWN if ongoing else FLOOR_ENDED if waits else FLOOR) or (ongoing and not waits):
        return None
    line = lines.line(pid, "MainThread", since, own=False)
    return Hang(
        ending=ending,
        age=until - since,
        usual=-1,
        links=[Link(f"main (pid {pid})", "is in code of the program", since, -1, pid, "MainThread", line)],
        cause=Cause.BEFORE,
        silence=silence,
        advice=Cause.BEFORE.advice(pid, line),
        beside={BESIDE: lines.beside(pid, "MainThread", since)},
        until=until,
        start=begin,
    )


def _ending(trace: Trace, pid: int | None, now: int | None) -> tuple[Ending, int]:
    """What ended it, and until when it is known to have lived (ns)."""
    how, samples, stopped = processes(trace.path).get(pid or 0), trace.samples, trace.about.get("stopped")
    if how in RUNS:
        return Ending.ONGOING, time.monotonic_ns() if now is None else now
    if how is ProcessStatus.GONE and len(samples):
        return Ending.KILLED, int(samples["time"].max())
    if trace.about.get("interrupted") and isinstance(stopped, int):
        return Ending.INTERRUPTED, stopped
    return Ending.RECORDED, 0
