"""The colours of the timeline: of what a thread does, of batches, of lines and words; and the sizes of words."""

from __future__ import annotations

import matplotlib.patheffects as effects

from tracing.views.batch_colours import ON_PAPER
from tracing.views.timeline.spans import Look

FLAT = {  # looks that do not take a batch's colour
    Look.WAITING: "#e8e8e8",
    Look.BUSY: "#8a8a8a",
    Look.SETUP: "#d8c3a5",
}
SUMMED = FLAT | {  # where single batches are too narrow to be drawn
    Look.FETCH: "#332288",
    Look.COLLATE: "#88ccee",  # in grey it differs from everything it may be stacked on
    Look.PIN: "#332288",
    Look.TRAINING: "#cc6677",
}
INK, FAINT, ALARM = "#222222", "#6a6a6a", "#c02020"
MESSAGE = "#ffffff"  # one without a batch, in a queue: an outline, which no state of a thread has
FOR_OTHERS = "#5b3a00"  # in its step, a rank waits for another
RANGE, MEAN = "#cfd8e8", "#332288"  # of a queue's depth, summed up
HALO: list[effects.AbstractPathEffect] = [effects.withStroke(linewidth=2.2, foreground="white")]


# Points. A picture is 9 inches wide; on a page it is often shown at half its size, so only digits in a narrow bar
# are set smaller.
TITLE, WORDS, NUMBERS, LEAST_NUMBERS = 11.0, 8.5, 8.0, 5.5


def of_batch(batch: int) -> str:
    """The colour of a batch (epoch << 32 | task); that of a message for none, which is negative."""
    return ON_PAPER[(batch & 0xFFFFFFFF) % len(ON_PAPER)] if batch >= 0 else MESSAGE
