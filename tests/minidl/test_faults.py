"""A worker dies: the error comes at once, names everything, stays, and no batch is silently missing.

The rows of the table in docs/differences.md, with real processes and real signals. Map-style loaders of two workers
and batches of two: worker w makes the batches w, w + 2, ...; key 9 is in task 4, the third of worker 0.
"""

from __future__ import annotations

import fcntl
import functools
import gc
import os
import re
import signal
import struct
import sys
import termios
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

import minidl
from minidl.events import Kind
from minidl.world.real import RealWorld
from tests.minidl.dying import (
    LIMIT,
    Keys,
    Large,
    Stream,
    as_they_are,
    batches,
    follow,
    in_a_thread,
    loader_of,
    no_names_left,
    open_files,
    take_all,
    wait_until,
    way,
    workers,
)
from tests.minidl.observing import emitted

pytestmark = pytest.mark.timeout(60)

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
KINDS = {"map": Keys, "iterable": Stream}


@pytest.fixture(autouse=True)
def no_names() -> Any:
    with no_names_left():
        yield


@pytest.fixture(autouse=True, params=["inline", "slots"])
def every_way(request: pytest.FixtureRequest) -> Any:
    with way(request.param):
        yield


def kill(worker: Any) -> None:
    """Returns once it is dead; in the main thread the SIGCHLD handler may raise before that. Its exit code is left
    to be found by the loader."""
    os.kill(worker.pid, signal.SIGKILL)
    os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)


def check_message(text: str, how: str, pid: int, worker_id: int, task_id: int | None, keys: str) -> None:
    """It names the pid, exit code or signal, worker id, task and its keys, and the likely cause."""
    begins, cause = WAYS[how]
    assert re.match(rf"DataLoader worker \(pid(\(s\))? {pid}\) ", text), text
    assert begins in text
    assert f"worker {worker_id}." in text
    assert f"task {task_id}, keys {keys}" in text if task_id is not None else "It had no task." in text
    assert cause in text


def ways_and_places() -> list[Any]:
    """Every way to die in the plainest loader of each kind; a kill and a quiet exit in all the others, too."""
    return [
        pytest.param(how, kind, persistent, pin_memory, id=f"{how}-{kind}{'-persistent' * persistent}{'-pin' * pin}")
        for how in WAYS
        for kind in KINDS
        for persistent in (False, True)
        for pin, pin_memory in enumerate((False, "host"))
        if how in ("SIGKILL", "sys.exit(0)") or not (persistent or pin)
    ]


@pytest.mark.parametrize(("how", "kind", "persistent", "pin_memory"), ways_and_places())
def test_a_worker_that_dies_in_a_fetch_is_named_with_its_task(
    how: str, kind: str, persistent: bool, pin_memory: Any
) -> None:
    loader = loader_of(KINDS[kind](40, how, at=9), persistent_workers=persistent, pin_memory=pin_memory)
    iterator = iter(loader)
    pid = workers()[0].pid
    seen: list[Any] = []
    text = take_all(iterator, seen)
    # What was finished and sent before may still be yielded, in order, and no more than that.
    assert seen == batches(40)[: len(seen)] and len(seen) <= 4
    check_message(text, how, pid, 0, 4, "[8, 9]" if kind == "map" else "[None, None]")
    for _ in range(3):  # sticky
        with pytest.raises(RuntimeError) as again:
            next(iterator)
        assert str(again.value) == text


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("context", "kind"), [("spawn", "map"), ("forkserver", "iterable")])
def test_a_death_is_raised_under_the_other_start_methods_too(context: str, kind: str) -> None:
    init = functools.partial(follow, RealWorld.inline)
    loader = loader_of(KINDS[kind](40, "SIGKILL", at=9), multiprocessing_context=context, worker_init_fn=init)
    iterator = iter(loader)
    pid = workers()[0].pid
    seen: list[Any] = []
    with emitted() as found:  # only now: spawn would have to pickle the recorder
        text = take_all(iterator, seen)
    lent = [worker for kind, _, _, worker, *_ in found if kind == Kind.SLOT_LENT]
    assert (0 in lent) == (RealWorld.inline == 0)  # task 4 is sent when the batch of task 0 has come
    assert seen == batches(40)[: len(seen)] and len(seen) <= 4
    check_message(text, "SIGKILL", pid, 0, 4, "[8, 9]" if kind == "map" else "[None, None]")


def test_a_death_in_worker_init_fn_is_raised() -> None:
    def init(worker_id: int) -> None:
        if worker_id == 1:
            os._exit(3)

    with emitted() as found:
        iterator = iter(loader_of(Keys(8), worker_init_fn=init))
    pid = next(value for kind, _, _, worker, _, value, _ in found if kind == Kind.WORKER_STARTED and worker == 1)
    text = take_all(iterator, [])
    check_message(text, "os._exit(3)", pid, 1, 1, "[2, 3]")


@pytest.mark.parametrize("pin_memory", [False, "host"], ids=["no-pin", "pin"])
def test_a_death_is_raised_in_the_middle_of_the_training_step(pin_memory: Any) -> None:
    """The SIGCHLD handler raises in the middle of the training step."""
    iterator = iter(loader_of(Keys(40), pin_memory=pin_memory))
    next(iterator)
    pid = workers()[1].pid
    start = time.monotonic()
    with pytest.raises(RuntimeError) as caught:
        os.kill(pid, signal.SIGKILL)
        while time.monotonic() < start + LIMIT:
            torch.ones(10, 10) @ torch.ones(10, 10)  # the training step
    assert time.monotonic() < start + LIMIT
    assert re.match(rf"DataLoader worker \(pid {pid}\) is killed by signal: Killed\.", str(caught.value))
    with pytest.raises(RuntimeError) as again:
        next(iterator)
    assert str(again.value) == str(caught.value)


@pytest.mark.parametrize("pin_memory", [False, "host"], ids=["no-pin", "pin"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_death_is_raised_in_a_thread_that_has_no_signal_handler(kind: str, pin_memory: Any) -> None:
    """The wait itself wakes, and a later next() notices."""
    seen: list[Any] = []
    texts: list[str] = []

    def train() -> None:
        iterator = iter(loader_of(KINDS[kind](40, "SIGKILL", at=9), pin_memory=pin_memory))
        texts.extend(take_all(iterator, seen) for _ in range(3))

    in_a_thread(train)
    assert seen == batches(40)[: len(seen)] and len(seen) <= 4
    assert "killed by signal: Killed." in texts[0] and texts == texts[:1] * 3


def test_next_notices_a_death_that_no_handler_saw() -> None:
    """Batches wait in the pipe, but a thread's next() after the death raises, not only the last one."""
    texts: list[str] = []

    def train() -> None:
        iterator = iter(loader_of(Keys(40)))
        next(iterator)
        kill(workers()[1])
        seen: list[Any] = []
        texts.append(take_all(iterator, seen))
        assert not seen

    in_a_thread(train)
    assert "killed by signal: Killed." in texts[0]


def test_a_worker_killed_while_main_joins_it_keeps_its_exit_code() -> None:
    """Main is in multiprocessing's own waitpid: the handler must not raise before the exit code is noted."""
    iterator = iter(loader_of(Keys(40)))
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
    with pytest.raises(RuntimeError, match="killed by signal: Killed"):
        next(iterator)


def test_a_death_during_a_finalizer_is_raised_at_the_next_step() -> None:
    """What is raised there is swallowed: it must wait for the next next()."""
    iterator = iter(loader_of(Keys(40)))

    class Finalized:
        def __del__(self) -> None:
            kill(workers()[0])  # the test fails if this prints "Exception ignored"

    Finalized()
    with pytest.raises(RuntimeError, match="killed by signal: Killed"):
        next(iterator)


def unread(iterator: Any, worker_id: int) -> int:
    """Bytes in a worker's result pipe."""
    channels = iterator._worker_result_queue._channels
    fd = next(channel.reader.fileno() for channel in channels if channel.worker_id == worker_id)
    return struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, b"\0\0\0\0"))[0]


@pytest.mark.parametrize("persistent", [False, True], ids=["one-epoch", "persistent"])
def test_main_does_not_wait_for_the_rest_of_a_dead_workers_message(persistent: bool) -> None:
    """The pipe holds the beginning of a message, and cannot hold more of it: its rest never comes."""
    iterator = iter(loader_of(Large(40), collate_fn=as_they_are, persistent_workers=persistent))
    wait_until(lambda: unread(iterator, 0))
    with pytest.raises(RuntimeError, match=r"worker 0\. It was working on, or about to begin, task 0, keys \[0, 1\]"):
        kill(workers()[0])
        next(iterator)
    with pytest.raises(RuntimeError, match="killed by signal: Killed"):
        next(iterator)


def test_a_death_is_raised_though_finished_batches_are_unread() -> None:
    """A batch of its own is in the pipe, whole. A death is a death: the batches after it would be missing."""
    iterator = iter(loader_of(Keys(40)))
    wait_until(lambda: unread(iterator, 1))
    with pytest.raises(RuntimeError, match="killed by signal: Killed"):
        kill(workers()[1])
        next(iterator)


def test_after_a_second_death_the_first_error_is_raised_again() -> None:
    iterator = iter(loader_of(Keys(40)))
    with pytest.raises(RuntimeError) as caught:
        kill(workers()[0])
        next(iterator)
    kill(workers()[0])  # the handler raises once: the error is known
    with pytest.raises(RuntimeError) as again:
        next(iterator)
    assert str(again.value) == str(caught.value)


def test_a_worker_that_was_told_to_stop_may_end() -> None:
    """An exhausted worker ends while the others go on: no error, not from the signal handler either."""

    class Uneven(minidl.IterableDataset):
        def __iter__(self) -> Any:
            return iter(range(2 if minidl.get_worker_info().id == 0 else 12))

    iterator = iter(loader_of(Uneven()))
    exhausted = workers()[0]
    first = [next(iterator) for _ in range(2)]
    while exhausted.is_alive():  # main stops it when it learns that its stream has ended
        first.append(next(iterator))
        exhausted.join(0.1)
    assert len(first) + len(list(iterator)) == 7


@pytest.mark.parametrize("pin_memory", [False, "host"], ids=["no-pin", "pin"])
@pytest.mark.parametrize("kind", KINDS)
def test_after_a_death_a_new_epoch_has_new_workers(kind: str, pin_memory: Any) -> None:
    loader = loader_of(KINDS[kind](40), persistent_workers=True, pin_memory=pin_memory)
    iterator = iter(loader)
    pids = {worker.pid for worker in workers()}
    with pytest.raises(RuntimeError, match="killed by signal: Killed"):
        kill(workers()[0])
        next(iterator)
    for _ in range(2):
        seen: list[Any] = []
        assert take_all(iter(loader), seen) == ""
        assert seen == batches(40)
    assert pids.isdisjoint(worker.pid for worker in workers())


@pytest.mark.parametrize("pin_memory", [False, "host"], ids=["no-pin", "pin"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_death_between_two_epochs_is_raised_by_the_second(kind: str, pin_memory: Any) -> None:
    """In a thread, where no handler tells: the resume handshake must not wait for an answer of the dead."""
    texts: list[str] = []
    seen: list[Any] = []

    def train() -> None:
        loader = loader_of(KINDS[kind](8), persistent_workers=True, pin_memory=pin_memory)
        assert len(list(loader)) == 4
        kill(workers()[0])
        try:
            iter(loader)
        except RuntimeError as error:
            texts.append(str(error))
        texts.append(take_all(iter(loader), seen))

    in_a_thread(train)
    assert "killed by signal: Killed." in texts[0] and "It had no task." in texts[0]
    assert texts[1:] == [""] and seen == batches(8)


HOLDER: list[Any] = []


class Dropper(minidl.Dataset):
    """In a worker: drops the iterator that it inherited by fork, and returns whether that is gone."""

    def __init__(self, inherited: weakref.ref[Any]) -> None:
        self.inherited = inherited

    def __len__(self) -> int:
        return 4

    def __getitem__(self, key: int) -> bool:
        HOLDER.clear()
        gc.collect()
        return self.inherited() is None


@pytest.mark.parametrize("persistent", [False, True], ids=["one-epoch", "persistent"])
def test_an_inherited_iterator_is_dropped_in_silence(persistent: bool, capfd: pytest.CaptureFixture[str]) -> None:
    loader = loader_of(Keys(40), persistent_workers=persistent)
    HOLDER.append(iter(loader))
    del loader
    first = next(HOLDER[0]).tolist()
    dropped = list(loader_of(Dropper(weakref.ref(HOLDER[0]))))
    assert [batch.tolist() for batch in dropped] == [[True, True], [True, True]]
    seen = [first]
    assert take_all(HOLDER.pop(), seen) == "" and seen == batches(40)  # here it is as it was
    assert capfd.readouterr().err == ""


def test_a_loader_that_is_refused_prints_nothing_when_it_is_dropped(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match=r"at least 1, or None .* num_workers=0"):
        loader_of(Keys(4), prefetch_factor=0)
    gc.collect()
    assert capfd.readouterr().err == ""


def test_a_death_then_its_lost_tasks_then_the_error_are_emitted() -> None:
    """Noticed, then each task it had is lost, in order; then raised; the next error is marked as a repetition."""
    iterator = iter(loader_of(Keys(40, "SIGKILL", at=0)))
    with emitted() as found:
        texts = [take_all(iterator, []) for _ in range(2)]
    assert [(Kind(kind), task, worker) for kind, _, task, worker, *_ in found if 72 <= kind < 80] == [
        (Kind.WORKER_DIED, -1, 0),
        (Kind.TASK_LOST, 0, 0),
        (Kind.TASK_LOST, 2, 0),
        (Kind.ERROR_RAISED, -1, -1),
        (Kind.ERROR_RAISED, -1, -1),
    ]
    assert [value for kind, *_, value, _ in found if kind == Kind.ERROR_RAISED] == [0, 1]
    assert texts[0] == texts[1]


class DiesSharing(Keys):
    """Dies as in the middle of torch's making of shared memory: it has a name already, and still has it."""

    def __getitem__(self, key: int) -> Any:
        if key == self.at:
            Path(f"/dev/shm/torch_{os.getpid()}_1_2").touch()
        return super().__getitem__(key)


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="named shared memory cannot be listed here")
def test_a_killed_worker_leaves_no_name_of_shared_memory() -> None:
    iterator = iter(loader_of(DiesSharing(40, "SIGKILL", at=9)))
    pid = workers()[0].pid
    assert "killed by signal: Killed" in take_all(iterator, [])
    assert list(Path("/dev/shm").glob(f"torch_{pid}_*"))
    del iterator
    assert not list(Path("/dev/shm").glob(f"torch_{pid}_*"))


def test_deaths_leave_no_file_open() -> None:
    gc.collect()
    before = open_files()
    for kind in KINDS.values():
        assert take_all(iter(loader_of(kind(40, "SIGKILL", at=9), pin_memory="host")), []) != ""
    gc.collect()
    wait_until(lambda: open_files() <= before, LIMIT)
