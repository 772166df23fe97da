"""Whatever becomes of a process, another goes on from each of its states: see stopping.py."""

from __future__ import annotations

import pytest

from tests.minidl.simulated.stopping import by_chance, explored, follow
from tests.minidl.simulated.worth_stopping import trainings

TRAININGS = trainings()
LONGER = ("shuffled, persistent", "any order", "places", "every third, persistent")


@pytest.mark.parametrize("name", TRAININGS)
def test_what_would_have_come_comes(name: str) -> None:
    """From the first states of a process; `make explore` goes on from all."""
    found = explored(TRAININGS[name], by_chance(0), most=10)
    assert not found.found, found.found
    assert found.states == 10


@pytest.mark.parametrize("name", LONGER)
def test_whatever_goes_wrong(name: str) -> None:
    """Up to two faults in each process: it is killed, main or a worker; Ctrl-C; the user's code raises."""
    found = explored(TRAININGS[name], by_chance(4), most=8)
    assert not found.found, found.found
    assert found.schedules == 5 * found.states


def test_a_way_can_be_gone_again() -> None:
    """Three processes: one is stopped after two batches, the next is killed after one, the last comes to the end."""
    outcome = follow(TRAININGS["in turn"], "0@3 90.k0@1 0")
    assert outcome.error is None and outcome.exitcode == 0
