"""Each bug that real loaders have had is found when it is put into minidl, and nothing without it."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

import tracing
from minidl import shutdown
from minidl.events import Kind
from minidl.world.simulated import explore, simulate
from tests.minidl.simulated.gallery import picture
from tests.minidl.simulated.mutants import MUTANTS, Edit, Mutant, at_work
from tracing.analysis.hang.explain import explain

BY_NAME = {mutant.name: mutant for mutant in MUTANTS}


@pytest.fixture(params=BY_NAME)
def mutant(request: pytest.FixtureRequest) -> Mutant:
    return BY_NAME[request.param]


def test_it_is_found(mutant: Mutant) -> None:
    found = mutant.explored()
    assert found.counterexample is not None, f"{mutant.name} is not found: {found}"
    assert any(mutant.broken in each for each in found.broken), found.broken
    with at_work(mutant):  # the token does it again
        again = simulate(mutant.program, schedule=found.counterexample.token, draws=False, **mutant.options)
    assert again.events == found.counterexample.events
    if found.schedules > 1:  # without the bug it does something else, and that is no trace of this run
        with pytest.raises(RuntimeError, match="cannot be repeated"):
            _ = tracing.load(found.counterexample)
    # Without the bug the same schedule does no harm, and neither do as many others.
    judge = mutant.judge()
    harmless = simulate(mutant.program, schedule=found.counterexample.token, draws=False, **mutant.options)
    assert judge(harmless) == []
    clean = explore(
        mutant.program, judge=judge, draws=False, most=found.schedules + 20, **mutant.bounds, **mutant.options
    )
    assert clean.counterexample is None, str(clean)


def test_the_loader_is_as_it_was(mutant: Mutant) -> None:
    before = {(edit.where, edit.function): getattr(edit.where, edit.function) for edit in mutant.edits}
    with at_work(mutant):
        changed = [getattr(where, name) is not function for (where, name), function in before.items()]
    assert all(changed)
    assert all(getattr(where, name) is function for (where, name), function in before.items())


def test_the_page_says_the_truth(mutant: Mutant) -> None:
    """docs/simulation.md, made by `make mutants`: its tokens still show the bugs, and its pictures are there."""
    docs = Path(__file__).parents[3] / "docs"
    rows = [line.split(" | ") for line in (docs / "simulation.md").read_text(encoding="utf-8").splitlines()]
    (row,) = [row for row in rows if row[0].startswith(f"| [{mutant.name}]")]
    assert row[1] == mutant.seen_in
    judge = mutant.judge()
    with at_work(mutant):
        shown = simulate(mutant.program, schedule=row[3].strip("` |"), draws=False, **mutant.options)
        assert any(mutant.broken in each for each in judge(shown))
    assert (docs / picture(mutant)).is_file()


def test_all_of_them() -> None:
    assert len(BY_NAME) == len(MUTANTS) == 15


def test_a_feeder_that_is_blocked_is_said_to_write_the_message_that_it_writes() -> None:
    """Others that it wrote before lie in the pipe. (Main must wait without a bound, or force would end it.)"""
    [mutant] = [each for each in MUTANTS if each.name == "process exit joins a feeder that is blocked"]
    unbounded = Edit(shutdown, "wait_for_workers", "worker.join(patience)", "worker.join(None)")
    patient = dataclasses.replace(mutant, edits=(*mutant.edits, unbounded))
    stuck = patient.explored().counterexample
    assert stuck is not None and stuck.deadlock
    with at_work(patient):
        told = str(explain(tracing.load(stuck)))
    [(batch, event)] = re.findall(r"writes batch (\d+) \(.* \[event (\d+)\]", told)
    said = stuck.events[int(event)]
    assert (said[2], said[4]) == (Kind.SENT, int(batch))
