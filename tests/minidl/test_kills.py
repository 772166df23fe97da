"""Workers killed at each of their steps, and at random moments of main's: no hang, no silent loss, nothing left.

A run either ends normally with every batch, in order, or raises, and then raises the same again. `KILLS=1000` in the
environment kills more often at random.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
from collections.abc import Iterator

import psutil
import pytest

import minidl
from minidl.events import Kind
from tests.minidl.dying import Keys, Stream, batches, no_names_left, taken, way, workers
from tests.minidl.observing import recorder

KEYS = 24
KILLS = int(os.environ.get("KILLS", "50"))
ALL = batches(KEYS)
WAYS = ["inline", "slots"]


@pytest.fixture(autouse=True)
def no_names() -> Iterator[None]:
    with no_names_left():
        yield


def run(loader: minidl.DataLoader, epochs: int) -> str:
    """Iterate to the end, or to an error: its text, or "" for none."""
    for _ in range(epochs):
        try:
            iterator = iter(loader)
        except RuntimeError as error:  # it died while the others were started, or resumed
            return str(error)
        seen, text = taken(iterator)
        if text:
            assert seen == ALL[: len(seen)], "out of order before the error"
            assert taken(iterator) == ([], text), "not sticky"
            return text
        assert seen == ALL, "silently missing"
    return ""


class Suicide:
    """A recorder that ends its process at the n-th event: it is inherited by the workers, and counts there."""

    def __init__(self, worker_id: int, at: int) -> None:
        self.main, self.worker_id, self.left = os.getpid(), worker_id, at
        self.mine = False

    def __call__(self, kind: int, epoch_id: int, task: int, worker: int, *_: object) -> None:
        if os.getpid() == self.main:
            return
        self.mine = self.mine or (kind == Kind.WORKER_BEGIN and worker == self.worker_id)
        self.left -= self.mine
        if self.mine and self.left < 0:
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("at", range(8))
def test_a_worker_killed_at_any_of_its_events_is_noticed(at: int) -> None:
    """From its first line to its last: until it has no further event, and so survives. Each kind of loader begins at
    another event and tries every seventh; the simulated world tries all of them with each."""
    dataset, pin_memory, through = (Keys, Stream)[at % 2](KEYS), (False, "host")[at // 2 % 2], WAYS[at // 4]
    text = "never run"
    while text:
        try:
            with recorder(Suicide(1, at)), way(through):
                loader = minidl.DataLoader(dataset, 2, num_workers=2, pin_memory=pin_memory, persistent_workers=True)
                text = run(loader, 2)
                del loader
        except RuntimeError as error:  # between two epochs, or after the last: the handler raises wherever main is
            text = str(error)
        assert not text or "is killed by signal: Killed." in text
        at += 7
    assert at > 80  # it was killed at many


class Killer:
    """Kills one worker at a random moment: at main's n-th event, or after some milliseconds."""

    def __init__(self, draw: random.Random) -> None:
        self.random, self.main = draw, os.getpid()
        self.pids: list[int] = []  # of the workers started so far
        self.once = threading.Lock()  # taken for good by the first who kills
        self.countdown = draw.choice([0, draw.randrange(1, 400)])
        self.timer = threading.Timer(draw.uniform(0.0, 0.12), self.kill)
        if not self.countdown:
            self.timer.start()

    def __call__(self, kind: int, epoch_id: int, task: int, worker: int, queue: int, value: int, *_: object) -> None:
        """As a recorder: sees main's events, its feeders' and its pin thread's."""
        if os.getpid() == self.main:
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
        living = [pid for pid in self.pids if psutil.pid_exists(pid)]
        if living and self.once.acquire(blocking=False):
            with contextlib.suppress(ProcessLookupError):  # it ended just now
                os.kill(self.random.choice(living), signal.SIGKILL)


def one_kill(seed: int) -> str:
    """One run: the error's text, or ""."""
    killer = Killer(random.Random(seed))
    kind, persistent, pin_memory = (Keys, Stream)[seed % 2], seed // 2 % 2 == 1, (False, "host")[seed // 4 % 2]
    loader = minidl.DataLoader(kind(KEYS), 2, num_workers=3, pin_memory=pin_memory, persistent_workers=persistent)
    try:
        with recorder(killer):
            text = run(loader, 2)
            killer.end()
            del loader  # and the persistent workers: no death is left to raise
    except RuntimeError as error:  # killed after the last epoch: the handler raises wherever main is
        text = str(error)
    finally:
        killer.end()
    return text


@pytest.mark.slow
@pytest.mark.timeout(1.5 * KILLS)
@pytest.mark.filterwarnings("ignore:This DataLoader will create 3 worker")
@pytest.mark.parametrize("through", WAYS)
def test_random_kills_lose_nothing_in_silence(through: str) -> None:
    """How soon they are noticed, the benchmark measures."""
    kills, seed = 0, 0
    while kills < KILLS:  # a kill may come when everything is over; that is no fault
        with way(through):
            text = one_kill(seed)
        assert not text or "is killed by signal: Killed." in text, f"seed {seed}: {text}"
        assert not workers(), f"seed {seed}"
        kills += bool(text)
        seed += 1
