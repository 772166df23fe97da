"""The verdicts, in one table: the rule by which each is found, and what to do, if that holds which stands before it.
Nothing is said of a thing (a lock, a thread, a line, a tensor) that the trace does not show.

The rules are computed in tracing.analysis.measure.waited, the sentences of *Why* in tracing.analysis.report.evidence.
docs/views.md has the verdicts and their rules, too; a test compares them.

Legend, of the table
    TRAINING    a Verdict, and its rule
    threads     a name of `facts`: the advice is given only if it is neither 0 nor ""; with "not", only if it is;
                with "&" between them, if both hold. "-": always
    {cores}     the value of a fact
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tracing.analysis.measure import cores, culprits
from tracing.analysis.measure.cores import Work
from tracing.analysis.measure.measures import Measures
from tracing.analysis.measure.stages import FIRST_BATCH, IMPORTING, startup_parts
from tracing.analysis.measure.waited import (
    PLACES_AWAY,
    Judgement,
    Verdict,
    epochs_ended,
    is_undivided,
    left,
    pythons_lock_is_kept,
)
from tracing.analysis.report.evidence import slowest_step
from tracing.analysis.whatif.promises import starts_processes
from tracing.trace.thread_activity import MainTime
from tracing.trace.words import duration

MANY_TENSORS = 8  # in a batch
LARGE = 1 << 20  # bytes: what a larger batch takes to move, it takes for its size
HEADROOM = 1.25  # workers beyond those that keep up on average
THREADS = 0.1  # cores that a worker's other threads use, if it is more than its own, from which on they are named
OTHERS = 0.25  # of all cores: what other programs must use to be named
ON_CORE = ("fetch_cpu", "collate_cpu")  # of the thread that makes a batch

TABLE = """
TRAINING: main spends 80 % of its time elsewhere, or no cause in the loader costs 15 % of the program
    not elsewhere           The loader keeps up: to go faster, make the training step faster.
    elsewhere               {elsewhere} of the time is {place}, where no change of the loader helps.
    main_line               Look at {main_line}: it takes most of what is not the loader's time.
    too_many                num_workers={enough} would do as well as {workers}.
    trains_long & not main_line
                            {trains_long} of main's time is training, which is all that your loop does between two
                            batches. If it reads or converts data there, let the workers do that.
WORKERS: main waits for batches that they make: they compute (cores, or cheaper samples) or wait (more workers)
    threads                 The workers' other threads use {threads:.1f} cores. Limit a library's threads in them:
                            OMP_NUM_THREADS=1 for the program, or its own function for that in worker_init_fn.
    others                  Other programs use {others:.1f} of the {cores} cores: run it where it has them for itself.
                            More workers would only share what is left.
    cores_busy & not others More workers would not help: they compute, and there are {cores} cores. Make {slow}
                            cheaper, prepare them once and store the result, or use more cores.
    waits & independent     They hardly compute: they wait, each for itself: more workers help, even beyond the number
                            of cores.
    waits & not independent They hardly compute: they wait. More workers help, even beyond the number of cores, if what
                            they wait for serves more at once: `python -m tracing run --try` measures that.
    mixed & not cores_busy  They compute, and wait for the rest: more workers help until the cores are busy.
    computes & not cores_busy
                            They compute, and there are {cores} cores: more workers can help, one for each core.
    not waits & not cores_busy
                            Make {slow} cheaper, or prepare them once and store the result.
    line & not collate_fn   Look at {line}. What is opened there for every sample, a worker could open once.
TURNS: they were seen waiting for a lock, or take the longer the more of them work at once
    in_lock                 They wait for a lock: more workers do not help, and fewer do as well. Give each worker a
                            file, a connection, a copy of its own. {could_save}
    not in_lock             What they wait for serves one after the other: more workers do not help, and fewer do as
                            well. Ask it for less, or keep on disk what it gave. {could_save}
HOLD_UP: finished batches wait in the reorder buffer for a slow one, or for one slow worker
    in_order                in_order=False, if the order of batches need not be the same in every run: main then takes
                            whichever is finished.
    slow_worker             Find out what is different in {slow_worker}: its files, its cache, what worker_init_fn and
                            get_worker_info().id decide.
    not slow_worker         Make the slow samples cheaper; the slowest batches and their keys are listed below.
PREFETCH: workers idle while main trains, then main waits for them
    -                       A larger prefetch_factor lets the workers make more ahead. {could_save}
SHARES: each worker reads the whole stream, so that every sample comes several times; or some streams end early
    undivided               Every sample comes {workers} times. Let each worker take its share: islice(samples, info.id,
                            None, info.num_workers) with info = get_worker_info(), or every num_workers-th file.
    not undivided           Give each worker an equal share of the iterable dataset: every num_workers-th sample or
                            file, or files of equal length. More workers do not help. {could_save}
NO_WORKERS: num_workers=0: main makes every batch between two steps
    -                       Workers make batches while main trains: worth it where making one takes longer than moving
                            it to main. {could_save}
    starts_processes        If the dataset has started processes of its own, workers do not help: they may have no
                            children.
    not waits               Make {slow} cheaper, or prepare them once and store the result: workers would only share the
                            {cores} cores.
    line                    Look at {line}. What is opened there for every sample could be opened once.
MOVING: getting batches from a worker to main takes longer than making them
    pythons_lock            A thread of main computes in Python and keeps its lock, so that main gets it only every few
                            milliseconds, for one step. Move what that thread does to a process of its own, or into
                            code that releases the lock. {could_save}
    quickly_made            num_workers=0: making a batch takes {made_in}, less than main spends to get one from a
                            worker.
    many_tensors            Fewer tensors in a batch (now {tensors}, each moved by itself), for example one stacked
                            tensor instead of many. {could_save}
    not large               Larger batches: much of what it takes to move one does not depend on its size.
    large                   Smaller samples: half precision, or uint8 images. {could_save}
    by_torch                To see what moving batches in slots saves: `python -m tracing run --minidl` gives the same
                            script minidl's loader, and `python -m tracing compare` shows both runs side by side.
PINNING: the pin thread is busy, and batches wait for it
    -                       Make pinning cheaper: smaller batches (half precision, uint8 images); if the batch has its
                            own pin_memory(), look there. Or pin_memory=False. {could_save}
SAMPLER: main spends its time in the sampler
    -                       Draw the keys of the whole epoch at once, in the sampler's __iter__, or make that cheaper.
                            (More workers do not help: main draws the keys.) {could_save}
STARTUP: the first batch of each epoch takes long, or none came
    built                   The loader that is iterated at {at} was built {built} times: build it once, outside of the
                            loop, with persistent_workers=True.
    left                    {left} of {epochs} epochs were left before their end, after {batches} batches in all: keep
                            one iterator and take the next batch from it, instead of a new one each time. {could_save}
    restarts & not built & not left & not refills
                            persistent_workers=True starts the workers once, not in each of {epochs} epochs.
    spawning                Starting the process takes longest: main sends the dataset to each worker. Make it small to
                            pickle: paths and indices instead of data.
    importing               Importing and unpickling takes longest: a worker started by {method} imports the main
                            program and the dataset's modules with all that they import, then unpickles the dataset.
                            Import late what workers do not need, and keep the dataset small to pickle.
    init_fn                 worker_init_fn takes longest: each worker repeats what it imports or opens. What can be
                            inherited (by fork), main can do once, before it iterates.
    refills                 The first batch takes longest, in the dataset's own __iter__, which persistent workers call
                            in each epoch, too. Let it give its first samples sooner: a smaller shuffle buffer, say.
    first_batch & not refills
                            The first batch takes longest: each worker repeats what is imported or opened at the first
                            sample. Do it in main before it iterates (workers started by fork inherit it), or in
                            worker_init_fn.
    not batches             What comes before the first batch: the imports of the program and unpickling the dataset
                            (unless workers are forked), worker_init_fn, dataset[key] for each of its keys.
SHUTDOWN: a worker does not exit, or is still busy
    pin_thread              The pin thread had a batch in hand: make pinning faster. {could_save}
    left_early              {left_early} of {epochs} epochs were left before their end: main waits for batches that the
                            workers have begun, and takes none. Draw only the keys that you use (a sampler, a Subset),
                            or keep the iterator, and go on with it. {could_save}
    not pin_thread & not left_early
                            Look at what worker {ends_last} does at exit: threads that it started and that are not
                            daemons, connections and files that are closed, data it still sends. And a worker notices
                            only between two batches that it is to stop: samples that load faster help. {could_save}
"""


class Entry(NamedTuple):
    """What stands in the table of a verdict."""

    rule: str
    advice: list[tuple[str, str]]  # what must hold, and then what to do


def read(table: str) -> dict[Verdict, Entry]:
    """The table, each sentence as one line."""
    entries: dict[Verdict, Entry] = {}
    for line in table.strip().splitlines():
        holds, text = line[:28].strip(), line[28:].strip()
        if line[27:28].strip():  # a long condition has a line of its own
            holds, text = line.strip(), ""
        if not line.startswith(" "):
            name, _, rule = line.partition(": ")
            rows = list[tuple[str, str]]()
            entries[Verdict[name]] = Entry(rule, rows)
        elif line.startswith(" " * 28):
            before, begun = rows[-1]
            rows[-1] = (before, f"{begun} {text}".strip())
        else:
            rows.append((holds, text))
    return entries


VERDICTS = read(TABLE)


def advice(verdict: Verdict, known: dict[str, Any]) -> list[str]:
    """What to do about it, beside options to change; `known`: its `facts`."""

    def holds(condition: str) -> bool:
        terms = (term.rpartition("not ") for term in condition.split(" & "))
        return condition == "-" or all(bool(known[name]) != bool(negated) for _, negated, name in terms)

    return [text.format(**known) for condition, text in VERDICTS[verdict].advice if holds(condition)]


def named(verdict: Verdict, known: dict[str, Any]) -> str:
    """Who or what a verdict is about, in a few words; "" for no one thing."""
    crowd = "other programs have the cores" if known["others"] else "the cores are busy" if known["cores_busy"] else ""
    whole = "each has all of it" if known["undivided"] else f"worker {known['made_most']} has most"
    return {
        Verdict.WORKERS: crowd or known["collate_fn"],
        Verdict.TURNS: f"at {known['line']}" if known["line"] else "",
        Verdict.HOLD_UP: known["slow_worker"],
        Verdict.SHARES: whole,
        Verdict.NO_WORKERS: known["collate_fn"],
        Verdict.MOVING: "another thread of main keeps Python's lock" if known["pythons_lock"] else "",
        Verdict.STARTUP: "" if known["batches"] else "no batch was yielded",
    }.get(verdict, "")


def facts(measures: Measures, judgement: Judgement) -> dict[str, Any]:
    """What advice depends on, and what its sentences name."""
    making = measures.stage("fetch_begin", "collate_end")
    share = measures.spent[MainTime.TRAINING] / measures.total
    enough = max(1, math.ceil(HEADROOM * int(making.sum()) / max(1, measures.away.total)))
    collate_fn = f"collate_fn {measures.config.get('collate_fn', '')}".strip() if culprits.collating(measures) else ""
    line, slow = culprits.seen_at(culprits.looks(measures)), culprits.slow_worker(measures)
    away, turns = culprits.away(measures).seen, culprits.turns(measures)
    known: dict[str, Any] = {
        "could_save": f"Up to {duration(judgement.cost)} could be saved.",
        "elsewhere": f"{judgement.share:.0%}" if judgement.place in PLACES_AWAY[1:] else "",
        "place": judgement.place,
        "main_line": str(away.line._replace(source="")) if away else "",
        "in_lock": turns.in_lock if turns else 0,
        "in_order": measures.config.get("in_order", True),
        "workers": measures.num_workers,
        "batches": int((measures.tasks["yielded"] >= 0).sum()),
        "made_in": duration(float(np.median(making)) if len(making) else 0.0),
        "enough": enough,
        "too_many": enough < measures.num_workers,
        "trains_long": f"{share:.0%}" if share >= 0.5 else "",
        "slow": collate_fn or "the samples",
        "collate_fn": collate_fn,
        "line": str(line._replace(line=line.line._replace(source=""))) if line else "",
        "slow_worker": f"worker {slow.worker}, pid {cores.worker_pids(measures, slow.worker)[-1]}" if slow else "",
        "starts_processes": starts_processes(measures),
    }
    known |= _of_cores(measures, int(making.sum())) | _of_workers(measures) | _of_start_and_end(measures, making)
    quickly = int(np.median(making) if len(making) else 0) * known["batches"]
    return known | {"quickly_made": 0 < quickly < measures.in_loader.total}


def _of_cores(measures: Measures, making: int) -> dict[str, Any]:
    there, work, busy = cores.cores(measures), cores.work(measures), cores.cores_are_the_limit(measures)
    others = cores.cores_of_others(measures)
    threads, own = cores.threads_of_workers(measures), sum(measures.tasks[name].clip(0).sum() for name in ON_CORE)
    many = busy and threads > own and threads >= THREADS * making
    return {
        "cores": there,
        "cores_busy": busy,
        "others": others if busy and others >= OTHERS * there else 0.0,
        "threads": threads / max(1, making) * measures.num_workers if many else 0.0,
        "waits": work is Work.WAITS,
        "independent": culprits.independent(measures),
        "mixed": work is Work.MIXED,
        "computes": work is Work.COMPUTES and there > measures.num_workers,
    }


def _of_workers(measures: Measures) -> dict[str, Any]:
    made_of = culprits.contents(measures) or {"tensors": 0, "bytes": 0}
    made_by = measures.tasks["worker"][measures.tasks["collate_end"] >= 0]
    return {
        "undivided": is_undivided(measures),
        "made_most": int(np.bincount(1 + made_by, minlength=1).argmax()) - 1,
        "pythons_lock": measures.num_workers and pythons_lock_is_kept(measures),
        "tensors": made_of["tensors"],
        "many_tensors": made_of["tensors"] >= MANY_TENSORS,
        "by_torch": measures.config.get("package") == "torch.utils.data",
        "large": made_of["bytes"] >= LARGE,
    }


def _of_start_and_end(measures: Measures, making: np.ndarray) -> dict[str, Any]:
    workers, epochs, method = measures.num_workers, measures.epochs, measures.config.get("start_method") or "spawn"
    ended = epochs_ended(measures)
    part, worker = slowest_part(measures, making), slowest_step(measures)
    return {
        "epochs": epochs,
        "at": measures.config.get("iterated_at", ""),
        "built": len(measures.loaders) if workers and len(measures.loaders) > 1 else 0,
        "left": epochs - ended if left(measures) else 0,
        "left_early": epochs - ended if workers else 0,
        "restarts": workers and epochs > 1 and not measures.config.get("persistent_workers"),
        "spawning": part == "starting the process" and method != "fork",  # a forked one has what main has
        "importing": part == IMPORTING and method != "fork",
        "init_fn": part == "worker_init_fn",
        "first_batch": part == FIRST_BATCH,
        "refills": part == FIRST_BATCH and epochs > 1 and (measures.tasks["stream_end"] >= 0).any(),
        "method": method,
        "pin_thread": worker < 0,
        "ends_last": worker,
    }


def slowest_part(measures: Measures, making: np.ndarray) -> str:
    """Of a worker's start: what takes longest, if it is longer than a batch usually takes to make. Of the first batch
    counts what it takes longer than others."""
    usual = float(np.median(making)) if len(making) else 0.0
    parts = {name: float(each.length.mean()) for name, each in startup_parts(measures).items() if each.total}
    if FIRST_BATCH in parts:
        parts[FIRST_BATCH] -= usual
    slowest = max(parts, key=parts.__getitem__, default="")
    return slowest if parts.get(slowest, 0.0) > usual else ""
