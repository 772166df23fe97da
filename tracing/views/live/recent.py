"""What a loader did lately: the numbers, the strips and the words beside its state in the live view.

Everything is computed from the events of the last few seconds, so a frame costs the same deep in a long run as at
its start. What a loader *is* comes from `trace.state(k)`; this is only what it *did*.

Legend
    now       81_234_000_000   ns; events after it have not happened yet
    window    5 s              how far back "lately" reaches
    load      [0.2, 1, ...]    the window in equal pieces: of each the share in which a thread was busy
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

import numpy as np

from minidl.events import Kind, Queue
from tracing.trace.event_index import Lane
from tracing.trace.intervals import spent
from tracing.trace.kinds import NOTED
from tracing.trace.state import OUTSIDE, LoaderState, MainStatus, PinStatus, State, WorkerStatus
from tracing.trace.thread_activity import Activity, activity

if TYPE_CHECKING:
    from tracing.trace.trace import Actor, Trace

WINDOW = 5_000_000_000  # ns
MOST_EVENTS = 25_000  # looked at for one frame, in some 2 ms: above 5,000 a second the window gets shorter
MOST_SAID = 60  # events

AT_WORK = (WorkerStatus.FETCHING, WorkerStatus.COLLATING, WorkerStatus.SENDING)


# The events that are shown in words: those that a sequence diagram notes, too, and a batch's way from thread to thread.
SAID = NOTED | {
    Kind.ASKED, Kind.DISPATCHED, Kind.FETCH_BEGIN, Kind.PIN_BEGIN, Kind.PUT, Kind.RELEASED, Kind.WORKER_STARTED,
    Kind.RESUME_ACKNOWLEDGED, Kind.SAMPLER_END, Kind.SEND_FAILED, Kind.STATE_TAKEN, Kind.GOES_ON,
}  # fmt: skip
_IS_SAID = np.isin(np.arange(256), list(SAID))  # [kind]


def busy(did: Activity, at: np.ndarray) -> np.ndarray:
    """How long a thread had been at it at each of these times: float64, ns."""
    return spent(did.begin, did.end, at)


def strip_of(did: Activity, since: int, now: int, width: int) -> list[tuple[float, int]]:
    """The time in `width` equal pieces: of each its load, 0 to 1, and the task that was last in it."""
    edges = np.linspace(since, now, width + 1)
    load = np.diff(busy(did, edges)) * width / max(1, now - since)
    which = np.searchsorted(did.begin, edges[1:]) - 1
    tasks = did.task[which] if len(did.task) else which
    return list(zip(load.tolist(), tasks.tolist(), strict=True))


NEVER = Activity(*(np.empty(0, np.int64) for _ in fields(Activity)))


@dataclass
class Recent:
    """What a frame shows beside the state."""

    loader: int  # the LoaderState.iterator that it is about; -1: there is none
    since: int = 0  # where the window begins (ns)
    now: int = 0  # ns
    start: int = 0  # the first event of the trace (ns)
    events: int = 0  # so far, of the whole trace
    batches_per_second: float = 0.0
    in_loader: float = 0.0  # share of the window that main spent in the loader: waiting, or at work there
    trained: float = 0.0  # share of it that main spent in the training step
    busy: list[float] = field(default_factory=list)  # of each worker: its share of the window
    pin_busy: float = 0.0
    training: Activity = field(default_factory=lambda: NEVER)  # main's training steps
    workers: list[Activity] = field(default_factory=list)  # at work
    training_on: int = -1  # the task whose batch was yielded last
    said: list[tuple[np.void, Actor]] = field(default_factory=list)  # events worth showing, the newest last; by whom
    limit: str = ""  # what limits the load, by the whole run so far; "" if it is too early to say
    stuck: tuple[str, ...] = ()  # if it hangs, which thread keeps which waiting, and the command that explains it

    @property
    def seconds(self) -> float:
        """Since the first event; 0 before it, however long the recording waits for it."""
        return (self.now - self.start) / 1e9 if self.events else 0.0

    @property
    def of_window(self) -> str:
        """What the shares are shares of."""
        length = min(self.seconds, (self.now - self.since) / 1e9)
        return f"of the last {length:.{int(length < 1)}f} s"


def choose(state: State, shown: int = -1) -> LoaderState | None:
    """The loader to show: the one that is busiest at this moment. `shown`, the iterator now on screen, stays as
    long as any of its threads did something in the last second: a view that jumps cannot be read."""
    best = max(state.loaders, key=_last_move, default=None)
    for loader in state.loaders:
        if best is not None and loader.iterator == shown and _last_move(best) - _last_move(loader) < 1_000_000_000:
            return loader
    return best


def _last_move(loader: LoaderState) -> int:
    return max([loader.main.since, *(worker.since for worker in loader.workers)])


def recent(trace: Trace, state: State, now: int, shown: int = -1) -> Recent:
    """What the loader `choose(state, shown)` did in the window ending at `now`, seen from event `state.k`."""
    loader = choose(state, shown)
    if loader is None:
        return Recent(-1, now=now, since=now - WINDOW, start=trace.start, events=state.k + 1)
    since = now - WINDOW
    events = trace.events[: state.k + 1]
    first = int(events["time"].searchsorted(since))
    if first < len(events) - MOST_EVENTS:
        first = len(events) - MOST_EVENTS
        since = int(events["time"][first])
    several = len(trace.loaders) > 1

    def of_this(events: np.ndarray) -> np.ndarray:
        return events[events["loader"] == loader.loader] if several else events

    result = Recent(loader.iterator, since, now, trace.start, len(events))
    # The last words of a stalled run are older than the window.
    latest = of_this(events[min(first, max(0, len(events) - 20 * MOST_SAID)) :])[-20 * MOST_SAID :]
    sent = (latest["kind"] == Kind.PUT) & (latest["queue"] == Queue.INDEX)  # DISPATCHED says that
    said = _IS_SAID[latest["kind"]] & ~sent
    actors = trace.actors
    result.said = [(event, actors[event["actor"]]) for event in latest[said][-MOST_SAID:]]
    _add_what_was_done(result, trace, loader, first, state.k)
    return result


def _add_what_was_done(result: Recent, trace: Trace, loader: LoaderState, first: int, k: int) -> None:
    """What each thread was busy with between events `first` and `k`."""
    of_loader = (each for each in trace.index.iterators if each.loader == loader.loader)
    iterators = [each for each in of_loader if each.last(k) >= first or each.number == loader.iterator]

    def did(lane: Lane, worker: int = -1) -> Activity:
        found = activity(trace, iterators, lane, worker, first, k)
        found.begin = np.maximum(found.begin, result.since)
        found.end[-1:] = result.now
        return found

    main = did(Lane.MAIN)
    trained = main.where(main.is_any(MainStatus.TRAINING) & (main.task >= 0))
    inside = main.where(~main.is_any(*OUTSIDE))
    result.training = trained
    result.training_on = int(trained.task[-1]) if len(trained.task) else loader.rcvd_idx - 1
    # A run that began inside the window is measured from its beginning.
    span = max(1, result.now - max(result.since, trace.start))

    def share(of: Activity) -> float:
        since, now = busy(of, np.array([result.since, result.now])).tolist()
        return min(1.0, (now - since) / span)

    result.batches_per_second = int(np.count_nonzero(trained.first >= first)) * 1e9 / span
    result.in_loader, result.trained = share(inside), share(trained)
    for worker in loader.workers:
        work = did(Lane.WORKER, worker.worker)
        result.workers.append(work.where(work.is_any(*AT_WORK)))
        result.busy.append(share(result.workers[-1]))
    pin = did(Lane.PIN)
    result.pin_busy = share(pin.where(pin.is_any(PinStatus.PINNING)))
