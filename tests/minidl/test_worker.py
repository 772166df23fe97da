"""The worker process: what it emits from its first line to its last, what it knows, what its failures become."""

from __future__ import annotations

import functools
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
import torch.utils.data

import minidl
import tracing
from minidl.events import Kind
from minidl.transport import DIRECT
from minidl.worker import End, generate_state
from tests.minidl import dying
from tests.minidl.dying import Keys, Stream

pytestmark = pytest.mark.timeout(30)


loader_of = functools.partial(dying.loader_of, num_workers=1)


def emitted_by_worker(path: Path, dataset: Any, epochs: int = 1, **options: Any) -> list[tuple[Kind, int]]:
    """Kind and task of what the worker's own thread emits; its feeder is another thread."""
    with tracing.record(path):
        loader = loader_of(dataset, **options)
        for _ in range(epochs):
            list(loader)
        del loader
    emitted = tracing.load(path).events
    kinds = {Kind.FETCH_BEGIN, Kind.FETCH_END, Kind.GOT, Kind.PUT, Kind.STREAM_END} | {
        kind for kind in Kind if kind.who == "worker"
    }
    actor = emitted["actor"][emitted["kind"] == Kind.WORKER_BEGIN]
    return [
        (Kind(event["kind"]), int(event["task"]))
        for event in emitted
        if event["actor"] in actor and event["kind"] in kinds
    ]


def test_a_worker_emits_its_steps_in_order(tmp_path: Path) -> None:
    emitted = emitted_by_worker(tmp_path, Keys(4), worker_init_fn=print_nothing)
    assert emitted == [
        (Kind.WORKER_BEGIN, -1),
        (Kind.WORKER_SEEDED, -1),
        (Kind.INIT_FN_BEGIN, -1),
        (Kind.INIT_FN_END, -1),
        (Kind.WORKER_READY, -1),
        *task(0),
        *task(1),
        (Kind.GOT, -2),  # Stop
        (Kind.WORKER_END, -1),
    ]


def test_a_persistent_worker_of_a_stream_emits_its_steps_in_order(tmp_path: Path) -> None:
    emitted = emitted_by_worker(tmp_path, Stream(2), epochs=2, persistent_workers=True, prefetch_factor=1)
    end = [(Kind.GOT, 1), (Kind.FETCH_BEGIN, 1), (Kind.STREAM_END, 1), (Kind.PUT, 1)]
    resume = [(Kind.GOT, -3), (Kind.WORKER_RESUMED, -1), (Kind.PUT, -3)]
    stop = [(Kind.GOT, -2), (Kind.WORKER_END, -1)]
    begin = [(Kind.WORKER_BEGIN, -1), (Kind.WORKER_SEEDED, -1), (Kind.WORKER_READY, -1)]
    # Between the end of its stream and Resume or Stop come tasks that it skips.
    fulfilled = [event for event in emitted if event != (Kind.GOT, 2)]
    assert fulfilled == [*begin, *task(0), *end, *resume, *task(0), *end, *stop]


def task(task_id: int) -> list[tuple[Kind, int]]:
    return [(kind, task_id) for kind in (Kind.GOT, Kind.FETCH_BEGIN, Kind.FETCH_END, Kind.PUT)]


def print_nothing(worker_id: int) -> None:
    assert worker_id == 0


class Knows(minidl.Dataset):
    """A sample is what the worker knows of itself."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, key: int) -> Any:
        ours, theirs = minidl.get_worker_info(), torch.utils.data.get_worker_info()
        assert ours is not None and theirs is not None
        return (ours.id, ours.num_workers, ours.seed, theirs.seed, torch.initial_seed(), torch.get_num_threads()), (
            random.getstate() == random.Random(ours.seed).getstate(),
            numpy.random.get_state()[1].tolist() == numpy.random.RandomState(self.words(ours)).get_state()[1].tolist(),
        )

    def words(self, info: Any) -> list[int]:
        return generate_state(info.seed - info.id, info.id)


def test_a_worker_knows_its_number_and_its_seeds() -> None:
    assert minidl.get_worker_info() is None
    for worker_id, (info, states) in enumerate(loader_of(Knows(), batch_size=None, num_workers=2)):
        assert info[:2] == [worker_id, 2] and info[5] == 1
        assert info[2] == info[3] == info[4]
        assert states == [True, True]


@pytest.mark.parametrize("base_seed", [0, 1, 12345, (1 << 63) - 1])
def test_numpy_seeds_are_torchs(base_seed: int) -> None:
    theirs = torch.utils.data._utils.worker._generate_state
    for worker_id in (0, 1, 7):
        assert generate_state(base_seed, worker_id) == theirs(base_seed, worker_id)


class Fails(Keys):
    def __getitem__(self, key: int) -> Any:
        if key == self.at:
            raise LookupError(f"no {key}")
        return super().__getitem__(key)


@pytest.mark.parametrize("pin_memory", [False, "host"], ids=["no-pin", "pin"])
def test_an_exception_costs_one_batch_only(pin_memory: Any) -> None:
    """It is raised in its batch's turn, with the worker's traceback, and the iteration can go on."""
    iterator = iter(loader_of(Fails(8, at=3), num_workers=2, pin_memory=pin_memory))
    seen = [next(iterator).tolist()]
    with pytest.raises(LookupError, match=r"(?s)Caught LookupError in DataLoader worker process 1.*no 3"):
        next(iterator)
    seen += [batch.tolist() for batch in iterator]
    assert seen == [[0, 1], [4, 5], [6, 7]]


class Broken(minidl.IterableDataset):
    def __iter__(self) -> Iterator[Any]:
        raise LookupError("no stream")


def test_a_stream_that_cannot_be_opened_is_raised() -> None:
    with pytest.raises(LookupError, match=r"(?s)Caught LookupError in DataLoader worker process 0.*no stream"):
        next(iter(loader_of(Broken())))


def test_what_keeps_a_worker_from_its_epochs_is_told_once(tmp_path: Path) -> None:
    """Not for each task that it answers so: no task has caused it."""
    with tracing.record(tmp_path):
        iterator = iter(loader_of(Broken()))
        for _ in range(2):
            with pytest.raises(LookupError):
                next(iterator)
        del iterator
    emitted = tracing.load(tmp_path).events
    failed = emitted[emitted["kind"] == Kind.FETCH_FAILED]
    assert failed["task"].tolist() == [-1]


HANGS_UP = """
import socket, sys
from multiprocessing import resource_sharer
from minidl.world.real import RealWorld
if sys.argv[1] == "as a worker":
    RealWorld().report_crashes()
address, _ = resource_sharer.DupFd(0)._id  # starts the thread that hands over descriptors
client = socket.socket(socket.AF_UNIX)
client.connect(address)
client.close()
resource_sharer.stop(timeout=10)  # waits for the thread
"""


@pytest.mark.parametrize(("runs", "prints"), [("as anything else", True), ("as a worker", False)])
def test_nothing_is_printed_when_main_hangs_up_while_it_takes_a_tensor(runs: str, prints: bool) -> None:
    """What Ctrl-C in main does to a worker that is handing over a file descriptor."""
    done = subprocess.run([sys.executable, "-c", HANGS_UP, runs], capture_output=True, text=True, timeout=25)
    assert done.returncode == 0 and ("Traceback" in done.stderr) is prints


def test_other_errors_are_still_printed() -> None:
    other = "from minidl.world.real import RealWorld; RealWorld().report_crashes(); 1 / 0"
    done = subprocess.run([sys.executable, "-c", other], capture_output=True, text=True, timeout=25)
    assert "ZeroDivisionError" in done.stderr


class Strange:
    """A stderr, as notebooks and services put there."""

    def __init__(self, fileno: Any) -> None:
        self.answer = fileno

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None: ...

    def fileno(self) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize("fileno", [RuntimeError("none"), NotImplementedError(), None, "two", -1], ids=repr)
def test_whatever_stderr_is_a_worker_works(fileno: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for stderr in (None, Strange(fileno)):
        monkeypatch.setattr(sys, "stderr", stderr)
        assert [batch.tolist() for batch in loader_of(Keys(4))] == [[0, 1], [2, 3]]


class Swallows(Keys):
    """Ctrl-C comes while a finalizer runs: Python prints that it ignores the KeyboardInterrupt."""

    def __getitem__(self, key: int) -> Any:
        class Finalized:
            def __del__(self) -> None:
                signal.raise_signal(signal.SIGINT)

        if key == 8:
            Finalized()
        return super().__getitem__(key)


def needs_new_memory(samples: list[Any]) -> bool:
    return torch.utils.data.default_collate([torch.zeros(DIRECT)] * 2).is_shared()


@pytest.mark.parametrize(("transport", "new"), [("slots", False), ("torch", True)])
def test_torchs_default_collate_stacks_in_the_slot_too(transport: str, new: bool) -> None:
    assert list(loader_of(Keys(2), collate_fn=needs_new_memory, transport=transport)) == [new]


def name_of_worker(samples: list[Any]) -> str:
    return Path("/proc/self/comm").read_text().strip()


def test_a_worker_has_a_name_for_the_systems_tools() -> None:
    assert list(loader_of(Keys(2), collate_fn=name_of_worker)) == ["pt_data_worker"]


def test_a_worker_that_crashes_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match="Segmentation fault"):
        list(loader_of(Keys(2, "crash", at=1)))
    assert "segmentation fault encountered in worker" in capfd.readouterr().err


def test_a_worker_ends_at_an_interrupt_that_python_swallowed(tmp_path: Path) -> None:
    with tracing.record(tmp_path), pytest.raises(RuntimeError, match="exited unexpectedly with exit code 0"):
        list(loader_of(Swallows(40)))
    emitted = tracing.load(tmp_path).events
    assert emitted["value"][emitted["kind"] == Kind.WORKER_END].tolist() == [End.INTERRUPTED]
