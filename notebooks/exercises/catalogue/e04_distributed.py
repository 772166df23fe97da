"""Exercise 4: one rank's share of the keys."""

from __future__ import annotations

import contextlib
import functools
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from notebooks.exercises.answers import Answer
from notebooks.exercises.exercise import Exercise, Finding
from notebooks.exercises.probes import Attempt, attempt, first, real
from notebooks.exercises.programs import Keys, load

RANKS = 4
LENGTH = 12  # of a shuffled dataset: nobody draws the same order for all ranks twice by chance

CAUSES = {
    "no padding": "10 keys do not divide among 4 ranks. Two of them have one key less, and so may have one batch "
    "less: the others wait for ever in their next collective operation. Fill the keys up to `total_size` before you "
    "share them out.",
    "pads with others": "The keys that fill up are those that the epoch begins with: 0 and 1 here.",
    "pads once only": "3 keys, 8 ranks, so that 5 are missing, and one pass over the keys has only 3: fill up from "
    "several.",
    "fills up what is full": "8 keys divide evenly among 4 ranks: nothing is missing, and nothing has to be cut.",
    "ignores drop_last": "With `drop_last` the keys are cut to `total_size`, and no key comes twice.",
    "cuts without drop_last": "Two samples are with no rank. Without `drop_last` none is left out: the keys are "
    "filled up to `total_size`.",
    "no iterator": "Python calls `__iter__` to get an iterator: return `iter(...)` of the list.",
    "raises": "An exception in the place of keys. Which case is it that you have not thought of?",
    "not ints": "These keys are tensors. A dataset may look them up in a dict, where a tensor is found under no key: "
    "`.tolist()` of a tensor is a list of ints.",
    "blocks": "These are neighbours: the first rank has the first keys, the next one those that follow. Here each "
    "rank takes every `num_replicas`-th key, from its own number on.",
    "shares": "All ranks have the same keys in the same order; each takes every `num_replicas`-th, from its own "
    "number on.",
    "rank mixed into the seed": "The ranks do not share out one permutation: some samples are with two ranks, and "
    "others with none. No rank hears from the others; that they draw the same is the seed's doing, and so it must be "
    "the same for all.",
    "not seeded": "The same sampler, in the same epoch, has other keys the second time: the draws do not depend on "
    "seed and epoch alone. Two processes would not agree. Seed a generator with `self.seed + self.epoch`.",
    "ignores the epoch": "Every epoch has the same order. `set_epoch` has set `self.epoch`: it belongs into the seed.",
    "ignores the seed": "Samplers with different seeds have the same order: `self.seed` belongs into the seed too.",
    "another permutation": "The permutation is torch.randperm's, of all keys before they are shared out, drawn from a "
    "generator with the seed `self.seed + self.epoch`: then it is the one that torch's sampler draws.",
    "disturbs other draws": "Whoever draws from the default generator after this gets other numbers than before "
    "(dropout, augmentation), and the same ones on every rank. Seed a `torch.Generator()` of your own.",
    "draws too late": "The keys were drawn when the first was asked for, and not when the iterator was made: what "
    "`set_epoch` was told in between has changed them. With a `yield` in it, calling the function runs nothing of it.",
    "no AssertionError": "The dataset's length has changed since the sampler was made, so that `total_size` is wrong, "
    "and the ranks would not have as many keys as they say. Compare before you share out.",
}


def _sampler(length: int, replicas: int, rank: int, **options: Any) -> Any:
    import minidl

    return minidl.DistributedSampler(range(length), replicas, rank, **options)


def _all(answer: Answer, length: int, replicas: int = RANKS, epoch: int = 0, **options: Any) -> Attempt:
    """What each rank yields."""

    def take() -> list[list[int]]:
        found = []
        for rank in range(replicas):
            sampler = _sampler(length, replicas, rank, **options)
            sampler.set_epoch(epoch)
            found.append(list(sampler))
        return found

    given = "".join(f", {name}={value}" for name, value in options.items())
    at = f" in epoch {epoch}" if options["shuffle"] else ""
    call = f"DistributedSampler(range({length}), num_replicas={replicas}, rank=0 to {replicas - 1}{given}){at}"
    return attempt(answer, call, take)


def _shared(keys: list[int], replicas: int = RANKS) -> list[list[int]]:
    return [keys[rank::replicas] for rank in range(replicas)]


def _finding(tried: Attempt, mistake: str, expected: Any) -> Finding:
    if isinstance(tried.error, TypeError) and "non-iterator" in str(tried.error):
        mistake = "no iterator"
    elif tried.error is not None and mistake in ("shares", "another permutation"):
        mistake = "raises"
    return tried.finding(mistake, str(expected), CAUSES[mistake])


def _in_order(answer: Answer) -> Iterator[Finding]:
    keys = list(range(10))
    tried = _all(answer, 10, shuffle=False)
    if tried.value != _shared([*keys, 0, 1]):
        mistake = "shares"
        if tried.value == _shared(keys) or isinstance(tried.error, AssertionError):
            mistake = "no padding"
        elif tried.error is None and all(each[:2] == [rank, rank + RANKS] for rank, each in enumerate(tried.value)):
            mistake = "cuts without drop_last" if tried.value == _shared(keys[:8]) else "pads with others"
        elif tried.error is None and tried.value[0][:2] == [0, 1]:
            mistake = "blocks"
        yield _finding(tried, mistake, _shared([*keys, 0, 1]))
    for length, drop_last, mistake in ((8, False, "fills up what is full"), (10, True, "ignores drop_last")):
        tried = _all(answer, length, shuffle=False, drop_last=drop_last)
        if tried.value != _shared(keys[:8]):
            yield _finding(tried, mistake, _shared(keys[:8]))
    tried = _all(answer, 3, 8, shuffle=False)
    if tried.value != [[0], [1], [2], [0], [1], [2], [0], [1]]:
        yield _finding(tried, "pads once only", [[0], [1], [2], [0], [1], [2], [0], [1]])


def _shuffled(answer: Answer) -> Iterator[Finding]:
    length = LENGTH
    first_epoch, again = (_all(answer, length, shuffle=True, seed=5) for _ in range(2))
    if first_epoch.error is not None:
        yield _finding(first_epoch, "another permutation", f"{length // RANKS} keys a rank")
    if first_epoch.value != again.value:
        yield _finding(again, "not seeded", f"{first_epoch.got}, as the first time")
    keys = [key for each in first_epoch.value for key in each]
    if not all(isinstance(key, int) for key in keys):
        yield _finding(first_epoch, "not ints", "ints")
    if sorted(keys) != list(range(length)):
        first_epoch.got += f": {length - len(set(keys))} samples are with no rank"
        yield _finding(first_epoch, "rank mixed into the seed", "each of the 12 samples once")
    for mistake, options in (("ignores the epoch", {"epoch": 1, "seed": 5}), ("ignores the seed", {"seed": 6})):
        other = _all(answer, length, shuffle=True, **options)
        if other.value == first_epoch.value:
            was = "in epoch 0" if "epoch" in options else "with seed=5"
            yield _finding(other, mistake, f"not the order that there was {was}")
    for epoch in (0, 1):
        tried = _all(answer, length, epoch=epoch, shuffle=True, seed=5)
        order = torch.randperm(length, generator=torch.Generator().manual_seed(5 + epoch)).tolist()
        if tried.value != _shared(order):
            yield _finding(tried, "another permutation", _shared(order))


def _habits(answer: Answer) -> Iterator[Finding]:
    """What is not seen from the keys alone."""
    before = _random_states()
    tried = _all(answer, LENGTH, shuffle=True)
    if _random_states() != before:
        tried.got = "the state of a generator that is everybody's has changed"
        yield _finding(tried, "disturbs other draws", "the sampler draws from its own generator")

    def late() -> list[int]:
        sampler = _sampler(LENGTH, RANKS, 1, seed=5)
        keys = iter(sampler)
        sampler.set_epoch(1)
        return list(keys)

    wanted = torch.randperm(LENGTH, generator=torch.Generator().manual_seed(5)).tolist()[1::RANKS]
    tried = attempt(answer, "keys = iter(sampler); sampler.set_epoch(1); list(keys)", late)
    if tried.value != wanted:
        yield _finding(tried, "draws too late", f"{wanted}, the keys of epoch 0")
    for length, now, drop_last in ((10, 13, False), (10, 3, True)):
        tried = attempt(
            answer,
            f"a dataset of {length} samples, {now} of them when the epoch begins; drop_last={drop_last}",
            functools.partial(_changed, length, now, drop_last),
        )
        if not isinstance(tried.error, AssertionError):
            yield _finding(tried, "no AssertionError", "AssertionError")


def _random_states() -> tuple[Any, ...]:
    numpys: Any = np.random.get_state()
    return torch.get_rng_state().tolist(), random.getstate(), numpys[1].tolist(), numpys[2:]


def _changed(length: int, now: int, drop_last: bool) -> list[int]:
    sampler = _sampler(length, RANKS, 1, shuffle=False, drop_last=drop_last)
    sampler.dataset = range(now)
    return list(sampler)


@contextlib.contextmanager
def _generators_restored() -> Iterator[None]:
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        random.setstate(states[1])
        np.random.set_state(states[2])


def grade(answer: Answer) -> Finding | None:
    with answer.at_work(), _generators_restored():
        found = first(each for check in (_in_order, _shuffled, _habits) for each in check(answer))
    return found or real(answer, _program, [[[0, 2], [4]], [[1, 3], [0]]])


def _program() -> list[Any]:
    """Two ranks, each with its loader."""
    return [
        load(Keys(5), batch_size=2, num_workers=1, sampler=_sampler(5, 2, rank, shuffle=False)) for rank in range(2)
    ]


EXERCISE = Exercise(
    number=4,
    name="distributed",
    title="DistributedSampler.__iter__",
    references=("minidl.data.distributed:DistributedSampler.__iter__",),
    task="""
    When several processes train together, each has a loader of its own, and `DistributedSampler` gives it its share
    of the keys. Write its `__iter__`, which returns an iterator over the keys of this rank. The ranks do not talk
    to each other: every one of them makes the same list of all keys, and takes every `num_replicas`-th of it, from
    its own number on.

    With `shuffle` the list is torch.randperm's, drawn from a generator with the seed `seed + epoch`. Each rank must
    have `num_samples` keys, so the list needs `total_size` of them: it is filled up with the keys that it begins
    with (over and over, if there are more ranks than keys), or, with `drop_last`, cut.
    """,
    legend={
        "len(self.dataset)": "10",
        "self.num_replicas": "4 processes that train together",
        "self.rank": "1: which of them this one is, from 0",
        "self.num_samples": "3: the keys of each rank; 2 with drop_last",
        "self.total_size": "12: num_samples * num_replicas",
        "self.shuffle": "True: a permutation; False: 0, 1, 2, ...",
        "self.seed": "0, the same on every rank",
        "self.epoch": "0: what set_epoch was told last",
        "self.drop_last": "False: fill up to total_size; True: cut",
    },
    hints=(
        "No message goes from rank to rank. What must then be the same on all of them, and what is the only thing that "
        "differs?",
        "Four steps: make the list of all keys (a torch.Generator() of its own, generator.manual_seed(...)); fill it "
        "up or cut it; compare its length with total_size; take this rank's keys: a slice with a step.",
        "missing = self.total_size - len(keys). If it is more than len(keys), one pass is not enough: "
        "(keys * math.ceil(missing / len(keys)))[:missing] is what to append. Cut: keys[: self.total_size]. The share: "
        "keys[self.rank :: self.num_replicas], returned as iter(...).",
    ),
    grade=grade,
    notebook="02-datasets-samplers-fetchers.ipynb",
    forbidden=("DistributedSampler",),
)
