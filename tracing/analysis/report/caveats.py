"""What a reader of the report must know before he believes the rest: how the run ended, and what the trace lacks."""

from __future__ import annotations

import contextlib
import re
import signal

import numpy as np

from minidl.events import Kind, Queue
from tracing.analysis.hang.explain import explain
from tracing.analysis.measure.run_end import fatal_error, main_was_killed
from tracing.trace import memory
from tracing.trace.event_index import Iterator
from tracing.trace.trace import Trace

MOST = 3  # notes of errors, and as many of deaths


def notes(trace: Trace) -> list[str]:
    """Why it stands still, if it does; then how it ended, and what makes the rest less sure."""
    hang = explain(trace)
    first = hang.notes() if hang is not None else []
    return first + beside(trace, " ".join(first))


def beside(trace: Trace, told: str) -> list[str]:
    """All but why it stands still, which is `told`: a death that it names is not told again."""
    found = [line for iterator in trace.index.iterators for line in _ending(trace, iterator)][:MOST]
    told = " ".join([told, *found])
    for position in np.flatnonzero(trace.events["kind"] == Kind.WORKER_DIED)[:MOST].tolist():
        text = _death(trace, position) if trace.text(position) is None else f"A worker died: {_plain(trace, position)}"
        if text.partition(": ")[2] not in told:  # most often it is what was raised to the training loop
            found.append(f"{text} [event {position}]")
    found += memory.warnings(trace)
    found += [str(error) for error in trace.damage]
    if trace.dropped:
        found.append(f"{trace.dropped:,} events were not recorded: the file of their process was full.")
    if trace.complete < len(trace):
        found.append(f"From event {trace.complete} on some events are missing.")
    return found


def _death(trace: Trace, position: int) -> str:
    """A death of which torch tells the pid alone: of whom, by what, over which batch. (Its keys are drawn by main.)"""
    event = trace.events[position]
    worker, code = int(event["worker"]), int(event["value"])
    by = f"exit code {code}"
    if code < 0:
        with contextlib.suppress(ValueError):
            by = f"signal {signal.Signals(-code).name}"
    same = (trace.events["loader"] == event["loader"]) & (trace.events["epoch"] == event["epoch"])
    said = trace.events[same & (trace.events["worker"] == worker)][["kind", "queue", "task", "time"]]
    got = said[(said["kind"] == Kind.GOT) & (said["queue"] == Queue.INDEX) & (said["task"] >= 0)]
    done = np.isin(got["task"], said["task"][(said["kind"] == Kind.PUT) & (said["queue"] == Queue.RESULT)])
    text = f"Worker {worker} died: {by}"
    if len(got) == 0 or done[-1]:
        return f"{text}. It had no task."
    task = int(got["task"][-1])
    drawn = np.flatnonzero(same & (trace.events["kind"] == Kind.KEYS_DRAWN) & (trace.events["task"] == task))
    keys = f", keys {trace.text(int(drawn[0]))}" if len(drawn) else ""
    return f"{text}. It was working on batch {task}{keys}."


def _ending(trace: Trace, iterator: Iterator) -> list[str]:
    """How it ended, if not as it should."""
    position = fatal_error(trace, iterator)
    if position is not None:
        return [f"The epoch ended with an error [event {position}]: {_plain(trace, position)}"]
    raised = trace.index.group(iterator.number, Kind.ERROR_RAISED).array
    if len(raised):
        return [f"The loader raised, and the training went on [event {raised[0]}]: {_plain(trace, int(raised[0]))}"]
    if main_was_killed(trace, iterator):
        yielded = len(trace.index.group(iterator.number, Kind.YIELDED))
        return [
            f"Main was killed in the middle of an epoch, after {yielded} batches (or it left without a shutdown, as "
            "os._exit does). What is told is of the time until then."
        ]
    return []


def _plain(trace: Trace, position: int) -> str:
    """An error in one line. Of a traceback that came from a worker: its last line, which says what went wrong."""
    text = str(trace.text(position))
    if "Traceback (most recent call last)" in text:
        # The text is what `repr` made of the error, which for most kinds of error escapes line ends and quotes.
        lines = re.split(r"\n|\\n", text.replace("\\'", "'"))
        text = [line for line in lines if line.strip("'\") ")][-1]
    # That it is a RuntimeError says nothing; of any other error the type does.
    return re.sub(r"^RuntimeError\((['\"])(.*)\1\)$", r"\2", text.strip(), flags=re.DOTALL)
