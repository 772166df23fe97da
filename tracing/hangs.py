"""`explain(trace)`: of a run that stands still, who waits for whom, since when, and what every thread said last.

Whether it stands still is judged by the run's own numbers. Main has either asked for a batch, and not got it, or it
trains, or it is busy with starting, resuming or stopping workers. Each is compared with the longest time that this
loader took for the same before. A finished run does not stand still, unless its last wait was ended from outside: by
Ctrl-C, or by the loader's own timeout.

Legend
    moment    k 1234, now 55_000_000_000, live True    after which event it is judged, and at what time (ns)
    normal    120_000_000                              the longest earlier time of this kind (ns); -1: there was none
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from minidl.events import Kind
from tracing import format as fmt
from tracing.blame import Chain, Link
from tracing.recording import is_alive
from tracing.state import LoaderState, MainStatus
from tracing.trace import Actor, Trace
from tracing.words import duration

FACTOR = 10  # so many times the longest that was seen before is not normal any more, ...
FLOOR = 10_000_000_000  # ... but never less than this (ns): a page cache that is cold, a machine that is busy
UNKNOWN_FLOOR = 60_000_000_000  # nothing to compare with: a first batch; and a training step, which may evaluate
MOST = 40  # threads that are listed

OVER = (MainStatus.ENDED, MainStatus.CLOSED, MainStatus.RAISED)  # main is not in this loader: it wants nothing of it
BUSY = (MainStatus.STARTING, MainStatus.RESUMING, MainStatus.SHUTTING_DOWN)  # between epochs: asks for no batch


@dataclass(frozen=True)
class Thread:
    """What a thread said last."""

    name: str  # "worker 1 (pid 123)"
    kind: str  # "FETCH_BEGIN"
    task: int  # that it concerns, -1: none
    age: int  # ns before the moment that is judged
    event: int  # its position

    def __str__(self) -> str:
        return f"{self.name}: {self.kind}{f' of batch {self.task}' if self.task >= 0 else ''} {duration(self.age)} ago"


@dataclass(frozen=True)
class Hang:
    """A run that stands still."""

    what: str  # "main (pid 12) has waited 42.1 s for batch 17"
    since: int  # ns, the clock of the events
    now: int  # when it was judged
    normal: int  # the longest that this took before (ns); -1: it had not happened before
    alive: bool  # main is still there
    chain: list[Link]  # who holds up whom, from main to the one who waits for nobody
    others: list[str]  # what the workers do that are not in it
    threads: list[Thread]  # of each its last event, the one longest silent first

    def sentences(self) -> list[str]:
        """What stands still, then each link of the chain and each of the others, as sentences."""
        before = "it had not happened before" if self.normal < 0 else f"the longest before: {duration(self.normal)}"
        state = "Stuck" if self.alive else "Was stuck when it ended"
        found = [f"{state}: {self.what} ({before})."]
        return [*found, *(_capital(str(link)) for link in self.chain), *(_capital(each) for each in self.others)]

    def last_heard(self) -> str:
        """What every thread said last, in one line."""
        return f"Last heard of: {'; '.join(map(str, self.threads))}."

    def __str__(self) -> str:
        first, *rest = self.sentences()
        lines = [first, *(f"  - {sentence}" for sentence in rest), "Last heard of"]
        return "\n".join([*lines, *(f"  {thread} [event {thread.event}]" for thread in self.threads)])


@dataclass(frozen=True)
class Moment:
    """After which event a run is judged, and when."""

    k: int
    now: int  # ns
    live: bool  # main is there
    judged: bool = False  # somebody has said already that it took too long: the loader's own timeout


def explain(trace: Trace, now: int | None = None) -> Hang | None:
    """Why the run stands still; None if it does not.

    `now` is when that is judged (ns, the clock of the events). If it is not given: at this moment while the run is in
    progress, else at its last event.
    """
    if not len(trace):
        return None
    workers = {actor.pid for actor in trace.actors if actor.role == "worker"}
    found = []
    for number, actor in enumerate(trace.actors):
        if actor.role == "main" and actor.pid not in workers:  # else a thread in a worker: that is found from main
            moment = _moment(trace, number, actor, now)
            hang = _judge(trace, number, moment) if moment else None
            if hang is not None:
                found.append(hang)
    return max(found, key=lambda hang: hang.now - hang.since, default=None)


# ---- when to judge


def _moment(trace: Trace, number: int, actor: Actor, now: int | None) -> Moment | None:
    """When this main is judged; None if it has ended as it should."""
    last = len(trace) - 1
    headers = [fmt.read_header(path) for path in trace.path.glob(f"events-{actor.pid}-*.bin")]
    if any(header is not None and header.dropped for header in headers):
        # What main said later is not recorded: that it was silent then shows nothing.
        last = trace.complete - 1
        return Moment(last, int(trace.events["time"][last]), False) if last >= 0 else None
    if not any(header is not None and header.used < 0 for header in headers):
        return _broken_off(trace, number)
    alive = is_alive(actor.pid)
    end = int(trace.events["time"][last])
    if now is None:
        now = max(end, time.monotonic_ns()) if alive else end
    return Moment(last, now, alive)


def _broken_off(trace: Trace, number: int) -> Moment | None:
    """The end of a wait that did not end by itself: the loader's timeout, or an exception out of nowhere, as Ctrl-C is
    (main waits, and the next thing it says is that it shuts down)."""
    said = np.flatnonzero(trace.events["actor"] == number)
    kinds = trace.events["kind"][said]
    waits = np.isin(kinds, (Kind.WAIT, Kind.TIMED_OUT, Kind.HEALTH_CHECK))
    ends = np.flatnonzero(waits[:-1] & np.isin(kinds[1:], (Kind.SHUTDOWN_BEGIN, Kind.ERROR_RAISED))) + 1
    for at in said[ends[::-1]].tolist():
        timeout = trace.events["kind"][at] == Kind.ERROR_RAISED
        if not timeout or "timed out after" in str(trace.text(at)):
            return Moment(at - 1, int(trace.events["time"][at]), False, judged=timeout)
    return None


# ---- whether it is stuck


def _judge(trace: Trace, number: int, moment: Moment) -> Hang | None:
    chain = Chain(trace, moment.k, moment.live)
    loader = _concerned(chain, number)
    if loader is None or loader.main.status in OVER:
        return None
    since, normal, asked = _in_this_since(trace, loader, moment.k)
    training = loader.main.status is MainStatus.TRAINING
    since = max(since, int(trace.events["time"][chain.last_said_by(number)])) if training else since
    floor = FLOOR if normal >= 0 and not training else UNKNOWN_FLOOR
    if training and not moment.live:  # it was killed, or was still training when its file was full
        return None
    if moment.now - since < max(floor, FACTOR * normal) and not moment.judged:
        return None
    length, name = duration(moment.now - since), chain.main_name(loader)
    what = f"{name} has waited {length} for batch {loader.rcvd_idx}"
    if not asked:
        what = f"{name} has been {'outside the loader' if training else loader.main.status.value} for {length}"
    links = chain.follow(loader)
    threads = _threads(trace, chain, moment)
    return Hang(what, since, moment.now, normal, moment.live, links, _others(chain, loader), threads)


def _concerned(chain: Chain, number: int) -> LoaderState | None:
    """The iterator that a main is in: the last it spoke of. If that is over it trains, with a batch of another."""
    last = chain.iterator_of(chain.last_said_by(number))
    own = [each for each in chain.loaders if each.alive and each.main.actor == number]
    for each in own:
        if each.iterator == last:
            return each
    return next((each for each in own if each.main.status is MainStatus.TRAINING), None)


def _in_this_since(trace: Trace, loader: LoaderState, k: int) -> tuple[int, int, bool]:
    """Since when main waits, trains, or is busy; the longest time it did that before (ns), or -1; and whether it has
    asked for a batch. A wait begins with the question: main may take others, which came early, while it lasts."""
    if loader.main.status in BUSY:
        return loader.main.since, -1, False
    training = loader.main.status is MainStatus.TRAINING
    begin, end = (Kind.YIELDED, Kind.ASKED) if training else (Kind.ASKED, Kind.YIELDED)
    longest = -1
    for iterator in trace.index.iterators:
        if iterator.loader == loader.loader:
            begins, ends = (trace.index.group(iterator.number, kind).array for kind in (begin, end))
            ends = ends[ends <= k]
            rank = begins.searchsorted(ends) - 1
            lengths = (trace.events["time"][ends[rank >= 0]] - trace.events["time"][begins[rank[rank >= 0]]]).tolist()
            longest = max(longest, *lengths) if lengths else longest
    began = trace.index.group(loader.iterator, begin).last(k)
    return int(trace.events["time"][began]) if began >= 0 else loader.main.since, longest, not training


# ---- what the others do


def _others(chain: Chain, loader: LoaderState) -> list[str]:
    """What the workers do that the chain does not speak of."""
    told = " ".join(link.who for link in chain.links)
    found = []
    for worker in loader.workers:
        name = f"worker {worker.worker} (pid {worker.pid or 'unknown'})"
        if name not in told:
            if worker.task >= 0:
                found.append(f"{name} is {worker.status.value} batch {worker.task}, {chain.when(worker.since)}.")
            else:
                found.append(f"{name} {chain.worker_rests(loader, worker)}")
    return found


def _threads(trace: Trace, chain: Chain, moment: Moment) -> list[Thread]:
    """The last event of each thread of the iterators that are alive; those that have ended left nothing open."""
    alive = {each.iterator for each in chain.loaders}
    events = trace.events[: moment.k + 1]
    actors, last = np.unique(events["actor"][::-1], return_index=True)
    found = []
    for number, position in zip(actors.tolist(), (len(events) - 1 - last).tolist(), strict=True):
        event, actor = events[position], trace.actors[number]
        kind = Kind(event["kind"])
        if chain.iterator_of(position) in alive and kind not in (Kind.FEEDER_END, Kind.PIN_THREAD_END):
            age = max(0, moment.now - int(event["time"]))
            found.append(Thread(_name(actor), kind.name, max(-1, int(event["task"])), age, position))
    return sorted(found, key=lambda thread: -thread.age)[:MOST]


def _name(actor: Actor) -> str:
    who = {"pin": "pin thread", "feeder": "feeder thread"}.get(actor.role, actor.role)
    worker = f" {actor.worker}" if actor.role == "worker" else ""
    if actor.role == "feeder":
        worker = f" of {'main for ' if actor.queue == 1 else ''}worker {actor.worker}"
    return f"{who}{worker} (pid {actor.pid})"


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
