"""Main's time over several loaders: each moment is spent once, on the loader or the step that the calls show."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minidl
import tracing
from minidl.events import Kind
from tests.minidl.programs import TORCH
from tests.samples import Samples
from tests.tracing.loads import by_a_loader
from tracing.analysis.measure.measures import measure
from tracing.trace.main_split import LEAVES, NONE, MainSplit, main_splits
from tracing.trace.thread_activity import MainTime

ELSE = (MainTime.TRAINING, MainTime.ELSEWHERE, MainTime.OUTSIDE)


# ---- programs


def loops(rng: random.Random, loaders: list[Any], depth: int = 0) -> None:
    """A few loops, one after the other: over one loader or two at once, to the end or not; some with further loops in
    their steps."""
    for _ in range(rng.randint(1, 2)):
        batches: Iterator[Any] = iter(rng.choice(loaders))
        if rng.random() < 0.3:
            batches = zip(batches, rng.choice(loaders), strict=False)
        for _batch in itertools.islice(batches, rng.choice([0, 1, 2, None])):
            if depth < 2 and rng.random() < 0.3:
                loops(rng, loaders, depth + 1)


def a_few(rng: random.Random, package: Any = minidl) -> list[Any]:
    """Loaders with and without workers, that stay or not; in one, the dataset itself iterates over a loader."""
    return [
        package.DataLoader(Samples(rng.randint(1, 6))),
        package.DataLoader(Samples(3), num_workers=1),
        package.DataLoader(Samples(4), num_workers=1, persistent_workers=True),
        package.DataLoader(Samples(2, by_a_loader)),
    ]


@pytest.mark.parametrize("package", [minidl, TORCH], ids=["minidl", "torch"])
@pytest.mark.parametrize("seed", range(6))
def test_each_moment_is_spent_once_and_where_the_calls_show(tmp_path: Path, seed: int, package: Any) -> None:
    rng = random.Random(seed)
    with tracing.record(tmp_path / "run.trace"):
        loops(rng, a_few(rng, package))
    trace = tracing.load(tmp_path / "run.trace")
    split = main_splits(trace)[0]
    (main,) = (number for number, actor in enumerate(trace.actors) if actor.role == "main")
    spans, lane = split.spans, np.flatnonzero(trace.events["actor"] == main).tolist()
    assert (spans.first[1:] == spans.last[:-1]).all()
    assert spent(split) == slowly(trace, lane)
    # What all loaders are said to spend adds up to the whole, but for what is OUTSIDE.
    uses, every = Counter[MainTime](), measure(trace)
    for each in every:
        uses.update({use: ns for use, ns in each.spent.items() if use is not MainTime.ELSEWHERE})
    for use in set(MainTime) - {MainTime.ELSEWHERE, MainTime.OUTSIDE}:
        assert uses[use] == int(spans.length[spans.use == use].sum()), use
    outside = int(spans.length[spans.iterator == NONE].sum())
    assert sum(uses.values()) + outside == spans.total


def spent(split: MainSplit) -> dict[tuple[int, bool], int]:
    """(iterator, whether main is in the loader) -> ns."""
    found, spans = Counter[tuple[int, bool]](), split.spans
    for iterator, use, ns in zip(spans.iterator.tolist(), spans.use.tolist(), spans.length.tolist(), strict=True):
        found[iterator, use not in ELSE] += ns
    return {key: ns for key, ns in found.items() if ns}


def slowly(trace: tracing.Trace, lane: list[int]) -> dict[tuple[int, bool], int]:
    """The same, event by event, with a stack of the loaders that main is in and one of its steps."""
    events, iterators = trace.events[lane], trace.index.iterators
    whose = [trace.index.iterator_of[int(e["loader"]) << 32 | int(e["epoch"])] for e in events]
    found, stays, steps = Counter[tuple[int, bool]](), list[int](), list[tuple[int, bool]]()
    for number, (event, iterator) in enumerate(zip(events[:-1], whose, strict=False)):
        steps = [(step, lasts) for step, lasts in steps if step != iterator and lasts]
        begun = event["kind"] == Kind.EPOCH_BEGIN and not iterators[iterator].num_workers
        if event["kind"] in LEAVES or begun:
            stays = [stay for stay in stays if stay != iterator]
        elif iterator not in stays:
            stays.append(iterator)
        if event["kind"] == Kind.YIELDED:
            later = [k for k in range(number + 1, len(events)) if whose[k] == iterator][:1]
            asks = [events[k]["kind"] == Kind.ASKED and events[k]["epoch"] == event["epoch"] for k in later]
            steps.append((iterator, any(asks)))
        key = (stays[-1], True) if stays else (steps[-1][0], False) if steps else (NONE, False)
        found[key] += int(events["time"][number + 1] - event["time"])
    return {key: ns for key, ns in found.items() if ns}
