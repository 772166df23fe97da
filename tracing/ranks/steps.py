"""When each rank took its n-th step, and which of them waited in it.

In distributed training the ranks exchange gradients in every step, so all wait for the last to begin it. No rank's own
trace shows that: there, the waiting is part of its training step.

Legend
    step      (epoch 0, 12)          from a batch being handed out to the next being asked for
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from minidl.events import Kind
from tracing.ranks.ranks import Rank, Ranks

# By what share of the last rank's lateness the others' steps are longer:
MOST = 0.5  # this shows by itself that they wait for it ...
SOME = 0.25  # ... and less than this, that its batches are not why it is late
LAG = 6  # steps


@dataclass(frozen=True)
class Steps:
    """The steps that all ranks took: each array is (steps, ranks), int64, times in ns. -1: not known."""

    asked: np.ndarray  # for the batch; for the first of an epoch, when the epoch began
    began: np.ndarray
    ended: np.ndarray  # asked for the next batch
    number: np.ndarray  # of the batch in its epoch

    @cached_property
    def waited(self) -> np.ndarray:
        """How long each rank waited in each of its steps for the last one; 0 where ranks do not wait for each other.

        A rank that waits takes longer for its step than the last one. That cannot be seen where what the last
        one does after the exchange, at the end of each of its steps, makes it late. There it shows in the ranks
        staying together: those that do not wait for each other drift apart."""
        late = self.began.max(axis=1, keepdims=True, initial=0) - self.began
        if not len(self.began):
            return late
        took, known = self.ended - self.began, (self.ended >= 0).all(axis=1, keepdims=True)
        of_last = np.take_along_axis(took, self.began.argmax(axis=1)[:, None], axis=1)
        longer = np.where(known, np.clip(took - of_last, 0, late), 0)
        late = np.where(known, late, 0)
        if longer.sum() < MOST * late.sum() and not self._stay_together():
            return np.zeros_like(late)
        if longer.sum() < SOME * late.sum():
            finished = self.ended.min(axis=1, keepdims=True) >= self.began.max(axis=1, keepdims=True)
            return np.where(finished, late, 0)
        # Gradients may be accumulated over several steps: then they wait only in the last of these.
        waited_in = longer.max(axis=1, keepdims=True) >= SOME * late.max(axis=1, keepdims=True)
        return np.where(waited_in, late, longer)

    def _stay_together(self) -> bool:
        """Whether the ranks' distances go back to what they were. Those of ranks that do not wait for each other change
        a bit with every step, and the changes add up: over `LAG` steps to LAG times the variance, or more."""
        distance = (self.began - self.began.mean(axis=1, keepdims=True)).astype(float)
        if len(distance) < 3 * LAG:
            return False
        of_one, of_many = (np.square(distance[lag:] - distance[:-lag]).mean() for lag in (1, LAG))
        return bool(of_many < LAG / 2 * of_one)

    @property
    def synchronised(self) -> bool:
        """Whether the ranks wait for each other."""
        return bool(self.waited.any())

    def kept_waiting(self) -> np.ndarray:
        """For each rank: how long the others waited for it, on average, in the steps that it was the last to begin."""
        others = max(1, self.began.shape[1] - 1)
        return np.bincount(self.began.argmax(axis=1), self.waited.sum(axis=1) / others, minlength=self.began.shape[1])


def steps_of(ranks: Ranks) -> Steps:
    """The steps that all ranks took, with the loaders that all of them have."""
    found = [np.empty((4, 0, len(ranks.together)), np.int64)]
    for same in ranks.shared:
        for epoch in sorted(set.intersection(*(set(rank.epochs(loader)) for rank, loader in same.items()))):
            columns = [_steps_of(rank, same[rank], epoch) for rank in ranks.together]
            common = min(column.shape[1] for column in columns)
            found.append(np.stack([column[:, :common] for column in columns], axis=-1))
    steps = np.concatenate(found, axis=1)
    return Steps(*steps[:, np.argsort(steps[1].max(axis=1, initial=0))])


def _steps_of(rank: Rank, loader: int, epoch: int) -> np.ndarray:
    """The four fields of Steps, of one rank and epoch: (4, n)."""
    tasks = rank.tasks_of(loader)
    tasks = tasks[(tasks["epoch"] == epoch) & (tasks["yielded"] >= 0)]
    tasks = tasks[np.argsort(tasks["yielded"])]
    begin = np.append(rank.events(loader, epoch, Kind.LOADER), rank.events(loader, epoch, Kind.EPOCH_BEGIN))[:1]
    first = rank.trace.events["time"][begin] if len(begin) else np.full(min(1, len(tasks)), -1)
    asked = np.append(first, tasks["asked"])[: len(tasks)]
    return np.stack([asked, tasks["yielded"], tasks["asked"], np.arange(len(tasks))])
