"""A StatefulDataLoader that is stopped after every batch, and wherever a fault stops it: what has come before, and what
comes after loading its state, is the whole epoch."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import minidl
from minidl.world.simulated import Outcome, explore, explore_by_chance, simulate, step
from minidl.world.simulated import machine as machines
from tests.minidl.simulated.worth_exploring import Keys, Streams
from tests.minidl.simulated.worth_returning import IN_NEXT, Pressing


class Places(minidl.IterableDataset[int]):
    """Each worker has another number of samples, and can save its place."""

    def __init__(self, lengths: tuple[int, ...]) -> None:
        self.lengths, self.given = lengths, 0

    def __iter__(self) -> Iterator[int]:
        info = minidl.get_worker_info()
        worker_id = info.id if info else 0
        for number in range(self.given, self.lengths[worker_id]):
            step()
            self.given = number + 1
            yield 10 * worker_id + number
        self.given = 0

    def state_dict(self) -> dict[str, int]:
        return {"given": self.given}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.given = state["given"]


PROGRAMS: dict[str, dict[str, Any]] = {
    "keys": {"dataset": Keys(5), "shuffle": True},
    "keys, persistent": {"dataset": Keys(5), "shuffle": True, "persistent_workers": True},
    "keys, pinned": {"dataset": Keys(4), "pin_memory": "host"},
    "a sample that fails": {"dataset": Keys(5, fails=(2,))},
    "streams": {"dataset": Streams((3, 1))},
    "places": {"dataset": Places((3, 1))},
    "serial": {"dataset": Keys(5), "shuffle": True, "num_workers": 0},
    "places, without order": {"dataset": Places((2, 2)), "in_order": False},
}


def build(name: str) -> Any:
    return minidl.StatefulDataLoader(**{"batch_size": None, "num_workers": 2, **PROGRAMS[name]})


def left_of(iterator: Any, most: int = 100) -> list[Any]:
    """What comes up to the end, or to a failure that stays; with the errors in a batch's stead."""
    came: list[Any] = []
    while len(came) < most and came[-1:] != ["end"]:
        try:
            came.append(next(iterator))
        except StopIteration:
            came.append("end")
        except LookupError as error:
            came.append(str(error)[-9:])
        except RuntimeError:
            break
    return came


def going_on(name: str, loader: Any) -> list[Any]:
    other = build(name)
    other.load_state_dict(loader.state_dict())
    return left_of(iter(other))


def stopped(name: str, after: int = 100) -> list[Any]:
    """After this many batches, or when a fault stops it, another loader goes on from its state."""
    loader, came = build(name), []
    with contextlib.suppress(RuntimeError):  # a worker died before it was ready
        came = left_of(iter(loader), after)
    return came if came[-1:] == ["end"] else came + going_on(name, loader)


def whole(name: str) -> list[Any]:
    return simulate(lambda: left_of(iter(build(name)))).result


def judge(name: str) -> Callable[[Outcome], list[str]]:
    expected = whole(name)

    def problems(outcome: Outcome) -> list[str]:
        if outcome.deadlock or outcome.endless:
            return ["it hangs"]
        came = outcome.result
        if came is None or "end" not in came:  # the fault has stopped the second loader
            return []
        same = sorted(came, key=str) == sorted(expected, key=str) if "order" in name else came == expected
        return [] if same else [f"{came} came, and not {expected}"]

    return problems


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_goes_on_after_every_batch_under_many_schedules(name: str) -> None:
    for after in range(len(whole(name))):
        found = explore_by_chance(lambda after=after: stopped(name, after), 6, faults=0, judge=judge(name))
        assert found.counterexample is None, str(found)


@pytest.mark.parametrize("name", ["keys", "streams", "places", "places, without order"])
def test_it_goes_on_where_a_fault_has_stopped_it(name: str) -> None:
    """A worker, or main, is killed at any step; an error comes anywhere."""
    found = explore(lambda: stopped(name), delays=0, faults=1, most=400, judge=judge(name))
    assert found.counterexample is None, str(found)


def pressed(name: str, kind: Any, number: int) -> list[Any]:
    """Ctrl-C comes in next(), where main emits an event: what was not handed to the caller comes first."""
    loader, machine, came = build(name), machines.current_machine(), []
    iterator = iter(loader)
    machine.outcome.events = pressing = Pressing(machine.outcome.events, kind, number)
    try:
        for batch in iterator:
            came.append(batch)
        return [*came, "end"]
    except KeyboardInterrupt:
        pressing.left = -1
        return came + going_on(name, loader)


@pytest.mark.parametrize("name", ["keys", "keys, persistent", "streams", "places", "serial"])
def test_ctrl_c_anywhere_in_next_loses_nothing(name: str) -> None:
    expected = whole(name)
    for kind, number in itertools.product(IN_NEXT, (1, 2, 4)):
        outcome = simulate(lambda kind=kind, number=number: pressed(name, kind, number))
        assert (outcome.error, outcome.result) == (None, expected), (kind, number)
