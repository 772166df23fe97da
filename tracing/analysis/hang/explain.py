"""A run that makes no progress: `explain(trace)` finds who waits on which queue, since when, for whom, and why in vain.

This module decides if there is anything to explain, and puts it in words. tracing.analysis.hang.wait_chain finds the
way from the thread that iterates to the one that is to blame.

The trace itself is the measure of what counts as stuck: main has made no progress for several times as long as it ever
took before, and for longer than FLOOR. When that time ends depends on how the trace ends (`Ending`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from minidl.events import Kind, Queue
from tracing.analysis.hang.causes import Cause
from tracing.analysis.hang.stuck_moments import Ending, Moment, ends, waits_cut_short
from tracing.analysis.hang.threads import Link, ThreadId
from tracing.analysis.hang.wait_chain import WaitChain
from tracing.trace.event_index import Lane
from tracing.trace.event_words import KINDS, sentence
from tracing.trace.process_liveness import ProcessStatus, processes, processes_of_a_simulation
from tracing.trace.state import LoaderState, MainStatus, State
from tracing.trace.trace import Actor, Trace
from tracing.trace.words import QUEUE_NAMES, duration

TIMES = 3  # stuck: this many times as long as it ever took before, ...
FLOOR = 10_000_000_000  # ... and longer than this (ns): a loader that waits runs a health check every 5 s
FLOOR_UNKNOWN = 30_000_000_000  # the same for the first batch, and for the training step, which may evaluate or save
FLOOR_INTERRUPTED = 2_000_000_000  # for a wait that Ctrl-C ended: somebody took it for a hang

NOT_IN_LOADER = (MainStatus.TRAINING, MainStatus.RAISED, MainStatus.ENDED, MainStatus.CLOSED)


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
    advice: str
    others: list[Link]  # the other workers of these loaders
    last_events: list[LastEvent]  # of each thread, the oldest first
    until: int  # ns; ages are counted back from here
    start: int  # ns; of the trace

    @property
    def headline(self) -> str:
        stuck = self.ending.value.format(who=self.links[0].who, age=duration(self.age))
        usual = f"before, it took at most {duration(self.usual)}" if self.usual >= 0 else "it is the first time"
        return f"{stuck} ({usual})."

    def notes(self) -> list[str]:
        """Two paragraphs: the chain, and the last event of each process."""
        lines = (self._in_words(link) for link in self.links)
        chain = " ".join(f"{line[0].upper()}{line[1:]}." for line in lines)
        last = {each.pid: each for each in self.last_events}  # the latest of each process
        events = "; ".join(
            f"{each.who} (pid {each.pid}) {duration(each.age)} ago: {each.what} [event {each.event}]"
            for each in last.values()
        )
        return [f"{self.headline} {chain} {self.cause.why} {self.advice}.", f"Last events: {events}."]

    def __str__(self) -> str:
        lines = [self.headline]
        for link in self.links:
            lines.append(f"  {self._in_words(link)}")
            if link.wakes:
                lines.append(f"    what would wake it: {link.wakes}")
        lines += [f"  Why   {self.cause.why}", f"  Next  {self.advice}"]
        if self.others:
            lines += ["Other workers", *(f"  {self._in_words(link)}" for link in self.others)]
        lines.append("Last events")
        rows = [(each.who, f"pid {each.pid}", f"{duration(each.age)} ago") for each in self.last_events]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for each, (who, pid, age) in zip(self.last_events, rows, strict=True):
            line = f"  {who:{widths[0]}}  {pid:>{widths[1]}}  {age:>{widths[2]}}"
            lines.append(f"{line}  {each.what} [event {each.event}]")
        return "\n".join(lines)

    def _in_words(self, link: Link) -> str:
        since = f"{(link.since - self.start) / 1e9:.3f} s"
        return f"{link.who} {link.what}: for {duration(self.until - link.since)}, since {since} [event {link.event}]"


def explain(trace: Trace, now: int | None = None) -> Hang | None:
    """Why the run makes no progress; None if it does, or ended as it should.

    `now` (ns, on the clock of the events) is how long the run is known to have lasted: by default until the present if
    it is still going on, or else until its last event. Where events are missing (a file was full, cut off or damaged),
    only what came before is judged.
    """
    simulated = processes_of_a_simulation(trace.about)
    moments = ends(trace, simulated or processes(trace.path), now)
    if simulated:
        moments = [replace(moment, known=simulated) for moment in moments]
    found = [_judge(trace, moment, now is None) for moment in (*moments, *waits_cut_short(trace))]
    return max((hang for hang in found if hang is not None), key=lambda hang: hang.age, default=None)


# ---- is it stuck?


def _judge(trace: Trace, moment: Moment, present: bool) -> Hang | None:
    """`present`: the moment's time was read from the clock, so a timeout that expired long ago means something."""
    state = trace.state(moment.k)
    last = _last_event(trace, moment)
    loader = _loader_of(trace, state, moment.actor, last) if last >= 0 else None
    if loader is None or loader.main.status in NOT_IN_LOADER[1:]:
        return None
    trains = loader.main.status is MainStatus.TRAINING
    if trains and moment.ending is not Ending.ONGOING:
        return None  # it was not in the loader when it ended
    waits = WaitChain(trace, state, moment.known, present and _is_overdue(trace, moment, last))
    links, cause = waits.chain(ThreadId(Lane.MAIN, loader.iterator))
    age = moment.until - (int(trace.events["time"][last]) if trains else links[0].since)
    usual = _usual(trace, loader, moment.k, trains)
    if age <= _patience(moment.ending, usual, trains):
        return None
    return Hang(
        ending=moment.ending,
        age=age,
        usual=usual,
        links=links,
        cause=cause,
        advice=_advice(cause, links[-1].pid, loader, moment.left),
        others=_others(waits, state, links),
        last_events=_last_events(trace, state, moment),
        until=moment.until,
        start=trace.start,
    )


def _last_event(trace: Trace, moment: Moment) -> int:
    """The position of the last event of the thread at this moment, -1 if there is none."""
    events = np.flatnonzero(trace.events["actor"][: moment.k + 1] == moment.actor)
    return int(events[-1]) if len(events) else -1


def _is_overdue(trace: Trace, moment: Moment, last: int) -> bool:
    """Whether the thread lives, and began to wait so long ago that it should have timed out by itself."""
    event = trace.events[last]
    lives = moment.known.get(trace.actors[moment.actor].pid) is ProcessStatus.LIVES
    waited = moment.until - int(event["time"])
    return bool(event["kind"] == Kind.WAIT and lives and waited > event["value"] + FLOOR_UNKNOWN)


def _advice(cause: Cause, pid: int, loader: LoaderState, left: list[int]) -> str:
    advice = cause.advice.format(pid=pid)
    if cause in (Cause.DATASET, Cause.START) and loader.num_workers and loader.config.get("start_method") == "fork":
        advice += " (it was forked: a lock that another thread of main held just then stays locked in it forever)"
    if left:
        advice += f". Without main, these live on: kill {' '.join(map(str, left))}"
    return advice


def _patience(ending: Ending, usual: int, trains: bool) -> int:
    """How long it may take (ns)."""
    if ending is Ending.TIMED_OUT:  # too long for the user's own timeout
        return 0
    if ending is Ending.KILLED:  # too long for whoever killed it; or memory ran out
        return max(0, usual)
    if ending is Ending.INTERRUPTED:  # too long for its user
        return max(FLOOR_INTERRUPTED, TIMES * usual)
    return max(FLOOR_UNKNOWN if trains or usual < 0 else FLOOR, TIMES * usual)


def _loader_of(trace: Trace, state: State, actor: int, last: int) -> LoaderState | None:
    """The loader that a thread is in: that of its last event; or if that is over, the last whose batch it has."""
    mine = {each.iterator: each for each in state.loaders if each.main.actor == actor and each.alive}
    iterator = _iterator_of(trace, trace.events[last])
    if iterator in mine:
        return mine[iterator]
    training = [each for each in mine.values() if each.main.status is MainStatus.TRAINING]
    return max(training, key=lambda each: each.main.since, default=None)


def _iterator_of(trace: Trace, event: np.void) -> int:
    return trace.index.iterator_of[int(event["loader"]) << 32 | int(event["epoch"])]


def _usual(trace: Trace, loader: LoaderState, k: int, trains: bool) -> int:
    """The longest it took before (ns): the training step; or to get a batch, or make one. -1: no batch yet."""
    until = int(trace.events["time"][k])
    tasks = trace.tasks[trace.tasks["loader"] == loader.loader]
    begin, end = ("yielded", "asked") if trains else ("fetch_begin", "collate_end")
    ended = tasks[(tasks[begin] >= 0) & (tasks[end] >= 0) & (tasks[end] <= until)]
    lengths = (ended[end] - ended[begin]).tolist()
    if not trains:
        for iterator in trace.index.iterators:
            if iterator.loader == loader.loader:
                lengths += _requests(trace, iterator.number, k)
    return max(lengths, default=-1)


def _requests(trace: Trace, iterator: int, k: int) -> list[int]:
    """How long main was in the loader for each batch that it got (ns)."""
    asked, had = (trace.index.group(iterator, kind).array for kind in (Kind.ASKED, Kind.YIELDED))
    had = had[had <= k]
    begun = asked.searchsorted(had) - 1
    had, begun = had[begun >= 0], begun[begun >= 0]
    times = trace.events["time"]
    return (times[had] - times[asked[begun]]).tolist()


# ---- the other threads


def _others(waits: WaitChain, state: State, links: list[Link]) -> list[Link]:
    """What the workers that are not in the chain do."""
    steps = [
        waits.step(ThreadId(Lane.WORKER, loader.iterator, worker))
        for loader in state.loaders
        for worker in range(loader.num_workers)
    ]
    return [link for link, _ in steps if link.who not in {each.who for each in links}]


def _last_events(trace: Trace, state: State, moment: Moment) -> list[LastEvent]:
    """The last event of each thread of living loaders, and of the stuck thread. Feeder threads with nothing to send
    are left out."""
    events = trace.events[: moment.k + 1]
    last = np.full(len(trace.actors), -1)
    last[events["actor"]] = np.arange(len(events))
    alive = {each.iterator: each for each in state.loaders}
    found = []
    for number, (actor, position) in enumerate(zip(trace.actors, last.tolist(), strict=True)):
        if position < 0:
            continue
        event = trace.events[position]
        loader = alive.get(_iterator_of(trace, event))
        if number == moment.actor or (loader is not None and not _is_idle_feeder(actor, loader)):
            age = max(0, moment.until - int(event["time"]))
            found.append(LastEvent(_thread_name(actor), actor.pid, position, age, _event_in_words(event)))
    return sorted(found, key=lambda each: -each.age)


def _thread_name(actor: Actor) -> str:
    if actor.role == "feeder":
        return f"feeder of {QUEUE_NAMES[Queue(actor.queue)]} {actor.worker}"
    return {"worker": f"worker {actor.worker}", "pin": "pin thread"}.get(actor.role, actor.role)


def _is_idle_feeder(actor: Actor, loader: LoaderState) -> bool:
    if actor.role != "feeder":
        return False
    queues = loader.index_queues if actor.queue == Queue.INDEX else loader.result_queues
    return len(queues[actor.worker]) == 0


def _event_in_words(event: np.void) -> str:
    words = sentence(event).text("batch {}" if event["task"] >= 0 else "{}")
    return f"{KINDS[int(event['kind'])].name}: {words}"
