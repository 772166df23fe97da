"""The report's *Look*: of perhaps millions of events, the one place that shows most."""

from __future__ import annotations

import numpy as np

from tracing.analysis.measure.measures import Measures
from tracing.trace.intervals import Span

WORSE = 2  # main's longest wait is shown instead of the verdict's costliest stretch if it is this many times as long


def worst_moment(measures: Measures, of_verdict: Span | None) -> Span | None:
    """The costliest stretch of the verdict's cause, unless main once waited far longer than that for a batch: a cause
    that costs most all together may be in each place too short to see. None where the verdict has none to show."""
    if of_verdict is None:
        return None
    first, last = measures.time[list(of_verdict)].tolist()
    longest = measures.waits.longest(1)
    return longest.spans[0] if longest.total > WORSE * (last - first) else of_verdict


def batch_of(measures: Measures, span: Span) -> tuple[int, int] | None:
    """(epoch, batch): the one that main waits for longest in this part; if it waits for none, the one it ends with."""
    begin, end = measures.time[list(span)].tolist()
    rows, asked, had = measures.requests
    waited = np.minimum(had, end) - np.maximum(asked, begin)
    if len(rows) and waited.max() > 0:
        row = rows[waited.argmax()]
        return int(row["epoch"]), int(row["task"])
    last = measures.events[span[1]]
    return (int(last["epoch"]), int(last["task"])) if last["task"] >= 0 else None
