"""What to know before you trust the rest of a report: how the run ended, and what the trace lacks."""

from __future__ import annotations

import contextlib
import re
import signal

import numpy as np

from minidl.events import Kind
from tracing.analysis.measure.culprits import FEWEST, copied_generators, noted_of
from tracing.analysis.measure.run_end import fatal_error, main_was_killed
from tracing.recording.loader_text import LIBRARY
from tracing.trace.event_index import Iterator
from tracing.trace.stacks import Line
from tracing.trace.trace import Trace

MOST = 3  # errors that are reported, and deaths
FEW = 8  # samples that are equal: fewer may be so by chance
MOST_OF_THEM = 0.9  # of a stream's samples: as many as come
CALLS_ITSELF = re.compile(r"\bself(\[|\.__getitem__\()")


def caveats(trace: Trace, already_reported: str = "") -> list[str]:
    """What to know before you trust the rest. A death that is `already_reported`, or was raised to the training loop
    (as most are), is not repeated."""
    found = [line for iterator in trace.index.iterators for line in _ending(trace, iterator)][:MOST]
    reported = " ".join([already_reported, *found])
    for position in np.flatnonzero(trace.events["kind"] == Kind.WORKER_DIED)[:MOST].tolist():
        what = _death(trace, position) if trace.text(position) is None else _plain(trace, position)
        if what not in reported:
            found.append(f"A worker died: {what} [event {position}]")
    for silent in SILENT:
        found += silent(trace)
    found += [str(error) for error in trace.damage]
    if trace.dropped:
        found.append(f"{trace.dropped:,} events were not recorded: the file of their process was full.")
    if trace.complete < len(trace):
        found.append(f"From event {trace.complete} on some events are missing.")
    return found


def _death(trace: Trace, position: int) -> str:
    """torch reports only the pid of a dead worker. Here: which worker, and killed by what."""
    event = trace.events[position]
    by = f"exit code {event['value']}"
    with contextlib.suppress(ValueError):
        by = f"signal {signal.Signals(-int(event['value'])).name}"
    if event["value"] == -signal.SIGKILL:
        by += " (the kernel sends it when memory runs out)"
    return f"worker {event['worker']}, {by}"


def _ending(trace: Trace, iterator: Iterator) -> list[str]:
    """How it ended, if not as it should."""
    position = fatal_error(trace, iterator)
    if position is not None:
        return [f"The epoch ended with an error{_place(trace, position)} [event {position}]: {_plain(trace, position)}"]
    raised = trace.index.group(iterator.number, Kind.ERROR_RAISED).array
    if len(raised):
        return [f"The loader raised, and the training went on [event {raised[0]}]: {_plain(trace, int(raised[0]))}"]
    if main_was_killed(trace, iterator):
        yielded = len(trace.index.group(iterator.number, Kind.YIELDED))
        return [
            f"Main was killed in the middle of an epoch, after {yielded} batches (or it left without a shutdown, as "
            "os._exit does). The report covers the time until then."
        ]
    return []


def _copied_generators(trace: Trace) -> list[str]:
    names = sorted({name for each in trace.index.iterators for name in copied_generators(trace, each)})
    text = f"All workers draw the same random numbers: each has a copy of a generator ({', '.join(names)}). "
    text += "Make it in worker_init_fn, from get_worker_info().seed."
    return [text] if names else []


def _changed_in_main(trace: Trace) -> list[str]:
    """What persistent workers do not see."""
    positions = np.flatnonzero((trace.events["kind"] == Kind.EPOCH_BEGIN) & (trace.events["text"] > 0)).tolist()
    names = sorted({name for position in positions for name in trace.text(position) or ()})
    text = f"Main has changed the dataset since its workers started ({', '.join(names)}). Persistent workers keep the "
    text += "copy that they were given: put what changes into shared memory (a tensor), or start them in each epoch."
    return [text] if names else []


def _samples_in_one_memory(trace: Trace) -> list[str]:
    """Of a dataset that uses the same memory for each sample."""
    for iterator in trace.index.iterators:
        for _, noted in noted_of(trace, iterator):
            samples, memories = noted.get("samples_in", (0, 0))
            if samples >= FEW and samples >= 2 * memories:
                text = f"The {samples} samples of a batch were in the memory of {memories}. If the dataset fills it "
                return [text + "anew for each, they all became the last one: let it return copies."]
    return []


def _replaced_samples(trace: Trace) -> list[str]:
    """By a `__getitem__` that calls itself, as one that catches errors may."""
    callers = ([each for each in look.own_lines()[1:] if CALLS_ITSELF.search(each.source)] for look in trace.stacks)
    found = [lines[0] for lines in callers if lines and lines[0].function.endswith("__getitem__")]
    text = f"In {len(found)} looks the dataset was in a call of its own __getitem__ ({{}}). If it makes these where a "
    text += "sample cannot be read, another one takes its place, unnoticed: count these, or let the error through."
    return [text.format(found[0])] if len(found) >= FEWEST else []


def _kept_back(trace: Trace) -> list[str]:
    """By streams that say how long they are, and were read to their ends. (A rank may read its share.)"""
    streams = np.unique(trace.tasks["loader"][trace.tasks["stream_end"] >= 0])
    for iterator in trace.index.iterators:
        config, ends = trace.config(iterator.number), trace.index.group(iterator.number, Kind.EPOCH_END).array
        size, batch = config.get("dataset_size") or 0, config.get("batch_size") or 1
        batches = int(trace.events["value"][ends].min(initial=size)) + iterator.num_workers  # each may drop its last
        if iterator.loader in streams and trace.about.get("rank") is None and batches * batch < MOST_OF_THEM * size:
            text = f"An epoch ended after at most {batches:,} batches of {batch}; len(dataset) says {size:,} samples. "
            return [text + "What a stream holds when its source ends, as in a shuffle buffer, is lost if not yielded."]
    return []


SILENT = _copied_generators, _changed_in_main, _samples_in_one_memory, _replaced_samples, _kept_back


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
