"""Stretches of time between two events, and where several of them overlap.

"Main waited, and meanwhile a worker was idle": cut the time wherever anything changes (`Grid`). Between two cuts
each thread does one thing, so the time in question is the sum of the lengths of some of the pieces.

Legend
    span     (1204, 1230)     positions of two events: the time between them
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from typing_extensions import Self  # of Python 3.11

Span = tuple[int, int]


@dataclass
class Intervals:
    """Stretches of time, each between two events. All arrays have the same length."""

    begin: np.ndarray  # ns
    end: np.ndarray
    first: np.ndarray  # position of the event that begins it
    last: np.ndarray  # ... and of the one that ends it

    def where(self, mask: np.ndarray | slice) -> Self:
        """Those that a mask, a slice or an array of indices chooses."""
        return type(self)(*(getattr(self, each.name)[mask] for each in fields(self)))

    @property
    def length(self) -> np.ndarray:
        return self.end - self.begin

    @property
    def total(self) -> int:
        """The sum of their lengths (ns)."""
        return int(self.length.sum())

    def longest(self, count: int = 3) -> Intervals:
        """The longest ones, longest first, without empty ones."""
        order = np.argsort(-self.length, kind="stable")[:count]
        return self.where(order[self.length[order] > 0])

    def median(self) -> Intervals:
        """One of median length (the shorter of two); none if there are none."""
        order = np.argsort(self.length, kind="stable")
        return self.where(order[(len(order) - 1) // 2 :][:1])

    def joined(self) -> Intervals:
        """The same time, with neighbours joined: where one begins with the event that ends the other."""
        begins = np.append(True, self.first[1:] != self.last[:-1])[: len(self.first)]
        ends = np.append(begins[1:], True)[: len(self.first)]
        return Intervals(self.begin[begins], self.end[ends], self.first[begins], self.last[ends])

    @property
    def spans(self) -> list[Span]:
        return list(zip(self.first.tolist(), self.last.tolist(), strict=True))


def depth(begin: np.ndarray, end: np.ndarray, at: np.ndarray) -> np.ndarray:
    """How many of the intervals contain each of the moments `at`."""
    begin, end = (np.sort(each, kind="stable") for each in (begin, end))  # quick where they are ascending already
    return np.searchsorted(begin, at, "right") - np.searchsorted(end, at, "right")


def spent(begin: np.ndarray, end: np.ndarray, at: np.ndarray) -> np.ndarray:
    """How much of the time up to each of the moments `at` is in the intervals, which must be in ascending order and not
    overlap: float64, ns."""
    if len(begin) == 0:
        return np.zeros(len(at))
    total = np.append(0, np.cumsum(end - begin))
    return np.interp(at, np.column_stack([begin, end]).ravel(), np.column_stack([total[:-1], total[1:]]).ravel())


class Grid:
    """The time, cut at `edges` (ns, any order). Between two edges nothing changes."""

    def __init__(self, *edges: np.ndarray) -> None:
        # Not np.unique: it would not use the fact that each is ascending already.
        every = np.sort(np.concatenate(edges), kind="stable") if edges else np.empty(0, np.int64)
        self.edges = every[np.append(True, every[1:] != every[:-1])[: len(every)]]
        self.length = np.diff(self.edges)
        self.middle = self.edges[:-1] + self.length // 2

    def depth(self, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
        """How many of the intervals contain each piece."""
        return depth(begin, end, self.middle)


def concatenate(parts: Sequence[Intervals]) -> Intervals:
    """All of them in one."""
    none, names = np.empty(0, np.int64), ("begin", "end", "first", "last")
    return Intervals(*(np.concatenate([none, *(getattr(part, name) for part in parts)]) for name in names))
