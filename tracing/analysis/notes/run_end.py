"""How a run ended: by itself, with an error, or because main was killed."""

from __future__ import annotations

import re

from minidl.events import Kind
from tracing.analysis.measure.cores import worker_of
from tracing.analysis.measure.measures import Measures, measure
from tracing.recording.file_format import CTRL_C
from tracing.trace.event_index import NEVER, Iterator
from tracing.trace.process_liveness import ProcessStatus, processes
from tracing.trace.trace import Trace

# Main's last event of these kinds shows how far its iterator got.
MARKS = (Kind.LOADER, Kind.EPOCH_BEGIN, Kind.YIELDED, Kind.EPOCH_END, Kind.SHUTDOWN_BEGIN)
# ... and these which one main was last in.
ITERATED = (Kind.EPOCH_BEGIN, Kind.YIELDED, Kind.ERROR_RAISED)


def most_important_first(trace: Trace) -> list[Measures]:
    """All loaders: the one in which the run ended early, then those that cost the program most, since main waits for
    them, or works in them, for longest."""
    found = sorted(measure(trace), key=lambda each: (each.nested, -each.in_loader.total))
    last = max(found, key=lambda each: _last_mark(trace, each.iterators[-1], ITERATED), default=None)
    last = next((each for each in found if died_in_a_step(each) is not None), last)  # main may be in another one then
    if last is not None and ended_early(last):
        found.sort(key=lambda each: each is not last)  # the others stay as they are
    return found


def ended_early(measures: Measures) -> bool:
    """Whether an error or main's death ended the run."""
    return failed(measures) or main_was_killed(measures.trace, measures.iterators[-1])


def failed(measures: Measures) -> bool:
    """Whether an error ended the run in an epoch, or a worker's death: that needs fixing before anything else."""
    trace, last = measures.trace, measures.iterators[-1]
    mark = _last_mark(trace, last, (Kind.EPOCH_BEGIN, Kind.YIELDED, Kind.EPOCH_END))
    within = ended_by(trace) != "" and trace.events["kind"][mark] != Kind.EPOCH_END
    return within or died_in_a_step(measures) is not None or fatal_error(trace, last) is not None


def ended_by(trace: Trace) -> str:
    """The error that ended the program: "KeyError at train.py:31, main: 'image'"; "" for none, and for Ctrl-C."""
    error = str(trace.about.get("ended_by", ""))
    return "" if error.startswith(CTRL_C) else error


def died_in_a_step(measures: Measures) -> int | None:
    """The worker whose death ended the program, raised by torch's handler of SIGCHLD while main was in no loader."""
    died = re.search(r"DataLoader worker \(pid (\d+)\)", ended_by(measures.trace))
    return worker_of(measures).get(int(died[1])) if died else None


def fatal_error(trace: Trace, iterator: Iterator) -> int | None:
    """The position of the first error after which no batch came."""
    raised = trace.index.group(iterator.number, Kind.ERROR_RAISED).array
    mark = _last_mark(trace, iterator, (Kind.YIELDED, Kind.EPOCH_END))
    return next(iter(raised[raised > mark].tolist()), None)


def main_was_killed(trace: Trace, iterator: Iterator) -> bool:
    """Whether it was, in mid-epoch: a worker reported it, or main never closed its file and its process is gone."""
    mark = _last_mark(trace, iterator, MARKS)
    if mark < 0 or trace.events["kind"][mark] not in (Kind.EPOCH_BEGIN, Kind.YIELDED):
        return False
    actor = trace.actors[int(trace.events["actor"][mark])]
    if actor.role != "main":  # a loader nested in a dataset: its worker died, which is reported as such
        return False
    if len(trace.index.group(iterator.number, Kind.PARENT_DIED)):
        return True
    return processes(trace.path).get(actor.pid) is ProcessStatus.GONE


def _last_mark(trace: Trace, iterator: Iterator, kinds: tuple[Kind, ...]) -> int:
    """The position of main's last event of these kinds, or -1."""
    return max(trace.index.group(iterator.number, kind).last(NEVER - 1) for kind in kinds)
