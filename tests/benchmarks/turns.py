"""Two ways to do the same thing, timed in turns."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median, quantiles


@dataclass(frozen=True)
class Comparison:
    """What `in_turns` measured: seconds, one value per turn."""

    first: list[float]
    second: list[float]

    @property
    def median_first(self) -> float:
        return median(self.first)

    @property
    def median_second(self) -> float:
        return median(self.second)

    @property
    def speed(self) -> float:
        """The second's speed relative to the first's: the ratio of their medians. Above 1 the second is faster."""
        return self.median_first / self.median_second

    @property
    def spread(self) -> tuple[float, float]:
        """The lower and the upper quartile of the turns' own ratios."""
        ratios = [first / second for first, second in zip(self.first, self.second, strict=True)]
        if len(ratios) == 1:
            return ratios[0], ratios[0]
        low, _, high = quantiles(ratios, n=4, method="inclusive")
        return low, high


def in_turns(first: Callable[[], float], second: Callable[[], float], turns: int) -> Comparison:
    """Call both `turns` times; each returns the seconds it took. Which goes first alternates."""
    times: dict[Callable[[], float], list[float]] = {first: [], second: []}
    for turn in range(turns):
        for measure in (first, second) if turn % 2 == 0 else (second, first):
            gc.collect()  # the garbage of one is not collected on the other's time
            times[measure].append(measure())
    return Comparison(times[first], times[second])
