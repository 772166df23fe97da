"""The verdicts, in one table: the rule that finds each, and what to do if the condition before it holds.
Nothing (a lock, a thread, a line, a tensor) is mentioned that the trace does not show.

The rules are computed in tracing.analysis.measure.waited, the sentences of *Why* in tracing.analysis.report.evidence.
docs/views.md lists the verdicts and rules, too; a test compares them.

Legend, of the table
    TRAINING    a Verdict, and its rule
    threads     a name of `facts`: the advice is given only if it is neither 0 nor ""; with "not", only if it is;
                with "&" between them, if both hold. "-": always
    {cores}     the value of a fact
    rows        without a sentence: the one that stands behind this condition above
    OPTIONS     here come the options of the DataLoader to change (tracing.analysis.whatif.promises)
"""

from __future__ import annotations

from typing import Any

from tracing.analysis.measure import cores, culprits
from tracing.analysis.measure.measures import Measures
from tracing.analysis.measure.stages import FIRST_BATCH, startup_parts
from tracing.analysis.measure.waited import PLACES_AWAY, Judgement, Verdict, epochs_ended, left
from tracing.analysis.report.evidence import slowest_step
from tracing.analysis.whatif.promises import Change
from tracing.trace.stacks import MAIN
from tracing.trace.thread_activity import MainTime
from tracing.trace.words import size

MANY = 8  # tensors in a batch ...
MANY_OBJECTS = 100  # ... or other objects, each of which takes time
LARGE = 1 << 23  # bytes of a batch
READS, OBJECT = 5, 1000  # times as many bytes as its batches have, which is too much; bytes that an object may have
ENOUGH = 20 << 20  # bytes that are read: a program reads its own files, too
AT_FIRST = 0.8  # of the time for drawing keys, by the first draws
PADDED = 0.6  # of a tensor: then padding is worth a word
ALONE = 2 / 3  # of what all workers do, by one of them: then it has the slow batches
SLOWS = 2.0  # times as long at the end: then what takes the time grows
QUICK, BATCH = 100_000, 32  # ns for a sample, no more, and samples in a batch, at least: then they are rows of a table

TABLE = """
TRAINING: no cause in the loader costs 15 % of all time, nor all together 30 % (a third if workers keep all cores busy)
    grown & restarts        persistent_workers=True keeps what the workers put into {grown}: now it ends with them,
                            and new ones read it all again in each of {epochs} epochs.
    away                    The time is spent {away}: no change to the loader helps there.
    padding & not away      {padding} of a batch's largest tensor is one value at the ends of rows. If that is padding:
                            pad only to a batch's longest sample, in collate_fn, and batch samples of similar length.
    slowing & not away      Steps take {slowing} times as long at the end as at the beginning: look for what grows.
    rare & not away         {rare} steps take far longer than the others: are their batches larger? Does main wait for a
                            GPU there (item())? Or save, validate or upload less often, in the background, or less.
    beside                  Another thread of main uses {beside}. Unless that is what trains: main waits for Python's
                            lock while it computes. Let it sleep, or let a process do that.
    main_line               Look at {main_line}: outside of the loader, main was seen there most.
    cores_busy & not away   The {cores} cores are busy: the step must share them. Make {slow} cheaper, too.
    not away & not beside   The loader keeps up: make the training step faster. It is all that your loop does between
                            two batches: if it reads or converts data there, let the dataset do that.
WORKERS: main waits for batches that they make: they compute, or wait
    passed                  Main passed over the first {passed} batches: it had each only for a moment, and later ones
                            far longer. To resume, leave their keys out in the sampler, or skip them unread in a stream.
    grown & restarts
    slows                   Batches take {slows} times as long at the end as at the beginning: look for what grows, or
                            is read again{at_line}, or in a line above it (what takes long is seen when it is over).
    rows                    The {rows} samples of a batch are made one by one. Take them with one index for all, in
                            __getitems__, or with a BatchSampler as sampler and batch_size=None; then try num_workers=0.
    reads                   {reads} of batches. Read only what a sample needs{at_line}: index what you search, keep what
                            is used again, shuffle files, then samples within each, or store once what is made smaller.
    threads                 The workers' other threads use {threads:.1f} cores. Limit a library's threads in them:
                            OMP_NUM_THREADS=1 for the program, or its own function for that in worker_init_fn.
    OPTIONS
    stream                  Of several workers, each must read only its share of the stream (get_worker_info()). If it
                            yields all, samples come several times; if it reads and skips the rest, nothing is gained.
    cores_busy & not slows  More workers would not help: the {cores} cores are busy. Make {slow} cheaper: first do what
                            makes data smaller. Or prepare and store once what is not random, or use more cores.
    few                     Batches of an epoch: {few}. One worker makes each, and the others idle. Make more of them,
                            smaller ones. (If a step needs as many samples, let it accumulate gradients.)
    only_waits              They hardly compute: they wait. If what they wait for serves more at once, add workers, even
                            beyond the cores: num_workers={more}. Or ask once per batch, in __getitems__ or collate_fn.
    cores_left              Make {slow} cheaper, or prepare and store once what is not random. Or, while cores are free,
                            more workers can help, until the {cores} cores are busy.
TURNS: they were seen waiting for a lock, or for a multiprocessing.Manager
    -                       They wait for {turns}: more workers do not help. Do nothing slow while one has it, ask
                            for it once per batch (__getitems__), or give each worker a copy of its own.
    OPTIONS
HOLD_UP: finished batches wait in the reorder buffer for a slow one
    OPTIONS
    in_step                 {in_step} did most of the work: it is slow, or it has the slow part of a stream (divide that
                            differently). Or every {workers}th batch is slow: take another num_workers.
    -                       Make the slow samples cheaper{at_line}. A table has the slowest batches' keys and workers.
PREFETCH: workers idle while main trains, then main waits for them
    passed
    OPTIONS
    not passed              prefetch_factor=N, with a larger N, lets workers work further ahead.
SHARES: each worker reads the whole stream, so that every sample comes several times; or some streams end early
    undivided               Every sample comes {workers} times. Let each worker take its share: islice(samples, info.id,
                            None, info.num_workers) with info = get_worker_info(), or every num_workers-th file.
    not undivided           Give each worker an equal share of the iterable dataset: every num_workers-th block (or
                            sample, if the others need not be read), or files of equal length. More workers do not help.
NO_WORKERS: num_workers=0: main makes every batch between two steps
    passed
    slows
    rows
    reads
    OPTIONS
    stream
    -                       Workers make batches while main trains: worth it if making one takes longer than moving
                            it. Each must open files itself, and can have no children; nor may it use main's GPU.
    not waits               Make {slow} cheaper, or store once what is not random: workers share the {cores} cores.
MOVING: getting batches from a worker to main, pinned or not, takes longer than making them
    beside
    pins                    Make pinning cheaper: smaller batches (half precision, uint8 images); if the batch has its
                            own pin_memory(), look there. Or pin_memory=False.
    parts                   A batch has {tensors:,} tensors and {objects:,} other Python objects, each moved by itself:
                            make a few tensors of them in the workers, or pass on only what the training uses.
    large                   A batch has {large}. Move fewer bytes (uint8, half precision), or try num_workers=0.
    OPTIONS
    rows
SAMPLER: main spends its time in the sampler
    left                    {left} of {epochs} epochs, begun at {at}, were left before their end, after {batches}
                            batches in all: keep one iterator, and take a new one only when it ends.
    left                    Or draw no more keys than are used (num_samples, replacement=True).
    early                   {early} of {epochs} epochs were left before their end: what was drawn or made for the rest
                            is lost. Keep the iterator and go on, or draw fewer keys (num_samples, replacement=True).
    one_draw & not early    Nearly all of that is the first draw of each epoch: do what every epoch needs once, when
                            the sampler is made. (More workers do not help: main draws the keys.)
    not left & not one_draw Draw the keys of the whole epoch at once, in the sampler's __iter__ (of some batches, if
                            they follow the training); compute once what all draws need. (More workers do not help.)
    OPTIONS
STARTUP: the first batch of each epoch is slow, or none came
    left
    early
    starts_at               Before the first batch of an epoch main is at {starts_at}: compute once
                            what every epoch needs, and draw the keys as they are asked for.
    OPTIONS
    built                   The loader at {at} was built {built} times: build it once, with persistent_workers=True,
                            unless main changes the dataset in between (persistent workers keep their first copy).
    restarts                persistent_workers=True keeps workers, and their dataset as it was, for all {epochs} epochs.
    refills                 Look at what the dataset's own __iter__ does first{at_line}: if it fills a shuffle buffer,
                            or skips samples, let it give its first ones sooner. Persistent workers repeat it, too.
    slowest_part & fork     In each worker {slowest_part} takes longest. Do in main what a fork inherits: imports, and
                            tables read into memory. (Files and connections each worker must open itself.)
    slowest_part & not fork In each worker {slowest_part} takes longest. It unpickles the dataset (keep paths in it, not
                            many objects), and runs what is not behind `if __name__ == "__main__"` (import late).
SHUTDOWN: a worker does not exit, or is still busy
    unread                  The workers exit only when what they put into a multiprocessing.Queue has been read. Read it
                            during the training, not after it, or pass it on with the batch.
    ends_last               Look at what {ends_last} does at exit{exits_at}: threads that it started and that are not
                            daemons, files and connections that it closes, data that it still sends.
    early
    OPTIONS
"""


def read(table: str) -> dict[Verdict, list[tuple[str, str]]]:
    """The table without the rules, each sentence as one line: of each verdict what must hold, and then what to do."""
    entries: dict[Verdict, list[tuple[str, str]]] = {}
    for line in table.replace("\n" + " " * 28, " ").strip().splitlines():
        holds, text = line[:28].strip(), line[28:].strip()
        if not line.startswith(" "):
            rows = entries[Verdict[line.partition(":")[0]]] = []
        else:
            known = (said for entry in entries.values() for before, said in entry if before == holds)
            rows.append((holds, text or next(known, "")))  # OPTIONS has none
    return entries


VERDICTS = read(TABLE)


def advice(verdict: Verdict, known: dict[str, Any], options: list[Change]) -> list[str]:
    """What to do about it; `known`: its `facts`, `options`: those to change. (What they say is not said again.)"""

    def holds(condition: str) -> bool:
        terms = (term.rpartition("not ") for term in condition.split(" & "))
        return condition == "-" or all(bool(known[name]) != bool(negated) for _, negated, name in terms)

    found, changed = list[str](), {name for each in options for name in each.options}
    for condition, text in VERDICTS[verdict]:
        if condition == "OPTIONS":
            found += [each.text for each in options]
        elif holds(condition) and text.partition("=")[0] not in changed:
            found.append(text.format(**known))
    return found


def named(verdict: Verdict, known: dict[str, Any]) -> str:
    """What a verdict is about, in a few words; "" for no one thing."""
    crowd = "other programs have the cores" if known["others"] else "the cores are busy" if known["cores_busy"] else ""
    rare = f"{known['rare']} steps are far longer" if known["rare"] and not known["away"] else ""
    return {
        Verdict.TRAINING: "beside a thread that computes" if known["beside"] else rare or known["at_main_line"],
        Verdict.WORKERS: crowd or known["collate_fn"],
        Verdict.TURNS: f"at {known['line']}" if known["line"] else "",
        Verdict.SHARES: "each has all of it" if known["undivided"] else "",
        Verdict.NO_WORKERS: known["collate_fn"] if known["main"] else "in a thread: main may train meanwhile",
        Verdict.SAMPLER: known["sampler"],
        Verdict.STARTUP: "" if known["batches"] else "no batch was yielded",
    }.get(verdict, "")


def facts(measures: Measures, judgement: Judgement) -> dict[str, Any]:
    """What advice depends on, and what its sentences name."""
    making, workers = measures.between(measures.tasks, "fetch_begin", "collate_end"), measures.num_workers
    usual = making.median().total
    rare = judgement.away.rare.length
    rows = (measures.config.get("batch_size") or 0) * bool(measures.config.get("one_by_one"))
    drawn = measures.main_in(MainTime.DRAWING)
    at_first = drawn.where(measures.events["task"][drawn.first] == 0).total
    busy, threads = cores.cores_are_the_limit(measures), cores.of_makers(measures, "cpu", "main_cpu")
    slows = _times(culprits.slows(measures, "fetch_begin", "collate_end"))
    known: dict[str, Any] = {
        "slows": slows,
        "passed": culprits.passed_over(measures),
        "slowing": _times(culprits.slows(measures, "yielded", "asked")),
        "stream": measures.config.get("iterable") and not slows,
        "away": judgement.place if judgement.place in PLACES_AWAY[1:] else "",
        "rare": len(rare) and f"{len(rare)} of {len(measures.steps.length)}",
        "workers": workers,
        "main": MAIN in measures.main_threads,
        "more": max(4, 2 * workers),
        "cores": cores.cores(measures),
        "cores_busy": busy,
        "others": cores.crowded(measures),
        "threads": threads / max(1, making.total) * workers if busy and 2 * threads > cores.making(measures) else 0.0,
        "waits": cores.making_waits(measures) and not busy,
        "sampler": measures.config.get("sampler", ""),
        "one_draw": len(drawn.length) > 2 * measures.epochs and at_first > AT_FIRST * drawn.total,
        "batches": measures.batches,
        "undivided": bool(culprits.undivided(measures)),
    }
    worked = [each.total for each in measures.made]
    alone = workers > 1 and max(worked) > ALONE * sum(worked)
    known["in_step"] = f"Worker {worked.index(max(worked))}" if alone else ""
    known |= _of_batches(measures) | _of_lines(measures, judgement.away.seen) | _of_start_and_end(measures, usual)
    known["rows"] = rows if rows >= BATCH and usual < QUICK * rows and not known["collate_fn"] else 0
    known["only_waits"] = known["waits"] and not known["few"]
    known["cores_left"] = not any(map(known.get, ("waits", "cores_busy", "others", "rows", "slows", "few")))
    return known


def _times(factor: float) -> str:
    return f"{factor:.1f}" if factor > SLOWS else ""


def _of_lines(measures: Measures, main: culprits.Seen | None) -> dict[str, Any]:
    """Where the workers were seen, and main."""
    line = culprits.seen_at(culprits.looks(measures), culprits.making)
    beside, beside_at = culprits.beside(measures)
    collated, made = measures.stage("collate_begin", "collate_end"), measures.stage("fetch_begin", measures.made_at)
    collates = collated.sum() > culprits.MOST_OF_IT * made.sum()
    collate_fn = f"collate_fn {measures.config.get('collate_fn', '')}".strip() if collates else ""
    place = line.place if line else ""
    at_line = f" (at {place})" if place else ""
    return {
        "main_line": (main_line := main.place if main and 3 * main.on_it >= main.looks else ""),
        "at_main_line": main_line and f"at {main_line}",
        "beside": f"{beside:.0%} of a core, at {beside_at}" if beside > culprits.BESIDE else "",
        "line": place,
        "at_line": at_line,
        "starts_at": starts.place if (starts := culprits.starting_at(measures)) else "",
        "turns": culprits.turns(measures),
        "collate_fn": collate_fn,
        "grown": ", ".join(culprits.changed(measures.trace, "grown")),
        "slow": (collate_fn or "the samples") + at_line,
    }


def _of_batches(measures: Measures) -> dict[str, Any]:
    """What they are made of, and whether it is pinning them that takes long."""
    made_of, pinning = culprits.contents(measures), int(measures.stage("pin_begin", "pin_end").sum())
    read, made = cores.bytes_read(measures), measures.batches * made_of["bytes"]
    reads = made_of["bytes"] > OBJECT * made_of["objects"] and read > max(ENOUGH, READS * made)
    return {
        **made_of,
        "reads": f"{size(read)} were read for {size(made)}" if reads else "",
        "pins": 2 * pinning > measures.stretches(measures.on_its_way).total,
        "parts": made_of["tensors"] >= MANY or made_of["objects"] >= MANY_OBJECTS,
        "large": size(made_of["bytes"]) if made_of["bytes"] > LARGE else "",
        "padding": f"{padding:.0%}" if PADDED < (padding := made_of["padding"]) < 1 else "",
    }


def _of_start_and_end(measures: Measures, usual: float) -> dict[str, Any]:
    workers, epochs = measures.num_workers, measures.epochs
    # If none came, that is so whatever the workers did.
    part = "" if not measures.batches and epochs_ended(measures) else slowest_part(measures, usual)
    restarts = workers and epochs > 1 and not measures.config.get("persistent_workers")
    built, early = len(measures.loaders) > 1, epochs - epochs_ended(measures)
    often = early if early > 1 and 4 * early > epochs and not left(measures) else 0
    unread, exits = culprits.exiting(measures)
    refills = part == FIRST_BATCH and measures.config.get("iterable")
    return {
        "epochs": epochs,
        "few": measures.batches // (epochs - early) if measures.batches < (epochs - early) * workers else 0,
        "at": measures.config.get("iterated_at") or "a prompt",
        "built": len(measures.loaders) if workers and built and not refills else 0,
        "left": early if left(measures) else 0,
        "early": often,
        "restarts": restarts and not (built or left(measures) or refills),
        "refills": refills,
        "slowest_part": part,
        "fork": measures.config.get("start_method") == "fork",
        "unread": unread,
        "ends_last": "" if unread or (early and not exits) else slowest_step(measures),
        "exits_at": f" (at {exits.place})" if exits else "",
    }


def slowest_part(measures: Measures, usual: float) -> str:
    """The part of a worker's start that takes longest, if longer than a batch usually takes to make. The first batch
    counts only for its extra time."""
    parts = {name: float(each.length.mean()) for name, each in startup_parts(measures).items() if each.total}
    if FIRST_BATCH in parts:
        parts[FIRST_BATCH] -= usual
    slowest = max(parts, key=parts.__getitem__, default="")
    return slowest if parts.get(slowest, 0.0) > usual else ""
