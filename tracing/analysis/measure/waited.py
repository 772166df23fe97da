"""What main waited for: what limits a load, and what each cause costs. The report, `run`'s last lines, the live
view, whatif and compare read it here.

Each rule estimates how much of main's time its cause costs. Costs do not overlap: a second that main waits is counted
once. Coarse rules come first, from what main waits for; then finer ones take their part of it, where the trace shows
what is behind it. The rules are in tracing.analysis.report.verdicts, with why and what next.

Not everything that costs time is a problem: if each costs little of the whole program, the loader is not the limit. And
where main hardly waits once every worker has made its first batch, the waiting before that does not count.
"""

from __future__ import annotations

import enum

import numpy as np

from minidl.events import Kind
from tracing.analysis.measure import cores, culprits
from tracing.analysis.measure.measures import Measures, epoch_ids
from tracing.analysis.measure.stages import startup_cost
from tracing.trace.thread_activity import MainTime

MATTERS = 0.05  # a cause that costs less than this share of main's time is not worth changing
IDLE = 0.1  # of the workers' lives: less is hardly ever
LITTLE = 0.15  # of the program's time: if each cause costs less, and all less than twice that, it is not the loader


class Verdict(enum.Enum):
    """What limits the load."""

    TRAINING = "the training step is the limit"
    WORKERS = "the workers are the limit"
    TURNS = "the workers wait for each other"
    HOLD_UP = "one batch holds up the others"
    PREFETCH = "too little prefetch"
    SHARES = "the stream is not divided evenly among the workers"
    NO_WORKERS = "main makes the batches itself, and does not train meanwhile"
    MOVING = "moving batches is the limit"
    SAMPLER = "drawing keys is the limit"
    STARTUP = "start-up is the limit"
    SHUTDOWN = "shutdown is slow"


# With workers, all other causes are of waiting for a batch. They count only if main still waits once every worker has
# made its first one.
NOT_OF_WAITING = (Verdict.SAMPLER, Verdict.STARTUP, Verdict.SHUTDOWN)

PLACES_AWAY = ("between two batches", "in other loops", "outside of its loops")


class Judgement:
    """What limits a load, and what every cause costs. Costs are in ns of main's time."""

    def __init__(self, measures: Measures) -> None:
        whole = measures.total
        self.costs = count = costs(measures)  # of each cause
        self.away = away = culprits.Away(measures)
        self.place = ""  # where main's time goes if not to the loader: one of PLACES_AWAY
        # Of the verdict's cause; of a load without a problem, what main does in place of loading.
        self.cost = whole
        if not measures.batches:
            self.verdict = Verdict.STARTUP
        elif culprits.undivided(measures):  # whatever it costs: the result is wrong
            self.verdict = Verdict.SHARES
            self.cost = int(whole * (1 - 1 / measures.num_workers))  # for samples that come again
        else:
            if steady_wait(measures) < MATTERS:
                count = {cause: cost for cause, cost in count.items() if cause in NOT_OF_WAITING}
            self.verdict, self.cost = max(count.items(), key=lambda each: each[1])
            slows_step = self.verdict is Verdict.WORKERS and away.training > away.outside and strained(measures)
            little = MATTERS if slows_step else LITTLE
            if max(self.cost, sum(count.values()) / 2) < little * away.program:
                self.verdict, whole, own = Verdict.TRAINING, away.program, measures.spent[MainTime.TRAINING]
                spent = (own, away.training + away.loading - own - measures.in_loader.total, away.outside)
                self.place, self.cost = max(zip(PLACES_AWAY, spent, strict=True), key=lambda each: each[1])
        self.share = self.cost / whole  # the cost's share of main's time, 0 to 1


def steady_wait(measures: Measures) -> float:
    """The share of its time that main waits once every worker has made its first batch of the epoch, 0 to 1; 1 if the
    load is too short to know."""
    rows, asked, had = measures.requests
    steady = rows["task"] >= measures.num_workers
    if not measures.num_workers or steady.sum() < measures.num_workers:
        return 1.0
    waited = int((had - asked)[steady].sum())
    trained = int((rows["asked"] - had)[steady & (rows["asked"] >= 0)].sum())
    return waited / max(1, waited + trained)


def strained(measures: Measures) -> bool:
    """Whether workers are hardly ever idle, and use all cores that main leaves them: its step would be quicker if they
    needed less."""
    lived = sum(measures.lived(worker).total for worker in range(measures.num_workers))
    return cores.cores_are_the_limit(measures) and sum(each.total for each in measures.idle) < IDLE * lived


def epochs_ended(measures: Measures) -> int:
    """Those that main did not leave before. (Where it counts its batches, it asks for no more: nothing ends them.)"""
    ended = sum(map(len, measures.groups(Kind.EPOCH_END)))
    rows = measures.tasks[(measures.tasks["yielded"] < 0) & (measures.tasks["stream_end"] < 0)]
    owing = np.unique(epoch_ids(rows[rows["index_put"] >= 0]))  # in which workers had tasks that main left
    return max(ended, measures.epochs - len(owing)) if measures.num_workers else ended


def left(measures: Measures) -> bool:
    """Whether most epochs are left after one batch: an iterator is made for each."""
    return 2 * epochs_ended(measures) < measures.epochs > 1 and measures.batches <= measures.epochs


# ---- the rules


def costs(measures: Measures) -> dict[Verdict, int]:
    """What each cause costs, in ns of main's time."""
    spent = measures.spent
    found = {
        Verdict.SAMPLER: spent[MainTime.DRAWING],
        Verdict.STARTUP: startup_cost(measures),
        Verdict.SHUTDOWN: spent[MainTime.SHUTDOWN],
    }
    if measures.num_workers == 0:
        return found | {Verdict.NO_WORKERS: spent[MainTime.LOADING]}
    hold_up, moving = (measures.stretches(each).total for each in (measures.held_up, measures.on_its_way))
    # How long workers were idle while main was away, weighted by how many: they could have worked ahead.
    spare = int((measures.grid.length * measures.is_away * measures.idle_share).sum())
    prefetch = min(measures.stretches(measures.during("made")).total - hold_up, spare)
    # (Where iterators overlap in time, waits count in each.)
    rest = max(0, measures.stretches(measures.during("made", "moved", "pinned")).total - hold_up - prefetch - moving)
    # Its epochs: they are all start.
    short = not left(measures) and measures.batches <= max(1, epochs_ended(measures)) * measures.num_workers
    moved = int(rest * moving_share(measures))
    found |= {
        Verdict.HOLD_UP: hold_up,
        Verdict.PREFETCH: prefetch,
        Verdict.WORKERS: rest - moved + short * (spent[MainTime.STARTUP] - found[Verdict.STARTUP]),
        Verdict.MOVING: moving + moved,
    }
    for finer in (_shares, _turns, _left):
        finer(measures, found)
    return found


def moving_share(measures: Measures) -> float:
    """Of the time in which workers had a task, the share in which they took it or passed its batch on: 0 to 1."""
    had = sum(measures.lived(each).total - measures.idle[each].total for each in range(measures.num_workers))
    had -= measures.of_starts(Kind.WORKER_BEGIN, Kind.WORKER_READY).total
    return max(0.0, 1 - int(measures.stage("fetch_begin", measures.made_at).sum()) / max(1, had))


def _shares(measures: Measures, found: dict[Verdict, int]) -> None:
    """Waiting while workers have come to the end of their streams: their share of it, out of what other causes cost."""
    ended = sum(measures.grid.depth(each.begin, each.end) for each in culprits.ended_streams(measures))
    cost = (measures.grid.length * measures.during("made") * ended).sum() / max(1, measures.num_workers)
    found[Verdict.SHARES] = 0
    for each in (Verdict.PREFETCH, Verdict.HOLD_UP, Verdict.WORKERS):
        part = min(found[each], int(cost) - found[Verdict.SHARES])
        found[each] -= part
        found[Verdict.SHARES] += part


def _turns(measures: Measures, found: dict[Verdict, int]) -> None:
    waits = found[Verdict.WORKERS] + found[Verdict.HOLD_UP]  # the batch that holds up is the one served last
    if waits and culprits.turns(measures):
        found |= {Verdict.TURNS: waits, Verdict.WORKERS: 0, Verdict.HOLD_UP: 0}


def _left(measures: Measures, found: dict[Verdict, int]) -> None:
    """What one iterator would do only once: start its workers, make a first batch, and end."""
    if left(measures):
        every = measures.spent[MainTime.STARTUP] + measures.spent[MainTime.SHUTDOWN]
        found[Verdict.STARTUP], found[Verdict.SHUTDOWN] = int(every * (1 - 1 / measures.epochs)), 0
