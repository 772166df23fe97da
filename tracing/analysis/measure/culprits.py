"""What is behind the waiting: a line, workers that wait for each other, a stage, the shares of a stream.

Each function looks for one culprit, and returns None (or "") where the trace does not show it.

Legend
    look    Stack    where the threads of a process were at one moment (tracing.trace.stacks)
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from minidl.events import Kind
from tracing.analysis.measure.cores import makers, worker_of
from tracing.analysis.measure.measures import Measures, epoch_ids
from tracing.recording.loader_text import LIBRARY
from tracing.trace.event_index import Iterator as IteratorInTrace
from tracing.trace.intervals import Intervals, depth
from tracing.trace.stacks import MAIN, Line, Stack
from tracing.trace.task_events import noted_of
from tracing.trace.thread_activity import MainTime
from tracing.trace.trace import Trace

FEWEST = 3  # looks that show it
MOST_OF_IT = 0.5  # a stage or a line that takes this share of making a batch is named
LOCKED = 0.4  # of the looks at workers that are in a lock: of two that take turns, nearly half
RARE = 5  # times as long as the median training step: main does something else there, too, ...
SELDOM = 0.2  # ... if it is no larger part of the steps
A_MOMENT, FAR_LONGER, PASSED, PART = 1_000_000, 20, 10, 0.1  # ns, at most; times, later; batches, and their share
LOOPS = ("_worker_loop", "Worker.loop")  # torch's, and minidl's: in it a worker still makes batches
BESIDE = 0.2  # of a core: what a thread uses that is worth a word

# Where a thread waits for a lock that processes share: multiprocessing's, or a file's. (A threading lock keeps no
# other worker waiting.) And where for the process of a multiprocessing.Manager, which serves one request at a time.
_LOCK_FILE = re.compile(r"multiprocessing/synchronize\.py$|/filelock/")
_MANAGER = re.compile(r"multiprocessing/managers\.py$")
_LOADER = re.compile(r"/torch/utils/data/(?!dataset\.py)|/minidl/(data/(fetch|sampler)|\w+)\.py$")
IMPORTING = re.compile("<frozen importlib")  # files
_LOCK_CALL = re.compile(r"\b(lockf|flock)\(")


# ---- which lines they are in


class Seen(NamedTuple):
    """The line in which a thread was seen most often, of the function in which it was seen most often."""

    line: Line
    calls: str  # the function that the line called most often: "ZipFile.__init__"; "" if it called none
    times: int  # in how many looks it was in that function, ...
    looks: int  # ... of how many
    on_it: int  # and in how many on the line

    def __str__(self) -> str:
        calls = "" if self.calls.startswith(f"{self.line.function}.<") else self.calls  # not a comprehension of its own
        return f"{self.line}{f', in {calls}' * bool(calls)}"

    @property
    def place(self) -> str:
        """The same without the text of the line."""
        return str(self._replace(line=self.line._replace(source="")))


def looks(measures: Measures) -> list[Stack]:
    """The looks at the workers while they made batches; without workers, at main while it did."""
    return [look for pid, made in makers(measures).items() for look in within(made, looks_at(measures, pid))]


def looks_at(measures: Measures, pid: int) -> list[Stack]:
    """Of main, first the thread that iterates."""
    first = measures.main_threads if pid == measures.main_pid else set()
    return [each.with_first(first) for each in measures.trace.stacks if each.pid == pid]


def called(look: Stack) -> list[Line]:
    """What the loader has called: the dataset, or the sampler, and what they call."""
    return list(itertools.takewhile(lambda line: not _LOADER.search(line.file), look.lines()))


def making(look: Stack) -> list[Line]:
    """Of these the program's own lines; a library's, if that is all there is."""
    return [line for line in called(look) if not LIBRARY.search(line.file)] or called(look)


def within(stretches: Intervals, found: list[Stack], not_in: bool = False) -> list[Stack]:
    """The looks that fall in one of these stretches of time; `not_in`: in none."""
    inside = depth(stretches.begin, stretches.end, np.array([each.time for each in found], np.int64)) > 0
    return [look for look, is_in in zip(found, inside.tolist(), strict=True) if is_in != not_in]


def _runs_the_program(look: Stack) -> bool:
    """Whether its main thread runs code of the program, and imports nothing there (as a library may, once)."""
    line, lines = look.own_line(), look.lines()
    return line is not None and not any(IMPORTING.match(each.file) for each in lines[: lines.index(line)])


def seen_at(found: list[Stack], lines_of: Callable[[Stack], list[Line]] = Stack.own_lines) -> Seen | None:
    """The innermost function that most of these looks have in common; None: there is none, or there are too few."""
    own = [{_function(line): line for line in lines_of(look)} for look in found]  # the innermost first
    times = Counter(itertools.chain.from_iterable(own))
    enough = max(FEWEST, MOST_OF_IT * len(found))
    shared = [[each for each in lines if times[each] >= enough] for lines in own]
    function, _ = _most_common([each[0] for each in shared if each])
    if function is None:
        return None
    line, on_it = _most_common([lines[function] for lines in own if function in lines])
    called = [look.called_by(line) for look, lines in zip(found, own, strict=True) if line in lines.values()]
    return Seen(line, _most_common(called)[0], times[function], len(found), on_it)


def _function(line: Line) -> tuple[str, str]:
    """The function that it is in. A comprehension is part of the one around it."""
    return line.file, re.sub(r"(\.<locals>\.<\w+>)+$", "", line.function)


def _most_common(values: list[Any]) -> tuple[Any, int]:
    return next(iter(Counter(values).most_common(1)), (None, 0))


# ---- what main does in no loader


class Away:
    """What main does while it is in no loader: in its steps and outside of its loops (ns), and where it was seen in
    the longer of the two. Of the whole program, from the first look to the last. Imports are left out: every program
    has them."""

    def __init__(self, measures: Measures) -> None:
        spans = measures.splits[measures.iterators[0].number].spans
        own = looks_at(measures, measures.main_pid)
        before = {look.time: look.time - earlier.time for earlier, look in itertools.pairwise(own)}
        own = [each for each in own if _runs_the_program(each)]
        # In loaders, for comparison.
        self.loading = spans.where((spans.use != MainTime.TRAINING) & (spans.use != MainTime.OUTSIDE)).total
        steps = spans.where(spans.use == MainTime.TRAINING)
        self.training = steps.total
        self.outside = spans.where(spans.use == MainTime.OUTSIDE).total
        self.outside += sum(before.get(look.time, 0) for look in within(spans, own, not_in=True))
        rare = measures.steps.where(measures.steps.length > RARE * measures.steps.median().total)
        # The first step may be long by itself; where many are, something else has the cores.
        few = 1 < len(rare.length) <= SELDOM * len(measures.steps.length) and MAIN in measures.main_threads
        count = few and 3 * rare.total > max(self.training, self.outside)
        # Steps that are far longer than the others, if they count: main saves or uploads something, say.
        self.rare = rare.where(slice(None if count else 0))
        if self.training < self.outside:
            seen = within(spans.where(spans.use != MainTime.OUTSIDE), own, not_in=True)
        else:
            seen = within(self.rare if self.rare.total else steps, own)  # in rare ones, if there are any
        self.seen = seen_at(seen)
        self.program = max(1, self.training + self.outside + self.loading)  # all of it


def beside(measures: Measures) -> tuple[float, str]:
    """Of Python's threads in main, beside the one that trains, the one that uses most of a core: how much, and where in
    the program it was seen. (0.0, "") if there is none."""
    found, looks = dict[str, tuple[float, str]](), looks_at(measures, measures.main_pid)
    for name in {name for look in looks for name in look.threads}:
        own = [replace(look, threads={name: look.threads[name]}) for look in looks if name in look.threads]
        if seen := seen_at(own):
            used = own[-1].cpu[name] - own[0].cpu[name]
            found[name] = used / (own[-1].time - own[0].time), seen.place
    # Where another thread iterates, and hands the batches on, the main thread trains, if it computes (or would, if the
    # other left it Python's lock).
    trains = {MAIN} if found.get(MAIN, (0.0,))[0] > BESIDE / 4 else measures.main_threads
    return max((each for name, each in found.items() if name not in trains), default=(0.0, ""))


def starting_at(measures: Measures) -> Seen | None:
    """Where main was seen while epochs started, in functions that the loader calls: a sampler's `__iter__`, say."""
    looks = within(measures.main_in(MainTime.STARTUP), looks_at(measures, measures.main_pid))
    return seen_at([replace(each, threads={"main": called(each)}) for each in looks])


# ---- workers that wait for each other


def turns(measures: Measures) -> str:
    """What workers were seen waiting for as often as if they took turns: "a lock"; "" for nothing."""
    seen = looks(measures)
    waits = list(filter(None, map(waits_for, seen)))
    often = measures.num_workers > 1 and len(waits) >= max(FEWEST, LOCKED * len(seen))
    return str(_most_common(waits)[0]) if often else ""


def waits_for(look: Stack) -> str:
    """Which thing that workers share it waits for; "": none."""
    lines = look.lines()
    if any(_LOCK_FILE.search(line.file) or _LOCK_CALL.search(line.source) for line in lines[:1]):
        return "a lock"
    return "a multiprocessing.Manager" if any(_MANAGER.search(line.file) for line in lines) else ""


def exiting(measures: Measures) -> tuple[bool, Seen | None]:
    """What workers do once they have left their loop, while main waits for them: whether they wait until a
    multiprocessing.Queue is read; and the line they are in, in any thread, since Python joins those that are not
    daemons. (Which are, is not known.)"""
    pids = worker_of(measures)
    found = within(measures.main_in(MainTime.SHUTDOWN), [each for each in measures.trace.stacks if each.pid in pids])
    found = [look for look in found if not any(line.function in LOOPS for line in look.lines())]
    joins = [look for look in found if any(line.function.endswith("_finalize_join") for line in look.lines())]
    return len(joins) >= FEWEST, seen_at([look.together() for look in found])


# ---- what they make


def trend(lengths: np.ndarray) -> float:
    """How many times as long the last quarter takes as the first, if each quarter takes longer than the one before it;
    else 1. (By medians, of five at least.)"""
    quarter = len(lengths) // 4
    medians = np.median(lengths[: 4 * quarter].reshape(4, quarter), axis=1) if quarter >= 5 else np.ones(4)
    return float(medians[3] / max(1, medians[0])) if (np.diff(medians) > 0).all() else 1.0


def slows(measures: Measures, begin: str, end: str) -> float:
    """The trend in how long a stage of the batches takes: of the whole run, or of its longest epoch."""
    rows = measures.tasks[(measures.tasks[begin] >= 0) & (measures.tasks[end] >= 0)]
    took, (epochs, counts) = rows[end] - rows[begin], np.unique(epoch_ids(rows), return_counts=True)
    longest = epoch_ids(rows) == epochs[counts.argmax()] if len(rows) else []
    return max(trend(took), trend(took[longest]))


def passed_over(measures: Measures) -> int:
    """How many batches of its first epoch main had at first, nearly each for a moment only, and later ones far longer;
    0 if they are few."""
    had = measures.had[epoch_ids(measures.had) == epoch_ids(measures.had)[:1]]
    took = (had["asked"] - had["yielded"])[had["asked"] >= 0]
    usual = np.median(np.append(took[-PASSED:], 0))
    score = np.where(took > min(A_MOMENT, usual / FAR_LONGER), -3, 1).cumsum()  # highest where the last one was passed
    return int(score.argmax()) + 1 if score.max(initial=0) >= max(PASSED, PART * len(score)) else 0


def ended_streams(measures: Measures) -> Iterator[Intervals]:
    """For each worker of an iterable dataset: from the end of its stream to the end of the epoch."""
    for worker in range(measures.num_workers):
        both = (measures.groups(Kind.STREAM_END, worker=worker), measures.groups(Kind.EPOCH_END))
        for ends, over in zip(*both, strict=True):
            until = np.append(over, 0)[np.searchsorted(over, ends)]  # 0: the epoch was left, or goes on
            yield measures.of_events(ends, np.maximum(ends, until))


def contents(measures: Measures) -> dict[str, Any]:
    """Of what a batch is made: {"tensors": 2, "bytes": 4096, "objects": 0, "padding": 0.5}, as noted of one of the last
    epoch; all 0 where that was not recorded, as of minidl's loader."""
    noted = (each for iterator in measures.iterators[::-1] for _, each in noted_of(measures.trace, iterator))
    nothing = dict.fromkeys(("tensors", "bytes", "objects", "padding"), 0)
    return nothing | next((each for each in noted if "tensors" in each), {})


def changed(trace: Trace, what: str) -> list[str]:
    """Parts of the dataset, by name, that workers' first batches have changed: caches that have "grown", files "read"
    of which they share the position."""
    noted = [noted for each in trace.index.iterators for _, noted in noted_of(trace, each)]
    return sorted({name for each in noted for name in each.get(what, ())})


def undivided(measures: Measures) -> list[int]:
    """Where the workers of an iterable dataset each read the whole stream: the positions of the events that show it,
    one for each worker of an epoch, or none."""
    return next(filter(None, (_same_samples(measures.trace, each) for each in measures.iterators)), [])


def _same_samples(trace: Trace, iterator: IteratorInTrace) -> list[int]:
    """Where all workers have the same among their first samples. (A shuffle buffer gives them in another order.) []
    for one worker alone, or if nothing is noted of one."""
    notes: dict[int, tuple[int, list[str]]] = {}  # of each worker the first note about a batch, and where
    for position, noted in noted_of(trace, iterator):
        notes.setdefault(int(trace.events["worker"][position]), (position, noted.get("samples", [])))
    if not 1 < len(notes) == iterator.num_workers:
        return []
    firsts = [samples for _, samples in notes.values()]
    equal = all(each == firsts[0] for each in firsts) and len(set(firsts[0])) > 1
    # Half of each in common, of many that do not repeat by themselves.
    count = Counter(itertools.chain.from_iterable(firsts))
    common = all(2 * sum(count[key] > 1 for key in each) >= len(each) for each in firsts)
    differ = all(len(set(each)) == len(each) >= 16 for each in firsts)
    return sorted(position for position, _ in notes.values()) if equal or (common and differ) else []
