"""What limits a load: the causes, and what each costs.

Each rule estimates how much of main's time its cause costs. Costs do not overlap: a second that main waits is counted
once, by the rule that explains it. Coarse rules come first, from what main waits for; then finer ones take their part
of it, where the trace shows who or what is behind it.

cause          what it costs
hold-up        main waits for a batch that is being made, while finished ones are in the reorder buffer and workers idle
prefetch       of the rest of that waiting: what workers that were idle while main trained could have made up
pinning        main waits for a batch that is with the pin thread, or waits for it, and at least half of the workers
               have nothing to do
moving         main waits for a batch that is finished and elsewhere on its way, and at least half of the workers have
               nothing to do; and the part of other waiting in which workers move batches instead of making them
workers        all other waiting: they work, but it is not enough; without workers, main makes the batches itself
sampler        main asks the sampler for keys
slow start-up  start-up (docs/glossary.md), less the time that making a batch takes
shutdown       from the beginning of the shutdown to its end

finer          takes, of the waiting that is put down to the workers, hold-ups, moving or prefetch
GIL            main's work in the loader, while another thread of it computes and main itself neither has a core nor
               lacks one; and moving
slow worker    waiting for batches of the one worker that is slower than all others, so far as it is slower
shards         waiting while workers have come to the end of their streams: their share of it
turns          all waiting for workers that together do no more than one alone, because they wait for each other
cores          all waiting for workers that want more cores than there are
neighbours     waiting for workers that want fewer, and had none: other programs had them
"""

from __future__ import annotations

import enum

from minidl.events import Kind
from tracing.analysis.measure import cpu, culprits
from tracing.analysis.measure.capacity import COMPUTING, computing, cores, cores_are_the_limit
from tracing.analysis.measure.measures import Measures
from tracing.analysis.measure.stages import startup_cost
from tracing.trace.thread_activity import MainTime

NO_CORE = 0.2  # workers that lack a core for more than this share of their work have too few of them
WANTED = 0.9  # of all cores: a program that would use more than this is itself the reason
ALONE = 1.2  # cores: workers that together want no more than this may be taking turns
BESIDE = 0.5  # cores that other threads of main use while it works in the loader: one of them keeps Python's lock ...
HELD = 0.67  # ... if main itself has a core, or lacks one, for no more than this share of that time


class Verdict(enum.Enum):
    """What limits the load."""

    NOTHING = "there is nothing to judge: no batch was yielded"
    HEALTHY = "no problem found: main hardly waits, and the workers are well used"
    TRAINING = "the training step is the limit"
    WORKERS = "the workers are the limit"
    CORES = "the cores are the limit"
    NEIGHBOURS = "other programs have the cores"
    TURNS = "the workers wait for each other"
    SLOW_WORKER = "one worker is slower than the others"
    SHARDS = "the workers' shares of the data are unequal"
    NO_WORKERS = "main makes the batches itself, and does not train meanwhile"
    HOLD_UP = "one batch holds up the others"
    MOVING = "moving batches is the limit"
    GIL = "another thread of main keeps Python's lock"
    PINNING = "pinning is the limit"
    STARTUP = "start-up is the limit"
    PREFETCH = "too little prefetch"
    SAMPLER = "drawing keys is the limit"
    SHUTDOWN = "shutdown is slow"


# Causes of waiting for a batch. They count only if main still waits once every worker has made its first one.
WAITING_CAUSES = (
    Verdict.HOLD_UP, Verdict.PREFETCH, Verdict.WORKERS, Verdict.MOVING, Verdict.PINNING, Verdict.CORES,
    Verdict.NEIGHBOURS, Verdict.TURNS, Verdict.SLOW_WORKER, Verdict.SHARDS, Verdict.GIL,
)  # fmt: skip
ONCE_AN_EPOCH = (Verdict.STARTUP, Verdict.SHUTDOWN)
NO_PROBLEM = (Verdict.HEALTHY, Verdict.TRAINING)  # nothing is wrong with the loader


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
    hold_up, moving, pinning = map(measures.length, (measures.held_up, measures.on_its_way, measures.in_pin_thread))
    prefetch = min(measures.length(measures.during("made")) - hold_up, measures.spare)
    rest = measures.length(measures.during("made", "moved", "pinned")) - hold_up - prefetch - moving - pinning
    rest = max(0, rest)  # (iterators that overlap in time wait for each other)
    moved = int(rest * moving_share(measures))
    found |= {
        Verdict.HOLD_UP: hold_up,
        Verdict.PREFETCH: prefetch,
        Verdict.WORKERS: rest - moved,
        Verdict.MOVING: moving + moved,
        Verdict.PINNING: pinning,
    }
    for finer in (_gil, _slow_worker, _shards, _turns, _cores):
        finer(measures, found)
    return found


def moving_share(measures: Measures) -> float:
    """Of the time in which workers had a task, the share in which they took it or passed its batch on: 0 to 1."""
    had = sum(measures.lived(each).total - measures.idle[each].total for each in range(measures.num_workers))
    had -= measures.of_starts(Kind.WORKER_BEGIN, Kind.WORKER_READY).total
    return max(0.0, 1 - int(measures.stage("fetch_begin", "collate_end").sum()) / max(1, had))


Costs = dict[Verdict, int]


def _takes(found: Costs, cause: Verdict, cost: float, *of: Verdict) -> None:
    """Put up to this cost down to a finer cause instead of these, the first of them first."""
    left = int(cost)
    for each in of:
        part = min(found[each], left)
        found[each] -= part
        left -= part
    found[cause] = int(cost) - left


def _gil(measures: Measures, found: Costs) -> None:
    beside, own = cpu.beside_main(measures)
    if beside >= BESIDE and own <= HELD:
        at_work = measures.main_in(MainTime.TAKING, MainTime.HANDLING).total
        cost = max(at_work, found[Verdict.MOVING])
        _takes(found, Verdict.GIL, cost, Verdict.MOVING, Verdict.WORKERS, Verdict.PREFETCH, Verdict.HOLD_UP)


def _slow_worker(measures: Measures, found: Costs) -> None:
    if slow := culprits.slow_worker(measures):
        cost = culprits.waited_for(measures, slow.worker) * (1 - 1 / slow.times)
        _takes(found, Verdict.SLOW_WORKER, cost, Verdict.HOLD_UP, Verdict.WORKERS, Verdict.PREFETCH)


def _shards(measures: Measures, found: Costs) -> None:
    ended = sum(measures.grid.depth(each.begin, each.end) for each in culprits.ended_streams(measures))
    cost = (measures.grid.length * measures.during("made") * ended).sum() / max(1, measures.num_workers)
    _takes(found, Verdict.SHARDS, cost, Verdict.PREFETCH, Verdict.HOLD_UP, Verdict.WORKERS)


def _turns(measures: Measures, found: Costs) -> None:
    alone = computing(measures) * measures.num_workers <= ALONE
    waits = found[Verdict.WORKERS] + found[Verdict.HOLD_UP]  # it is one of them that is served when the others are done
    if waits and alone and culprits.turns(measures):
        _takes(found, Verdict.TURNS, waits, Verdict.WORKERS, Verdict.HOLD_UP)


def _cores(measures: Measures, found: Costs) -> None:
    """They compute, or would if they had a core: too few for this program, or for all."""
    without, there, wants = cpu.without_core(measures), cores(measures), computing(measures)
    too_many = wants * measures.num_workers >= WANTED * there > 0
    if cores_are_the_limit(measures) or (without >= NO_CORE and too_many and wants >= COMPUTING):
        _takes(found, Verdict.CORES, found[Verdict.WORKERS], Verdict.WORKERS)
    elif without >= NO_CORE and not too_many:
        _takes(found, Verdict.NEIGHBOURS, without * found[Verdict.WORKERS], Verdict.WORKERS)
