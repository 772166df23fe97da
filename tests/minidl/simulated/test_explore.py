"""Explorations find the bugs of small programs, and none in the loader."""

from __future__ import annotations

import errno
import functools
import gc
import importlib
import itertools
from typing import Any

import pytest

import minidl
import tracing
from minidl import world as worlds
from minidl.events import Kind
from minidl.world.simulated import Outcome, explore, explore_by_chance, simulate, step
from minidl.world.simulated import machine as machines
from minidl.world.simulated.faults import Fault, Move, inject, possible_faults
from minidl.world.simulated.schedule import Recorded
from minidl.world.simulated.services import SimulatedWorld
from tests.minidl.simulated.lending import LARGE, SMALL, Numbers, hold, lendings, only
from tests.minidl.simulated.programs import bytes_of_a_result, configurations, load
from tracing.analysis.hang.explain import explain

CONFIGURATIONS = configurations()
LENDINGS = lendings()


def threads(*runs: Any) -> None:
    """Run each of these in a thread, to its end."""
    world = worlds.current()
    started = [world.thread(run, (), f"thread {number}") for number, run in enumerate(runs)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()


# ---- small programs with a bug


def loses_an_update() -> int:
    """Two threads each add one to a number, without a lock."""
    number = [0]

    def add() -> None:
        before = number[0]
        step()
        number[0] = before + 1

    threads(add, add)
    return number[0]


def test_a_lost_update_needs_one_delay() -> None:
    assert simulate(loses_an_update).result == 2
    assert explore(loses_an_update, delays=0).counterexample is None
    found = explore(loses_an_update, delays=1)
    assert found.counterexample is not None and len(found.counterexample.schedule.moves) == 1
    assert found.broken == ["it returned 1 instead of 2, and raised nothing"]
    assert simulate(loses_an_update, schedule=found.counterexample.token).result == 1
    assert found.counterexample.token in str(found)


def test_two_faults_may_come_at_one_step() -> None:
    tried: list[list[Move]] = []
    explore(
        lambda: threads(step, step),
        delays=0,
        faults=2,
        judge=lambda outcome: tried.append(outcome.schedule.moves) or [],
    )
    assert any(len({move.step for move in moves}) < len(moves) for moves in tried)


def test_a_stateful_loader_keeps_the_laws() -> None:
    def program() -> Any:
        return list(minidl.StatefulDataLoader(range(4), num_workers=2, collate_fn=list))

    assert explore_by_chance(program, 20).counterexample is None


def waits_for_each_other() -> None:
    """Two threads each take their own box's key, and then the other's."""
    world = worlds.current()
    keys = [world.mailbox(), world.mailbox()]
    for box in keys:
        box.put("key")

    def takes(first: int, second: int) -> None:
        held = [keys[number].get() for number in (first, second)]
        for number, key in zip((first, second), held, strict=True):
            keys[number].put(key)

    threads(lambda: takes(0, 1), lambda: takes(1, 0))


@pytest.mark.parametrize("by_chance", [False, True])
def test_a_deadlock_is_found(by_chance: bool) -> None:
    search = explore_by_chance(waits_for_each_other, 500) if by_chance else explore(waits_for_each_other, delays=1)
    assert search.counterexample is not None and search.counterexample.deadlock
    assert len(search.counterexample.schedule.moves) <= 5  # shortened
    assert search.broken == ["deadlock: no thread can run, and no timeout is left"]


def never_ends() -> None:
    while True:
        step()


def test_a_run_without_end_is_cut_short() -> None:
    found = explore(never_ends, judge=lambda outcome: ["endless"] if outcome.endless else [])
    assert found.schedules == 1 and found.broken == ["endless"]


def test_chance_outside_the_schedule_is_noticed() -> None:
    """With it no result could be trusted."""
    count = itertools.count()

    def program() -> None:
        for _ in range(next(count) % 7):
            step()
        load()

    with pytest.raises(AssertionError, match=r"schedule .*, event \d+: .* the first time, .* the second"):
        explore(program, judge=lambda outcome: [])


def test_a_state_that_was_seen_is_not_tried_again() -> None:
    """Two threads that share nothing reach the same states in any order."""

    def program() -> None:
        def steps() -> None:
            for _ in range(6):
                step()

        threads(steps, steps)

    found = explore(program, delays=3)
    assert found.counterexample is None
    assert found.pruned > found.schedules > 100


def one_of_two_puts_first() -> tuple[int, Any]:
    """What two threads have done is the same in any order, but not what is in the box."""
    box = worlds.current().mailbox()
    threads(lambda: box.put("first"), lambda: box.put("second"))
    return machines.current_machine().state(), box.get()


def one_of_two_writes_last() -> tuple[int, Any]:
    """The same with memory."""
    memory = worlds.current().memory(1)

    def write(value: int) -> None:
        step()
        memory.bytes[0] = value

    threads(lambda: write(1), lambda: write(2))
    return machines.current_machine().state(), int(memory.bytes[0])


def one_of_two_sees_what_is_then_gone() -> tuple[int, Any]:
    """Each looks and then writes the same, one before the other."""
    memory, found = worlds.current().memory(1), {}

    def look(number: int) -> None:
        step()
        found[number] = int(memory.bytes[0])
        memory.bytes[0] = 1

    threads(lambda: look(0), lambda: look(1))
    return machines.current_machine().state(), sorted(found.items())


@pytest.mark.parametrize("program", [one_of_two_puts_first, one_of_two_writes_last, one_of_two_sees_what_is_then_gone])
def test_states_are_told_apart_by_what_is_in_a_box_or_in_memory(program: Any) -> None:
    """If the threads' histories said all, a schedule could be taken for one that was tried."""
    results: dict[int, set[str]] = {}

    def judge(outcome: Outcome) -> list[str]:
        state, result = outcome.result
        results.setdefault(state, set()).add(repr(result))
        return []

    explore(program, delays=3, judge=judge)
    assert all(len(found) == 1 for found in results.values())
    assert len(set.union(*results.values())) == 2


# ---- the loader


# Five of 16: each two of the four options in all their combinations.
COVERING = [name for name in CONFIGURATIONS if len({*name.split()} - {"keys"}) in (1, 4)]
THE_OTHERS = [pytest.param(name, marks=pytest.mark.full) for name in CONFIGURATIONS if name not in COVERING]


@pytest.mark.parametrize("name", [*COVERING, *THE_OTHERS])
def test_nothing_is_found_within_a_delay_or_a_fault(name: str) -> None:
    """`make explore` goes further."""

    def judge(outcome: Outcome) -> list[str]:
        if outcome.steps % 97 == 0:  # check a sample of them for every invariant
            return [str(broken) for broken in tracing.check(tracing.load(outcome))]
        return []

    for bounds in ({"delays": 1, "faults": 0}, {"delays": 0, "faults": 1}):
        found = explore(CONFIGURATIONS[name], draws=False, **bounds)
        assert found.counterexample is None, str(found)
    sampled = explore_by_chance(CONFIGURATIONS[name], 40, faults=2, judge=judge, draws=False)
    assert sampled.counterexample is None, str(sampled)


@pytest.mark.parametrize("name", LENDINGS)
def test_no_batch_changes_while_it_is_held(name: str) -> None:
    """`make explore` tries every fault, too."""
    found = explore(LENDINGS[name], delays=1, draws=False)
    assert found.counterexample is None, str(found)
    sampled = explore_by_chance(LENDINGS[name], 30, faults=2, draws=False)
    assert sampled.counterexample is None, str(sampled)


def test_messages_that_fill_the_pipes() -> None:
    """A pipe holds one message: the next takes several writes, and arrives in pieces."""
    for bounds in ({"delays": 1, "faults": 0}, {"delays": 0, "faults": 1}):
        found = explore(load, capacity=bytes_of_a_result(), draws=False, **bounds)
        assert found.counterexample is None, str(found)


def test_memory_is_flat() -> None:
    explore_by_chance(load, 200, draws=False)
    gc.collect()
    before = len(gc.get_objects())
    explore_by_chance(load, 200, seed=1000, draws=False)
    gc.collect()
    assert len(gc.get_objects()) - before < 200


# ---- bugs that were found


def test_ctrl_c_twice_breaks_no_invariant() -> None:
    """Wherever it comes. Workers were reaped, and no event said so; the shutdown was said to be complete."""
    program = CONFIGURATIONS["keys pinned"]
    for number in range(1, simulate(program, draws=False).steps):
        outcome = simulate(program, schedule=f"{number}.i-{number + 2}.i", draws=False)
        assert tracing.check(tracing.load(outcome)) == [], outcome.token


class NoPatience(Recorded):
    """Once it is asked to end, the pin thread is not chosen any more, and main's wait for it times out early."""

    def pick(self, machine: Any, default: Any) -> Any:
        kinds = {event[2] for event in machine.outcome.events}
        if default.name != "pin thread" or Kind.PIN_STOPPING not in kinds or Kind.SHUTDOWN_END in kinds:
            return default
        other = machine.next_able(default.number + 1)
        if other is default:
            self.moves.append(Move(machine.step, Fault.TIMEOUT, 0))
            inject(machine, self.moves[-1])
            other = machine.threads[0]
        return other


def test_a_pin_thread_that_is_slow_to_look_at_its_flag() -> None:
    """It was left running: main had closed what it waited on."""
    for name in ("keys pinned", "stream pinned", "keys pinned persistent"):
        outcome = simulate(CONFIGURATIONS[name], schedule=NoPatience(0, 0, 1), draws=False)
        ended = [event[7] for event in outcome.events if event[2] == Kind.PIN_JOINED]
        assert ended == [0]  # not when main gave up
        assert (outcome.left, outcome.open_pipes) == ([], 0), name


@pytest.mark.parametrize("collate_fn", [only, minidl.default_collate])
@pytest.mark.parametrize("size", [SMALL, LARGE])
@pytest.mark.parametrize("number", [0, 1, 3])
def test_a_worker_that_gets_no_memory(monkeypatch: pytest.MonkeyPatch, number: int, size: int, collate_fn: Any) -> None:
    """Its feeder died, as the batch's room was closed when the error was to be sent in its place: main waited for
    ever."""
    make = SimulatedWorld.memory

    def memory(world: SimulatedWorld, nbytes: int) -> Any:
        if len(world.machine.memories) == number:
            raise OSError(errno.EMFILE, "Too many open files")
        return make(world, nbytes)

    monkeypatch.setattr(SimulatedWorld, "memory", memory)
    outcome = simulate(lambda: hold(dataset=Numbers((size,) * 6), collate_fn=collate_fn), draws=False)
    assert isinstance(outcome.error, OSError) and "Too many open files" in str(outcome.error)
    assert [kind for _, _, kind, *_ in outcome.events].count(Kind.YIELDED) == number
    assert (outcome.left, outcome.errors) == ([], [])


# ---- the explanation of a deadlock


def test_a_deadlock_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for what, since which event. Here main does not notice a death."""
    monkeypatch.setattr("minidl.world.simulated.processes.Process.is_ready", lambda ending: False)
    monkeypatch.setattr("minidl.parallel.check_health", lambda iterator: None)
    monkeypatch.setattr("minidl.parallel.STATUS_CHECK_INTERVAL", None)
    found = explore(load, faults=1, delays=0)
    assert found.counterexample is not None and found.broken[0].startswith("deadlock")
    explanation = str(explain(tracing.load(found.counterexample)))
    for part in (
        "main (pid 5000001) waits on worker_result_queue for batch",
        "worker 0 (pid 5000002)",
        "It is dead, and the thread that waits for it has not noticed",
        "[event ",
    ):
        assert part in explanation


# ---- another thread loads, while the main thread has the handler of SIGCHLD


def loads_in_another_thread(**options: Any) -> list[Any]:
    """The batches that a thread takes, or what next() raised there; main only waits for it."""
    loader: Any = minidl.DataLoader(range(2), 1, collate_fn=list, **options)
    taken: list[Any] = []
    iterators = [iter(loader)]

    def consume() -> None:
        step()
        try:
            for epoch in range(2 if loader.persistent_workers else 1):
                taken.extend(iterators.pop() if epoch == 0 else loader)
        except RuntimeError as error:
            taken.append(str(error))

    thread = worlds.current().thread(consume, (), "loads")
    thread.start()
    while True:
        try:
            thread.join()
            return taken
        except RuntimeError:  # the handler's
            pass


def what_it_takes(outcome: Outcome) -> list[str]:
    """A worker's death is raised in the thread that loads; nothing is silently missing, and nobody waits long."""
    if outcome.exitcode:  # main's handler raised before main was in its `try`
        return []
    if outcome.deadlock or outcome.endless or outcome.error is not None or outcome.errors:
        return [f"hangs, or died of {outcome.error!r}, {outcome.errors}"]
    *batches, last = outcome.result
    whole = [[0], [1]] * (2 if outcome.program.keywords.get("persistent_workers") else 1)  # type: ignore[attr-defined]
    good = outcome.result == whole or (batches == whole[: len(batches)] and "is killed by signal" in last)
    late = outcome.lasted > 4  # the status check, the last line of defence, comes after 5 s
    return [f"took {outcome.result} in {outcome.lasted} s"] * (late or not good)


@pytest.mark.parametrize("options", [{"num_workers": 2}, {"num_workers": 1, "pin_memory": "host"}], ids=str)
def test_a_thread_that_loads_and_the_handler_in_main_do_not_both_take(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both may see one death of a worker: once, a batch was then missing in silence. (Other faults: see above.)"""

    def deaths_of_workers(machine: Any) -> list[Move]:
        return [move for move in possible_faults(machine) if move.what is Fault.KILL and move.number > 0]

    monkeypatch.setattr(importlib.import_module(explore.__module__), "possible_faults", deaths_of_workers)
    program = functools.partial(loads_in_another_thread, **options)
    found = explore(program, faults=1, delays=1, judge=what_it_takes, draws=False)
    assert found.counterexample is None, found.broken
