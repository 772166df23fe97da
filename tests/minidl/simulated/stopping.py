"""Stopping and going on: at every step of every schedule a process may end, and another goes on from its last state.

A training process saves its loader's state whenever it can, and what is still to come. Whatever a schedule or a fault
does to it, each state that it has saved is one from which another process must be able to go on: it builds the loader
anew, loads the state, and is explored in the same way. It saves states, too, so that the exploration ends when every
state that any chain of processes can save has been gone on from. (Most schedules save the same states: a hundred of
them lead to thousands of runs, not to millions.)

Legend
    left     [[[2], [3]], [[0], [1]]]    what is still to come: the batches of this epoch, and of each that follows
    saved    a list                      the disk: it outlives a process that is killed

What a process knows by itself, such as the seeds of its random numbers, is another in the one that goes on.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
import json
import random
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

import minidl
from minidl.world.simulated import Exploration, Outcome, explore, step
from minidl.world.simulated.schedule import Priorities, Random
from tests.minidl.simulated.programs import stays
from tests.minidl.simulated.worth import Worth
from tests.minidl.simulated.worth_exploring import EXPECTED, told

CHECK_EVERY = 29  # steps; the trace of a run is checked if their number is a multiple of it
COUNTS = r'"(_sampler_iter_yielded|samples_yielded|samples)": \d+'
Left = list[list[Any]]


@dataclass(frozen=True)
class Saved:
    """A state, as a file has it; "" for a process that begins."""

    text: str
    left: Left
    way: tuple[str, ...] = ()  # the schedules of the processes that led to it, and which of its states each saved last


def in_turn(batch: Any) -> Any:
    """All batches come in one order."""


def of_worker(batch: Any) -> Any:
    """Those of a worker come in order (see worth_exploring.Streams)."""
    return batch[0] // 10


@dataclass(frozen=True)
class Training:
    """A loader, as every process builds it, and how it is iterated."""

    build: Callable[[], minidl.DataLoader[Any]]
    epochs: int = 2
    lane: Callable[[Any], Any] = in_turn  # batches for which it returns the same keep their order
    leaves: int = 0  # the first epoch is left after so many batches
    draws: bool = False  # main draws a random number after each batch, as a model with dropout does
    breaks: int = 0  # a process ends after so many, when the iterator is gone
    after: int = 1  # so many processes, one after another, go on from every state of the one before
    options: dict[str, Any] = field(default_factory=dict)  # of `simulate`

    # ---- what a process does

    def undisturbed(self) -> Left:
        """All epochs, by a process that saves nothing."""
        load, found = self.build(), []
        for number in range(self.epochs):
            most = self.leaves if not number and self.leaves else None
            found.append(list(itertools.islice(self.batches(iter(load)), most)))
        return found

    def train(self, begin: Saved, disk: list[Saved]) -> None:
        """Go on from there to the end. AssertionError: another batch came than had to."""
        load, left, count, steps = self.build(), copy.deepcopy(begin.left), 0, 0
        if begin.text:
            seed(1 + len(begin.text))
            state = json.loads(begin.text)
            load.load_state_dict(state)
            steps = 0 if state["_iterator_finished"] else steps_of(state)

        def save() -> dict[str, Any]:
            state = load.state_dict()
            text = json.dumps(state)
            step()
            disk.append(Saved(text, copy.deepcopy(left)))
            return state

        save()
        while left:
            try:
                iterator = iter(load)
            except (Exception, KeyboardInterrupt):
                if begin.text and left == begin.left:  # the state is still loaded
                    assert load.state_dict() == json.loads(begin.text)
                raise
            save()
            leaves = self.leaves > 0 and len(left) == self.epochs
            while left[0] or not leaves:
                batch = self.following(iterator, save)
                if batch is END:
                    break
                self.take(batch, left[0])
                steps += not isinstance(batch, str)  # else it is an error
                assert steps_of(save()) == steps, f"the state does not say that {steps} batches have come"
                count += 1
                if count == self.breaks:
                    del iterator
                    save()
                    return
            assert not left[0], f"{left[0]} did not come"
            del iterator
            left.pop(0)
            if not leaves:  # else the state is one of the epoch that was left
                assert steps_of(save()) == steps, f"the state does not say that the epoch had {steps} batches"
            steps = 0

    def following(self, iterator: Any, save: Callable[[], None]) -> Any:
        batch = following(iterator, save)
        return [batch, float(torch.rand(()))] if self.draws and batch is not END else batch

    def batches(self, iterator: Any) -> Iterator[Any]:
        while (batch := self.following(iterator, step)) is not END:
            step()
            yield batch

    def take(self, batch: Any, left: list[Any]) -> None:
        awaited = [each for each in left if self.lane(each) == self.lane(batch)]
        assert awaited[:1] == [batch], f"{batch} came, and {left} was to come"
        left.remove(batch)

    def key(self, saved: Saved) -> tuple[str, str]:
        """Two that have the same lead to the same. (How much was asked of the sampler behind a stream says nothing, and
        grows with every process, as what is in flight is asked for again.)"""
        is_stream = isinstance(self.loader.dataset, minidl.IterableDataset)
        return re.sub(COUNTS, "", saved.text) if is_stream else saved.text, json.dumps(saved.left)

    # ---- by itself, and in every way

    def one_after_another(self) -> Left:
        """On one machine: a process for each state that the first has saved. (All are one process here, which is done
        with a loader before it builds the next.)"""
        disk: list[Saved] = []
        seed(0)
        left = self.undisturbed()
        seed(0)
        self.train(Saved("", left), disk)
        for _ in range(self.after):
            before, disk = disk, []
            for saved in before:
                self.train(saved, disk)
        return left

    def stopped(self, begin: Saved, number: int) -> None:
        """On one machine: a process, and another that goes on from this one of its states."""
        disk: list[Saved] = []
        self.train(begin, disk)
        self.train(disk[number], [])

    def worth(self) -> Worth:
        return Worth(self.one_after_another, in_order=self.in_order, options=self.options)

    @property
    def in_order(self) -> bool:
        return self.loader.in_order

    @functools.cached_property
    def loader(self) -> minidl.DataLoader[Any]:
        """One that is not iterated."""
        with warnings.catch_warnings(action="ignore"):  # of too many workers for this machine
            return self.build()

    def begin(self) -> Saved:
        outcome = Worth(self.undisturbed, options=self.options).run("0")
        assert outcome.error is None, outcome.error
        return Saved("", outcome.result)


END: Any = object()


def following(iterator: Any, save: Callable[[], None] = step) -> Any:
    """The next batch, an error of the dataset's in its place, or END. What loses a batch must be raised again, and the
    last state stays what it was."""
    try:
        return next(iterator)
    except StopIteration:
        return END
    except EXPECTED as error:
        return told(error)
    except OSError as error:  # a fault
        if "asked for its state" in str(error):
            save()
            try:
                next(iterator)
            except RuntimeError as second:
                stays(iterator, second)
            else:
                raise AssertionError(f"raised {error!r}, and then continued") from error
        raise
    except RuntimeError as error:
        stays(iterator, error)
        save()
        raise
    except KeyboardInterrupt:
        save()
        raise


def steps_of(state: dict[str, Any]) -> int:
    """The batches of the epoch that a state knows of."""
    if "_snapshot" not in state:
        return int(state["_num_yielded"])
    return int(state["_snapshot"]["_snapshot_step"] + state["_steps_since_snapshot"])


def seed(number: int) -> None:
    random.seed(number)
    np.random.seed(number)
    torch.manual_seed(number)


# ---- every process that goes on from every state


@dataclass
class Explored:
    """What became of a training."""

    schedules: int = 0
    pruned: int = 0
    states: int = 0  # that were gone on from
    left_over: int = 0  # that were not
    longest: int = 0  # processes in a chain
    found: str = ""  # what does not hold, and the way to it


class Leg:
    """A process that goes on from a state, whatever its schedule."""

    def __init__(self, training: Training, start: Saved) -> None:
        self.start = start
        self.disk: list[Saved] = []
        self.saved: list[Saved] = []
        program = functools.partial(training.train, start, self.disk)
        self.worth = Worth(program, in_order=training.in_order, options=training.options)
        self.expected = self.worth.run("0")

    def judge(self, outcome: Outcome) -> list[str]:
        """What does not hold. Also keeps what the run has saved."""
        for number, each in enumerate(self.disk):
            self.saved.append(Saved(each.text, each.left, (*self.start.way, f"{outcome.token}@{number}")))
        self.disk.clear()
        return self.worth.broken(outcome, self.expected, checks=outcome.steps % CHECK_EVERY == 0)


Runs = Callable[[Leg], Exploration]


def explored(training: Training, runs: Runs, most: int | None = None) -> Explored:
    """Go on from every state that was saved; `runs` tries the schedules of a process. The states of the first process
    come first, then those of the processes that went on from these; at most so many."""
    result, begin = Explored(), training.begin()
    waiting, seen = [begin], {training.key(begin)}
    while waiting and (most is None or result.states < most):
        leg = Leg(training, waiting.pop(0))
        ran = runs(leg)
        result.states += 1
        result.schedules += ran.schedules
        result.pruned += ran.pruned
        result.longest = max(result.longest, len(leg.start.way) + 1)
        if ran.counterexample is not None:
            result.found = f"{ran.broken[0]}; by the way {' '.join([*leg.start.way, ran.counterexample.token])}"
            break
        for each in leg.saved:
            if each.left and (key := training.key(each)) not in seen:
                seen.add(key)
                waiting.append(each)
    result.left_over = len(waiting)
    return result


def follow(training: Training, way: str) -> Outcome:
    """Go a way once more, and return what became of the last process."""
    saved = training.begin()
    for token in way.split():
        schedule, _, number = token.partition("@")
        leg = Leg(training, saved)
        leg.disk.clear()
        outcome = leg.worth.run(schedule)
        saved = leg.disk[int(number)] if number else saved
    return outcome


def by_chance(count: int, faults: int = 2, seed: int = 0) -> Runs:
    """The default schedule, and some random ones."""

    def runs(leg: Leg) -> Exploration:
        found = Exploration(0, 0, 0, None, [])
        kinds = itertools.cycle((Random, Priorities))
        drawn = (next(kinds)(seed + number, faults, leg.expected.steps) for number in range(count))
        for schedule in itertools.chain(("0",), drawn):
            outcome = leg.worth.run(schedule)
            found.schedules += 1
            if broken := leg.judge(outcome):
                return dataclasses.replace(found, counterexample=outcome, broken=broken)
        return found

    return runs


def within(delays: int, faults: int) -> Runs:
    """Every schedule within these bounds."""

    def runs(leg: Leg) -> Exploration:
        return explore(leg.worth.program, delays=delays, faults=faults, judge=leg.judge, **leg.worth.options)

    return runs
