"""Who or what is behind the waiting: real loads with one culprit each, which the report names. The contrasts are large:
no busy machine makes one of them, or hides it."""

from __future__ import annotations

import multiprocessing
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import minidl
import tracing
from tests.tracing import report_loads as loads
from tests.tracing.attached import ATTACHED
from tracing.analysis.measure.waited import Verdict
from tracing.analysis.report.report import LoaderReport

pytestmark = [
    pytest.mark.timeout(90),
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
]
PACKAGES = pytest.mark.parametrize("package", [minidl, ATTACHED], ids=["minidl", "torch"])


def judged(path: Path, dataset: Any, package: Any = minidl, **options: Any) -> LoaderReport:
    (loader,) = tracing.report(loads.record(path, dataset, package=package, **options)).loaders
    return loader


class OneIsSlow(loads.Samples):
    """Worker 1 has its files somewhere else."""

    def __getitem__(self, index: int) -> int:
        info = minidl.get_worker_info()
        time.sleep(0.06 if info is not None and info.id == 1 else 0.005)
        return index


class Locked(loads.Samples):
    """One worker at a time."""

    def __init__(self, n: int, whole_batch: bool) -> None:
        super().__init__(n, loads.quick)
        self.lock, self.whole_batch = multiprocessing.get_context("fork").Lock(), whole_batch

    def __getitems__(self, keys: list[int]) -> list[int]:
        if self.whole_batch:
            with self.lock:
                time.sleep(0.05)
            return keys
        return [self[key] for key in keys]

    def __getitem__(self, index: int) -> int:
        with self.lock:
            time.sleep(0.015)
        return index


class Served(loads.Samples):
    """A server in another process makes the samples, one at a time."""

    def __init__(self, n: int, port: int) -> None:
        super().__init__(n, loads.quick)
        self.port = port

    def __getitem__(self, index: int) -> int:
        with socket.create_connection(("127.0.0.1", self.port)) as server:
            return server.recv(1)[0]  # here they wait


def serve(listener: socket.socket) -> None:
    while True:
        client, _ = listener.accept()
        time.sleep(0.01)
        client.sendall(b"7")
        client.close()


@pytest.fixture
def port() -> Iterator[int]:
    """Of a server."""
    with socket.create_server(("127.0.0.1", 0), backlog=16) as listener:
        server = multiprocessing.get_context("fork").Process(target=serve, args=(listener,), daemon=True)
        server.start()
        yield listener.getsockname()[1]
        server.kill()
        server.join()


class Shards(minidl.IterableDataset):
    """Worker 0 has nearly all of the samples."""

    def __iter__(self) -> Iterator[int]:
        info = minidl.get_worker_info()
        for sample in range(60 if info is None or info.id == 0 else 4):
            time.sleep(0.02)
            yield sample


def pads(samples: list[int]) -> list[int]:
    """A collate_fn."""
    time.sleep(0.03)
    return samples


@PACKAGES
def test_the_slow_worker_is_named(tmp_path: Path, package: Any) -> None:
    loader = judged(tmp_path / "run.trace", OneIsSlow(60, loads.quick), package, num_workers=3, batch_size=2)
    assert loader.verdict is Verdict.HOLD_UP, loader
    assert loader.named.startswith("worker 1, pid ") and f"({loader.named})" in loader.verdict_line
    assert any("worker 1 takes" in reason.text for reason in loader.why)
    assert any(promise.options == {"in_order": False} for promise in loader.promises)


@pytest.mark.slow
@pytest.mark.parametrize("whole_batch", [True, False], ids=["a queue", "a share each"])
def test_workers_that_wait_for_each_other_are_not_to_be_more(tmp_path: Path, whole_batch: bool) -> None:
    options = {"num_workers": 4, "batch_size": 4, "epochs": 6, "persistent_workers": True}
    loader = judged(tmp_path / "run.trace", Locked(48, whole_batch), **options)
    assert loader.verdict is Verdict.TURNS, loader
    assert any("more workers do not help" in advice for advice in loader.next)
    assert not any("num_workers" in promise.options for promise in loader.promises)


@pytest.mark.alone  # what a thread waits for, samples of a few milliseconds show
def test_a_server_that_serves_one_request_at_a_time_is_the_cause(tmp_path: Path, port: int) -> None:
    """No worker holds anything that the others wait for, and all of their batches take the same time."""
    loader = judged(tmp_path / "run.trace", Served(200, port), ATTACHED, num_workers=4, batch_size=4)
    assert loader.verdict is Verdict.TURNS, loader
    assert any("what they ask serves one request at a time" in reason.text for reason in loader.why)
    line = next(n for n, text in enumerate(Path(__file__).read_text().splitlines(), 1) if "# here they wait" in text)
    assert loader.named.startswith(f"at test_culprits.py:{line}, ") and f"({loader.named})" in loader.verdict_line
    assert not any(promise.options.get("num_workers", 0) > 4 for promise in loader.promises)


@pytest.mark.slow
@PACKAGES
def test_workers_that_wait_for_storage_do_not_wait_for_each_other(tmp_path: Path, package: Any) -> None:
    options = {"num_workers": 4, "batch_size": 4, "epochs": 2}
    loader = judged(tmp_path / "run.trace", loads.Samples(96, loads.waits), package, **options)
    assert Verdict.TURNS.name.lower() not in loader.causes_ns


def test_unequal_shares_of_a_stream_are_named(tmp_path: Path) -> None:
    loader = judged(tmp_path / "run.trace", Shards(), num_workers=6, batch_size=2)
    assert loader.verdict is Verdict.SHARES and loader.named == "worker 0 has most", loader
    assert "an equal share" in loader.next[0] and not loader.promises


@PACKAGES
@pytest.mark.parametrize("workers", [0, 1])
def test_a_slow_collate_fn_is_named(tmp_path: Path, package: Any, workers: int) -> None:
    options = {"num_workers": workers, "batch_size": 4, "collate_fn": pads}
    loader = judged(tmp_path / "run.trace", loads.Samples(80, loads.quick), package, **options)
    assert loader.verdict in (Verdict.WORKERS, Verdict.NO_WORKERS), loader
    assert loader.named.startswith("collate_fn pads (test_culprits.py:"), loader
    assert any("of making a batch is collating" in reason.text for reason in loader.why)


@pytest.mark.alone  # what a thread waits for, samples of a few milliseconds show
def test_a_thread_that_keeps_pythons_lock_is_the_cause(tmp_path: Path) -> None:
    """Main's own work is quick, but it waits for the lock at every step of it."""
    over = threading.Event()

    def compute() -> None:
        while not over.is_set():
            sum(range(20_000))

    thread = threading.Thread(target=compute)
    thread.start()
    try:
        loader = judged(tmp_path / "run.trace", loads.Samples(500, loads.quick), num_workers=2, batch_size=2)
    finally:
        over.set()
        thread.join()
    assert loader.verdict is Verdict.MOVING, loader
    assert any("the other threads of its process used" in reason.text for reason in loader.why)
    assert loader.named == "another thread of main keeps Python's lock"
