"""Datasets that die on purpose, and what a program sees of it. Importable, so that spawned workers find them.

Legend: how "SIGKILL", at 5 (the key at which a worker dies), seen [[0, 1], [2, 3]] (the batches that came, as lists).
"""

from __future__ import annotations

import contextlib
import functools
import gc
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import torch

import minidl
from minidl.world.real import RealWorld
from tests.samples import Samples, Stream, dealt_in_pairs

LIMIT = 3.0  # seconds; a death is noticed within milliseconds, but a test machine may be busy


def die(how: str) -> None:
    if how == "os._exit(3)":
        os._exit(3)
    if how == "sys.exit(0)":
        sys.exit(0)
    if how == "crash":  # a real one: native code follows a null pointer
        import ctypes

        ctypes.string_at(0)
    os.kill(os.getpid(), getattr(signal, how))


def keys(length: int, how: str = "", at: int = -1) -> Samples:
    """Sample k is tensor(k). A worker that fetches sample `at` dies in the way `how` names."""
    return Samples(length, torch.tensor, {at: functools.partial(die, how)})


def stream(length: int, how: str = "", at: int = -1) -> Stream:
    """Batches of two come as from `keys`."""
    return Stream(keys(length, how, at), dealt_in_pairs)


def stuck(length: int, at: int, begun: Path) -> Samples:
    """Fetching sample `at` takes for ever; the file `begun` shows that it has begun."""
    return Samples(length, torch.tensor, {at: functools.partial(get_stuck, begun)})


def get_stuck(begun: Path) -> None:
    begun.touch()
    time.sleep(3600)


def loader_of(dataset: Any, **options: Any) -> minidl.DataLoader:
    """With two forked workers and batches of two, where `options` do not differ."""
    usual = {"batch_size": 2, "num_workers": 2, "multiprocessing_context": "fork"}
    return minidl.DataLoader(dataset, **{**usual, **options})


def batches(length: int) -> list[list[int]]:
    """All batches of two."""
    return [[key, key + 1] for key in range(0, length, 2)]


def take_all(iterator: Any, seen: list[Any]) -> str:
    """Iterate to the end, noting each batch in `seen`. Returns the RuntimeError's text, or "" for a normal end. What it
    still holds by then is as it was."""
    held: deque[Any] = deque(maxlen=2)  # so that slots are lent, and others used again
    try:
        for batch in iterator:
            values = batch.tolist()
            held.append((batch, values))
            seen.append(values)
    except RuntimeError as error:
        return str(error)
    finally:
        assert all(batch.tolist() == values for batch, values in held), "overwritten while lent"
    return ""


def taken(iterator: Any) -> tuple[list[Any], str]:
    """What came until the end, and the RuntimeError's text, or "" for a normal end."""
    seen: list[Any] = []
    text = take_all(iterator, seen)
    return seen, text


def workers() -> list[Any]:
    """The living workers of this process, by worker_id, as any program can ask for them."""
    return sorted(multiprocessing.active_children(), key=lambda child: child.name)


def in_a_thread(run: Callable[[], Any]) -> Any:
    """What it returns, run in another thread, which must end within LIMIT seconds."""
    returned: list[Any] = []
    thread = threading.Thread(target=lambda: returned.append(run()), daemon=True)
    thread.start()
    thread.join(LIMIT)
    assert returned and not thread.is_alive()
    return returned[0]


def in_a_fork(run: Callable[[], Any]) -> None:
    """In a child that this process forks; it must raise nothing there."""
    if not (pid := os.fork()):
        try:
            run()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@contextlib.contextmanager
def no_threads() -> Iterator[None]:
    """None can be started, as when the interpreter exits."""
    before = threading.stack_size(1 << 47)  # more than any process has
    try:
        yield
    finally:
        threading.stack_size(before)


def wait_until(true: Callable[[], Any], limit: float = 20.0) -> None:
    """Wait for something to become true; fail if it does not within `limit` seconds."""
    deadline = time.monotonic() + limit
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.001)


def shared_memory_names() -> set[str]:
    """Of torch's shared memory (`torch_<pid>_...`), what processes that have ended left behind: it is lost until the
    machine is restarted. Living ones (other programs' too) unlink theirs within microseconds."""
    directory = Path("/dev/shm")
    names = {path.name for path in directory.glob("torch_*")} if directory.is_dir() else set()
    return {name for name in names if not psutil.pid_exists(int(name.split("_")[1]))}


@contextlib.contextmanager
def no_names_left() -> Iterator[None]:
    """No shared memory is left under a name. (For a moment it is: until the main process of a dead worker has removed
    it. That may be another test's, beside this one.)"""
    before = shared_memory_names()
    yield
    gc.collect()  # what a test caught holds its frame, and so its iterator, which removes the names of the dead
    wait_until(lambda: shared_memory_names() <= before)


@contextlib.contextmanager
def way(name: str) -> Iterator[None]:
    """How batches come from forked workers, however small: "inline" (in the pickle, as small ones do) or in "slots"."""
    lent = RealWorld.lent
    RealWorld.lent = 1 if name == "slots" else lent
    try:
        yield
    finally:
        RealWorld.lent = lent


def follow(lent: int, worker_id: int) -> None:
    """A worker_init_fn, with main's `RealWorld.lent`: a worker that is not forked knows nothing of `way`."""
    RealWorld.lent = lent


def open_files() -> int:
    """How many descriptors this process has open."""
    return len(os.listdir("/dev/fd"))
