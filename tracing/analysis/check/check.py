"""`tracing.check(trace)`: does the protocol hold in this trace? tracing.analysis.check.invariants, and beside it
`invariants_of_slots`, are what must hold."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracing.analysis.check.invariants_of_slots import INVARIANTS
from tracing.analysis.check.iterator_events import IteratorEvents

if TYPE_CHECKING:
    from tracing.trace.trace import Trace

MOST = 20  # violations of one invariant that are reported for one iterator


@dataclass(frozen=True)
class Violation:
    """An invariant that does not hold."""

    name: str  # of the invariant: "first in, first out"
    sentence: str  # what should hold
    what: str  # what is: "index_queue 1: task 3 was got where task 2 was due"
    events: list[int]  # positions of the events that show it, ascending
    rank: str = ""  # "rank 1": in whose trace, where a run has several

    def __str__(self) -> str:
        of_rank = f"{self.rank}: " if self.rank else ""
        return f"{of_rank}{self.name}: {self.what} (events {', '.join(map(str, self.events))})"


def check(trace: Trace) -> list[Violation]:
    """The violated invariants; an empty list when all hold.

    Where a file was full or damaged, only the events up to there are judged: what is missing after that proves nothing.
    """
    found = []
    for iterator in trace.index.iterators:
        of_iterator = IteratorEvents(trace, iterator.number)
        for each in INVARIANTS:
            for what, events in itertools.islice(each.breaches(of_iterator), MOST):
                found.append(Violation(each.name, each.sentence, what, sorted(events)))
    return found
