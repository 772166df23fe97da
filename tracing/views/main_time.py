"""Where main's time went, in a sentence: the same under a timeline's title and at the end of the live view. The times
are those of the report (tracing.trace.main_split)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tracing.trace.event_index import Iterator
from tracing.trace.main_split import main_splits
from tracing.trace.thread_activity import MainTime
from tracing.trace.trace import Trace

USES = {
    "start-up": [MainTime.STARTUP],
    "in the training step": [MainTime.TRAINING],
    "waiting for batches": [MainTime.WAITING],
    "at work in the loader": [MainTime.DRAWING, MainTime.TAKING, MainTime.LOADING, MainTime.HANDLING],
    "shutdown": [MainTime.SHUTDOWN],
    "elsewhere": [MainTime.ELSEWHERE],
}


def main_in_words(trace: Trace, iterators: Sequence[Iterator], begin: int, end: int, killed: Sequence[int] = ()) -> str:
    """How main spent the time from `begin` to `end` (ns) on these iterators of one loader. Shares of 0 % are left out.
    killed: when it was (ns)."""
    splits, spent, until = main_splits(trace), np.zeros(len(MainTime)), min([end, *killed])
    for each in iterators:
        if each.number in splits:
            spans = splits[each.number].of(each)
            took = np.clip(spans.end, begin, until) - np.clip(spans.begin, begin, until)
            spent += np.bincount(spans.use, took, len(MainTime))
    shares = {words: float(spent[uses].sum()) / (end - begin) for words, uses in USES.items()}
    shares["after main was killed"] = (end - until) / (end - begin)
    shares["outside its loops"] = max(0.0, 1 - sum(shares.values()))  # before, between and after them
    return ", ".join(f"{share:.0%} {what}" for what, share in shares.items() if share >= 0.005)
