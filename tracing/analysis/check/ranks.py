"""`tracing.check()`, and what only all ranks together show: samples that nobody loads, or all; unequal numbers.

Each audit is a name, a sentence, and a function that yields what breaks it: in words, whether the result of the
training is wrong (False: it may be meant so; None: one of two readings, which a trace cannot tell apart, is wrong), and
the events that show it.

Legend
    same      {0: 1, 1: 1}           position of a rank -> its number of a loader: see tracing.trace.ranks
    keys      [12, 40, 7, 33]        what one rank's sampler drew in one epoch, in that order
    replicas  2                      into how many shares a DistributedSampler cuts the dataset
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from minidl.events import Kind
from tracing.analysis.check.check import Violation
from tracing.analysis.check.check import check as check_trace
from tracing.recording.trace_directory import in_progress
from tracing.trace.ranks import Loaders, Rank, Ranks, open_ranks
from tracing.trace.trace import Trace
from tracing.trace.words import duration

FEWEST = 8  # keys: fewer may be in the same order by chance
OPTIONS = (
    "batch_size", "drop_last", "num_workers", "prefetch_factor", "persistent_workers", "pin_memory", "in_order",
    "timeout", "start_method", "package",
)  # fmt: skip
Shown = dict[str, list[int]]  # name of a rank -> positions of events in its trace
Broken = Iterator[tuple[str, bool | None, Shown]]


@dataclass(frozen=True)
class Finding(Violation):
    """What several ranks show together. `events` is empty: see `shown_by`."""

    wrong: bool | None = True  # what is computed is wrong, or it hangs; None: or it is meant so; else a warning
    shown_by: Shown | None = None

    def __str__(self) -> str:
        shown = "; ".join(f"{name}: {', '.join(map(str, events))}" for name, events in (self.shown_by or {}).items())
        warning = {True: "", False: "warning: ", None: "right or wrong: "}[self.wrong]
        return f"{warning}{self.name}: {self.what}{f' (events of {shown})' if shown else ''}"


@dataclass(frozen=True)
class Audit:
    name: str
    sentence: str
    breaches: Callable[[Ranks], Broken]


AUDITS: list[Audit] = []


def audit(name: str, sentence: str) -> Callable[[Callable[[Ranks], Broken]], Callable[[Ranks], Broken]]:
    def add(function: Callable[[Ranks], Broken]) -> Callable[[Ranks], Broken]:
        AUDITS.append(Audit(name, sentence, function))
        return function

    return add


def check_ranks(ranks: Ranks) -> list[Finding]:
    """What is wrong with the ranks as a whole, then the warnings."""
    found = [
        Finding(each.name, each.sentence, what, [], wrong=wrong, shown_by=by)
        for each in AUDITS
        for what, wrong, by in each.breaches(ranks)
    ]
    return sorted(found, key=lambda finding: (True, None, False).index(finding.wrong))


def check(run: Trace | Ranks | str | os.PathLike[str]) -> list[Violation]:
    """The violated laws of a trace; an empty list when all hold. Of a run of several processes, given its path,
    those of each, and what is wrong with the ranks as a whole (`Finding`; some are only warnings).

    Where a file was full or damaged, only the events up to there are judged: what is missing after that proves nothing.
    Raises TraceError as `tracing.load` does.
    """
    if isinstance(run, Trace):
        return check_trace(run)
    ranks = run if isinstance(run, Ranks) else open_ranks(run)
    several = len(ranks.all) > 1
    found = [replace(each, rank=rank.name if several else "") for rank in ranks.all for each in check_trace(rank.trace)]
    return [*found, *check_ranks(ranks)]


# ---- keys


def keys_of_epoch(rank: Rank, loader: int, epoch: int) -> list[Any] | None:
    """What its sampler drew so far. None if it draws no keys, as for an iterable dataset, or none that compare."""
    keys: list[Any] = []
    for position in rank.events(loader, epoch, Kind.KEYS_DRAWN).tolist():
        drawn = rank.trace.text(position)
        keys += drawn if isinstance(drawn, list) else [drawn]
    return keys if keys and all(isinstance(key, (int, str)) for key in keys) else None


def drew_all(rank: Rank, loader: int, epoch: int) -> bool:
    """Whether the sampler came to its end, and nothing of that is missing."""
    return rank.value(loader, epoch, Kind.SAMPLER_END) == len(rank.events(loader, epoch, Kind.KEYS_DRAWN))


def shuffled(keys: list[Any]) -> bool:
    return len(keys) >= FEWEST and keys != sorted(keys, key=lambda key: (isinstance(key, str), key))


def begin_of(rank: Rank, loader: int, epoch: int) -> list[int]:
    return rank.events(loader, epoch, Kind.KEYS_DRAWN)[:1].tolist()


def begins(ranks: Ranks, same: Loaders, epoch: int) -> Shown:
    """The first keys that each rank drew."""
    return {ranks.together[at].name: begin_of(ranks.together[at], loader, epoch) for at, loader in same.items()}


def names(ranks: Ranks, positions: Any) -> str:
    """ "rank 0", "ranks 0 and 1", "ranks 0, 1 and 2", "all 8 ranks"."""
    chosen = sorted(positions)
    if len(chosen) == len(ranks.together) > 2:
        return f"all {len(chosen)} ranks"
    numbers = [str(ranks.together[at].part.rank) for at in chosen]
    return f"rank {numbers[0]}" if len(numbers) == 1 else f"ranks {', '.join(numbers[:-1])} and {numbers[-1]}"


# ---- the audits


Passes = dict[int, list[tuple[int, int]]]  # position of a rank -> its passes over a dataset: loader, epoch


@audit("set_epoch", "A DistributedSampler that shuffles draws another order in each epoch.")
def set_epoch_is_called(ranks: Ranks) -> Broken:
    every = _passes(ranks)
    for passes in every:
        if count := _same_order(ranks, passes):
            # Where another loader is told its epochs, this is one whose order does not matter: the validation's.
            changes = any(_changes_order(ranks, other) for other in every if other is not passes)
            at, mine = next(iter(passes.items()))
            rank = ranks.together[at]
            words = f"{_loader(ranks, {at: mine[0][0]})} draws its {count} samples in the same order in each epoch"
            cure = "call sampler.set_epoch(epoch) before each epoch"
            shown = {rank.name: [position for each in mine[:2] for position in begin_of(rank, *each)]}
            yield f"{words}: {cure}{' (no matter for validation)' if changes else ''}", not changes, shown


def _passes(ranks: Ranks) -> list[Passes]:
    """Of each distributed loader. One that is made anew for each epoch counts as one."""
    found: dict[str, Passes] = {}
    for same in ranks.loaders:
        if not _is_distributed(ranks, same):
            continue
        epochs = {at: ranks.together[at].epochs(loader) for at, loader in same.items()}
        config = ranks.together[next(iter(same))].configs[next(iter(same.values()))]
        anew = all(len(each) == 1 for each in epochs.values())
        passes = found.setdefault(str({**config, "sampler_epoch": 0}) if anew else str(same), {})
        for at, loader in same.items():
            passes.setdefault(at, []).extend((loader, epoch) for epoch in epochs[at])
    return list(found.values())


def _is_distributed(ranks: Ranks, same: Loaders) -> bool:
    return all(ranks.together[at].configs[loader].get("sampler_replicas") for at, loader in same.items())


def _keys_of_passes(ranks: Ranks, passes: Passes) -> list[list[list[Any]]]:
    """Of each rank, of each of its passes."""
    found = [[keys_of_epoch(ranks.together[at], *each) or [] for each in mine] for at, mine in passes.items()]
    return [[keys for keys in mine if len(keys) >= FEWEST] for mine in found]


def _same_order(ranks: Ranks, passes: Passes) -> int:
    """How many samples are drawn in the same order in every pass, by every rank; 0 if they are not."""
    drawn = _keys_of_passes(ranks, passes)
    if not all(len(mine) > 1 and shuffled(mine[0]) for mine in drawn):
        return 0
    same = all(_repeats(one, other) for mine in drawn for one, other in itertools.pairwise(mine))
    return max(len(mine[0]) for mine in drawn) if same else 0


def _changes_order(ranks: Ranks, passes: Passes) -> bool:
    drawn = _keys_of_passes(ranks, passes)
    return any(not _repeats(one, other) for mine in drawn for one, other in itertools.pairwise(mine))


def _repeats(one: list[Any], other: list[Any]) -> bool:
    common = min(len(one), len(other))  # the loop may have been left early
    return one[:common] == other[:common]


def _loader(ranks: Ranks, same: Loaders) -> str:
    """What is said of a loader: its number on the first rank, unless there is only one."""
    at, loader = next(iter(same.items()))
    dataset = ranks.together[at].configs[loader].get("dataset")
    return "the loader" if len(ranks.loaders) == 1 else f"loader {loader}{f' of {dataset}' if dataset else ''}"


@audit("each sample once", "In an epoch each sample is loaded by one rank, but for those that make the shares equal.")
def each_sample_once(ranks: Ranks) -> Broken:
    for same in ranks.loaders:
        configs = {at: ranks.together[at].configs[loader] for at, loader in same.items()}
        size = next(iter(configs.values())).get("dataset_size")
        if len(same) < ranks.world_size or not _is_distributed(ranks, same) or not isinstance(size, int):
            continue
        shares = _one_of_each_share(configs)
        for epoch in ranks.together[0].epochs(same[0]):
            if found := _coverage(ranks, {at: same[at] for at in shares}, epoch, size):
                yield f"{_loader(ranks, same)}, epoch {epoch}: {found}", True, begins(ranks, same, epoch)
                break


def _one_of_each_share(configs: dict[int, dict[str, Any]]) -> list[int]:
    """The ranks to look at. Where there are fewer shares than ranks, those with the same share hold parts of one model,
    and are meant to load the same."""
    replicas = {config["sampler_replicas"] for config in configs.values()}
    if max(replicas) >= len(configs):
        return list(configs)
    return list({config.get("sampler_rank"): at for at, config in reversed(configs.items())}.values())


def _coverage(ranks: Ranks, same: Loaders, epoch: int, size: int) -> str:
    """What is wrong with the samples of an epoch; "" if nothing is, or if it cannot be known."""
    every: list[Any] = []
    for at, loader in same.items():
        keys = keys_of_epoch(ranks.together[at], loader, epoch)
        if keys is None or not isinstance(keys[0], int) or not drew_all(ranks.together[at], loader, epoch):
            return ""
        if len(set(keys)) < min(len(keys), size // len(same)):
            return ""  # one rank has a sample twice: this is a sampler of the user's own, with other aims
        every += keys
    different = len(set(every))
    config = ranks.together[next(iter(same))].configs[next(iter(same.values()))]
    dropped = len(same) * (config.get("batch_size") or 1) if config.get("drop_last") else len(same)
    twice = min(size, len(every)) - different
    if twice > 0:
        again, needed = len(every) - different, max(0, len(every) - size)
        return f"{again} samples are loaded again ({needed} would make the shares equal), {size - different} by no rank"
    return f"{size - different} of {size} samples are loaded by no rank" if size - len(every) >= dropped else ""


@audit("a share each", "Every rank loads a share of the dataset, not all of it.")
def a_share_each(ranks: Ranks) -> Broken:
    if any(_is_distributed(ranks, same) for same in ranks.loaders if len(same) > 1):
        return  # what is not shared out beside it is loaded whole on purpose, as for validation
    for same in ranks.loaders:
        if len(same) < 2 or len(same) < len(ranks.together):
            continue
        epoch = ranks.together[0].epochs(same[0])[0]
        drawn = [keys_of_epoch(ranks.together[at], loader, epoch) for at, loader in same.items()]
        keys = [each for each in drawn if each is not None and len(each) >= FEWEST]
        if len(keys) < len(same):
            continue
        common = min(map(len, keys))
        who, loader = names(ranks, same), _loader(ranks, same)
        if all(_repeats(keys[0], each) for each in keys[1:]):
            words = f"{who} load the same {common} samples in the same order with {loader}"
            validates = "" if shuffled(keys[0]) else ", or validate"
            readings = (
                f"right if they hold parts of one model (tensor or pipeline parallel){validates}; wrong if each has "
                "all of it (data parallel): then give it a DistributedSampler, and the workers of each rank other seeds"
            )
            yield f"{words}: {readings}", None if shuffled(keys[0]) else False, begins(ranks, same, epoch)
            return
        if all(set(keys[0]) == set(each) for each in keys[1:]):
            words = f"{who} each load all {common} samples of the dataset with {loader}, in orders of their own"
            yield f"{words}: a DistributedSampler gives each rank its share", False, begins(ranks, same, epoch)
            return


@audit("equal numbers of batches", "In an epoch every rank has the same number of batches.")
def equal_numbers(ranks: Ranks) -> Broken:
    for same in ranks.loaders:
        if len(same) < len(ranks.together) or len(same) < 2:
            continue
        for epoch in ranks.together[0].epochs(same[0]):
            had, ended = {}, {}
            for at, loader in same.items():
                rank = ranks.together[at]
                had[at] = len(rank.events(loader, epoch, Kind.YIELDED))
                if (count := rank.value(loader, epoch, Kind.EPOCH_END)) is not None:
                    ended[at] = count
            most, fewest = max(had, key=had.__getitem__), min(ended, key=ended.__getitem__, default=0)
            if ended and ended[fewest] < had[most]:
                yield from _unequal(ranks, same, epoch, (fewest, ended[fewest]), (most, had[most]))
                return


def _unequal(ranks: Ranks, same: Loaders, epoch: int, few: tuple[int, int], many: tuple[int, int]) -> Broken:
    """One rank's epoch had ended when another had a batch more: wrong if that one waited there for the others, unless
    they waited for it with their next epoch, as torch's Join does."""
    (fewest, count), (most, more) = few, many
    one, other = ranks.together[fewest], ranks.together[most]
    ends = [rank.events(same[at], epoch, Kind.EPOCH_END)[:1] for at, rank in ((fewest, one), (most, other))]
    extra = other.events(same[most], epoch, Kind.YIELDED)[count : count + 1]
    hung = not len(ends[1]) and not in_progress(other.part.path)
    mixed = len(ends[1]) > 0 and _next_epoch(one, same[fewest], epoch) < other.time(ends[1][0])
    wrong = ranks.steps.synchronised and (hung or mixed)
    words = f"in epoch {epoch} {other.name} has {'at least ' * hung}{more} batches, {one.name} {count}"
    result = "where ranks exchange gradients in every step, the longer epoch hangs, unless Join is used"
    if not hung and len(ends[1]):
        result += f" (here {one.name} had nothing to do for {duration(other.time(ends[1][0]) - one.time(ends[0][0]))})"
    if wrong:
        result = "it waited for the others in vain" if hung else "their steps no longer belong to the same epoch"
    yield (
        f"{_loader(ranks, same)}: {words}: {result}", wrong, {one.name: ends[0].tolist(), other.name: extra.tolist()},
    )  # fmt: skip


def _next_epoch(rank: Rank, loader: int, epoch: int) -> float:
    """When it began its next epoch; inf if it has none."""
    found = [rank.events(loader, number, Kind.EPOCH_BEGIN) for number in rank.epochs(loader) if number > epoch]
    return min((rank.time(each[0]) for each in found if len(each)), default=math.inf)


@audit("seeds", "Workers of different ranks have different seeds.")
def seeds(ranks: Ranks) -> Broken:
    for same in ranks.loaders:
        by_seeds: dict[tuple[int, ...], list[tuple[int, list[int]]]] = {}
        for at, loader in same.items():
            trace, events = ranks.together[at].trace, ranks.together[at].trace.events
            number = trace.index.iterator_of[loader << 32 | ranks.together[at].epochs(loader)[0]]
            mine = (events["loader"] == loader) & np.isin(events["epoch"], trace.index.iterators[number].epochs)
            seeded = np.flatnonzero(mine & (events["kind"] == Kind.WORKER_SEEDED))
            if len(seeded) and not (mine & (events["kind"] == Kind.INIT_FN_BEGIN)).any():  # it may seed them again
                values = tuple(sorted(events["value"][seeded].tolist()))
                by_seeds.setdefault(values[:1], []).append((at, seeded[:1].tolist()))
        for (seed,), alike in by_seeds.items():
            if len({_order(ranks.together[at], same[at]) for at, _ in alike}) > 1:  # else see "a share each"
                who = names(ranks, [at for at, _ in alike])
                what = (
                    f"the workers of {who} draw the same random numbers (their first has seed {seed}): where the "
                    "dataset augments at random, every rank does so alike. Seed with the rank added to it"
                )
                yield what, False, {ranks.together[at].name: events for at, events in alike}
                return  # of the other loaders the same is true


def _order(rank: Rank, loader: int) -> str:
    """What a rank's first epoch draws, as text that no other rank's has unless it draws the same."""
    return str(keys_of_epoch(rank, loader, rank.epochs(loader)[0]) or rank.name)


@audit("same options", "A loader has the same options on every rank.")
def same_options(ranks: Ranks) -> Broken:
    for same in ranks.loaders:
        configs = {at: ranks.together[at].configs[loader] for at, loader in same.items()}
        for option, wrong in [*((option, False) for option in OPTIONS), ("sampler_seed", True)]:
            values: dict[str, list[int]] = {}
            for at, config in configs.items():
                if option in config:
                    values.setdefault(str(config[option]), []).append(at)
            if len(values) > 1:
                parts = "; ".join(f"{value} on {names(ranks, who)}" for value, who in values.items())
                epoch = ranks.together[next(iter(same))].epochs(next(iter(same.values())))[0]
                yield f"{_loader(ranks, same)} has {option}={parts}", wrong, begins(ranks, same, epoch)
