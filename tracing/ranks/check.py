"""`tracing.check()`, and what only all ranks together show: samples no rank loads, or all do; unequal numbers.

Each audit is a name, a sentence (its docstring), and a function that yields what breaks it: in words, whether the
result of the training is wrong (False: it may be intended; None: one of two readings, which a trace cannot tell apart,
is wrong), and the events that show it.

Legend
    same      {rank0: 1, rank1: 1}   rank -> its number of a loader: see tracing.ranks.ranks
    keys      [12, 40, 7, 33]        what one rank's sampler drew in one epoch, in that order
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from minidl.events import Kind
from tracing.analysis.check import Violation
from tracing.analysis.check import check as check_trace
from tracing.ranks.ranks import Loaders, Rank, Ranks
from tracing.ranks.steps import steps_of
from tracing.recording.trace_directory import being_recorded
from tracing.trace.trace import Trace

FEWEST = 8  # keys: fewer may be in the same order by chance
Shown = dict[str, list[int]]  # name of a rank -> positions of events in its trace
Broken = Iterator[tuple[str, bool | None, Shown]]


@dataclass(frozen=True)
class Finding(Violation):
    """What several ranks show together. `events` is empty: see `shown_by`."""

    wrong: bool | None = True  # what is computed is wrong, or it hangs; None: or it is intended; else a warning
    shown_by: Shown | None = None

    def __str__(self) -> str:
        shown = "; ".join(f"{name}: {', '.join(map(str, events))}" for name, events in (self.shown_by or {}).items())
        warning = {True: "", False: "warning: ", None: "right or wrong: "}[self.wrong]
        return f"{warning}{self.name}: {self.what}{f' (events of {shown})' if shown else ''}"


def check(run: Trace | Ranks | str | os.PathLike[str]) -> list[Violation]:
    """The laws that a trace violates; empty when all hold. For a run of several processes, given its path,
    those of each, and what is wrong with the ranks as a whole (`Finding`; some are only warnings).

    Where a file was full or damaged, only the events up to there are judged: what is missing after that proves nothing.
    Raises TraceError as `tracing.load` does.
    """
    if isinstance(run, Trace):
        return check_trace(run)
    ranks = run if isinstance(run, Ranks) else Ranks(run)
    several = len(ranks.all) > 1
    found = [replace(each, rank=rank.name if several else "") for rank in ranks.all for each in check_trace(rank.trace)]
    return [*found, *check_ranks(ranks)]


def check_ranks(ranks: Ranks) -> list[Finding]:
    """What is wrong with the ranks as a whole, then the warnings."""
    found = [
        Finding(name, audit.__doc__ or "", what, [], wrong=wrong, shown_by=shown)
        for name, audit in AUDITS.items()
        for what, wrong, shown in audit(ranks)
    ]
    return sorted(found, key=lambda finding: (True, None, False).index(finding.wrong))


# ---- keys and names


def shuffled(keys: list[Any]) -> bool:
    return len(keys) >= FEWEST and keys != sorted(keys, key=lambda key: (isinstance(key, str), key))


def repeats(one: list[Any], other: list[Any]) -> bool:
    common = min(len(one), len(other))  # the loop may have been left early
    return one[:common] == other[:common]


def begins(same: Loaders, epoch: int) -> Shown:
    """The first keys that each rank drew."""
    return {rank.name: rank.events(own, epoch, Kind.KEYS_DRAWN)[:1].tolist() for rank, own in same.items()}


def is_distributed(same: Loaders) -> bool:
    return all(rank.configs[loader].get("sampler_replicas") for rank, loader in same.items())


def names(ranks: Ranks, some: Iterable[Rank]) -> str:
    """ "ranks 0 and 1", "ranks 0, 1 and 2", "all 8 ranks"."""
    numbers = [str(rank.part.rank) for rank in some]
    if len(numbers) == len(ranks.together) > 2:
        return f"all {len(numbers)} ranks"
    return f"ranks {', '.join(numbers[:-1])} and {numbers[-1]}"


def name_of(ranks: Ranks, same: Loaders) -> str:
    """What a loader is called: its number on the first rank, unless there is only one."""
    rank, loader = next(iter(same.items()))
    dataset = rank.configs[loader].get("dataset")
    return "the loader" if len(ranks.loaders) == 1 else f"loader {loader}{f' of {dataset}' if dataset else ''}"


# ---- the audits


def another_order(ranks: Ranks) -> Broken:
    """A DistributedSampler that shuffles draws a new order in each epoch."""
    every = _passes(ranks)
    pairs = [[two for mine in passes.values() for two in itertools.pairwise(mine)] for passes in every]
    alike = [all(repeats(one.keys, two.keys) for one, two in each) for each in pairs]
    for passes, same in zip(every, alike, strict=True):
        if same and all(len(mine) > 1 and shuffled(mine[0].keys) for mine in passes.values()):
            # Where another loader's order does change, this is one whose order does not matter: the validation's.
            changes = not all(alike)
            rank, mine = next(iter(passes.items()))
            count = max(len(own[0].keys) for own in passes.values())
            what = f"{name_of(ranks, {rank: mine[0].loader})} draws its {count} samples in the same order in each epoch"
            cure = f"call sampler.set_epoch(epoch) before each epoch{' (not for validation)' * changes}"
            yield f"{what}: {cure}", not changes, {rank.name: [each.first for each in mine[:2]]}


class Pass(NamedTuple):
    """One rank's pass over its share of a dataset."""

    loader: int
    first: int  # the event with its first keys
    keys: list[Any]


def _passes(ranks: Ranks) -> list[dict[Rank, list[Pass]]]:
    """For each distributed loader and rank: those that are long enough to compare. A loader built again for each
    epoch counts as one."""
    found: dict[str, dict[Rank, list[Pass]]] = {}
    for same in filter(is_distributed, ranks.loaders):
        first, own = next(iter(same.items()))
        passes = found.setdefault(str({**first.configs[own], "sampler_epoch": 0}), {})
        for rank, loader in same.items():
            for epoch in rank.epochs(loader):
                begin, keys = begins({rank: loader}, epoch)[rank.name], rank.keys(loader, epoch)
                passes.setdefault(rank, []).extend([Pass(loader, begin[0], keys)] if len(keys) >= FEWEST else [])
    return list(found.values())


def each_sample_once(ranks: Ranks) -> Broken:
    """In an epoch each sample is loaded by one rank, except those that make the shares equal."""
    for same in filter(is_distributed, ranks.shared):
        configs = {rank: rank.configs[loader] for rank, loader in same.items()}
        if len(same) < ranks.world_size:
            continue
        if max(config["sampler_replicas"] for config in configs.values()) < len(same):
            # Ranks with the same share hold parts of one model, and are meant to load the same: one of each counts.
            shares = {config.get("sampler_rank"): rank for rank, config in reversed(configs.items())}
            same = {rank: same[rank] for rank in shares.values()}
        first, loader = next(iter(same.items()))
        for epoch in first.epochs(loader):
            if found := _coverage(same, epoch, configs[first]):
                yield f"{name_of(ranks, same)}, epoch {epoch}: {found}", True, begins(same, epoch)
                break


def _coverage(same: Loaders, epoch: int, config: dict[str, Any]) -> str:
    """What is wrong with the samples of an epoch; "" if nothing is, or if it cannot be known."""
    every, size = list[Any](), config.get("dataset_size")
    if not isinstance(size, int):
        return ""
    for rank, loader in same.items():
        keys, drawn = rank.keys(loader, epoch), len(rank.events(loader, epoch, Kind.KEYS_DRAWN))
        ended = rank.events(loader, epoch, Kind.SAMPLER_END)[:1]
        whole = rank.trace.events["value"][ended].tolist() == [drawn]  # nothing of it is missing
        if not whole or not keys or not isinstance(keys[0], int):
            return ""
        if len(set(keys)) < min(len(keys), size // len(same)):
            return ""  # one rank has a sample twice: this is a sampler of the user's own, with other aims
        every += keys
    missing, again, needed = size - len(set(every)), len(every) - len(set(every)), max(0, len(every) - size)
    if again > needed:
        return f"{again} samples are loaded again ({needed} would make the shares equal), {missing} by no rank"
    dropped = len(same) * (config.get("batch_size") or 1) if config.get("drop_last") else len(same)
    return f"{missing} of {size} samples are loaded by no rank" if size - len(every) >= dropped else ""


def a_share_each(ranks: Ranks) -> Broken:
    """Every rank loads a share of the dataset, not all of it."""
    if any(is_distributed(same) for same in ranks.loaders if len(same) > 1):
        return  # what else is not shared out is loaded whole on purpose, as for validation
    for same in ranks.shared:
        epoch = ranks.together[0].epochs(same[ranks.together[0]])[0]
        first, *rest = keys = [rank.keys(loader, epoch) for rank, loader in same.items()]
        common, them, loads = min(map(len, keys)), names(ranks, same), f"samples with {name_of(ranks, same)}"
        if common >= FEWEST and all(repeats(first, each) for each in rest):
            validates = "" if shuffled(first) else ", or validate"
            readings = (
                f"right if they hold parts of one model (tensor or pipeline parallel){validates}; wrong if each has "
                "all of it (data parallel): then give it a DistributedSampler, and each rank's workers different seeds"
            )
            words = f"{them} load the same {common} {loads} in the same order"
            yield f"{words}: {readings}", None if shuffled(first) else False, begins(same, epoch)
            return
        if common >= FEWEST and all(set(first) == set(each) for each in rest):
            words = f"{them} each load all {common} {loads}, in orders of their own"
            yield f"{words}: a DistributedSampler gives each rank its share", False, begins(same, epoch)
            return


def equal_numbers(ranks: Ranks) -> Broken:
    """In an epoch every rank has the same number of batches."""
    for same in ranks.shared:
        for epoch in ranks.together[0].epochs(same[ranks.together[0]]):
            had = {rank: rank.events(loader, epoch, Kind.YIELDED).tolist() for rank, loader in same.items()}
            ends = {rank: rank.events(loader, epoch, Kind.EPOCH_END).tolist() for rank, loader in same.items()}
            many = max(had, key=lambda rank: len(had[rank]))
            few = min((rank for rank in had if ends[rank]), key=lambda rank: len(had[rank]), default=many)
            more, count = len(had[many]), len(had[few])
            if count == more:
                continue
            # Wrong only if the longer epoch never ended and its process has: it waited for the others.
            hung = not ends[many] and not being_recorded(many.part.path, elsewhere=False)
            wrong = hung and steps_of(ranks).synchronised
            result = "where ranks exchange gradients in every step, the longer epoch hangs, unless Join is used"
            result = "it waited for the others in vain" if wrong else result
            words = f"{many.name} has {'at least ' * hung}{more} batches, {few.name} {count}"
            shown = {few.name: ends[few][:1], many.name: had[many][count : count + 1]}
            yield f"{name_of(ranks, same)}: in epoch {epoch} {words}: {result}", wrong, shown
            return


def seeds(ranks: Ranks) -> Broken:
    """Workers of different ranks have different seeds."""
    for same in ranks.loaders:
        by_seed: dict[int, dict[Rank, list[int]]] = {}
        for rank, loader in same.items():
            epoch = rank.epochs(loader)[0]
            seeded, again = (rank.events(loader, epoch, kind, 0) for kind in (Kind.WORKER_SEEDED, Kind.INIT_FN_BEGIN))
            if len(seeded) and not len(again):  # else it may have seeded itself
                by_seed.setdefault(int(rank.trace.events["value"][seeded[0]]), {})[rank] = seeded[:1].tolist()
        for seed, alike in by_seed.items() if len(same) > 1 else ():
            orders = {str(rank.keys(same[rank], rank.epochs(same[rank])[0]) or rank.name) for rank in alike}
            if len(orders) > 1:  # else see "a share each"
                what = (
                    f"the workers of {names(ranks, alike)} draw the same random numbers (their first has seed {seed}): "
                    "where the dataset augments at random, all ranks do so alike. Add the rank to the seed"
                )
                yield what, False, {rank.name: shown for rank, shown in alike.items()}
                return  # the same is true of the other loaders


EQUAL = "equal numbers of batches"
AUDITS: dict[str, Callable[[Ranks], Broken]] = {
    "set_epoch": another_order,
    "each sample once": each_sample_once,
    "a share each": a_share_each,
    EQUAL: equal_numbers,
    "seeds": seeds,
}
