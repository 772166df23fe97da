"""A run that makes no progress: `explain(trace)` finds who waits on which queue, since when, for whom, and why in vain.

This module decides if there is anything to explain. tracing.analysis.hang.wait_chain finds the way from the thread that
iterates to the one that is to blame, tracing.analysis.hang.patience says how long is too long, and
tracing.analysis.hang.hang puts it in words.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from minidl.events import Kind, Queue
from tracing.analysis.hang.before_loaders import explain_before_loaders
from tracing.analysis.hang.causes import Cause
from tracing.analysis.hang.hang import Hang, LastEvent
from tracing.analysis.hang.lines import Lines
from tracing.analysis.hang.patience import FLOOR_UNKNOWN, patience
from tracing.analysis.hang.stuck_moments import Ending, Moment, ends, waits_cut_short
from tracing.analysis.hang.threads import Link, ThreadId
from tracing.analysis.hang.wait_chain import WaitChain
from tracing.trace.event_index import Lane
from tracing.trace.event_words import KINDS, sentence
from tracing.trace.process_liveness import ProcessStatus, processes, processes_of_a_simulation
from tracing.trace.state import OUTSIDE, LoaderState, MainStatus, State
from tracing.trace.trace import Actor, Trace
from tracing.trace.words import QUEUE_NAMES

LOCKS = re.compile("lock|acquire", re.IGNORECASE)  # source that may wait for a lock


def explain(trace: Trace, now: int | None = None) -> Hang | None:
    """Why the run makes no progress; None if it does, or ended as it should.

    `now` (ns, on the clock of the events) is how long the run is known to have lasted: by default until the present if
    it is still going on, or else until its last event. Where events are missing (a file was full, cut off or damaged),
    only what came before is judged.
    """
    if not len(trace):
        return explain_before_loaders(trace, now)
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
    if loader is None:
        return None
    lines = Lines(trace, moment.until, exactly=moment.ending is Ending.INTERRUPTED)
    outside = loader.main.status in OUTSIDE
    if outside and not _may_be_stuck_outside(trace, moment, last, loader.main.status, lines):
        return None
    asked_now = present and moment.ending is Ending.ONGOING
    waits = WaitChain(
        trace,
        state,
        moment.known,
        is_silent=lambda pid: lines.silence(pid, asked_now) > 0,
        overdue=present and _is_overdue(trace, moment, last),
    )
    links, cause = waits.chain(ThreadId(Lane.MAIN, loader.iterator))
    age = moment.until - (int(trace.events["time"][last]) if outside else links[0].since)
    usual, patient = patience(trace, moment, loader, last)
    if age <= patient:
        return None
    links = [lines.add_to(link) for link in links]
    return Hang(
        ending=moment.ending,
        age=age,
        usual=usual,
        links=links,
        cause=cause,
        silence=lines.silence(links[-1].pid, asked_now),
        advice=_advice(cause, links[-1], loader, moment),
        others=[lines.add_to(link) for link in _others(waits, state, links)],
        beside=lines.beside(links[-1]),
        last_events=_last_events(trace, state, moment),
        until=moment.until,
        start=trace.start,
    )


def _may_be_stuck_outside(trace: Trace, moment: Moment, last: int, status: MainStatus, lines: Lines) -> bool:
    """Whether a thread that is in no loader may be stuck: not if the run just ended. After the last epoch a program may
    compute, or sit at a prompt, for as long as it likes: then it must wait, in a line of its own."""
    if moment.ending is Ending.RECORDED:
        return False
    pid, since = trace.actors[moment.actor].pid, int(trace.events["time"][last])
    if status is MainStatus.TRAINING:
        return True
    is_own = lines.own(pid, trace.actors[moment.actor].thread, since) is not None
    return is_own and trace.actors[moment.actor].thread == "MainThread" and lines.waits(pid, since)


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


def _advice(cause: Cause, blamed: Link, loader: LoaderState, moment: Moment) -> str:
    advice = cause.advise(blamed.pid, blamed.line)
    forked = loader.num_workers > 0 and loader.config.get("start_method") == "fork"
    if cause in (Cause.DATASET, Cause.START) and forked and (blamed.line is None or LOCKS.search(blamed.line.source)):
        advice += " (it was forked: a lock that another thread of main held just then stays locked in it forever)"
    if moment.left:
        advice += f". Without main, these live on: kill {' '.join(map(str, moment.left))}"
    return advice


def _loader_of(trace: Trace, state: State, actor: int, last: int) -> LoaderState | None:
    """The loader that a thread is in: that of its last event; or if that is over, the last whose batch it has, or the
    last that it had to do with."""
    mine = {each.iterator: each for each in state.loaders if each.main.actor == actor}
    iterator = _iterator_of(trace, trace.events[last])
    if iterator in mine:
        return mine[iterator]
    return max(mine.values(), key=lambda each: (each.main.status is MainStatus.TRAINING, each.main.since), default=None)


def _iterator_of(trace: Trace, event: np.void) -> int:
    return trace.index.iterator_of[int(event["loader"]) << 32 | int(event["epoch"])]


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
