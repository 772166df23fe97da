"""Bugs that real loaders have had are found when they are put into minidl, and nothing is found without them."""

from __future__ import annotations

import dataclasses
import re

import pytest

import tracing
from docs.make.mutants import DOCS, SHOWN, picture
from minidl import shutdown
from minidl.events import Kind
from minidl.world.simulated import simulate
from tests.minidl.simulated.mutants import Edit, Mutant, at_work
from tests.minidl.simulated.slot_mutants import ALL_MUTANTS
from tracing.analysis.hang.explain import explain

BY_NAME = {mutant.name: mutant for mutant in ALL_MUTANTS}


@pytest.fixture(params=BY_NAME)
def mutant(request: pytest.FixtureRequest) -> Mutant:
    return BY_NAME[request.param]


def test_a_mutant_is_found_and_the_loader_without_it_passes(mutant: Mutant) -> None:
    found = mutant.explored()
    assert found.counterexample is not None, f"{mutant.name} is not found: {found}"
    assert any(mutant.broken in each for each in found.broken), found.broken
    with at_work(mutant):  # the token repeats it
        repeated = simulate(mutant.program, schedule=found.counterexample.token, draws=False, **mutant.options)
    assert repeated.events == found.counterexample.events
    if found.schedules > 1:  # without the bug the schedule gives another run
        with pytest.raises(RuntimeError, match="cannot be repeated"):
            _ = tracing.load(found.counterexample)
    # Without the bug the same schedule is harmless, and so are as many others.
    harmless = simulate(mutant.program, schedule=found.counterexample.token, draws=False, **mutant.options)
    assert mutant.judge()(harmless) == []
    clean = mutant.explored(bug=False, most=found.schedules + 20)
    assert clean.counterexample is None, str(clean)


def test_a_mutant_changes_the_loader_only_while_it_is_at_work(mutant: Mutant) -> None:
    before = {(edit.where, edit.function): getattr(edit.where, edit.function) for edit in mutant.edits}
    with at_work(mutant):
        changed = [getattr(where, name) is not function for (where, name), function in before.items()]
    assert all(changed)
    assert all(getattr(where, name) is function for (where, name), function in before.items())


@pytest.mark.parametrize("mutant", [mutant.name for mutant in SHOWN], indirect=True)
def test_the_page_is_up_to_date(mutant: Mutant) -> None:
    """docs/simulation.md, made by `make mutants`: its tokens still show the bugs, and its pictures are there."""
    section = (DOCS / "simulation.md").read_text(encoding="utf-8").partition(f"{mutant.lesson}\n")[2]
    seen_in, token = re.findall(r"^Seen in (.+); found after .+, by `(.+)`: ", section, re.MULTILINE)[0]
    assert seen_in == mutant.seen_in
    judge = mutant.judge()
    with at_work(mutant):
        shown = simulate(mutant.program, schedule=token, draws=False, **mutant.options)
        assert any(mutant.broken in each for each in judge(shown))
    assert (DOCS / picture(mutant)).is_file()


def test_every_mutant_has_its_own_name() -> None:
    assert len(BY_NAME) == len(ALL_MUTANTS) == 25


def test_of_a_blocked_feeder_the_explanation_names_the_message_it_is_writing() -> None:
    """Not one it wrote before, which is in the pipe. (Main waits without a bound, or the worker would be killed.)"""
    [mutant] = [each for each in ALL_MUTANTS if each.name == "process exit joins a feeder that is blocked"]
    unbounded = Edit(shutdown, "wait_for_workers", "worker.join(patience)", "worker.join(None)")
    patient = dataclasses.replace(mutant, edits=(*mutant.edits, unbounded))
    stuck = patient.explored().counterexample
    assert stuck is not None and stuck.deadlock
    with at_work(patient):
        explanation = str(explain(tracing.load(stuck)))
    [(batch, number)] = re.findall(r"writes batch (\d+) \(.* \[event (\d+)\]", explanation)
    event = stuck.events[int(number)]
    assert (event[2], event[4]) == (Kind.SENT, int(batch))
