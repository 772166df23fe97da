"""What part of a trace the timeline shows: which loader, from when to when, one by one or summed up."""

from __future__ import annotations

import numpy as np

from tracing.trace.event_index import Iterator
from tracing.trace.trace import Trace

MOST_SINGLE_BATCHES = 250  # more are summed up: bars would be narrower than three pixels
BINS = 260  # of a summed-up picture: about three pixels each at 900


class View:
    """What part of a trace is drawn, and how."""

    def __init__(
        self,
        trace: Trace,
        start: float | None = None,
        end: float | None = None,
        batches: tuple[int, int] | None = None,
        loader: int | None = None,
        epoch: int | None = None,
    ) -> None:
        """`timeline` describes the arguments. ValueError: there is nothing to draw."""
        if len(trace) == 0:
            raise ValueError("nothing to draw: the trace has no events")
        found, time = trace.index.iterators_of(loader), trace.events["time"]
        self.trace, self.loader = trace, found[0].loader
        tasks = trace.tasks[trace.tasks["loader"] == self.loader]
        iterators = _one_at_a_time(found, tasks, epoch)
        self.left_out = len(found) - len(iterators)  # iterators that are not drawn: they ran at the same time as these
        tasks = tasks[np.isin(tasks["epoch"], [number for each in iterators for number in each.epochs])]
        begin, until = int(time[iterators[0].first()]), int(time[iterators[-1].last(len(trace))])
        if batches is not None:
            begin, until = _time_of(tasks, batches, iterators[0].epochs[0] if epoch is None else epoch)
        elif epoch is not None:
            own = time[(trace.events["loader"] == self.loader) & (trace.events["epoch"] == epoch)]
            if len(own) == 0:
                raise ValueError(f"nothing to draw: loader {self.loader} has no epoch {epoch} in this trace")
            begin, until = int(own[0]), int(own[-1])
        begin = begin if start is None else trace.start + round(start * 1e9)
        until = until if end is None else trace.start + round(end * 1e9)
        seen = [each for each in iterators if time[each.first()] < until and time[each.last(len(trace))] >= begin]
        if until <= begin or not seen:
            raise ValueError(f"nothing to draw: loader {self.loader} has no events in this window")
        self.iterators = seen  # of that loader, one after the other
        self.epochs = [epoch for each in seen for epoch in each.epochs]
        self.num_workers = max(each.num_workers for each in seen)
        self.begin, self.end = begin, until  # ns
        entered, left = _life(tasks)
        self.tasks = tasks[(entered < until) & (left > begin)]  # rows of trace.tasks: those under way in it
        self.summed = len(self.tasks) > MOST_SINGLE_BATCHES  # whether they are too many to draw each
        self.edges = np.linspace(begin, until, BINS + 1)  # of the bins, if they are


def _one_at_a_time(found: list[Iterator], tasks: np.ndarray, epoch: int | None) -> list[Iterator]:
    """A program may run several iterators of one loader at once (`zip(loader, loader)`). Their
    workers have the same names, so only one of them is drawn: that of `epoch`, or the one with the most batches."""

    def importance(each: Iterator) -> tuple[bool, int]:
        return epoch in each.epochs, int(np.isin(tasks["epoch"], each.epochs).sum())

    kept: list[Iterator] = []
    for each in sorted(found, key=importance, reverse=True):
        if all(each.last() < other.first() or other.last() < each.first() for other in kept):
            kept.append(each)
    return sorted(kept, key=lambda each: each.first())


def _life(tasks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """When each task is first and last seen (ns)."""
    columns = ("keys_begin", "index_put", "fetch_begin", "collate_end", "result_put", "received", "yielded", "asked")
    known = np.stack([tasks[name] for name in columns])
    return np.where(known >= 0, known, np.iinfo(np.int64).max).min(axis=0), known.max(axis=0)


def _time_of(tasks: np.ndarray, batches: tuple[int, int], epoch: int) -> tuple[int, int]:
    """From when the first of these batches was sent to when the training loop was done with the last."""
    first, after = batches
    chosen = tasks[(tasks["epoch"] == epoch) & (tasks["task"] >= first) & (tasks["task"] < after)]
    if len(chosen) == 0:
        raise ValueError(f"nothing to draw: no batches {first} to {after - 1} of epoch {epoch} in this trace")
    entered, left = _life(chosen)
    return int(entered.min()), int(left.max())
