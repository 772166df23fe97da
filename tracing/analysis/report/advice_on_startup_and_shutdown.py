"""Why, and what next, where the limit is at an epoch's beginning or its end: start-up and shutdown."""

from __future__ import annotations

import numpy as np

from minidl.events import Kind, Queue
from tracing.analysis.measure.measures import Measures
from tracing.analysis.measure.stages import IMPORTING, startup_parts
from tracing.analysis.report.evidence import Explanation, Number, Reason, run, waiting
from tracing.trace.event_words import KINDS
from tracing.trace.intervals import Intervals
from tracing.trace.thread_activity import MainTime
from tracing.trace.words import duration

SHUTDOWN_STEPS: dict[int, str] = {  # the event that begins a step of main's shutdown -> the step
    Kind.PIN_STOPPING: "waiting for the pin thread to end",
    Kind.JOIN_BEGIN: "waiting for worker {} to exit",
    Kind.WORKER_TERMINATED: "waiting for worker {} to end after SIGTERM",
    Kind.WORKER_KILLED: "waiting for worker {} to end after SIGKILL",
}
SLOW_PARTS = {  # the longest part of a worker's start -> what to do about it
    "starting the process": "Starting the process takes longest: main sends the dataset to each worker. Make it small "
    "to pickle: paths and indices instead of data.",
    IMPORTING: "Importing and unpickling takes longest: a worker started by {method} imports the main "
    "program and the dataset's modules with all that they import, then unpickles the dataset. Import late what workers "
    "do not need, and keep the dataset small to pickle.",
    "worker_init_fn": "worker_init_fn takes longest: each worker repeats what it imports or opens. What can be "
    "inherited (by fork), main can do once, before it iterates.",
    "first batch": "The first batch takes longest: each worker repeats what is imported or opened at the first sample. "
    "Do it in main before it iterates (workers started by fork inherit it), or in worker_init_fn.",
}


def explain_nothing(measures: Measures, cost: int) -> Explanation:
    """The run ended before its first batch: how far it got."""
    drawn, whole = Number("a draw", measures.between(measures.tasks, "keys_begin", "keys_drawn")), run(measures)
    text = f"{len(drawn.stretches.first)} tasks were drawn, and no batch was yielded in {whole}"
    reasons = [Reason(text, [drawn, whole])]
    last, workers = measures.iterators[-1].number, range(measures.num_workers)
    group = measures.trace.index.group
    starting = sum(not len(group(last, Kind.WORKER_READY, Queue.NONE, worker)) for worker in workers)
    if starting:
        what = f"{'the imports of the program, unpickling the dataset, ' * _imports(measures)}worker_init_fn"
        advice = f"{starting} of {len(workers)} workers were not ready for a task yet. What comes before that: {what}."
        return Explanation(reasons, [advice], whole.first)
    rows = measures.tasks[(measures.tasks["fetch_begin"] >= 0) & (measures.tasks["collate_end"] < 0)][:1]
    if not len(rows):
        return Explanation(reasons, [])
    begun = measures.positions(rows["fetch_begin"], "fetch_begin")
    making = Number("its making", measures.of_events(begun, np.array([whole.stretches.last[-1]])))
    task = rows["task"][0]
    reasons.append(Reason(f"batch {task} had been in the making for {making} by then", [making]))
    advice = f"Make batch {task} on its own, in main: dataset[key] for each of its keys."
    return Explanation(reasons, [advice], making.first)


def explain_startup(measures: Measures, cost: int) -> Explanation:
    epochs = _epochs(measures)
    startup = Number("longest start-up", measures.main_in(MainTime.STARTUP).joined(), most=min(epochs, 3))
    whole = run(measures)
    text = f"the time from the beginning of an epoch to its first batch was {startup} ({startup.share_of(whole)})"
    text += f", over {epochs} epochs" if epochs > 1 else ""
    reasons = [waiting(measures), Reason(text, [startup, whole])]
    advice = []
    parts = {name: Number(f"{name}, longest", each) for name, each in startup_parts(measures).items() if each.total}
    if parts:
        reasons.append(_parts(measures, parts))
        slowest = max(parts, key=lambda name: parts[name].mean)
        if slowest in ("worker_init_fn", "first batch") or _imports(measures):
            advice.append(SLOW_PARTS[slowest].format(method=measures.config.get("start_method") or "spawn"))
    advice.append(f"Start-up comes once an epoch: in one longer than {duration(whole.mean)} it matters less.")
    return Explanation(reasons, advice, startup.first)


def _epochs(measures: Measures) -> int:
    return len(np.unique(measures.tasks["epoch"]))


def _imports(measures: Measures) -> bool:
    """Whether workers begin as new interpreters. A forked one has what main has imported."""
    return measures.config.get("start_method") != "fork"


def _parts(measures: Measures, parts: dict[str, Number]) -> Reason:
    """What a worker's start consists of."""
    words = {"first batch": "making its first batch"} | (
        {} if _imports(measures) else {IMPORTING: "reaching its first line"}
    )
    for name, word in words.items():
        if name in parts:
            parts[name].name = f"{word}, longest"
    later = Number("a batch", measures.between(measures.tasks, "fetch_begin", "collate_end").median())
    needs = ", ".join(f"{words.get(name, name)} {duration(number.mean)}" for name, number in parts.items())
    text = f"on average the start of a worker takes: {needs} (the median of all batches: {later})"
    return Reason(text, [*parts.values(), later])


def explain_shutdown(measures: Measures, cost: int) -> Explanation:
    shutdown, whole = Number("longest shutdown", measures.main_in(MainTime.SHUTDOWN).joined()), run(measures)
    step = measures.main_in(MainTime.SHUTDOWN).longest(1)
    kind, worker = int(measures.kind[step.first[0]]), int(measures.events["worker"][step.first[0]])
    name = SHUTDOWN_STEPS.get(kind, f"the step after {KINDS[kind].name}").format(worker)
    longest = Number("this step", step)
    text = f"shutting down took {shutdown} ({shutdown.share_of(whole)}), of which {longest} went on {name}"
    reasons = [waiting(measures), Reason(text, [shutdown, longest, whole])]
    exiting = _exit(measures, worker, step)
    saving = f"Up to {duration(cost)} could be saved."
    advice = [
        "Look at what that worker does when it is asked to stop: it notices only between two batches, so main waits "
        f"for a long fetch to end. Smaller batches, or samples that load faster. {saving}"
    ]
    if exiting is not None and exiting.ns > step.total / 2:
        text = f"worker {worker} had left its loop: what took {exiting} is the exit of its process"
        reasons.append(Reason(text, [exiting]))
        advice = [
            f"Look at what worker {worker} does at exit: threads that it started and that are not daemons, connections "
            f"and files that are closed, finalizers of multiprocessing.util, data it still sends. {saving}"
        ]
    elif kind == Kind.PIN_STOPPING:
        advice = [f"The pin thread had a batch in hand: make pinning faster. {saving}"]
    return Explanation(reasons, advice, step.spans[0])


def _exit(measures: Measures, worker: int, step: Intervals) -> Number | None:
    """The part of this step that comes after the end of the worker's loop."""
    first, last = int(step.first[0]), int(step.last[0])
    for iterator in measures.iterators:
        ended = measures.trace.index.group(iterator.number, Kind.WORKER_END, Queue.NONE, worker).array
        if len(ended) and iterator.first() <= first <= iterator.last() and ended[0] < last:
            return Number("its exit", measures.of_events(np.maximum(ended[:1], first), np.array([last])))
    return None
