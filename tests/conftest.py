"""What holds for every test: Ctrl-C interrupts it and its children, and it leaves no process behind."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import re
import signal
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import psutil
import pytest

# Under nohup, in a shell's background or under many CI runners, SIGINT is ignored: Python then installs no handler, and
# tests of Ctrl-C would wait for ever. A child inherits a signal that is ignored, even through exec; one that has a
# handler here is back to its default there.
signal.signal(signal.SIGINT, signal.default_int_handler)

# What is imported and collected lives as long as pytest: `frozen` puts it aside, and then garbage is collected again.
gc.disable()

# The notebooks' format comes with a check of links, which no test uses, and whose grammar takes six seconds to import.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]

# What a test draws it draws on every machine, and a busy one may take its time.
hypothesis.settings.register_profile("same everywhere", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("same everywhere")


# Modules that take six seconds or more: `make check` leaves them out, like other tests that are marked `slow`.
SLOW = re.compile(
    r"tests/(benchmarks|exercises|notebooks)/|/test_(symptoms|programs|stateful|shutdown|slots|explore|stateful_stops"
    r"|signals|outside|mutants|compare|culprits|hang_ended|report|several_ranks|verdicts|whatif|demo|run|attach|processes|watch|memory"
    r"|legible|live|playground|step_through|timeline|html|story|tuning)\.py"
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if SLOW.search(item.nodeid):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True, scope="session")
def seeded_quickly() -> None:
    """A worker that seeds torch notes for each kind of device where it was called: every line of its stack, which is
    all of pytest, out of files that it has to open. That is a fourth of what a worker costs, and nobody reads it."""
    for device in ("cuda", "mtia", "xpu"):
        if module := sys.modules.get(f"torch.{device}"):
            module.traceback = types.SimpleNamespace(format_stack=list)  # type: ignore[attr-defined]


@pytest.fixture(autouse=True, scope="module")
def frozen() -> None:
    """What is there when a module begins (thousands of collected tests, half a million objects) is not looked at by any
    later collection, neither here nor in a forked worker, which would copy all its pages (0.45 s a worker)."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="module")
def mains() -> Iterator[Any]:
    """Of tests.minidl.mains: each `python -m tracing run` in it begins with all its imports done."""
    from tests.minidl.mains import Mains

    mains = Mains("tests.tracing.ready")
    yield mains
    mains.forker.communicate()


# These live as long as pytest.
HELPERS = ("multiprocessing.forkserver", "multiprocessing.resource_tracker")
PATIENCE = 5.0  # seconds for a process that is about to end


KERNEL_LISTS_CHILDREN = Path("/proc/thread-self/children").exists()


def pids_below(pid: int) -> Iterator[int]:
    """Of all descendants of this process, as the kernel lists them, thread by thread."""
    with contextlib.suppress(FileNotFoundError):  # it has ended
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):  # so has its thread
                for child in Path(f"/proc/{pid}/task/{thread}/children").read_text().split():
                    yield int(child)
                    yield from pids_below(int(child))


def descendants() -> list[psutil.Process]:
    """Of this process. psutil would look through all processes of the machine, twice for each test."""
    if not KERNEL_LISTS_CHILDREN:
        return psutil.Process().children(recursive=True)
    found = []
    for pid in pids_below(os.getpid()):
        with contextlib.suppress(psutil.NoSuchProcess):
            found.append(psutil.Process(pid))
    return found


def children() -> list[psutil.Process]:
    """The living descendants of this process, except multiprocessing's own helpers. Zombies do not count: their
    parents are about to reap them."""
    return [process for process in descendants() if not is_over(process)]


def is_over(process: psutil.Process) -> bool:
    try:
        command = " ".join(process.cmdline())
        if "--type=" in command:
            return True  # of the browser, which starts and ends its helpers when it likes, and ends them all with it
        helper = any(name in command for name in HELPERS) and "spawn_main" not in command
        # A worker forked from the forkserver has its command line; unlike the forkserver it is a helper's child.
        parent = process.parent()
        forked = parent is not None and any(name in " ".join(parent.cmdline()) for name in HELPERS)
        return process.status() == psutil.STATUS_ZOMBIE or (helper and not forked)
    except psutil.NoSuchProcess:
        return True


def nothing_left() -> Iterator[None]:
    """No child process outlives the test that started it, whether the test passes or not."""
    before = set(children())
    yield
    left = [process for process in children() if process not in before]
    if left:
        gc.collect()  # an iterator in a reference cycle (a traceback's frame, say) lives until now
        _, left = psutil.wait_procs(left, timeout=PATIENCE)
    # The loader's own handler would raise here, inside pytest.
    handler = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for process in left:
        process.kill()
    for child in multiprocessing.active_children():
        child.join(PATIENCE)  # else it never learns of the end, and counts it as alive in the tests that follow
    psutil.wait_procs(left, timeout=PATIENCE)
    signal.signal(signal.SIGCHLD, handler)
    assert not left, f"left behind: {left}"


no_leftovers = pytest.fixture(autouse=True)(nothing_left)
