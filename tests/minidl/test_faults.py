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
    taken,
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
each_kind = pytest.mark.parametrize("kind", KINDS)
pinned_or_not = pytest.mark.parametrize("pin_memory", [False, "host"], ids=["no-pin", "pin"])
persistent_or_not = pytest.mark.parametrize("persistent", [False, True], ids=["one-epoch", "persistent"])
killed = functools.partial(pytest.raises, RuntimeError, match=r"killed by signal: Killed\.")


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
@pytest.mark.parametrize(("context", "kind"), [("spawn", "map"), ("forkserver", "iterable")])
def test_a_death_is_raised_under_the_other_start_methods_too(context: str, kind: str) -> None:
    init = functools.partial(follow, RealWorld.inline)
    loader = loader_of(KINDS[kind](40, "SIGKILL", at=9), multiprocessing_context=context, worker_init_fn=init)
    iterator = iter(loader)
    with emitted() as found:  # only now: spawn would have to pickle the recorder
        check_a_death_at_key_9(iterator, "SIGKILL", kind)
    lent = [worker for kind, _, _, worker, *_ in found if kind == Kind.SLOT_LENT]
    assert (0 in lent) == (RealWorld.inline == 0)  # task 4 is sent when the batch of task 0 has come


def test_a_death_in_worker_init_fn_is_raised() -> None:
    def init(worker_id: int) -> None:
        if worker_id == 1:
            os._exit(3)

    with emitted() as found:
        iterator = iter(loader_of(Keys(8), worker_init_fn=init))
    pid = next(value for kind, _, _, worker, _, value, _ in found if kind == Kind.WORKER_STARTED and worker == 1)
    _, text = taken(iterator)
    check_message(text, "os._exit(3)", pid, 1, 1, "[2, 3]")


@pinned_or_not
def test_a_death_is_raised_in_the_middle_of_the_training_step(pin_memory: Any) -> None:
    """The SIGCHLD handler raises in the middle of the training step."""
    iterator = iter(loader_of(Keys(40), pin_memory=pin_memory))
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


def test_next_notices_a_death_that_no_handler_saw() -> None:
    """Batches wait in the pipe, whole, but a thread's next() after the death raises, not only the last one: those
    after them would be missing."""

    def train() -> tuple[list[Any], str]:
        iterator = iter(loader_of(Keys(40)))
        wait_until(lambda: unread(iterator, 1))
        kill(workers()[1])
        return taken(iterator)

    seen, text = in_a_thread(train)
    assert not seen and "killed by signal: Killed." in text


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
    with killed():
        next(iterator)


def test_a_death_during_a_finalizer_is_raised_at_the_next_step() -> None:
    """What is raised there is swallowed: it must wait for the next next()."""
    iterator = iter(loader_of(Keys(40)))

    class Finalized:
        def __del__(self) -> None:
            kill(workers()[0])  # the test fails if this prints "Exception ignored"

    Finalized()
    with killed():
        next(iterator)


def unread(iterator: Any, worker_id: int) -> int:
    """Bytes in a worker's result pipe."""
    channels = iterator._worker_result_queue._channels
    fd = next(channel.reader.fileno() for channel in channels if channel.worker_id == worker_id)
    return struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, b"\0\0\0\0"))[0]


@persistent_or_not
def test_main_does_not_wait_for_the_rest_of_a_dead_workers_message(persistent: bool) -> None:
    """The pipe holds the beginning of a message, and cannot hold more of it: its rest never comes."""
    iterator = iter(loader_of(Large(40), collate_fn=as_they_are, persistent_workers=persistent))
    wait_until(lambda: unread(iterator, 0))
    with pytest.raises(RuntimeError, match=r"worker 0\. It was working on, or about to begin, task 0, keys \[0, 1\]"):
        kill(workers()[0])
        next(iterator)
    with killed():
        next(iterator)


def test_after_a_second_death_the_first_error_is_raised_again() -> None:
    iterator = iter(loader_of(Keys(40)))
    with pytest.raises(RuntimeError) as caught:
        kill(workers()[0])
        next(iterator)
    kill(workers()[0])  # the handler raises once: the error is known
    assert taken(iterator) == ([], str(caught.value))


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


@pinned_or_not
@each_kind
def test_after_a_death_a_new_epoch_has_new_workers(kind: str, pin_memory: Any) -> None:
    loader = loader_of(KINDS[kind](40), persistent_workers=True, pin_memory=pin_memory)
    iterator = iter(loader)
    pids = {worker.pid for worker in workers()}
    with killed():
        kill(workers()[0])
        next(iterator)
    assert [taken(iter(loader)) for _ in range(2)] == [(batches(40), "")] * 2
    assert pids.isdisjoint(worker.pid for worker in workers())


@pinned_or_not
@each_kind
def test_a_death_between_two_epochs_is_raised_by_the_second(kind: str, pin_memory: Any) -> None:
    """In a thread, where no handler tells: the resume handshake must not wait for an answer of the dead."""

    def train() -> tuple[list[Any], str]:
        loader = loader_of(KINDS[kind](8), persistent_workers=True, pin_memory=pin_memory)
        assert len(list(loader)) == 4
        kill(workers()[0])
        with pytest.raises(RuntimeError, match=r"killed by signal: Killed\.(.|\n)*It had no task\."):
            iter(loader)
        return taken(iter(loader))

    assert in_a_thread(train) == (batches(8), "")


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


@persistent_or_not
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


def test_a_death_then_its_lost_tasks_then_the_error_are_emitted() -> None:
    """Noticed, then each task it had is lost, in order; then raised; the next error is marked as a repetition."""
    iterator = iter(loader_of(Keys(40, "SIGKILL", at=0)))
    with emitted() as found:
        texts = [taken(iterator)[1] for _ in range(2)]
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
