"""Workers killed at each of their steps, and at random moments of main's: no hang, no silent loss, nothing left.

A run either ends normally with every batch, in order, or raises, and then raises the same again.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import psutil
import pytest

import minidl
from minidl.events import Kind
from tests.minidl.dying import Keys, Stream, batches, shared_memory_names, take_all, way, workers
from tests.minidl.observing import recorder

pytestmark = pytest.mark.alone  # shared memory is the machine's

KEYS = 24
KILLS = int(os.environ.get("KILLS", "200"))
ALL = batches(KEYS)


def run(loader: minidl.DataLoader, epochs: int) -> tuple[str, float]:
    """Iterate to the end, or to an error: its text, or "" for none, and when that was known."""
    for _ in range(epochs):
        seen: list[Any] = []
        try:
            iterator = iter(loader)
        except RuntimeError as error:  # it died while the others were started, or resumed
            return str(error), time.monotonic()
        text = take_all(iterator, seen)
        known = time.monotonic()
        if text:
            assert seen == ALL[: len(seen)], "out of order before the error"
            assert take_all(iterator, seen) == text, "not sticky"
            return text, known
        assert seen == ALL, "silently missing"
    return "", time.monotonic()


class Suicide:
    """A recorder that ends its process at the n-th event: it is inherited by the workers, and counts there."""

    def __init__(self, worker_id: int, at: int) -> None:
        self.main, self.worker_id, self.left = os.getpid(), worker_id, at
        self.mine = False

    def __call__(self, kind: int, epoch_id: int, task: int, worker: int, queue: int, value: int, text: object) -> None:
        if os.getpid() == self.main:
            return
        self.mine = self.mine or (kind == Kind.WORKER_BEGIN and worker == self.worker_id)
        self.left -= self.mine
        if self.mine and self.left < 0:
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("through", ["inline", "slots"])
@pytest.mark.parametrize("pin_memory", [False, "host"], ids=["no-pin", "pin"])
@pytest.mark.parametrize("dataset", [Keys(KEYS), Stream(KEYS)], ids=["map", "iterable"])
def test_a_worker_killed_at_any_of_its_events_is_noticed(dataset: Any, pin_memory: Any, through: str) -> None:
    """From its first line to its last: until it has no further event, and so survives."""
    names = shared_memory_names()
    at, text = 0, "never run"
    while text:
        try:
            with recorder(Suicide(1, at)), way(through):
                loader = minidl.DataLoader(dataset, 2, num_workers=2, pin_memory=pin_memory, persistent_workers=True)
                text, _ = run(loader, 2)
                del loader
        except RuntimeError as error:  # between two epochs, or after the last: the handler raises wherever main is
            text = str(error)
        assert not text or "is killed by signal: Killed." in text
        at += 1 if at < 40 else 7  # the steps of start-up and of the first tasks; then a later one each time
    assert at > 80  # it was killed at many
    assert shared_memory_names() <= names


@dataclass
class Killer:
    """Kills one worker at a random moment: at main's n-th event, or after some milliseconds."""

    random: random.Random
    pids: list[int] = field(default_factory=list)  # of the workers started so far
    killed_at: float = 0.0
    lock: Any = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.main = os.getpid()
        self.countdown = 0
        self.timer = threading.Timer(self.random.uniform(0.0, 0.12), self.kill)
        if self.random.random() < 0.5:
            self.countdown = self.random.randrange(1, 400)
        else:
            self.timer.start()

    def __call__(self, kind: int, epoch_id: int, task: int, worker: int, queue: int, value: int, text: object) -> None:
        """As a recorder: sees main's events, its feeders' and its pin thread's."""
        if os.getpid() != self.main:
            return
        if kind == Kind.WORKER_STARTED:
            self.pids.append(value)
        self.countdown -= 1
        if self.countdown == 0:
            self.kill()

    def end(self) -> None:
        self.timer.cancel()
        if self.timer.is_alive():
            self.timer.join()

    def kill(self) -> None:
        with self.lock:
            living = [pid for pid in self.pids if psutil.pid_exists(pid)]
            if living and not self.killed_at:
                self.killed_at = time.monotonic()
                with contextlib.suppress(ProcessLookupError):  # it ended just now
                    os.kill(self.random.choice(living), signal.SIGKILL)


def one_kill(seed: int) -> tuple[str, float]:
    """One run: the error's text, or "", and the seconds from the kill to the error."""
    killer = Killer(random.Random(seed))
    kind, persistent, pin_memory = (Keys, Stream)[seed % 2], seed // 2 % 2 == 1, (False, "host")[seed // 4 % 2]
    loader = minidl.DataLoader(kind(KEYS), 2, num_workers=3, pin_memory=pin_memory, persistent_workers=persistent)
    try:
        with recorder(killer):
            text, known = run(loader, 2)
            killer.end()
            del loader  # and the persistent workers: no death is left to raise
    except RuntimeError as error:  # killed after the last epoch: the handler raises wherever main is
        text, known = str(error), time.monotonic()
    finally:
        killer.end()
    return text, known - killer.killed_at


@pytest.mark.slow
@pytest.mark.timeout(1.5 * KILLS)
@pytest.mark.filterwarnings("ignore:This DataLoader will create 3 worker")
@pytest.mark.parametrize("through", ["inline", "slots"])
def test_random_kills_lose_nothing_in_silence(through: str, capsys: pytest.CaptureFixture[str]) -> None:
    names = shared_memory_names()
    took: list[float] = []
    seed = 0
    while len(took) < KILLS:  # a kill may come when everything is over; that is no fault
        with way(through):
            text, seconds = one_kill(seed)
        if text:
            assert "is killed by signal: Killed." in text, f"seed {seed}: {text}"
            took.append(seconds * 1e3)
        assert not workers(), f"seed {seed}"
        seed += 1
    assert shared_memory_names() <= names
    median = sorted(took)[KILLS // 2]
    with capsys.disabled():
        print(f"\n{KILLS} kills noticed after {median:.0f} ms (median), {max(took):.0f} ms (worst), {through}")
    assert median < 100  # of which the system itself takes several to take a killed process down
