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

INTERRUPTED_WORKER = 2  # WORKER_END's value
REACTION = 1_000_000_000  # ns from Ctrl-C to a worker's end, at most, and what it does meanwhile
WAITS = (Kind.WAIT, Kind.TIMED_OUT, Kind.HEALTH_CHECK)


class Ending(enum.Enum):
    """What ended the wait of the thread that is stuck, if anything."""

    ONGOING = "It looks stuck: {who} has {what} for {age}"
    KILLED = "When {who} was killed, or left without a shutdown, it had {what} for at least {age}"
    RECORDED = "It was stuck: {who} had {what} for {age} when the recording ended"
    INTERRUPTED = "It was stuck: {who} had {what} for {age} when it was interrupted"
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
        if now is None and (interrupted := _interrupted(trace, actor, ended)) is not None:
            return _longest_pause(trace, actor, interrupted)
        return Moment(k, ended if now is None else min(now, ended), actor, Ending.RECORDED)
    # Killed. Its workers notice at once, if they can notice anything. How they are now says nothing about then.
    left = [pid for pid, how in known.items() if how in (ProcessStatus.LIVES, ProcessStatus.STOPPED)]
    died = np.flatnonzero(trace.events["kind"][: k + 1] == Kind.PARENT_DIED)
    noticed = len(died) > 0 and died[0] > 0
    stopped_ones: dict[int, ProcessStatus] = {pid: how for pid, how in known.items() if how is ProcessStatus.STOPPED}
    if (lived := _lived(trace, actor, alone=noticed or bool(left))) is not None:
        k = int(died[0]) - 1 if noticed else k
        k = min(k, int(trace.events["time"].searchsorted(lived, "right")) - 1)
        return Moment(k, lived, actor, Ending.KILLED, stopped_ones, left)
    if noticed:
        return Moment(int(died[0]) - 1, int(trace.events["time"][died[0]]), actor, Ending.KILLED, {}, left)
    return Moment(k, last if now is None else max(last, now), actor, Ending.KILLED, stopped_ones, left)


def _lived(trace: Trace, actor: int, alone: bool) -> int | None:
    """Until when a process that was killed had lived, as far as it was sampled (ns). `alone`: others lived on; else all
    died at once, and the last sign of life of any counts: code that holds Python's lock keeps a process from giving
    any."""
    pid, samples = trace.actors[actor].pid, trace.samples
    own = samples[samples["pid"] == pid]
    if not len(own):
        return None
    events = trace.events["time"][trace.events["actor"] == actor]
    return max(int((own if alone else samples)["time"].max()), int(events[-1]))


def _interrupted(trace: Trace, actor: int, ended: int) -> int | None:
    """When Ctrl-C ended the run (ns); None if nothing shows that it did. A program may catch it, but its workers are
    interrupted too."""
    mine = np.flatnonzero(trace.events["actor"] == actor)
    had = mine[trace.events["kind"][mine] == Kind.YIELDED]
    workers = (trace.events["kind"] == Kind.WORKER_END) & (trace.events["value"] == INTERRUPTED_WORKER)
    after = np.flatnonzero(workers)
    after = after[after > had[-1]] if len(had) else after
    if len(after):
        return int(trace.events["time"][after[0]])
    return ended if trace.about.get("interrupted") else None


def _longest_pause(trace: Trace, actor: int, ended: int) -> Moment:
    """Where an interrupted run was stuck, if it was: where its thread did nothing for longest since its last batch, but
    to shut down."""
    times, kinds = trace.events["time"], trace.events["kind"]
    mine = np.flatnonzero(trace.events["actor"] == actor)
    had = np.flatnonzero(kinds[mine] == Kind.YIELDED)
    mine = mine[had[-1] :] if len(had) else mine
    mine = mine[: max(1, int(times[mine].searchsorted(ended, "right")))]
    shuts_down = np.cumsum((kinds[mine] == Kind.SHUTDOWN_BEGIN) * 1 - (kinds[mine] == Kind.SHUTDOWN_END) * 1) > 0
    ends = np.append(times[mine[1:]], ended)
    pause = int(np.argmax(np.where(shuts_down, -1, ends - times[mine])))
    k = _before_reactions(trace, int(mine[pause]), int(ends[pause]))
    return Moment(k, int(ends[pause]), actor, Ending.INTERRUPTED)


def _before_reactions(trace: Trace, begin: int, until: int) -> int:
    """The last event before a time, or an earlier one, from `begin` on, before workers reacted to what ended the wait:
    Ctrl-C interrupts them, too."""
    times = trace.events["time"]
    within = trace.events[begin : int(times.searchsorted(until, "right"))]
    reactions = within[(within["kind"] == Kind.WORKER_END) & (within["value"] > 0)]
    if len(reactions):
        until = int(reactions["time"][0]) - REACTION
    return max(begin, int(times.searchsorted(until)) - 1)


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
        cut_short = interrupted | timed_out
        for begin, at in zip(main[:-1][cut_short].tolist(), main[1:][cut_short].tolist(), strict=True):
            ending = Ending.INTERRUPTED if kinds[at] == Kind.SHUTDOWN_BEGIN else Ending.TIMED_OUT
            actor = int(trace.events["actor"][at])
            if trace.actors[actor].role == "main":
                k = _before_reactions(trace, begin, int(trace.events["time"][at]))
                found.append(Moment(k, int(trace.events["time"][at]), actor, ending))
    return found
