"""The timeline of a trace, as a matplotlib figure.

window      which loader, from when to when          figure      puts it all on one page
spans       who does what when                       artists     draws lanes, queues, arrows and marks
queues      how deep each queue is, and what is in it
story       the way of one batch; what is marked
"""

from __future__ import annotations

from tracing.views.timeline.figure import timeline

__all__ = ["timeline"]
