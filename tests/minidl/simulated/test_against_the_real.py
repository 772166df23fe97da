"""The model tells the truth: what a program sees in the real world is among what it sees in simulated ones."""

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
from tests.minidl.simulated import both_worlds
from tests.minidl.simulated.both_worlds_ends import PROGRAMS, SPAWNS, VARIES, WAITS

pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.skipif(sys.platform != "linux", reason="the programs fork"),
]

SEEDS = 12  # schedules by chance, beside the default one
LIMIT = 40  # seconds for a real program and all that it has started; a nap that should be cut short lasts longer

Seen = tuple[list[Any], int | None]  # what the processes of a program have told, and the exit code of its first one


def start_method(name: str) -> str:
    return "spawn" if name in SPAWNS else "fork"


class Really:
    """A program in a real process of its own."""

    def __init__(self, name: str) -> None:
        self._told, its = multiprocessing.Pipe(duplex=False)
        self._process = multiprocessing.get_context("fork").Process(target=_run, args=(name, its))
        self._process.start()
        its.close()

    def seen(self) -> Seen:
        """What has happened, once all that it has started has ended, too."""
        told = []
        with contextlib.suppress(EOFError):  # the last process that could tell something has ended
            while self._told.poll(LIMIT):
                told.append(self._told.recv())
            raise AssertionError(f"the real program hangs, after {told}")
        self._process.join(LIMIT)
        return told, self._process.exitcode

    def end(self) -> None:
        """Nothing of it is left."""
        assert self._process.pid is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # its group: see _run
        self._process.kill()
        self._process.join(LIMIT)
        self._told.close()


def _run(name: str, post: Any) -> None:
    os.setsid()  # a group of its own: for Ctrl-C, and for the end
    both_worlds.post = post
    both_worlds.tell(PROGRAMS[name](worlds.current(multiprocessing.get_context(start_method(name)))))


def in_simulations(name: str) -> list[Seen]:
    """What happens under some schedules, each thing once."""
    found: list[Seen] = []
    for seed in (None, *range(SEEDS)):
        both_worlds.told = []
        outcome = simulate(
            lambda: both_worlds.tell(PROGRAMS[name](worlds.current())), seed=seed, start_method=start_method(name)
        )
        assert not outcome.deadlock and not outcome.endless, outcome.token
        assert outcome.error is None, f"{outcome.token}: {outcome.error!r}"
        if (seen := (both_worlds.told, outcome.exitcode)) not in found:
            found.append(seen)
    return found


@pytest.fixture(scope="module")
def begun(request: pytest.FixtureRequest) -> Iterator[dict[str, Really]]:
    """The chosen ones of the programs that mostly wait: they do so side by side, while the others run."""
    chosen = {item.callspec.params.get("name") for item in request.session.items if hasattr(item, "callspec")}
    programs = {name: Really(name) for name in PROGRAMS if name in WAITS & chosen}
    yield programs
    for each in programs.values():
        each.end()


@pytest.mark.parametrize("name", sorted(PROGRAMS, key=lambda name: name in WAITS))
def test_the_real_world_does_what_a_simulated_one_can_do(name: str, begun: dict[str, Really]) -> None:
    program = begun.pop(name, None) or Really(name)
    try:
        simulated = in_simulations(name)
        assert program.seen() in simulated
    finally:
        program.end()
    assert (len(simulated) > 1) == (name in VARIES), simulated


def test_there_are_enough_programs() -> None:
    assert len(PROGRAMS) >= 30
