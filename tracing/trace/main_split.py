"""Main's time, split once over all loaders: no moment counts twice, and none is left out.

A program may iterate over several loaders at once: a validation loop within a training step, two loaders zipped, a
loader within the dataset of another. Calls nest, so at each moment the thread is

    in a loader     in the one that it entered last
    in a loop       in no loader: in the step with the batch that it was given last
    OUTSIDE         before, between and after the loops

Legend
    stay    from ASKED to YIELDED, from LOADER to PRIMED, ...    the thread is in that loader
    step    from YIELDED to the same loader's next ASKED         the training loop has its batch
    use     MainTime.WAITING                                     what the time goes to
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from minidl.events import Kind
from tracing.trace.event_index import NEVER, Iterator, Lane
from tracing.trace.intervals import Intervals, depth
from tracing.trace.thread_activity import MainTime, activity, main_time

if TYPE_CHECKING:
    from tracing.trace.trace import Trace

NONE = -1  # instead of an iterator: OUTSIDE is nobody's
DEEPEST = 16  # what is nested deeper counts as one level
LEAVES = (Kind.YIELDED, Kind.PRIMED, Kind.EPOCH_END, Kind.ERROR_RAISED, Kind.SHUTDOWN_END)


@dataclass
class MainSpans(Intervals):
    """What one thread does: each span begins with the event that ends the one before it."""

    use: np.ndarray  # MainTime
    iterator: np.ndarray  # the number of the one that the time is spent on, or NONE


class Own:
    """The events of one iterator in its main lane: where each is, what follows it, and how long that lasts."""

    def __init__(self, trace: Trace, iterator: Iterator, every: np.ndarray) -> None:
        """`every`: the positions of all events of its thread, ascending."""
        main = activity(trace, [iterator], Lane.MAIN)
        self.at = at = main.first  # positions
        self.use, kind = main_time(trace, main), trace.events["kind"][at]
        made = kind == (Kind.PRIMED if iterator.num_workers else Kind.EPOCH_BEGIN)  # iter() returns
        inside = ~np.isin(kind, LEAVES) & ~made
        inside &= (self.use != MainTime.OUTSIDE) & (self.use != MainTime.TRAINING)
        # A stay ends with the next event that is not inside; the last, unless main waits in it, with the last event.
        after = NEVER if kind[-1] == Kind.WAIT else at[-1]
        stay_until = np.minimum.accumulate(np.append(np.where(inside, NEVER, at), after)[:0:-1])[::-1]
        # A step ends when the loader is asked again; if it never is in this epoch, with the next event of any loader.
        epoch, following = trace.events["epoch"][at], np.append(at[1:], at[-1])
        asks = trace.events["kind"][following] == Kind.ASKED
        asks &= trace.events["epoch"][following] == epoch
        next_of_any = every[np.minimum(every.searchsorted(at, "right"), len(every) - 1)]
        step_until = np.where(asks, following, next_of_any)
        yielded = kind == Kind.YIELDED
        self.use[yielded] = MainTime.TRAINING
        # Where what begins here ends (a position): a stay, a step, the pause from iter() to the first next(); else -1.
        self.until = np.where(inside, stay_until, np.where(yielded | made, step_until, NONE))
        self.stay_until = np.where(inside, self.until, NONE)  # -1: it is not in the loader
        self.step_until = np.where(yielded, self.until, NONE)  # of YIELDED; else -1


class MainSplit:
    """One thread's time, over all iterators that it drives."""

    def __init__(self, trace: Trace, iterators: list[Iterator]) -> None:
        self.trace = trace
        every = np.concatenate([trace.index.lane(each.number, Lane.MAIN).array for each in iterators])
        every.sort()
        self._own = {each.number: Own(trace, each, every) for each in iterators}

    @cached_property
    def spans(self) -> MainSpans:
        """All of it, from the first event to the last; open-ended where a thread still waits."""
        each = list(self._own.values())
        at, use, stay_until, step_until = (
            np.concatenate([getattr(own, name) for own in each]) for name in ("at", "use", "stay_until", "step_until")
        )
        iterator = np.repeat(list(self._own), [len(own.at) for own in each])
        order = np.argsort(at)
        at, use, iterator = at[order], use[order], iterator[order]
        stay, step = _innermost(at, stay_until[order]), _innermost(at, step_until[order])
        which = np.where(stay >= 0, stay, step)
        use, iterator = np.where(which >= 0, use[which], MainTime.OUTSIDE), np.where(which >= 0, iterator[which], NONE)
        time, last = self.trace.events["time"], np.append(at[1:], len(self.trace) - 1)
        found = MainSpans(time[at], time[last], at, last, use, iterator)
        waits = (stay_until >= NEVER).any()  # after its last event a thread is not known to do anything else
        return found if waits else found.where(slice(-1))

    def of(self, iterator: Iterator) -> MainSpans:
        """The loops of one iterator, from the beginning of each epoch to its end. What time the thread spends in
        neither this loader nor its steps is ELSEWHERE."""
        own = self._own[iterator.number]
        begin, end = self.spans.first.searchsorted((own.at[0], own.at[-1] + 1)) if len(own.at) else (0, 0)
        seen = self.spans.where(slice(begin, end))
        seen = seen.where(own.until[np.searchsorted(own.at, seen.first, "right") - 1] > seen.first)
        seen.use = np.where(seen.iterator == iterator.number, seen.use, MainTime.ELSEWHERE)
        return seen


def main_splits(trace: Trace) -> dict[int, MainSplit]:
    """Number of an iterator -> the split of the thread that drives it."""
    threads: dict[int, list[Iterator]] = {}
    for each in trace.index.iterators:
        lane = trace.index.lane(each.number, Lane.MAIN).array
        if len(lane):  # (of several threads that drive it, one in the middle of its life)
            threads.setdefault(int(trace.events["actor"][lane[len(lane) // 2]]), []).append(each)
    splits = [(MainSplit(trace, each), each) for each in threads.values()]
    return {iterator.number: split for split, iterators in splits for iterator in iterators}


def _innermost(at: np.ndarray, until: np.ndarray) -> np.ndarray:
    """At each event (of those at positions `at`, ascending): the last event of the innermost stay or step that lasts
    beyond it, as an index into `at`; -1 for none. `until`: where the one that an event belongs to ends, -1 for none."""
    member = np.flatnonzero(until >= 0)
    ends, which = np.unique(until[member], return_inverse=True)
    begins = np.full(len(ends), NEVER)
    np.minimum.at(begins, which, at[member])
    level = np.full(len(at), -1)
    level[member] = np.minimum(depth(begins, ends, begins) - 1, DEEPEST)[which]
    found, number = np.full(len(at), -1), np.arange(len(at))
    for each in range(int(level.max(initial=-1)) + 1):
        last = np.maximum.accumulate(np.where(level == each, number, -1))
        found = np.where((last >= 0) & (until[last] > at), last, found)
    return found
