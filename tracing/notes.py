"""What a reader of the report must know before he believes the rest: how the run ended, and what the trace lacks."""

from __future__ import annotations

import contextlib
import re
import signal

import numpy as np

from minidl.events import Kind, Queue
from tracing import format as fmt
from tracing import memory
from tracing.hangs import explain
from tracing.index import Iterator, Lane
from tracing.measures import Measures
from tracing.recording import is_alive
from tracing.trace import Trace

# Main's last event of these kinds tells how far its iterator came.
MARKS = (Kind.LOADER, Kind.EPOCH_BEGIN, Kind.YIELDED, Kind.EPOCH_END, Kind.SHUTDOWN_BEGIN)
IN_EPOCH = (Kind.EPOCH_BEGIN, Kind.YIELDED)
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


def broken_off(measures: Measures) -> bool:
    """Whether an error or main's death ended the run."""
    return failed(measures) or _main_was_killed(measures.trace, measures.iterators[-1])


def failed(measures: Measures) -> bool:
    """Whether an error ended the run: that is to be mended before anything else."""
    return _fatal_error(measures.trace, measures.iterators[-1]) is not None


def _ending(trace: Trace, iterator: Iterator) -> list[str]:
    """How it ended, if not as it should."""
    position = _fatal_error(trace, iterator)
    if position is not None:
        return [f"The epoch ended with an error [event {position}]: {_plain(trace, position)}"]
    raised = trace.index.group(iterator.number, Kind.ERROR_RAISED).array
    if len(raised):
        return [f"The loader raised, and the training went on [event {raised[0]}]: {_plain(trace, int(raised[0]))}"]
    if _main_was_killed(trace, iterator):
        yielded = len(trace.index.group(iterator.number, Kind.YIELDED))
        return [
            f"Main was killed in the middle of an epoch, after {yielded} batches (or it left without a shutdown, as "
            "os._exit does). What is told is of the time until then."
        ]
    return []


def _fatal_error(trace: Trace, iterator: Iterator) -> int | None:
    """The position of the first error after which no batch came."""
    raised = trace.index.group(iterator.number, Kind.ERROR_RAISED).array
    mark = _last_mark(trace, iterator, (Kind.YIELDED, Kind.EPOCH_END))
    after = raised[raised > mark]
    return int(after[0]) if len(after) else None


def _main_was_killed(trace: Trace, iterator: Iterator) -> bool:
    """In mid-epoch. Its workers say so; or it never closed its file, and there is no such process any more."""
    mark = _last_mark(trace, iterator, MARKS)
    if mark < 0 or trace.events["kind"][mark] not in IN_EPOCH:
        return False
    actor = trace.actors[int(trace.events["actor"][mark])]
    if actor.role != "main":  # a loader nested in a dataset: a worker died with it, and that is told as such
        return False
    lanes = (trace.index.lane(iterator.number, Lane.WORKER, worker).array for worker in range(iterator.num_workers))
    if any((trace.events["kind"][lane] == Kind.PARENT_DIED).any() for lane in lanes):
        return True
    headers = (fmt.read_header(path) for path in trace.path.glob(f"events-{actor.pid}-*.bin"))
    return any(header is not None and header.used < 0 for header in headers) and not is_alive(actor.pid)


def _last_mark(trace: Trace, iterator: Iterator, kinds: tuple[Kind, ...]) -> int:
    """The position of main's last event of these kinds, or -1."""
    positions = trace.index.lane(iterator.number, Lane.MAIN).array
    found = positions[np.isin(trace.events["kind"][positions], kinds)]
    return int(found[-1]) if len(found) else -1


def _plain(trace: Trace, position: int) -> str:
    """An error in one line. Of a traceback that came from a worker: its last line, which says what went wrong."""
    text = str(trace.text(position))
    if "Traceback (most recent call last)" in text:
        # The text is what `repr` made of the error, which for most kinds of error escapes line ends and quotes.
        lines = re.split(r"\n|\\n", text.replace("\\'", "'"))
        text = [line for line in lines if line.strip("'\") ")][-1]
    # That it is a RuntimeError says nothing; of any other error the type does.
    return re.sub(r"^RuntimeError\((['\"])(.*)\1\)$", r"\2", text.strip(), flags=re.DOTALL)
