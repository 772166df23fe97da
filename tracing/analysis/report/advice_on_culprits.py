"""Why, and what next, where the trace shows who or what is behind the waiting for workers."""

from __future__ import annotations

import numpy as np

from tracing.analysis.measure import cpu, culprits
from tracing.analysis.measure.capacity import COMPUTING, Work, cores, cores_used, work
from tracing.analysis.measure.measures import Measures
from tracing.analysis.report.evidence import Explanation, Number, Reason, busy, collating, seen_at, waiting
from tracing.trace.intervals import concatenate
from tracing.trace.thread_activity import MainTime
from tracing.trace.words import duration

ALL_KEPT = ("num_workers", "prefetch_factor", "in_order")  # a replay knows nothing of what the workers wait for


def explain_cores(measures: Measures, cost: int) -> Explanation:
    there, workers, slow = cores(measures), measures.num_workers, collating(measures)
    text = f"the workers used {cores_used(measures):.1f} of {there} cores while they made batches"
    if without := cpu.without_core(measures):
        text += f"; for {without:.2f} of that time they were ready to run and had no core"
    fewer = ""
    if workers > there and work(measures) is Work.COMPUTES:
        fewer = f" num_workers={there} would do as well as {workers}, with less memory."
    advice = (
        f"More workers would not help: they compute, and there are {there} cores.{fewer} Make "
        f"{slow.name or 'the samples'} cheaper, prepare them once and store the result, or use more cores. Up to "
        f"{duration(cost)} could be saved."
    )
    why = waiting(measures)
    reasons = [why, busy(measures, text), *slow.reasons]
    return Explanation(reasons, [advice], why.numbers[-1].first, slow.name, keep=ALL_KEPT)


def explain_neighbours(measures: Measures, cost: int) -> Explanation:
    there, why = cores(measures), waiting(measures)
    text = (
        f"for {cpu.without_core(measures):.2f} of their work the workers were ready to run and had no core, while this "
        f"program used {cpu.program(measures):.1f} of {there}"
    )
    advice = (
        "Other programs have the cores (or this one's CPU time is limited): run it where it has them for itself. More "
        f"workers would only share what is left. Up to {duration(cost)} could be saved."
    )
    return Explanation([why, busy(measures, text)], [advice], why.numbers[-1].first, keep=("num_workers",))


def explain_turns(measures: Measures, cost: int) -> Explanation:
    found = culprits.turns(measures)
    assert found is not None
    alone, together = Number("when they wait least", found.alone.median()), Number("median", found.together.median())
    if found.in_lock is not None:
        text = (
            f"the median batch takes {together}; for {found.in_lock:.2f} of the time that batches take, their workers "
        )
        text += "were seen to wait for a lock that processes share: one goes on, and the others wait for it"
    elif found.gap is not None:
        text = (
            f"the median batch takes {together}, and the samples of all workers come one after the other, "
            f"{duration(found.gap)} apart, seldom much less: what they ask serves one request at a time"
        )
    elif found.at_work is None:
        text = (
            f"the quickest batches take {alone}, and no two are finished in less time, however many workers are at it: "
        )
        text += f"the median takes {together}"
    else:
        few, many = found.at_work
        text = f"a batch takes {together} while {many:.1f} workers are at work, and {alone} while {few:.1f} are: "
        text += "together they get no more done than one alone"
    advice = (
        "They wait for a lock, or for something that serves one at a time: more workers do not help, and fewer do as "
        "well. Look for what they share: a lock, a server, a file, a connection. Up to "
        f"{duration(cost)} could be saved."
    )
    numbers, (line, seen) = [each for each in (together, alone) if each.ns], seen_at(measures)
    reasons = [waiting(measures), Reason(f"{text}; {seen}" if seen else text, numbers), busy(measures)]
    return Explanation(reasons, [advice], together.first, f"at {line}" if line else "", keep=ALL_KEPT)


def explain_slow_worker(measures: Measures, cost: int) -> Explanation:
    slow = culprits.slow_worker(measures)
    assert slow is not None
    pids = cpu.worker_pids(measures, slow.worker)
    name = f"worker {slow.worker}, pid {pids[-1]}" if pids else f"worker {slow.worker}"
    its, others = Number("its median batch", slow.its.median()), Number("that of the others", slow.others.median())
    rows = measures.tasks[(measures.tasks["worker"] == slow.worker) & (measures.tasks["collate_end"] >= 0)]
    computed = int((rows["fetch_cpu"].clip(0) + rows["collate_cpu"].clip(0)).sum()) >= COMPUTING * slow.its.total
    text = f"worker {slow.worker} takes {its} for the median batch, the others {others}: {slow.times:.1f} times as long"
    what = (
        "computes: look at what it does that the others do not" if computed else "waits: look at its files, its cache"
    )
    advice = (
        f"Find out what is different in {name}. It {what} (worker_init_fn; get_worker_info().id). Up to "
        f"{duration(cost)} could be saved."
    )
    reasons = [waiting(measures), Reason(text, [its, others]), busy(measures)]
    return Explanation(reasons, [advice], its.first, name, keep=ALL_KEPT)


def explain_shards(measures: Measures, cost: int) -> Explanation:
    idle = Number("longest without work", concatenate(list(culprits.ended_streams(measures))), most=3)
    made = measures.tasks["worker"][measures.tasks["collate_end"] >= 0]
    batches = np.bincount(made[made >= 0], minlength=measures.num_workers)
    most = int(batches.argmax())
    text = (
        f"worker {most} made {batches[most]} batches, the others {batches.min()} to {np.sort(batches)[-2]}; workers "
        f"whose stream had ended waited for the others for {idle}"
    )
    advice = (
        "Give each worker an equal share of the iterable dataset: every num_workers-th sample or file, or files of "
        f"equal length. More workers do not help. Up to {duration(cost)} could be saved."
    )
    reasons = [waiting(measures), Reason(text, [idle]), busy(measures)]
    return Explanation(reasons, [advice], idle.first, f"worker {most} has most", keep=("num_workers",))


def explain_gil(measures: Measures, cost: int) -> Explanation:
    beside, own = cpu.beside_main(measures)
    at_work = Number("longest", measures.main_in(MainTime.TAKING, MainTime.HANDLING), most=3)
    text = (
        f"for {at_work} main unpickled batches and kept the loader's books, but had a core, or lacked one, for only "
        f"{own:.2f} of that; meanwhile the other threads of its process used {beside:.1f} cores"
    )
    advice = (
        "A thread of main computes in Python and keeps its lock, so that main gets it only every few milliseconds, for "
        "one step. Move what that thread does to a process of its own, or into code that releases the lock. Up to "
        f"{duration(cost)} could be saved."
    )
    reasons = [waiting(measures), Reason(text, [at_work]), busy(measures)]
    return Explanation(reasons, [advice], at_work.first, keep=ALL_KEPT)
