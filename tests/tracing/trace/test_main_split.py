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
from tests.tracing.attached import ATTACHED
from tests.tracing.loads import Nested, Numbers
from tracing.analysis.measure.measures import measure
from tracing.trace.main_split import LEAVES, NONE, MainSplit, main_splits
from tracing.trace.thread_activity import MainTime

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
]
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
        package.DataLoader(Numbers(rng.randint(1, 6))),
        package.DataLoader(Numbers(3), num_workers=1),
        package.DataLoader(Numbers(4), num_workers=1, persistent_workers=True),
        package.DataLoader(Nested(2)),
    ]


@pytest.mark.parametrize("package", [minidl, ATTACHED], ids=["minidl", "torch"])
@pytest.mark.parametrize("seed", range(6))
def test_each_moment_is_spent_once_and_where_the_calls_show(tmp_path: Path, seed: int, package: Any) -> None:
    rng = random.Random(seed)
    with tracing.record(tmp_path / "run.trace"):
        loops(rng, a_few(rng, package))
    trace = tracing.load(tmp_path / "run.trace")
    split = main_splits(trace)[0]
    spans, lane = split.spans, _main_lane(trace)
    assert (spans.first[1:] == spans.last[:-1]).all()
    assert spans.total == trace.events["time"][lane[-1]] - trace.events["time"][lane[0]]
    assert spent(split) == slowly(trace, lane)
    _check_measures(trace, split)


def _check_measures(trace: tracing.Trace, split: MainSplit) -> None:
    """What all loaders are said to spend adds up to the whole, but for what is OUTSIDE."""
    every = measure(trace)
    uses = Counter[MainTime]()
    for each in every:
        uses.update({use: ns for use, ns in each.spent.items() if use is not MainTime.ELSEWHERE})
    spans = split.spans
    for use in set(MainTime) - {MainTime.ELSEWHERE}:
        if use is not MainTime.OUTSIDE:
            assert uses[use] == int(spans.length[spans.use == use].sum()), use
    outside = int(spans.length[spans.iterator == NONE].sum())
    assert sum(uses.values()) + outside == spans.total == every[0].program


def spent(split: MainSplit) -> dict[tuple[int, bool], int]:
    """(iterator, whether main is in the loader) -> ns."""
    found, spans = Counter[tuple[int, bool]](), split.spans
    for iterator, use, ns in zip(spans.iterator.tolist(), spans.use.tolist(), spans.length.tolist(), strict=True):
        found[iterator, use not in ELSE] += ns
    return {key: ns for key, ns in found.items() if ns}


def slowly(trace: tracing.Trace, lane: list[int]) -> dict[tuple[int, bool], int]:
    """The same, event by event, with a stack of the loaders that main is in and one of its steps."""
    events, iterators = trace.events, trace.index.iterators
    whose = [trace.index.iterator_of[int(e["loader"]) << 32 | int(e["epoch"])] for e in events[lane]]
    found, stays, steps = Counter[tuple[int, bool]](), list[int](), list[tuple[int, bool]]()
    for number, (position, iterator) in enumerate(zip(lane, whose, strict=True)):
        event = events[position]
        steps = [(step, lasts) for step, lasts in steps if step != iterator and lasts]
        begun = event["kind"] == Kind.EPOCH_BEGIN and not iterators[iterator].num_workers
        if event["kind"] in LEAVES or begun:
            stays = [stay for stay in stays if stay != iterator]
        elif iterator not in stays:
            stays.append(iterator)
        if event["kind"] == Kind.YIELDED:
            following = next(
                (events[k] for k, its in zip(lane[number + 1 :], whose[number + 1 :], strict=True) if its == iterator),
                None,
            )
            again = following is not None and following["kind"] == Kind.ASKED and following["epoch"] == event["epoch"]
            steps.append((iterator, again))
        if number + 1 < len(lane):
            ns = int(events["time"][lane[number + 1]] - event["time"])
            key = (stays[-1], True) if stays else (steps[-1][0], False) if steps else (NONE, False)
            found[key] += ns
    return {key: ns for key, ns in found.items() if ns}


def _main_lane(trace: tracing.Trace) -> list[int]:
    (main,) = [number for number, actor in enumerate(trace.actors) if actor.role == "main"]
    return np.flatnonzero(trace.events["actor"] == main).tolist()


# ---- what a program like Lightning's does


def test_a_loader_costs_what_main_spends_in_it(tmp_path: Path) -> None:
    """A check before the training that is left after two batches, and a validation loop in a step of the training."""
    train, valid = minidl.DataLoader(Numbers(6), num_workers=1), minidl.DataLoader(Numbers(4))
    with tracing.record(tmp_path / "run.trace"):
        check = iter(valid)
        next(check), next(check)
        for number, _batch in enumerate(train):
            if number == 2:
                list(valid)
        del check
    trace = tracing.load(tmp_path / "run.trace")
    first, second = measure(trace)
    validated = trace.events[(trace.events["loader"] == first.loader) & (trace.events["epoch"] == 1)]
    whole = int(validated["time"][-1] - validated["time"][0])
    assert second.spent[MainTime.ELSEWHERE] >= whole  # in the middle of a training step
    began = trace.events["time"][(trace.events["loader"] == second.loader) & (trace.events["kind"] == Kind.LOADER)][0]
    assert int(first.run.end[0]) <= began  # the check that was left is over
    assert first.run.total < second.run.total
