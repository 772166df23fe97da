"""What a loader did lately: the numbers, the strips and the words beside its state in the live view.

Everything is computed from the events of the last few seconds, so a frame costs the same deep in a long run as at
its start. What a loader *is* comes from `trace.state(k)`; this is only what it *did*.

Legend
    now       81_234_000_000   ns; events after it have not happened yet
    window    5 s              how far back "lately" reaches
    load      [0.2, 1, ...]    the window in equal pieces: of each the share in which a thread was busy
"""

from __future__ import annotations

import numpy as np

from minidl.events import Kind, Queue
from tracing.trace.event_index import Lane
from tracing.trace.intervals import spent
from tracing.trace.kinds import NOTED
from tracing.trace.state import OUTSIDE, LoaderState, MainStatus, PinStatus, State, WorkerStatus
from tracing.trace.thread_activity import Activity, activity
from tracing.trace.trace import Trace

WINDOW = 5_000_000_000  # ns
MOST_EVENTS = 25_000  # looked at for one frame, in some 2 ms: above 5,000 a second the window gets shorter
MOST_SAID = 60  # events

AT_WORK = (WorkerStatus.FETCHING, WorkerStatus.COLLATING, WorkerStatus.SENDING)


# The events that are shown in words: those that a sequence diagram notes, too, and a batch's way from thread to thread.
SAID = NOTED | {
    Kind.ASKED, Kind.DISPATCHED, Kind.FETCH_BEGIN, Kind.PIN_BEGIN, Kind.PUT, Kind.RELEASED, Kind.WORKER_STARTED,
    Kind.RESUME_ACKNOWLEDGED, Kind.SAMPLER_END, Kind.SEND_FAILED, Kind.STATE_TAKEN, Kind.GOES_ON,
}  # fmt: skip


def strip_of(did: Activity, since: int, now: int, width: int) -> list[tuple[float, int]]:
    """The time in `width` equal pieces: of each its load, 0 to 1, and the task that was last in it."""
    edges = np.linspace(since, now, width + 1)
    load = np.diff(spent(did.begin, did.end, edges)) * width / max(1, now - since)
    which = np.searchsorted(did.begin, edges[1:]) - 1
    tasks = did.task[which] if len(did.task) else which
    return list(zip(load.tolist(), tasks.tolist(), strict=True))


class Recent:
    """What a frame shows beside the state: what the loader `choose(state, shown)` did in the window that ends at `now`,
    seen from event `state.k`."""

    def __init__(self, trace: Trace, state: State, now: int, shown: int = -1) -> None:
        self.now, self.since = now, now - WINDOW  # ns: the window's end, and its beginning
        self.start = trace.start  # the first event of the trace (ns)
        # Since then; 0 before it, however long the recording waits for it.
        self.seconds = (now - self.start) / 1e9 if state.k >= 0 else 0.0
        self.limit = ""  # what limits the load, by the whole run so far; "" if it is too early to say
        self.stuck: tuple[str, ...] = ()  # if it hangs, which thread keeps which waiting, and the command to explain it
        loader = choose(state, shown)
        self.loader = -1 if loader is None else loader.iterator  # the LoaderState.iterator that it is about; -1: none
        if loader is not None:
            events = trace.events[: state.k + 1]
            first = int(events["time"].searchsorted(self.since))
            if first < len(events) - MOST_EVENTS:  # the window becomes shorter
                first = len(events) - MOST_EVENTS
                self.since = int(events["time"][first])
            # The last words of a stalled run are older than the window.
            self._note_events(trace, loader, events[min(first, max(0, len(events) - 20 * MOST_SAID)) :])
            self._note_threads(trace, loader, first, state.k)

    def _note_events(self, trace: Trace, loader: LoaderState, latest: np.ndarray) -> None:
        latest = latest[latest["loader"] == loader.loader][-20 * MOST_SAID :]
        sent = (latest["kind"] == Kind.PUT) & (latest["queue"] == Queue.INDEX)  # DISPATCHED says that
        said, actors = latest[np.isin(latest["kind"], list(SAID)) & ~sent], trace.actors
        # Events worth showing, the newest last; and by whom.
        self.said = [(event, actors[event["actor"]]) for event in said[-MOST_SAID:]]

    def _note_threads(self, trace: Trace, loader: LoaderState, first: int, k: int) -> None:
        """What each was busy with between events `first` and `k`, including what it had begun before."""
        of_loader = (each for each in trace.index.iterators if each.loader == loader.loader)
        iterators = [each for each in of_loader if each.last(k) >= first or each.number == loader.iterator]
        # A loader that began inside the window is measured from its beginning.
        span = max(1, self.now - max(self.since, int(trace.events["time"][iterators[0].first()])))

        def did(lane: Lane, worker: int = -1) -> Activity:
            found = activity(trace, iterators, lane, worker, max(0, first - 1), k)
            found.begin = np.maximum(found.begin, self.since)
            found.end[-1:] = self.now
            return found

        def share(of: Activity) -> float:
            return min(1.0, of.total / span)

        main, pin = did(Lane.MAIN), did(Lane.PIN)
        workers = [did(Lane.WORKER, worker.worker) for worker in loader.workers]
        self.training = main.where(main.is_any(MainStatus.TRAINING) & (main.task >= 0))
        tasks = self.training.task
        self.training_on = int(tasks[-1]) if len(tasks) else loader.rcvd_idx - 1  # whose batch was yielded last
        self.batches_per_second = int(np.count_nonzero(self.training.first >= first)) * 1e9 / span
        self.in_loader = share(main.where(~main.is_any(*OUTSIDE)))  # of the window: main waited, or was at work there
        self.trained = share(self.training)
        self.workers = [work.where(work.is_any(*AT_WORK)) for work in workers]
        self.busy = [share(work) for work in self.workers]
        self.pin_busy = share(pin.where(pin.is_any(PinStatus.PINNING)))
        self.of_window = f"of the last {span / 1e9:.{int(span < 1e9)}f} s"  # what the shares are shares of


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
