"""The moments at which a thread that iterates may be stuck: the end of a trace, and waits that were cut short."""

from __future__ import annotations

import enum
import time
from dataclasses import dataclass, field

import numpy as np

from minidl.events import Kind
from tracing.trace.event_index import Lane
from tracing.trace.process_liveness import ProcessStatus, has_unread
from tracing.trace.trace import Trace

WAITS = (Kind.WAIT, Kind.TIMED_OUT, Kind.HEALTH_CHECK)


class Ending(enum.Enum):
    """What ended the wait of the thread that is stuck, if anything."""

    ONGOING = "It looks stuck: {who} has made no progress for {age}"
    KILLED = "When {who} was killed, or left without a shutdown, it had made no progress for at least {age}"
    RECORDED = "It was stuck: {who} had made no progress for {age} when the recording ended"
    INTERRUPTED = "It was stuck: {who} had made no progress for {age} when it was interrupted"
    TIMED_OUT = "It was stuck: {who} had waited {age} when its timeout ran out"


@dataclass(frozen=True)
class Moment:
    """A thread that iterates, at some time, and what is known of the processes then."""

    k: int  # after this event
    until: int  # ns
    actor: int  # of the thread
    ending: Ending
    known: dict[int, ProcessStatus] = field(default_factory=dict)  # pid -> how it is
    left: list[int] = field(default_factory=list)  # pids of workers that outlived main


def ends(trace: Trace, known: dict[int, ProcessStatus], now: int | None) -> list[Moment]:
    """The end of the trace, for each thread that iterates."""
    k = trace.complete - 1
    if k < 0:
        return []
    actors = trace.actors
    mains = {each.main.actor for each in trace.state(k).loaders if each.main.actor >= 0}
    return [_end(trace, k, actor, known, now) for actor in sorted(mains) if actors[actor].role == "main"]


def _end(trace: Trace, k: int, actor: int, known: dict[int, ProcessStatus], now: int | None) -> Moment:
    pid, last = trace.actors[actor].pid, int(trace.events["time"][k])
    process = known.get(pid, ProcessStatus.GONE)
    if trace.complete < len(trace) or trace.dropped or trace.damage:
        return Moment(k, last, actor, Ending.RECORDED)
    if process in (ProcessStatus.LIVES, ProcessStatus.STOPPED):
        if now is None:
            pids = np.array([each.pid for each in trace.actors])
            recorded = int((pids[trace.events["actor"]] == pid).sum())
            now = last if has_unread(trace.path, pid, recorded) else max(last, time.monotonic_ns())
        return Moment(k, now, actor, Ending.ONGOING, known)
    if process is ProcessStatus.CLOSED:
        stopped = trace.about.get("stopped")
        ended = stopped if isinstance(stopped, int) and stopped > last else last
        return Moment(k, ended if now is None else min(now, ended), actor, Ending.RECORDED)
    # Killed. Its workers notice at once, if they can notice anything. How they are now says nothing about then.
    left = [pid for pid, how in known.items() if how in (ProcessStatus.LIVES, ProcessStatus.STOPPED)]
    died = np.flatnonzero(trace.events["kind"][: k + 1] == Kind.PARENT_DIED)
    if len(died) and died[0] > 0:
        return Moment(int(died[0]) - 1, int(trace.events["time"][died[0]]), actor, Ending.KILLED, {}, left)
    stopped_ones: dict[int, ProcessStatus] = {pid: how for pid, how in known.items() if how is ProcessStatus.STOPPED}
    return Moment(k, last if now is None else max(last, now), actor, Ending.KILLED, stopped_ones, left)


def waits_cut_short(trace: Trace) -> list[Moment]:
    """Waits that ended without a message: by a shutdown (Ctrl-C), or by the user's own timeout."""
    found = []
    kinds = trace.events["kind"]
    for iterator in trace.index.iterators:
        main = trace.index.lane(iterator.number, Lane.MAIN).array
        main = main[: main.searchsorted(trace.complete)]
        before, after = kinds[main[:-1]], kinds[main[1:]]
        interrupted = np.isin(before, WAITS) & (after == Kind.SHUTDOWN_BEGIN)
        timed_out = np.isin(before, WAITS[1:]) & (after == Kind.ERROR_RAISED)
        for at in main[1:][interrupted | timed_out].tolist():
            ending = Ending.INTERRUPTED if kinds[at] == Kind.SHUTDOWN_BEGIN else Ending.TIMED_OUT
            actor = int(trace.events["actor"][at])
            if trace.actors[actor].role == "main":
                found.append(Moment(at - 1, int(trace.events["time"][at]), actor, ending))
    return found
