"""Positions of events in `trace.events`: a list in ascending order, in which those up to event k are counted."""

from __future__ import annotations

import numpy as np


class Positions:
    """A list of positions, ascending, that grows at its end."""

    __slots__ = ("_array", "_length")

    def __init__(self) -> None:
        self._array = np.empty(16, np.int64)
        self._length = 0

    def __len__(self) -> int:
        return self._length

    @property
    def array(self) -> np.ndarray:
        return self._array[: self._length]

    def extend(self, positions: np.ndarray) -> None:
        length = self._length + len(positions)
        if length > len(self._array):
            longer = np.empty(max(length, 2 * self._length), np.int64)
            longer[: self._length] = self.array
            self._array = longer
        self._array[self._length : length] = positions
        self._length = length

    def cut(self, position: int) -> None:
        """Forget this position and all after it."""
        self._length = self.count(position - 1)

    def count(self, k: int) -> int:
        """How many are <= k."""
        return int(self._array[: self._length].searchsorted(k, "right"))  # not self.array: asked thousands of times

    def last(self, k: int) -> int:
        """The last that is <= k, or -1."""
        count = self.count(k)
        return int(self._array[count - 1]) if count else -1

    def last_of_each(self, ks: np.ndarray) -> np.ndarray:
        """For each of the positions `ks`: the last that is <= it, or -1."""
        counts = self.array.searchsorted(ks, "right")
        return np.where(counts > 0, self._array[counts - 1], -1)

    def range(self, first: int, k: int) -> np.ndarray:
        """Those from `first` to `k`; and before them the last that is < `first`, if there is one."""
        begin, end = self._array[: self._length].searchsorted((first, k), "right").tolist()
        return self._array[max(0, begin - 1) : end]


NOWHERE = Positions()
