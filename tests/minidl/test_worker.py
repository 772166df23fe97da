"""The worker process: what it emits from its first line to its last, what its failures become, what it leaves alone."""

from __future__ import annotations

import functools
import io
import itertools
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

import tracing
from minidl.events import Kind
from minidl.worker import End
from tests.minidl import dying
from tests.minidl.dying import keys
from tests.minidl.programs import BadStream
from tests.samples import Samples

pytestmark = pytest.mark.timeout(30)


loader_of = functools.partial(dying.loader_of, num_workers=1)


def traced(path: Path, run: Callable[[], Any]) -> Any:
    """What all processes emit while it runs."""
    with tracing.record(path):
        run()
    return tracing.load(path).events


def test_a_worker_emits_its_steps_in_order(tmp_path: Path) -> None:
    events = traced(tmp_path, lambda: list(loader_of(keys(4), worker_init_fn=print_nothing)))
    of_worker = events[events["actor"] == events["actor"][events["kind"] == Kind.WORKER_BEGIN]]
    steps = [(Kind(event["kind"]), int(event["task"])) for event in of_worker]
    own = {Kind.FETCH_BEGIN, Kind.FETCH_END, Kind.GOT, Kind.PUT, *(kind for kind in Kind if kind.who == "worker")}
    begin = [Kind.WORKER_BEGIN, Kind.WORKER_SEEDED, Kind.INIT_FN_BEGIN, Kind.INIT_FN_END, Kind.WORKER_READY]
    tasks = [(kind, task) for task in (0, 1) for kind in (Kind.GOT, Kind.FETCH_BEGIN, Kind.FETCH_END, Kind.PUT)]
    end = [(Kind.GOT, -2), (Kind.WORKER_END, -1)]
    assert [step for step in steps if step[0] in own] == [*((kind, -1) for kind in begin), *tasks, *end]


def print_nothing(worker_id: int) -> None:
    assert worker_id == 0


def test_what_keeps_a_worker_from_its_epochs_is_told_once(tmp_path: Path) -> None:
    """Once in each epoch, not for each task that it answers so: no task has caused it."""

    def run() -> None:
        loader = loader_of(BadStream(), persistent_workers=True)
        for _ in range(2):
            iterator = iter(loader)
            for _ in range(2):
                with pytest.raises(ValueError, match=r"(?s)Caught ValueError in DataLoader worker process 0.*opened"):
                    next(iterator)

    emitted = traced(tmp_path, run)
    failed = emitted[emitted["kind"] == Kind.FETCH_FAILED]
    assert [(event["task"], event["epoch"]) for event in failed] == [(-1, 0), (-1, 1)]


@pytest.mark.parametrize("fileno", [RuntimeError("none"), NotImplementedError(), None, "two", -1], ids=repr)
def test_whatever_stderr_is_a_worker_works(fileno: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """None, or an object as notebooks and services put there."""
    how = {"side_effect": fileno} if isinstance(fileno, Exception) else {"return_value": fileno}
    strange = Mock(spec=io.StringIO(), **{f"fileno.{name}": value for name, value in how.items()})
    for stderr in (None, strange):
        monkeypatch.setattr(sys, "stderr", stderr)
        assert [batch.tolist() for batch in loader_of(keys(4))] == [[0, 1], [2, 3]]


class Logged(torch.utils.data.IterableDataset[int]):
    def __init__(self, path: Path) -> None:
        self.path = path

    def __iter__(self) -> Iterator[int]:
        with open(self.path, "w") as log:
            for key in itertools.count():
                log.write(f"{key} ")
                yield key


def test_a_stream_that_is_left_early_ends_in_its_worker(tmp_path: Path) -> None:
    next(iter(loader_of(Logged(tmp_path / "log"))))
    assert (tmp_path / "log").read_text().startswith("0 1 ")


class Interrupted:
    """Ctrl-C comes while a finalizer runs: Python prints that it ignores the KeyboardInterrupt."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


def name_of_worker(samples: list[Any]) -> str:
    return Path("/proc/self/comm").read_text().strip()


def test_a_worker_has_a_name_for_the_systems_tools() -> None:
    assert list(loader_of(keys(2), collate_fn=name_of_worker)) == ["pt_data_worker"]


def test_a_worker_that_crashes_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match="Segmentation fault"):
        list(loader_of(keys(2, "crash", at=1)))
    assert "segmentation fault encountered in worker" in capfd.readouterr().err


def test_a_worker_ends_at_an_interrupt_that_python_swallowed(tmp_path: Path) -> None:
    def run() -> None:
        with pytest.raises(RuntimeError, match="exited unexpectedly with exit code 0"):
            list(loader_of(Samples(40, torch.tensor, {8: Interrupted})))

    emitted = traced(tmp_path, run)
    assert emitted["value"][emitted["kind"] == Kind.WORKER_END].tolist() == [End.INTERRUPTED]
