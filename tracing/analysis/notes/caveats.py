"""What to know before you trust the rest of a report: how the run ended, and what the trace lacks."""

from __future__ import annotations

import re
import signal
from collections import Counter

import numpy as np

from minidl.events import Kind
from tracing.analysis.measure.culprits import changed
from tracing.analysis.notes.run_end import ended_by, fatal_error, main_was_killed
from tracing.recording.loader_text import LIBRARY
from tracing.trace.event_index import Iterator
from tracing.trace.event_words import exit_in_words
from tracing.trace.stacks import Line
from tracing.trace.task_events import noted_of
from tracing.trace.trace import Trace
from tracing.trace.words import size

MOST = 3  # errors that are reported, and deaths
LARGE = 200 << 20  # bytes
MEMORY = {
    "main": "Main's memory grew by {} in the second half of the run, to {}. If that goes on, it keeps batches, or what "
    "belongs to them (a loss with its graph, say): keep item(), or a copy (clone()) of the part that it needs.",
    "worker": "A worker's memory grew by {}, to {}: by what the dataset loads or keeps there, as in a cache{}.",
}
COPIED = (
    ", or by Python objects of main's that it reads: each is copied, as its count of references changes. Keep such "
    "data in arrays or tensors"
)


def caveats(trace: Trace, already_reported: str = "") -> list[str]:
    """What to know before you trust the rest. A death that is `already_reported`, or was raised to the training loop
    (as most are), is not repeated."""
    found = [line for iterator in trace.index.iterators for line in _ending(trace, iterator)][:MOST] + _killed(trace)
    if not found and (error := ended_by(trace)):
        over = " (If that was next() on a loader's iterator, its epoch was over: take a new one.)"
        over *= error.startswith("StopIteration")
        found.append(f"The program ended with {error}.{over} The report covers the time until then.")
    found += _failed_workers(trace)
    reported = " ".join([already_reported, *found])
    for position in np.flatnonzero(trace.events["kind"] == Kind.WORKER_DIED)[:MOST].tolist():
        what = _death(trace, position) if trace.text(position) is None else _plain(trace, position)
        if what not in reported:
            found.append(f"A worker died: {what} [event {position}]")
    found += [*_named(trace), *_same_batches(trace), *_memory(trace)]
    found += [str(error) for error in trace.damage]
    if trace.dropped:
        found.append(f"{trace.dropped:,} events were not recorded: the file of their process was full.")
    return found


def _death(trace: Trace, position: int) -> str:
    """torch reports only the pid of a dead worker. Here: which worker, and killed by what."""
    event = trace.events[position]
    by = exit_in_words(int(event["value"]))
    if event["value"] == -signal.SIGKILL:
        by += " (the kernel sends it when memory runs out)"
    if event["value"] == 1 and Kind.WORKER_BEGIN not in trace.events["kind"]:
        by += ", before its first line (spawn runs the program: start loaders behind `if __name__ == '__main__'`)"
    return f"worker {event['worker']}, {by}"


def _ending(trace: Trace, iterator: Iterator) -> list[str]:
    """How it ended, if not as it should."""
    fatal, raised = fatal_error(trace, iterator), trace.index.group(iterator.number, Kind.ERROR_RAISED).array.tolist()
    how = "The loader raised, and the training went on"
    if fatal is not None:
        how, raised = f"The epoch ended with an error{_place(trace, fatal)}", [fatal]
    return [f"{how} [event {each}]: {_plain(trace, each)}" for each in raised[:1]]


def _killed(trace: Trace) -> list[str]:
    """Main, in the epoch that it began last."""
    killed = [each for each in trace.index.iterators if main_was_killed(trace, each)]
    text = "Main was killed in the middle of an epoch, after {} batches (or it left without a shutdown, as os._exit "
    text += "does). The report covers the time until then."
    return [text.format(_yielded(trace, each)) for each in killed[-1:]]


def _yielded(trace: Trace, iterator: Iterator) -> int:
    return len(trace.index.group(iterator.number, Kind.YIELDED))


def _failed_workers(trace: Trace) -> list[str]:
    """Those that an error ended which is not the dataset's: of these torch tells main no more than the exit code."""
    failed = np.flatnonzero((trace.events["kind"] == Kind.WORKER_END) & (trace.events["text"] > 0))[:MOST].tolist()
    text = "Worker {} left its loop with an error{} [event {}]: {}. It was raised between two samples: by a signal's "
    text, worker = text + "handler, say, if a sample sets a timer and does not cancel it.", trace.events["worker"]
    return [text.format(worker[each], _place(trace, each), each, _plain(trace, each)) for each in failed]


def _named(trace: Trace) -> list[str]:
    """What is shared or changed, and should not be: generators, files and parts of the dataset, by name."""
    anew = np.flatnonzero((trace.events["kind"] == Kind.EPOCH_BEGIN) & (trace.events["text"] > 0)).tolist()
    in_main = sorted({name for position in anew for name in trace.text(position) or ()})
    configs = [trace.config(each.number) for each in trace.index.iterators]
    unasked = {each["dataset"] for each in configs if each.get("asks_worker") is False and each["num_workers"] > 1}
    named = {
        "Two workers, or two epochs, draw the same random numbers ({}): seed each worker in worker_init_fn, from "
        "get_worker_info().seed.": _repeated_generators(trace),
        "Forked workers share the position in an open file of the dataset ({}): each may read what another has asked "
        "for. Open it in each, in worker_init_fn.": changed(trace, "read"),
        "Main has changed the dataset since its workers started ({}). Persistent workers keep the copy that they were "
        "given: what they need, put into shared memory (a tensor), or start them in each epoch.": in_main,
        "Where {} is defined, nothing calls get_worker_info(): unless its workers share the stream in another way (by "
        "a queue, say), each reads all of it, and every sample comes once from each.": sorted(unasked),
    }
    return [text.format(", ".join(names)) for text, names in named.items() if names]


def _repeated_generators(trace: Trace) -> list[str]:
    """Random generators from which the first batches of two workers of a loader, or of two epochs, drew the same."""
    noted = [(each.loader, noted) for each in trace.index.iterators for _, noted in noted_of(trace, each)]
    drawn = Counter((loader, *item) for loader, each in noted for item in each.get("drawn", {}).items())
    return sorted({name for (_, name, _), times in drawn.items() if times > 1})


def _same_batches(trace: Trace) -> list[str]:
    """What makes a program train on fewer samples than it has."""
    found, events = list[str](), trace.events
    if ((events["kind"] == Kind.EPOCH_END) & (events["text"] > 0)).any():
        text = "An itertools.cycle repeats the first pass over a loader: it keeps all of its batches in memory, and "
        found.append(text + "yields them again, in the same order and with the same augmentation. Iterate it anew.")
    for position in np.flatnonzero(events["kind"] == Kind.FETCH_FAILED)[:1].tolist():
        if (error := str(trace.text(position)).removesuffix(": ")).startswith("StopIteration"):
            text = f"{error} was raised in the dataset [event {position}]. A loop over the loader takes that for the "
            found.append(text + "end of the epoch. Catch it where it is raised: by next(), say, when nothing is left.")
    for iterator in [*{each.loader: each for each in trace.index.iterators}.values()][:200]:  # at most
        if len(trace.index.group(iterator.number, Kind.EPOCH_END)) and not _yielded(trace, iterator):
            text = f"An epoch of loader {iterator.loader} ended without a batch: "
            text += "fewer than batch_size keys (or samples of a stream) give none with drop_last=True, and a stream's "
            found.append(text + "__iter__ gives no samples if it returns the same iterator again.")
    return found


def _memory(trace: Trace) -> list[str]:
    """Of main, if it grows to the end; and of the worker that grows most."""
    grown, samples = dict[str, tuple[float, float]](), trace.samples[trace.samples["memory"] > 0]
    noted = [each.get("bytes", 0) for iterator in trace.index.iterators for _, each in noted_of(trace, iterator)]
    filled = trace.events["value"][trace.events["kind"] == Kind.SLOT_FILLED]
    least = LARGE + 4 * max([int(filled.max(initial=0)), *noted])  # a few batches in a worker are as it should be
    for pid in np.unique(samples["pid"]).tolist():
        time, memory = (samples[name][samples["pid"] == pid] for name in ("time", "memory"))
        if pid != trace.about.get("pid"):
            grown["worker"] = max(grown.get("worker", (0, 0)), (memory.max() - memory[0], memory.max()))
            continue
        # From the first event on (imports are over), and before the last sample, which is taken when the program has
        # let go of all that it had.
        later = np.interp(np.linspace(trace.start, max(trace.start, time[-2:].min()), 9), time, memory)[4:]
        if (16 * np.diff(later) > later[-1] - later[0]).all():  # in each eighth
            grown["main"] = later[-1] - later[0], later[-1]
    mains = samples["memory"][samples["pid"] == trace.about.get("pid")].max(initial=0)  # a worker copies no more
    much = {name: each for name, each in grown.items() if each[0] > least}
    return [MEMORY[name].format(*map(size, each), COPIED if each[0] < mains else "") for name, each in much.items()]


def _place(trace: Trace, position: int) -> str:
    """Where in the program a worker raised it: " at data.py:17, read"; "" without a traceback."""
    places = re.findall(r'File "(.+?)", line (\d+), in ([\w<>]+)', str(trace.text(position)))
    own = [Line(file, int(line), function, "") for file, line, function in places if not LIBRARY.search(file)]
    return f" at {own[-1]}" if own else ""


def _plain(trace: Trace, position: int) -> str:
    """An error in one line: of a traceback from a worker, the line with the error's type."""
    text = str(trace.text(position))
    if "Traceback (most recent call last)" in text:
        # The text is the `repr` of the error, which for most kinds of errors escapes line breaks and quotes.
        lines = re.split(r"\n|\\n", text.replace("\\'", "'"))
        last = max(n for n, line in enumerate(lines) if "Traceback (most recent call last)" in line)
        text = next((line for line in lines[last + 1 :] if line.strip("'\") ") and not line.startswith(" ")), lines[-1])
    # The type says something, unless it is RuntimeError.
    return re.sub(r"^RuntimeError\((['\"])(.*)\1\)$", r"\2", text.strip(), flags=re.DOTALL)
