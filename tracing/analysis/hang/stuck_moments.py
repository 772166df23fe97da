"""The moments at which a thread that iterates may be stuck: the end of a trace, and where its timeout ran out."""

from __future__ import annotations

import enum
import time
from dataclasses import dataclass, field

import numpy as np

from minidl.events import Kind
from tracing.recording.file_format import CTRL_C
from tracing.trace.event_index import Lane
from tracing.trace.process_liveness import ProcessStatus, has_unread
from tracing.trace.trace import Trace

INTERRUPTED_WORKER = 2  # WORKER_END's value
ENDED_BY_CTRL_C = 1, INTERRUPTED_WORKER  # 1: main was dead by then
POLLS = (Kind.WAIT, Kind.TIMED_OUT)  # a thread that waits does these now and then
REACTION = 1_000_000_000  # ns, at most, from Ctrl-C to the end of a worker that reacts to it
RUNS = (ProcessStatus.LIVES, ProcessStatus.STOPPED)


class Ending(enum.Enum):
    """What ended the wait of the thread that is stuck, if anything."""

    ONGOING = "It looks stuck: {who} has made no progress for {age}"
    KILLED = "When {who} was killed, or left without a shutdown, it had made no progress for at least {age}"
    RECORDED = "It was stuck: {who} had made no progress for {age} when the recording ended"
    INTERRUPTED = "It was stuck: {who} had made no progress for {age} when it was interrupted"
    TIMED_OUT = "It was stuck: {who} had waited {age} when its timeout ran out (raise that, if a batch may take longer)"


@dataclass(frozen=True)
class Moment:
    """A thread that iterates, at some time, and what is known of the processes then."""

    k: int  # after this event
    until: int  # ns
    actor: int  # of the thread
    ending: Ending
    known: dict[int, ProcessStatus] = field(default_factory=dict)  # pid -> status
    left: list[int] = field(default_factory=list)  # pids of workers that outlived main


def moments(trace: Trace, known: dict[int, ProcessStatus], now: int | None) -> list[Moment]:
    """Of each thread that iterates in a main process. (The loaders nested in a dataset are links in its chain.)"""
    k = trace.complete - 1
    mains = {each.main.actor for each in trace.state(k).loaders if each.main.actor >= 0} if k >= 0 else ()
    ends = [_end(trace, k, actor, known, now) for actor in sorted(mains) if trace.actors[actor].role == "main"]
    return [*ends, *_timeouts(trace, k)]


def _end(trace: Trace, k: int, actor: int, known: dict[int, ProcessStatus], now: int | None) -> Moment:
    pid, last = trace.actors[actor].pid, int(trace.events["time"][k])
    process = known.get(pid, ProcessStatus.GONE)
    if trace.complete < len(trace) or trace.dropped or trace.damage:
        return Moment(k, last, actor, Ending.RECORDED)
    if process in RUNS:
        if now is None:
            pids = np.array([each.pid for each in trace.actors])
            recorded = int((pids[trace.events["actor"]] == pid).sum())
            now = last if has_unread(trace.path, pid, recorded) else max(last, time.monotonic_ns())
        return Moment(k, now, actor, Ending.ONGOING, known)
    if process is ProcessStatus.CLOSED:
        ended = max(last, trace.about.get("stopped") or last)
        if now is None and (interrupted := _interrupted(trace, actor, ended)) is not None:
            return _longest_pause(trace, actor, interrupted)
        return Moment(k, ended if now is None else min(now, ended), actor, Ending.RECORDED)
    return _killed(trace, k, actor, known, max(last, now or 0))


def _killed(trace: Trace, k: int, actor: int, known: dict[int, ProcessStatus], until: int) -> Moment:
    """Its workers' status now says nothing about then, unless they are stopped."""
    times, pid, samples = trace.events["time"], trace.actors[actor].pid, trace.samples
    left = [each for each, how in known.items() if how in RUNS]
    noticed = np.flatnonzero(trace.events["kind"][: k + 1] == Kind.PARENT_DIED)
    if len(noticed):  # a worker does so at once, if it can notice anything
        k, until = int(noticed[0]) - 1, int(times[noticed[0]])
    if len(own := samples[samples["pid"] == pid]):
        # Where all died at once, the last sign of life of any counts: code that holds Python's lock gives none.
        alone = len(noticed) > 0 or left
        until = max(int((own if alone else samples)["time"].max()), int(times[trace.events["actor"] == actor][-1]))
    k = min(k, int(times.searchsorted(until, "right")) - 1)
    stopped: dict[int, ProcessStatus] = {each: how for each, how in known.items() if how is ProcessStatus.STOPPED}
    return Moment(k, until, actor, Ending.KILLED, stopped, left)


def _interrupted(trace: Trace, actor: int, ended: int) -> int | None:
    """When Ctrl-C ended the run (ns); None if nothing shows that it did. A program may catch it, but its workers are
    interrupted too."""
    kinds, mine = trace.events["kind"], trace.events["actor"] == actor
    had = np.flatnonzero(mine & (kinds == Kind.YIELDED)).max(initial=-1)
    after = np.flatnonzero((kinds == Kind.WORKER_END) & (trace.events["value"] == INTERRUPTED_WORKER))
    if len(after := after[after > had]):
        return int(trace.events["time"][after[0]])
    return ended if trace.about.get("ended_by", "").startswith(CTRL_C) else None


def _longest_pause(trace: Trace, actor: int, ended: int) -> Moment:
    """Where an interrupted run was stuck, if it was: in the longest pause of its thread since its last batch, shutdown
    aside."""
    times, kinds = trace.events["time"], trace.events["kind"]
    mine = np.flatnonzero((trace.events["actor"] == actor) & ~np.isin(kinds, POLLS))
    mine = mine[np.flatnonzero(kinds[mine] == Kind.YIELDED).max(initial=0) :]
    mine = mine[: max(1, int(times[mine].searchsorted(ended, "right")))]
    shuts_down = np.cumsum((kinds[mine] == Kind.SHUTDOWN_BEGIN) * 1 - (kinds[mine] == Kind.SHUTDOWN_END) * 1) > 0
    ends = np.append(times[mine[1:]], ended)
    pause = int(np.argmax(np.where(shuts_down, -1, ends - times[mine])))
    begin, until = int(mine[pause]), int(ends[pause])
    within = trace.events[begin : int(times.searchsorted(until, "right"))]
    reactions = within[(within["kind"] == Kind.WORKER_END) & np.isin(within["value"], ENDED_BY_CTRL_C)]
    if not len(reactions):
        return Moment(max(begin, int(times.searchsorted(until)) - 1), until, actor, Ending.INTERRUPTED)
    # What workers do once Ctrl-C has interrupted them says nothing about the hang: in between all were silent.
    reacted = int(reactions["time"][0])
    first = max(begin, int(times.searchsorted(reacted - REACTION)) - 1)
    last_second = np.append(times[first : int(times.searchsorted(reacted))], reacted)
    return Moment(first + int(np.diff(last_second).argmax()), until, actor, Ending.INTERRUPTED)


def _timeouts(trace: Trace, k: int) -> list[Moment]:
    """Waits that the user's own timeout ended: main's next event is the error."""
    events, found = trace.events, []
    for iterator in trace.index.iterators:
        main = trace.index.lane(iterator.number, Lane.MAIN).array
        kinds = events["kind"][main]
        timed_out = (kinds[:-1] == Kind.TIMED_OUT) & (kinds[1:] == Kind.ERROR_RAISED)
        for raised in main[1:][timed_out & (main[1:] <= k)].tolist():
            actor = int(events["actor"][raised])
            if trace.actors[actor].role == "main":
                found.append(Moment(raised - 1, int(events["time"][raised]), actor, Ending.TIMED_OUT))
    return found
