"""The timeline of a trace, as a matplotlib figure.

window           which loader, from when to when          followed_batch   the arrows that follow one batch
spans            what each thread does when               marks            deaths, errors, epochs, steps of a shutdown
lanes            draws the spans                          memory_strips    what main and the workers used
queue_contents   what is in each queue when               main_time        where main's time went, in words
queue_strips     draws that                               figure           puts it all on one page
bars, colours    what the others draw with               ranks            the same of several ranks, stacked
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from tracing.trace.ranks import Ranks, open_ranks
from tracing.trace.trace import Trace
from tracing.views.timeline.figure import timeline as timeline_of_trace
from tracing.views.timeline.ranks import timeline_of_ranks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["timeline"]


def timeline(run: Trace | Ranks | str | os.PathLike[str], **options: Any) -> Figure:
    """Draw a trace: see tracing.views.timeline.figure.timeline, which has the options. Or, given the path of a run of
    several processes, all of these, stacked upon one clock: see tracing.views.timeline.ranks.timeline_of_ranks.

    Raises ValueError when there is nothing to draw, TraceError as `tracing.load` does.
    """
    if isinstance(run, Trace):
        return timeline_of_trace(run, **options)
    ranks = run if isinstance(run, Ranks) else open_ranks(run)
    if len(ranks.all) == 1:
        return timeline_of_trace(ranks.all[0].trace, **options)
    return timeline_of_ranks(ranks, **options)
