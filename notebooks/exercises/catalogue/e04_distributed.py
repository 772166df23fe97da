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
from notebooks.exercises.attempts import Attempt, attempt, first_finding, with_real_processes
from notebooks.exercises.exercise import Exercise, Finding
from notebooks.exercises.programs import Keys, load

RANKS = 4
LENGTH = 12  # of a shuffled dataset: long enough that equal orders are no coincidence

CAUSES = {
    "no padding": "10 keys do not divide evenly among 4 ranks. Two ranks get one key less, and may so get one batch "
    "less: the others then wait for ever in their next collective operation. Pad the keys to `total_size` before you "
    "share them out.",
    "pads with others": "Pad with the keys that the list begins with: 0 and 1, or the first of the permutation.",
    "pads once only": "With 3 keys and 8 ranks 5 keys are missing, but one pass over the keys gives only 3: pad with "
    "several passes.",
    "fills up what is full": "8 keys divide evenly among 4 ranks: there is nothing to pad or to cut.",
    "ignores drop_last": "With `drop_last`, cut the keys to `total_size`: then no key comes twice.",
    "cuts without drop_last": "Two samples belong to no rank. Without `drop_last` none may be left out: pad the keys "
    "to `total_size`.",
    "no iterator": "Python calls `__iter__` to get an iterator: return `iter(...)` of the list.",
    "raises": "An exception came instead of keys. Which case have you not thought of?",
    "not ints": "These keys are tensors. A dataset that looks them up in a dict would not find them: `.tolist()` "
    "turns a tensor into a list of ints.",
    "blocks": "Each rank got a block of neighbouring keys. It should take every `num_replicas`-th key instead, "
    "starting at its own number.",
    "shares": "All ranks start from the same list of keys; each takes every `num_replicas`-th, starting at its own "
    "number.",
    "rank mixed into the seed": "The ranks do not share one permutation: some samples belong to two ranks, others to "
    "none. The ranks do not communicate, so they draw the same order only if they all use the same seed.",
    "not seeded": "The same sampler gave different keys in the same epoch: the order does not depend on seed and "
    "epoch alone, so two processes would disagree. Seed a generator with `self.seed + self.epoch`.",
    "ignores the epoch": "Every epoch has the same order. `set_epoch` sets `self.epoch`: make it part of the seed.",
    "ignores the seed": "Samplers with different seeds have the same order: make `self.seed` part of the seed, too.",
    "another permutation": "Draw the permutation with torch.randperm, of all keys before they are shared out, from a "
    "generator seeded with `self.seed + self.epoch`: then it is the one that torch's sampler draws.",
    "disturbs other draws": "Everything that draws from the default generator after this (dropout, augmentation) "
    "gets different numbers, and the same ones on every rank. Seed your own `torch.Generator()`.",
    "draws too late": "The keys were drawn when the first one was asked for, not when the iterator was made, so a "
    "call of `set_epoch` in between changed them. A function with a `yield` in it does not run when it is called.",
    "no AssertionError": "The dataset's length has changed since the sampler was made, so `total_size` is wrong, and "
    "the ranks would not have as many keys as they claim. First pad or cut the list; if its length is not "
    "`total_size` then, raise.",
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
        yield _finding(again, "not seeded", f"{first_epoch.got}, as before")
    keys = [key for each in first_epoch.value for key in each]
    if not all(isinstance(key, int) for key in keys):
        yield _finding(first_epoch, "not ints", "ints")
    if sorted(keys) != list(range(length)):
        first_epoch.got += f": {length - len(set(keys))} samples belong to no rank"
        yield _finding(first_epoch, "rank mixed into the seed", "each of the 12 samples once")
    for mistake, options in (("ignores the epoch", {"epoch": 1, "seed": 5}), ("ignores the seed", {"seed": 6})):
        other = _all(answer, length, shuffle=True, **options)
        if other.value == first_epoch.value:
            was = "in epoch 0" if "epoch" in options else "with seed=5"
            yield _finding(other, mistake, f"another order than {was}")
    for epoch in (0, 1):
        tried = _all(answer, length, epoch=epoch, shuffle=True, seed=5)
        order = torch.randperm(length, generator=torch.Generator().manual_seed(5 + epoch)).tolist()
        if tried.value != _shared(order):
            yield _finding(tried, "another permutation", _shared(order))
    tried = _all(answer, 10, shuffle=True, seed=5)
    order = torch.randperm(10, generator=torch.Generator().manual_seed(5)).tolist()
    if tried.value != _shared([*order, *order[:2]]):
        yield _finding(tried, "pads with others", _shared([*order, *order[:2]]))


def _habits(answer: Answer) -> Iterator[Finding]:
    """What the keys alone do not show."""
    before = _random_states()
    tried = _all(answer, LENGTH, shuffle=True)
    if _random_states() != before:
        tried.got = "the state of a global generator has changed"
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
    sampler = _sampler(LENGTH, RANKS, 1, seed=5)
    tried = attempt(answer, "list(sampler), list(sampler), without set_epoch", lambda: [list(sampler), list(sampler)])
    if tried.value != [wanted, wanted]:
        yield _finding(tried, "not seeded", f"{wanted}, both times")
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
        found = first_finding(each for check in (_in_order, _shuffled, _habits) for each in check(answer))
    return found or with_real_processes(answer, _program, [[[0, 2], [4]], [[1, 3], [0]]])


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
    When several processes train together, each has its own loader, and `DistributedSampler` gives it its share of the
    keys. Write its `__iter__`, which returns an iterator over the keys of this rank. The ranks do not communicate: each
    makes the same list of all keys, and takes every `num_replicas`-th of them, starting at its own number.

    With `shuffle`, draw the list with torch.randperm from a generator seeded with `seed + epoch`. Each rank must have
    `num_samples` keys, so the list needs `total_size`: pad it with the keys that it begins with (repeatedly, if there
    are more ranks than keys) or, with `drop_last`, cut it. If it has another length after that, the dataset is not what
    it was when the sampler was made: raise an AssertionError.
    """,
    legend={
        "len(self.dataset)": "10",
        "self.num_replicas": "4 processes that train together",
        "self.rank": "1: which of them this is, from 0",
        "self.num_samples": "3: the keys of each rank; 2 with drop_last",
        "self.total_size": "12: num_samples * num_replicas",
        "self.shuffle": "True: a permutation; False: 0, 1, 2, ...",
        "self.seed": "0, the same on every rank",
        "self.epoch": "0: the argument of the last set_epoch",
        "self.drop_last": "False: pad to total_size; True: cut",
    },
    hints=(
        "The ranks exchange no messages. What must then be the same on all of them, and what is the only thing that "
        "differs?",
        "Four steps: make the list of all keys (with your own torch.Generator() and generator.manual_seed(...)); pad "
        "or cut it; compare its length with total_size; take this rank's keys: a slice with a step.",
        "missing = self.total_size - len(keys). If it is more than len(keys), one pass is not enough: append (keys * "
        "math.ceil(missing / len(keys)))[:missing]. To cut: keys[: self.total_size]. This rank's share is "
        "keys[self.rank :: self.num_replicas]: return iter(...) of it.",
    ),
    grade=grade,
    notebook="02-datasets-samplers-fetchers.ipynb",
    forbidden=("DistributedSampler",),
)
