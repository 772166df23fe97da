"""The model tells the truth: what a program sees in the real world is among what it sees in simulated ones."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
from typing import Any

import psutil
import pytest

from minidl import world as worlds
from minidl.world.simulated import simulate
from tests.minidl.simulated.worldly import PROGRAMS, VARIES, Program

pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.skipif(sys.platform != "linux", reason="the programs fork"),
]

SEEDS = 12  # schedules by chance, beside the default one
LIMIT = 40  # seconds for a real program


def really(program: Program) -> Any:
    """What it sees in a real process of its own. What it has started and left is killed."""
    context = multiprocessing.get_context("fork")
    mine, its = context.Pipe()
    process = context.Process(target=_run, args=(program, its))
    process.start()
    its.close()
    try:
        assert mine.poll(LIMIT), "the real program hangs"
        return mine.recv()
    finally:
        assert process.pid is not None
        with contextlib.suppress(psutil.NoSuchProcess):
            for each in psutil.Process(process.pid).children(recursive=True):
                os.kill(each.pid, signal.SIGKILL)
        process.join(LIMIT)
        process.kill()


def _run(program: Program, answer: Any) -> None:
    answer.send(program(worlds.current()))


def in_simulations(program: Program) -> list[Any]:
    """What it sees under some schedules, each thing once."""
    found: list[Any] = []
    for seed in (None, *range(SEEDS)):
        outcome = simulate(lambda: program(worlds.current()), seed=seed)
        assert outcome.error is None and not outcome.deadlock, f"{outcome.token}: {outcome.error!r}"
        if outcome.result not in found:
            found.append(outcome.result)
    return found


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_real_world_does_what_a_simulated_one_can_do(name: str) -> None:
    simulated = in_simulations(PROGRAMS[name])
    assert really(PROGRAMS[name]) in simulated
    assert (len(simulated) > 1) == (name in VARIES), simulated


def test_there_are_enough_programs() -> None:
    assert len(PROGRAMS) >= 30
