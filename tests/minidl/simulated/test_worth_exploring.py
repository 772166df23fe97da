"""The programs worth exploring: nothing is found in the loader as it is, and bugs that others have thought of are."""

from __future__ import annotations

import itertools
import multiprocessing
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import minidl
from minidl import checkpoint
from minidl.world.simulated.schedule import Random
from tests.minidl.simulated import generated_mutants
from tests.minidl.simulated.generated_mutants import Generated, generated
from tests.minidl.simulated.killing import Judged, judged, verdicts
from tests.minidl.simulated.worth_asking import asking
from tests.minidl.simulated.worth_ending import ending
from tests.minidl.simulated.worth_exploring import programs
from tests.minidl.simulated.worth_fitting import fitting
from tests.minidl.simulated.worth_killing import deaths
from tests.minidl.simulated.worth_moving import moving
from tests.minidl.simulated.worth_returning import returning

PROGRAMS = {**programs(), **moving(), **deaths(), **ending(), **asking(), **returning(), **fitting()}
ALL = list(generated())


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_is_found_in_the_loader_as_it_is(name: str) -> None:
    """With every invariant checked, after up to two faults; `make explore` goes further."""
    worth = PROGRAMS[name]
    expected = worth.run("0")
    assert worth.broken(expected, expected) == []
    for seed in range(8) if not worth.timed else ():
        outcome = worth.run(Random(seed, 2, expected.steps))
        assert worth.broken(outcome, expected) == [], outcome.token


# ---- generated mutants


@pytest.fixture(scope="module")
def tried() -> Iterator[dict[str, Judged]]:
    threads = torch.get_num_threads()
    yield judged()
    torch.set_num_threads(threads)


def named(function: str, words: str) -> Generated:
    found = [each for each in ALL if f"{each.module}.{each.name}" == function and each.words == words]
    assert found, [each.words for each in ALL if f"{each.module}.{each.name}" == function]
    return found[0]


# Bugs that somebody put in by hand; four of them passed every test that there was.
BY_HAND = {
    "the news is sent before the message": (
        "queues.ThreadQueue.put",
        "`self._messages.append(message)` after `if not self._news.qsize()`",
    ),
    "what a worker sent before its death is not taken in": (
        "queues.Consumer._read_to_the_end",
        "`channel.open and (channel, BYTES) in self._waiter.wait(0)` is always False",
    ),
    "a stream is asked again after its end": (
        "worker.Worker.loop",
        "`not self.job.done.is_set() and (not self.stream_ended)` without `not self.stream_ended`",
    ),
    "no new task after the end of a stream": (
        "parallel.ParallelIterator._worker_exhausted",
        "`self._try_put_index()` is left out",
    ),
    "a timeout is not passed on": (
        "parallel.ParallelIterator._next_task",
        "`task_id = self._receive(self._timeout)` is left out",
    ),
    "a death stops nothing": ("deaths.worker_ended", "`fail_for_death(iterator, worker_id)` is left out"),
    "the handler never looks": ("signals._look", "it returns at once"),
}


@pytest.mark.timeout(120)
def test_bugs_put_in_by_hand_are_killed(tried: dict[str, Judged]) -> None:
    mutants = {named(*each): name for name, each in BY_HAND.items()}
    alive = [mutants[mutant] for mutant, verdict in verdicts(list(mutants), tried, 2) if not verdict.program]
    assert alive == []


def test_every_change_compiles_and_is_a_change() -> None:
    for mutant in itertools.islice(ALL, 0, None, 40):
        function = generated_mutants.function_of(mutant)
        before = function.__code__
        try:
            generated_mutants.at_work(mutant)
            assert function.__code__.co_name == before.co_name
            changed: Any = (function.__code__.co_code, function.__code__.co_consts, function.__code__.co_names)
            assert changed != (before.co_code, before.co_consts, before.co_names), str(mutant)
        finally:
            function.__code__ = before


def test_no_two_mutants_have_the_same_name() -> None:
    assert [name for name, count in Counter(map(str, ALL)).items() if count > 1] == []


def test_every_module_of_the_loader_is_changed() -> None:
    """All but the datasets and the simulated world. (The real world is tried by real processes.)"""
    there = {name.removesuffix(".py") for name in os.listdir(minidl.__path__[0]) if name.endswith(".py")}
    stops = os.listdir(checkpoint.__path__[0])
    there |= {generated_mutants.STOPS + name.removesuffix(".py") for name in stops if name.endswith(".py")}
    assert there - {"__init__", generated_mutants.STOPS + "__init__"} == set(generated_mutants.MODULES)
    assert {each.module for each in ALL} <= there


@pytest.mark.timeout(60)
def test_a_mutant_that_never_ends_is_killed_and_leaves_nothing(
    tried: dict[str, Judged], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.minidl.simulated.killing.LIMIT", 2.0)
    [mutant] = [
        each for each in ALL if each.name == "Channel.read" and each.words.endswith("LENGTH.size` is always True")
    ]
    ((_, verdict),) = verdicts([mutant], tried, 1)
    assert verdict.program
    assert multiprocessing.active_children() == []
