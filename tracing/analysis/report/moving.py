"""What moving batches from the workers to main costs, by how they are moved: see minidl.transport.

Of a loader that moves them as torch does, main's work can be avoided altogether, so the report says what it is, and how
to try the other way. With slots it says when there were too few of them.
"""

from __future__ import annotations

import numpy as np

from minidl.events import Kind
from tracing.analysis.measure.measures import Measures
from tracing.analysis.report.evidence import Number, Reason, median, run
from tracing.trace.event_index import NO_SLOT
from tracing.trace.thread_activity import MainTime

RELEVANT = 0.05  # of main's time: what moving batches as torch does must cost to be mentioned
MANY = 0.1  # of the batches that needed memory: if more got memory of their own, slots are too few
ENOUGH = 10  # batches in memory of their own
FEW = 3  # batches in memory that was used again: of fewer it is not said what they took

AS_TORCH = "each tensor is in a shared-memory file of its own, which main asks a thread of the worker for, and maps"


def matters(measures: Measures) -> bool:
    """Whether taking the batches costs main a relevant part of its time, and need not."""
    taking = measures.spent[MainTime.TAKING]
    return measures.num_workers > 0 and measures.moves_as_torch and taking >= RELEVANT * measures.total


def costs_of_moving(measures: Measures) -> list[Reason]:
    """What it costs main to take batches that are moved as torch does; or the workers, that slots are too few."""
    if not matters(measures):
        return too_few_slots(measures)
    whole, taking = run(measures), Number("longest to take", measures.main_in(MainTime.TAKING))
    one = median(measures, "the median", "result_arrived", "result_got")
    text = f"moving batches as torch does cost main {taking} ({taking.share_of(whole)} of all), {one} for the median "
    return [Reason(f"{text}batch: {AS_TORCH}", [taking, whole, one])]


def other_transport(measures: Measures) -> list[str]:
    """How to try the other way."""
    if not matters(measures):
        return []
    if measures.config.get("package") == "minidl":
        return [
            'Leave out transport="torch", and MINIDL_TRANSPORT: in slots batches need no file, and no thread\'s help.'
        ]
    return [
        "To see what moving batches in slots saves: `python -m tracing run --minidl` gives the same script minidl's "
        "loader in place of torch's, and `python -m tracing compare` shows both runs side by side."
    ]


def too_few_slots(measures: Measures) -> list[Reason]:
    """The program keeps its batches, so that others need new memory, whose pages must first be made."""
    rows = measures.tasks[(measures.tasks["slot_filled"] >= 0) & (measures.tasks["slot_granted"] >= 0)]
    own = rows["slot"] == NO_SLOT
    if own.sum() < max(ENOUGH, MANY * len(rows)):
        return []
    made = measures.events[(measures.kind == Kind.SLOT_MADE) & (measures.events["loader"] == measures.loader)]
    again = ~np.isin(batch_number(rows), batch_number(made))
    new, used = (
        Number(name, measures.between(rows[which], "collate_begin", "result_sent").median())
        for name, which in (("in new memory", own), ("in a slot", again))
    )
    text = (
        f"{np.count_nonzero(own)} of {len(rows)} batches got memory of their own, as the program still kept what was "
        f"in all slots: from collating to sending the median one took {new}"
    )
    text += f", in memory that was used again {used}" if again.sum() >= FEW else ""
    text += ". A program that keeps only what it needs of a batch, as a copy, leaves the slots free"
    return [Reason(text, [new, used] if again.sum() >= FEW else [new])]


def batch_number(rows: np.ndarray) -> np.ndarray:
    """Epoch and task, of tasks or events, as one number."""
    return rows["epoch"].astype(np.int64) << 32 | rows["task"]
