"""Why, and what next, where the limit is on the way of a batch: drawn, made in turn, moved, pinned."""

from __future__ import annotations

import numpy as np

from tracing.analysis.measure.measures import Measures
from tracing.analysis.report.evidence import Explanation, Number, Reason, busy, median, run, waiting
from tracing.analysis.report.moving import AS_TORCH
from tracing.trace.intervals import Intervals, concatenate
from tracing.trace.thread_activity import MainTime
from tracing.trace.words import duration, size


def explain_hold_up(measures: Measures, cost: int) -> Explanation:
    held = Number("longest", measures.stretches(measures.held_up), most=3)
    blamed = [
        f"batch {task['task']} on worker {task['worker']} ({duration(length)})"
        for task, length in _requests(measures, held.stretches.longest(3))
    ]
    reason = Reason(
        f"for {held} main waited for a batch while finished ones were in the reorder buffer and workers were idle, "
        f"because they had worked as far ahead as they may; longest for {', '.join(blamed)}",
        [held],
    )
    advice = "Make the slow samples cheaper; the slowest batches and their keys are listed below."
    return Explanation([waiting(measures), reason, busy(measures)], [advice], held.first)


def _requests(measures: Measures, stretches: Intervals) -> list[tuple[np.void, int]]:
    """(the task that main waited for, the length) of each of these stretches."""
    rows, asked, had = measures.requests
    return [
        (rows[np.flatnonzero((asked <= begin) & (end <= had))[0]], int(end - begin))
        for begin, end in zip(stretches.begin, stretches.end, strict=True)
    ]


def explain_prefetch(measures: Measures, cost: int) -> Explanation:
    training = measures.main_in(MainTime.TRAINING)
    idle = [
        measures.stretches(measures.is_away & (measures.grid.depth(each.begin, each.end) > 0)) for each in measures.idle
    ]
    steps = Number("longest step", training)
    unused = Number("longest idle", concatenate(idle), most=3, over=measures.num_workers)
    text = (
        f"while main trained ({steps}), a worker was idle for {duration(unused.mean)} on average, having worked as far "
        "ahead as it was allowed to. Then main came back for several batches at once"
    )
    why = waiting(measures)
    advice = f"A larger prefetch_factor lets the workers make more ahead. Up to {duration(cost)} could be saved."
    return Explanation([why, Reason(text, [unused, steps]), busy(measures)], [advice], why.numbers[-1].first)


def explain_moving(measures: Measures, cost: int) -> Explanation:
    moving = Number("longest", measures.stretches(measures.on_its_way), most=3)
    stages = {
        "making it took": ("made", "fetch_begin", "collate_end"),
        "pickling it": ("pickled", "result_sending", "result_sent"),
        "unpickling it": ("unpickled", "result_arrived", "result_got"),
    }
    # torch's feeder threads are not recorded: stages that were not seen are left out.
    seen = {words: number for words, stage in stages.items() if (number := median(measures, *stage)).longest}
    text = f"for {moving} main waited for batches that were already made, or unpickled them"
    if seen:
        text += f"; for the median batch, {', '.join(f'{words} {number}' for words, number in seen.items())}"
    reasons = [waiting(measures), Reason(text, [moving, *seen.values()])]
    known = measures.tasks[(measures.tasks["result_bytes"] > 0) & (measures.tasks["result_got"] >= 0)]
    if len(known):
        row = known[np.argsort(known["result_bytes"], kind="stable")[(len(known) - 1) // 2 :][:1]]
        message = Number("its unpickling", measures.between(row, "result_arrived", "result_got"))
        text = f"the median message of a batch has {int(row['result_bytes'][0]):,} bytes"
        if measures.moves_as_torch:
            text += f", without its tensors: {AS_TORCH}"
        elif row["slot_bytes"] >= 0:
            text += (
                f", without the {size(int(row['slot_bytes'][0]))} of its tensors: they come in memory that main maps"
            )
        reasons.append(Reason(text, [message]))
    each = "costs a shared-memory file, whatever its size" if measures.moves_as_torch else "is pickled by itself"
    return Explanation(
        reasons,
        [
            f"Fewer tensors in a batch (each {each}), for example one stacked tensor instead of many, and larger "
            f"batches: up to {duration(cost)} could be saved."
        ],
        moving.first,
    )


def explain_pinning(measures: Measures, cost: int) -> Explanation:
    waited = Number("longest", measures.stretches(measures.in_pin_thread), most=3)
    pins = Number("longest pin", measures.between(measures.tasks, "pin_begin", "pin_end"))
    one = median(measures, "a pin", "pin_begin", "pin_end")
    queued = median(measures, "in the queue", "result_put", "result_got")
    whole = run(measures)
    text = (
        f"for {waited} main waited for the pin thread, while workers were idle; it pinned for {pins} "
        f"({pins.share_of(whole)} of the run), the median batch for {one}"
    )
    reasons = [waiting(measures), Reason(text, [waited, pins, one, whole])]
    if queued.longest:
        text = f"worker_result_queue backs up: the median batch spends {queued} in it"
        reasons.append(Reason(text, [queued]))
    return Explanation(
        reasons,
        [
            "Make pinning cheaper: smaller batches (half precision, uint8 images), fewer tensors in each; if the batch "
            f"has its own pin_memory(), look there. Or pin_memory=False. Up to {duration(cost)} could be saved."
        ],
        waited.first,
    )


def explain_sampler(measures: Measures, cost: int) -> Explanation:
    drawing = Number("longest", measures.main_in(MainTime.DRAWING), most=3)
    one = Number("a draw", measures.main_in(MainTime.DRAWING).median())
    text = f"drawing keys took {drawing}, {one} for the median batch, and main does nothing else meanwhile"
    return Explanation(
        [waiting(measures), Reason(text, [drawing, one])],
        [
            "Draw the keys of the whole epoch at once, in the sampler's __iter__, or make drawing each one cheaper. "
            f"(More workers do not help: main draws the keys.) Up to {duration(cost)} could be saved."
        ],
        drawing.first,
    )
