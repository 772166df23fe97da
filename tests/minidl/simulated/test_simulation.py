"""The simulated machine: runs that repeat to the byte, processes that share nothing, free time, faults."""

from __future__ import annotations

import copyreg
import gc
import itertools
import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import minidl
import tracing
from minidl import events
from minidl import world as worlds
from minidl.shutdown import PATIENCE
from minidl.transport import Handles, filling
from minidl.world.simulated import compute, drop, simulate, sleep, step
from minidl.world.simulated.schedule import parse
from tests.minidl.simulated.programs import TORCHS_WAY, Keys, configurations, load, stream
from tests.samples import Samples
from tracing.recording.simulated_run import write

CONFIGURATIONS = configurations()
BATCHES = [[[0], [1], [2]]]


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


# ---- the same choices, the same run


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_token_repeats_a_run_to_the_byte(tmp_path: Path, name: str) -> None:
    written = []
    drawn = simulate(CONFIGURATIONS[name], seed=11, faults=1)
    for number, outcome in enumerate((drawn, simulate(CONFIGURATIONS[name], schedule=drawn.token))):
        directory = tmp_path / str(number)
        directory.mkdir()
        write(outcome, directory)
        written.append(contents(directory))
    assert len(drawn.events) > 50
    assert written[0] == written[1]


def test_an_event_that_cannot_be_recorded_is_named(tmp_path: Path) -> None:
    outcome = simulate(lambda: events.emit(events.Kind.WAIT, value=0.5))  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match=r"WAIT: \d+> with .*'value': 0.5.* cannot be recorded"):
        write(outcome, tmp_path)


def test_seeds_make_different_runs() -> None:
    tokens = {simulate(load, seed=seed).token for seed in range(20)}
    assert len(tokens) > 10  # one seed in four departs from the default only at one step in fifty


@pytest.mark.parametrize(
    ("token", "part"), [("12", "12"), ("x.3", "x.3"), ("12.", "12."), ("12.3-4.z1", "z"), ("1.k2x", "1.k2x"), ("", "")]
)
def test_an_invalid_token_is_refused(token: str, part: str) -> None:
    with pytest.raises(ValueError, match=f"is no schedule: .*{part}"):
        simulate(load, schedule=token)


def test_a_token_becomes_a_schedule_and_a_token_again() -> None:
    for token in ("0", "12.3-40.k2-41.i-50.t3-60.c-61.e-70.r"):
        assert parse(token).token == token


def test_a_simulation_within_a_simulation_is_refused() -> None:
    outcome = simulate(lambda: simulate(load))
    assert isinstance(outcome.error, RuntimeError) and "within a simulation" in str(outcome.error)


# ---- processes


def test_the_bytes_of_a_tensor_do_not_depend_on_its_address() -> None:
    """Or messages would be longer or shorter by chance, and with them the run would vary."""

    def program() -> Any:
        def pack(tensor: torch.Tensor) -> bytes:
            return bytes(Handles(worlds.current()).pack(tensor)[0][0])

        tensors = [torch.arange(6).reshape(2, 3)[:, 1:], torch.zeros(0), torch.ones(2, dtype=torch.bfloat16) / 3]
        elsewhere = [torch.arange(6).reshape(2, 3)[:, 1:], torch.zeros(0), torch.ones(2, dtype=torch.bfloat16) / 3]
        data = [pack(each) for each in tensors]
        assert data == [pack(each) for each in elsewhere]
        return all(torch.equal(pickle.loads(sent), each) for sent, each in zip(data, tensors, strict=True))

    outcome = simulate(program)
    assert outcome.error is None and outcome.result
    assert torch.TypedStorage not in copyreg.dispatch_table


@pytest.mark.parametrize(("start_method", "seen"), [("fork", 2), ("spawn", 1)])
def test_a_forked_process_has_the_same_memory(start_method: str, seen: int) -> None:
    """Whatever lies in it: arrays, tensors, views. A spawned one has copies."""

    def program() -> int:
        world = worlds.current()
        memory = world.memory(64)
        memory.bytes[:] = 1
        tensor = torch.frombuffer(memoryview(memory.bytes)[8:48], dtype=torch.int16)
        things = [memory.bytes[32:8:-8], tensor.view(torch.uint8), tensor.reshape(4, 5)[1:, ::2], np.ones(1)]
        child = world.process(sees, (things,), "child")
        child.start()
        sleep(0.1)
        memory.bytes[:] = 2
        child.join()
        return int(child.exitcode)

    assert simulate(program, start_method=start_method).result == seen


def sees(things: list[Any]) -> None:
    """Its exit code is what each byte of the first three is, when main has written there."""
    sleep(1.0)
    array, tensor, view, own = things
    (found,) = {*array.tolist(), *tensor.tolist(), *(value % 256 for value in view.flatten().tolist())}
    raise SystemExit(found if own.tolist() == [1.0] and len(array) == 3 and view.shape == (3, 3) else 9)


# ---- nothing is left behind, and nothing happens behind the scheduler's back


def test_a_simulation_leaves_the_real_world_as_it_was() -> None:
    random.seed(1)
    torch.manual_seed(1)
    np.random.seed(1)
    before = (random.getstate(), torch.get_rng_state().tolist(), np.random.get_state()[1].tolist())  # type: ignore[index]
    seed, threads = torch.manual_seed, torch.get_num_threads()
    assert simulate(gc.isenabled).result is False
    for schedule in ("0", "30.k1", "40.i"):
        simulate(load, schedule=schedule)
        assert gc.isenabled() and events.installed() is None
        assert torch.manual_seed is seed and torch.get_num_threads() == threads
        assert type(worlds.current()).__name__ == "RealWorld" and minidl.get_worker_info() is None
        assert filling._current is None
    assert before == (random.getstate(), torch.get_rng_state().tolist(), np.random.get_state()[1].tolist())  # type: ignore[index]
    assert list(minidl.DataLoader(range(3), num_workers=2, collate_fn=list)) == BATCHES[0]


# ---- time


def test_virtual_hours_take_no_real_time() -> None:
    assert simulate(lambda: [sleep(3600.0) for _ in range(24)]).lasted > 24 * 3600


def computed(key: int) -> int:
    """It uses a core for a second."""
    compute(1.0)
    return key


@pytest.mark.parametrize(
    ("workers", "cores", "seconds"), [(1, 2, 12.0), (2, 2, 6.0), (4, 2, 6.0), (4, 4, 3.0), (3, 2, 6.0)]
)
def test_threads_that_compute_share_the_cores(workers: int, cores: int, seconds: float) -> None:
    outcome = simulate(lambda: load(Samples(12, computed), num_workers=workers), cpus=cores)
    assert outcome.result == [[[key] for key in range(12)]]
    assert outcome.lasted == pytest.approx(seconds, rel=0.01)
    fetch = tracing.load(outcome).tasks
    assert (fetch["fetch_end"] - fetch["fetch_begin"]).sum() == pytest.approx(1e9 * seconds * workers, rel=0.01)


def test_a_timeout_takes_virtual_time() -> None:
    outcome = simulate(lambda: load(Keys(slow={0: 100.0, 1: 100.0, 2: 100.0}), timeout=10.0))
    assert "timed out after 10.0 seconds" in str(outcome.error)
    # The timeout twice, as `load` asks again; then the workers, which are in a long fetch, are ended by force.
    assert outcome.lasted == pytest.approx(10 + 10 + PATIENCE, abs=0.01)


# ---- faults


@pytest.mark.parametrize(
    ("letter", "event", "error", "exitcodes"),
    [
        ("k1", events.WORKER_DIED, RuntimeError, {-9, 0, 1}),
        ("i", events.YIELDED, KeyboardInterrupt, {0, 1}),
        ("r", events.FETCH_FAILED, OSError, {0, 1}),
        ("e", events.YIELDED, type(None), {0, 3}),
    ],
)
def test_a_fault_at_some_step(letter: str, event: int, error: type[BaseException], exitcodes: set[int]) -> None:
    """A worker is killed, Ctrl-C, user code raises, the interpreter exits."""
    for number in range(1, simulate(load).steps):
        outcome = simulate(load, schedule=f"{number}.{letter}", environment=TORCHS_WAY)
        seen = {each[2] for each in outcome.events}
        if event in seen and (type(outcome.error), set(outcome.exitcodes.values())) == (error, exitcodes):
            assert tracing.check(tracing.load(outcome)) == []
            return
    raise AssertionError("it never has this effect")


def test_a_timeout_that_fires_early() -> None:
    def program() -> list[Any]:
        reader, _writer = worlds.current().pipe()
        waiter = worlds.current().waiter()
        waiter.add(reader, "bytes")
        return waiter.wait(1000.0)

    late = simulate(program)
    early = min((simulate(program, schedule=f"{k}.t0") for k in range(1, 9)), key=lambda outcome: outcome.lasted)
    assert late.result == early.result == [] and early.last_fault_at > 0
    assert late.lasted > 1000 and early.lasted < 1


def test_the_garbage_collector_finds_an_iterator_in_any_thread_of_main() -> None:
    def program() -> None:
        iterator = iter(minidl.DataLoader(stream(), num_workers=2, collate_fn=list, pin_memory="host"))
        next(iterator)
        drop(iterator)
        del iterator
        for _ in range(5):
            step()

    by = set()
    usual = simulate(program)
    moves = itertools.product(range(usual.steps - 60, usual.steps), range(len(usual.threads)))
    for number, thread in moves:
        if usual.threads[thread][0] != usual.threads[0][0]:
            continue  # a thread of a worker
        outcome = simulate(program, schedule=f"{number}.c{thread}-{number}.{thread}")
        shutdowns = [event for event in outcome.events if event[2] == events.SHUTDOWN_BEGIN]
        assert len(shutdowns) == 1 and set(outcome.exitcodes.values()) <= {0, -15}
        by.add(outcome.threads[shutdowns[0][1]][1])
    assert "MainThread" in by and len(by) > 1


def test_a_killed_main_does_not_go_on() -> None:
    """Not even if the kill finds it in the `__del__` of an iterator, which swallows what unwinds its stack."""

    def program() -> list[Any]:
        return list(minidl.DataLoader(range(4), num_workers=2, collate_fn=list, persistent_workers=True))

    steps = simulate(program).steps
    for number in range(steps - 25, steps - 1):
        outcome = simulate(program, schedule=f"{number}.k2-{number + 1}.k0")
        assert outcome.exitcode == 0 or not outcome.unswept, outcome.token


def test_random_schedules_have_faults() -> None:
    outcomes = [simulate(load, seed=seed, faults=2) for seed in range(60)]
    letters = {part.partition(".")[2][:1] for outcome in outcomes for part in outcome.token.split("-")}
    assert {"k", "i"} <= letters
    assert all(simulate(load, schedule=outcome.token).events == outcome.events for outcome in outcomes[:20])
