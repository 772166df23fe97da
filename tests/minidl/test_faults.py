"""A worker dies: the error comes at once, names everything, stays, and no batch is silently missing.

The rows of the table in docs/differences.md, with real processes and real signals. Map-style loaders of two workers
and batches of two: worker w makes the batches w, w + 2, ...; key 9 is in task 4, the third of worker 0.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import random
import re
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from minidl.events import Kind
from minidl.world.real import RealWorld
from tests.minidl.dying import (
    LIMIT,
    batches,
    die,
    follow,
    in_a_thread,
    keys,
    loader_of,
    open_files,
    stream,
    taken,
    wait_until,
    way,
    workers,
)
from tests.minidl.observing import emitted, recorder
from tests.samples import Samples

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("no_names")]

# How a worker ends -> how the message begins after "DataLoader worker (pid ...)", and the cause that it gives.
WAYS = {
    "SIGKILL": ("is killed by signal: Killed.", "out of memory"),
    "SIGSEGV": ("is killed by signal: Segmentation fault.", "crash in native code"),
    "crash": ("is killed by signal: Segmentation fault.", "crash in native code"),
    "SIGBUS": ("is killed by signal: Bus error.", "out of shared memory"),
    "SIGABRT": ("is killed by signal: Aborted.", "Native code gave up"),
    "os._exit(3)": ("exited unexpectedly with exit code 3.", "os._exit()"),
    "sys.exit(0)": ("exited unexpectedly with exit code 0.", "sys.exit()"),
}
KINDS = {"map": keys, "iterable": stream}
each_kind = pytest.mark.parametrize("kind", KINDS)
pinned_or_not = pytest.mark.parametrize("pin_memory", [False, "host"], ids=["no-pin", "pin"])
persistent_or_not = pytest.mark.parametrize("persistent", [False, True], ids=["one-epoch", "persistent"])
killed = functools.partial(pytest.raises, RuntimeError, match=r"killed by signal: Killed\.")


@pytest.fixture(autouse=True, params=["inline", "slots"])
def every_way(request: pytest.FixtureRequest) -> Any:
    with way(request.param):
        yield


def check_message(text: str, how: str, pid: int, worker_id: int, task_id: int | None, keys: str) -> None:
    """It names the pid, exit code or signal, worker id, task and its keys, and the likely cause."""
    begins, cause = WAYS[how]
    assert re.match(rf"DataLoader worker \(pid(\(s\))? {pid}\) ", text), text
    assert begins in text
    assert f"worker {worker_id}." in text
    assert f"task {task_id}, keys {keys}" in text if task_id is not None else "It had no task." in text
    assert cause in text


def check_a_death_at_key_9(iterator: Any, how: str, kind: str) -> None:
    pid = workers()[0].pid
    seen, text = taken(iterator)
    # What was finished and sent before may still be yielded, in order, and no more than that.
    assert seen == batches(40)[: len(seen)] and len(seen) <= 4
    check_message(text, how, pid, 0, 4, "[8, 9]" if kind == "map" else "[None, None]")
    assert [taken(iterator) for _ in range(3)] == [([], text)] * 3  # sticky


@pinned_or_not
@persistent_or_not
@each_kind
@pytest.mark.parametrize("how", WAYS)
def test_a_worker_that_dies_in_a_fetch_is_named_with_its_task(
    how: str, kind: str, persistent: bool, pin_memory: Any
) -> None:
    """Every way to die in the plainest loader of each kind; a kill and a quiet exit in all the others, too."""
    if how in ("SIGKILL", "sys.exit(0)") or not (persistent or pin_memory):
        loader = loader_of(KINDS[kind](40, how, at=9), persistent_workers=persistent, pin_memory=pin_memory)
        check_a_death_at_key_9(iter(loader), how, kind)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("every_way", "context", "kind"),
    [("slots", "spawn", "map"), ("inline", "forkserver", "iterable")],
    indirect=["every_way"],
)
def test_a_death_is_raised_under_the_other_start_methods_too(context: str, kind: str) -> None:
    init = functools.partial(follow, RealWorld.lent)
    loader = loader_of(KINDS[kind](40, "SIGKILL", at=9), multiprocessing_context=context, worker_init_fn=init)
    iterator = iter(loader)
    with emitted() as found:  # only now: spawn would have to pickle the recorder
        check_a_death_at_key_9(iterator, "SIGKILL", kind)
    lent = [worker for kind, _, _, worker, *_ in found if kind == Kind.SLOT_LENT]
    assert (0 in lent) == (RealWorld.lent == 1)  # task 4 is sent when the batch of task 0 has come


def test_a_death_in_worker_init_fn_is_raised() -> None:
    def init(worker_id: int) -> None:
        if worker_id == 1:
            os._exit(3)

    with emitted() as found:
        iterator = iter(loader_of(keys(8), worker_init_fn=init))
    pid = next(value for kind, _, _, worker, _, value, _ in found if kind == Kind.WORKER_STARTED and worker == 1)
    _, text = taken(iterator)
    check_message(text, "os._exit(3)", pid, 1, 1, "[2, 3]")


@pinned_or_not
def test_a_death_is_raised_in_the_middle_of_the_training_step(pin_memory: Any) -> None:
    """The SIGCHLD handler raises in the middle of the training step."""
    iterator = iter(loader_of(keys(40), pin_memory=pin_memory))
    next(iterator)
    pid = workers()[1].pid
    end = time.monotonic() + LIMIT
    with pytest.raises(RuntimeError) as caught:
        os.kill(pid, signal.SIGKILL)
        while time.monotonic() < end:
            torch.ones(10, 10) @ torch.ones(10, 10)  # the training step
    assert re.match(rf"DataLoader worker \(pid {pid}\) is killed by signal: Killed\.", str(caught.value))
    assert taken(iterator) == ([], str(caught.value))


@pinned_or_not
@each_kind
def test_a_death_is_raised_in_a_thread_that_has_no_signal_handler(kind: str, pin_memory: Any) -> None:
    """The wait itself wakes, and a later next() notices."""

    def train() -> list[tuple[list[Any], str]]:
        iterator = iter(loader_of(KINDS[kind](40, "SIGKILL", at=9), pin_memory=pin_memory))
        return [taken(iterator) for _ in range(3)]

    (seen, text), *again = in_a_thread(train)
    assert seen == batches(40)[: len(seen)] and len(seen) <= 4
    assert "killed by signal: Killed." in text and again == [([], text)] * 2


def test_a_worker_killed_while_main_joins_it_keeps_its_exit_code() -> None:
    """Main is in multiprocessing's own waitpid: the handler must not raise before the exit code is noted."""
    iterator = iter(loader_of(keys(40)))
    worker = workers()[0]
    main = threading.get_ident()

    def kill_when_joined() -> None:
        wait_until(lambda: sys._current_frames()[main].f_globals["__name__"].startswith("multiprocessing."))
        os.kill(worker.pid, signal.SIGKILL)

    killer = threading.Thread(target=kill_when_joined)
    killer.start()
    worker.join()
    killer.join()
    assert worker.exitcode == -signal.SIGKILL
    with killed():
        next(iterator)


def test_a_death_then_its_lost_tasks_then_the_error_are_emitted() -> None:
    """Noticed, then each task it had is lost, in order; then raised; the next error is marked as a repetition."""

    def fail_twice() -> tuple[list[Any], list[str]]:
        iterator = iter(loader_of(keys(40, "SIGKILL", at=0)))
        with emitted() as found:
            return found, [taken(iterator)[1] for _ in range(2)]

    found, texts = in_a_thread(fail_twice)  # in the main thread SIGCHLD might come before the block is entered
    emits = [(Kind(kind).name, task, worker) for kind, _, task, worker, *_ in found if 72 <= kind < 80]
    assert emits[:3] == [("WORKER_DIED", -1, 0), ("TASK_LOST", 0, 0), ("TASK_LOST", 2, 0)]
    assert emits[3:] == [("ERROR_RAISED", -1, -1)] * 2
    assert [value for kind, *_, value, _ in found if kind == Kind.ERROR_RAISED] == [0, 1]
    assert texts[0] == texts[1]


def die_sharing() -> None:
    """As in the middle of torch's making of shared memory: it has a name already, and still has it."""
    Path(f"/dev/shm/torch_{os.getpid()}_1_2").touch()
    die("SIGKILL")


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="named shared memory cannot be listed here")
def test_a_killed_worker_leaves_no_name_of_shared_memory() -> None:
    iterator = iter(loader_of(Samples(40, torch.tensor, {9: die_sharing})))
    pid = workers()[0].pid
    assert "killed by signal: Killed" in taken(iterator)[1]
    assert list(Path("/dev/shm").glob(f"torch_{pid}_*"))
    del iterator
    assert not list(Path("/dev/shm").glob(f"torch_{pid}_*"))


def test_deaths_leave_no_file_open() -> None:
    gc.collect()
    before = open_files()
    for kind in KINDS.values():
        assert taken(iter(loader_of(kind(40, "SIGKILL", at=9), pin_memory="host")))[1] != ""
    gc.collect()
    wait_until(lambda: open_files() <= before, LIMIT)


# ---- kills at random moments of main's. `KILLS=1000` in the environment: more of them

KEYS = 24
KILLS = int(os.environ.get("KILLS", "30"))
ALL = batches(KEYS)


def run(loader: Any, epochs: int) -> str:
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
    kind, persistent, pin_memory = (keys, stream)[seed % 2], seed // 2 % 2 == 1, (False, "host")[seed // 4 % 2]
    loader = loader_of(kind(KEYS), num_workers=3, pin_memory=pin_memory, persistent_workers=persistent)
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
def test_random_kills_lose_nothing_in_silence() -> None:
    """How soon they are noticed, the benchmark measures."""
    kills, seed = 0, 0
    while kills < KILLS:  # a kill may come when everything is over; that is no fault
        text = one_kill(seed)
        assert not text or "is killed by signal: Killed." in text, f"seed {seed}: {text}"
        assert not workers(), f"seed {seed}"
        kills += bool(text)
        seed += 1
