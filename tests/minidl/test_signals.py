"""How a death is described, and when the SIGCHLD handler raises it."""

from __future__ import annotations

import functools
import itertools
import linecache
import multiprocessing
import os
import re
import signal
import sys
import threading
import time
import types
from collections.abc import Iterator
from multiprocessing import forkserver
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

import pytest
import torch.utils.data

import minidl
from minidl import DataLoader, shutdown
from minidl.deaths import explain_death
from minidl.events import Queue
from minidl.queues import Producer
from minidl.world.real import RealWorld
from minidl.world.real_memory import SocketEnd
from tests.minidl.dying import batches, in_a_fork, keys, loader_of, stuck, take_all, workers
from tests.samples import Samples

pytestmark = pytest.mark.timeout(30)
WORLD = RealWorld()


def kill_myself(number: int) -> None:
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


@pytest.mark.parametrize(
    ("number", "name", "cause"),
    [
        (signal.SIGFPE, "is killed by signal: Floating point exception.", "It had no task."),
        (signal.SIGABRT, "is killed by signal: Aborted.", "Native code gave up"),
        (signal.SIGTERM, "is killed by signal: Terminated.", "asked this process to end"),
        (signal.SIGUSR1, "is killed by signal: User defined signal 1.", "It had no task."),
        (signal.SIGRTMIN + 3, "is killed by signal: Real-time signal 3.", "It had no task."),
    ],
)
def test_a_signal_is_named_with_its_usual_cause(number: int, name: str, cause: str) -> None:
    process = multiprocessing.get_context("fork").Process(target=kill_myself, args=(number,))
    process.start()
    text = explain_death(WORLD, process, 2, [])
    assert text.startswith(f"DataLoader worker (pid {process.pid}) {name} This was worker 2. It had no task.")
    assert cause in text


def test_the_exit_code_may_come_after_the_end() -> None:
    """Under forkserver: the server passes it on, when its turn comes."""
    process = multiprocessing.get_context("forkserver").Process(target=signal.pause)
    process.start()
    waiter, server = WORLD.waiter(), forkserver._forkserver._forkserver_pid
    ending = WORLD.end_of(process)
    waiter.add(ending, "ended")
    os.kill(server, signal.SIGSTOP)
    process.kill()
    goes_on = threading.Timer(0.1, os.kill, (server, signal.SIGCONT))
    try:
        assert waiter.wait(10) == ["ended"]
    finally:
        goes_on.start()
    said = explain_death(WORLD, process, 0, [(7, "x" * 300)])
    assert "is killed by signal: Killed." in said and "x" * 199 in said and "x" * 200 not in said  # keys are cut short
    goes_on.join()


@pytest.mark.parametrize("options", [{}, {"pin_memory": "host"}], ids=["plain", "pinned"])
@pytest.mark.parametrize("package", [minidl, torch.utils.data], ids=["minidl", "torch"])
def test_what_a_handler_raises_while_main_waits_comes_out_of_next_and_costs_no_batch(
    package: Any, options: dict[str, Any]
) -> None:
    def too_late(number: int, frame: types.FrameType | None) -> None:
        raise TimeoutError("too late")

    late = Samples(4, at={0: functools.partial(time.sleep, 0.3)})
    iterator = iter(package.DataLoader(late, None, num_workers=1, **(options if package is minidl else {})))
    before = signal.signal(signal.SIGALRM, too_late)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(TimeoutError, match="too late"):
            next(iterator)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert list(iterator) == [0, 1, 2, 3]


def test_a_fork_of_main_gets_workers_of_its_own_from_a_persistent_loader() -> None:
    loader = loader_of(keys(12), persistent_workers=True)
    iterator = iter(loader)
    seen = [next(iterator).tolist()]

    def child() -> None:
        signal.alarm(20)  # its end, if it waits for the workers of main
        its = iter(loader)
        assert take_all(its, found := []) == "" and found == batches(12)
        its._shutdown_workers()

    in_a_fork(child)
    assert take_all(iterator, seen) == "" and seen == batches(12)


class Raises:
    """Within it an error is raised in a line of minidl that next() leads to, the n-th that is run; or as the function
    `caller` calls its n-th `callee`. `came` says whether there were that many."""

    def __init__(self, number: int, caller: str = "__next__", callee: str = "", error: Any = KeyboardInterrupt) -> None:
        self.left, self.caller, self.callee, self.came, self.error = number, caller, callee, False, error

    def __enter__(self) -> Raises:
        sys.settrace(self.look)
        return self

    def __exit__(self, kind: Any, error: Any, _: object) -> bool:
        sys.settrace(None)
        return self.came and any(
            isinstance(each, self.error) for each in (error, error and error.__cause__)
        )  # unpickling's

    def look(self, frame: types.FrameType, event: str, argument: object) -> Any:
        if not frame.f_globals.get("__name__", "").startswith("minidl."):
            return None
        if not self.callee:
            return self.line if frame.f_code.co_name == self.caller or self.is_below(frame) else None
        if frame.f_back and frame.f_back.f_code.co_name == self.caller and frame.f_code.co_name == self.callee:
            self.count()
        return None

    def is_below(self, frame: types.FrameType | None) -> bool:
        while frame is not None and frame.f_code.co_name != self.caller:
            frame = frame.f_back
        return frame is not None

    def line(self, frame: types.FrameType, event: str, argument: object) -> Any:
        text = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        if event == "line" and (
            frame.f_code.co_name != "__next__" or "return" not in text
        ):  # there Python looks for none
            self.count()
        return self.line

    def count(self) -> None:
        self.left -= 1
        if self.left < 0 and not self.came:
            self.came = True
            raise self.error("here")


LOADS: dict[str, dict[str, Any]] = {
    "serial": {},
    "workers": {"num_workers": 1},
    "pinned": {"num_workers": 1, "pin_memory": "host"},
}


@pytest.mark.slow
@pytest.mark.timeout(100)
@pytest.mark.parametrize("error", [KeyboardInterrupt, TimeoutError])
@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.full)])
def test_whatever_line_of_next_an_error_is_raised_in_no_batch_is_missing_in_silence(
    load: str, error: Any, every: int
) -> None:
    """Either all batches come, or the iterator says ever after that it has failed. (Without workers an Exception can be
    the dataset's: then it takes the place of a batch.)"""
    goes_on = fails = 0
    for number in itertools.count(0, every):
        iterator = iter(DataLoader(list(range(4)), batch_size=None, **LOADS[load]))
        taken: list[Any] = []
        with Raises(number, error=error) as raises:
            taken.append(next(iterator))
        if not raises.came:
            break
        try:
            taken += iterator
        except RuntimeError as first:
            with pytest.raises(RuntimeError, match=re.escape(str(first))):
                next(iterator)
            fails += 1
        except TimeoutError as late:  # it came as keys were pickled, and was sent in the place of their batch
            assert "feeder" in str(late) and [*taken, *iterator] == [0, 1, 3], number
        else:
            in_its_place = [1, 2, 3] if (load, error) == ("serial", TimeoutError) else None
            assert taken in ([0, 1, 2, 3], in_its_place), number
            goes_on += 1
    assert taken == [0] and fails and (goes_on or load == "serial")


def too_late(*args: Any) -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # once is enough
    raise TimeoutError("too late")


HANDLERS = {"its own": too_late, "an alarm's": too_late, "a partial's": functools.partial(too_late, 1)}


@pytest.mark.parametrize("raises", HANDLERS)
@pytest.mark.parametrize("num_workers", [0, 1])
def test_keys_that_an_alarm_has_cost_are_not_missing_in_silence(num_workers: int, raises: str) -> None:
    """A generator that has raised is at its end. What it raises itself is torch's case: the epoch ends."""

    def keys() -> Iterator[int]:
        yield from range(4)
        if raises == "its own":
            raise TimeoutError("too late")
        signal.raise_signal(signal.SIGALRM)
        yield 4

    before = signal.signal(signal.SIGALRM, HANDLERS[raises])
    try:
        iterator = iter(DataLoader(range(9), None, sampler=keys(), num_workers=num_workers))
        end: type[Exception] | None = None
        while end is None:
            try:
                next(iterator)
            except TimeoutError:
                continue
            except (StopIteration, RuntimeError) as error:
                end = type(error)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert end is (StopIteration if raises == "its own" else RuntimeError)


def test_wherever_ctrl_c_comes_as_an_epoch_begins_the_loader_can_be_iterated() -> None:
    for number in itertools.count():
        loader = DataLoader(range(2), batch_size=None)
        with Raises(number, "_new_epoch") as ctrl_c:
            iter(loader)
        assert list(loader) == [0, 1]
        if not ctrl_c.came:
            break
    assert number > 3


@pytest.mark.parametrize("number", [0, 1])
def test_ctrl_c_as_the_ends_of_a_started_workers_pipes_are_closed_leaves_no_worker(number: int) -> None:
    with Raises(number, "start_workers", "close") as ctrl_c:
        iter(loader_of(keys(4), num_workers=1))
    assert ctrl_c.came and not workers()


def test_a_queue_whose_close_ctrl_c_has_interrupted_can_be_closed_again() -> None:
    reader, writer = WORLD.pipe()
    producer = Producer(WORLD, writer, Queue.INDEX, 0)
    with Raises(0, "close", "close") as ctrl_c:
        producer.close()
    assert ctrl_c.came and not producer.closed
    producer.close()
    assert producer.closed and reader.read() == b"", "the other end sees that nothing more comes"


def test_an_epoch_that_ctrl_c_kept_from_beginning_is_not_gone_on_with() -> None:
    iterator = iter(loader := loader_of(keys(4), persistent_workers=True))
    assert take_all(iterator, seen := []) == "" and seen == batches(4)
    with Raises(0, "_reset", "_begin_epoch") as ctrl_c:
        iter(loader)
    assert ctrl_c.came
    with pytest.raises(RuntimeError, match="interrupted"):
        next(iterator)
    assert [batch.tolist() for batch in loader] == batches(4)


def test_ctrl_c_as_a_death_is_raised_in_training_does_not_hide_the_death() -> None:
    iterator = iter(loader_of(keys(40)))
    next(iterator)
    pid = workers()[0].pid
    with Raises(0, "fail_for_death", "explain_death") as ctrl_c:
        os.kill(pid, signal.SIGKILL)
        time.sleep(20)
    assert ctrl_c.came
    for _ in range(2):
        with pytest.raises(RuntimeError, match="is killed by signal: Killed"):
            next(iterator)


def test_a_death_that_a_handlers_next_has_raised_is_raised_by_the_one_it_interrupted(tmp_path: Path) -> None:
    """A handler of the program's takes a batch from the same iterator, which waits for a batch."""
    iterator = iter(loader_of(stuck(4, 0, tmp_path / "begun"), num_workers=1, timeout=1))

    def handler(number: int, frame: Any) -> None:
        os.kill(workers()[0].pid, signal.SIGKILL)
        with pytest.raises(RuntimeError, match="Killed"):
            next(iterator)

    previous = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(RuntimeError, match="Killed"):
            next(iterator)
    finally:
        signal.signal(signal.SIGALRM, previous)


class Gone:
    def __del__(self) -> None:
        signal.raise_signal(signal.SIGCHLD)


class Closes:
    """In place of a socket."""

    def settimeout(self, seconds: None) -> None:
        pass

    def close(self) -> None:
        signal.raise_signal(signal.SIGCHLD)


def test_a_death_is_not_raised_where_multiprocessing_could_lose_what_it_has_just_read() -> None:
    """Nor in a `__del__`, where Python would swallow it. But it is at the prompt of an interactive interpreter, where
    there is no frame."""
    iterator = iter(loader_of(keys(40)))
    handler: Any = signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # nobody is to hear of the end yet
    worker = workers()[0]
    worker.kill()
    os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)
    signal.signal(signal.SIGCHLD, handler)
    Finalize(None, signal.raise_signal, (signal.SIGCHLD,), exitpriority=0)()
    Gone()
    SocketEnd(Closes())  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="Killed"):
        handler(signal.SIGCHLD, None)
    with pytest.raises(RuntimeError, match="Killed"):
        next(iterator)


def test_an_iterator_that_another_thread_shuts_down_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the handler would ask is closed by then, and it raises in main, which has nothing to do with it."""
    closed, go_on, close_queues = threading.Event(), threading.Event(), shutdown.close_queues

    def late(iterator: Any) -> None:
        close_queues(iterator)
        closed.set()
        go_on.wait()

    monkeypatch.setattr(shutdown, "close_queues", late)
    iterator = iter(DataLoader(range(8), num_workers=2, multiprocessing_context="fork"))
    thread = threading.Thread(target=iterator._shutdown_workers)
    thread.start()
    try:
        closed.wait()
        os.kill(os.getpid(), signal.SIGCHLD)
    finally:
        go_on.set()
        thread.join()
