"""A run that does not get on: `explain(trace)` says who waits on which queue, since when, for whom, and why in vain.

How the way is found from the thread that iterates to the one that is to blame stands in
tracing.analysis.hang.wait_chain. Here it is decided whether there is anything to explain, and put in words.

What counts as stuck is measured by the trace itself: main has not got on for several times as long as it ever took
before, and for longer than FLOOR. Until when main was where it is depends on how the trace ends (`Ending`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from minidl.events import Kind, Queue
from tracing.analysis.hang.causes import Cause
from tracing.analysis.hang.stuck_moments import Ending, Moment, broken_off, ends
from tracing.analysis.hang.threads import Link, Seat
from tracing.analysis.hang.wait_chain import Waits
from tracing.trace.event_index import Lane
from tracing.trace.event_words import KINDS, sentence
from tracing.trace.process_status import Process, processes, processes_of_a_simulation
from tracing.trace.state import LoaderState, MainStatus, State
from tracing.trace.trace import Actor, Trace
from tracing.trace.words import QUEUE_NAMES, duration

TIMES = 3  # so many times as long as it ever took before, ...
FLOOR = 10_000_000_000  # ... and longer than this (ns): a loader that waits looks around every 5 s
FLOOR_UNKNOWN = 30_000_000_000  # for the first batch, and the training step: it may evaluate, or save a model

NOT_IN_LOADER = (MainStatus.TRAINING, MainStatus.RAISED, MainStatus.ENDED, MainStatus.CLOSED)


@dataclass(frozen=True)
class LastEvent:
    """The last that a thread said."""

    who: str  # "worker 1", "feeder of index_queue 0"
    pid: int
    event: int  # position
    age: int  # ns
    what: str


@dataclass(frozen=True)
class Hang:
    """Who waits for whom. `str()` is its text."""

    ending: Ending
    age: int  # ns; how long the first of `links` has not got on
    usual: int  # ns; how long that took at most before, -1 if there was no before
    links: list[Link]  # from the thread that iterates to the one that is to blame; each waits for the next
    cause: Cause  # of the last of them
    advice: str
    others: list[Link]  # the other workers of these loaders
    last_events: list[LastEvent]  # of each thread, the oldest first
    until: int  # ns; the time up to which ages are counted
    start: int  # ns; of the trace

    @property
    def headline(self) -> str:
        said = self.ending.value.format(who=self.links[0].who, age=duration(self.age))
        usual = f"before, it took at most {duration(self.usual)}" if self.usual >= 0 else "for the first time"
        return f"{said} ({usual})."

    def notes(self) -> list[str]:
        """It in two paragraphs: the chain, and the last event of each process."""
        told = (self._told(link) for link in self.links)
        chain = " ".join(f"{each[0].upper()}{each[1:]}." for each in told)
        last = {each.pid: each for each in self.last_events}  # of a process the thread that spoke last
        events = "; ".join(
            f"{each.who} (pid {each.pid}) {duration(each.age)} ago: {each.what} [event {each.event}]"
            for each in last.values()
        )
        return [f"{self.headline} {chain} {self.cause.why} {self.advice}.", f"Last events: {events}."]

    def __str__(self) -> str:
        lines = [self.headline]
        for link in self.links:
            lines.append(f"  {self._told(link)}")
            if link.wakes:
                lines.append(f"    what would wake it: {link.wakes}")
        lines += [f"  Why   {self.cause.why}", f"  Next  {self.advice}"]
        if self.others:
            lines += ["Beside it", *(f"  {self._told(link)}" for link in self.others)]
        lines.append("Last events")
        widths = [max((len(text) for text in column), default=0) for column in zip(*self._rows(), strict=True)]
        for who, pid, age, what in self._rows():
            lines.append(f"  {who:{widths[0]}}  {pid:>{widths[1]}}  {age:>{widths[2]}}  {what}")
        return "\n".join(lines)

    def _rows(self) -> list[tuple[str, str, str, str]]:
        return [
            (each.who, f"pid {each.pid}", f"{duration(each.age)} ago", f"{each.what} [event {each.event}]")
            for each in self.last_events
        ]

    def _told(self, link: Link) -> str:
        since = f"{(link.since - self.start) / 1e9:.3f} s"
        return f"{link.who} {link.what}: for {duration(self.until - link.since)}, since {since} [event {link.event}]"


def explain(trace: Trace, now: int | None = None) -> Hang | None:
    """Why the run does not get on; None if it does, or has ended as it should.

    `now` (ns, the clock of the events) is the time until which the run is known to have lasted. By default that is the
    present for one that is going on, and else the time of its last event. Where events are missing (a file was full,
    cut off or damaged) only what was before is judged.
    """
    simulated = processes_of_a_simulation(trace.about)
    moments = ends(trace, simulated or processes(trace.path), now)
    if simulated:
        moments = [replace(moment, known=simulated) for moment in moments]
    found = [_judge(trace, moment, now is None) for moment in (*moments, *broken_off(trace))]
    return max((hang for hang in found if hang is not None), key=lambda hang: hang.age, default=None)


# ---- is it stuck?


def _judge(trace: Trace, moment: Moment, present: bool) -> Hang | None:
    """`present`: the moment's time was read from the clock, so that a timeout which is long over says something."""
    state = trace.state(moment.k)
    said = np.flatnonzero(trace.events["actor"][: moment.k + 1] == moment.actor)
    at = _where(trace, state, moment.actor, int(said[-1])) if len(said) else None
    if at is None or at.main.status in NOT_IN_LOADER[1:]:
        return None
    trains = at.main.status is MainStatus.TRAINING
    if trains and moment.ending is not Ending.NOT:
        return None  # it was not in the loader when it ended: no matter of a trace
    last = trace.events[said[-1]]
    lives = moment.known.get(trace.actors[moment.actor].pid) is Process.LIVES
    waits_since = int(last["time"]) if last["kind"] == Kind.WAIT else moment.until
    overdue = present and lives and moment.until - waits_since > last["value"] + FLOOR_UNKNOWN
    waits = Waits(trace, state, moment.known, bool(overdue))
    links, cause = waits.chain(Seat(Lane.MAIN, at.iterator))
    age = moment.until - (int(last["time"]) if trains else links[0].since)
    usual = _usual(trace, at, moment.k, trains)
    if age <= _patience(moment.ending, usual, trains):
        return None
    advice = cause.advice.format(pid=links[-1].pid)
    if cause in (Cause.DATASET, Cause.START) and at.num_workers and at.config.get("start_method") == "fork":
        advice += " (forked: a lock that a thread of main held just then stays locked in it for ever)"
    if moment.left:
        advice += f". Without main these live on: kill {' '.join(map(str, moment.left))}"
    others, last_events = _others(waits, state, links), _last_events(trace, state, moment)
    return Hang(moment.ending, age, usual, links, cause, advice, others, last_events, moment.until, trace.start)


def _patience(ending: Ending, usual: int, trains: bool) -> int:
    """How long it may take (ns)."""
    if ending is Ending.TIMED_OUT:  # the loader was told that this is too long
        return 0
    if ending is Ending.KILLED:  # somebody found that it took too long, or memory did not suffice
        return max(0, usual)
    return max(FLOOR_UNKNOWN if trains or usual < 0 else FLOOR, TIMES * usual)


def _where(trace: Trace, state: State, actor: int, last: int) -> LoaderState | None:
    """The loader that a thread is in: that of its last event; or if that is over, the last whose batch it has."""
    mine = [each for each in state.loaders if each.main.actor == actor and each.alive]
    epoch_id = int(trace.events["loader"][last]) << 32 | int(trace.events["epoch"][last])
    for each in mine:
        if trace.index.iterator_of[epoch_id] == each.iterator:
            return each
    training = [each for each in mine if each.main.status is MainStatus.TRAINING]
    return max(training, key=lambda each: each.main.since, default=None)


def _usual(trace: Trace, at: LoaderState, k: int, trains: bool) -> int:
    """How long it took at most before (ns): the training step; or to get a batch, or to make one. -1: no batch yet."""
    until = int(trace.events["time"][k])
    tasks = trace.tasks[trace.tasks["loader"] == at.loader]
    between = [("yielded", "asked")] if trains else [("fetch_begin", "collate_end")]
    longest = [-1]
    for begin, end in between:
        ended = tasks[(tasks[begin] >= 0) & (tasks[end] >= 0) & (tasks[end] <= until)]
        longest += (ended[end] - ended[begin]).tolist()
    if not trains:
        for iterator in trace.index.iterators:
            if iterator.loader == at.loader:
                longest += _requests(trace, iterator.number, k)
    return max(longest)


def _requests(trace: Trace, iterator: int, k: int) -> list[int]:
    """How long main was in the loader for each batch that it got (ns)."""
    asked, had = (trace.index.group(iterator, kind).array for kind in (Kind.ASKED, Kind.YIELDED))
    had = had[had <= k]
    begun = asked.searchsorted(had) - 1
    had, begun = had[begun >= 0], begun[begun >= 0]
    times = trace.events["time"]
    return (times[had] - times[asked[begun]]).tolist()


# ---- beside it


def _others(waits: Waits, state: State, links: list[Link]) -> list[Link]:
    """What the other workers do, of the loaders that the chain goes through."""
    found = []
    for at in state.loaders:
        for worker in range(at.num_workers):
            link, _ = waits.step(Seat(Lane.WORKER, at.iterator, worker))
            if link.who not in {each.who for each in links}:
                found.append(link)
    return found


def _last_events(trace: Trace, state: State, moment: Moment) -> list[LastEvent]:
    """Of each thread of the loaders that are alive, and of the one that is stuck. Feeder threads are left out that have
    nothing to send."""
    events = trace.events[: moment.k + 1]
    last = np.full(len(trace.actors), -1)
    last[events["actor"]] = np.arange(len(events))
    alive = {each.iterator: each for each in state.loaders}
    found = []
    for number, (actor, event) in enumerate(zip(trace.actors, last.tolist(), strict=True)):
        if event < 0:
            continue
        said = events[event]
        at = alive.get(trace.index.iterator_of[int(said["loader"]) << 32 | int(said["epoch"])])
        if number == moment.actor or (at is not None and not _rests(actor, at)):
            who = {"worker": f"worker {actor.worker}", "pin": "pin thread"}.get(actor.role, actor.role)
            if actor.role == "feeder":
                who = f"feeder of {QUEUE_NAMES[Queue(actor.queue)]} {actor.worker}"
            age = max(0, moment.until - int(said["time"]))
            found.append(LastEvent(who, actor.pid, event, age, _in_words(said)))
    return sorted(found, key=lambda each: -each.age)


def _rests(actor: Actor, at: LoaderState) -> bool:
    """Whether it is a feeder thread with nothing to send."""
    if actor.role != "feeder":
        return False
    queues = at.index_queues if actor.queue == Queue.INDEX else at.result_queues
    return len(queues[actor.worker]) == 0


def _in_words(event: np.void) -> str:
    words = sentence(event).text("batch {}" if event["task"] >= 0 else "{}")
    return f"{KINDS[int(event['kind'])].name}: {words}"
