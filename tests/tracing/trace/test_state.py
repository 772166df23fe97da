"""state(k) is what a simple, slow replay of the first k events finds, at every k of many traces."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest

import tracing
from tests.tracing.loads import LOADS
from tests.tracing.trace.slow_replay import replay
from tracing.trace.state import MainStatus, PinStatus, State, TaskStatus, WorkerStatus

Recorded = Callable[[str], tracing.Trace]
States = Callable[[str], list[State]]


@pytest.fixture(scope="module")
def states(recorded: Recorded) -> States:
    """states("pinned") are those after each event of that load."""
    return functools.cache(lambda name: [recorded(name).state(k) for k in range(len(recorded(name)))])


@pytest.mark.parametrize("name", LOADS)
def test_every_state_is_what_the_slow_replay_finds(recorded: Recorded, states: States, name: str) -> None:
    trace = recorded(name)
    assert len(trace) > 50
    for k, (expected, found) in enumerate(zip(replay(trace), states(name), strict=True)):
        assert (found.k, found.time) == (k, trace.events["time"][k])
        assert found.loaders
        for loader in found.loaders:
            if loader.num_workers == 0:  # whether one without workers is alive: see the tests below
                expected[loader.iterator].alive = loader.alive
            assert loader == expected[loader.iterator], f"after event {k}"
        shown = {loader.iterator for loader in found.loaders}
        assert shown >= {number for number, each in expected.items() if each.alive and each.num_workers}


def test_every_status_is_seen_somewhere(states: States) -> None:
    seen = set()
    for name in LOADS:
        for state in states(name):
            for loader in state.loaders:
                seen |= {loader.main.status, loader.pin_thread.status}
                seen |= {worker.status for worker in loader.workers}
                seen |= {task.status for task in loader.task_info.values()}
    assert seen == {*WorkerStatus, *PinStatus, *MainStatus, *TaskStatus}


def test_a_persistent_iterator_is_one_over_all_its_epochs_and_the_others_are_kept_apart(recorded: Recorded) -> None:
    assert [each.epochs for each in recorded("persistent").loaders] == [(0, 1, 2)]
    assert [each.epochs for each in recorded("two_at_once").loaders] == [(0,), (1,), (0,)]
    assert [each.epochs for each in recorded("serial").loaders] == [(0,), (1,), (2,), (3,)]


def test_a_serial_iterator_that_was_dropped_is_gone_once_another_begins(recorded: Recorded) -> None:
    trace = recorded("serial")
    assert [loader.iterator for loader in trace.state().loaders] == [3]
    together = [k for k in range(len(trace)) if len(trace.state(k).loaders) == 2]
    assert together  # zip(loader, loader): each has events after the other began


def test_a_loader_inside_a_worker_has_that_worker_as_main(recorded: Recorded) -> None:
    trace = recorded("nested")
    inner = [k for k in range(len(trace)) if len(trace.state(k).loaders) > 1]
    assert inner
    for k in inner[:: len(inner) // 20 + 1]:
        outer, *others = trace.state(k).loaders
        assert outer.num_workers == 2 and all(other.num_workers == 0 for other in others)
        assert {trace.actors[other.main.actor].role for other in others} == {"worker"}


def test_positions_count_from_both_ends(recorded: Recorded) -> None:
    trace = recorded("pinned")
    assert trace.state() == trace.state(-1) == trace.state(len(trace) - 1)
    assert trace.state(-len(trace)) == trace.state(0)
    for k in (len(trace), -len(trace) - 1):
        with pytest.raises(IndexError, match=f"event {k} of {len(trace)}"):
            trace.state(k)
