"""A hang before the first event: the program has come to no loader, and tracing.recording.watch saw where it is."""

from __future__ import annotations

import time

from tracing.analysis.hang.causes import Cause
from tracing.analysis.hang.hang import Hang
from tracing.analysis.hang.lines import Lines
from tracing.analysis.hang.patience import FLOOR, FLOOR_ENDED, FLOOR_UNKNOWN
from tracing.analysis.hang.stuck_moments import Ending
from tracing.analysis.hang.threads import Link
from tracing.trace.process_liveness import ProcessStatus, processes
from tracing.trace.trace import Trace


def explain_before_loaders(trace: Trace, now: int | None) -> Hang | None:
    """Of a trace without events: where its process hangs, or did when it was ended; None if nothing shows that it does.

    As long as it goes on, it must wait in a line of its own: before its first loader a program may compute for as long
    as it likes."""
    pid, begin = trace.about.get("pid"), trace.about.get("monotonic")
    if not isinstance(pid, int) or not isinstance(begin, int) or trace.unseen:
        return None
    ending, until = _ending(trace, pid, now)
    lines, ongoing = Lines(trace, until), ending is Ending.ONGOING
    since, silence = lines.same_function(pid), lines.silence(pid, ongoing and now is None)
    waits = lines.waits(pid, since)
    if ending is Ending.RECORDED or not (since or silence) or (ongoing and not waits):
        return None
    since = since or until - silence
    if until - since <= (FLOOR_UNKNOWN if ongoing else FLOOR_ENDED if waits else FLOOR):
        return None
    link = lines.add_to(Link(f"main (pid {pid})", "is in code of the program", since, -1, "", pid, "MainThread"))
    return Hang(
        ending=ending,
        age=until - since,
        usual=-1,
        links=[link],
        cause=Cause.BEFORE,
        silence=silence,
        advice=Cause.BEFORE.advise(pid, link.line),
        others=[],
        beside=lines.beside(link),
        last_events=[],
        until=until,
        start=begin,
    )


def _ending(trace: Trace, pid: int, now: int | None) -> tuple[Ending, int]:
    """What ended it, and until when it is known to have lived (ns)."""
    how, samples = processes(trace.path).get(pid), trace.samples
    if how in (ProcessStatus.LIVES, ProcessStatus.STOPPED):
        return Ending.ONGOING, time.monotonic_ns() if now is None else now
    if how is ProcessStatus.GONE and len(samples):
        return Ending.KILLED, int(samples["time"].max())
    stopped = trace.about.get("stopped")
    if trace.about.get("interrupted") and isinstance(stopped, int):
        return Ending.INTERRUPTED, stopped
    return Ending.RECORDED, 0
