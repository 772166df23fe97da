"""The timeline of a trace, as a matplotlib figure.

window           which loader, from when to when          followed_batch   the arrows that follow one batch
spans            what each thread does when               marks            deaths, errors, epochs, steps of a shutdown
lanes            draws the spans                          figure           puts it all on one page
queue_strips     what is in each queue when               bars, colours    what the others draw with

Of several ranks: tracing.ranks.timeline.
"""

from tracing.views.timeline.figure import timeline

__all__ = ["timeline"]
