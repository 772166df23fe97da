"""Why, and what next, where the limit lies on the way of a batch: drawn, made in turn, moved, pinned."""

from __future__ import annotations

import numpy as np

from tracing.analysis.measure.measures import Measures
from tracing.analysis.report.evidence import Explanation, Reason, Shown, busy, median, of, run, waiting
from tracing.analysis.report.savings import saving
from tracing.trace.intervals import Intervals, concatenate
from tracing.trace.places import Place
from tracing.trace.words import duration


def explain_hold_up(measures: Measures, cost: int) -> Explanation:
    held = Shown("longest", measures.stretches(measures.held_up), most=3)
    blamed = [
        f"batch {task['task']} on worker {task['worker']} ({duration(length)})"
        for task, length in _requests(measures, held.stretches.longest(3))
    ]
    reason = Reason(
        f"for {held} main waited for a batch while finished ones lay in the reorder buffer and workers were idle, "
        f"because they had made all they may make ahead; longest for {', '.join(blamed)}",
        [held],
    )
    prefetch = measures.config.get("prefetch_factor") or 2
    return Explanation(
        [waiting(measures), reason, busy(measures)],
        [
            f"in_order=False, if the order of batches need not be the same in every run: "
            f"{saving(measures, measures.hold_up_gain, in_order=False)}.",
            f"Or prefetch_factor={2 * prefetch} instead of {prefetch}: the other workers could go on for longer.",
            "Or make the slow samples cheaper; the slowest batches and their keys are listed below.",
        ],
        held.first,
    )


def _requests(measures: Measures, stretches: Intervals) -> list[tuple[np.void, int]]:
    """(the task that main waited for, the length) of each of these stretches."""
    rows, asked, had = measures.requests
    return [
        (rows[np.flatnonzero((asked <= begin) & (end <= had))[0]], int(end - begin))
        for begin, end in zip(stretches.begin, stretches.end, strict=True)
    ]


def explain_prefetch(measures: Measures, cost: int) -> Explanation:
    training = measures.main_in(Place.TRAINING)
    idle = [
        measures.stretches(measures.trains & (measures.grid.depth(each.begin, each.end) > 0)) for each in measures.idle
    ]
    steps = Shown("longest step", training)
    unused = Shown("longest idle", concatenate(idle), most=3, over=measures.num_workers)
    text = (
        f"while main trained ({steps}), a worker was idle for {duration(unused.mean)} in the mean: they had made all "
        "they were allowed to make ahead. Then main came back for several batches at once"
    )
    prefetch = measures.config.get("prefetch_factor") or 2
    wanted = max(4, 2 * prefetch)
    why = waiting(measures)
    return Explanation(
        [why, Reason(text, [unused, steps]), busy(measures)],
        [
            f"prefetch_factor={wanted} instead of {prefetch}: what the workers make ahead covers longer bursts, and "
            f"{saving(measures, cost, 'up to', prefetch_factor=wanted)}. It costs memory for as many batches more."
        ],
        why.shown[-1].first,
    )


def explain_moving(measures: Measures, cost: int) -> Explanation:
    moving = Shown("longest", measures.stretches(measures.on_its_way), most=3)
    stages = {
        "making one takes": ("made", "fetch_begin", "collate_end"),
        "pickling it": ("pickled", "result_sending", "result_sent"),
        "unpickling it": ("unpickled", "result_arrived", "result_got"),
    }
    found = {words: median(measures, *stage) for words, stage in stages.items()}
    # Of stages that were not seen nothing is said: what torch's feeder threads do is not recorded.
    parts = [f"{words} {shown}" for words, shown in found.items() if shown.longest]
    text = f"for {moving} main waited for batches that were already made, or unpickled them"
    if parts:
        text += f"; in the median {', '.join(parts)}"
    reasons = [waiting(measures), Reason(text, [moving, *(each for each in found.values() if each.longest)])]
    sizes = measures.tasks["result_bytes"]
    if (sizes > 0).any():
        known = measures.tasks[sizes > 0]
        row = known[np.argsort(known["result_bytes"], kind="stable")[(len(known) - 1) // 2 :][:1]]
        message = Shown("its sending", measures.between(row, "result_sending", "result_sent"))
        said = f"the message of a batch has {int(row['result_bytes'][0]):,} bytes in the median, tensors not counted"
        reasons.append(Reason(f"{said}: they lie in shared memory, one file each, which main has to map", [message]))
    return Explanation(
        reasons,
        [
            f"Fewer tensors in a batch (each costs a shared-memory file, whatever its size), for example one stacked "
            f"tensor instead of many, and larger batches: up to {duration(cost)} is to be had."
        ],
        moving.first,
    )


def explain_pinning(measures: Measures, cost: int) -> Explanation:
    waited = Shown("longest", measures.stretches(measures.in_pin_thread), most=3)
    pins = Shown("longest pin", measures.between(measures.tasks, "pin_begin", "pin_end"))
    one = median(measures, "a pin", "pin_begin", "pin_end")
    lay = median(measures, "in the queue", "result_put", "result_got")
    whole = run(measures)
    reasons = [
        waiting(measures),
        Reason(
            f"for {waited} main waited for the pin thread, while workers were idle; it pinned for {pins} "
            f"({of(pins, whole)} of the run), {one} a batch in the median",
            [waited, pins, one, whole],
        ),
    ]
    if lay.longest:
        reasons.append(Reason(f"worker_result_queue backs up: a batch lies in it for {lay} in the median", [lay]))
    return Explanation(
        reasons,
        [
            "Make pinning cheaper: smaller batches (half precision, uint8 images), fewer tensors in one; if the batch "
            f"has a pin_memory() of its own, look there. Or pin_memory=False. Up to {duration(cost)} is to be had."
        ],
        waited.first,
    )


def explain_sampler(measures: Measures, cost: int) -> Explanation:
    drawing = Shown("longest", measures.main_in(Place.DRAWING), most=3)
    one = Shown("a draw", measures.main_in(Place.DRAWING).median())
    text = f"drawing keys took {drawing}, {one} a batch in the median, in which main does nothing else"
    return Explanation(
        [waiting(measures), Reason(text, [drawing, one])],
        [
            "Draw the keys of the whole epoch at once, in the sampler's __iter__, or make drawing one cheaper. (More "
            f"workers do not help: it is main that draws.) Up to {duration(cost)} is to be had."
        ],
        drawing.first,
    )
