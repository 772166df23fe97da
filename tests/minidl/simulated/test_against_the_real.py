"""The simulated world is like the real one: what a program observes there is among what it observes in simulations."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from minidl import world as worlds
from minidl.world.simulated import simulate
from tests.conftest import nothing_left
from tests.minidl.simulated import both_worlds, both_worlds_ends, both_worlds_memory
from tests.minidl.simulated.both_worlds import PROGRAMS

assert both_worlds_ends and both_worlds_memory  # their programs are in PROGRAMS, too

pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.skipif(sys.platform != "linux", reason="the programs fork"),
]

SEEDS = 12  # random schedules, besides the default one
LIMIT = 40  # seconds for a real program and all its children; a nap that should be cut short takes longer

Seen = tuple[list[Any], int | None]  # what the processes of a program reported, and the exit code of its first one


def start_method(name: str) -> str:
    return "spawn" if "spawns" in PROGRAMS[name].marks else "fork"


def waits(name: str) -> bool:
    return "waits" in PROGRAMS[name].marks


class RealRun:
    """A program in a real process of its own."""

    def __init__(self, name: str) -> None:
        self._reports, writer = multiprocessing.Pipe(duplex=False)
        self._process = multiprocessing.get_context("fork").Process(target=_run, args=(name, writer))
        self._process.start()
        writer.close()

    def seen(self) -> Seen:
        """What it observed, once it and all its children have ended."""
        reports = []
        with contextlib.suppress(EOFError):  # the last process that could report has ended
            while self._reports.poll(LIMIT):
                reports.append(self._reports.recv())
            raise AssertionError(f"the real program hangs, after {reports}")
        self._process.join(LIMIT)
        return reports, self._process.exitcode

    def end(self) -> None:
        """Kill whatever is left of it."""
        assert self._process.pid is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # its group: see _run
        self._process.kill()
        self._process.join(LIMIT)
        self._reports.close()


def _run(name: str, report_pipe: Any) -> None:
    os.setsid()  # a process group of its own: for Ctrl-C, and for `end`
    both_worlds.report_pipe = report_pipe
    both_worlds.report(PROGRAMS[name].run(worlds.current(multiprocessing.get_context(start_method(name)))))


def in_simulations(name: str) -> list[Seen]:
    """What it observes on some schedules, without repetitions."""
    found: list[Seen] = []
    for seed in (None, *range(SEEDS)):
        both_worlds.reports = []
        outcome = simulate(
            lambda: both_worlds.report(PROGRAMS[name].run(worlds.current())), seed=seed, start_method=start_method(name)
        )
        assert not outcome.deadlock and not outcome.endless, outcome.token
        assert outcome.error is None, f"{outcome.token}: {outcome.error!r}"
        if (seen := (both_worlds.reports, outcome.exitcode)) not in found:
            found.append(seen)
    return found


# Of all programs at once: those that have begun start their processes while a test of another one runs.
no_leftovers = pytest.fixture(autouse=True, scope="module")(nothing_left)


@pytest.fixture(scope="module")
def begun(request: pytest.FixtureRequest) -> Iterator[dict[str, RealRun]]:
    """The selected programs that mostly wait, started: they wait side by side, while the others run."""
    chosen = {item.callspec.params.get("name") for item in request.session.items if hasattr(item, "callspec")}
    programs = {name: RealRun(name) for name in PROGRAMS if waits(name) and name in chosen}
    yield programs
    for each in programs.values():
        each.end()


@pytest.mark.parametrize("name", sorted(PROGRAMS, key=waits))
def test_the_real_world_does_what_some_simulated_one_does(name: str, begun: dict[str, RealRun]) -> None:
    program = begun.pop(name, None) or RealRun(name)
    try:
        simulated = in_simulations(name)
        assert program.seen() in simulated
    finally:
        program.end()
    assert (len(simulated) > 1) == ("varies" in PROGRAMS[name].marks), simulated
