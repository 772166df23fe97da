"""The timeline of a trace, as a matplotlib figure.

window           which loader, from when to when          followed_batch   the arrows that follow one batch
spans            what each thread does when               marks            deaths, errors, epochs, steps of a shutdown
lanes            draws the spans                          memory_strips    what main and the workers used
queue_contents   what is in each queue when               main_time        where main's time went, in words
queue_strips     draws that                               figure           puts it all on one page
bars, colours    what the others draw with
"""

from __future__ import annotations

from tracing.views.timeline.figure import timeline

__all__ = ["timeline"]
