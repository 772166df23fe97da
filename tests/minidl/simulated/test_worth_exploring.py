"""The programs worth exploring: nothing is found in the loader as it is, and bugs that others have thought of are."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import itertools
import multiprocessing
import os
import signal
import zlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import minidl
from minidl import transport
from minidl.world.simulated.schedule import Random
from tests.minidl.simulated import generated_mutants
from tests.minidl.simulated.generated_mutants import Generated, generated
from tests.minidl.simulated.killing import CHECK_EVERY, Judged, judged, kill, verdicts
from tests.minidl.simulated.worth_all import PROGRAMS

ALL = list(generated())


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_is_found_in_the_loader_as_it_is(name: str) -> None:
    """After up to two faults; every third trace is checked, too. `make explore` goes further."""
    worth = PROGRAMS[name]
    expected = worth.run("0")
    assert worth.broken(expected, expected) == []
    for seed in range(8) if not worth.timed else ():
        outcome = worth.run(Random(seed, 2, expected.steps))
        assert worth.broken(outcome, expected, checks=seed % CHECK_EVERY == 0) == [], outcome.token


# ---- generated mutants: `make score` tries them all

# These do what the loader does, or only a test with real processes does.
ALIVE = {
    'transport.choice.transport_of: `raise RuntimeError(\'transport="slots" needs memfd_create and…` is left out',
    "transport.filling.Room.say_whether_looked_at: `self.memory.bytes[LOOKED_AT] = True` is left out",
    "transport.filling.Packer.pack: `taken = room.close()` after "
    "`pickled = Pickled(message, self._reducers, self._world.lent)`",
    "transport.lending.Unpacker.rest: `self._pages.give_back_after(loan(), memory, 0)` is left out",
    "transport.lending.Unpacker.grant: `not self._free or len(self._recent) >= RECENT` is always False",
    # Two statements change places of which neither reads what the other writes.
    "deaths.explain_death: `if code is not None and code < 0` after "
    "`named = ', or '.join((f'task {task_id}, keys {describe(keys):…`",
}
OTHERS = ("events",)  # it reports, and its own tests listen


def a_sample(size: int) -> list[Generated]:
    """Drawn by their names' checksums, so a change to the loader draws few others."""
    there = [each for each in ALL if not (each.module.startswith(OTHERS) or name(each) in ALIVE)]
    return sorted(there, key=lambda each: zlib.crc32(name(each).encode()))[:size]


def name(mutant: Generated) -> str:
    return f"{mutant.module}.{mutant.name}: {mutant.words}"


@pytest.fixture(scope="module")
def tried() -> Iterator[dict[str, Judged]]:
    threads = torch.get_num_threads()
    yield judged(schedules=1)
    torch.set_num_threads(threads)


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A run that never ends raises here, and does not end this process. What mutants leave behind in the loader's
    modules goes."""
    monkeypatch.setattr("tests.minidl.simulated.killing.LIMIT", 2.0)

    def stop(*arguments: Any) -> None:
        raise TimeoutError("it never ends")

    modules = [vars(generated_mutants.imported(module)) for module in generated_mutants.MODULES]
    kept = [dict(names) for names in modules]
    before = signal.signal(signal.SIGPROF, stop)
    yield
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.signal(signal.SIGPROF, before)
    for names, was in zip(modules, kept, strict=True):
        names.update(was)


@pytest.mark.slow
def test_the_explorer_kills_a_sample_of_the_mutants(tried: dict[str, Judged], limited: None) -> None:
    """Or what it runs trips over what the loader did."""
    alive = []
    for mutant in a_sample(60):
        with contextlib.suppress(Exception):
            if not kill(mutant, tried).program:
                alive.append(name(mutant))
    assert alive == [], "a program worth exploring could notice it; if none can, it belongs in ALIVE"


def test_every_change_compiles_and_is_a_change() -> None:
    for mutant in itertools.islice(ALL, 0, None, 40):
        function = generated_mutants.function_of(mutant)
        before = function.__code__
        with generated_mutants.at_work(mutant):
            changed: Any = function.__code__
            assert changed.co_name == before.co_name
            words = ("co_code", "co_consts", "co_names")
            assert any(getattr(changed, each) != getattr(before, each) for each in words), str(mutant)
        assert function.__code__ is before


def test_no_two_mutants_have_the_same_name() -> None:
    assert [name for name, count in Counter(map(str, ALL)).items() if count > 1] == []


def test_every_module_of_the_loader_is_changed() -> None:
    """All but the datasets, minidl.stateful, the laws and the simulated world. (The real world is tried by real
    processes.)"""
    there = {name.removesuffix(".py") for name in os.listdir(minidl.__path__[0]) if name.endswith(".py")} - {"laws"}
    names = os.listdir(transport.__path__[0])
    there |= {f"transport.{name.removesuffix('.py')}" for name in names if name.endswith(".py")}
    assert {name for name in there if not name.endswith("__init__")} == set(generated_mutants.MODULES)
    assert {each.module for each in ALL} <= there


def test_a_mutant_that_never_ends_is_killed_and_leaves_nothing(
    tried: dict[str, Judged], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.minidl.simulated.killing.LIMIT", 0.2)

    def loop(node: Any) -> None:
        node.body.insert(0, ast.parse("while True: pass").body[0])

    read = next(each for each in ALL if each.name == "Channel.read")
    ((_, verdict),) = verdicts([dataclasses.replace(read, words="it never returns", place=0, edit=loop)], tried, 1)
    assert verdict.broken == "it never ends"
    assert multiprocessing.active_children() == []
