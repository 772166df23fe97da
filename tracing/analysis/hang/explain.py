"""Why a run makes no progress: `explain(trace)` finds which thread waits for which, on which queue, and since when.

This module decides if there is anything to explain. tracing.analysis.hang.wait_chain finds the way from the thread that
iterates to the one that is to blame, tracing.analysis.hang.patience says how long is too long, and
tracing.analysis.hang.hang puts it in words.
"""

from __future__ import annotations

import re

import numpy as np

from minidl.events import Kind
from tracing.analysis.hang.hang import ADVICE, Cause, Hang, Link
from tracing.analysis.hang.lines import Lines
from tracing.analysis.hang.patience import patience
from tracing.analysis.hang.stuck_moments import Ending, Moment, moments
from tracing.analysis.hang.wait_chain import ThreadId, WaitChain
from tracing.analysis.measure.measures import epoch_ids
from tracing.trace.event_index import Lane
from tracing.trace.process_liveness import ProcessStatus, processes
from tracing.trace.stacks import MAIN, Line, Stack
from tracing.trace.state import OUTSIDE, LoaderState, MainStatus, State
from tracing.trace.trace import Trace

# Source that may wait for a lock, or for another thread.
WAITS = re.compile(r"lock|acquire|\.(get|join|result|wait)\(\)|^with [^(]*:", re.IGNORECASE)
# What is added to the advice.
SHARED = " (a lock that is shared: not released, or taken twice, by one process; or two take two in different orders)"
OPENMP = " (a fork has none of the threads that torch used in main: leave set_num_threads(1) in workers, or spawn)"
COPIED = (
    " (a lock that another thread of main's had at the fork, or that it took itself: this copy is never given back. Or "
    "it waits for such a thread, main's own or OpenMP's. Make these in worker_init_fn, not before)"
)
CALLS = {  # its line, and what that has called -> what is added
    r"(Process|Thread)\.join$": ": it has not ended. See what it waits for: an end mark in its queue, say",
    r"Popen\.wait$|\.stdin\.write\(": ": the program that it runs may wait, too: read what it prints (communicate())",
    r"\.(recv\w*|accept|connect)\(|urlopen\(": ": the other end says nothing. Give the connection a timeout",
    r"(wait|result|result_iterator|Pool\.map|Result\.get)$": ": it waits for others (for an event, a pool's result, or "
    "until all have come to a barrier): see which of them has ended, or is not there (a forked process has none of "
    "main's threads: make what it needs in worker_init_fn)",
    r"sleep\(": ": it sleeps, perhaps until something changes: a file left there, or main's data (a worker has a copy)",
    r"Queue\.put$": ": the queue is full. Empty it in the training loop, not only after it, and before you join",
    r"Queue\.get$": ": the queue is empty. What fills it has ended, or cannot: a worker has no thread of main's, a "
    "queue.Queue is in one process, the training loop waits for a batch. And each reader needs its own end mark",
}
COMPUTES = " (it is computing, perhaps in an endless loop{})"
AT_FIRST = ", as where its share is empty; if it builds what all workers need, do that in main, before they start"


def explain(trace: Trace, now: int | None = None) -> Hang | None:
    """Why the run makes no progress; None if it does, or ended as it should.

    `now` (ns, on the clock of the events) is until when the run is known to have lasted: by default the present if it
    is still going on, else its last event. Where events are missing (a file was full, cut off or damaged),
    only what came before is judged.
    """
    # Of a simulated run that ended in a deadlock: its trace's description has them.
    simulated = {int(pid): ProcessStatus(how) for pid, how in trace.about.get("processes", {}).items()}
    found = moments(trace, simulated or processes(trace.path), now)
    hangs = [_judge(trace, moment, simulated or moment.known) for moment in found]
    return max((hang for hang in hangs if hang is not None), key=lambda hang: hang.age, default=None)


def _judge(trace: Trace, moment: Moment, known: dict[int, ProcessStatus]) -> Hang | None:
    state, events = trace.state(moment.k), trace.events[: moment.k + 1]
    last = int(np.flatnonzero(events["actor"] == moment.actor).max(initial=-1))  # of the thread that iterates
    loader = _loader_of(trace, state, moment.actor, last) if last >= 0 else None
    if loader is None:
        return None
    lines = Lines(trace, moment.until, exactly=moment.ending is Ending.INTERRUPTED)
    outside = loader.main.status in OUTSIDE
    if outside and not _may_be_stuck_outside(trace, moment, last, loader.main.status, lines):
        return None
    waits = WaitChain(trace, state, known)
    links, cause = waits.chain(ThreadId(Lane.MAIN, loader.iterator))
    age = moment.until - (int(events["time"][last]) if outside else links[0].since)
    usual, patient = patience(trace, moment, loader, last, lines)
    if age <= patient:
        return None
    links[0].thread = lines.thread(links[0].pid, links[0].thread, links[0].since)
    for link in links:  # a waiting thread needs a line of the program; for the one to blame, its innermost will do
        link.line = lines.line(link.pid, link.thread, link.since, own=link is not links[-1])
    blamed = links[-1]
    return Hang(
        ending=moment.ending,
        age=age,
        usual=usual,
        links=links,
        cause=cause,
        advice=_advice(cause, blamed, loader, moment, lines),
        beside=lines.beside(blamed.pid, blamed.thread, blamed.since),
        until=moment.until,
        start=trace.start,
    )


def _may_be_stuck_outside(trace: Trace, moment: Moment, last: int, status: MainStatus, lines: Lines) -> bool:
    """Whether a thread in no loader may be stuck: not if the run just ended. After the last epoch a program may
    compute, or sit at a prompt, as long as it likes: it is stuck only if it waits in a line of its own."""
    if moment.ending is Ending.RECORDED or status is MainStatus.TRAINING:
        return moment.ending is not Ending.RECORDED
    main, since = trace.actors[moment.actor], int(trace.events["time"][last])
    has_line = lines.line(main.pid, MAIN, since, own=True) is not None  # whichever thread iterated
    return has_line and lines.waits(main.pid, since)


def _loader_of(trace: Trace, state: State, actor: int, last: int) -> LoaderState | None:
    """The loader that a thread is in: that of its last event; or if that is over, the last whose batch it has, or the
    last that it had to do with."""
    mine = {each.iterator: each for each in state.loaders if each.main.actor == actor}
    iterator = trace.index.iterator_of[int(epoch_ids(trace.events[last : last + 1])[0])]
    if iterator in mine:
        return mine[iterator]
    return max(mine.values(), key=lambda each: (each.main.status is MainStatus.TRAINING, each.main.since), default=None)


def _advice(cause: Cause, blamed: Link, loader: LoaderState, moment: Moment, lines: Lines) -> str:
    stack, line = lines.stack(blamed.pid, blamed.thread, blamed.since).with_first({blamed.thread}), blamed.line
    where = f"Look at {line.file}:{line.line}" if line else f"See where it is: py-spy dump --pid {blamed.pid}"
    advice = ADVICE.get(cause, "{where}").format(where=where, pid=blamed.pid)
    forked = loader.config.get("start_method") == "fork" and blamed.pid != lines.trace.actors[moment.actor].pid
    does = f"{line.source} {stack.called_by(line)}" if line is not None else ""
    if said := [text for pattern, text in CALLS.items() if re.search(pattern, does)]:
        advice += said[0]
    elif cause is Cause.CODE and stack.threads and not lines.waits(blamed.pid, blamed.since):
        advice += COMPUTES.format("" if not forked or _has_made_a_batch(lines, blamed) else AT_FIRST)
    elif cause in (Cause.CODE, Cause.START) and forked and _may_lack_what_it_waits_for(lines, blamed):
        advice += _what_it_lacks(stack, line)
    elif cause is Cause.CODE:
        advice += ": until that returns the training loop does not go on, which may be what it waits for"
    if moment.left:
        advice += f". These outlived main: kill {' '.join(map(str, moment.left))}"
    return advice


def _what_it_lacks(stack: Stack, line: Line | None) -> str:
    """In a forked process. At a `with`, the lock is multiprocessing's only if that is seen."""
    innermost = stack.lines()[0].file if stack.threads else ""
    if innermost.endswith("multiprocessing/synchronize.py"):
        return SHARED
    if line is not None and not WAITS.search(line.source):  # no batch yet: it waits in what it calls
        return OPENMP + COPIED * (not re.search("-packages/torch/(?!utils/data/)", innermost))
    return COPIED if line is not None and line.source.startswith("with ") else SHARED + COPIED


def _may_lack_what_it_waits_for(lines: Lines, blamed: Link) -> bool:
    """Whether a process waits for a lock or a thread, as far as its line shows, or has made no batch yet and waits."""
    by_its_line = blamed.line is None or WAITS.search(blamed.line.source) is not None
    return by_its_line or (not _has_made_a_batch(lines, blamed) and lines.waits(blamed.pid, blamed.since))


def _has_made_a_batch(lines: Lines, blamed: Link) -> bool:
    """Its process."""
    events, own = lines.trace.events, np.array([each.pid == blamed.pid for each in lines.trace.actors])
    return bool(own[events["actor"][events["kind"] == Kind.COLLATE_END]].any())
